"""What a node costs each part of a fleet, measured: the figures from which larger fleets are reckoned.

Two workloads tell the two parts of a cost apart. In a chain every message travels alone, so a hop pays for a
whole batch: what is fixed and what each message adds. In W3 hundreds share a batch. How many did is counted,
so that both parts follow from the two. What others add is measured by having others: a second orchestrator,
eight partitions.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import aiohttp

from bench import graphs
from bench.figure import Figure, at_most, quantile
from bench.fleet import chain_hops, running
from bench.run import run_loop
from bench.server import children, free_port, run_batches, wait_until_ready
from weft.core.task import PRIORITIES
from weft.redis.connection import Redis
from weft.redis.keys import Keys

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from bench.fleet import RunningFleet

# Round trips to Redis for a batch: an orchestrator reads and applies; a worker fetches, starts and reports.
# What acknowledges goes with the next of them.
ORCHESTRATOR_TRIPS = 2
WORKER_TRIPS = 3
TRIPS = ORCHESTRATOR_TRIPS + WORKER_TRIPS

NODES = 5  # of a → b, c, d → e
# A message for each node, and one that says that the execution is there.
MESSAGES = NODES + 1

EXECUTIONS = 2000
_BATCHES = 3
CHAINS, LENGTH = 16, 300
PARTITIONS = 8
_SYNCS = 200
_PINGS = 2000
_PAGE = b"x" * 8192
_LANE = Keys().lane("echo", "echo", PRIORITIES["normal"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Microseconds of CPU: for a batch, whatever is in it, and for each message of it."""

    batch: float
    message: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What is no CPU time."""

    # Microseconds until the disk has a page, and those of a round trip to Redis in which nobody works.
    sync: float
    trip: float
    # Bytes a node: written ahead, kept, and held while its execution is under way.
    wal_bytes: float
    postgres_bytes: float
    redis_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs(Facts):
    orchestrator: Cost
    worker: Cost
    # A batch is here the five round trips that an orchestrator's and a worker's batch take together.
    redis: Cost
    postgres: Cost
    # Microseconds of CPU for an execution that is accepted.
    submit_api: float
    submit_redis: float
    submit_postgres: float
    # What is added to a message whose execution another orchestrator has changed since this one saw it.
    peer_orchestrator: float
    peer_postgres: float
    # What is added to a batch by each partition beyond the first.
    partition_orchestrator: float
    partition_worker: float
    partition_redis: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Alone(Facts):
    """What was read off a fleet of one of each. By the name of the part: microseconds of CPU."""

    hop_us: Mapping[str, float]
    node_us: Mapping[str, float]
    # For an execution that is accepted.
    submit_us: Mapping[str, float]
    hop_ms: float
    chains_rate: float
    w3_rate: float
    # Messages in a batch in W3: of the orchestrator, and of the worker.
    orchestrator_batch: float
    worker_batch: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The costs, and what the same fleets did: for the simulation to be held against."""

    costs: Costs
    alone: Alone
    # With a second orchestrator, and on several partitions.
    peers_rate: float
    partitions_rate: float
    partitions_hop_ms: float


def costs() -> Iterator[Figure]:
    """What a node costs each part of a fleet on this machine."""
    measured = measure()
    found, alone = measured.costs, measured.alone

    def figure(what: str, value: float, unit: str, most: float | None = None) -> Figure:
        target = None if most is None else at_most(most)
        return Figure(workload="costs", what=what, value=value, unit=unit, target=target)

    for name, used in alone.node_us.items():
        yield figure(f"W3, CPU a node, {name}", used, "µs", 28 if name == "orchestrator" else None)
    for name, used in alone.hop_us.items():
        yield figure(f"W1, CPU a hop, {name}", used, "µs")
    yield figure("W3, messages in an orchestrator's batch", alone.orchestrator_batch, "")
    yield figure("W3, messages in a worker's batch", alone.worker_batch, "")
    for name in ("orchestrator", "worker", "redis", "postgres"):
        cost: Cost = getattr(found, name)
        yield figure(f"{name}, a batch", cost.batch, "µs")
        yield figure(f"{name}, each message of it", cost.message, "µs")
    yield figure("an execution accepted, api", found.submit_api, "µs")
    yield figure("an execution accepted, redis", found.submit_redis, "µs")
    yield figure("an execution accepted, postgres", found.submit_postgres, "µs")
    yield figure("a message behind a peer's, orchestrator", found.peer_orchestrator, "µs")
    yield figure("a message behind a peer's, postgres", found.peer_postgres, "µs")
    yield figure("a batch, a further partition, orchestrator", found.partition_orchestrator, "µs")
    yield figure("a batch, a further partition, worker", found.partition_worker, "µs")
    yield figure("a batch, a further partition, redis", found.partition_redis, "µs")
    yield figure("a page synced to the disk, p50", found.sync, "µs")
    yield figure("a round trip to Redis, without its CPU", found.trip, "µs")
    yield figure("written ahead a node", found.wal_bytes, "B")
    yield figure("in PostgreSQL a node", found.postgres_bytes, "B", 600)
    yield figure("in Redis a node, the first tasks waiting", found.redis_bytes, "B", 400)


