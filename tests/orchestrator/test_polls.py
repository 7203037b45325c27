"""Polls: a node runs again and again until its output is what was waited for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from weft import NodeState
from weft.definition.validation import check
from weft.handlers.registry import Registry
from weft.testing import run, sequence

if TYPE_CHECKING:
    from weft import HandlerContext

PENDING, DONE = {"status": "pending"}, {"status": "done"}


def polling(until: str = "output.status == 'done'", **fields: Any) -> dict[str, Any]:
    poll = {"until": until, "every_seconds": 30, "timeout_seconds": 100, **fields.pop("poll", {})}
    return {"id": "job", "handler": "echo", "config": {}, "poll": poll, **fields}


def document(*nodes: dict[str, Any]) -> dict[str, Any]:
    return {"nodes": list(nodes)}


AFTER = {"id": "after", "handler": "echo", "dependencies": ["job"], "config": "{{ job.status }}"}


def test_it_looks_until_its_end_holds() -> None:
    result = run(document(polling(), AFTER), mocks={"job": sequence(PENDING, PENDING, DONE)})
    assert result.output == {"after": "done"}
    assert result.nodes["job"].attempt == 3
    assert result.duration == pytest.approx(60, abs=1)


def test_the_end_sees_what_a_condition_sees() -> None:
    first = {"id": "first", "handler": "echo", "config": {"wanted": 2}}
    node = polling("output.n >= first.wanted and input.go", dependencies=["first"])
    outputs = sequence({"n": 1}, {"n": 2})
    result = run(document(first, node), input={"go": True}, mocks={"job": outputs})
    assert result.output == {"job": {"n": 2}}


def test_no_look_starts_after_its_time() -> None:
    result = run(document(polling(), AFTER), mocks={"job": PENDING})
    job = result.nodes["job"]
    assert job.error is not None
    assert (job.state, job.error.code, job.attempt) == (NodeState.FAILED, "expired", 4)
    assert result.nodes["after"].state is NodeState.SKIPPED


def test_an_end_that_cannot_be_asked_is_final() -> None:
    result = run(document(polling("output.nothing > 1")), mocks={"job": PENDING})
    job = result.nodes["job"]
    assert job.error is not None
    assert (job.error.code, job.attempt) == ("condition_error", 1)
    assert "output.nothing" in job.error.message


def test_a_failed_look_is_retried_and_a_look_resets_the_failures() -> None:
    node = polling(max_retries=1, retry={"base_delay_seconds": 1, "jitter": 0})
    looks = sequence(OSError("away"), PENDING, OSError("away"), DONE)
    result = run(document(node), mocks={"job": looks})
    assert result.nodes["job"].state is NodeState.COMPLETED
    assert result.nodes["job"].attempt == 4


def test_a_failed_look_without_a_retry_fails_the_node() -> None:
    result = run(document(polling(max_retries=0)), mocks={"job": sequence(PENDING, OSError("away"))})
    assert result.nodes["job"].state is NodeState.FAILED


def test_attempts_of_a_look_share_its_idempotency_key_and_looks_do_not() -> None:
    keys = []
    outputs = iter([OSError("away"), PENDING, DONE])

    def look(context: HandlerContext) -> Any:
        keys.append(context.idempotency_key.rpartition("/")[2])
        output = next(outputs)
        if isinstance(output, OSError):
            raise output
        return output

    node = polling(retry={"base_delay_seconds": 1, "jitter": 0})
    result = run(document(node), mocks={"job": look})
    assert result.nodes["job"].state is NodeState.COMPLETED
    first, retried, second = keys
    assert first == retried != second


@pytest.mark.parametrize(
    ("fields", "pointer", "message"),
    [
        ({"poll": {"every_seconds": 0}}, "/nodes/0/poll/every_seconds", "above 0"),
        ({"poll": {"every": 3}}, "/nodes/0/poll/every", "unknown field"),
        ({"poll": {"until": "output."}}, "/nodes/0/poll/until", ""),
        ({"poll": {"until": "other.x"}}, "/nodes/0/poll/until", "there is no node 'other'"),
        ({"delivery": "at_most_once"}, "/nodes/0/poll", "one start"),
        ({"handler": "sleep", "config": {"seconds": 1}}, "/nodes/0/poll", "nothing to look at"),
        ({"handler": "wait"}, "/nodes/0/poll", "a wait node has no poll"),
    ],
)
def test_what_cannot_be_is_refused(fields: dict[str, Any], pointer: str, message: str) -> None:
    found = check({"name": "w", "nodes": [polling(**fields)]}, handlers=Registry()).problems
    assert [problem.pointer for problem in found] == [pointer]
    assert message in found[0].message
