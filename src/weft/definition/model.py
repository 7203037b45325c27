"""A workflow's definition and its nodes, with every default filled in."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeGuard

import msgspec

from weft.core.payload import Json, canonical

if TYPE_CHECKING:
    from collections.abc import Mapping

# To be used with fullmatch: `$` would let a newline at the end pass.
NAME_PATTERN = re.compile(r"[a-z0-9][a-z0-9._-]{0,127}")
NAME_FORM = "1 to 128 of a-z, 0-9, '.', '_', '-', starting with a letter or digit"
ID_PATTERN = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,127}")
# Queues and resource tags: like names, but upper case and a leading underscore too, because a queue is named
# after its handler unless the node says otherwise, and handlers are often named after functions.
LANE_PATTERN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
# The variable of a secret is WEFT_SECRET_ and its name in upper case.
SECRET_PATTERN = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
# How the URL of a notification refers to a secret of the orchestrator.
SECRET_REFERENCE = re.compile(r"\{\{\s*secrets\.([A-Za-z_][A-Za-z0-9_]{0,127})\s*\}\}")

DEFAULT_TIMEOUT_SECONDS = 300.0
DEFAULT_MAX_RETRIES = 3
MAX_RETRIES = 100
# The handlers whose nodes take no worker.
SLEEP = "sleep"
WAIT = "wait"
# What stands for the handler of a node that calls a workflow, where people look on.
WORKFLOW = "workflow"
# The version of a workflow that was stored last.
LATEST = "latest"
MAX_TIMEOUT_SECONDS = 604_800  # a week


class TriggerRule(StrEnum):
    """The condition on a node's parents under which the node runs."""

    NONE_FAILED_MIN_ONE_SUCCESS = "none_failed_min_one_success"
    NONE_FAILED = "none_failed"
    ALL_SUCCESS = "all_success"
    ALL_DONE = "all_done"
    ONE_SUCCESS = "one_success"
    ONE_FAILED = "one_failed"


class FailurePolicy(StrEnum):
    """The effect of an unhandled failure on the branches that do not depend on the failed node."""

    FAIL_FAST = "fail_fast"
    CONTINUE = "continue"


class OnConflict(StrEnum):
    """The way of a new execution into a group in which as many run as may."""

    QUEUE = "queue"
    REJECT = "reject"
    CANCEL_RUNNING = "cancel_running"


class Delivery(StrEnum):
    """The number of times that a node's handler may be started in one generation."""

    AT_LEAST_ONCE = "at_least_once"
    AT_MOST_ONCE = "at_most_once"


class NotifyOn(StrEnum):
    """An occasion on which somebody outside is told of an execution."""

    FAILED = "failed"
    COMPLETED = "completed"
    DEAD_LETTER = "dead_letter"
    WAITING = "waiting"


DEFAULT_NOTIFY_ON = frozenset({NotifyOn.FAILED, NotifyOn.DEAD_LETTER})