@cache
def measure() -> Measured:
    """Run the workloads on a fleet of one of each, on one with a second orchestrator and on eight partitions.

    Once for a run of the benchmarks: whoever asks again is told the same.
    """
    with running() as one:
        _warm_up(one)
        alone = _read_off(one)
    with running() as two, _second_orchestrator(two) as second:
        _warm_up(two)
        peers_us, peers_rate = _w3(two, second)
    with running(PARTITIONS=str(PARTITIONS)) as many:
        _warm_up(many)
        partitions_us, partitions_hop_ms = _chain(many)
        _, partitions_rate = _w3(many)
    return Measured(
        costs=_reckon(alone, peers_us, partitions_us),
        alone=alone,
        peers_rate=peers_rate,
        partitions_rate=partitions_rate,
        partitions_hop_ms=partitions_hop_ms,
    )


def _read_off(one: RunningFleet) -> Alone:
    hop_us, hop_ms = _chain(one)
    # By another name: what is started by name is the version that was stored last.
    chains_rate = _rate(one, {**graphs.chain(LENGTH), "name": "chains"}, CHAINS)
    sync, trip = _sync_microseconds(one), run_loop(_trip_microseconds(one))
    submit_us, redis_bytes = _submit(one)
    wal, kept, counted = _wal_bytes(one), _kept_bytes(one), _counted(one)
    node_us, w3_rate = _w3(one)
    nodes = _BATCHES * EXECUTIONS * NODES
    batches, messages, acknowledged = (
        after - before for after, before in zip(_counted(one), counted, strict=True)
    )
    return Alone(
        hop_us=hop_us,
        node_us=node_us,
        submit_us=submit_us,
        hop_ms=hop_ms,
        chains_rate=chains_rate,
        w3_rate=w3_rate,
        orchestrator_batch=messages / batches,
        # Orchestrators and workers acknowledge a batch at a time.
        worker_batch=nodes / max(1.0, acknowledged - batches),
        sync=sync,
        trip=trip,
        wal_bytes=(_wal_bytes(one) - wal) / nodes,
        postgres_bytes=(_kept_bytes(one) - kept) / nodes,
        redis_bytes=redis_bytes / NODES,
    )


def _reckon(alone: Alone, peers_us: Mapping[str, float], partitions_us: Mapping[str, float]) -> Costs:
    """Make costs of what was read off, with a second orchestrator's nodes and several partitions' hops."""
    hop_us, node_us, submit_us = alone.hop_us, alone.node_us, alone.submit_us
    # Without what it took to accept the executions.
    run_us = {name: used - submit_us[name] / NODES for name, used in node_us.items()}
    by_orchestrator, by_worker = ORCHESTRATOR_TRIPS * MESSAGES, WORKER_TRIPS * NODES
    trips = by_orchestrator + by_worker
    alone_share = 1 / alone.orchestrator_batch
    redis_share = (by_orchestrator * alone_share + by_worker / alone.worker_batch) / trips

    def by_peers(name: str) -> float:
        # Of two orchestrators, each finds half of the messages behind what the other has done.
        return max(0.0, peers_us[name] - node_us[name]) * NODES / MESSAGES / 0.5

    def by_partition(name: str) -> float:
        return max(0.0, partitions_us[name] - hop_us[name]) / (PARTITIONS - 1)

    return Costs(
        orchestrator=fit(hop_us["orchestrator"], run_us["orchestrator"], alone_share),
        worker=fit(hop_us["worker"], run_us["worker"], 1 / alone.worker_batch, messages=NODES),
        redis=fit(hop_us["redis"], run_us["redis"], redis_share, messages=trips / TRIPS),
        postgres=fit(hop_us["postgres"], run_us["postgres"], alone_share),
        submit_api=submit_us["api"],
        submit_redis=submit_us["redis"],
        submit_postgres=submit_us["postgres"],
        peer_orchestrator=by_peers("orchestrator"),
        peer_postgres=by_peers("postgres"),
        partition_orchestrator=by_partition("orchestrator"),
        partition_worker=by_partition("worker"),
        partition_redis=by_partition("redis"),
        **{fact.name: getattr(alone, fact.name) for fact in fields(Facts)},
    )


