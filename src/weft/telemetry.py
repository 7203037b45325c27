"""The names of all metrics in one list, and the registry that counts them.

Counting is on the path of every node, so it is plain numbers in dicts, which only the event loop touches;
they become a Prometheus page when somebody asks for one. No label holds an id. A label that users choose the
values of (workflows, handlers, queues, models) has a bounded number of them, and ``other`` for the rest.
"""

from __future__ import annotations

import logging
import platform
from bisect import bisect_left
from collections import defaultdict
from dataclasses import dataclass
from importlib.metadata import version
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import msgspec
from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from weft.core.event import NodeCompleted
from weft.core.time import MICROSECONDS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence

    from prometheus_client.metrics_core import Metric as Family

    from weft.core.ledger.changes import RecordedEvent
    from weft.core.rows import History, NodeRow
    from weft.definition.model import Node

log = logging.getLogger("weft.loop")

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

# Distinct values of a label that users choose. Each is a time series in Prometheus.
CHOSEN_BY_USERS = ("workflow", "handler", "queue", "model", "code")
MAX_LABEL_VALUES = 100
OTHER = "other"

# A loop that does not turn for so long holds up every request and every heartbeat answer.
STALL_SECONDS = 0.5
_LOOK_SECONDS = 0.1

COUNTER, GAUGE, HISTOGRAM = "counter", "gauge", "histogram"

# Bounds of histograms, in the unit of their metric.
_WORK_SECONDS = (0.001, 0.005, 0.025, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800)
_ANSWER_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_COMMIT_EVENTS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


@dataclass(frozen=True, slots=True)
class Metric:
    name: str
    kind: str
    labels: tuple[str, ...]
    doc: str
    bounds: tuple[float, ...] = ()


