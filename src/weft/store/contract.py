"""Hot state: who waits for which parents, what is free, queued or running, leases and timers.

The store makes things fast; it is never the truth. It may lose everything at any moment and is then
rebuilt from the journal. What every store promises:

- Each method is atomic for each execution it is given. Doing the same thing twice changes nothing more.
- It holds, of each execution, one generation and one epoch. What carries an older one is refused; what
  carries a newer one is answered UNKNOWN, and so is an execution the store does not have: never "zero
  left", never "nothing to do". UNKNOWN leads to a rebuild.
- Fan-in is a *set* of awaited parents, concurrency slots a *set* of node ids: a doubled message
  changes neither.
- Time is the store's own: leases and timers are compared with it, not with a caller's clock.
- A lease expires only if its worker could have renewed it: after a gap without sweeps (the store refused
  writes, or the process was suspended) no lease expires for the length of a lease.
- It guards and counts. It never decides, and never looks into a payload.

A node in the store is one of::

    waiting ──▶ free ──▶ queued ──▶ running ──▶ (settled: an outcome)
                 ▲  ├──▶ parked ──────────────────▶ parked: started by a commit, held by no worker, due
                 │  │                               at a time (a sleep) or when the journal says so (a wait,
                 │  │                               which takes no slot); it has no lease
                 │  └──▶ throttled ┐                orphaned: handed out by an earlier incarnation,
                 └─── timer ◀──────┴─ (row unsettled)   perhaps; a lease without a holder
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

import msgspec

from weft.core.attempt import AttemptRef

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from weft.core.decide import FreeNode
    from weft.core.event import Running
    from weft.core.rows import ExecutionRow
    from weft.core.snapshot import RowUpdate, Snapshot
    from weft.core.task import Result, Task
    from weft.definition.plan import Plan


class Answer(StrEnum):
    """The store's answer to a guarded move."""

    YES = "yes"
    # The node, attempt, generation or epoch is not the current one, or the execution is closed or paused.
    REFUSED = "refused"
    # The execution has as many tasks in flight as it may.
    NO_SLOT = "no_slot"
    # The large configs in flight leave no room for this one.
    NO_MEMORY = "no_memory"
    # The store does not have this execution, or has an older generation or epoch of it.
    UNKNOWN = "unknown"


# A parked attempt that is due for the store and not for the journal, whose clock is behind, is looked at
# again after so long.
PARKED_AGAIN_SECONDS = 0.1
# One that was listed as due is listed again after so long: the commit that should follow has failed, or is
# lost with its process.
PARKED_LISTED_SECONDS = 2.0
# The tombstone of an execution that was installed once and closed stays for longer than this.
FIRST_INSTALL_SECONDS = 30.0
# How often a worker renews a lease while it lasts, with the default settings.
RENEWALS_PER_LEASE = 3


class StoreOptions(msgspec.Struct, frozen=True):
    # At most so many nodes of an execution are handed out at once.
    window: int = 1000
    lease_seconds: float = 15.0
    # An attempt that was reported and not recorded for so long is given up.
    reported_seconds: float = 300.0
    # Given where a task may be lost on its way: after this time the task is sent again.
    queued_seconds: float | None = None
    # How long an attempt without a known holder is waited for; None: a lease.
    orphaned_seconds: float | None = None
    # At most so many bytes of large configs are in flight (``Task.config_weight``): of one execution; and of
    # all, where store and workers share a process (None: they do not, and each worker has this bound). One
    # config that is larger still runs, alone.
    execution_bytes: int = 32 * 2**20
    process_bytes: int | None = None
    # Larger inputs are read from the journal; and larger outputs, where the journal resolves references to
    # them (None: it does not, and they are held).
    inline_input_bytes: int = 16 * 1024
    inline_output_bytes: int | None = None
    # In another process: a state that nobody has touched for so long is gone, the net under executions that
    # nobody closes.
    ttl_seconds: int = 7 * 86_400


DEFAULT_STORE_OPTIONS = StoreOptions()


