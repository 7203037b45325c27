"""What follows for a free node: its rule, then its condition, then its templates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.core.outcomes import completed, failed, skipped_by_condition

from weft.core.decide import Decision, DispatchNode, FailNode, FreeNode, ParkNode, SkipNode, decide
from weft.core.event import Skip
from weft.core.output import node_value
from weft.core.payload import MAX_VALUES, decode
from weft.core.rows import READABLE, ExecutionRow, NodeRow
from weft.core.state import ExecutionState, NodeState
from weft.definition.plan import compile_plan
from weft.testing.walk import node, workflow

if TYPE_CHECKING:
    from collections.abc import Container

    from weft.core.payload import Json
    from weft.expressions.scope import NodeValue

CACHE = {"ttl_seconds": 60}


def execution(**fields: Any) -> ExecutionRow:
    given: dict[str, Any] = {
        "id": "x1",
        "namespace": "default",
        "workflow": "w",
        "version": 3,
        "digest": "d",
        "state": ExecutionState.RUNNING,
        "generation": 1,
        "epoch": 1,
        "total": 3,
        "unsettled": 3,
        "seq": 2,
        "input": b'{"n":7}',
        "created_at": 0,
    }
    return ExecutionRow(**{**given, **fields})


def output(node_id: str, payload: bytes) -> NodeRow:
    return NodeRow(node_id=node_id, state=NodeState.COMPLETED, output=payload)


def decided(
    *parents: NodeRow,
    document: Json = None,
    settled: Container[str] = (),
    max_bytes: int = 10_000,
    row: ExecutionRow | None = None,
    **fields: Json,
) -> Decision:
    """Decide node `n` behind parents `a` and `b`, with `behind` after it."""
    plan = compile_plan(
        document or workflow("a", "b", node("n", "a", "b", **fields), node("behind", "n", rule="all_success"))
    )
    seen = {parent.node_id: parent for parent in parents}
    free = FreeNode(row or execution(), plan, plan.nodes["n"], parents, seen)
    return decide(
        free,
        decode=decode,
        value_of=lambda row: node_value(row, lambda name: b""),
        max_bytes=max_bytes,
        settled=lambda *_: settled,
    )


A, B = output("a", b'{"n":1}'), output("b", b'{"n":2}')


class TestTheRule:
    def test_that_is_not_met_skips_with_what_is_behind(self) -> None:
        assert decided(failed("a"), B) == SkipNode(
            "n", "upstream_failed", "a", (Skip("behind", "upstream_failed", "a"),)
        )

    def test_that_was_skipped_hands_the_first_skip_on_as_cause(self) -> None:
        assert decided(skipped_by_condition("a"), skipped_by_condition("b")) == SkipNode(
            "n", "upstream_skipped", "a", (Skip("behind", "upstream_skipped", "a"),)
        )

    def test_is_asked_before_the_condition(self) -> None:
        assert isinstance(decided(failed("a"), B, condition="input.missing > 1"), SkipNode)

    def test_of_an_error_branch_without_a_failure_is_not_triggered(self) -> None:
        assert decided(A, B, rule="one_failed") == SkipNode(
            "n", "not_triggered", None, (Skip("behind", "upstream_skipped", "n"),)
        )

    def test_does_not_list_what_is_known_to_be_settled(self) -> None:
        decision = decided(failed("a"), B, settled={"behind"})
        assert decision == SkipNode("n", "upstream_failed", "a", ())


class TestTheCondition:
    @pytest.mark.parametrize("condition", ["a.n == 2", "0", "''", "none", "a.gone | default(false)"])
    def test_that_is_falsy_skips(self, condition: str) -> None:
        assert decided(A, B, condition=condition) == SkipNode(
            "n", "condition", None, (Skip("behind", "upstream_skipped", "n"),)
        )

    @pytest.mark.parametrize("condition", ["a.n == 1", "input.n == 7", "nodes.b.state == 'COMPLETED'"])
    def test_that_holds_lets_it_run(self, condition: str) -> None:
        assert isinstance(decided(A, B, condition=condition), DispatchNode)

    def test_that_cannot_be_asked_fails_the_node_and_says_what_is_missing(self) -> None:
        decision = decided(A, B, condition="a.gone > 1")
        assert isinstance(decision, FailNode)
        assert decision.error["code"] == "condition_error"
        assert decision.error["retryable"] is False
        assert "a.gone" in decision.error["message"]
        assert decision.skips == (Skip("behind", "upstream_failed", "n"),)

    def test_is_asked_before_the_templates(self) -> None:
        assert isinstance(decided(A, B, condition="1 == 2", config="{{ a.gone }}"), SkipNode)


class TestTheConfig:
    def test_without_templates_goes_out_as_it_was_written(self) -> None:
        assert decided(A, B, config={"x": [1, "two", None]}) == DispatchNode("n", b'{"x":[1,"two",null]}')

    def test_is_filled_from_parents_and_input(self) -> None:
        decision = decided(A, B, config={"sum": "{{ a.n + b.n + input.n }}", "in": "n={{ a.n }}"})
        assert decision == DispatchNode("n", b'{"sum":10,"in":"n=1"}')

    def test_is_filled_from_the_execution(self) -> None:
        row = execution(labels={"team": "red"}, generation=2, created_at=1_500_000)
        facts = {
            "created_at": "1970-01-01T00:00:01.500000Z",
            "generation": 2,
            "id": "x1",
            "labels": {"team": "red"},
            "version": 3,
            "workflow": "w",
        }
        config = {"each": {fact: f"{{{{ execution.{fact} }}}}" for fact in facts}, "all": "{{ execution }}"}
        decision = decided(A, B, row=row, config=config)
        assert isinstance(decision, DispatchNode)
        assert decode(decision.config) == {"each": facts, "all": facts}

    def test_that_names_no_label_of_the_execution_says_which_there_are(self) -> None:
        decision = decided(A, B, row=execution(labels={"team": "red"}), config="{{ execution.labels.gone }}")
        assert isinstance(decision, FailNode)
        assert "team" in decision.error["message"]

    def test_that_cannot_be_filled_fails_the_node_and_names_the_path(self) -> None:
        decision = decided(A, B, config={"x": "{{ a.gone.deep }}"})
        assert isinstance(decision, FailNode)
        assert (decision.error["code"], decision.error["retryable"]) == ("template_error", False)
        assert "a.gone" in decision.error["message"]
        assert decision.skips == (Skip("behind", "upstream_failed", "n"),)

    def test_that_grows_over_its_bound_fails_the_node(self) -> None:
        large = output("a", b'"' + b"x" * 900 + b'"')
        decision = decided(large, B, config=["{{ a.output }}"] * 3, max_bytes=2000)
        assert isinstance(decision, FailNode)
        assert decision.error["code"] == "template_error"

    def test_of_an_input_node_is_the_executions_input(self) -> None:
        document = workflow(node("n", handler="input"))
        assert decided(document=document) == DispatchNode("n", b'{"n":7}')

    def test_keeps_its_secrets_for_the_worker(self) -> None:
        decision = decided(A, B, config={"key": "Bearer {{ secrets.TOKEN }}"})
        assert isinstance(decision, DispatchNode)
        (slot,) = decision.secrets
        assert slot.pointer == ("key",)
        assert b"TOKEN" not in decision.config


class TestASleep:
    def test_is_parked_with_its_seconds_and_its_config(self) -> None:
        literal = decided(completed("a"), completed("b"), handler="sleep", config={"seconds": 5, "word": "x"})
        assert literal == ParkNode("n", 5.0, b'{"seconds":5,"word":"x"}')
        filled = decided(completed("a"), completed("b"), handler="sleep", config={"seconds": "{{ input.n }}"})
        assert filled == ParkNode("n", 7.0, b'{"seconds":7}')

    def test_with_a_cache_has_the_key_of_its_config(self) -> None:
        parked = decided(completed("a"), completed("b"), handler="sleep", config={"seconds": 5}, cache=CACHE)
        assert isinstance(parked, ParkNode)
        assert parked.cache_key is not None

    @pytest.mark.parametrize(
        "seconds", ["{{ 61 }}", "{{ -1 }}", "{{ 'soon' }}", "{{ true }}", "{{ 10 ** 400 }}"]
    )
    def test_of_a_time_that_cannot_be_fails_before_any_attempt(self, seconds: str) -> None:
        parents = completed("a"), completed("b")
        fields: dict[str, Any] = {"handler": "sleep", "timeout_seconds": 60}
        decision = decided(*parents, config={"seconds": seconds}, **fields)
        assert isinstance(decision, FailNode)
        assert decision.error["retryable"] is False
        assert decision.error["code"] in ("bad_config", "template_error")


class TestTheCacheKey:
    def key(
        self,
        config: Json,
        *parents: NodeRow,
        handler: str = "echo",
        namespace: str = "default",
        **fields: Json,
    ) -> str:
        decision = decided(
            *(parents or (A, B)),
            config=config,
            handler=handler,
            cache=CACHE,
            row=execution(namespace=namespace),
            **fields,
        )
        assert isinstance(decision, DispatchNode)
        assert decision.cache_key is not None
        return decision.cache_key

    def test_is_there_only_where_a_node_asks_for_a_cache(self) -> None:
        for config in ({"x": 1}, {"x": "{{ a.n }}"}):
            decision = decided(A, B, config=config)
            assert isinstance(decision, DispatchNode)
            assert decision.cache_key is None

    def test_is_the_same_for_the_same_resolved_config_however_it_came_about(self) -> None:
        assert (
            self.key({"x": 1, "y": 2})
            == self.key({"y": 2, "x": 1})
            == self.key({"x": "{{ a.n }}", "y": "{{ b.n }}"})
            == self.key({"x": 1, "y": "{{ a.n + 1 }}"})
        )

    def test_has_the_names_of_the_secrets_that_the_node_was_granted(self) -> None:
        keys = {self.key({"x": 1}), self.key({"x": 1}, secrets=["A"]), self.key({"x": 1}, secrets=["B"])}
        assert len(keys) == 3
        assert self.key({"x": 1}, secrets=["A", "B"]) == self.key({"x": 1}, secrets=["B", "A"])
        assert self.key({"x": 1}, secrets=[]) in keys

    def test_differs_by_config_handler_and_namespace(self) -> None:
        keys = {
            self.key({"x": 1}),
            self.key({"x": "1"}),
            self.key({"x": 1}, handler="python"),
            self.key({"x": 1}, namespace="another"),
        }
        assert len(keys) == 4

    def test_counts_a_secret_by_its_name_and_its_place(self) -> None:
        keys = {
            self.key({"x": "{{ secrets.ONE }}"}),
            self.key({"x": "{{ secrets.TWO }}"}),
            self.key({"x": "a {{ secrets.ONE }}"}),
            self.key({"y": "{{ secrets.ONE }}"}),
            self.key({"x": "***"}),
        }
        assert len(keys) == 5
        assert self.key({"x": "{{ secrets.ONE }}"}) == self.key({"x": "{{ secrets.ONE }}"})


def test_a_view_of_completed_parents_reads_their_outputs_byte_for_byte() -> None:
    decision = decided(completed("a"), output("b", b"0.10"), config="{{ b.output }}")
    assert isinstance(decision, DispatchNode)
    assert decode(decision.config) == 0.1


def test_a_node_that_would_read_too_many_values_fails_before_they_are_decoded() -> None:
    names = [f"p{index}" for index in range(READABLE + 1)]
    text = b"[%s0]" % (b"0," * (MAX_VALUES - 2))
    rows = [output(name, text) for name in names]
    sizes = [f"{{{{ {name} | length }}}}" for name in names]

    def decode_nothing(row: NodeRow) -> NodeValue:
        raise AssertionError(row.node_id)

    document = workflow(*names, node("n", *names, config=sizes))
    plan = compile_plan(document)
    free = FreeNode(execution(), plan, plan.nodes["n"], tuple(rows), {row.node_id: row for row in rows})
    decision = decide(free, decode=decode, value_of=decode_nothing, max_bytes=10 * MAX_VALUES)
    assert isinstance(decision, FailNode)
    assert decision.error["code"] == "template_error"
    assert f"values together; the limit is {READABLE * MAX_VALUES:,}" in decision.error["message"]
