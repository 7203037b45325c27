"""Workflows drawn from a seed: all rules, both policies, conditions, retries, slots, tags, caches."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from weft.definition.bounds import DEFAULT_BOUNDS
from weft.definition.model import WAIT, WORKFLOW, TriggerRule, read_definition
from weft.definition.plan import RETRY_WORDS, NodeExpressions, Plan, assemble
from weft.definition.waits import without_literals
from weft.expressions.expression import Expression, compile_expression
from weft.expressions.template import Template, compile_template

if TYPE_CHECKING:
    from collections.abc import Container
    from random import Random

_RULES = [str(rule) for rule in TriggerRule]
_EARLY = [str(TriggerRule.ONE_SUCCESS), str(TriggerRule.ONE_FAILED)]
# The last one fails: of the input, only `draw` is there.
_CONDITIONS = ["true", "false", "input.draw > 0.5", "input.missing > 1"]
# Small graphs reach most of what there is, at a fraction of the steps; some are larger.
_SIZES = [2, 2, 3, 3, 3, 4, 4, 4, 5, 5, 6, 7, 9, 14]
_LARGE_SIZES = [9, 14, 20]
# The longest is longer than some of the timeouts that are drawn.
SLEEP_SECONDS = (0, 0.5, 3, 12)
# Conditions of retries, which ``_holds`` of the invariants reads in its own way; and that a parent completed.
RETRY_CONDITIONS = (
    "attempt < 2",
    "attempt_seconds < 1.5",
    "error.code == 'timeout'",
    "input.draw > 0.5",
    "error.details.nothing > 1",
)
# Workflows that call others, and are called: at most so many nodes, and so deep.
_CALLING_SIZES = (5, 3, 2)
_DEPTH = 2
# Few names of signals, so that several nodes wait for the same one; not all of them take any answer.
SIGNALS = ("go", "go", "on")
# Few types and few values, so that an event finds several waits, of one execution and of others.
EVENT_TYPES = ("paid", "sent")
EVENT_VALUES = (0, 1)
_OF_WAITS = ("id", "dependencies", "trigger_rule", "condition")
_ANSWERS = [None, {"type": "integer"}]
# A queue is named after its handler, unless a node says otherwise.
QUEUES = ("work", "other")
# One of these rates is set, the other tag is unlimited.
TAGS = ("limited", "unlimited")


def draw_definition(
    rng: Random,
    number: int,
    *,
    more: Container[str] = (),
    most_nodes: int | None = None,
    depth: int = 0,
) -> dict[str, Any]:
    """Draw a workflow. A config names its node's parents, so that data flow shows."""

    def is_more(trait: str, otherwise: float, much: float) -> bool:
        return rng.random() < (much if trait in more else otherwise)

    nodes: list[dict[str, Any]] = []
    size = rng.choice(_LARGE_SIZES if "nodes" in more else _SIZES)
    if "calls" in more:
        size = min(size, _CALLING_SIZES[depth])
    # A large graph is wide: many of its nodes are decided in one batch.
    density = rng.choice([0.08, 0.15] if "nodes" in more else [0.25, 0.45, 0.7])
    for index in range(min(size, most_nodes or size)):
        parents = [node["id"] for node in nodes if rng.random() < density]
        others = [node["id"] for node in nodes if node["id"] in _ancestors(parents, nodes)]
        named = [*parents, *(others[:1] if others and rng.random() < 0.3 else [])]
        node: dict[str, Any] = {
            "id": f"n{index}",
            "handler": "work",
            "dependencies": parents,
            "config": {
                "node": f"n{index}",
                "parents": {name: f'{{{{ nodes["{name}"].output | default(none) }}}}' for name in named},
            },
            "max_retries": rng.choice([1, 2, 3] if "timers" in more else [0, 0, 1, 2]),
            "retry": {
                "base_delay_seconds": rng.choice([0, 1, 4]),
                "multiplier": rng.choice([1, 2]),
                "max_delay_seconds": rng.choice([2, 8]),
                "jitter": 0.5,
            },
        }
        if parents and is_more("early", 0.5, 0.8):
            node["trigger_rule"] = rng.choice(_EARLY if is_more("early", 0.1, 0.7) else _RULES)
        if is_more("skips", 0.15, 0.4):
            node["condition"] = rng.choice(_CONDITIONS[1:3] if "skips" in more else _CONDITIONS)
        if rng.random() < 0.02:
            node["config"]["fails"] = "{{ input.missing }}"
        if is_more("at_most_once", 0.08, 0.4):
            node["delivery"] = "at_most_once"
            node["max_retries"] = 0
        elif is_more("caches", 0.1, 0.7):
            node["cache"] = {"ttl_seconds": rng.choice([1, 100])}
        if is_more("tags", 0.08, 0.5):
            node["resource_tag"] = rng.choice(TAGS)
        if rng.random() < 0.15:
            node["timeout_seconds"] = rng.choice([1, 4])
        if is_more("queues", 0.1, 0.5):
            node["queue"] = "other"
        # Drawn where it is asked for alone: what is drawn in other profiles stays as it was.
        if "sleeps" in more and rng.random() < 0.4:
            node["handler"] = "sleep"
            node["config"]["seconds"] = rng.choice(SLEEP_SECONDS)
        if "retries" in more and rng.random() < 0.8:
            sources = [*RETRY_CONDITIONS]
            if parents and node.get("trigger_rule") not in _EARLY:
                sources.append(f"nodes.{parents[0]}.state == 'COMPLETED'")
            node["retry"]["when"] = rng.choice(sources)
        if "waits" in more and rng.random() < 0.45:
            node = _waiting(rng, node, for_events="events" in more and rng.random() < 0.6)
        if "calls" in more and depth < _DEPTH and rng.random() < 0.45:
            node = _calling(rng, node, depth, more)
        nodes.append(node)
    definition: dict[str, Any] = {
        "name": f"drawn-{number}",
        # Where an execution may stop at a failure, a skip is recorded with what runs beside it: a call of the
        # store between two decisions.
        "failure_policy": rng.choice(["fail_fast", "continue", "continue"][: 1 if "skips" in more else 3]),
        "nodes": nodes,
    }
    if is_more("slots", 0.25, 0.7):
        definition["max_concurrency"] = rng.randint(1, 3)
    if "groups" in more:
        definition["concurrency"] = {
            "group": "{{ input.group }}",
            "limit": rng.choice([1, 1, 2]),
            "on_conflict": rng.choice(["queue", "queue", "reject", "cancel_running"]),
        }
    if rng.random() < 0.1:
        definition["timeout_seconds"] = rng.choice([5, 60])
    return definition


