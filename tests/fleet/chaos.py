"""A fleet under load, and under faults of every kind at random moments; then calm, and the reckoning.

``./dev chaos --fleet --seed S --minutes M --executions N``. Two APIs, two orchestrators and two workers, each
behind a proxy before Redis and one before PostgreSQL, work for a service that writes down every call. What is
killed is started again. When all is calm, everything that was asked for has to come to its end in bounded
time, and what happened is held against the invariants (``chaos_checks``).
"""

from __future__ import annotations

import asyncio
import json
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import aiohttp
from tests.fleet.chaos_checks import Reckoning, Strike
from tests.fleet.chaos_faults import EVERYBODY, MEMBERS, POSTGRES, REDIS, Fault, Kind, draw_faults
from tests.fleet.harness import RunningFleet
from tests.operation.calling import calling, layered
from tests.support.fault_proxy import Direction, FaultProxy
from tests.support.servers.postgres import PostgresServer
from tests.support.servers.process import NoServerError
from tests.support.servers.redis import RedisServer
from tests.tracecheck import DrawnNode

from weft.clock import RealClock
from weft.journal.postgres.schema import migrate

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.fleet.harness import Member
    from tests.operation.serving import Api

LEASE_SECONDS = 5.0
SETTINGS = {
    "WEFT_WORKER_HEARTBEAT_TIMEOUT": str(LEASE_SECONDS),
    # However often a worker dies under it, a node is not given up: every execution has to complete.
    "WEFT_MAX_DELIVERIES": "1000",
}
# All but this share of the faults' time is for submits, so that the last faults strike at work too.
_SUBMITTING = 0.95
# Whoever is not answered by then asks again, under the same key.
_ANSWER_SECONDS = 5.0
_AGAIN_SECONDS = 0.2
# What a call takes: long enough for some to be under way whenever somebody dies.
_CALL_SECONDS = (0.05, 0.5, 2.0)
# When all is calm, everything is terminal within this time.
CALM_SECONDS = 60.0

GRAPHS = (
    layered(1, 2),
    layered(3, 4),
    layered(5, 6),
    [DrawnNode(f"n{i}", (f"n{i - 1}",) if i else ()) for i in range(12)],
    [*(nodes := [DrawnNode(f"n{i}", ()) for i in range(30)]), DrawnNode("join", tuple(n.id for n in nodes))],
)
_WAYS = {
    "both ways": (),
    "to the server": (Direction.TO_SERVER,),
    "to the client": (Direction.TO_CLIENT,),
}


@dataclass
class Place:
    """A member, through all the processes that it has been."""

    name: str
    lines: dict[str, FaultProxy]
    member: Member | None = None
    # Of an API that is at work.
    api: Api | None = None
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def role(self) -> str:
        return self.name.partition(" ")[0]


class ChaosFleet(RunningFleet):
    """Six members, each of which reaches the servers through lines of its own."""

    def __init__(self, redis: RedisServer, postgres: PostgresServer, database_url: str, folder: Path) -> None:
        super().__init__(redis.url, database_url, folder, settings=SETTINGS)
        self.redis_server = redis
        self.postgres_server = postgres
        self.places = {
            name: Place(name, {REDIS: FaultProxy(redis.url), POSTGRES: FaultProxy(database_url)})
            for name in MEMBERS
        }
        # Process → the place that it has or had; and those that were killed.
        self.names: dict[int, str] = {}
        self.killed: set[int] = set()
        self.wrong: list[str] = []

    async def __aenter__(self) -> Self:
        for place in self.places.values():
            for line in place.lines.values():
                self._ends.enter_context(line)
        return await super().__aenter__()

    def tell(self) -> None:
        """Print nothing: what is wrong is listed, and the logs are kept in files."""

    async def occupy(self, place: Place) -> None:
        """Start a member at its place, and return once it is at work."""
        place.member = await self.launch(
            place.role, redis_url=place.lines[REDIS].url, database_url=place.lines[POSTGRES].url
        )
        self.names[place.member.pid] = place.name
        try:
            await self.at_work(place.member)
        except (AssertionError, TimeoutError):
            ended = place.member.process.returncode
            last = place.member.log[-3:]
            self.wrong.append(f"{place.name} did not come to work (exit code {ended}); it said last {last}")
        else:
            place.api = self.api_of(place.member) if place.role == "api" else None

    async def kill(self, place: Place) -> None:
        assert place.member is not None
        place.api = None
        if place.member.process.returncode is None:
            self.killed.add(place.member.pid)
        await place.member.kill()

    @property
    def api(self) -> Api:
        return self.apis()[0]

    def apis(self) -> list[Api]:
        return [place.api for place in self.places.values() if place.api is not None]

    def write_logs(self, folder: Path) -> None:
        """Write what each process has logged into a file of its own."""
        folder.mkdir(parents=True, exist_ok=True)
        for number, member in enumerate(self.members):
            lines = [json.dumps(line) for line in member.log]
            name = f"{number:03}-{member.role}-{member.pid}.log"
            (folder / name).write_text("\n".join([*lines, f"exit code: {member.process.returncode}"]))