@dataclass(frozen=True, slots=True)
class NotifyTarget:
    """A URL, and what is told to it. The URL may still refer to secrets."""

    url: str
    on: frozenset[NotifyOn] = DEFAULT_NOTIFY_ON


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Whether a failed attempt is repeated, and the delay before the n-th retry (``core/judge.py``)."""

    base_delay_seconds: float = 1.0
    multiplier: float = 2.0
    max_delay_seconds: float = 300.0
    jitter: float = 0.5
    # An expression, asked of a failure that would retry; None: it does.
    when: str | None = None


@dataclass(frozen=True, slots=True)
class Poll:
    """A node that is run again and again until its output is what was waited for: each run is a look."""

    until: str
    every_seconds: float
    # None: for ever.
    timeout_seconds: float | None = None


class Node(msgspec.Struct, frozen=True, gc=False):
    """One step of a workflow. ``config`` still holds its templates."""

    id: str
    handler: str
    config: Json
    dependencies: tuple[str, ...]
    condition: str | None
    trigger_rule: TriggerRule
    timeout_seconds: float
    max_retries: int
    retry: RetryPolicy
    resource_tag: str | None
    queue: str
    delivery: Delivery
    cache_ttl_seconds: float | None
    # Whether each attempt is committed as issued before its task exists.
    is_issued: bool
    # What its function may read of the worker's secrets, beside those that its config names.
    secrets: tuple[str, ...] = ()
    # Whether the orchestrator holds its attempts until they are due, and no worker sees them.
    is_parked: bool = False
    poll: Poll | None = None


@dataclass(frozen=True, slots=True)
class Concurrency:
    """The limit on executions of a group that run at once; ``group`` still holds its templates."""

    group: str
    limit: int = 1
    on_conflict: OnConflict = OnConflict.QUEUE


@dataclass(frozen=True, slots=True)
class Definition:
    """One revision of a workflow. ``has_output`` tells an ``output`` of null from none at all."""

    name: str | None
    description: str | None
    input_schema: Json
    failure_policy: FailurePolicy
    timeout_seconds: float | None
    max_concurrency: int | None
    nodes: tuple[Node, ...]
    output: Json
    has_output: bool
    notify: tuple[NotifyTarget, ...] = ()
    concurrency: Concurrency | None = None


def sleep_seconds(seconds: Json, timeout_seconds: float) -> float:
    """Return for how long a node sleeps; raises ValueError where its config asks for what cannot be."""
    if not is_number(seconds) or seconds < 0:
        raise ValueError("it must be a number of seconds, 0 or more")
    if seconds > timeout_seconds:
        # Not with the number: a template may have made one that no text has room for.
        raise ValueError(f"it is longer than the node's timeout_seconds, {timeout_seconds:g}")
    return float(seconds)


def is_number(value: Json) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def digest(document: Json) -> str:
    """Name a document by its content; the order of keys does not count."""
    return hashlib.sha256(canonical(document)).hexdigest()


def read_definition(document: Json) -> Definition:
    """Read a document that passed validation; each node has the defaults merged in."""
    defaults = document.get("defaults", {})
    retry = _retry_policy(defaults.get("retry", {}), RetryPolicy())
    timeout_seconds = document.get("timeout_seconds")
    return Definition(
        name=document.get("name"),
        description=document.get("description"),
        input_schema=document.get("input_schema"),
        failure_policy=FailurePolicy(document.get("failure_policy", FailurePolicy.FAIL_FAST)),
        timeout_seconds=None if timeout_seconds is None else float(timeout_seconds),
        max_concurrency=document.get("max_concurrency"),
        nodes=tuple([_read_node(node, defaults, retry) for node in document["nodes"]]),
        output=document.get("output"),
        has_output="output" in document,
        notify=_notify_targets(document.get("notify", ())),
        concurrency=_read_concurrency(document["concurrency"]) if "concurrency" in document else None,
    )


def _read_concurrency(fields: Mapping[str, Any]) -> Concurrency:
    on_conflict = OnConflict(fields.get("on_conflict", OnConflict.QUEUE))
    return Concurrency(fields["group"], fields.get("limit", 1), on_conflict)


def _notify_targets(notify: Json) -> tuple[NotifyTarget, ...]:
    """Read whom a workflow wants told: one target, or a list of them."""
    targets = [notify] if isinstance(notify, dict) else notify
    return tuple(
        NotifyTarget(
            target["url"],
            frozenset(map(NotifyOn, target["on"])) if "on" in target else DEFAULT_NOTIFY_ON,
        )
        for target in targets
    )


def _read_node(node: Mapping[str, Any], defaults: Mapping[str, Any], retry: RetryPolicy) -> Node:
    if "workflow" in node:
        return _read_call(node)
    given = {**defaults, **node}
    delivery = Delivery(given.get("delivery", Delivery.AT_LEAST_ONCE))
    at_most_once = delivery is Delivery.AT_MOST_ONCE
    cache = node.get("cache")
    is_sleep = node["handler"] == SLEEP
    return Node(
        id=node["id"],
        handler=node["handler"],
        config=node.get("config", {}),
        dependencies=tuple(node.get("dependencies") or node.get("depends_on") or ()),
        condition=node.get("condition"),
        trigger_rule=TriggerRule(node.get("trigger_rule", TriggerRule.NONE_FAILED_MIN_ONE_SUCCESS)),
        timeout_seconds=float(given.get("timeout_seconds", DEFAULT_TIMEOUT_SECONDS)),
        # A default of retries is meant for the nodes that may have them.
        max_retries=0 if at_most_once else given.get("max_retries", DEFAULT_MAX_RETRIES),
        retry=_retry_policy(node["retry"], retry) if "retry" in node else retry,
        resource_tag=given.get("resource_tag"),
        queue=given.get("queue", node["handler"]),
        delivery=delivery,
        cache_ttl_seconds=None if cache is None else float(cache["ttl_seconds"]),
        is_issued=at_most_once or cache is not None or is_sleep,
        secrets=tuple(node.get("secrets", ())),
        is_parked=is_sleep or node["handler"] == WAIT,
        poll=_read_poll(node["poll"]) if "poll" in node else None,
    )


def _read_call(node: Mapping[str, Any]) -> Node:
    """Read a node that runs a workflow: no worker runs it, and none of the defaults apply."""
    return Node(
        id=node["id"],
        handler=WORKFLOW,
        # Its input, which is filled as a config is.
        config=node.get("input", {}),
        dependencies=tuple(node.get("dependencies") or node.get("depends_on") or ()),
        condition=node.get("condition"),
        trigger_rule=TriggerRule(node.get("trigger_rule", TriggerRule.NONE_FAILED_MIN_ONE_SUCCESS)),
        timeout_seconds=DEFAULT_TIMEOUT_SECONDS,
        max_retries=0,
        retry=RetryPolicy(),
        resource_tag=None,
        queue=WORKFLOW,
        delivery=Delivery.AT_LEAST_ONCE,
        cache_ttl_seconds=None,
        is_issued=False,
        is_parked=True,
    )


def _read_poll(poll: Mapping[str, Any]) -> Poll:
    timeout_seconds = poll.get("timeout_seconds")
    return Poll(
        until=poll["until"],
        every_seconds=float(poll["every_seconds"]),
        timeout_seconds=None if timeout_seconds is None else float(timeout_seconds),
    )


def _retry_policy(fields: Mapping[str, Any], otherwise: RetryPolicy) -> RetryPolicy:
    """Take the fields that are given, and the rest from the next outer policy."""
    return RetryPolicy(
        base_delay_seconds=float(fields.get("base_delay_seconds", otherwise.base_delay_seconds)),
        multiplier=float(fields.get("multiplier", otherwise.multiplier)),
        max_delay_seconds=float(fields.get("max_delay_seconds", otherwise.max_delay_seconds)),
        jitter=float(fields.get("jitter", otherwise.jitter)),
        when=fields.get("when", otherwise.when),
    )
