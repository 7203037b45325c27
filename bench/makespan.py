"""Real DAGs at eight concurrency slots: their makespan against a greedy list schedule without any overhead.

The graphs are those of ``tests/dags`` whose files hold runtimes. A node sleeps for its runtime, scaled so
that the longest of its graph takes 100 ms, and for at least 10 ms: it holds a worker slot and no CPU. The
execution has ``max_concurrency: 8``, and the worker has more slots than that, so the concurrency slots are
what the nodes wait for. The makespan is the time from the first start of a node to the last end, the shortest
of three runs. Beside it stand bare tasks of asyncio with a semaphore: what this machine adds at this hour.
"""

from __future__ import annotations

import asyncio
import heapq
import json
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import aiohttp

from bench.figure import Figure, at_most
from bench.fleet import running
from bench.run import run, run_loop
from weft.core.time import MICROSECONDS, parse_rfc3339

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

SLOTS = 8
SHORTEST_SECONDS, LONGEST_SECONDS = 0.01, 0.1
_REPEATS = 3
_FOLDER = Path(__file__).parents[1] / "tests" / "dags"
_FILES = (
    "dslab/dslab-cybershake-100.json",
    "dslab/dslab-daggen-100-0-75-0-9-0-03-2.json",
    "dslab/dslab-map-reduce.json",
    "flowbench/flowbench-eht-difmap.json",
)


def makespan() -> Iterator[Figure]:
    """Makespan ÷ greedy schedule of each graph and their median, embedded and as a fleet."""
    graphs = {Path(name).stem: read_graph(_FOLDER / name) for name in _FILES}
    yield from _figures("asyncio alone", {name: run_loop(_bare(nodes)) for name, nodes in graphs.items()})
    yield from _figures("embedded", {name: _embedded(nodes) for name, nodes in graphs.items()}, 1.03)
    with running() as one:
        measured = run_loop(_fleet(one.url, graphs))
    yield from _figures("fleet", measured, 1.08)


def _figures(where: str, ratios: Mapping[str, float], target: float | None = None) -> Iterator[Figure]:
    for name, ratio in ratios.items():
        yield Figure(workload="span", what=f"{where} {name[:34]}", value=ratio, unit="× greedy")
    middle = median(ratios.values())
    bound = None if target is None else at_most(target)
    yield Figure(workload="span", what=f"{where}, median", value=middle, unit="× greedy", target=bound)


def read_graph(path: Path) -> list[tuple[str, list[str], float]]:
    """Return the nodes of a graph in topological order: id, parents, and seconds after scaling."""
    nodes = json.loads(path.read_text())["nodes"]
    longest = max(node.get("runtime_s") or 0.0 for node in nodes)
    return [
        (
            node["id"],
            node["depends_on"],
            max(SHORTEST_SECONDS, LONGEST_SECONDS * (node.get("runtime_s") or 0.0) / longest),
        )
        for node in nodes
    ]


def greedy_seconds(nodes: Sequence[tuple[str, list[str], float]], slots: int) -> float:
    """Return the makespan of a list schedule: a free slot takes the ready node that became ready first."""
    place = {name: number for number, (name, _, _) in enumerate(nodes)}
    waits = [len(parents) for _, parents, _ in nodes]
    children: list[list[int]] = [[] for _ in nodes]
    for number, (_, parents, _) in enumerate(nodes):
        for parent in parents:
            children[place[parent]].append(number)
    ready = [(0.0, number) for number, count in enumerate(waits) if not count]
    running_until: list[tuple[float, int]] = []
    now = 0.0
    while ready or running_until:
        while ready and len(running_until) < slots:
            _, number = heapq.heappop(ready)
            heapq.heappush(running_until, (now + nodes[number][2], number))
        now, ended = heapq.heappop(running_until)
        for child in children[ended]:
            waits[child] -= 1
            if not waits[child]:
                heapq.heappush(ready, (now, child))
    return now


def _document(nodes: Sequence[tuple[str, list[str], float]]) -> dict[str, Any]:
    # Short names: those of the files may hold what an id may not.
    names = {name: f"n{number}" for number, (name, _, _) in enumerate(nodes)}
    return {
        "name": "makespan",
        "max_concurrency": SLOTS,
        "output": None,
        "nodes": [
            {
                "id": names[name],
                "handler": "hold",
                "dependencies": [names[parent] for parent in parents],
                "config": {"seconds": seconds},
            }
            for name, parents, seconds in nodes
        ],
    }


async def _bare(nodes: Sequence[tuple[str, list[str], float]]) -> float:
    loop = asyncio.get_running_loop()
    spans = []
    for _ in range(_REPEATS):
        slots = asyncio.Semaphore(SLOTS)
        tasks: dict[str, asyncio.Task[None]] = {}

        async def one(parents: list[str], seconds: float) -> None:
            for parent in parents:
                await tasks[parent]  # noqa: B023 - all of them end within this round
            async with slots:  # noqa: B023
                await asyncio.sleep(seconds)

        begun = loop.time()
        for name, parents, seconds in nodes:
            tasks[name] = asyncio.create_task(one(parents, seconds))
        await asyncio.gather(*tasks.values())
        spans.append(loop.time() - begun)
    return min(spans) / greedy_seconds(nodes, SLOTS)


def _embedded(nodes: Sequence[tuple[str, list[str], float]]) -> float:
    spans = []
    for _ in range(_REPEATS):
        (rows,) = run(_document(nodes)).rows
        started = min(row.started_at or 0 for row in rows.values())
        spans.append((max(row.finished_at or 0 for row in rows.values()) - started) / MICROSECONDS)
    return min(spans) / greedy_seconds(nodes, SLOTS)


async def _fleet(url: str, graphs: Mapping[str, Sequence[tuple[str, list[str], float]]]) -> dict[str, float]:
    ratios = {}
    async with aiohttp.ClientSession(url) as session:
        for name, nodes in graphs.items():
            spans = []
            for _ in range(_REPEATS):
                body = {"definition": _document(nodes)}
                async with session.post("/v1/executions?wait=120", json=body) as answer:
                    execution = await answer.json()
                assert execution["state"] == "COMPLETED", execution
                started = min(parse_rfc3339(node["started_at"]) for node in execution["nodes"])
                ended = max(parse_rfc3339(node["finished_at"]) for node in execution["nodes"])
                spans.append((ended - started) / MICROSECONDS)
            ratios[name] = min(spans) / greedy_seconds(nodes, SLOTS)
    return ratios