EXECUTIONS_STARTED = Metric(
    "weft_executions_started_total", COUNTER, ("workflow",), "executions that were started"
)
EXECUTIONS_RETRIED = Metric(
    "weft_executions_retried_total", COUNTER, ("workflow",), "executions that were opened again by a retry"
)
EXECUTIONS_FINISHED = Metric(
    "weft_executions_finished_total",
    COUNTER,
    ("workflow", "state"),
    "executions that became terminal, by the state they ended in",
)
EXECUTION_DURATION = Metric(
    "weft_execution_duration_seconds",
    HISTOGRAM,
    ("workflow",),
    "from the start of an execution's generation to its end",
    _WORK_SECONDS,
)
EXECUTIONS_ACTIVE = Metric(
    "weft_executions_active", GAUGE, ("state",), "executions that are not terminal, by state"
)
NODES_SETTLED = Metric(
    "weft_nodes_settled_total",
    COUNTER,
    ("handler", "state"),
    "nodes that settled, by the state they ended in",
)
NODES_UNSETTLED = Metric(
    "weft_nodes_unsettled", GAUGE, (), "the backlog: nodes of all running executions that are not settled"
)
ATTEMPTS = Metric(
    "weft_attempts_total",
    COUNTER,
    ("handler", "outcome"),
    "attempts that ended: `completed`, `failed`, `lost` with their worker, or `cancelled` while they ran",
)
ATTEMPT_DURATION = Metric(
    "weft_attempt_duration_seconds",
    HISTOGRAM,
    ("handler",),
    "from the start of an attempt to the end of its handler; lost attempts are not in it",
    _WORK_SECONDS,
)
RETRIES = Metric(
    "weft_retries_total", COUNTER, ("handler",), "failed attempts that another attempt of the node follows"
)
RESULTS_DISCARDED = Metric(
    "weft_results_discarded_total", COUNTER, (), "results that came too late to count, and changed nothing"
)
CACHE_HITS = Metric(
    "weft_cache_hits_total", COUNTER, ("handler",), "nodes that completed from the cache, without an attempt"
)
DEAD_LETTERS = Metric(
    "weft_dead_letters_total", COUNTER, ("code",), "nodes that failed for good, by the code of their error"
)
DEAD_LETTERS_OPEN = Metric(
    "weft_dead_letters_open", GAUGE, (), "dead letters that nobody has retried, handled or dropped"
)
LLM_TOKENS = Metric(
    "weft_llm_tokens_total",
    COUNTER,
    ("model", "kind"),
    "tokens that completed `llm_service` nodes report, `input` and `output`",
)
QUEUE_WAIT = Metric(
    "weft_queue_wait_seconds",
    HISTOGRAM,
    ("queue",),
    "from the sending of a task to its start by a worker",
    _WORK_SECONDS,
)
QUEUE_DEPTH = Metric("weft_queue_depth", GAUGE, ("queue",), "tasks that wait for a worker")
QUEUE_OLDEST = Metric(
    "weft_queue_oldest_age_seconds",
    GAUGE,
    ("queue",),
    "how long the oldest waiting task has waited; 0: none waits",
)
QUEUE_IN_FLIGHT = Metric("weft_queue_in_flight", GAUGE, ("queue",), "attempts that workers have in hand")
WORKERS = Metric("weft_workers", GAUGE, ("state",), "workers: `alive`, `draining`, or `lost`")
WORKER_SLOTS = Metric(
    "weft_worker_slots",
    GAUGE,
    ("state",),
    "tasks that workers have in hand (`busy`) and could take (`free`), as of their last heartbeat",
)
COMMIT_DURATION = Metric(
    "weft_journal_commit_duration_seconds",
    HISTOGRAM,
    (),
    "how long a commit of the journal took, the wait for its turn included",
    _ANSWER_SECONDS,
)
COMMIT_EVENTS = Metric(
    "weft_journal_commit_events",
    HISTOGRAM,
    (),
    "how many results, decisions or submissions shared a commit",
    _COMMIT_EVENTS,
)
JOURNAL_UP = Metric("weft_journal_up", GAUGE, (), "1 where the journal answered this request in time, else 0")
STORE_UP = Metric(
    "weft_store_up", GAUGE, (), "1 where the store of live states answered this request in time, else 0"
)
HTTP_REQUESTS = Metric(
    "weft_http_requests_total",
    COUNTER,
    ("route", "method", "status"),
    "requests to the API that were answered; the route is its template",
)
HTTP_DURATION = Metric(
    "weft_http_request_duration_seconds",
    HISTOGRAM,
    ("route", "method"),
    "from a request to the beginning of its answer; with `?wait`, the wait is in it",
    _ANSWER_SECONDS,
)
STREAMS_OPEN = Metric("weft_event_streams_open", GAUGE, (), "streams of server-sent events that are open")
CONNECTIONS_OPEN = Metric(
    "weft_connections_open",
    GAUGE,
    ("kind",),
    "connections to this server: `known` since a request with a valid API key came on it, else `anonymous`",
)
CONNECTIONS_REFUSED = Metric(
    "weft_connections_refused_total",
    COUNTER,
    ("reason",),
    "connections that were closed as they came: all are in use (`full`), or the share of those without a key "
    "(`anonymous`), or of one address without a key (`address`)",
)
CONNECTIONS_CLOSED = Metric(
    "weft_connections_closed_total",
    COUNTER,
    ("reason",),
    "connections that the server closed: for a request's head that did not end (`head`), the rest of a body "
    "that nobody wants (`leftover`), an answer that was not read (`unread`), or to make room (`evicted`); "
    "`idle` ones had no request for long",
)
REQUESTS_REFUSED = Metric(
    "weft_http_requests_refused_total",
    COUNTER,
    ("reason",),
    "requests that were refused with 503 because all of a bound, or the caller's share of it, is taken: "
    "`requests` under way, `open_requests` to routes without a key, `waiting` calls, event `streams`, or the "
    "bytes of `bodies` and of unread answers",
)
OUT_OF_FILES = Metric(
    "weft_out_of_files_total",
    COUNTER,
    ("where",),
    "how often no file could be opened: for connections and the engine itself (`server`), for a call to a "
    "service (`call`), or for a child process (`child`)",
)
LOOP_STALLS = Metric(
    "weft_loop_stalls_total",
    COUNTER,
    (),
    f"how often the event loop stood still for {STALL_SECONDS:g} s or more",
)
LOOP_STALLED = Metric(
    "weft_loop_stalled_seconds_total", COUNTER, (), "how long the event loop stood still in those stalls"
)
BUILD = Metric("weft_build_info", GAUGE, ("version", "python"), "always 1; what runs is in the labels")

