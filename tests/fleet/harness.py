"""A fleet of real processes on real servers: any number of each role, each of which can be killed or stopped.

``RunningFleet`` has the members, clients of their APIs, and a service that writes down every call. A case
ends with ``check``: the journal's history, what the service saw, what the API shows and what is left in Redis
are held against each other.
"""

from __future__ import annotations

import asyncio
import re
import signal
import sys
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import aiohttp
import redis
from tests.fleet.crashing import BATCH, PAUSE
from tests.operation.serving import PATIENCE_SECONDS, WEFT, Api, Server
from tests.support.crash import VARIABLE as CRASH
from tests.support.servers.process import free_port
from tests.tracecheck import DrawnNode, check, merkle

from weft.cli.trace import read_journal
from weft.clock import new_id
from weft.journal.postgres.journal import PostgresJournal
from weft.testing.recording_service import RecordingService

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from weft.testing.recording_service import RecordedCall

HEARTBEAT_SECONDS = 0.5
# Who is to lose what it holds has a short lease; who is not is given time, however busy the machine is.
LEASE_SECONDS = 2.0
LONG_LEASE_SECONDS = 15.0
SWEEP_SECONDS = 0.5
STALE_SECONDS = 2.0
CLAIM_SECONDS = 1.0
GRACE_SECONDS = 2.0

# Nets and leases as quick as a test wants them.
QUICK = {
    "WEFT_WORKER_HEARTBEAT_INTERVAL": str(HEARTBEAT_SECONDS),
    "WEFT_WORKER_HEARTBEAT_TIMEOUT": str(LONG_LEASE_SECONDS),
    "WEFT_ORCHESTRATOR_SWEEP_INTERVAL": str(SWEEP_SECONDS),
    "WEFT_ORCHESTRATOR_STALE_RESULT_TIMEOUT": str(STALE_SECONDS),
    "WEFT_ORCHESTRATOR_STALE_CLAIM_INTERVAL": str(CLAIM_SECONDS),
    "WEFT_WORKER_GRACE": str(GRACE_SECONDS),
    "WEFT_WORKER_PROCESSES": "1",
    "WEFT_HTTP_ALLOW": "127.0.0.1",
}
SHORT_LEASE: dict[str, Any] = {"WEFT_WORKER_HEARTBEAT_TIMEOUT": str(LEASE_SECONDS)}
CRASHING = (sys.executable, "-m", "tests.fleet.crashing")
CLOCK_OFFSET = "WEFT_TEST_CLOCK_OFFSET"

# What may stay in Redis when nothing runs: the members, and the id of the incarnation.
_STAYS = re.compile(
    r"weft:\{p\d+\}:(server|token|incarnation|swept|workers|beats|lanes|consumers)|weft:\{[tw]:.*\}:.*"
)
_QUIET_SECONDS = 15.0
_LOOK_SECONDS = 0.02