class Chaos:
    """One run. ``say`` is given a line for each thing that happens."""

    def __init__(
        self, fleet: ChaosFleet, *, seed: int, seconds: float, executions: int, say: Callable[[str], None]
    ) -> None:
        self.fleet = fleet
        self.seconds = seconds
        self.faults = draw_faults(seed, seconds)
        self.strikes: list[Strike] = []
        self.wrong = fleet.wrong
        # Key → graph, in the order in which they are submitted; key → execution, once it was answered.
        self.asked: dict[str, Sequence[DrawnNode]] = {}
        self.accepted: dict[str, str] = {}
        self._draw = random.Random(f"work of {seed}")
        self._times = self._draw_times(executions)
        self._say = say
        self._began = 0.0
        self._locks = {REDIS: asyncio.Lock(), POSTGRES: asyncio.Lock()}

    def _draw_times(self, executions: int) -> list[float]:
        """Half of them come one by one, the others ten at once."""
        last = self.seconds * _SUBMITTING
        single = [self._draw.uniform(0, last) for _ in range(executions // 2)]
        bursts = [self._draw.uniform(0, last) for _ in range(-(-executions // 20))]
        return sorted(single + [bursts[i % len(bursts)] for i in range(executions - len(single))])

    async def run(self) -> Reckoning:
        """Let it all happen, and give what came of it."""
        await asyncio.gather(*map(self.fleet.occupy, self.fleet.places.values()))
        self._began = time.monotonic()
        self._tell("the fleet is at work")
        async with asyncio.TaskGroup() as work:
            submits = [work.create_task(self._submit(n, at)) for n, at in enumerate(self._times)]
            changing = work.create_task(self._change_pace())
            async with asyncio.TaskGroup() as faults:
                for fault in self.faults:
                    faults.create_task(self._strike(fault))
            changing.cancel()
            self.fleet.service.delay_seconds = 0
            self._tell(f"calm; {len(self.accepted)} of {len(self._times)} submits are answered")
            calm_at = time.monotonic()
            _, late = await asyncio.wait(submits, timeout=CALM_SECONDS)
            for submit in late:
                submit.cancel()
        if late:
            self.wrong.append(f"{len(late)} submits have no answer after {CALM_SECONDS:.0f} s of calm")
        return await self._reckon(within_seconds=max(1.0, calm_at + CALM_SECONDS - time.monotonic()))

    async def _reckon(self, *, within_seconds: float) -> Reckoning:
        reckoning = Reckoning(self.strikes, self.fleet.names, self.wrong)
        fleet = self.fleet
        for member in fleet.members:
            if member.process.returncode is not None and member.pid not in fleet.killed:
                self.wrong.append(f"{member.role} {member.pid} ended by itself: {member.process.returncode}")
        if not fleet.apis():
            return reckoning  # nobody can be asked
        executions = {execution: self.asked[key] for key, execution in self.accepted.items()}
        await reckoning.check_terminal(fleet, executions, within_seconds=within_seconds)
        # Each is submitted once more: its key leads to what it led to.
        for key, execution in self.accepted.items():
            again = await fleet.api.start(self._definition(key), key=key)
            if again != execution:
                self.wrong.append(f"{key} led to {execution}, and now to {again}")
        await reckoning.check_submits(fleet, self.accepted)
        await reckoning.check_left(fleet)
        return reckoning

    def _tell(self, text: str) -> None:
        self._say(f"{time.monotonic() - self._began:6.1f} s  {text}")

    async def _until(self, seconds: float) -> None:
        await asyncio.sleep(max(0.0, self._began + seconds - time.monotonic()))

    # -- work ------------------------------------------------------------------------------------------

    async def _submit(self, number: int, at_seconds: float) -> None:
        key = f"key-{number}"
        self.asked[key] = self._draw.choice(GRAPHS)
        await self._until(at_seconds)
        while True:
            if (apis := self.fleet.apis()) and (execution := await self._ask(random.choice(apis), key)):
                self.accepted[key] = execution
                return
            await asyncio.sleep(_AGAIN_SECONDS)

    def _definition(self, key: str) -> dict[str, Any]:
        return {"nodes": calling(self.asked[key], self.fleet.service.url)}

    async def _ask(self, api: Api, key: str) -> str | None:
        """Submit once, and give the execution, or None where it has to be asked for again."""
        definition = self._definition(key)
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                status, body, _ = await api.call(
                    "POST", "/v1/executions", {"definition": definition}, key=key
                )
        except (aiohttp.ClientError, TimeoutError, OSError):
            return None
        if status in (200, 202):
            return str(body["id"])
        if status != 503:
            self.wrong.append(f"{key}: a submit was answered with {status} {body}")
        return None

    async def _change_pace(self) -> None:
        while True:
            self.fleet.service.delay_seconds = self._draw.choice(_CALL_SECONDS)
            await asyncio.sleep(self._draw.uniform(0.2, 1.0))

    # -- faults ----------------------------------------------------------------------------------------

    async def _strike(self, fault: Fault) -> None:
        await self._until(fault.at_seconds)
        match fault.kind:
            case Kind.KILL | Kind.FREEZE:
                place = self.fleet.places[fault.whom]
                async with place.lock:
                    await self._note(fault, self._kill if fault.kind is Kind.KILL else self._freeze)
            case Kind.FLUSH | Kind.REDIS | Kind.POSTGRES:
                async with self._locks[fault.whom]:
                    await self._note(fault, self._restart if fault.kind is not Kind.FLUSH else self._flush)
            case Kind.LATENCY | Kind.RESET | Kind.SILENCE:
                await self._note(fault, self._disturb)

    async def _note(self, fault: Fault, strike: Any) -> None:
        self._tell(str(fault))
        began_at = RealClock().now()
        try:
            await strike(fault)
        finally:
            self.strikes.append(Strike(fault, began_at, RealClock().now()))

    async def _kill(self, fault: Fault) -> None:
        place = self.fleet.places[fault.whom]
        await self.fleet.kill(place)
        await asyncio.sleep(fault.lasts_seconds)
        await self.fleet.occupy(place)

    async def _freeze(self, fault: Fault) -> None:
        member = self.fleet.places[fault.whom].member
        assert member is not None
        if member.process.returncode is not None:
            return
        member.freeze()
        try:
            await asyncio.sleep(fault.lasts_seconds)
        finally:
            member.thaw()

    async def _flush(self, _: Fault) -> None:
        await asyncio.to_thread(self.fleet.redis_server.execute, "FLUSHALL")

    async def _restart(self, fault: Fault) -> None:
        server = self.fleet.redis_server if fault.kind is Kind.REDIS else self.fleet.postgres_server
        if fault.options == "stopped as in a crash":
            await asyncio.to_thread(self.fleet.postgres_server.stop, immediate=True)
        else:
            await asyncio.to_thread(server.stop if fault.options == "stopped" else server.kill)
        if fault.options == "killed and emptied":
            for entry in server.controlled.folder.iterdir():
                shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        await asyncio.sleep(fault.lasts_seconds)
        await asyncio.to_thread(server.start)

    async def _disturb(self, fault: Fault) -> None:
        whom = MEMBERS if fault.whom == EVERYBODY else (fault.whom,)
        lines = [self.fleet.places[name].lines[fault.server] for name in whom]
        try:
            for line in lines:
                match fault.kind:
                    case Kind.LATENCY:
                        line.delay(float(fault.options))
                    case Kind.SILENCE:
                        line.blackhole(*_WAYS[fault.options])
                    case _:
                        line.reset()
            await asyncio.sleep(fault.lasts_seconds)
        finally:
            for line in lines:
                line.heal()


async def run_chaos(
    *,
    seed: int,
    seconds: float,
    executions: int,
    say: Callable[[str], None] = lambda _: None,
) -> Reckoning:
    """Have servers and a fleet of their own, and one run on them."""
    with (
        tempfile.TemporaryDirectory(prefix="weft-chaos-") as folder,
        RedisServer(appendonly=True) as redis,
        PostgresServer() as postgres,
    ):
        database_url = postgres.create_database("weft")
        await migrate(database_url)
        async with ChaosFleet(redis, postgres, database_url, Path(folder)) as fleet:
            chaos = Chaos(fleet, seed=seed, seconds=seconds, executions=executions, say=say)
            try:
                reckoning = await chaos.run()
            finally:
                if fleet.wrong:
                    logs = Path(tempfile.mkdtemp(prefix=f"weft-chaos-seed-{seed}-"))
                    fleet.write_logs(logs)
                    fleet.wrong.append(f"the logs are in {logs}")
            return reckoning


def command(*, seed: int, minutes: float, executions: int) -> int:
    """Run it as a command: a line for each fault, then the sum of it all; 1 where something is broken."""
    begun = time.monotonic()
    say(f"seed {seed}: {executions} executions and {minutes:g} minutes of faults")
    try:
        reckoning = asyncio.run(run_chaos(seed=seed, seconds=60 * minutes, executions=executions, say=say))
    except KeyboardInterrupt:
        say(f"ended before its time; seed {seed}")
        return 130
    except NoServerError as error:
        print(f"./dev chaos: {error}", file=sys.stderr)
        return 1
    say("")
    for kind, count in Counter(strike.fault.kind for strike in reckoning.strikes).most_common():
        say(f"{count:>5}  {kind}")
    say(f"\n{reckoning}")
    say(f"seed {seed}, {time.monotonic() - begun:.0f} s")
    if reckoning.wrong:
        say(f"\nbroken, with --seed {seed}:")
        for sentence in reckoning.wrong:
            say(f"  {sentence}")
        return 1
    return 0


def say(text: str) -> None:
    print(text, flush=True)
