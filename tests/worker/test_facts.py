"""What a context shows of the execution, in every place that runs functions."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from tests.worker import asking

from weft import HandlerContext, run
from weft.clock import VirtualClock
from weft.errors import HandlerError
from weft.handlers.contract import ExecutionFacts
from weft.store.contract import StoreOptions
from weft.store.memory import MemoryStore
from weft.testing.walk import Walk, node, workflow
from weft.testing.workflows import run as run_mocked
from weft.worker.facts import FactsReader, LoopFacts, read_facts

if TYPE_CHECKING:
    from pathlib import Path

EXPECTED = {
    "input": {"order": 7},
    "labels": {},
    "workflow": "asking",
    "version": None,
    "last": False,
    "states": {"good": "COMPLETED", "bad": "FAILED"},
    "at": "2026-05-01",
    "size": 300_000,
    "none": None,
    "code": "handler_error",
}
ASKING = ("plain", "coroutine", "threaded", "handled")


def check(outputs: dict[str, Any], **differing: Any) -> None:
    expected = EXPECTED | differing
    assert outputs == {name: expected | {"last": name == "plain"} for name in ASKING}


@pytest.mark.parametrize("keeps", [False, True])
def test_functions_in_this_process_know_their_execution(tmp_path: Path, keeps: bool) -> None:
    result = run(asking.flow, {"order": 7}, data=tmp_path / "data" if keeps else None)
    check({name: result.nodes[name].output for name in ASKING})
    assert result.nodes["plain"].attempt == 2


def test_functions_in_child_processes_know_their_execution() -> None:
    program = [sys.executable, "-m", "weft.cli.main", "run", f"{asking.__file__}:flow", "--input", "order=7"]
    ended = subprocess.run([*program, "--json"], capture_output=True, text=True, check=False)
    nodes = {node["id"]: node for node in json.loads(ended.stdout)["nodes"]}
    check({name: nodes[name]["output"] for name in ASKING})
    assert nodes["plain"]["attempt"] == 2


def test_mocks_know_their_execution() -> None:
    def mock(context: HandlerContext) -> Any:
        return asking.known(context)

    result = run_mocked(asking.flow, {"order": 7}, mocks={"plain": mock})
    assert result.nodes["plain"].output == EXPECTED


@pytest.mark.parametrize(
    ("options", "is_held"),
    [
        (StoreOptions(), True),
        (StoreOptions(inline_output_bytes=4), False),
        (StoreOptions(inline_input_bytes=4), False),
    ],
)
async def test_a_coroutine_that_does_not_ask_reads_nothing_that_is_in_memory(
    options: StoreOptions, is_held: bool
) -> None:
    clock = VirtualClock()
    store = MemoryStore(now=clock.now, new_id=lambda: "token", publish=lambda _: None, options=options)
    walk = Walk(workflow("a", node("b", "a")), store=store, clock=clock, input={"order": 7})
    await walk.begin()
    (free,) = await walk.apply(await walk.record(await walk.completed("a", {"much": "more"})))
    task = walk.task(free)
    reads: list[bytes] = []

    async def read() -> bytes:
        reads.append(await read_facts(task, walk.journal))
        return reads[-1]

    facts = LoopFacts(FactsReader(task, store.rows_at_hand, read))
    await facts.prefetch()
    assert bool(reads) is not is_held
    # What the store forgets at the end of an execution, the contexts of its attempts still know.
    expected = msgspec.json.decode(await read(), type=ExecutionFacts)
    await walk.advance(walk.cancelled())
    assert store.rows_at_hand(task) is None
    assert facts.get() == expected
    assert expected.parents["a"].output == {"much": "more"}


def test_a_context_outside_of_an_execution_says_so() -> None:
    context = HandlerContext(
        execution_id="e", node_id="n", generation=1, attempt=1, deadline=datetime(2026, 5, 1, tzinfo=UTC)
    )
    with pytest.raises(HandlerError, match="knows nothing of an execution"):
        context.parents  # noqa: B018 - the access is what is tested
