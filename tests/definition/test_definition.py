from __future__ import annotations

from typing import Any

from weft.definition.model import Delivery, FailurePolicy, RetryPolicy, TriggerRule, digest, read_definition


def node(**fields: Any) -> dict[str, Any]:
    return {"id": "a", "handler": "echo", **fields}


def test_a_bare_node_has_every_default() -> None:
    definition = read_definition({"nodes": [node()]})
    assert definition.name is None
    assert definition.failure_policy is FailurePolicy.FAIL_FAST
    assert definition.timeout_seconds is None
    assert definition.max_concurrency is None
    assert definition.input_schema is None
    assert not definition.has_output
    (only,) = definition.nodes
    assert only.config == {}
    assert only.dependencies == ()
    assert only.condition is None
    assert only.trigger_rule is TriggerRule.NONE_FAILED_MIN_ONE_SUCCESS
    assert only.timeout_seconds == 300
    assert only.max_retries == 3
    assert only.retry == RetryPolicy(1, 2, 300, 0.5)
    assert only.resource_tag is None
    assert only.queue == "echo"
    assert only.delivery is Delivery.AT_LEAST_ONCE
    assert only.cache_ttl_seconds is None


def test_a_field_of_a_node_wins_over_the_defaults_and_those_over_the_built_in() -> None:
    defaults = {"max_retries": 7, "timeout_seconds": 60, "queue": "slow", "resource_tag": "api"}
    definition = read_definition(
        {"defaults": defaults, "nodes": [node(), node(timeout_seconds=5, queue="fast")]}
    )
    first, second = definition.nodes
    assert (first.max_retries, first.timeout_seconds, first.queue, first.resource_tag) == (
        7,
        60,
        "slow",
        "api",
    )
    assert (second.max_retries, second.timeout_seconds, second.queue) == (7, 5, "fast")


def test_retry_policies_are_merged_field_by_field() -> None:
    definition = read_definition(
        {"defaults": {"retry": {"multiplier": 3, "jitter": 0}}, "nodes": [node(), node(retry={"jitter": 1})]}
    )
    assert definition.nodes[0].retry == RetryPolicy(multiplier=3, jitter=0)
    assert definition.nodes[1].retry == RetryPolicy(multiplier=3, jitter=1)


def test_a_node_started_at_most_once_has_no_retries_whatever_the_defaults() -> None:
    once = {"delivery": "at_most_once"}
    definition = read_definition({"defaults": {"max_retries": 5}, "nodes": [node(**once), node()]})
    assert [one.max_retries for one in definition.nodes] == [0, 5]
    assert read_definition({"nodes": [node(**once)]}).nodes[0].max_retries == 0
    assert read_definition({"defaults": once, "nodes": [node()]}).nodes[0].max_retries == 0


def test_both_spellings_of_dependencies_are_read() -> None:
    definition = read_definition({"nodes": [node(dependencies=["x"]), node(depends_on=["y"])]})
    assert [one.dependencies for one in definition.nodes] == [("x",), ("y",)]


def test_an_output_of_null_is_told_from_none() -> None:
    definition = read_definition({"nodes": [node()], "output": None})
    assert definition.has_output
    assert definition.output is None


def test_the_digest_is_of_the_content_and_not_of_the_order_of_keys() -> None:
    one = digest({"name": "a", "nodes": [node()]})
    assert one == digest({"nodes": [{"handler": "echo", "id": "a"}], "name": "a"})
    assert one != digest({"name": "b", "nodes": [node()]})
    assert len(one) == 64