METRICS: tuple[Metric, ...] = (
    EXECUTIONS_STARTED,
    EXECUTIONS_RETRIED,
    EXECUTIONS_FINISHED,
    EXECUTION_DURATION,
    EXECUTIONS_ACTIVE,
    NODES_SETTLED,
    NODES_UNSETTLED,
    ATTEMPTS,
    ATTEMPT_DURATION,
    RETRIES,
    RESULTS_DISCARDED,
    CACHE_HITS,
    DEAD_LETTERS,
    DEAD_LETTERS_OPEN,
    LLM_TOKENS,
    QUEUE_WAIT,
    QUEUE_DEPTH,
    QUEUE_OLDEST,
    QUEUE_IN_FLIGHT,
    WORKERS,
    WORKER_SLOTS,
    COMMIT_DURATION,
    COMMIT_EVENTS,
    JOURNAL_UP,
    STORE_UP,
    HTTP_REQUESTS,
    HTTP_DURATION,
    STREAMS_OPEN,
    CONNECTIONS_OPEN,
    CONNECTIONS_REFUSED,
    CONNECTIONS_CLOSED,
    REQUESTS_REFUSED,
    OUT_OF_FILES,
    LOOP_STALLS,
    LOOP_STALLED,
    BUILD,
)


# --- Counting.


class Names:
    """The values of one label: the first so many as they are, the others as one."""

    def __init__(self, limit: int = MAX_LABEL_VALUES) -> None:
        self._limit = limit
        self._known: set[str] = set()

    def of(self, name: str) -> str:
        if name in self._known:
            return name
        if len(self._known) >= self._limit:
            return OTHER
        self._known.add(name)
        return name