def _waiting(rng: Random, node: dict[str, Any], *, for_events: bool) -> dict[str, Any]:
    """Make of a node one that waits: for a time, a signal or an event, with or without an expiry."""
    config: dict[str, Any] = {}
    if for_events:
        config["event"] = rng.choice(EVENT_TYPES)
        if rng.random() < 0.7:
            config["match"] = {"n": rng.choice(EVENT_VALUES)}
        if rng.random() < 0.5:
            config["lookback_seconds"] = rng.choice([1, 10])
        if rng.random() < 0.3:
            config |= {"expires_seconds": rng.choice([1, 4]), "default": 0}
    elif rng.random() < 0.35:
        config["seconds"] = rng.choice(SLEEP_SECONDS)
    else:
        if rng.random() < 0.9:
            config["signal"] = rng.choice(SIGNALS)
        schema = rng.choice(_ANSWERS)
        if schema is not None:
            config["schema"] = schema
        if rng.random() < 0.5:
            config["expires_seconds"] = rng.choice([0, 1, 4, 15])
            if rng.random() < 0.6:
                config["default"] = 0
        if node["dependencies"] and rng.random() < 0.3:
            config["prompt"] = f'{{{{ nodes["{node["dependencies"][0]}"].output | default(none) }}}}'
    kept = [field for field in _OF_WAITS if field in node]
    return {field: node[field] for field in kept} | {"handler": "wait", "config": config}


