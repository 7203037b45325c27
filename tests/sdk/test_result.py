"""What ``run`` returns, and what it raises."""

# ruff: noqa: A002 - a parameter named input is what a node asks for
from __future__ import annotations

import asyncio
import re
import traceback
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from weft import DefinitionError, ExecutionFailed, Failure, Workflow, WorkflowDAG, execute, run

PRICES: dict[str, int] = {}


def failing() -> Workflow:
    flow = Workflow("failing", failure_policy="continue")

    @flow.node(max_retries=0)
    def lookup() -> Any:
        return PRICES["price"]

    @flow.node
    def fine() -> int:
        return 1

    return flow


def test_an_error_is_read_by_attribute_and_as_before_by_key() -> None:
    result = run(failing())
    error = result.nodes["lookup"].error
    assert error is not None
    assert (error.code, error.retryable, error.details["type"]) == ("handler_error", True, "KeyError")
    assert (error["code"], error.get("message"), error.get("ghost", 1)) == (error.code, error.message, 1)
    assert dict(error)["details"] == error.details
    with pytest.raises(KeyError):
        error["ghost"]
    assert result.error is not None
    assert (result.error.code, result.error.node) == ("node_failed", "lookup")


def test_a_result_has_the_fields_of_a_clients_execution() -> None:
    result = run(failing())
    node = result.nodes["fine"]
    assert (result.workflow, node.id, node.state, node.output, node.cached) == (
        *("failing", "fine", "COMPLETED", 1),
        False,
    )
    assert result.started_at is not None
    assert node.started_at is not None
    assert node.finished_at is not None
    assert node.duration == pytest.approx((node.finished_at - node.started_at).total_seconds(), abs=1e-5)
    assert result.nodes["lookup"].id == "lookup"


def test_a_failed_execution_raises_for_its_state_and_shows_the_line_that_failed() -> None:
    result = run(failing())
    with pytest.raises(ExecutionFailed) as caught:
        result.raise_for_state()
    error = caught.value
    assert (error.execution, error.state) == (result.id, "FAILED")
    assert isinstance(error.error, Failure)
    assert "failed: lookup: handler_error: KeyError: 'price'" in str(error)
    assert 'return PRICES["price"]' in str(error)
    assert [Path(frame.path).name for frame in caught.traceback] == ["test_result.py", "public.py"]


def test_a_completed_execution_is_returned_by_raise_for_state() -> None:
    flow = Workflow("fine")
    flow.node(id="a")(lambda: 1)
    result = flow.run()
    assert result.raise_for_state() is result
    assert result.output == {"a": 1}


def test_the_input_may_be_of_any_type_that_a_function_may_return() -> None:
    @dataclass
    class Order:
        at: date

    flow = Workflow("typed")

    @flow.node
    def year(input: Order) -> int:
        return input.at.year

    assert flow.run(Order(date(2026, 5, 1))).output == {"year": 2026}


async def test_errors_end_at_the_function_that_the_user_called() -> None:
    bad = {"nodes": [{"id": "a", "handler": "ecko"}]}
    flow = Workflow("flow")

    def a(ghost: Any) -> None: ...

    def by_hand() -> None:
        run(bad)

    for call in (by_hand, lambda: flow.node(a), lambda: Workflow("No"), lambda: WorkflowDAG().validate()):
        with pytest.raises(DefinitionError) as caught:
            call()
        frames = [Path(frame.filename).name for frame in traceback.extract_tb(caught.value.__traceback__)]
        assert frames == ["test_result.py", "test_result.py", "public.py"]
        assert caught.value.__cause__ is None
        assert caught.value.__suppress_context__
    with pytest.raises(DefinitionError) as caught:
        await execute(bad)
    assert [Path(frame.path).name for frame in caught.traceback] == ["test_result.py", "public.py"]


def test_progress_shows_on_stderr_how_far_it_has_come(capsys: pytest.CaptureFixture[str]) -> None:
    run(failing(), progress=True)
    shown = capsys.readouterr()
    assert "COMPLETED  fine" in shown.err
    assert "FAILED     lookup" in shown.err
    assert shown.out == ""
    # As ``weft run`` tells it.
    assert re.search(r"^FAILED after .+: 1 completed, 1 failed", shown.err, re.MULTILINE)
    assert re.search(r"^  failed: lookup: handler_error: ", shown.err, re.MULTILINE)
    assert "    Traceback (most recent call last):\n" in shown.err
    failing().run()
    assert capsys.readouterr().err == ""


async def test_giving_up_on_a_run_with_progress_cancels_it() -> None:
    flow = Workflow("slow")
    started = asyncio.Event()
    stopped = asyncio.Event()

    @flow.node
    async def slow() -> None:
        started.set()
        try:
            await asyncio.sleep(3600)
        finally:
            stopped.set()

    running = asyncio.create_task(flow.execute(progress=True))
    await started.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert stopped.is_set()
