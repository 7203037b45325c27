"""A fleet on this machine: Redis and PostgreSQL as they should be run, and one process of each role.

Redis appends to its file every second; PostgreSQL answers a commit when it is on the disk. All of them share
the cores with what measures them. The reference is a script of Redis, called in pipelines over the same
connection: every node needs several such calls, so no fleet on one Redis is faster.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import aiohttp
from tests.support.hold import PYTHONPATH
from tests.support.servers.postgres import PostgresServer
from tests.support.servers.rabbitmq import RabbitServer
from tests.support.servers.redis import RedisServer

from bench import graphs
from bench.figure import Figure, at_least, at_most, quantile
from bench.run import run_loop
from bench.server import children, cpu_seconds, free_port, resident_bytes, run_batches, wait_until_ready
from weft.core.time import parse_rfc3339
from weft.redis.connection import Redis
from weft.redis.script import make_script

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_RAW_CALLS = 50_000
_BATCH = 256
_RAW = make_script(
    "raw",
    b"redis.call('HMGET', KEYS[1], 'a', 'b', 'c')\nreturn redis.call('HSET', KEYS[1], 'a', ARGV[1])",
)
_IDLE_SECONDS = 10.0
# Half of the 6.8 s that the engine took before one completion became one row.
_LAYERS_SECONDS = 3.4


@dataclass(frozen=True, slots=True)
class RunningFleet:
    url: str
    redis: RedisServer
    postgres: PostgresServer
    # Role → process.
    roles: Mapping[str, subprocess.Popen[bytes]]
    # Role → where it shows its metrics.
    urls: Mapping[str, str]


@contextmanager
def running(*, broker: str | None = None, **settings: str) -> Iterator[RunningFleet]:
    """Start servers and one process of each role, and end them all.

    ``broker``: ``redis`` or ``rabbitmq``, where the worker is one of Celery, with two processes.
    """
    with ExitStack() as ends:
        redis = ends.enter_context(RedisServer(appendonly=True))
        postgres = ends.enter_context(PostgresServer(durable=True))
        environment = {name: value for name, value in os.environ.items() if not name.startswith("WEFT_")}
        environment |= {f"WEFT_{name}": value for name, value in settings.items()}
        environment["WEFT_REDIS_URL"] = redis.url
        environment["PYTHONPATH"] = PYTHONPATH
        environment["WEFT_DATABASE_URL"] = postgres.create_database("weft")
        if broker is not None:
            environment["WEFT_TRANSPORT"] = "celery"
            rabbit = broker == "rabbitmq"
            url = ends.enter_context(RabbitServer()).url if rabbit else redis.url_of(1)
            environment["WEFT_CELERY_BROKER_URL"] = url
        weft = [sys.executable, "-m", "weft.cli.main"]
        subprocess.run([*weft, "migrate"], env=environment, check=True, stdout=subprocess.DEVNULL)
        url = ""
        roles: dict[str, subprocess.Popen[bytes]] = {}
        urls: dict[str, str] = {}
        for role in ("orchestrator", "worker", "api"):
            if role == "worker" and broker is not None:
                roles[role] = _start_celery(environment)
                ends.callback(_end, roles[role])
                continue
            port = free_port()
            flags = ["--port", str(port)] if role == "api" else []
            process = subprocess.Popen(
                [*weft, role, *flags],
                env={**environment, "WEFT_METRICS_PORT": str(port)},
                stderr=subprocess.DEVNULL,
            )
            ends.callback(_end, process)
            roles[role] = process
            url = urls[role] = f"http://127.0.0.1:{port}"
            run_loop(wait_until_ready(url, process))
        yield RunningFleet(url, redis, postgres, roles, urls)


def _start_celery(environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    flags = ["worker", "-c", "2", "-l", "WARNING", "--without-mingle", "--without-gossip"]
    return subprocess.Popen(
        [sys.executable, "-m", "celery", "-A", "weft.celery", *flags],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def _end(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    process.wait(60)


def fleet() -> Iterator[Figure]:
    """W1 and W3, what a node costs, one wide execution, and what a fleet at rest does."""
    with running() as one:
        hops = run_loop(chain_hops(one.url))
        p50, p99 = quantile(hops, 0.5), quantile(hops, 0.99)
        yield Figure(workload="fleet", what="W1 hop p50", value=p50, unit="ms", target=at_most(1.1))
        yield Figure(workload="fleet", what="W1 hop p99", value=p99, unit="ms")
        yield from _throughput(one)
        yield from _layers(one)
    with running() as one:
        yield from _idle(one)


async def chain_hops(url: str) -> list[float]:
    """Run chains one after the other; give the time from each end to the next start, in milliseconds."""
    document = graphs.chain(100)
    hops = []
    async with aiohttp.ClientSession(url) as session:
        for number in range(6):
            async with session.post("/v1/executions?wait=120", json={"definition": document}) as answer:
                execution = await answer.json()
            assert execution["state"] == "COMPLETED", execution
            if number:  # the first pays for what is made once
                hops += [
                    (parse_rfc3339(child["started_at"]) - parse_rfc3339(parent["finished_at"])) / 1000
                    for parent, child in pairwise(execution["nodes"])
                ]
    return hops


def _throughput(one: RunningFleet) -> Iterator[Figure]:
    document = graphs.diamond()
    what = "W3, 2,000 × a → b, c, d → e"
    raw = run_loop(_raw(one.redis.url))
    run_loop(run_batches(one.url, document, sizes=[200]))
    before = _cpu(one)
    sizes = [2000, 2000, 2000]
    _, rate = run_loop(run_batches(one.url, document, sizes=sizes))
    nodes = sum(sizes) * len(document["nodes"])
    yield Figure(workload="fleet", what=what, value=rate, unit="nodes/s", target=at_least(11_000))
    yield Figure(workload="fleet", what="a script of Redis alone, pipelined", value=raw, unit="calls/s")
    yield Figure(workload="fleet", what="W3, of that", value=rate / raw, unit="×")
    yield from cpu_figures({name: (now - before[name]) / nodes for name, now in _cpu(one).items()})


def cpu_figures(seconds: Mapping[str, float]) -> Iterator[Figure]:
    """Return the CPU time a node of each process, and of all."""
    for name, micros in {name: used * 1e6 for name, used in seconds.items()}.items():
        yield Figure(workload="fleet", what=f"W3, CPU a node, {name}", value=micros, unit="µs")
    whole = sum(seconds.values()) * 1e6
    yield Figure(workload="fleet", what="W3, CPU a node, in all", value=whole, unit="µs", target=at_most(110))


def _layers(one: RunningFleet) -> Iterator[Figure]:
    """One execution of 25 layers of 1,000 nodes."""
    document = graphs.layered(25, 1000)
    seconds = min([run_loop(_layers_seconds(one.url, document)) for _ in range(3)])
    yield Figure(
        workload="fleet",
        what="25 layers of 1,000 nodes, start to end",
        value=seconds,
        unit="s",
        target=at_most(_LAYERS_SECONDS),
    )


async def _layers_seconds(url: str, document: dict[str, Any]) -> float:
    async with (
        aiohttp.ClientSession(url) as session,
        session.post("/v1/executions?wait=120", json={"definition": document}) as answer,
    ):
        execution = await answer.json()
    assert execution["state"] == "COMPLETED", execution
    return (parse_rfc3339(execution["finished_at"]) - parse_rfc3339(execution["started_at"])) / 1e6


def _cpu(one: RunningFleet) -> dict[str, float]:
    pids = {"redis": one.redis.controlled.pid, "postgres": one.postgres.controlled.pid}
    pids |= {role: process.pid for role, process in one.roles.items()}
    return {name: sum(map(cpu_seconds, (pid, *children(pid)))) for name, pid in pids.items()}


async def _raw(url: str) -> float:
    redis = Redis(url)
    begun = time.perf_counter()
    for start in range(0, _RAW_CALLS, _BATCH):
        numbers = range(start, start + _BATCH)
        await redis.scripts([(_RAW, [f"raw:{{p0}}:{number % 1000}"], [b"x" * 64]) for number in numbers])
    rate = _RAW_CALLS / (time.perf_counter() - begun)
    await redis.close()
    return rate


def _idle(one: RunningFleet) -> Iterator[Figure]:
    """What a fleet with nothing to do asks of its servers."""

    def commands() -> int:
        return int(one.redis.execute("INFO", "stats")["total_commands_processed"])

    def queries() -> int:
        return int(one.postgres.execute("SELECT sum(xact_commit + xact_rollback) FROM pg_stat_database"))

    time.sleep(3)
    asked, committed, used = commands(), queries(), _cpu(one)
    time.sleep(_IDLE_SECONDS)
    processes = len(one.roles)
    yield Figure(
        workload="fleet",
        what="at rest, Redis commands a second and process",
        value=(commands() - asked) / _IDLE_SECONDS / processes,
        unit="/s",
    )
    yield Figure(
        workload="fleet",
        what="at rest, transactions a second and process",
        value=(queries() - committed) / _IDLE_SECONDS / processes,
        unit="/s",
    )
    for name, now in _cpu(one).items():
        if name in one.roles:
            yield Figure(
                workload="fleet",
                what=f"at rest, CPU of {name}",
                value=(now - used[name]) / _IDLE_SECONDS * 100,
                unit="%",
            )
            yield Figure(
                workload="fleet",
                what=f"at rest, memory of {name}",
                value=resident_bytes(one.roles[name].pid) / 1e6,
                unit="MB",
            )