def fit(hop_us: float, node_us: float, share: float, *, messages: float = MESSAGES) -> Cost:
    """Tell apart what a batch costs and what a message: a hop has one of each, W3 ``share`` of a batch.

    ``messages``: how many an execution of W3 has here.
    """
    message_us = node_us * NODES / messages
    batch = max(0.0, (hop_us - message_us) / (1 - share))
    return Cost(batch=batch, message=max(0.0, message_us - share * batch))


# --- The workloads.


def _warm_up(one: RunningFleet) -> None:
    run_loop(run_batches(one.url, graphs.diamond(), sizes=[200]))


def _chain(one: RunningFleet) -> tuple[dict[str, float], float]:
    """Return the CPU of each part for a hop in microseconds, and the median hop in milliseconds."""
    run_loop(chain_hops(one.url))
    before = _cpu_microseconds(one)
    hops = run_loop(chain_hops(one.url)) + run_loop(chain_hops(one.url))
    used = {name: now - before[name] for name, now in _cpu_microseconds(one).items()}
    ran = len(hops) * 6 / 5 / 99 * 100  # the first of each six chains is left out, and a chain's first node
    return {name: one / ran for name, one in used.items()}, quantile(hops, 0.5)


def _rate(one: RunningFleet, document: dict[str, Any], size: int) -> float:
    return median(run_loop(run_batches(one.url, document, sizes=[size]))[1] for _ in range(_BATCHES))


def _w3(one: RunningFleet, second: subprocess.Popen[bytes] | None = None) -> tuple[dict[str, float], float]:
    """Return the CPU of each part for a node of W3 in microseconds, and the nodes a second."""
    before = _cpu_microseconds(one, second)
    rate = _rate(one, graphs.diamond(), EXECUTIONS)
    nodes = _BATCHES * EXECUTIONS * NODES
    return {name: (now - before[name]) / nodes for name, now in _cpu_microseconds(one, second).items()}, rate


def _submit(one: RunningFleet) -> tuple[dict[str, float], float]:
    """Let executions be accepted while nothing takes them up, then run.

    Give the CPU of each part for one of them, and its bytes in Redis while its first task waits.
    """
    stopped = [one.roles[role] for role in ("orchestrator", "worker")]
    held_before = _held_bytes(one)
    try:
        for process in stopped:
            process.send_signal(signal.SIGSTOP)
        before = _cpu_microseconds(one)
        batch = run_loop(_accept(one.url, EXECUTIONS))
        used = {name: now - before[name] for name, now in _cpu_microseconds(one).items()}
        stopped[0].send_signal(signal.SIGCONT)
        while one.redis.execute("XLEN", _LANE) < EXECUTIONS:
            time.sleep(0.05)
        held = _held_bytes(one) - held_before
    finally:
        for process in stopped:
            process.send_signal(signal.SIGCONT)
    run_loop(_wait_for(one.url, batch))
    return {name: cpu / EXECUTIONS for name, cpu in used.items()}, held / EXECUTIONS


async def _accept(url: str, size: int) -> str:
    async with aiohttp.ClientSession(url) as session:
        body = {"workflow": "bench", "inputs": [{"n": n} for n in range(size)]}
        async with session.post("/v1/batches", json=body) as answer:
            assert answer.status == 202, await answer.text()
            return str((await answer.json())["id"])


