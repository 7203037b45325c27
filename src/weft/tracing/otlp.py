"""Exports spans by OTLP, with the SDK of OpenTelemetry (``weft[otel]``), as the variables ``OTEL_…`` say.

The SDK is imported only where a variable names an endpoint. The ids of spans are weft's own
(``weft.tracing.context``), so spans are made whole at their ends, and not by the SDK's tracer. Everything
else is the SDK's: the sampler, the resource, the queue with its thread, the exporter with its retries.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from contextlib import suppress
from importlib.metadata import version
from typing import TYPE_CHECKING

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import Decision
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, NonRecordingSpan, SpanKind, TraceFlags, set_span_in_context
from opentelemetry.trace import SpanContext as OtelSpanContext
from opentelemetry.trace.status import Status, StatusCode

from weft.core.event import AttemptLost, NodeFailed, ParkedDue
from weft.core.ledger.changes import Verdict
from weft.core.state import ExecutionState
from weft.tracing.context import (
    SpanContext,
    attempt_span_id,
    execution_span_id,
    own_trace_id,
    random_span_id,
    read_traceparent,
    span_of_execution,
    trace_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from opentelemetry.sdk.trace.export import SpanExporter

    from weft.core.attempt import AttemptRef
    from weft.core.ledger.changes import RecordedEvent
    from weft.core.rows import ExecutionRow
    from weft.core.task import Result, Task
    from weft.tracing.contract import Attributes

log = logging.getLogger("weft.tracing")

_NANOSECONDS = 1000
# A collector that does not answer must not hold up the end of a process.
_CLOSE_SECONDS = 5.0
_ENDS = frozenset({"execution.completed", "execution.failed", "execution.cancelled"})


class OtlpTracing:
    """Makes spans and hands them to a thread that sends them. ``now``: the time, in microseconds."""

    def __init__(self, exporter: SpanExporter, *, now: Callable[[], int]) -> None:
        # Never asked for a tracer: it reads the sampler and the resource from the environment.
        provider = TracerProvider(shutdown_on_exit=False)
        self._sampler, self._resource = provider.sampler, provider.resource
        self._processor = BatchSpanProcessor(exporter)
        self._scope = InstrumentationScope("weft", version("weft"))
        self.now = now

    def of_execution(self, execution: ExecutionRow) -> str:
        return self._execution_span(execution).traceparent

    def of_attempt(self, task: Task) -> str:
        return self._attempt_span(task).traceparent

    def receive(self, recorded_events: Sequence[RecordedEvent]) -> None:
        for recorded_event in recorded_events:
            execution = recorded_event.execution
            if execution is None or recorded_event.verdict is not Verdict.ACCEPTED:
                continue
            self._attempt_without_worker(recorded_event, execution)
            if any(event.type in _ENDS for event in recorded_event.events):
                self._end_execution(execution)

    def attempt_ended(self, task: Task, result: Result) -> None:
        if result.lost:
            # Whoever records the loss makes the span, as of all attempts that were lost.
            return
        self._end_attempt(
            task, _WorkedAttempt(result.worker, result.started_at, result.finished_at, _code_of(result.error))
        )

    def attempt_stopped(self, task: Task, *, worker: str, started_at: int, finished_at: int) -> None:
        self._end_attempt(task, _WorkedAttempt(worker, started_at, finished_at, "cancelled"))

    def begin_call(self, name: str, attributes: Attributes, *, traceparent: str | None) -> OtlpCallSpan:
        parent = read_traceparent(traceparent)
        assert parent is not None, "a process that exports spans names one for each attempt"
        return OtlpCallSpan(self, name, attributes, parent)

    async def close(self) -> None:
        loop = asyncio.get_running_loop()
        closed: asyncio.Future[None] = loop.create_future()

        def shut_down() -> None:
            self._processor.shutdown()  # type: ignore[no-untyped-call,unused-ignore]
            # The loop may be closed: nobody has waited so long.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(closed.cancel)

        # A daemon: the interpreter does not wait for it.
        threading.Thread(target=shut_down, name="weft-tracing-close", daemon=True).start()
        await asyncio.wait((closed,), timeout=_CLOSE_SECONDS)

    def export(
        self,
        name: str,
        context: SpanContext,
        *,
        parent: SpanContext | None,
        attributes: Attributes,
        times: tuple[int, int],
        kind: SpanKind = SpanKind.INTERNAL,
        links: Sequence[SpanContext] = (),
        error: str | None = None,
    ) -> None:
        """Send a span. ``times``: its start and its end, in microseconds; ``error``: what it failed with."""
        if not context.is_sampled:
            return
        if error is not None:
            attributes = {**attributes, "error.type": error}
        started_at, finished_at = times
        self._processor.on_end(
            ReadableSpan(
                name,
                context=_otel(context),
                parent=None if parent is None else _otel(parent, is_remote=True),
                resource=self._resource,
                attributes={key: value for key, value in attributes.items() if value is not None},
                links=[Link(_otel(one, is_remote=True)) for one in links],
                kind=kind,
                status=Status(StatusCode.UNSET) if error is None else Status(StatusCode.ERROR, error),
                start_time=started_at * _NANOSECONDS,
                end_time=max(started_at, finished_at) * _NANOSECONDS,
                instrumentation_scope=self._scope,
            )
        )

    def _execution_span(self, execution: ExecutionRow) -> SpanContext:
        trace_id, caller = trace_of(execution)
        return span_of_execution(execution, is_sampled=self._is_sampled(trace_id, caller))

    def _attempt_span(self, task: Task) -> SpanContext:
        parent = self._parent_of(task)
        span_id = attempt_span_id(task.execution_id, task.generation, task.node_id, task.attempt)
        return SpanContext(parent.trace_id, span_id, parent.flags)

    def _parent_of(self, task: Task) -> SpanContext:
        """Return the execution's span, or the caller's where whoever made the task exports no spans."""
        parent = read_traceparent(task.traceparent)
        if parent is not None:
            return parent
        trace_id = own_trace_id(task.execution_id)
        span_id = execution_span_id(task.execution_id, task.generation)
        return SpanContext(trace_id, span_id, int(self._is_sampled(trace_id, None)))

    def _is_sampled(self, trace_id: str, caller: SpanContext | None) -> bool:
        """True if the spans of an execution are exported: every process of a fleet decides the same."""
        given = None
        if caller is not None:
            given = set_span_in_context(NonRecordingSpan(_otel(caller, is_remote=True)))
        decided = self._sampler.should_sample(given, int(trace_id, 16), "execution", SpanKind.INTERNAL)
        return decided.decision is Decision.RECORD_AND_SAMPLE

    def _end_execution(self, execution: ExecutionRow) -> None:
        trace_id, caller = trace_of(execution)
        # An execution of a batch has a trace of its own.
        is_linked = caller is not None and caller.trace_id != trace_id
        started_at = execution.started_at or execution.created_at
        attributes: Attributes = {
            **_of_execution(execution),
            "weft.execution.state": execution.state.value,
            "weft.execution.nodes": execution.total,
            "weft.batch.id": execution.batch,
            "weft.execution.forked_from": execution.forked_from,
        }
        failed = execution.state is ExecutionState.FAILED
        self.export(
            f"execution {execution.workflow}" if execution.workflow else "execution",
            self._execution_span(execution),
            parent=None if is_linked else caller,
            attributes=attributes,
            times=(started_at, execution.finished_at or self.now()),
            links=[caller] if caller is not None and is_linked else [],
            error=(_code_of(execution.error) or "failed") if failed else None,
        )

    def _attempt_without_worker(self, recorded_event: RecordedEvent, execution: ExecutionRow) -> None:
        """Make the span of an attempt that no worker makes one of: it was lost, or it was parked."""
        event = recorded_event.event
        if isinstance(event, ParkedDue):
            row = recorded_event.rows[0]
            times, error, worker = (row.started_at, row.finished_at), None, None
        elif isinstance(event, AttemptLost) or (isinstance(event, NodeFailed) and event.lost):
            times, error, worker = (event.started_at, event.finished_at), "lost", event.worker
        else:
            return
        started_at, finished_at = times
        if started_at is None:
            return
        parent = self._execution_span(execution)
        span_id = attempt_span_id(event.execution_id, event.generation, event.node_id, event.attempt)
        self.export(
            f"node {event.node_id}",
            SpanContext(parent.trace_id, span_id, parent.flags),
            parent=parent,
            attributes={**_of_execution(execution), **_of_attempt(event), "weft.worker.id": worker},
            times=(started_at, finished_at or self.now()),
            error=error,
        )

    def _end_attempt(self, task: Task, attempt: _WorkedAttempt) -> None:
        attributes: Attributes = {
            "weft.execution.id": task.execution_id,
            "weft.execution.generation": task.generation,
            "weft.workflow.name": task.workflow,
            "weft.workflow.version": task.version,
            "weft.namespace": task.namespace,
            **_of_attempt(task),
            "weft.node.handler": task.handler,
            "weft.worker.id": attempt.worker,
            "weft.attempt.wait_seconds": max(0, attempt.started_at - task.queued_at) / 1e6,
            "weft.resource_tag": task.resource_tag,
            "messaging.system": "weft",
            "messaging.operation.type": "process",
            "messaging.destination.name": task.queue,
            "messaging.message.id": f"{task.idempotency_key}/{task.attempt}",
        }
        self.export(
            f"node {task.node_id}",
            self._attempt_span(task),
            parent=self._parent_of(task),
            attributes=attributes,
            times=(attempt.started_at, attempt.finished_at),
            kind=SpanKind.CONSUMER,
            error=attempt.error,
        )


class _WorkedAttempt:
    """An attempt that a worker ran, as its span shows it."""

    __slots__ = ("error", "finished_at", "started_at", "worker")

    def __init__(self, worker: str, started_at: int, finished_at: int, error: str | None) -> None:
        self.worker = worker
        self.started_at = started_at
        self.finished_at = finished_at
        self.error = error


class OtlpCallSpan:
    """The span of a call that has begun; it is exported when it ends."""

    def __init__(self, tracing: OtlpTracing, name: str, attributes: Attributes, parent: SpanContext) -> None:
        self._tracing = tracing
        self._name = name
        self._attributes = dict(attributes)
        self._parent = parent
        self._context = SpanContext(parent.trace_id, random_span_id(), parent.flags)
        self._started_at = tracing.now()

    @property
    def traceparent(self) -> str:
        return self._context.traceparent

    def add(self, attributes: Attributes) -> None:
        self._attributes |= attributes

    def end(self, *, error: str | None = None) -> None:
        self._tracing.export(
            self._name,
            self._context,
            parent=self._parent,
            attributes=self._attributes,
            times=(self._started_at, self._tracing.now()),
            kind=SpanKind.CLIENT,
            error=error,
        )


def _of_execution(execution: ExecutionRow) -> Attributes:
    return {
        "weft.execution.id": execution.id,
        "weft.execution.generation": execution.generation,
        "weft.workflow.name": execution.workflow,
        "weft.workflow.version": execution.version,
        "weft.namespace": execution.namespace,
    }


def _of_attempt(attempt: AttemptRef) -> Attributes:
    return {"weft.node.id": attempt.node_id, "weft.node.attempt": attempt.attempt}


def _code_of(error: dict[str, object] | None) -> str | None:
    return None if error is None else str(error.get("code"))


def _otel(context: SpanContext, *, is_remote: bool = False) -> OtelSpanContext:
    return OtelSpanContext(
        int(context.trace_id, 16),
        int(context.span_id, 16),
        is_remote=is_remote,
        trace_flags=TraceFlags(context.flags),
    )