class Member(Server):
    """One process of a fleet."""

    role = ""

    @property
    def pid(self) -> int:
        return self.process.pid

    def freeze(self) -> None:
        """Let it run no further, with its connections open."""
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    async def frozen(self) -> None:
        """Return once it stands still."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while self._state() != "T":  # noqa: ASYNC110 - it is the system that is asked
                await asyncio.sleep(_LOOK_SECONDS)

    def _state(self) -> str:
        # It follows the name, which is in parentheses and may have any characters.
        return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0]

    async def metric(self, name: str) -> float:
        """Return the sum of a metric over its labels; for a member with a port of its own."""
        async with aiohttp.ClientSession() as session, session.get(f"{self.url}/metrics") as response:
            lines = (await response.text()).splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if re.match(rf"{name}[ {{]", line))


class RunningFleet:
    """Members on one Redis and one database, whose schema is current.

    ``settings`` go to every member, before those it is given itself.
    """

    def __init__(
        self,
        redis_url: str,
        database_url: str,
        folder: Path,
        *,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.redis_url = redis_url
        self.database_url = database_url
        self.service = RecordingService()
        self.redis = redis.Redis.from_url(redis_url, socket_timeout=10)
        self.members: list[Member] = []
        self._folder = folder
        self._settings = {
            **QUICK,
            "WEFT_REDIS_URL": redis_url,
            "WEFT_DATABASE_URL": database_url,
            **(settings or {}),
        }
        self.journal = PostgresJournal(database_url, new_id=new_id)
        self._apis: dict[int, Api] = {}
        self._ends = AsyncExitStack()

    async def __aenter__(self) -> Self:
        await self._ends.__aenter__()
        self._ends.enter_context(self.redis)
        await self._ends.enter_async_context(self.service)
        await self.journal.open()
        self._ends.push_async_callback(self.journal.close)
        self._ends.push_async_callback(self._end)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self.tell()
        await self._ends.aclose()

    def tell(self) -> None:
        """Print what the members have logged, for a test that has failed."""
        for member in self.members:
            print(f"--- {member.role} {member.pid}: {member.process.returncode}")
            for line in member.log:
                print(f"    {line}")

    # -- members ---------------------------------------------------------------------------------------

    async def launch(
        self,
        role: str,
        *flags: str,
        crash: str | None = None,
        pause: str | None = None,
        batch: int | None = None,
        clock_offset: float | None = None,
        redis_url: str | None = None,
        database_url: str | None = None,
        has_metrics: bool = False,
        **settings: str,
    ) -> Member:
        """Start a member and return at once; ``ready`` waits for it.

        ``crash`` and ``pause``: where it dies, or stands still. ``batch``: so many messages an orchestrator
        reads at once. The URLs: of a proxy between this member and a server.
        """
        given = {**self._settings, **settings}
        flaws = {CRASH: crash, PAUSE: pause, BATCH: batch, CLOCK_OFFSET: clock_offset}
        given |= {name: str(value) for name, value in flaws.items() if value is not None}
        servers = {"WEFT_REDIS_URL": redis_url, "WEFT_DATABASE_URL": database_url}
        given |= {name: url for name, url in servers.items() if url is not None}
        if has_metrics:
            given["WEFT_METRICS_PORT"] = str(free_port())
        command = CRASHING if crash or pause or batch else WEFT
        if role == "api":
            flags = ("--port", "0", *flags)
        member = await Member.launch(role, *flags, command=command, settings=given, folder=self._folder)
        member.role = role
        self.members.append(member)
        return member

    async def add(self, role: str, *flags: str, **options: Any) -> Member:
        """Start a member, and give it once it is at work."""
        member = await self.launch(role, *flags, **options)
        await self.at_work(member)
        return member

    async def start(
        self, *flags: str, apis: int = 1, orchestrators: int = 1, workers: int = 1, **options: Any
    ) -> None:
        """Start members side by side, and return once all are at work. The flags are for the workers."""
        roles = ["api"] * apis + ["orchestrator"] * orchestrators + ["worker"] * workers
        launched = [
            await self.launch(role, *(flags if role == "worker" else ()), **options) for role in roles
        ]
        await self.at_work(*launched)

    def having(self, role: str) -> list[Member]:
        """Return the members of a role that run."""
        return [
            member for member in self.members if member.role == role and member.process.returncode is None
        ]

    def holding(self, worker_id: str) -> Member:
        """Return the member that is known under a worker's id."""
        pid = int(worker_id.rsplit("-", 2)[1])
        (member,) = [member for member in self.members if member.pid == pid]
        return member

    async def at_work(self, *members: Member) -> None:
        """Return once members that were launched are at work."""
        await asyncio.gather(*(member.ready() for member in members))
        for member in members:
            if member.role == "api":
                self._apis[member.pid] = await self._ends.enter_async_context(Api(member.url))

    async def _end(self) -> None:
        for member in self.members:
            if member.process.returncode is None:
                member.process.kill()
        for member in self.members:
            await member.ended()

    # -- work ------------------------------------------------------------------------------------------

    @property
    def api(self) -> Api:
        """A client of the first API that runs."""
        return self._apis[self.having("api")[0].pid]

    def api_of(self, member: Member) -> Api:
        return self._apis[member.pid]

    async def settle(self, *executions: str) -> list[Any]:
        """Return executions as they are shown once all of them are terminal."""
        return await asyncio.gather(*map(self.api.terminal, executions))

    async def running_on(self, execution_id: str, node_id: str) -> Member:
        """Return the worker that runs a node, once one does."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                shown = await self.api.get(f"/v1/executions/{execution_id}/nodes/{node_id}")
                if shown["state"] == "RUNNING":
                    return self.holding(shown["worker"])
                await asyncio.sleep(_LOOK_SECONDS)

    # -- the end of a case -----------------------------------------------------------------------------

    async def check(
        self, *executions: str, graph: Sequence[DrawnNode] | None = None, faults: int = 0
    ) -> list[Any]:
        """Hold all witnesses against each other once the executions are terminal; give how they are shown.

        ``graph``: what each of them called the service for. ``faults``: so often a node may have been called
        in vain; without a fault nothing is done twice.
        """
        shown = await self.settle(*executions)
        await self.quiet()
        for execution in shown:
            trace = await read_journal(self.journal, execution["id"])
            assert [str(violation) for violation in trace.check()] == [], execution["id"]
            assert all(node["attempt"] <= 1 + faults for node in execution["nodes"]), execution["id"]
            if graph is not None:
                check_calls(execution, graph, self.service.calls, faults=faults)
        assert [line for member in self.members for line in member.log if is_wrong(line)] == []
        return shown

    async def events(self, execution_id: str) -> list[str]:
        """Return the types of an execution's recorded events, in order."""
        return [event["type"] for event in await self.api.history(execution_id)]

    async def quiet(self) -> None:
        """Return once nothing is left in Redis of what has ended: no entry, no lease, no hot state."""
        try:
            async with asyncio.timeout(_QUIET_SECONDS):
                while self.left():  # noqa: ASYNC110 - it is Redis that is waited for
                    await asyncio.sleep(_LOOK_SECONDS)
        except TimeoutError:
            raise AssertionError(f"left in Redis: {self.left()}") from None

    def left(self) -> dict[str, Any]:
        """Return what is in Redis and should not be when all executions are terminal."""
        return left_in(self.redis)


