"""One open execution and its unsettled nodes, as ``MemoryStore`` keeps them.

Only what has been touched is in memory: a node that is not in ``OpenExecution.nodes`` waits for all its
parents, so installing a graph of 50,000 nodes costs its roots, and an event its node and its dependents.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from weft.core.state import ExecutionState

if TYPE_CHECKING:
    from weft.core.rows import ExecutionRow, NodeRow
    from weft.definition.plan import Plan

WAITING, FREE, THROTTLED, QUEUED = "waiting", "free", "throttled", "queued"
RUNNING, PARKED, ORPHANED, TIMER = "running", "parked", "orphaned", "timer"
IN_FLIGHT = frozenset({QUEUED, RUNNING, ORPHANED})
# States in which attempts may start.
OPEN_STATES = frozenset({ExecutionState.PENDING, ExecutionState.RUNNING})


class OpenNode(msgspec.Struct, gc=False):
    """One unsettled node that something has happened to."""

    phase: str = WAITING
    attempt: int = 1
    failures: int = 0
    losses: int = 0
    issued: int = 0
    awaited: set[str] | None = None
    # The nodes it sees, fixed when it became free; None: all it asks for were settled then.
    seen: frozenset[str] | None = None
    released: bool = False
    nonce: str | None = None
    worker: str | None = None
    # Of a parked one: when its timer fires.
    lease_until: int = 0
    # Not before this, by the journal's row; due_at is set while a timer runs for it.
    retry_at: int | None = None
    due_at: int | None = None
    queued_at: int | None = None
    started_at: int | None = None


class OpenExecution:
    """One execution that is not terminal."""

    __slots__ = (
        "deadline_at",
        "delayed",
        "free",
        "held",
        "held_bytes",
        "is_open",
        "nodes",
        "outcomes",
        "output_bytes",
        "parked",
        "plan",
        "refused",
        "row",
        "running",
        "slots",
        "window",
    )

    def __init__(self, row: ExecutionRow, plan: Plan, window: int) -> None:
        self.plan = plan
        self.row = row
        # Whether attempts may start: it is neither paused nor terminal.
        self.is_open = row.state in OPEN_STATES
        self.deadline_at: int | None = None
        limit = plan.definition.max_concurrency
        self.window = window if limit is None else min(window, limit)
        self.nodes: dict[str, OpenNode] = {}
        self.outcomes: dict[str, NodeRow] = {}
        # Of all outcomes, the outputs that are held here.
        self.output_bytes = 0
        # Dicts as ordered sets: first freed, first served.
        self.free: dict[str, None] = {}
        self.slots: set[str] = set()
        # Those that sleep. A node that waits is parked, too, and counts nowhere.
        self.parked: dict[str, None] = {}
        # Of those with a concurrency slot, how many a worker has in hand; and how many wait without one,
        # for a timer or in the wait queue of their tag. A parked node counts as in hand: with a slot where
        # the execution has a limit of its own, else as one that waits without.
        self.running = 0
        self.delayed = 0
        # Of nodes with large configs: what those in flight hold, and what the free ones need that found no
        # room, the one first that asked first.
        self.held: dict[str, int] = {}
        self.held_bytes = 0
        self.refused: dict[str, int] = {}

    def has_nothing_to_do(self) -> bool:
        """True if no node is free, in flight, asleep or delayed: all waits for what comes from outside."""
        return not (self.free or self.slots or self.parked or self.delayed)
