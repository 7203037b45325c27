"""``retry.when``: an expression says which failures retry."""

from __future__ import annotations

from typing import Any

import pytest

from weft import NodeState, NonRetryable, Workflow
from weft.core.judge import retry_words
from weft.core.task import Result
from weft.definition.plan import RETRY_WORDS, compile_plan
from weft.definition.validation import check
from weft.handlers.registry import Registry
from weft.testing import run, sequence

FAST: dict[str, Any] = {"base_delay_seconds": 0.01, "jitter": 0}
AWAY = OSError("away")


def failing(when: str, **fields: Any) -> dict[str, Any]:
    retry = {**FAST, "when": when}
    return {"id": "call", "handler": "echo", "config": {}, "max_retries": 5, "retry": retry, **fields}


def attempts(*nodes: dict[str, Any], mock: Any = AWAY, **given: Any) -> tuple[int, NodeState]:
    result = run(
        {"failure_policy": "continue", **given.pop("document", {}), "nodes": list(nodes)},
        mocks={"call": mock},
        **given,
    )
    return result.nodes["call"].attempt, result.nodes["call"].state


@pytest.mark.parametrize(
    ("when", "last"),
    [
        ("true", 6),
        ("false", 1),
        ("attempt < 3", 3),
        ("error.code == 'handler_error'", 6),
        ("error.code == 'timeout'", 1),
        ("error.details.type == 'OSError' and attempt < 2", 2),
        ("error.retryable and attempt_seconds < 60", 6),
        ("attempt_seconds > 60", 1),
        ("error.message is defined", 6),
        ("input.patient", 1),
        ("execution.generation == 1 and attempt < 4", 4),
    ],
)
def test_a_failure_retries_while_it_holds(when: str, last: int) -> None:
    assert attempts(failing(when), input={"patient": False}) == (last, NodeState.FAILED)


def test_a_node_completes_once_an_attempt_does() -> None:
    assert attempts(failing("attempt < 3"), mock=sequence(AWAY, AWAY, 1)) == (3, NodeState.COMPLETED)


def test_it_is_asked_only_where_the_failure_would_retry() -> None:
    assert attempts(failing("true", max_retries=1)) == (2, NodeState.FAILED)
    assert attempts(failing("true"), mock=NonRetryable("never")) == (1, NodeState.FAILED)
    # Not asked: the error of the expression would be in the details.
    result = run(
        {
            "nodes": [
                failing("nothing.x", max_retries=0) | {"dependencies": ["nothing"]},
                {"id": "nothing", "handler": "echo"},
            ]
        },
        mocks={"call": AWAY},
    )
    error = result.nodes["call"].error
    assert error is not None
    assert "retry_when" not in error.details


def test_it_sees_the_outputs_of_ancestors_and_a_word_wins_over_a_node() -> None:
    first = {"id": "first", "handler": "echo", "config": {"most": 2}}
    node = failing("attempt < first.most", dependencies=["first"])
    assert attempts(first, node) == (2, NodeState.FAILED)
    # The word is a number; the long form is the node of that id.
    named = {"id": "attempt", "handler": "echo", "config": {"most": 3}}
    node = failing("attempt < nodes['attempt'].output.most", dependencies=["attempt"])
    assert attempts(named, node) == (3, NodeState.FAILED)


def test_an_error_in_it_makes_the_failure_final_and_says_why() -> None:
    result = run({"nodes": [failing("error.details.status >= 500")]}, mocks={"call": AWAY})
    call = result.nodes["call"]
    assert call.error is not None
    assert (call.attempt, call.error.code) == (1, "handler_error")
    assert call.error.details["type"] == "OSError"
    assert "error.details.status" in call.error.details["retry_when"]


def test_a_long_evaluation_is_finished_beside_the_loop() -> None:
    when = "(range | join | length) > 0 and attempt < 3"
    node = failing(when.replace("range", "input.many"))
    many = ["x" * 30] * 40_000
    assert attempts(node, input={"many": many}) == (3, NodeState.FAILED)


