"""A fleet as a network of queues: how it would do on other machines, in other numbers, from measured costs.

The stations are those of a fleet, each with the CPU that ``bench costs`` has measured for it: API processes,
orchestrators, workers, one thread of Redis for each partition, the backends of PostgreSQL and the disk of its
log. Steps come in the order of the walk of a result. What makes it more than arithmetic is that a batch is
whatever has come while the one before was under way: the more there is to do, the more share what a batch
costs, and the longer they wait for each other.

First the simulation is held against this machine: the same workloads, with everything on as many cores as
there are. Then it is asked for fleets that nobody has here.
"""

from __future__ import annotations

import os
import random
from dataclasses import dataclass, field, replace
from functools import partial
from math import ceil, inf
from typing import TYPE_CHECKING

from bench.costs import CHAINS, EXECUTIONS, LENGTH, MESSAGES, NODES, PARTITIONS, TRIPS, measure
from bench.figure import Figure, at_least, at_most, quantile
from bench.stations import Disk, Machine, Process, Streams, Time

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from bench.costs import Cost, Costs
    from bench.figure import Target
    from bench.stations import Resume, Step, Walk

# As in the orchestrator and its journal.
_RESULTS = 256
_COLLECTORS = 2
_GROUP = 512
_INSTALLED = 500
# A worker's slots.
_SLOTS = 64
_US = 1e-6

# What is assumed of servers that are not here.
_TRIP_US = 200.0  # there and back, in one data centre
_SYNC_US = 100.0  # a disk with a cache that survives a loss of power
_POSTGRES_CORES = 16
_LOG_BYTES = 200e6  # a second
_BUSY = 0.6  # the share of its time that a station is meant to work
_MOST_BUSY = 0.75
_LONGEST_HOP_SECONDS = 0.05
_TRIES = 6
_SHARED = 16  # messages in a batch of a fleet that is so busy
_SECONDS = 0.3
_WARM_SECONDS = 0.15


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """Which nodes follow on each, and how many parents each has."""

    children: tuple[tuple[int, ...], ...]
    parents: tuple[int, ...]

    @property
    def roots(self) -> tuple[int, ...]:
        return tuple(node for node, count in enumerate(self.parents) if count == 0)


def chain(length: int) -> Graph:
    return Graph(
        children=tuple((node + 1,) if node + 1 < length else () for node in range(length)),
        parents=tuple(min(node, 1) for node in range(length)),
    )


DIAMOND = Graph(children=((1, 2, 3), (4,), (4,), (4,), ()), parents=(0, 1, 1, 1, 3))


@dataclass(slots=True)
class Execution:
    graph: Graph
    partition: int
    # Of each node, how many parents it waits for.
    awaited: list[int]


@dataclass(frozen=True, slots=True)
class Message:
    """A task or a result: of which node, and when its last parent, or it itself, has ended."""

    execution: Execution
    # None: the execution is there.
    node: int | None
    at: float

    @property
    def has_parents(self) -> bool:
        return self.node is not None and self.execution.graph.parents[self.node] > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """How many of each there are, and what they run on."""

    partitions: int = 1
    orchestrators: int = 1
    workers: int = 1
    apis: int = 1
    # All of them on one machine with so many cores; None: each process has a core, PostgreSQL a machine.
    cores: int | None = None
    postgres_cores: float = inf
    trip_us: float = 0.0
    sync_us: float = 0.0


@dataclass(slots=True)
class Seen:
    """What happened since the last look."""

    hops: list[float] = field(default_factory=list)
    ended: int = 0
    asked: int = 0
    batches: int = 0
    messages: int = 0


