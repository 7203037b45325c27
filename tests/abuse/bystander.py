"""A server under attack, and a second client that measures what its neighbours notice.

An attack is a coroutine that is given an ``Attacker``. A test of one attack, on one server and on a fleet::

    async def test_a_neighbour_does_not_notice_it(abused: Abused) -> None:
        async with abused(WEFT_MAX_BACKLOG="1000") as target:
            status, body = (await measure(target, attack)).result

    async def attack(attacker: Attacker) -> tuple[int, Any]:
        return await attacker.call("POST", "/v1/executions", {"definition": …})

``measure`` first watches the target in peace, then during the attack. It fails if the p99 of ``/healthz`` or
of a small execution is more than five times that in peace (and more than ``FLOOR_SECONDS``), if a neighbour's
execution does not complete, or needs a second attempt, or if a process of the target dies. The attacker may
send ``BUDGET_BYTES`` (``spend`` counts what goes over sockets of its own); every process of the target has
``MEMORY_BYTES``. Probes start at fixed times, whether or not the one before has ended: a server that stands
still for a second makes fifty slow probes, not one.
"""

from __future__ import annotations

import asyncio
import json
import resource
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import aiohttp
from tests.fleet.harness import SHORT_LEASE
from tests.operation.serving import Server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from tests.fleet.conftest import Fleets

BUDGET_BYTES = 64 * 1024
MEMORY_BYTES = 1024**3
# A machine with other work to do makes a probe as slow as this by itself: two cores run the target, the
# attacker and this process, and a probe that finds a process without a core waits for one. On a quiet machine
# 250 streams took the p99 from 5 to 8 ms (one server) and from 6 to 13 ms (a fleet), without the floor.
FLOOR_SECONDS = 0.25
FACTOR = 5.0

_PROBE_EVERY_SECONDS = 0.02
_EXECUTION_EVERY_SECONDS = 0.25
_WATCH_SECONDS = 3.0
_PATIENCE_SECONDS = 60.0

# A worker that stands still for longer than the lease of the attempt in `hold` loses that attempt.
_NEIGHBOUR = {
    "nodes": [
        {"id": "first", "handler": "echo", "config": "{{ input.number }}"},
        {"id": "hold", "handler": "sleep", "dependencies": ["first"], "config": {"seconds": 0.2}},
        {"id": "last", "handler": "echo", "dependencies": ["hold"], "config": "{{ first }}"},
    ]
}
_SETTINGS = {**SHORT_LEASE, "WEFT_WORKER_HEARTBEAT_INTERVAL": "0.5", "WEFT_HTTP_ALLOW": "127.0.0.1"}

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Target:
    """The processes that are attacked, and the URL of their API."""

    kind: str
    url: str
    processes: Sequence[Server]
    # Sent with every request of the bystander: its key, where the target wants one.
    headers: Mapping[str, str] = field(default_factory=dict)


class Abused(Protocol):
    """Have a target that is ready: one server, or a fleet. The settings go to every process."""

    def __call__(self, **settings: str) -> AbstractAsyncContextManager[Target]: ...


@asynccontextmanager
async def one_server(folder: Path, settings: Mapping[str, str]) -> AsyncIterator[Target]:
    """Have ``weft up`` on a data folder of its own."""
    server = await Server.start(folder / "data", settings={**_SETTINGS, **settings}, folder=folder)
    try:
        url = await server.ready()
        _limit_memory(server)
        yield Target("one server", url, [server])
    finally:
        await server.kill()


@asynccontextmanager
async def whole_fleet(fleets: Fleets, settings: Mapping[str, str]) -> AsyncIterator[Target]:
    """Have a fleet: one process of each role, on Redis and PostgreSQL."""
    async with fleets(**{**_SETTINGS, **settings}) as fleet:
        await fleet.start()
        for member in fleet.members:
            _limit_memory(member)
        yield Target("a fleet", fleet.api.url, fleet.members)


def _limit_memory(server: Server) -> None:
    # Of the address space only what is private and may be written: an arena that malloc has reserved and not
    # used is no memory. Child processes that are started later have the same limit.
    resource.prlimit(server.process.pid, resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))


class Attacker:
    """A client that may send ``BUDGET_BYTES`` in all."""

    def __init__(self, target: Target, session: aiohttp.ClientSession) -> None:
        self.target = target
        self.session = session
        self.spent = 0

    def spend(self, count: int) -> None:
        """Count bytes that the attack sends."""
        self.spent += count
        assert self.spent <= BUDGET_BYTES, f"the attack sends {self.spent:,} bytes; it may {BUDGET_BYTES:,}"

    async def call(
        self, method: str, path: str, body: Any = None, *, headers: Mapping[str, str] | None = None
    ) -> tuple[int, Any]:
        """Return an answer's status and body. A body of bytes is sent as it is, any other as JSON."""
        data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        self.spend(len(data))
        given = {"Content-Type": "application/json", **self.target.headers, **(headers or {})}
        async with self.session.request(method, path, data=data or None, headers=given) as response:
            text = await response.read()
            return response.status, json.loads(text) if text else None