class Spread:
    """A histogram: how many values lie under each bound, and their sum."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum: float = 0

    def add(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value


class _NodeCounts:
    """Where the attempts of one handler on one queue are counted: found once, and used for each of them."""

    __slots__ = ("completed", "durations", "handler", "settled", "waits")

    def __init__(self, handler: str, durations: Spread, waits: Spread) -> None:
        self.handler = handler
        self.durations = durations
        self.waits = waits
        self.completed = (handler, "completed")
        self.settled = (handler, "COMPLETED")


class _Usage(msgspec.Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None


class _Reply(msgspec.Struct):
    """The part of the output of ``llm_service`` that is counted."""

    model: str | None = None
    usage: _Usage | None = None


_REPLY = msgspec.json.Decoder(_Reply)
_LLM_HANDLER = "llm_service"
_ENDS = {
    "execution.completed": "COMPLETED",
    "execution.failed": "FAILED",
    "execution.cancelled": "CANCELLED",
}
# A node failed because its attempt was lost: that attempt has an event of its own.
_LOST_CODES = frozenset({"lost", "deliveries_exhausted"})


class Metrics(Collector):
    """The numbers of one process."""

    def __init__(self) -> None:
        self._counts: dict[str, defaultdict[tuple[str, ...], float]] = {
            metric.name: defaultdict(float) for metric in METRICS if metric.kind is COUNTER
        }
        self._gauges: dict[str, Mapping[tuple[str, ...], float]] = {}
        self._spreads: dict[str, dict[tuple[str, ...], Spread]] = {
            metric.name: {} for metric in METRICS if metric.kind is HISTOGRAM
        }
        self._names = {label: Names() for label in CHOSEN_BY_USERS}
        self._node_counts: dict[tuple[str, str], _NodeCounts] = {}
        # The two that every node adds to.
        self._attempts = self._counts[ATTEMPTS.name]
        self._settled = self._counts[NODES_SETTLED.name]
        self._commit_seconds = self._spread(COMMIT_DURATION)
        self._commit_events = self._spread(COMMIT_EVENTS)
        for metric in METRICS:
            if metric.kind is COUNTER and not metric.labels:
                self._counts[metric.name][()] = 0
        self.show(BUILD, {(version("weft"), platform.python_version()): 1})
        self._registry = CollectorRegistry()
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    # -- what happens ------------------------------------------------------------------------------

    def receive(self, recorded_events: Sequence[RecordedEvent]) -> None:
        """Count what was recorded, a batch at a time."""
        for recorded_event in recorded_events:
            row = recorded_event.completed_row
            if row is not None:
                self._completed(row, recorded_event)
            for event in recorded_event.events:
                self._other(event, recorded_event)

    def _completed(self, row: NodeRow, recorded_event: RecordedEvent) -> None:
        assert recorded_event.plan is not None
        node = recorded_event.plan.nodes[row.node_id]
        counts = self._node_counts.get((node.handler, node.queue)) or self._counts_of(node)
        self._settled[counts.settled] += 1
        if row.cached:
            self.count(CACHE_HITS, counts.handler)
            return
        self._attempts[counts.completed] += 1
        started_at = row.started_at
        if started_at is not None and row.finished_at is not None and row.queued_at is not None:
            counts.durations.add((row.finished_at - started_at) / MICROSECONDS)
            counts.waits.add((started_at - row.queued_at) / MICROSECONDS)
        if node.handler == _LLM_HANDLER and isinstance(recorded_event.event, NodeCompleted):
            self._count_tokens(recorded_event.event.output)

    def _other(self, event: History, recorded_event: RecordedEvent) -> None:
        match event.type:
            case "node.failed":
                counts = self._counts_of_event(event, recorded_event)
                code = str((event.error or {}).get("code"))
                self.count(NODES_SETTLED, counts.handler, "FAILED")
                self.count(DEAD_LETTERS, self._names["code"].of(code))
                if event.started_at is not None and code not in _LOST_CODES:
                    self._ended(counts, "failed", event)
            case "node.retrying":
                counts = self._counts_of_event(event, recorded_event)
                self._ended(counts, "failed", event)
                self.count(RETRIES, counts.handler)
            case "node.polled":
                self._ended(self._counts_of_event(event, recorded_event), "polled", event)
            case "node.lost":
                self.count(ATTEMPTS, self._counts_of_event(event, recorded_event).handler, "lost")
            case "node.skipped":
                self.count(NODES_SETTLED, self._counts_of_event(event, recorded_event).handler, "SKIPPED")
            case "node.cancelled":
                counts = self._counts_of_event(event, recorded_event)
                self.count(NODES_SETTLED, counts.handler, "CANCELLED")
                if event.started_at is not None:
                    self._ended(counts, "cancelled", event)
            case "result.discarded":
                self.count(RESULTS_DISCARDED)
            case "execution.started":
                self.count(EXECUTIONS_STARTED, self._workflow(recorded_event))
            case "execution.retried":
                self.count(EXECUTIONS_RETRIED, self._workflow(recorded_event))
            case type_ if type_ in _ENDS:
                workflow = self._workflow(recorded_event)
                self.count(EXECUTIONS_FINISHED, workflow, _ENDS[type_])
                execution = recorded_event.execution
                if execution is not None and execution.started_at is not None:
                    seconds = (event.at - execution.started_at) / MICROSECONDS
                    self._spread(EXECUTION_DURATION, workflow).add(seconds)

    def _counts_of_event(self, event: History, recorded_event: RecordedEvent) -> _NodeCounts:
        assert recorded_event.plan is not None
        assert event.node is not None
        node = recorded_event.plan.nodes[event.node]
        return self._node_counts.get((node.handler, node.queue)) or self._counts_of(node)

    def _counts_of(self, node: Node) -> _NodeCounts:
        handler, queue = self._names["handler"].of(node.handler), self._names["queue"].of(node.queue)
        counts = _NodeCounts(
            handler, self._spread(ATTEMPT_DURATION, handler), self._spread(QUEUE_WAIT, queue)
        )
        if OTHER not in (handler, queue):
            self._node_counts[node.handler, node.queue] = counts
        return counts

    def _ended(self, counts: _NodeCounts, outcome: str, event: History) -> None:
        self._attempts[counts.handler, outcome] += 1
        if event.started_at is not None and event.finished_at is not None:
            counts.durations.add((event.finished_at - event.started_at) / MICROSECONDS)
            if event.queued_at is not None:
                counts.waits.add((event.started_at - event.queued_at) / MICROSECONDS)

    def _workflow(self, recorded_event: RecordedEvent) -> str:
        """Name the workflow of an execution; one whose definition is not stored by name has none."""
        execution = recorded_event.execution
        if execution is None or execution.workflow is None or execution.version is None:
            return ""
        return self._names["workflow"].of(execution.workflow)

    def _count_tokens(self, output: bytes | None) -> None:
        if output is None:
            return  # large, and not at hand
        try:
            reply = _REPLY.decode(output)
        except msgspec.DecodeError:
            return  # another handler of this name
        if reply.usage is not None:
            model = self._names["model"].of(reply.model or "")
            self.count(LLM_TOKENS, model, "input", by=reply.usage.input_tokens or 0)
            self.count(LLM_TOKENS, model, "output", by=reply.usage.output_tokens or 0)

    def committed(self, events: int, microseconds: int) -> None:
        """Count one commit of the journal."""
        self._commit_events.add(events)
        self._commit_seconds.add(microseconds / MICROSECONDS)

    def answered(self, *, route: str, method: str, status: int, microseconds: int) -> None:
        """Count a request to the API, when its answer begins."""
        self.count(HTTP_REQUESTS, route, method, str(status))
        self._spread(HTTP_DURATION, route, method).add(microseconds / MICROSECONDS)

    def out_of_files(self, where: str) -> None:
        """Count that no file could be opened."""
        self.count(OUT_OF_FILES, where)

    def stalled(self, seconds: float) -> None:
        """Count a time in which the event loop stood still."""
        self.count(LOOP_STALLS)
        self.count(LOOP_STALLED, by=seconds)

    # -- what is -----------------------------------------------------------------------------------

    def show(self, metric: Metric, values: Mapping[tuple[str, ...], float]) -> None:
        """Set a gauge, for all its labels at once: what is not given is not there."""
        if metric.labels != ("queue",):
            self._gauges[metric.name] = values
            return
        shown: defaultdict[tuple[str, ...], float] = defaultdict(float)
        for (queue,), value in values.items():
            shown[(self._names["queue"].of(queue),)] += value
        self._gauges[metric.name] = shown

    def render(self) -> bytes:
        """Write everything as Prometheus reads it."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Family]:
        for metric in METRICS:
            if metric.kind is COUNTER:
                counter = CounterMetricFamily(metric.name, metric.doc, labels=metric.labels)
                for labels, count in self._counts[metric.name].items():
                    counter.add_metric(labels, count)
                yield counter
            elif metric.kind is GAUGE:
                gauge = GaugeMetricFamily(metric.name, metric.doc, labels=metric.labels)
                for labels, value in self._gauges.get(metric.name, {}).items():
                    gauge.add_metric(labels, value)
                yield gauge
            else:
                histogram = HistogramMetricFamily(metric.name, metric.doc, labels=metric.labels)
                for labels, spread in self._spreads[metric.name].items():
                    names = [*map(floatToGoString, spread.bounds), "+Inf"]
                    below = accumulate(spread.counts)
                    histogram.add_metric(labels, list(zip(names, below, strict=True)), spread.sum)
                yield histogram

    def count(self, metric: Metric, *labels: str, by: float = 1) -> None:
        """Add to a counter."""
        self._counts[metric.name][labels] += by

    def _spread(self, metric: Metric, *labels: str) -> Spread:
        spreads = self._spreads[metric.name]
        spread = spreads.get(labels)
        if spread is None:
            spread = spreads[labels] = Spread(metric.bounds)
        return spread