async def _wait_for(url: str, batch: str) -> None:
    async with aiohttp.ClientSession(url) as session:
        state = ""
        while state != "COMPLETED":
            await asyncio.sleep(0.02)
            async with session.get(f"/v1/batches/{batch}") as answer:
                state = (await answer.json())["state"]


@contextmanager
def _second_orchestrator(one: RunningFleet) -> Iterator[subprocess.Popen[bytes]]:
    port = free_port()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("WEFT_")}
    environment["WEFT_REDIS_URL"] = one.redis.url
    environment["WEFT_DATABASE_URL"] = one.postgres.url_of("weft")
    environment["WEFT_METRICS_PORT"] = str(port)
    process = subprocess.Popen(
        [sys.executable, "-m", "weft.cli.main", "orchestrator"], env=environment, stderr=subprocess.DEVNULL
    )
    try:
        run_loop(wait_until_ready(f"http://127.0.0.1:{port}", process))
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


# --- What is read off.


def _cpu_microseconds(one: RunningFleet, second: subprocess.Popen[bytes] | None = None) -> dict[str, float]:
    """Return the CPU that each part has used so far; of two orchestrators, together."""
    pids = {"redis": [one.redis.controlled.pid], "postgres": [one.postgres.controlled.pid]}
    pids |= {role: [process.pid] for role, process in one.roles.items()}
    if second is not None:
        pids["orchestrator"].append(second.pid)
    return {
        name: sum(_run_microseconds(pid) for first in own for pid in (first, *children(first)))
        for name, own in pids.items()
    }


def _run_microseconds(pid: int) -> float:
    """Return the CPU of all threads of a process: finer than the hundredths of a second of its ``stat``."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1000


def _counted(one: RunningFleet) -> tuple[float, float, float]:
    """Count so far: the orchestrator's batches, the messages in them, and acknowledgements of either kind."""
    with urllib.request.urlopen(f"{one.urls['orchestrator']}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    counts = dict(line.rsplit(" ", 1) for line in lines if line.startswith("weft_journal_commit_events_"))
    acknowledged = one.redis.execute("INFO", "commandstats")["cmdstat_xack"]["calls"]
    name = "weft_journal_commit_events"
    return float(counts[f"{name}_count"]), float(counts[f"{name}_sum"]), float(acknowledged)


def _held_bytes(one: RunningFleet) -> int:
    """Return what Redis holds, without what it keeps for its connections and its file."""
    memory = one.redis.execute("INFO", "memory")
    return int(memory["used_memory"] - memory["mem_clients_normal"] - memory["mem_aof_buffer"])


def _wal_bytes(one: RunningFleet) -> int:
    return int(one.postgres.execute("SELECT pg_current_wal_lsn() - '0/0'::pg_lsn"))


def _kept_bytes(one: RunningFleet) -> int:
    """Return the size of all tables with their indexes, and with the rows that are no longer seen."""
    statement = (
        "SELECT sum(pg_total_relation_size(oid)) FROM pg_class"
        " WHERE relkind = 'r' AND relnamespace = 'weft'::regnamespace"
    )
    return int(one.postgres.execute(statement, url=one.postgres.url_of("weft")))


def _sync_microseconds(one: RunningFleet) -> float:
    """Time how long a page takes to the disk that PostgreSQL's log is on."""
    times = []
    with tempfile.TemporaryFile(dir=one.postgres.controlled.folder.parent, buffering=0) as file:
        for _ in range(_SYNCS):
            begun = time.perf_counter()
            file.write(_PAGE)
            os.fdatasync(file.fileno())
            times.append((time.perf_counter() - begun) * 1e6)
    return quantile(times, 0.5)


async def _trip_microseconds(one: RunningFleet) -> float:
    """Time a question to Redis that is answered at once, without the CPU of both: what waking up takes."""
    redis = Redis(one.redis.url)
    await redis.call("PING")
    pids = (os.getpid(), one.redis.controlled.pid)
    begun, used = time.perf_counter(), sum(map(_run_microseconds, pids))
    for _ in range(_PINGS):
        await redis.call("PING")
    took = (time.perf_counter() - begun) * 1e6 - (sum(map(_run_microseconds, pids)) - used)
    await redis.close()
    return max(0.0, took / _PINGS)
