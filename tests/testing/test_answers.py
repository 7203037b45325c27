"""Nodes that wait, in virtual time: answered by the test, expired, or with nobody to answer."""

from __future__ import annotations

import time
from typing import Any

import pytest

from weft import ExecutionState, InputError, NodeState, Workflow
from weft.testing import run

HOUR_SECONDS = 3_600


def release(**config: Any) -> Workflow:
    flow = Workflow("release", output="{{ approval.value }}")
    cool_down = flow.wait("cool_down", seconds=HOUR_SECONDS)
    flow.wait("approval", dependencies=[cool_down], **config)
    return flow


@pytest.mark.parametrize("name", ["approval", "go"])
def test_a_wait_is_answered_by_its_node_or_its_signal(name: str) -> None:
    began = time.monotonic()
    result = run(release(signal="go", schema={"enum": ["yes"]}), answers={name: "yes"})
    assert (result.state, result.output) == (ExecutionState.COMPLETED, "yes")
    assert result.duration == pytest.approx(HOUR_SECONDS, abs=1)
    assert time.monotonic() - began < 20


def test_the_name_of_the_node_goes_before_that_of_the_signal() -> None:
    assert run(release(signal="go"), answers={"go": 1, "approval": 2}).output == 2


def test_without_an_answer_a_wait_expires() -> None:
    assert run(release(expires_seconds=60, default="reject")).output == "reject"
    failed = run(release(expires_seconds=60))
    node = failed.nodes["approval"]
    assert node.error is not None
    assert (failed.state, node.error.code) == (ExecutionState.FAILED, "expired")


def test_a_wait_that_nobody_answers_is_an_error_that_says_what_to_give() -> None:
    with pytest.raises(ValueError, match=r"nobody answers 'approval': .* answers=\{'approval': …\}"):
        run(release())


def test_a_wait_that_is_cut_off_needs_no_answer() -> None:
    flow = Workflow("cut-off", timeout_seconds=5)
    flow.wait("approval")
    assert run(flow).state is ExecutionState.FAILED


def test_an_answer_that_does_not_fit_is_refused() -> None:
    with pytest.raises(InputError, match="/value"):
        run(release(schema={"enum": ["yes"]}), answers={"approval": "no"})


def test_an_answer_that_nothing_waits_for_is_named() -> None:
    with pytest.raises(ValueError, match="'aproval'; did you mean 'approval'"):
        run(release(), answers={"aproval": 1})
    with pytest.raises(ValueError, match="cool_down"):
        run(release(), answers={"cool_down": 1})


def test_a_wait_can_be_mocked() -> None:
    result = run(release(), mocks={"approval": {"value": "yes"}})
    assert (result.output, result.nodes["approval"].state) == ("yes", NodeState.COMPLETED)