async def watch_loop(
    metrics: Metrics, *, now: Callable[[], int], sleep: Callable[[float], Awaitable[Any]]
) -> None:
    """Notice, for as long as this runs, when the event loop stands still: something does not give way."""
    while True:
        slept_at = now()
        await sleep(_LOOK_SECONDS)
        late = (now() - slept_at) / MICROSECONDS - _LOOK_SECONDS
        if late >= STALL_SECONDS:
            metrics.stalled(late)
            log.warning("loop.stalled", extra={"seconds": round(late, 3)})


# --- Describing them.

_PAGE = """\
# Metrics

<!-- Written by `python -m weft.telemetry`; a test compares. -->

`GET /metrics` gives these to Prometheus, for the process that is asked. Where keys are set it needs one.
No label holds an id. Each of CHOSEN
shows the first LIMIT values that come, and the rest as `other`; an execution whose definition is not stored
by name has an empty `workflow`. The usual `process_…` metrics (CPU seconds, resident memory, open files,
start time) come along.

| name | type | labels | meaning |
|---|---|---|---|
ROWS
"""


def metrics_page() -> str:
    """Write ``docs/metrics.md``: every metric, its labels and its meaning."""
    rows = []
    for metric in METRICS:
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        rows.append(f"| `{metric.name}` | {metric.kind} | {labels} | {metric.doc} |")
    chosen = ", ".join(f"`{label}`" for label in CHOSEN_BY_USERS)
    page = _PAGE.replace("CHOSEN", chosen).replace("LIMIT", str(MAX_LABEL_VALUES))
    return page.replace("ROWS", "\n".join(rows))


if __name__ == "__main__":
    import sys

    sys.stdout.write(metrics_page())