class Fleet:
    """A fleet that runs; ``submit`` gives it work, ``time.run`` lets it do it."""

    def __init__(self, costs: Costs, shape: Shape) -> None:
        self.costs = costs
        self.shape = shape
        self.time = Time()
        self.seen = Seen()
        shared = None if shape.cores is None else Machine(self.time, shape.cores)
        database = shared or Machine(self.time, shape.postgres_cores)

        def processes(count: int, machine: Machine | None = shared) -> list[Process]:
            return [Process(machine or Machine(self.time)) for _ in range(count)]

        self.redis = processes(shape.partitions)
        self.orchestrators = processes(shape.orchestrators)
        self.workers = processes(shape.workers)
        self.apis = processes(shape.apis)
        # Each process that writes has a connection for it, and each connection a backend.
        writers = processes(shape.orchestrators, database)
        self.backends = [*writers, *processes(shape.apis, database)]
        self.disk = Disk(self.time, shape.sync_us * _US)
        self.results: Streams[Message] = Streams(self.time, shape.partitions)
        self.tasks: Streams[Message] = Streams(self.time, shape.partitions)
        self.arrivals: Streams[Execution] = Streams(self.time)
        self._turn = 0
        for process, backend in zip(self.orchestrators, writers, strict=True):
            orchestrator = Orchestrator(self, process, backend)
            for _ in range(_COLLECTORS):
                self.time.start(orchestrator.collect())
        for process in self.workers:
            self.time.start(self._work(process))
        for process, backend in zip(self.apis, self.backends[len(writers) :], strict=True):
            self.time.start(self._accept(process, backend))

    def submit(self, graph: Graph, count: int = 1) -> None:
        """Let executions be asked for; they are spread over the partitions in turn."""
        asked = []
        for _ in range(count):
            asked.append(Execution(graph, self._turn % self.shape.partitions, list(graph.parents)))
            self._turn += 1
        self.seen.asked += count * len(graph.parents)
        self.arrivals.put(0, asked)

    def used(self) -> dict[str, float]:
        """Return the seconds that each kind of station has worked."""
        kinds = {
            "redis": self.redis,
            "orchestrator": self.orchestrators,
            "worker": self.workers,
            "api": self.apis,
            "postgres": self.backends,
        }
        used = {name: sum(process.used for process in own) for name, own in kinds.items()}
        return {**used, "disk": self.disk.syncs * self.shape.sync_us * _US}

    # -- parts of the walk -------------------------------------------------------------------------

    def trip(
        self,
        partition: int,
        messages: int,
        *,
        extra_us: float = 0.0,
        then: Callable[[], None] | None = None,
    ) -> Walk[None]:
        """Ask Redis something about so many messages, and wait for the answer.

        ``then`` is what is so once Redis has done it: others need not wait for the answer.
        """
        yield self.time.pause(self.shape.trip_us * _US / 2)
        yield self.redis[partition].work(self._redis_seconds(messages) + extra_us * _US)
        if then is not None:
            then()
        yield self.time.pause(self.shape.trip_us * _US / 2)

    def _redis_seconds(self, messages: int) -> float:
        cost = self.costs.redis
        return (cost.batch + cost.message * messages) / TRIPS * _US

    def trips(
        self, batch: Sequence[Message], then: Callable[[int, Sequence[Message]], None] | None = None
    ) -> Step:
        """Ask about each message where its execution is, all partitions at once."""
        return self.time.together(
            [
                self.trip(partition, len(own), then=None if then is None else partial(then, partition, own))
                for partition, own in _by_partition(batch).items()
            ]
        )

    def read(
        self, process: Process, streams: Streams[Message], limit: int, further_us: float
    ) -> Walk[list[Message]]:
        """Take what is there: an equal share of each partition, asked at once; else wait for any."""
        count = self.shape.partitions
        taken: list[Message] = []
        if len(streams) == 0:
            # Who waits already is told as soon as there is something.
            partition, taken = yield streams.wait(max(1, limit // count))
            yield self.redis[partition].work(self._redis_seconds(len(taken)))
            yield self.time.pause(self.shape.trip_us * _US / 2)
        else:
            self._turn += 1
            looks = []
            for index in range(count):
                partition = (self._turn + index) % count
                own = streams.take(partition, max(1, limit // count))
                # What it costs Redis that there are several is told apart from the trips of a batch.
                extra = self.costs.partition_redis - self.costs.redis.batch / TRIPS if index else 0.0
                looks.append(self.trip(partition, len(own), extra_us=extra))
                taken += own
            yield self.time.together(looks)
        if count > 1:
            yield process.work(further_us * (count - 1) * _US)
        return taken

    # -- the walks of processes --------------------------------------------------------------------

    def _accept(self, process: Process, backend: Process) -> Walk[None]:
        """Accept what has come: one commit, then the executions into Redis, some at a time."""
        costs = self.costs
        while True:
            _, asked = yield self.arrivals.wait(100_000)
            yield process.work(costs.submit_api * _US * len(asked) / 2)
            yield backend.work(costs.submit_postgres * _US * len(asked))
            yield self.disk.sync()
            yield self.time.pause(self.shape.trip_us * _US)
            for start in range(0, len(asked), _INSTALLED):
                part = [Message(one, None, self.time.now) for one in asked[start : start + _INSTALLED]]
                yield process.work(costs.submit_api * _US * len(part) / 2)
                yield self.time.together(
                    [self._install(partition, own) for partition, own in _by_partition(part).items()]
                )

    def _install(self, partition: int, messages: Sequence[Message]) -> Walk[None]:
        yield self.time.pause(self.shape.trip_us * _US / 2)
        yield self.redis[partition].work(self.costs.submit_redis * _US * len(messages))
        yield self.time.pause(self.shape.trip_us * _US / 2)
        self.results.put(partition, messages)

    def _work(self, process: Process) -> Walk[None]:
        """Fetch, start, run, report."""
        cost, time = self.costs.worker, self.time
        while True:
            batch = yield from self.read(process, self.tasks, _SLOTS, self.costs.partition_worker)
            if not batch:
                continue
            cpu = (cost.batch + cost.message * len(batch)) * _US
            yield process.work(cpu / 2)
            yield self.trips(batch, self._started)
            yield process.work(cpu / 2)
            ended = [Message(task.execution, task.node, time.now) for task in batch]
            yield self.trips(ended, self.results.put)

    def _started(self, _: int, tasks: Sequence[Message]) -> None:
        self.seen.hops += [self.time.now - task.at for task in tasks if task.has_parents]


class Orchestrator:
    """Collectors that share a process and one connection, on which one transaction is under way at a time."""

    def __init__(self, fleet: Fleet, process: Process, backend: Process) -> None:
        self._fleet = fleet
        self._process = process
        self._backend = backend
        self._waiting: list[tuple[int, Resume]] = []
        self._is_writing = False
        # How likely it is that another has changed an execution since it was seen here.
        self._peers = 1 - 1 / fleet.shape.orchestrators

    def collect(self) -> Walk[None]:
        """Read, judge, record, apply and send."""
        fleet, costs, process = self._fleet, self._fleet.costs, self._process
        each = costs.orchestrator.message + costs.peer_orchestrator * self._peers
        while True:
            batch = yield from fleet.read(process, fleet.results, _RESULTS, costs.partition_orchestrator)
            if not batch:
                continue
            fleet.seen.batches += 1
            fleet.seen.messages += len(batch)
            cpu = (costs.orchestrator.batch + each * len(batch)) * _US
            yield process.work(cpu / 2)
            yield self._record(len(batch))
            yield process.work(cpu / 2)
            yield fleet.trips(batch, self._send)

    def _record(self, messages: int) -> Step:
        def step(resume: Resume) -> None:
            self._waiting.append((messages, resume))
            if not self._is_writing:
                self._is_writing = True
                self._fleet.time.start(self._write())

        return step

    def _write(self) -> Walk[None]:
        """Commit what waits, together, until nothing does."""
        fleet, cost = self._fleet, self._fleet.costs.postgres
        each = cost.message + fleet.costs.peer_postgres * self._peers
        # Behind a peer, what is kept has to be read again first.
        trips = 1 + self._peers
        while self._waiting:
            group = [self._waiting.pop(0)]
            size = group[0][0]
            while self._waiting and size + self._waiting[0][0] <= _GROUP:
                size += self._waiting[0][0]
                group.append(self._waiting.pop(0))
            yield fleet.time.pause(fleet.shape.trip_us * _US * trips)
            yield self._backend.work((cost.batch + each * size) * _US)
            yield fleet.disk.sync()
            for _, resume in group:
                fleet.time.after(0.0, resume)
        self._is_writing = False

    def _send(self, partition: int, batch: Sequence[Message]) -> None:
        """Send the tasks that follow on results."""
        tasks: list[Message] = []
        for message in batch:
            execution = message.execution
            if message.node is None:
                tasks += [Message(execution, node, message.at) for node in execution.graph.roots]
                continue
            self._fleet.seen.ended += 1
            for child in execution.graph.children[message.node]:
                execution.awaited[child] -= 1
                if execution.awaited[child] == 0:
                    tasks.append(Message(execution, child, message.at))
        self._fleet.tasks.put(partition, tasks)


def _by_partition(batch: Sequence[Message]) -> dict[int, list[Message]]:
    sorted_: dict[int, list[Message]] = {}
    for message in batch:
        sorted_.setdefault(message.execution.partition, []).append(message)
    return sorted_


# --- What is asked of it.


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    # Nodes a second, and how many were asked for.
    rate: float
    asked: float
    hops: Sequence[float]
    orchestrator_batch: float
    # Which share of their time stations of each kind worked; of PostgreSQL, how many cores did.
    busy: Mapping[str, float]


def run_once(costs: Costs, shape: Shape, graph: Graph, executions: int = 1) -> Outcome:
    """Run so many executions that are asked for at once, to their end."""
    fleet = Fleet(costs, shape)
    fleet.submit(graph, executions)
    fleet.time.run()
    return _look(fleet, fleet.time.now, {})


def run_steadily(costs: Costs, shape: Shape, rate: float, *, seed: int) -> Outcome:
    """Let diamonds be asked for at random, so many nodes a second, and look at the fleet for a while."""
    fleet = Fleet(costs, shape)
    draw = random.Random(seed)

    def asking() -> Walk[None]:
        while True:
            yield fleet.time.pause(draw.expovariate(rate / len(DIAMOND.parents)))
            fleet.submit(DIAMOND)

    fleet.time.start(asking())
    fleet.time.run(_WARM_SECONDS)
    fleet.seen = Seen()
    used = fleet.used()
    fleet.time.run(_WARM_SECONDS + _SECONDS)
    return _look(fleet, _SECONDS, used)


def _look(fleet: Fleet, seconds: float, before: Mapping[str, float]) -> Outcome:
    seen, shape = fleet.seen, fleet.shape
    counts = {
        "redis": shape.partitions,
        "orchestrator": shape.orchestrators,
        "worker": shape.workers,
        "api": shape.apis,
        "postgres": 1,
        "disk": 1,
    }
    return Outcome(
        rate=seen.ended / seconds,
        asked=seen.asked / seconds,
        hops=seen.hops,
        orchestrator_batch=seen.messages / seen.batches,
        busy={
            name: (used - before.get(name, 0.0)) / seconds / counts[name]
            for name, used in fleet.used().items()
        },
    )


def shape_for(costs: Costs, rate: float, *, least: int = 1) -> tuple[int, Shape]:
    """Return how many fleets of which shape have the CPU for so many nodes a second; not less than ``least``.

    A fleet has one PostgreSQL, so what that carries is what a fleet does; beyond it there have to be several.
    """
    messages = MESSAGES / NODES
    shared = 1 / _SHARED

    def per_node(cost: Cost, count: float = messages) -> float:
        return (cost.batch * shared + cost.message) * count

    database_us = per_node(costs.postgres) + costs.peer_postgres * messages + costs.submit_postgres / NODES
    by_cores = _POSTGRES_CORES * _BUSY / (database_us * _US)
    by_log = _LOG_BYTES / costs.wal_bytes
    fleets = max(least, ceil(rate / min(by_cores, by_log)))
    own = rate / fleets

    def needed(us: float) -> int:
        return max(1, ceil(own * us * _US / _BUSY))

    redis_us = per_node(costs.redis) + costs.submit_redis / NODES
    partitions = needed(redis_us)
    # Redis is asked once for each partition and batch, whoever asks.
    partitions = needed(redis_us + costs.partition_redis * (partitions - 1) * shared)
    further = (partitions - 1) * shared
    return fleets, Shape(
        partitions=partitions,
        orchestrators=needed(
            per_node(costs.orchestrator)
            + (costs.peer_orchestrator + costs.partition_orchestrator * further) * messages
        ),
        workers=needed(per_node(costs.worker, 1) + costs.partition_worker * further),
        apis=needed(costs.submit_api / NODES),
        postgres_cores=_POSTGRES_CORES,
        trip_us=_TRIP_US,
        sync_us=_SYNC_US,
    )


def smallest(costs: Costs, rate: float) -> tuple[int, Shape, Outcome]:
    """Return how many fleets of which shape carry so many nodes a second, and how one of them does.

    What their CPU asks for is where it begins. Processes that wait for answers most of their time need peers
    all the same: their number grows until nothing is left behind. Where that does not help, since each
    of them asks every partition, there are more fleets with fewer partitions each.
    """
    fleets = 0
    while True:
        fleets, shape = shape_for(costs, rate, least=fleets + 1)
        for _ in range(_TRIES):
            outcome = run_steadily(costs, shape, rate / fleets, seed=1)
            if outcome.busy["redis"] > _MOST_BUSY:
                shape = replace(shape, partitions=shape.partitions + 1)
            elif outcome.rate < outcome.asked * 0.97 or quantile(outcome.hops, 0.99) > _LONGEST_HOP_SECONDS:
                shape = replace(
                    shape, orchestrators=ceil(shape.orchestrators * 1.2), workers=ceil(shape.workers * 1.2)
                )
            else:
                return fleets, shape, outcome


def queueing() -> Iterator[Figure]:
    """The simulation beside what this machine has done just now, and the fleets that carry more."""
    measured = measure()
    costs = measured.costs
    here = Shape(cores=os.cpu_count(), trip_us=costs.trip, sync_us=costs.sync)
    many = replace(here, partitions=PARTITIONS)
    chain_here, chain_many = run_once(costs, here, chain(100)), run_once(costs, many, chain(100))
    hop, hop_many = (quantile(one.hops, 0.5) * 1000 for one in (chain_here, chain_many))
    yield from _beside("W1 hop p50", hop, measured.alone.hop_ms, "ms")
    yield from _beside(f"W1 hop p50, {PARTITIONS} partitions", hop_many, measured.partitions_hop_ms, "ms")
    for what, shape, graph, executions, done in (
        ("W3", here, DIAMOND, EXECUTIONS, measured.alone.w3_rate),
        (f"{CHAINS} chains at once", here, chain(LENGTH), CHAINS, measured.alone.chains_rate),
        ("W3, two orchestrators", replace(here, orchestrators=2), DIAMOND, EXECUTIONS, measured.peers_rate),
        (f"W3, {PARTITIONS} partitions", many, DIAMOND, EXECUTIONS, measured.partitions_rate),
    ):
        yield from _beside(what, run_once(costs, shape, graph, executions).rate, done, "nodes/s")
    for rate in (1e5, 1e6):
        yield from _fleets(costs, rate)


def _beside(what: str, predicted: float, done: float, unit: str) -> Iterator[Figure]:
    yield _figure(f"{what}, simulated", predicted, unit)
    yield _figure(f"{what}, measured", done, unit)
    yield _figure(f"{what}, off by", abs(predicted / done - 1) * 100, "%", at_most(25))


def _fleets(costs: Costs, rate: float) -> Iterator[Figure]:
    fleets, shape, outcome = smallest(costs, rate)
    of = f"{rate:,.0f}/s"
    yield _figure(f"{of}: fleets, each with a PostgreSQL", fleets, "")
    yield _figure(f"{of}: partitions and servers of Redis, each", shape.partitions, "")
    yield _figure(f"{of}: orchestrators, each", shape.orchestrators, "")
    yield _figure(f"{of}: workers, each", shape.workers, "")
    yield _figure(f"{of}: APIs, each", shape.apis, "")
    carried = outcome.rate / outcome.asked * 100
    yield _figure(f"{of}: of what is asked for they carry", carried, "%", at_least(97))
    for name in ("redis", "orchestrator", "worker", "api", "disk"):
        yield _figure(f"{of}: {name} at work", outcome.busy[name] * 100, "%")
    yield _figure(f"{of}: cores of each PostgreSQL at work", outcome.busy["postgres"], "")
    yield _figure(f"{of}: log of each PostgreSQL", costs.wal_bytes * rate / fleets / 1e6, "MB/s")
    yield _figure(f"{of}: messages in an orchestrator's batch", outcome.orchestrator_batch, "")
    for name, share in (("p50", 0.5), ("p99", 0.99)):
        yield _figure(f"{of}: hop {name}", quantile(outcome.hops, share) * 1000, "ms")


def _figure(what: str, value: float, unit: str, target: Target | None = None) -> Figure:
    return Figure(workload="queues", what=what, value=value, unit=unit, target=target)
