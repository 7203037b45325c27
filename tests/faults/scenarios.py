"""Workflows whose outcome is the same wherever they run: what the test of F104 runs at every door.

They need only handlers that ship, and no help while they run; what fails in them fails every time.
"""

from __future__ import annotations

from typing import Any


def node(node_id: str, *parents: str, rule: str | None = None, config: Any = None, **fields: Any) -> Any:
    written = {"id": node_id, "handler": "echo", "config": config, **fields}
    if parents:
        written["dependencies"] = list(parents)
    if rule is not None:
        written["trigger_rule"] = rule
    return written


def fails(node_id: str, *parents: str, **fields: Any) -> Any:
    """Fail for good: no workflow may reach this address."""
    call = {"handler": "call_external_service", "config": {"url": "http://127.0.0.1:1/"}}
    return node(node_id, *parents, **{**call, **fields})


def times_out(node_id: str, *parents: str, **fields: Any) -> Any:
    late = {"handler": "hold", "config": {"seconds": 60}, "timeout_seconds": 0.05}
    return node(node_id, *parents, **{"retry": {"base_delay_seconds": 0}, **late, **fields})


RULES = (
    "none_failed_min_one_success",
    "none_failed",
    "all_success",
    "all_done",
    "one_success",
    "one_failed",
)


def after(*parents: str) -> list[Any]:
    """A node of every rule behind the same parents."""
    return [node(rule, *parents, rule=rule) for rule in RULES]


SCENARIOS: dict[str, dict[str, Any]] = {
    "a diamond with data": {
        "input": {"n": 20},
        "nodes": [
            node("a", config={"n": "{{ input.n }}"}),
            node("b", "a", config="{{ a.n + 1 }}"),
            node("c", "a", config="{{ a.n * 2 }}"),
            node("d", "b", "c", config=["{{ b.output }}", "{{ c.output }}", "{{ execution.generation }}"]),
        ],
        "output": {"sum": "{{ b.output + c.output }}", "none": "{{ d.nothing }}"},
    },
    "every rule behind a success and a failure": {
        "failure_policy": "continue",
        "nodes": [node("good"), fails("bad"), *after("good", "bad")],
    },
    "every rule behind a success and a skip": {
        "nodes": [node("good"), node("skip", condition="false"), *after("good", "skip")],
    },
    "every rule behind a failure and a skip behind it": {
        "failure_policy": "continue",
        "nodes": [fails("bad"), node("skip", "bad"), *after("bad", "skip")],
    },
    "a failure that ends everything": {
        "nodes": [
            # By then the other one runs.
            fails("bad", "wait"),
            node("wait", "first", handler="sleep", config={"seconds": 0.3}),
            node("first"),
            node("behind", "bad"),
            node("beside", "long"),
            node("long", "first", handler="sleep", config={"seconds": 60}),
        ],
    },
    "a failure that is handled": {
        "nodes": [
            fails("bad"),
            node("mend", "bad", rule="one_failed", config="{{ nodes.bad.error.code }}"),
            node("last", "mend"),
        ],
    },
    "a failure whose handler fails": {
        "nodes": [fails("bad"), fails("mend", "bad", rule="one_failed"), node("last", "mend")],
    },
    "clean-up does not heal": {
        "failure_policy": "continue",
        "nodes": [fails("bad"), node("clean", "bad", rule="all_done")],
    },
    "conditions": {
        "input": {"n": 5},
        "nodes": [
            node("a", config={"n": "{{ input.n }}"}),
            node("yes", "a", condition="a.n > 3 and not a.missing is defined"),
            node("no", "a", condition="a.n > 7"),
            node("join", "yes", "no"),
            node("dry", "no"),
            node("broken", "a", condition="a.missing > 1"),
        ],
        "failure_policy": "continue",
    },
    "timeouts are tried again": {
        "nodes": [times_out("slow", max_retries=2), node("behind", "slow")],
    },
    "once is once": {
        "failure_policy": "continue",
        "nodes": [times_out("once", delivery="at_most_once"), times_out("twice", max_retries=1)],
    },
    "a deadline": {
        "timeout_seconds": 1,
        "nodes": [node("a"), node("long", "a", handler="sleep", config={"seconds": 60}), node("c", "long")],
    },
    "templates that find nothing": {
        "failure_policy": "continue",
        "nodes": [
            node("a", config={"x": 1}),
            node("b", "a", config="{{ a.y }}"),
            node("c", "a", config="{{ a.y | default('none') }}"),
        ],
    },
    "one place": {
        "max_concurrency": 1,
        "nodes": [
            *(node(f"n{i}", handler="sleep", config={"seconds": 0}) for i in range(8)),
            node("join", *(f"n{i}" for i in range(8))),
        ],
    },
    "an output that cannot be made": {"nodes": [node("a", config="x")], "output": "{{ a.output + 1 }}"},
    "several outputs": {
        "nodes": [
            node("a", config=1),
            node("x", "a", handler="output", config="{{ a.output }}"),
            node("y", "a", handler="output", config=[2]),
        ],
    },
    "an input node": {
        "input": {"k": [1, {"z": None}]},
        "nodes": [node("input", handler="input"), node("b", "input", config="{{ input.k }}")],
    },
}
