"""What an evaluation may take, and what its caller waits for."""

from __future__ import annotations

import pytest

from weft.errors import EvaluationError
from weft.expressions.budget import MAX_STEPS, Allowance, LongEvaluationError
from weft.expressions.expression import compile_expression
from weft.expressions.scope import Scope
from weft.expressions.template import compile_template

SORTED = compile_expression("input | sort | length")


def scope(size: int, allowance: Allowance | None) -> Scope:
    return Scope(list(range(size)), {}, {}, None, allowance)


def test_evaluations_share_what_their_caller_waits_for() -> None:
    allowance = Allowance(10_000)
    assert SORTED.evaluate(scope(500, allowance)) == 500
    left = allowance.steps
    assert 0 < left < 10_000
    most = left // (10_000 - left)
    for _ in range(most):
        SORTED.evaluate(scope(500, allowance))
    with pytest.raises(LongEvaluationError):
        SORTED.evaluate(scope(500, allowance))


def test_a_template_takes_from_the_same_allowance() -> None:
    template = compile_template({"a": "{{ input | sort | length }}"}, max_template_bytes=1000)
    assert not isinstance(template, list)
    with pytest.raises(LongEvaluationError):
        template.fill(scope(500, Allowance(100)), max_bytes=10**6)
    assert template.fill(scope(500, None), max_bytes=10**6).value == {"a": 500}


def test_a_patient_caller_changes_nothing_about_the_most_steps() -> None:
    with pytest.raises(EvaluationError, match=f"more than {MAX_STEPS:,} steps"):
        SORTED.evaluate(scope(200_000, Allowance(10 * MAX_STEPS)))
