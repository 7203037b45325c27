"""The workflows of the stored histories, and handlers that do as their configs say."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from weft.errors import NonRetryable
from weft.handlers.contract import Handler, HandlerContext, HandlerKind
from weft.handlers.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Collection

    from weft.core.payload import Json

NEVER = {"base_delay_seconds": 3600, "max_delay_seconds": 3600}
SOON = {"base_delay_seconds": 0.01, "jitter": 0.5}


def registry(open_gates: Collection[str]) -> Registry:
    """Return the handlers; a ``gate`` that is not among the open ones holds its attempt for ever."""

    async def gate(config: Json, context: HandlerContext) -> Json:
        if config["gate"] not in open_gates:
            await asyncio.Event().wait()
        return {"gate": config["gate"]}

    return Registry(
        [
            Handler("gate", HandlerKind.NATIVE, gate),
            Handler("flaky", HandlerKind.NATIVE, _flaky),
            Handler("mended", HandlerKind.NATIVE, _mended),
            Handler("large", HandlerKind.NATIVE, _large),
        ]
    )


async def _flaky(config: Json, context: HandlerContext) -> Json:
    if context.attempt <= config["failures"]:
        raise RuntimeError(f"attempt {context.attempt} fails")
    return {"attempt": context.attempt}


async def _mended(config: Json, context: HandlerContext) -> Json:
    if context.generation < config["in"]:
        raise NonRetryable("not yet mended")
    return {"in": context.generation}


async def _large(config: Json, context: HandlerContext) -> Json:
    return {"text": "x" * config["characters"]}


def node(node_id: str, *dependencies: str, handler: str = "echo", **fields: Any) -> dict[str, Any]:
    written: dict[str, Any] = {"id": node_id, "handler": handler, **fields}
    return {**written, "dependencies": list(dependencies)} if dependencies else written


def fails(node_id: str, *dependencies: str, until: int = 99, **fields: Any) -> dict[str, Any]:
    return node(node_id, *dependencies, handler="mended", config={"in": until}, **fields)


def gate(node_id: str, *dependencies: str, name: str = "closed", **fields: Any) -> dict[str, Any]:
    return node(node_id, *dependencies, handler="gate", config={"gate": name}, **fields)


def flow(name: str, *nodes: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"name": name, "nodes": list(nodes), **fields}


RULES = flow(
    "rules",
    node("ok", config="{{ input.word | default('none') }}"),
    fails("bad"),
    node("unasked", condition="1 == 2"),
    node("default", "ok", "unasked"),
    node("default_skipped", "unasked"),
    node("default_failed", "ok", "bad"),
    node("none_failed", "unasked", trigger_rule="none_failed"),
    node("all_success", "ok", "unasked", trigger_rule="all_success"),
    node("all_done", "ok", "bad", "unasked", trigger_rule="all_done", config="{{ nodes.bad.state }}"),
    node("one_success", "ok", "bad", trigger_rule="one_success"),
    node("one_failed", "ok", "bad", trigger_rule="one_failed", config="{{ nodes.bad.error.code }}"),
    node("untriggered", "ok", trigger_rule="one_failed"),
    node("bad_condition", "ok", condition="ok.missing > 1"),
    node("bad_template", "ok", config="{{ ok.missing }}"),
    failure_policy="continue",
)
RETRIES = flow("retries", node("a", handler="flaky", config={"failures": 2}, retry=SOON), node("b", "a"))
EXHAUSTED = flow("exhausted", node("a", handler="flaky", config={"failures": 9}, max_retries=1, retry=SOON))
FAIL_FAST = flow(
    "fail-fast",
    node("a"),
    gate("running", "a", name="third"),
    fails("bad", "a", until=2),
    node("behind", "bad"),
    node("join", "running", "behind", trigger_rule="all_success"),
    node("cleanup", "a", "bad", trigger_rule="all_done"),
)
HANDLED = flow(
    "handled", fails("bad"), node("handler", "bad", trigger_rule="one_failed"), node("after", "handler")
)
CANCEL = flow("cancel", node("a"), gate("b", "a"), node("c", "b"), gate("d"))
DEADLINE = flow("deadline", node("a"), gate("b", "a"), timeout_seconds=0.5)
PAUSE = flow("pause", node("a"), gate("b", "a", name="third"), node("c", "b"))
CACHE = flow("cache", node("a", config={"same": True}, cache={"ttl_seconds": 86400}))
LARGE = flow(
    "large",
    node("a", handler="large", config={"characters": 300_000}),
    node("b", "a", config="{{ a.text | length }}"),
)
NARROW = flow("narrow", *(node(f"n{i}", config=i) for i in range(6)), max_concurrency=2)
OUTPUT = flow(
    "output", node("a", config={"n": [1, 2.5, None]}), output={"first": "{{ a.n[0] }}", "all": "{{ a.n }}"}
)
LOST = flow("lost", gate("a", name="second"), node("b", "a"))
LOST_ONCE = flow(
    "lost-once",
    gate("a", delivery="at_most_once", max_retries=0),
    node("handler", "a", trigger_rule="one_failed"),
)
RUNNING = flow(
    "running",
    node("a"),
    gate("b", "a", name="third"),
    node("late", "a", handler="flaky", config={"failures": 1}, retry=NEVER),
    gate("once", "a", delivery="at_most_once", max_retries=0),
    node("join", "b", "late", "once", trigger_rule="all_done", config="{{ b.gate }}"),
    failure_policy="continue",
)
