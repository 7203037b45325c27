"""Every call of the REST API as a value: what is sent, and how its answer is read.

Nothing is sent here. ``http.py`` carries a call out, and the two clients of ``client.py`` are thin faces on
both; the command line sends the same calls and shows the answers as they came.

A call may be repeated after its answer was lost. Most are idempotent by their meaning; those that start
something carry an ``Idempotency-Key``, made here where the caller gives none.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, TypeVar
from urllib.parse import quote
from uuid import uuid4

from weft.core.payload import MAX_DOCUMENT_VALUES, encode, find_fault, pointer
from weft.errors import DefinitionError, InputError, PayloadError, Problem
from weft.sdk import shapes
from weft.sdk.plain_input import plain_input

if TYPE_CHECKING:
    from weft.core.payload import Json
    from weft.sdk.workflow import Workflow

T = TypeVar("T")
Item = TypeVar("Item")

Definition: TypeAlias = "Workflow | Mapping[str, Any] | str | os.PathLike[str]"
Priority: TypeAlias = Literal["low", "normal", "high"]
States: TypeAlias = str | Sequence[str] | None

JSON, YAML = "application/json", "application/yaml"
PAGE_SIZE = 200
MAX_PAGE_SIZE = 500

# Sizes are the server's to judge. This only ends the walk through a value that refers to itself.
_MAX_BYTES = 1 << 30
_MAX_DEPTH = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiCall(Generic[T]):
    """One request, and the shape of its answer."""

    method: str
    path: str
    shape: type[T]
    query: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None
    media: str = JSON
    key: str | None = None
    # How long the server was asked to hold its answer back.
    wait_seconds: float = 0
    # The name that the parameter for the next page has.
    cursor: str = "cursor"
    # A status that is no error here, although it looks like one.
    also: int | None = None

    def at(self, cursor: str) -> ApiCall[T]:
        """Return the call for the page that begins at a cursor."""
        return self._with(self.cursor, cursor)

    def sized(self, limit: int) -> ApiCall[T]:
        """Return the call with a page size of ``limit`` items, at most 500."""
        return self._with("limit", str(min(limit, MAX_PAGE_SIZE)))

    def _with(self, name: str, value: str) -> ApiCall[T]:
        query = tuple(pair for pair in self.query if pair[0] != name)
        return replace(self, query=(*query, (name, value)))


# --- Workflows.


def deploy(workflow: Definition) -> ApiCall[shapes.Deployed]:
    """Store a definition and give its version: the next number, or the old one where it is stored already.

    ``workflow``: a Workflow, a definition as a dict, or the path of a YAML or JSON file
    (``path.py:variable`` for a Workflow).
    """
    body, media = _text_of(workflow)
    return ApiCall(method="POST", path="/v1/workflows", shape=shapes.Deployed, body=body, media=media)


def validate(workflow: Definition) -> ApiCall[shapes.Verdict]:
    """Check a definition as ``deploy`` would, and store nothing."""
    body, media = _text_of(workflow)
    return ApiCall(method="POST", path="/v1/workflows/validate", shape=shapes.Verdict, body=body, media=media)


def check_deployed(call: ApiCall[shapes.Deployed]) -> ApiCall[shapes.Verdict]:
    """Return the check of the definition that a call of ``deploy`` sends: it need not be read again."""
    path = "/v1/workflows/validate"
    return ApiCall(method="POST", path=path, shape=shapes.Verdict, body=call.body, media=call.media)


def workflows() -> ApiCall[shapes.Page[shapes.WorkflowVersion]]:
    """List the workflows, each in its latest version."""
    return ApiCall(
        method="GET",
        path="/v1/workflows",
        shape=shapes.Page[shapes.WorkflowVersion],
        query=_query(limit=PAGE_SIZE),
    )


def workflow(name: str, *, version: int | str | None = None) -> ApiCall[shapes.WorkflowVersion]:
    """Fetch a workflow with its definition and aliases; ``version`` is a number or an alias."""
    return ApiCall(
        method="GET",
        path=_path("workflows", name),
        shape=shapes.WorkflowVersion,
        query=_query(version=version),
    )


def versions(name: str) -> ApiCall[shapes.Page[shapes.WorkflowVersion]]:
    """List the versions of a workflow."""
    return ApiCall(
        method="GET",
        path=_path("workflows", name, "versions"),
        shape=shapes.Page[shapes.WorkflowVersion],
        query=_query(limit=PAGE_SIZE),
    )


def set_alias(name: str, alias: str, version: int) -> ApiCall[None]:
    """Let an alias stand for a version of a workflow from now on."""
    path = _path("workflows", name, "aliases", alias)
    return ApiCall(method="PUT", path=path, shape=type(None), body=_body({"version": version}))


def delete_alias(name: str, alias: str) -> ApiCall[None]:
    return ApiCall(method="DELETE", path=_path("workflows", name, "aliases", alias), shape=type(None))


def delete_workflow(name: str) -> ApiCall[None]:
    """Let no new execution of a workflow start; running ones and the history stay."""
    return ApiCall(method="DELETE", path=_path("workflows", name), shape=type(None))


def changes() -> ApiCall[shapes.Page[shapes.Change]]:
    """List who changed workflows and aliases and dropped dead letters, newest first."""
    return ApiCall(
        method="GET",
        path=_path("changes"),
        shape=shapes.Page[shapes.Change],
        query=_query(limit=PAGE_SIZE),
    )


# --- Executions.


def start(
    name: str,
    input: Json = None,  # noqa: A002 - the word of the interface
    *,
    version: int | str | None = None,
    labels: Mapping[str, str] | None = None,
    priority: Priority | None = None,
    key: str | None = None,
    wait_seconds: float = 0,
) -> ApiCall[shapes.Execution]:
    """Start an execution of a stored workflow.

    With ``wait_seconds`` (up to 300) the answer is held back until the execution is terminal, at most so
    long. ``key``: an idempotency key of your own; the same key and arguments give the same execution.
    """
    body = {"input": input, "version": version, "labels": labels, "priority": priority}
    return ApiCall(
        method="POST",
        path=_path("workflows", name, "executions"),
        shape=shapes.Execution,
        query=_query(wait=wait_seconds or None),
        body=_body(body),
        key=new_key() if key is None else key,
        wait_seconds=wait_seconds,
    )


def start_definition(
    workflow: Definition,
    input: Json = None,  # noqa: A002 - the word of the interface
    *,
    labels: Mapping[str, str] | None = None,
    priority: Priority | None = None,
    key: str | None = None,
    wait_seconds: float = 0,
) -> ApiCall[shapes.Execution]:
    """Start an execution of a definition that is not stored by name; otherwise as ``start``."""
    body = {"definition": _document_of(workflow), "input": input, "labels": labels, "priority": priority}
    return ApiCall(
        method="POST",
        path="/v1/executions",
        shape=shapes.Execution,
        query=_query(wait=wait_seconds or None),
        body=_body(body),
        key=new_key() if key is None else key,
        wait_seconds=wait_seconds,
    )


def execution(
    execution_id: str,
    *,
    nodes: Literal["none", "brief"] | None = None,
    wait_seconds: float = 0,
) -> ApiCall[shapes.Execution]:
    """Fetch an execution with its nodes, with ``brief`` ones (no outputs, no errors), or with none.

    With ``wait_seconds`` (up to 300) the answer is held back until it is terminal, at most so long.
    """
    return ApiCall(
        method="GET",
        path=_path("executions", execution_id),
        shape=shapes.Execution,
        query=_query(nodes=nodes, wait=wait_seconds or None),
        wait_seconds=wait_seconds,
    )


def executions(
    *,
    workflow: str | None = None,
    version: int | None = None,
    state: States = None,
    labels: Mapping[str, str] | None = None,
    batch: str | None = None,
    group: str | None = None,
    parent: str | None = None,
    created_after: datetime | None = None,
    created_before: datetime | None = None,
    error: str | None = None,
    node: str | None = None,
    worker: str | None = None,
    q: str | None = None,
    min_seconds: float | None = None,
    max_seconds: float | None = None,
) -> ApiCall[shapes.Page[shapes.Execution]]:
    """List executions without nodes, input and output, newest first. Any of the states, all of the labels.

    ``parent``: the executions that this one has called; without it, those that nobody has called.
    ``error``: the code of an error of the execution, or of a node that failed in it. ``node``: one that
    failed in it. ``worker``: one that an attempt failed on, or was lost with. ``q``: text in the name of the
    workflow or in a value of a label, or what the id begins with. ``min_seconds``, ``max_seconds``: how long
    it took, or has run so far.
    """
    return ApiCall(
        method="GET",
        path="/v1/executions",
        shape=shapes.Page[shapes.Execution],
        query=_query(
            workflow=workflow,
            version=version,
            state=state,
            label=[f"{name}:{value}" for name, value in (labels or {}).items()],
            batch=batch,
            group=group,
            parent=parent,
            created_after=created_after,
            created_before=created_before,
            error=error,
            node=node,
            worker=worker,
            q=q,
            min_seconds=min_seconds,
            max_seconds=max_seconds,
            limit=PAGE_SIZE,
        ),
    )


def nodes(execution_id: str, *, state: States = None) -> ApiCall[shapes.Page[shapes.Node]]:
    """List the nodes of an execution."""
    return ApiCall(
        method="GET",
        path=_path("executions", execution_id, "nodes"),
        shape=shapes.Page[shapes.Node],
        query=_query(state=state, limit=PAGE_SIZE),
    )


def node(execution_id: str, node_id: str) -> ApiCall[shapes.NodeDetail]:
    """Fetch one node with all its attempts, its resolved config and its whole output."""
    return ApiCall(
        method="GET", path=_path("executions", execution_id, "nodes", node_id), shape=shapes.NodeDetail
    )


def children(
    execution_id: str, node_id: str, *, state: States = None
) -> ApiCall[shapes.Page[shapes.Execution]]:
    """List the executions that a node runs, in the order of its items."""
    return ApiCall(
        method="GET",
        path=_path("executions", execution_id, "nodes", node_id, "children"),
        shape=shapes.Page[shapes.Execution],
        query=_query(state=state, limit=PAGE_SIZE),
    )


def explain(execution_id: str, node_id: str) -> ApiCall[shapes.Explanation]:
    """Explain why a node is not running."""
    return ApiCall(
        method="GET",
        path=_path("executions", execution_id, "nodes", node_id, "explain"),
        shape=shapes.Explanation,
    )


def events(execution_id: str, *, after: int = 0) -> ApiCall[shapes.Page[shapes.Event]]:
    """List what happened to an execution so far, behind the event of number ``after``."""
    return ApiCall(
        method="GET",
        path=_path("executions", execution_id, "events"),
        shape=shapes.Page[shapes.Event],
        query=_query(after=after or None, limit=PAGE_SIZE),
        cursor="after",
    )


def live_events(execution_id: str | None = None) -> ApiCall[shapes.Event]:
    """Open the stream of events of one execution, from its first, or of all, from now on."""
    path = "/v1/events" if execution_id is None else _path("executions", execution_id, "events")
    return ApiCall(method="GET", path=path, shape=shapes.Event)


def logs(
    execution_id: str,
    *,
    node: str | None = None,
    attempt: int | None = None,
    level: str | None = None,
    after: int = 0,
) -> ApiCall[shapes.Page[shapes.LoggedLine]]:
    """List what the nodes of an execution printed and logged, oldest first, behind line number ``after``.

    ``level``: lines that were logged at this level (``"WARNING"``) or above; printed lines have none.
    """
    return ApiCall(
        method="GET",
        path=_path("executions", execution_id, "logs"),
        shape=shapes.Page[shapes.LoggedLine],
        query=_query(node=node, attempt=attempt, level=level, after=after or None, limit=PAGE_SIZE),
        cursor="after",
    )


def live_logs(
    execution_id: str, *, node: str | None = None, attempt: int | None = None, level: str | None = None
) -> ApiCall[shapes.LoggedLine]:
    """Open the stream of the lines of an execution, from the first one."""
    return ApiCall(
        method="GET",
        path=_path("executions", execution_id, "logs"),
        shape=shapes.LoggedLine,
        query=_query(node=node, attempt=attempt, level=level),
    )


def expected(execution_id: str) -> ApiCall[dict[str, Any]]:
    """Fetch the timeline of an execution without its attempts: when its end is expected."""
    path = _path("executions", execution_id, "timeline")
    return ApiCall(method="GET", path=path, shape=dict, query=_query(attempts="none"))


def cancel(execution_id: str) -> ApiCall[shapes.Execution]:
    """Stop an execution: what is not settled is cancelled before this returns."""
    return _control(execution_id, "cancel")


def pause(execution_id: str) -> ApiCall[shapes.Execution]:
    """Let no further attempt start; what is running finishes and counts."""
    return _control(execution_id, "pause")


def resume(execution_id: str) -> ApiCall[shapes.Execution]:
    """Go on with a paused execution."""
    return _control(execution_id, "resume")


def retry(
    execution_id: str, *, nodes: Sequence[str] | None = None, key: str | None = None
) -> ApiCall[shapes.Execution]:
    """Open a failed or cancelled execution again: what did not complete runs, and ``nodes`` and behind."""
    return ApiCall(
        method="POST",
        path=_path("executions", execution_id, "retry"),
        shape=shapes.Execution,
        body=_body({"nodes": nodes}),
        key=new_key() if key is None else key,
    )


def fork(
    execution_id: str,
    *,
    from_nodes: Sequence[str] | None = None,
    input: Mapping[str, Json] | None = None,  # noqa: A002 - the name of the field
    version: int | str | None = None,
    key: str | None = None,
) -> ApiCall[shapes.Execution]:
    """Start a new execution from one that has ended; what is not in or behind ``from_nodes`` is kept.

    Without ``from_nodes`` everything runs. Another ``input`` or ``version`` needs nodes that do not depend on
    what differs: the others cannot be kept.
    """
    return ApiCall(
        method="POST",
        path=_path("executions", execution_id, "fork"),
        shape=shapes.Execution,
        body=_body({"from": from_nodes, "input": input, "version": version}),
        key=new_key() if key is None else key,
    )


def retry_plan(execution_id: str, *, nodes: Sequence[str] | None = None) -> ApiCall[shapes.RetryPlan]:
    """Preview what ``retry`` would run and what it would keep, and change nothing."""
    return ApiCall(
        method="POST",
        path=_path("executions", execution_id, "retry"),
        shape=shapes.RetryPlan,
        body=_body({"nodes": nodes, "dry_run": True}),
    )


# --- Waits.


def waits(
    *, workflow: str | None = None, execution: str | None = None, signal: str | None = None
) -> ApiCall[shapes.Page[shapes.Wait]]:
    """List the nodes that wait for an answer, those that have waited longest first."""
    return ApiCall(
        method="GET",
        path="/v1/waits",
        shape=shapes.Page[shapes.Wait],
        query=_query(workflow=workflow, execution=execution, signal=signal, limit=PAGE_SIZE),
    )


def answer(
    execution_id: str, node_id: str, value: Json, *, key: str | None = None
) -> ApiCall[shapes.NodeDetail]:
    """Answer a node that waits, and return the node: the first answer counts, any other raises ApiError."""
    return ApiCall(
        method="POST",
        path=_path("executions", execution_id, "nodes", node_id, "answer"),
        shape=shapes.NodeDetail,
        body=_value_body(value),
        key=new_key() if key is None else key,
    )


def signal(
    execution_id: str, name: str, value: Json = None, *, key: str | None = None
) -> ApiCall[shapes.SignalAnswer]:
    """Send a signal: it answers the node that has waited for it longest, or is kept for one that will."""
    return ApiCall(
        method="POST",
        path=_path("executions", execution_id, "signals", name),
        shape=shapes.SignalAnswer,
        body=_value_body(value),
        key=new_key() if key is None else key,
    )


# --- Batches.


def start_batch(
    workflow: str,
    inputs: Sequence[Mapping[str, Json]],
    *,
    version: int | str | None = None,
    labels: Mapping[str, str] | None = None,
    priority: Priority | None = None,
    max_running: int | None = None,
    key: str | None = None,
) -> ApiCall[shapes.Batch]:
    """Start one execution per input, all or none: one bad input, and there is no batch.

    ``max_running``: so many run at once, and the others wait in the order of their inputs.
    """
    body = {
        "workflow": workflow,
        "version": version,
        "inputs": [dict(one) if isinstance(one, Mapping) else one for one in inputs],
        "labels": labels,
        "priority": priority,
        "max_running": max_running,
    }
    return ApiCall(
        method="POST",
        path="/v1/batches",
        shape=shapes.Batch,
        body=_body(body),
        key=new_key() if key is None else key,
    )


def triggers(*, workflow: str | None = None) -> ApiCall[shapes.Page[shapes.Trigger]]:
    """List triggers by name, all or those of a workflow."""
    return ApiCall(
        method="GET",
        path="/v1/triggers",
        shape=shapes.Page[shapes.Trigger],
        query=_query(workflow=workflow, limit=PAGE_SIZE),
    )


def trigger(name: str) -> ApiCall[shapes.Trigger]:
    """Fetch a trigger with its next due time, its last error and its last executions."""
    return ApiCall(method="GET", path=_path("triggers", name), shape=shapes.Trigger)


def put_trigger(name: str, trigger: Mapping[str, Any]) -> ApiCall[shapes.Trigger]:
    """Store a trigger, or change it; what is stored already stays as it is."""
    path = _path("triggers", name)
    return ApiCall(method="PUT", path=path, shape=shapes.Trigger, body=_body(trigger))


def delete_trigger(name: str) -> ApiCall[None]:
    """Delete a trigger; its executions stay."""
    return ApiCall(method="DELETE", path=_path("triggers", name), shape=type(None))


def enable_trigger(name: str) -> ApiCall[shapes.Trigger]:
    """Let a trigger start executions from now on."""
    return ApiCall(method="POST", path=_path("triggers", name, "enable"), shape=shapes.Trigger)


def disable_trigger(name: str) -> ApiCall[shapes.Trigger]:
    """Let a trigger start nothing until it is enabled."""
    return ApiCall(method="POST", path=_path("triggers", name, "disable"), shape=shapes.Trigger)


def fire_trigger(
    name: str,
    *,
    event: Mapping[str, Any] | None = None,
    request: Mapping[str, Any] | None = None,
    key: str | None = None,
) -> ApiCall[shapes.Execution]:
    """Let a trigger start an execution now; its templates see ``event`` or ``request``."""
    return ApiCall(
        method="POST",
        path=_path("triggers", name, "fire"),
        shape=shapes.Execution,
        body=_body({"event": event, "request": request}),
        key=new_key() if key is None else key,
    )


def backfill_trigger(
    name: str, start: datetime | str, end: datetime | str, *, max_running: int | None = None
) -> ApiCall[shapes.Batch]:
    """Start a batch over the due times from ``start`` on and before ``end``."""
    span = {"from": _query_text(start), "to": _query_text(end), "max_running": max_running}
    path = _path("triggers", name, "backfill")
    return ApiCall(method="POST", path=path, shape=shapes.Batch, body=_body(span))


def backfill_plan(name: str, start: datetime | str, end: datetime | str) -> ApiCall[shapes.BackfillPlan]:
    """List the due times that ``backfill_trigger`` would start, and change nothing."""
    span = {"from": _query_text(start), "to": _query_text(end), "dry_run": True}
    path = _path("triggers", name, "backfill")
    return ApiCall(method="POST", path=path, shape=shapes.BackfillPlan, body=_body(span))


def send_event(event: Mapping[str, Any]) -> ApiCall[shapes.EventEffect]:
    """Send an event, a CloudEvent: the same ``source`` and ``id`` again does nothing again."""
    return ApiCall(method="POST", path="/v1/events", shape=shapes.EventEffect, body=_body(event))


def inbound_events(*, event_type: str | None = None) -> ApiCall[shapes.Page[shapes.InboundEvent]]:
    """List the events that came, newest first, each with what it did."""
    return ApiCall(
        method="GET",
        path="/v1/events/inbound",
        shape=shapes.Page[shapes.InboundEvent],
        query=_query(type=event_type, limit=PAGE_SIZE),
    )


def batches() -> ApiCall[shapes.Page[shapes.Batch]]:
    """List batches, newest first."""
    return ApiCall(
        method="GET", path="/v1/batches", shape=shapes.Page[shapes.Batch], query=_query(limit=PAGE_SIZE)
    )


def batch(batch_id: str) -> ApiCall[shapes.Batch]:
    """Fetch a batch with the number of its executions in each state."""
    return ApiCall(method="GET", path=_path("batches", batch_id), shape=shapes.Batch)


def batch_results(batch_id: str) -> ApiCall[shapes.Page[shapes.BatchResult]]:
    """List what became of each input, in the order of the inputs."""
    return ApiCall(
        method="GET",
        path=_path("batches", batch_id, "results"),
        shape=shapes.Page[shapes.BatchResult],
        query=_query(limit=PAGE_SIZE),
    )


def cancel_batch(batch_id: str) -> ApiCall[shapes.Batch]:
    """Cancel every execution of a batch that is not terminal."""
    return ApiCall(method="POST", path=_path("batches", batch_id, "cancel"), shape=shapes.Batch)


# --- Dead letters.


def dead_letters(
    *,
    workflow: str | None = None,
    state: Literal["open", "retried", "handled", "dropped"] | None = None,
    code: str | None = None,
    node: str | None = None,
    q: str | None = None,
) -> ApiCall[shapes.Page[shapes.DeadLetter]]:
    """List the nodes that failed for good, newest first. ``q``: as for ``executions``."""
    return ApiCall(
        method="GET",
        path="/v1/dead-letters",
        shape=shapes.Page[shapes.DeadLetter],
        query=_query(workflow=workflow, state=state, code=code, node=node, q=q, limit=PAGE_SIZE),
    )


def dead_letter(letter_id: str) -> ApiCall[shapes.DeadLetter]:
    return ApiCall(method="GET", path=_path("dead-letters", letter_id), shape=shapes.DeadLetter)


def retry_dead_letter(letter_id: str, *, key: str | None = None) -> ApiCall[shapes.Execution]:
    """Retry the execution of a dead letter, which takes up all its letters."""
    path = _path("dead-letters", letter_id, "retry")
    return ApiCall(method="POST", path=path, shape=shapes.Execution, key=new_key() if key is None else key)


def drop_dead_letter(letter_id: str) -> ApiCall[None]:
    """Mark a dead letter as one that nobody will retry."""
    return ApiCall(method="DELETE", path=_path("dead-letters", letter_id), shape=type(None))


def dead_letter_groups(
    *,
    workflow: str | None = None,
    state: Literal["open", "retried", "handled", "dropped"] | None = None,
) -> ApiCall[shapes.Page[shapes.LetterGroup]]:
    """List the open dead letters (or those in ``state``) by workflow, node and error code."""
    return ApiCall(
        method="GET",
        path="/v1/dead-letters/groups",
        shape=shapes.Page[shapes.LetterGroup],
        query=_query(workflow=workflow, state=state, limit=PAGE_SIZE),
    )


def retry_dead_letters(
    *,
    workflow: str | None = None,
    node: str | None = None,
    code: str | None = None,
    ids: Sequence[str] | None = None,
    cursor: str | None = None,
    key: str | None = None,
) -> ApiCall[shapes.LettersDone]:
    """Retry the executions of open dead letters, up to 200 letters a call.

    ``workflow``, ``code``: "" for letters without one. ``cursor``: ``next_cursor`` of the call before.
    """
    return ApiCall(
        method="POST",
        path="/v1/dead-letters/retry",
        shape=shapes.LettersDone,
        body=_body({"workflow": workflow, "node": node, "code": code, "ids": ids, "cursor": cursor}),
        key=new_key() if key is None else key,
    )


def drop_dead_letters(
    *,
    workflow: str | None = None,
    node: str | None = None,
    code: str | None = None,
    ids: Sequence[str] | None = None,
    cursor: str | None = None,
) -> ApiCall[shapes.LettersDone]:
    """Mark open dead letters as dropped, up to 200 a call; otherwise as ``retry_dead_letters``."""
    return ApiCall(
        method="POST",
        path="/v1/dead-letters/drop",
        shape=shapes.LettersDone,
        body=_body({"workflow": workflow, "node": node, "code": code, "ids": ids, "cursor": cursor}),
    )


# --- Figures.


def overview() -> ApiCall[shapes.Overview]:
    """Fetch what runs, how the last 24 hours went, what failed last, and the state of workers and queues."""
    return ApiCall(method="GET", path="/v1/overview", shape=shapes.Overview)


def statistics(name: str, *, version: int | str | None = None) -> ApiCall[shapes.Statistics]:
    """Fetch figures of the last 50 executions of a workflow, or of one version."""
    return ApiCall(
        method="GET",
        path=_path("workflows", name, "statistics"),
        shape=shapes.Statistics,
        query=_query(version=version),
    )


# --- The fleet.


def workers() -> ApiCall[shapes.Page[shapes.Worker]]:
    return ApiCall(method="GET", path="/v1/workers", shape=shapes.Page[shapes.Worker])


def queues() -> ApiCall[shapes.Page[shapes.Queue]]:
    return ApiCall(method="GET", path="/v1/queues", shape=shapes.Page[shapes.Queue])


def ready() -> ApiCall[shapes.Readiness]:
    """Check whether the server can take work, and fetch the result of each of its checks."""
    return ApiCall(method="GET", path="/readyz", shape=shapes.Readiness, also=503)


# --- How calls are put together.


def new_key() -> str:
    return uuid4().hex


def _control(execution_id: str, verb: str) -> ApiCall[shapes.Execution]:
    return ApiCall(method="POST", path=_path("executions", execution_id, verb), shape=shapes.Execution)


def _path(*parts: str) -> str:
    for part in parts:
        if not isinstance(part, str) or not part:
            raise ValueError(f"a name or an id is needed, not {part!r}")
    return "/v1/" + "/".join(quote(part, safe="") for part in parts)


def _query(**given: object) -> tuple[tuple[str, str], ...]:
    pairs: list[tuple[str, str]] = []
    for name, value in given.items():
        several = value if isinstance(value, Sequence) and not isinstance(value, str) else [value]
        pairs += [(name, _query_text(one)) for one in several if one is not None]
    return tuple(pairs)


def _query_text(value: object) -> str:
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise ValueError(f"a time needs its time zone: {value!r}")
        return value.isoformat()
    return f"{value:g}" if isinstance(value, float) else str(value)


def _body(fields: Mapping[str, Json]) -> bytes:
    """Write a request's body, without the fields that were not given.

    Raises InputError or DefinitionError where the caller's value is no JSON, with a pointer to the place.
    """
    given = {name: value for name, value in fields.items() if value is not None}
    try:
        return encode(
            _plain(given), max_bytes=_MAX_BYTES, max_depth=_MAX_DEPTH, max_values=MAX_DOCUMENT_VALUES
        )
    except PayloadError:
        fault = find_fault(given, max_values=MAX_DOCUMENT_VALUES, max_depth=_MAX_DEPTH)
    field, *rest = fault.path or ("",)
    kind = DefinitionError if field in ("", "definition") else InputError
    raise kind([Problem(pointer(rest), fault.message)])


def _value_body(value: Json) -> bytes:
    """Write the body of an answer, whose value may be null."""
    return b'{"value":null}' if value is None else _body({"value": value})


def _plain(fields: Mapping[str, Json]) -> dict[str, Json]:
    # Any mapping will do as an input or as labels; the encoder wants dicts.
    return {
        name: plain_input(dict(value) if isinstance(value, Mapping) else value)
        for name, value in fields.items()
    }


def _text_of(workflow: Definition) -> tuple[bytes, str]:
    """Return a definition's bytes and media type. A file is sent as written: the server is its one judge."""
    if isinstance(workflow, (str, os.PathLike)):
        media = {".json": JSON, ".yaml": YAML, ".yml": YAML}.get(Path(workflow).suffix.lower())
        if media is not None:
            from weft.sdk.loading import read_bytes

            return read_bytes(os.fspath(workflow), max_bytes=_MAX_BYTES), media
    document = _document_of(workflow)
    try:
        return encode(
            document, max_bytes=_MAX_BYTES, max_depth=_MAX_DEPTH, max_values=MAX_DOCUMENT_VALUES
        ), JSON
    except PayloadError:
        fault = find_fault(document, max_values=MAX_DOCUMENT_VALUES, max_depth=_MAX_DEPTH)
        raise DefinitionError([Problem(pointer(fault.path), fault.message)]) from None


def _document_of(workflow: Definition) -> Json:
    if isinstance(workflow, (str, os.PathLike)):
        from weft.handlers.registry import default_registry
        from weft.sdk.loading import load

        return load(os.fspath(workflow), default_registry()).document
    if isinstance(workflow, Mapping):
        return dict(workflow)
    if callable(definition := getattr(workflow, "definition", None)):
        return definition()
    raise TypeError(f"a Workflow, a dict or the path of a file is needed, not {workflow!r:.80}")
