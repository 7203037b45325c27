"""Fifty real graphs, run on memory and on SQLite, checked node by node and edge by edge."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any

import pytest
from tests.tracecheck import DrawnNode, check, merkle, seen_outputs
from tests.walks.replay import FILES, Replay, read, registry, structural, with_rules

from weft.cli.trace import read_journal
from weft.definition.validation import check as check_definition
from weft.engine import Engine
from weft.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SLOTS = 8


async def run(replay: Replay, data: Path | None) -> dict[str, Any]:
    """Run a replay to its end and give the execution as users see it."""
    handlers = registry()
    checked = check_definition(replay.document, handlers=handlers)
    assert checked.problems == []
    assert checked.plan is not None
    settings = Settings(worker_concurrency=SLOTS)
    async with Engine(registry=handlers, settings=settings, data=data) as engine:
        execution_id = await engine.submit(checked.plan, document=replay.document)
        await engine.wait(execution_id)
        assert (await read_journal(engine.ports.catalog, execution_id)).check() == []
        return await engine.describe(execution_id)


@pytest.fixture(params=["memory", "sqlite"])
def data(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    return tmp_path if request.param == "sqlite" else None


def test_fifty_graphs_of_sixteen_kinds_are_there() -> None:
    dags = [read(file) for file in FILES]
    assert len(dags) == 50
    assert len({dag["group"] for dag in dags}) == 16
    assert all(dag["license"] and dag["source"]["repo"] for dag in dags)


@pytest.mark.parametrize("file", FILES)
async def test_a_real_graph_runs_as_it_is_drawn(file: str, data: Path | None) -> None:
    replay = structural(read(file))

    execution = await run(replay, data)

    assert execution["state"] == "COMPLETED"
    assert execution["counts"]["COMPLETED"] == len(replay.graph)
    assert check(replay.graph, replay.trace(execution), slots=SLOTS) == []


@pytest.mark.parametrize("file", FILES)
async def test_a_real_graph_keeps_its_trigger_rules_among_failures(file: str, data: Path | None) -> None:
    replay = with_rules(read(file), seed=1)

    execution = await run(replay, data)

    assert check(replay.graph, replay.trace(execution), slots=SLOTS, max_attempts=2) == []
    _check_fates(replay, execution)


def _check_fates(replay: Replay, execution: dict[str, Any]) -> None:
    """A node fails where the seed says so and nowhere else; one that stumbles needs a second attempt."""
    fates = {node["id"]: node["config"]["fate"] for node in replay.document["nodes"]}
    for node in execution["nodes"]:
        fate = fates[node["id"]]
        if node["state"] in ("COMPLETED", "FAILED"):
            assert (node["state"] == "FAILED") == (fate == "fails"), node
            assert node["attempt"] == (2 if fate == "stumbles" else 1), node


# --- The checker itself: a right trace passes, and each kind of wrong one is seen for what it is.

GRAPH = (
    DrawnNode("a", ()),
    DrawnNode("b", ("a",)),
    DrawnNode("c", ("a",)),
    DrawnNode("d", ("b", "c")),
    DrawnNode("e", ("c",)),
    DrawnNode("f", ("c", "d"), "one_failed"),
)


def at(seconds: int) -> str:
    return f"2024-01-01T00:00:{seconds:02}.000000Z"


def ran(node_id: str, state: str, start: int, output: str | None = None) -> dict[str, Any]:
    times = {"queued_at": at(start), "started_at": at(start), "finished_at": at(start + 1)}
    return {"id": node_id, "state": state, "reason": None, "attempts": 1, "output": output, **times}


def skipped(node_id: str) -> dict[str, Any]:
    return {"id": node_id, "state": "SKIPPED", "reason": "upstream_failed", "attempts": 0, "output": None}


def a_right_trace() -> list[dict[str, Any]]:
    """``c`` fails: what needs it is skipped, and ``f`` handles it."""
    a = merkle("a", [])
    return [
        ran("a", "COMPLETED", 0, a),
        ran("b", "COMPLETED", 1, merkle("b", [a])),
        ran("c", "FAILED", 1),
        skipped("d"),
        skipped("e"),
        ran("f", "COMPLETED", 2, merkle("f", [])),
    ]


def test_the_checker_passes_a_right_trace() -> None:
    assert check(GRAPH, a_right_trace(), slots=2) == []


@pytest.mark.parametrize(
    ("code", "spoil"),
    [
        ("missing", lambda trace: trace.pop(1)),
        ("unknown", lambda trace: trace.append(ran("x", "COMPLETED", 5, "x"))),
        ("duplicate", lambda trace: trace.append(trace[1])),
        ("state", lambda trace: trace[1].update(state="RUNNING")),
        ("time", lambda trace: trace[1].update(started_at=None)),
        ("time", lambda trace: trace[1].update(finished_at=at(0))),
        ("attempts", lambda trace: trace[1].update(attempts=0)),
        ("attempts", lambda trace: trace[1].update(attempts=2)),
        ("attempts", lambda trace: trace[3].update(attempts=1)),
        ("order", lambda trace: trace[1].update(queued_at=at(0))),
        ("order", lambda trace: trace[5].update(queued_at=at(1), started_at=at(1))),
        ("poisoned", lambda trace: trace[4].update(ran("e", "COMPLETED", 3, merkle("e", [""])))),
        ("idle", lambda trace: trace[1].update(skipped("b"))),
        ("ghost", lambda trace: trace[3].update(started_at=at(5))),
        ("output", lambda trace: trace[1].update(output=None)),
        ("dataflow", lambda trace: trace[1].update(output=merkle("b", ["0"]))),
        ("parallel", lambda trace: trace[0].update(finished_at=at(9))),
    ],
)
def test_the_checker_sees_a_wrong_trace(code: str, spoil: Callable[[list[dict[str, Any]]], object]) -> None:
    trace = deepcopy(a_right_trace())
    spoil(trace)
    assert code in {violation.code for violation in check(GRAPH, trace, slots=2)}


def test_the_order_of_the_parents_is_part_of_the_data_flow() -> None:
    node = DrawnNode("d", ("b", "c"))
    outputs = {"b": "1", "c": "2"}
    swapped = DrawnNode("d", ("c", "b"))
    assert merkle("d", seen_outputs(node, outputs)) != merkle("d", seen_outputs(swapped, outputs))