def test_defaults_hold_for_the_nodes_that_do_not_say_otherwise() -> None:
    defaults = {"retry": {**FAST, "when": "attempt < input.most"}, "max_retries": 5}
    plain = {"id": "call", "handler": "echo"}
    document = {"document": {"defaults": defaults}, "input": {"most": 2}}
    assert attempts(plain, **document) == (2, NodeState.FAILED)
    # A field that the node leaves out comes from the defaults.
    assert attempts({**plain, "retry": {"multiplier": 1}}, **document) == (2, NodeState.FAILED)
    assert attempts({**plain, "retry": {"when": "true"}}, **document) == (6, NodeState.FAILED)


def test_a_stored_definition_compiles_to_the_same() -> None:
    document = {
        "name": "w",
        "defaults": {"retry": {"when": "attempt < 2"}},
        "nodes": [failing("attempt < 3"), {"id": "b", "handler": "echo"}],
    }
    checked = check(document, handlers=Registry()).plan
    assert checked is not None
    for plan in (checked, compile_plan(document)):
        assert {name: one.source for name, one in plan.retries.items()} == {
            "call": "attempt < 3",
            "b": "attempt < 2",
        }


def test_the_words_are_those_that_the_expressions_are_compiled_with() -> None:
    failed = Result(
        "x", 1, "a", 4, digest="d", failures=2, losses=1, worker="w",
        queued_at=0, started_at=1_000_000, finished_at=2_500_000,
        error={"code": "c", "message": "m", "retryable": True},
    )  # fmt: skip
    words = retry_words(failed)
    assert words.keys() == RETRY_WORDS
    assert (words["attempt"], words["attempt_seconds"], words["error"]["details"]) == (3, 1.5, {})


def test_a_function_of_python_has_it_too() -> None:
    flow = Workflow("w", failure_policy="continue")
    calls = []

    @flow.node(max_retries=5, retry={"base_delay_seconds": 0.01, "when": "attempt < 2"})
    def call() -> None:
        calls.append(1)
        raise ConnectionError("away")

    assert run(flow).nodes["call"].state is NodeState.FAILED
    assert len(calls) == 2


@pytest.mark.parametrize(
    ("retry", "where", "message"),
    [
        ({"when": 3}, "/nodes/0/retry/when", "must be a string"),
        ({"when": "attempt <"}, "/nodes/0/retry/when", "unexpected 'end"),
        ({"when": "other.x"}, "/nodes/0/retry/when", "there is no node 'other'"),
        ({"when": "call.x"}, "/nodes/0/retry/when", "this node itself"),
        ({"when": "after.x"}, "/nodes/0/retry/when", "runs after this node"),
        ({"when": "secrets.TOKEN"}, "/nodes/0/retry/when", "secrets"),
        ({"when": "x" * 70_000}, "/nodes/0/retry/when", "the limit is"),
        ({"whem": "true"}, "/nodes/0/retry/whem", "did you mean 'when'?"),
    ],
)
def test_what_cannot_be_is_refused(retry: dict[str, Any], where: str, message: str) -> None:
    nodes = [failing("true", retry=retry), {"id": "after", "handler": "echo", "dependencies": ["call"]}]
    (found,) = check({"name": "w", "nodes": nodes}, handlers=Registry()).problems
    assert found.pointer == where
    assert message in found.message


@pytest.mark.parametrize(
    ("when", "message"),
    [
        (
            "first.x > 1",
            "'first' is no name here: in defaults it sees attempt, attempt_seconds, error, input",
        ),
        ("attempt <", "unexpected 'end"),
        (True, "must be a string"),
    ],
)
def test_defaults_see_no_node(when: Any, message: str) -> None:
    nodes = [
        {"id": "first", "handler": "echo"},
        {"id": "second", "handler": "echo", "dependencies": ["first"]},
    ]
    document = {"name": "w", "defaults": {"retry": {"when": when}}, "nodes": nodes}
    (found,) = check(document, handlers=Registry()).problems
    assert found.pointer == "/defaults/retry/when"
    assert message in found.message
