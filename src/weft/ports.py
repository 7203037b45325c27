"""The ports, by their contracts, and the few numbers that shape the work behind them.

``Ports`` is what orchestrator and worker are given. ``ApiPorts`` is what the API, the CLI and the views are
given: the same, and the catalog.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from weft.core.judge import DEFAULT_MAX_RETRY_AFTER_SECONDS
from weft.definition.bounds import DEFAULT_BOUNDS, Bounds
from weft.tracing.context import shown_trace_id

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from weft.clock import Clock
    from weft.core.attempt import AttemptRef
    from weft.core.ledger.changes import RecordedEvent
    from weft.core.rows import ExecutionRow, Notification
    from weft.core.snapshot import RowUpdate
    from weft.envelope import Signer
    from weft.feed.contract import Feed
    from weft.handlers.http.outbound import Outbound
    from weft.journal.contract import Catalog, Journal
    from weft.limits.contract import Limits
    from weft.store.contract import StateStore
    from weft.tracing.contract import Tracing
    from weft.transport.contract import Transport


def _nobody(recorded_events: Sequence[RecordedEvent]) -> None:
    """Ignore the recorded events: there is no feed."""


def _nothing() -> None:
    """Do nothing."""


def _unheard(where: str) -> None:
    """Ignore that an attempt found no free file: there are no metrics."""


def _never() -> int:
    """Return the beginning of time."""
    return 0


def _none_at_hand(attempt: AttemptRef) -> RowUpdate | None:
    """Return None: the rows of executions are in other processes."""
    return None


@dataclass(slots=True, kw_only=True)
class Ports:
    store: StateStore
    journal: Journal
    transport: Transport
    limits: Limits
    clock: Clock
    # A number from [0, 1) for jitter, and a name that nobody else has.
    draw: Callable[[], float]
    new_id: Callable[[], str]
    bounds: Bounds = field(default=DEFAULT_BOUNDS)
    max_deliveries: int = 3
    # No schedule starts anything while so many nodes are not settled; the API refuses submits by itself.
    max_backlog: int = 1_000_000
    # How many executions may be one inside the other, above the one that nobody calls.
    max_child_depth: int = 10
    # A service's ``Retry-After`` is cut to this, or to the node's ``max_delay_seconds`` if that is larger.
    max_retry_after_seconds: float = DEFAULT_MAX_RETRY_AFTER_SECONDS
    # A result that a process took and did not finish is claimed after this time.
    stale_result_seconds: float = 30.0
    # Free nodes that nobody has dispatched for this long are looked after by the sweep.
    sweep_seconds: float = 5.0
    # So many partitions the store has: an execution lies in one of them.
    partitions: int = 1
    # Configs over the first size count in the memory budget. Those over the second lie in the journal as
    # blobs and travel by reference, unless the journal itself is this process's memory.
    large_config_bytes: int = 16 * 1024
    inline_config_bytes: int = 256 * 1024
    stores_configs: bool = True
    # Signs tasks: a result without the signature of its task was made up. None: nobody else writes results.
    sign: Signer | None = None
    # Outputs over this size lie in the journal as blobs and travel by reference.
    inline_bytes: int = 256 * 1024
    # Where events are published; None: there are no subscribers.
    feed: Feed | None = None
    # How handlers call services outside; None: they cannot.
    outbound: Outbound | None = None
    # Exports spans; None: nobody does.
    tracing: Tracing | None = None
    # Sends a notification, or raises HandlerError; None: this process sends none. And whether the operator
    # wants to be told of executions of every workflow.
    send_notification: Callable[[Notification], Awaitable[None]] | None = None
    notifies_of_all: bool = False
    # Tasks that are sure to follow on a row go to the store with it; where that is a call in this process, it
    # would save nothing.
    dispatches_speculatively: bool = False
    # The incarnation of the database (``weft.incarnation``), and when it began on the store's clock: whatever
    # was started before that may rest on results that the journal has lost.
    # None: the journal cannot lose commits while this process goes on.
    incarnation: Callable[[], str | None] | None = None
    incarnation_began: Callable[[], int] = field(default=_never)
    # Hints beside the loop: what was recorded, that a timer may be earlier than the sweep thinks, and that a
    # trigger may be due earlier than its loop thinks.
    announce: Callable[[Sequence[RecordedEvent]], None] = field(default=_nobody)
    timers_changed: Callable[[], None] = field(default=_nothing)
    trigger_changed: Callable[[], None] = field(default=_nothing)
    # How many events a commit took, and how long it took in microseconds; None: nobody counts.
    committed: Callable[[int, int], None] | None = None
    # Returns the rows of an attempt's execution and its node's parents where this process's memory has them.
    rows_at_hand: Callable[[AttemptRef], RowUpdate | None] = field(default=_none_at_hand)
    # Called with what for, when an attempt finds no free file.
    out_of_files: Callable[[str], None] = field(default=_unheard)

    def trace_id(self, execution: ExecutionRow) -> str | None:
        """Return the id of the trace that an execution's spans are in; None: there is none."""
        return shown_trace_id(execution, is_exported=self.tracing is not None)


@dataclass(slots=True, kw_only=True)
class ApiPorts(Ports):
    # The lists, the history, workflows, batches and dead letters of the same journal.
    catalog: Catalog
