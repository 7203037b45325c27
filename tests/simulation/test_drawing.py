"""What is drawn is what people write."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

from tests.support.simulation.drawing import draw_definition, plan_of

from weft.definition.model import TriggerRule
from weft.definition.plan import compile_plan
from weft.definition.validation import check

if TYPE_CHECKING:
    from weft.core.payload import Json
    from weft.errors import Problem


class AnyHandler:
    """A catalogue of the one handler that is drawn."""

    def names(self) -> list[str]:
        return ["work"]

    def knows(self, name: str) -> bool:
        return name == "work"

    def problems(self, name: str, config: Json) -> list[Problem]:
        return []


def drawn(count: int) -> list[dict[str, Any]]:
    return [draw_definition(Random(f"drawn/{number}"), number) for number in range(count)]


def test_every_drawn_workflow_is_valid() -> None:
    for document in drawn(200):
        assert check(document, handlers=AnyHandler()).problems == []


def test_a_drawn_workflow_is_compiled_as_any_other() -> None:
    for document in drawn(50):
        ours, real = plan_of(document), compile_plan(document)
        assert (ours.digest, ours.references, ours.visible_nodes) == (
            real.digest,
            real.references,
            real.visible_nodes,
        )
        assert ours.failure_handlers == real.failure_handlers
        assert ours.conditions.keys() == real.conditions.keys()


def test_the_workflows_have_all_that_a_definition_may_have() -> None:
    documents = drawn(300)
    nodes = [node for document in documents for node in document["nodes"]]
    assert {node["trigger_rule"] for node in nodes if "trigger_rule" in node} == set(map(str, TriggerRule))
    assert {document["failure_policy"] for document in documents} == {"fail_fast", "continue"}
    for field in ("condition", "delivery", "cache", "resource_tag", "timeout_seconds", "queue"):
        assert any(field in node for node in nodes), field
    for field in ("max_concurrency", "timeout_seconds"):
        assert any(field in document for document in documents), field
    assert max(len(document["nodes"]) for document in documents) >= 14