@dataclass(frozen=True, slots=True)
class Latency:
    """The p50 and p99 of some probes, in seconds."""

    p50: float
    p99: float
    count: int

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Latency:
        ranked = sorted(seconds)
        return cls(
            ranked[len(ranked) // 2], ranked[min(len(ranked) - 1, len(ranked) * 99 // 100)], len(ranked)
        )

    def __str__(self) -> str:
        return f"p50 {self.p50 * 1000:.0f} ms, p99 {self.p99 * 1000:.0f} ms ({self.count})"


@dataclass(frozen=True, slots=True)
class Measured(Generic[T]):
    """What the bystander saw in peace and during the attack, and what the attack returned."""

    result: T
    seconds: float
    peace: Mapping[str, Latency]
    attack: Mapping[str, Latency]

    def __str__(self) -> str:
        lines = [f"{name}: {self.peace[name]} -> {self.attack[name]}" for name in self.peace]
        return f"attack of {self.seconds:.1f} s; " + "; ".join(lines)


async def measure(
    target: Target,
    attack: Callable[[Attacker], Awaitable[T]],
    *,
    factor: float = FACTOR,
    neighbour: Mapping[str, Any] = _NEIGHBOUR,
) -> Measured[T]:
    """Watch the target in peace and during the attack; fail where a neighbour notices the attack.

    ``neighbour``: the definition of the small executions.
    """
    timeout = aiohttp.ClientTimeout(total=_PATIENCE_SECONDS)
    async with (
        aiohttp.ClientSession(target.url, timeout=timeout, connector=_connector()) as theirs,
        aiohttp.ClientSession(
            target.url, timeout=timeout, connector=_connector(), headers=target.headers
        ) as ours,
    ):
        bystander = _Bystander(ours, neighbour)
        # The first calls load what a server loads late; they are no measure of anything.
        await bystander.watch(asyncio.sleep(0.5))
        _, peace = await bystander.watch(asyncio.sleep(_WATCH_SECONDS))
        began = time.perf_counter()
        result, attacked = await bystander.watch(_to_its_end(attack(Attacker(target, theirs))))
        measured = Measured(result, time.perf_counter() - began, peace, attacked)
    print(f"\n{target.kind}: {measured}")
    _check(target, measured, factor)
    return measured


async def _to_its_end(attack: Awaitable[T]) -> T:
    """Return what an attack returns, not before there are enough probes to speak of a p99."""
    result, _ = await asyncio.gather(attack, asyncio.sleep(_WATCH_SECONDS))
    return result


def _check(target: Target, measured: Measured[Any], factor: float) -> None:
    dead = [server for server in target.processes if server.process.returncode is not None]
    assert not dead, f"died during the attack: {[(one.process.returncode, one.log[-3:]) for one in dead]}"
    for name, peace in measured.peace.items():
        allowed = max(factor * peace.p99, FLOOR_SECONDS)
        assert measured.attack[name].p99 <= allowed, f"{name} may take {allowed:.3f} s: {measured}"


def _connector() -> aiohttp.TCPConnector:
    return aiohttp.TCPConnector(limit=0)


class _Bystander:
    def __init__(self, session: aiohttp.ClientSession, neighbour: Mapping[str, Any]) -> None:
        self._session = session
        self._neighbour = neighbour
        self._number = 0

    async def watch(self, during: Awaitable[T]) -> tuple[T, Mapping[str, Latency]]:
        """Probe until something has ended; give its result, and how long the probes took."""
        health: list[float] = []
        executions: list[float] = []
        watched = asyncio.ensure_future(during)
        async with asyncio.TaskGroup() as group:
            probes = [
                group.create_task(_repeat(group, _PROBE_EVERY_SECONDS, self._healthz, health)),
                group.create_task(_repeat(group, _EXECUTION_EVERY_SECONDS, self._execution, executions)),
            ]
            await asyncio.wait((watched,))
            for probe in probes:
                probe.cancel()
            # The group waits for what was asked: a slow answer counts, too.
        return watched.result(), {"/healthz": Latency.of(health), "an execution": Latency.of(executions)}

    async def _healthz(self) -> None:
        async with self._session.get("/healthz") as response:
            assert response.status == 200, response.status

    async def _execution(self) -> None:
        self._number += 1
        body = {"definition": self._neighbour, "input": {"number": self._number}}
        async with self._session.post("/v1/executions?wait=50", json=body) as response:
            shown = await response.json()
        assert response.status == 200, (response.status, shown)
        assert shown["state"] == "COMPLETED", shown
        assert {node["attempt"] for node in shown["nodes"]} == {1}, f"an attempt was lost: {shown}"


async def _repeat(
    group: asyncio.TaskGroup,
    every_seconds: float,
    probe: Callable[[], Coroutine[Any, Any, None]],
    took: list[float],
) -> None:
    async def timed() -> None:
        began = time.perf_counter()
        await probe()
        took.append(time.perf_counter() - began)

    due = time.perf_counter()
    while True:
        group.create_task(timed())
        due += every_seconds
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