def _calling(rng: Random, node: dict[str, Any], depth: int, more: Container[str]) -> dict[str, Any]:
    """Make of a node one that calls a workflow, in its place: what it was given is the input."""
    parents = node["config"].get("parents", {})
    kept = [field for field in _OF_WAITS if field in node]
    return {field: node[field] for field in kept} | {
        "workflow": draw_definition(rng, 0, more=more, depth=depth + 1),
        "input": {"draw": "{{ input.draw }}", **parents},
        **({"timeout_seconds": rng.choice([2, 9])} if rng.random() < 0.15 else {}),
    }


def _ancestors(parents: list[str], nodes: list[dict[str, Any]]) -> set[str]:
    """Name the ancestors that are not parents."""
    by_id = {node["id"]: node for node in nodes}
    found: set[str] = set()
    frontier = list(parents)
    while frontier:
        for name in by_id[frontier.pop()]["dependencies"]:
            if name not in found:
                found.add(name)
                frontier.append(name)
    return found.difference(parents)


def plan_of(document: dict[str, Any]) -> Plan:
    """Compile a drawn workflow. Its expressions are few, and compiled once for all seeds of a process."""
    definition = read_definition(document)
    inline = {node["id"]: plan_of(node["workflow"]) for node in document["nodes"] if "workflow" in node}
    return assemble(
        document,
        definition,
        NodeExpressions(
            templates={
                node.id: _wait_template(json.dumps(without_literals(node.config)))
                if node.handler == WAIT
                else _wait_template(json.dumps(node.config))
                if node.handler == WORKFLOW
                else _template(
                    node.id,
                    tuple(node.config["parents"]),
                    "fails" in node.config,
                    node.config.get("seconds"),
                )
                for node in definition.nodes
            },
            conditions={
                node.id: _condition(node.condition) for node in definition.nodes if node.condition is not None
            },
            retries={
                node.id: _retry_condition(node.retry.when)
                for node in definition.nodes
                if node.retry.when is not None
            },
            workflows=inline,
        ),
        output=None,
        group=None if definition.concurrency is None else _group(definition.concurrency.group),
        input_schema=None,
        bounds=DEFAULT_BOUNDS,
    )


@lru_cache(maxsize=20_000)
def _template(node_id: str, named: tuple[str, ...], fails: bool, seconds: float | None) -> Template:
    config: dict[str, Any] = {
        "node": node_id,
        "parents": {name: f'{{{{ nodes["{name}"].output | default(none) }}}}' for name in named},
    }
    if fails:
        config["fails"] = "{{ input.missing }}"
    if seconds is not None:
        config["seconds"] = seconds
    template = compile_template(
        config, max_template_bytes=DEFAULT_BOUNDS.max_template_bytes, secrets_allowed=True
    )
    assert isinstance(template, Template)
    return template


@lru_cache(maxsize=100)
def _group(source: str) -> Template:
    template = compile_template(source, max_template_bytes=DEFAULT_BOUNDS.max_template_bytes)
    assert isinstance(template, Template)
    return template


@lru_cache(maxsize=10_000)
def _wait_template(config: str) -> Template:
    template = compile_template(
        json.loads(config), max_template_bytes=DEFAULT_BOUNDS.max_template_bytes, secrets_allowed=True
    )
    assert isinstance(template, Template)
    return template


@lru_cache(maxsize=100)
def _condition(source: str) -> Expression:
    return compile_expression(source)


@lru_cache(maxsize=100)
def _retry_condition(source: str) -> Expression:
    return compile_expression(source, words=RETRY_WORDS)