class Applied(msgspec.Struct, frozen=True, gc=False):
    answer: Answer
    free: Sequence[FreeNode] = ()
    # The nodes whose tasks were queued with the rows: they are not among the free ones any more.
    queued: Sequence[str] = ()


class StartRequest(AttemptRef, frozen=True, gc=False):
    # Drawn by the worker for this start: the same request again is the same start.
    nonce: str
    worker: str


class Started(msgspec.Struct, frozen=True, gc=False):
    answer: Answer
    at: int = 0
    # When it was queued, by the store's clock: a task that others have carried knows only its sender's.
    queued_at: int = 0


class Lease(AttemptRef, frozen=True, gc=False):
    """An attempt in a worker's hand."""

    nonce: str
    worker: str
    queued_at: int
    started_at: int


class Expired(AttemptRef, frozen=True, gc=False):
    """A lease that ran out. ``worker`` is None if the attempt is orphaned: no start of it is known."""

    digest: str
    failures: int
    losses: int
    issued: int
    worker: str | None
    queued_at: int | None
    started_at: int | None
    # When an attempt without a result ended is not known.
    finished_at: None = None


class Due(msgspec.Struct, frozen=True, gc=False):
    """Everything that has become due since the last call."""

    # Executions with free nodes that no message announces: (execution id, generation)
    woken: Sequence[tuple[str, int]]
    expired: Sequence[Expired]
    # (execution id, generation)
    deadlines: Sequence[tuple[str, int]]
    # When to look again at the latest, on the store's clock; None: nothing is timed.
    next_at: int | None
    # Parked attempts whose time has come.
    parked: Sequence[AttemptRef] = ()


class MemoryWait(msgspec.Struct, frozen=True, gc=False):
    """Why a free node waits: large configs take up the memory that its own needs."""

    # Of its own config; 0: not known yet, for it has not been filled in.
    needed: int
    taken: int
    limit: int
    # Whether the configs of all executions in this process are in the way, or those of its own execution.
    is_process: bool


class NodeStatus(msgspec.Struct, frozen=True, gc=False):
    """Where an unsettled node stands in the store, for those who look from outside."""

    # waiting, free, throttled, queued, running, parked, orphaned, timer
    phase: str
    attempt: int
    awaited: tuple[str, ...] = ()
    due_at: int | None = None
    queued_at: int | None = None
    started_at: int | None = None
    worker: str | None = None
    resource_tag: str | None = None
    memory: MemoryWait | None = None


class ExecutionStatus(msgspec.Struct, frozen=True, gc=False):
    """An execution's unsettled nodes in the store; one that is not listed waits for all its parents."""

    paused: bool
    nodes: dict[str, NodeStatus]
    # Concurrency slots: nodes that are queued, running or orphaned, and how many may be. With a limit of its
    # own (``max_concurrency``) an execution's parked nodes take slots, too.
    slots_taken: int
    slots: int


class WorkerState(StrEnum):
    ALIVE = "alive"
    # The worker takes no more tasks, and finishes its running attempts.
    DRAINING = "draining"
    # No heartbeat for longer than a lease: the worker's attempts go to other workers.
    LOST = "lost"


class WorkerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A worker as it announces itself, for those who look from outside. Nothing is decided by it."""

    # Of one process: a worker that is started again has another id.
    id: str
    host: str
    pid: int
    version: str
    state: WorkerState
    # None: every queue.
    queues: tuple[str, ...] | None
    handlers: tuple[str, ...]
    concurrency: int
    # Attempts in hand.
    running: int
    started_at: int
    # What ``python`` may call here, ``module:name`` or ``module:*``; None: it does not say.
    functions: tuple[str, ...] | None = None
    # When it was last heard of, on the store's clock: whatever it says itself is replaced.
    heartbeat_at: int = 0


class StateStore(Protocol):
    async def check(self) -> None:
        """Return if the store can be read and written now; raises StoreError otherwise."""

    async def incarnation_id(self) -> str:
        """Return an id that is lost whenever the store's state is: it names the incarnation of the store.

        It has a word for each partition, separated by spaces; an empty word: that partition is away.
        """

    async def install(
        self,
        snapshots: Sequence[Snapshot],
        *,
        incarnation_id: str,
        fresh: bool,
        ahead: Sequence[Task] = (),
    ) -> Sequence[Answer]:
        """Install executions in the store as the journal has them.

        Refused unless the incarnation is current and the epoch is higher than any the store has seen of an
        execution, the tombstone of a closed one included. ``fresh``: there was no earlier one, so ready nodes
        are free at once; otherwise they are orphaned for a lease, because somebody may hold them.
        Refused too: a first epoch that comes ``FIRST_INSTALL_SECONDS`` after its row was written or later.
        All may be over by then, and its tombstone be gone. A rebuild has to bring it.

        ``ahead``: tasks of these executions. Those whose nodes are free then are queued
        in the same go, as ``queue`` does; the others stay free, and ``due`` finds them.
        """

    async def epochs(self, execution_ids: Sequence[str]) -> Sequence[int | None]:
        """Return the epoch of each execution in the store; None: the store does not have the execution."""

    async def idle_since(self, since: int) -> Mapping[str, int]:
        """List the executions in the store of which nothing was merged since then, with when it last was.

        That is the time of the journal's last change that the store was told of. An execution that a store
        has lost alone, except for its name, is listed with the time of the change that it was installed with.
        """

    async def close(
        self, execution_id: str, *, generation: int, epoch: int, plan: Plan | None = None
    ) -> Answer:
        """Drop an execution and leave a tombstone, even of an unknown one: nothing starts after this.

        ``plan`` tells which of its nodes sleep: without it their timers stay until they are due.
        """

    async def evictable(self, execution_ids: Sequence[str]) -> Sequence[int | None]:
        """Return of each execution that has nothing to do here the number of the last event that was merged.

        No node is free, in flight, throttled, asleep or delayed: what is unsettled waits for parents, or
        for a time, an answer or an event. None: it has something to do, or is not here.
        """

    async def evict(self, evicted: Sequence[ExecutionRow]) -> None:
        """Drop executions that the journal has taken out of the hot state, and refuse late installs of them.

        The rows are those of that commit: what has a higher epoch stays.
        """

    async def apply(self, row_updates: Sequence[RowUpdate], ahead: Sequence[Task] = ()) -> Sequence[Applied]:
        """Merge the journal's rows; answer with all free nodes of an execution that have a concurrency slot.

        All of them and not only those just freed: that repairs what a crash cut short, and wakes what
        waits for a concurrency slot. An execution whose row is terminal is let go instead, as ``close`` does.

        A row with ``parked`` parks its node until the row's time. One whose node is parked already sets the
        timer anew, though not to a time before ``PARKED_AGAIN_SECONDS`` have passed. One that waits for
        something has no timer here: the journal lists the waits that are due.

        ``ahead``: tasks that follow on the rows. Those whose nodes are free then are
        queued in the same go, as ``queue`` does; a store may leave any of them free.
        """

    async def free(self, execution_ids: Sequence[str]) -> Sequence[Applied]:
        """Answer as apply does, without anything to merge."""

    async def admit(self, attempt: AttemptRef, *, epoch: int, weight: int) -> Answer:
        """Answer NO_MEMORY where ``queue`` would, for a config of this weight; move nothing.

        Asked before anything is done for a task that costs: its config is stored, or its attempt issued.
        """

    async def queue(self, tasks: Sequence[Task]) -> Sequence[Answer]:
        """Move the node of each task from free to queued, if the execution is of the task's epoch.

        If the transport is joint, send the task in the same go.

        NO_MEMORY: the large configs in flight (``StoreOptions``) leave no room for the task's. Its node stays
        free and is listed again once there is room: with its execution's free nodes, or, where others had
        taken the room, after a ``Wake`` that the store publishes. Nobody goes past an execution that has
        waited longer and could go on.
        """

    async def throttle(
        self, execution_id: str, *, generation: int, node_id: str, attempt: int, was_queued: bool = False
    ) -> Answer:
        """Throttle a free node: it is in the wait queue of its tag, and holds no concurrency slot.

        ``was_queued``: move a queued node, which found no token.

        Refused for a free node for which a token is reserved, or that is queued: between the decision to
        throttle it and this call, the limits have released it. Throttled again it would be in no wait queue.
        """

    async def release(self, execution_id: str, *, generation: int, node_id: str, attempt: int) -> Answer:
        """Move a throttled node back to free, with a token reserved for it."""

    async def start(self, requests: Sequence[StartRequest]) -> Sequence[Started]:
        """Move queued to running, for exactly this generation and attempt, with a lease.

        An execution that is paused gives the node back to free: resuming sends it again.
        """

    async def renew(self, leases: Sequence[Lease]) -> Sequence[Answer]:
        """Renew leases, and adopt orphaned attempts. REFUSED means: stop, the attempt is no longer yours.

        A heartbeat makes no lease shorter: it may come behind the report of the attempt.

        May be called from another thread than the rest.
        """

    async def report(self, results: Sequence[Result]) -> None:
        """Append the results to the result stream and lengthen their leases, in one step.

        An orphaned attempt stays orphaned, with the longer lease. The store appends every result, whatever it
        knows of the attempt: the journal's fence is the judge.
        """

    async def end_leases(self, attempts: Sequence[tuple[str, str, int]]) -> None:
        """End the leases of attempts, each (execution id, node id, attempt), that started and are over.

        The journal has judged their results, and no row says so to the store: of an earlier generation, or of
        an execution that was closed meanwhile. The report has made these leases long.

        The lease of the current attempt of a live execution stays, whatever the caller says: the caller may
        know of a commit that the database has lost since, and the attempt is orphaned under the same number.
        Without its lease nobody would ever issue the next one.
        """

    async def abandon(self, leases: Sequence[Lease]) -> None:
        """Let leases run out now: the worker stops before the handler has ended."""

    async def due(self, *, idle_seconds: float) -> Due:
        """Fire the timers that are due, and list what has waited too long: nothing listed is changed.

        If the last call was longer ago than a third of a lease and ``idle_seconds``, the pause between two
        sweeps, no lease expires for the length of a lease, and no task is sent again: workers may have been
        unable to renew their leases.

        A parked attempt that is listed stays parked, and is listed again after ``PARKED_LISTED_SECONDS``: the
        commit that should follow may be lost.
        """

    async def running(self, execution_id: str) -> dict[str, Running]:
        """List the attempts in hand, by node: for the history of an execution that is being stopped.

        Parked attempts are not among them: their rows have what the history needs.
        """

    async def inspect(
        self, execution_id: str, *, names: Collection[str] | None = None
    ) -> ExecutionStatus | None:
        """Show an execution's unsettled nodes: all, or those named."""

    async def in_flight(self, execution_ids: Sequence[str]) -> Sequence[tuple[int, int] | None]:
        """Count the nodes of each execution that a look shows as queued and as running; None: not here.

        A parked node counts as running.

        Each costs the same, however many nodes it has.
        """

    async def running_by_queue(self) -> Mapping[str, int]:
        """Count the attempts that workers have in hand, of all executions, by the queue they came on."""

    async def backlog(self) -> int:
        """Count the unsettled nodes of all executions in the store, at no more cost than one read."""

    async def announce_worker(self, worker: WorkerStatus) -> None:
        """Record that a worker is alive, with its status: at its start, and with every heartbeat.

        May be called from another thread than the rest.
        """

    async def remove_worker(self, worker_id: str) -> None:
        """Forget a worker that has stopped."""

    async def workers(self) -> Sequence[WorkerStatus]:
        """Show the workers, by id. One that was not heard of for a lease is LOST, and later forgotten.

        One that is heard again, as a process is that was stopped and goes on, is there again.
        """