def is_wrong(line: Mapping[str, Any]) -> bool:
    """True if a line of a log tells of a fault of weft's own: an error, or what is no event at all."""
    return line.get("level") in ("error", "critical") or "text" in line


def left_in(client: redis.Redis) -> dict[str, Any]:
    """Return what is in Redis and should not be when all executions are terminal."""
    left: dict[str, Any] = {}
    for raw in client.scan_iter("weft:*", count=1000):
        key = raw.decode()
        kind = client.type(key).decode()  # type: ignore[union-attr]
        if _STAYS.fullmatch(key):
            continue
        if kind == "stream":
            pending = {group["name"]: group["pending"] for group in client.xinfo_groups(key)}
            if (length := client.xlen(key)) or any(pending.values()):
                left[key] = {"length": length, "pending": pending}
        elif key.endswith(":unsettled"):
            if int(client.get(key) or 0):
                left[key] = client.get(key)
        elif ":x:" in key and kind == "hash":
            # Of what was closed a tombstone stays for a while.
            fields = client.hkeys(key)
            if fields not in ([], [b"!"]) or client.ttl(key) == -1:
                left[key] = fields
        elif kind == "zset":
            if members := timed_in(client, key):
                left[key] = members[:10]
        elif kind != "none":
            left[key] = kind
    return left


def timed_in(client: redis.Redis, key: str) -> list[Any]:
    """Return the members of a sorted set, but for the one that says that the set is there at all."""
    return [member for member in client.zrange(key, 0, -1) if member != b"!"]


def check_calls(
    shown: Mapping[str, Any], graph: Sequence[DrawnNode], calls: Iterable[RecordedCall], *, faults: int
) -> None:
    """Hold an execution of one generation against what the service saw of it."""
    made: dict[str, list[RecordedCall]] = {node.id: [] for node in graph}
    for call in calls:
        if call.execution == shown["id"]:
            made[call.node].append(call)
    tokens: dict[str, str] = {}
    hashes: dict[str, str] = {}
    trace = []
    for node, seen in zip(graph, shown["nodes"], strict=True):
        assert seen["id"] == node.id
        record = {**seen, "attempts": seen["attempt"]}
        if seen["state"] == "COMPLETED":
            tokens[node.id] = seen["output"]["body"]["token"]
            given = Counter(call.token for call in made[node.id])
            assert given[tokens[node.id]] == 1, f"{node.id}: what was accepted is no answer to a call of it"
            hashes[node.id] = merkle(node.id, [hashes[parent] for parent in node.parents])
            record["output"] = hashes[node.id]
        trace.append(record)
        assert len(made[node.id]) <= 1 + faults, f"{node.id}: called {len(made[node.id])} times"
        for call in made[node.id]:
            parents = call.request.json()["parents"]
            assert parents == [tokens[parent] for parent in node.parents], f"{node.id}: another's output"
    assert check(graph, trace, max_attempts=1 + faults) == []
