"""Durable history: the only truth.

What every journal promises:

- ``submit`` and ``record`` have committed when they return; what they wrote survives the death of every
  process. JournalError: nothing was written. OutcomeUnknownError: perhaps it was, and recording the same
  again is safe, because the fence knows what it has.
- One transaction per call, with the executions concerned locked in the order of their ids. The verdicts
  and changes are those of ``core.ledger``.
- Events of one execution are numbered 1, 2, 3 … without gaps, in the order of commit.
- Payloads come back byte for byte.
- Every row belongs to a namespace, and a read names the namespace it may see.
"""

from __future__ import annotations

from collections.abc import Sequence  # noqa: TC003 - msgspec reads the annotations
from enum import StrEnum
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

import msgspec

from weft.core.attempt import AttemptRef
from weft.core.rows import NodeProgress  # noqa: TC001 - the same
from weft.definition.model import LATEST as LATEST
from weft.journal.firing import FireAnswer as FireAnswer
from weft.journal.firing import Fired as Fired
from weft.journal.firing import Firing as Firing
from weft.journal.firing import LaneRelease as LaneRelease
from weft.journal.firing import QueuePlace as QueuePlace
from weft.journal.firing import StoredEvent as StoredEvent
from weft.journal.firing import TriggerCatalog, TriggerEngine
from weft.journal.firing import group_busy as group_busy
from weft.journal.firing import rejecting_group as rejecting_group
from weft.journal.search import EVERY_EXECUTION as EVERY_EXECUTION
from weft.journal.search import EVERY_LETTER as EVERY_LETTER
from weft.journal.search import ExecutionQuery as ExecutionQuery
from weft.journal.search import LetterQuery as LetterQuery
from weft.journal.search import SearchReader
from weft.journal.submission import DEFAULT_NAMESPACE as DEFAULT_NAMESPACE
from weft.journal.submission import Claim as Claim
from weft.journal.submission import Submission as Submission

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from weft.core.event import Event
    from weft.core.ledger.changes import RecordedEvent
    from weft.core.rows import DeadLetter, ExecutionRow, History, NodeRow, Notification
    from weft.core.snapshot import Snapshot
    from weft.core.state import ExecutionState
    from weft.definition.plan import Plan

# The actor in the history without a key: a caller on this machine, or the program that runs the engine.
LOCAL_ACTOR = "local"
# Of outputs that are read with the executions of a batch at once; one more may pass it.
RESULTS_BYTES = 16 * 1024 * 1024


class Version(msgspec.Struct, frozen=True, kw_only=True):
    """One immutable numbered revision of a workflow."""

    workflow: str
    version: int
    digest: str
    created_at: int


class CatalogChange(msgspec.Struct, frozen=True, kw_only=True):
    """One write that belongs to no execution's history: who changed a workflow, or dropped a dead letter."""

    number: int
    at: int
    # ``workflow.stored``, ``workflow.deleted``, ``alias.set``, ``alias.deleted``, ``dead_letter.dropped``,
    # ``trigger.stored``, ``trigger.enabled``, ``trigger.disabled`` or ``trigger.deleted``.
    action: str
    actor: str | None = None
    workflow: str | None = None
    version: int | None = None
    alias: str | None = None
    dead_letter: str | None = None
    trigger: str | None = None


class JournalSchema(msgspec.Struct, frozen=True, kw_only=True):
    """Which database a journal lies in, and how far its schema is; a journal in memory has none."""

    database: Literal["memory", "sqlite", "postgresql"]
    # The name of the last migration that it has had, and of the last that this release knows.
    have: str | None = None
    want: str | None = None


class WorkflowRow(msgspec.Struct, frozen=True, kw_only=True):
    """A named workflow as a list shows it: its latest version, and the names given to others."""

    name: str
    latest: Version
    aliases: dict[str, int] = {}
    created_at: int


class NewBatch(msgspec.Struct, frozen=True, kw_only=True):
    """Many executions of one version, submitted as one; they are its submissions, in their order."""

    id: str
    workflow: str
    version: int
    namespace: str = DEFAULT_NAMESPACE


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    workflow: str
    version: int
    total: int
    # Of every execution state, how many of its executions have it.
    counts: dict[ExecutionState, int]
    # How many attempts of their nodes followed a first one, whatever the reason.
    retried: int
    created_at: int
    # When the last of them became terminal; None while one is not.
    finished_at: int | None


class JournalStats(msgspec.Struct, frozen=True, kw_only=True):
    """The number of executions that are not terminal, by state, and of open dead letters."""

    # Of the states that are not terminal.
    executions: dict[ExecutionState, int]
    open_letters: int


class ActiveExecution(msgspec.Struct, frozen=True):
    """An execution that is not terminal, as far as the sweep needs it."""

    id: str
    generation: int
    epoch: int
    updated_at: int
    # The number of its last event.
    seq: int


Stream: TypeAlias = Literal["stdout", "stderr", "log"]


class LogLine(msgspec.Struct, frozen=True, array_like=True):
    """One line of an attempt, without its newline. ``at``: microseconds since 1970."""

    at: int
    stream: Stream
    message: str
    # Of a line that came through ``logging``.
    level: str | None = None
    logger: str | None = None


class LogChunk(msgspec.Struct, frozen=True, kw_only=True):
    """Lines of one attempt that are written together."""

    execution_id: str
    node_id: str
    attempt: int
    # Counts 1, 2, 3 … within the attempt: a chunk that is written twice is there once.
    number: int
    # How many lines the attempt had before this chunk.
    lines_before: int
    lines: Sequence[LogLine]
    # Chunks of the attempt with a smaller number go: the attempt has more than it may keep.
    keep_from: int = 1


class StoredChunk(msgspec.Struct, frozen=True, kw_only=True):
    """A chunk as it is read."""

    node_id: str
    attempt: int
    # The line at index i has this number plus 1 + i.
    first_seq: int
    # Lines of the attempt that are gone; only its oldest chunk says so.
    lines_gone: int
    lines: Sequence[LogLine]


class ReportedProgress(msgspec.Struct, frozen=True):
    """The progress of an attempt, to be written: the last report of a node replaces the one before."""

    execution_id: str
    node_id: str
    attempt: int
    progress: NodeProgress


class DueWait(AttemptRef, frozen=True, gc=False):
    """A wait whose time has come; ``digest``: of its definition, which says whether it fails then."""

    digest: str


class EndedWait(msgspec.Struct, frozen=True, gc=False):
    """A wait that was answered, or whose time has come."""

    execution_id: str
    generation: int
    node_id: str


class DueWaits(msgspec.Struct, frozen=True):
    """The waits that are due, the earliest first, and how long the next one is off (None: there is none)."""

    due: Sequence[DueWait]
    next_in_seconds: float | None
    # Evicted executions whose deadline has passed, with their generations: no store has a timer for them.
    deadlines: Sequence[tuple[str, int]] = ()


class OpenWait(msgspec.Struct, frozen=True, kw_only=True):
    """A node that waits for an answer."""

    execution_id: str
    workflow: str | None
    digest: str
    node_id: str
    signal: str
    prompt: str | None
    since: int
    expires_at: int | None


class WaitQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which waits are listed: those that fit all that is given."""

    workflow: str | None = None
    execution_id: str | None = None
    signal: str | None = None


EVERY_WAIT = WaitQuery()


class StrayReason(StrEnum):
    """Why a child that has not ended is not as its parent is."""

    # No node waits for it in the generation that it works for.
    IDLE = "idle"
    PARENT_PAUSED = "parent_paused"
    # It was paused with its parent, which goes on.
    PARENT_RESUMED = "parent_resumed"


class StrayChild(msgspec.Struct, frozen=True):
    """A child that its parent has not reached; ``execution`` comes without input and output."""

    execution: ExecutionRow
    reason: StrayReason


class ChildQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which children of an execution are listed: those of a node that fit all that is given."""

    execution_id: str
    node_id: str
    states: tuple[ExecutionState, ...] = ()  # any of them


class RowReader(Protocol):
    """The reads that the engine and the API share."""

    async def execution(self, execution_id: str, *, namespace: str | None = None) -> ExecutionRow | None:
        """Read one execution."""

    async def executions(
        self,
        query: ExecutionQuery = EVERY_EXECUTION,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        before: tuple[int, str] | None = None,
        limit: int = 50,
    ) -> Sequence[ExecutionRow]:
        """List executions, newest first, without input (``b""``) and output (None).

        ``before``: (created_at, id) of the last one that was shown.
        """

    async def nodes(
        self, execution_id: str, *, names: Collection[str] | None = None
    ) -> Mapping[str, NodeRow]:
        """Read the rows of an execution's nodes, all or those named; a node without a row is not listed.

        They are those of one commit.
        """

    async def node_states(
        self, execution_id: str, *, names: Collection[str] | None = None
    ) -> Mapping[str, NodeRow]:
        """Read the rows of an execution's nodes as ``nodes`` does, but without outputs (None).

        It costs the same for each node, whatever the nodes have returned.
        """

    async def plan(self, digest: str) -> Plan | None:
        """Return a stored definition, compiled; the journal keeps it for the next caller."""

    async def version(
        self, name: str, version: int | str = LATEST, *, namespace: str = DEFAULT_NAMESPACE
    ) -> Version | None:
        """Return a version by its number, by an alias, or the latest. A deleted workflow has none."""

    async def blobs(self, names: Sequence[str]) -> Mapping[str, bytes]:
        """Read large payloads."""

    async def events(
        self,
        execution_id: str,
        *,
        after: int = 0,
        limit: int = 500,
        nodes: Collection[str] | None = None,
    ) -> Sequence[History]:
        """Read the history after event number ``after``; ``nodes``: only what is about one of these."""


class Journal(RowReader, TriggerEngine, Protocol):
    """The calls of the engine: orchestrator, worker, and the processes that hold them."""

    async def open(self) -> None:
        """Open the journal for reads and writes; raises JournalError or DataFolderError."""

    async def close(self) -> None:
        """Finish the calls that wait, and close every connection and file."""

    async def submit(
        self,
        submissions: Sequence[Submission],
        *,
        claim: Claim | None = None,
        batch: NewBatch | None = None,
    ) -> Sequence[ExecutionRow]:
        """Store new executions, all or none, each PENDING in generation 1 and epoch 1.

        Raises ClaimedError where the claim's key is taken already: then nothing is stored. JournalError too
        where a document is left out and the journal does not have it, because its workflow was deleted.
        """

    async def record(self, events: Sequence[Event], *, claim: Claim | None = None) -> Sequence[RecordedEvent]:
        """Record events in order, in one transaction, each under the fence.

        The execution of a recorded event, and of a snapshot, may come without a large input (``b""``):
        ``execution`` reads it.

        With a claim there is one event, a control call. The claim is taken if the event is accepted;
        ClaimedError where its key is taken already: then nothing is recorded.
        """

    async def rebuild(self, execution_id: str, *, seen_epoch: int) -> Snapshot | None:
        """Commit epoch + 1 and read the rows in the same transaction; None where another was quicker.

        A terminal execution's epoch stays: its snapshot says so.
        """

    async def active(self, *, not_updated_since: int) -> Sequence[ActiveExecution]:
        """List executions that the store should have, and that have not changed since then.

        These are not terminal, do not wait for their turn in a lane, and were not evicted.
        """

    async def waiting(self, *, not_updated_since: int) -> Sequence[ActiveExecution]:
        """List those of ``active`` in which a node waits: they may be evicted (``HotStateEvicted``)."""

    async def evicted(self) -> Sequence[str]:
        """Name the executions that have left the hot state, in the order in which they were submitted."""

    async def cached(self, keys: Sequence[str]) -> Mapping[str, bytes]:
        """Return the outputs that the result cache has for these keys, without those that are too old."""

    async def cached_sizes(self, keys: Sequence[str]) -> Mapping[str, int]:
        """Return the lengths of the outputs that ``cached`` would return: they may not fit into memory."""

    async def put_blob(self, payload: bytes) -> str:
        """Store a large payload and return its name."""

    async def drop_blobs(self, names: Sequence[str]) -> None:
        """Remove blobs that are needed no more; one that a row or the cache names stays."""

    async def claim_notifications(self, *, limit: int, lease_seconds: float) -> Sequence[Notification]:
        """Take notifications that are due, the oldest first, for so long; each counts one more attempt.

        Nobody else is given one of them before the lease ends. One that ends is recorded, as an event
        (``NotificationEnded``).
        """

    async def put_off_notification(
        self, notification_id: str, *, attempts: int, seconds: float, error: str
    ) -> None:
        """Have a notification sent again after so long; nothing, where it was taken again since."""

    async def due_waits(self, *, limit: int) -> DueWaits:
        """Return the waits whose time has come by the journal's clock, and how long the next one is off.

        One stays listed until its end is recorded, as an event (``WaitDue``). With them come the deadlines of
        evicted executions, each until its event is recorded (``DeadlinePassed``).
        """

    async def untold_waits(self, *, older_than_seconds: float, limit: int) -> Sequence[EndedWait]:
        """Return waits that ended so long ago, by an answer or by their time, and the store was not told.

        Whoever records such an end tells the store, and then calls ``forget_waits``.
        """

    async def forget_waits(self, ended: Sequence[EndedWait]) -> None:
        """Note that the store knows of the ends of waits; one of another generation stays."""

    async def untold_children(self, *, older_than_seconds: float, limit: int) -> Sequence[ExecutionRow]:
        """Return children that ended so long ago, and their parents were not told.

        They come without inputs and outputs, as all that follow.

        The event that tells the parent (``ChildEnded``) takes one off the list where it is accepted, and
        ``forget_children`` where it is not: nobody waits for it then.
        """

    async def forget_children(self, rows: Sequence[ExecutionRow]) -> None:
        """Note that the parents know of the ends of these children; one that was opened again since stays."""

    async def idle_children(self, execution_id: str, *, limit: int) -> Sequence[ExecutionRow]:
        """Return children of an execution that have not ended, and for which no node of it waits."""

    async def open_children(self, execution_id: str) -> Sequence[ExecutionRow]:
        """Return all children of an execution that have not ended."""

    async def ended_children(
        self, execution_id: str, *, after: str = "", limit: int
    ) -> Sequence[ExecutionRow]:
        """Return children of an execution that have ended, in the order of their ids."""

    async def stray_children(self, *, limit: int) -> Sequence[StrayChild]:
        """Return children of any execution that have not ended, and are not as their parents are."""

    async def append_logs(
        self, chunks: Sequence[LogChunk], *, progress: Sequence[ReportedProgress] = ()
    ) -> None:
        """Store lines that attempts printed and logged; the same chunk again changes nothing.

        Lines of an execution are numbered in the order of the commits. Chunks of an execution that is gone
        are left out. ``progress``: at most one of a node, stored in the same commit; what an earlier attempt
        says after a later one changes nothing.
        """

    # -- upkeep --------------------------------------------------------------------------------------

    async def purge(self, *, finished_before: int, limit: int) -> int:
        """Remove up to ``limit`` executions that became terminal before then, with all that is theirs.

        That is their rows, events, dead letters, claims and the blobs nobody else names, batches that
        have no execution left, definitions that neither a version nor an execution names, and changes of the
        catalog from before then. Returns
        the number of executions removed, the oldest first: less than ``limit`` means that none is left.
        """

    async def sweep_blobs(self, *, older_than: int) -> int:
        """Remove the blobs from before ``older_than`` that nothing names, and count them.

        Outputs that the cache no longer gives go first. A blob that only a task or a result on its way
        names is protected by its age alone: ``older_than`` lies further back than any of those can.
        """

    async def signing_key(self) -> bytes:
        """Return the 32 bytes that messages are signed with: the same for all processes on this journal."""


class Catalog(RowReader, SearchReader, TriggerCatalog, Protocol):
    """The calls of the API, the CLI and the views: their reads, and their writes without the engine."""

    async def logs(
        self,
        execution_id: str,
        *,
        after: int = 0,
        limit: int = 50,
        node_id: str | None = None,
        attempt: int | None = None,
    ) -> Sequence[StoredChunk]:
        """Read chunks of lines in the order of their numbers, from the one with a line behind ``after``."""

    async def progress(
        self, execution_id: str, *, names: Collection[str] | None = None
    ) -> Mapping[str, tuple[int, NodeProgress]]:
        """Read what nodes last said of their progress, all or those named: the attempt, and what it said."""

    async def open_waits(
        self,
        query: WaitQuery = EVERY_WAIT,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        after: tuple[int, str, str] | None = None,
        limit: int = 50,
    ) -> Sequence[OpenWait]:
        """List the nodes that wait for an answer, those that have waited longest first.

        ``after``: (since, execution, node) of the last one that was shown.
        """

    async def children(
        self, query: ChildQuery, *, after: int = -1, limit: int = 50
    ) -> Sequence[ExecutionRow]:
        """List the children of a node in the order of their items, without inputs and outputs.

        They are those that its current attempt waits for, or waited for last. ``after``: the index of the
        last one that was shown.
        """

    async def child_counts(self, execution_id: str) -> Mapping[str, Mapping[ExecutionState, int]]:
        """Count the children that ``children`` lists by node and state; a node without one is left out."""

    async def notifications(self, execution_id: str) -> Sequence[Notification]:
        """Read the notifications of an execution, oldest first, whatever became of them."""

    async def claim(self, key: str, *, namespace: str = DEFAULT_NAMESPACE) -> Claim | None:
        """Return the claim of an idempotency key; None if the key is free."""

    async def batch(self, batch_id: str, *, namespace: str = DEFAULT_NAMESPACE) -> Batch | None:
        """Read a batch, its executions counted now."""

    async def batches(
        self,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        before: tuple[int, str] | None = None,
        limit: int = 50,
    ) -> Sequence[Batch]:
        """List batches, newest first. ``before``: (created_at, id) of the last one that was shown."""

    async def batch_results(
        self, batch_id: str, *, after: int = -1, limit: int = 50, most_bytes: int = RESULTS_BYTES
    ) -> Sequence[tuple[int, ExecutionRow]]:
        """Read executions of a batch behind index ``after``, in the order of the inputs, with outputs.

        Their inputs are left out (``b""``). The row that brings the outputs to ``most_bytes`` is the last
        one, whatever ``limit`` says: a page of the largest outputs would not fit into the memory.
        """

    async def dead_letters(
        self,
        query: LetterQuery = EVERY_LETTER,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        before: tuple[int, str] | None = None,
        limit: int = 50,
    ) -> Sequence[DeadLetter]:
        """List dead letters, newest first. ``before``: (created_at, id) of the last one that was shown."""

    async def dead_letter(self, letter_id: str, *, namespace: str = DEFAULT_NAMESPACE) -> DeadLetter | None:
        """Read one dead letter."""

    async def drop_letter(
        self, letter_id: str, *, namespace: str = DEFAULT_NAMESPACE, actor: str | None = None
    ) -> bool:
        """Mark a dead letter as dropped, whatever its state; False where there is none.

        A dropped letter stays so: a retry of its execution does not change it.
        """

    async def drop_letters(
        self, letter_ids: Sequence[str], *, namespace: str = DEFAULT_NAMESPACE, actor: str | None = None
    ) -> int:
        """Mark dead letters as dropped, in one transaction; return how many there were that were not."""

    async def changes(
        self, *, namespace: str = DEFAULT_NAMESPACE, before: int | None = None, limit: int = 50
    ) -> Sequence[CatalogChange]:
        """List who changed workflows and aliases and dropped dead letters, newest first.

        Every call below that is given an ``actor`` and changes something adds one in its transaction.
        ``before``: the number of the last one that was shown.
        """

    # -- workflows -----------------------------------------------------------------------------------

    async def put_version(
        self,
        name: str,
        plan: Plan,
        document: bytes,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        actor: str | None = None,
    ) -> tuple[Version, bool]:
        """Store a version and make it the latest; True where it is new.

        Content that a version has already is that version. A workflow that was deleted is there again:
        all it is given is new, and its numbering goes on.
        """

    async def document(self, digest: str) -> bytes | None:
        """Return a stored definition as JSON."""

    async def workflow(self, name: str, *, namespace: str = DEFAULT_NAMESPACE) -> WorkflowRow | None:
        """Read one workflow that is not deleted."""

    async def workflows(
        self, *, namespace: str = DEFAULT_NAMESPACE, after: str = "", limit: int = 50
    ) -> Sequence[WorkflowRow]:
        """List workflows that are not deleted, by name. ``after``: the name of the last one shown."""

    async def versions(
        self, name: str, *, namespace: str = DEFAULT_NAMESPACE, before: int | None = None, limit: int = 50
    ) -> Sequence[Version]:
        """List versions of a workflow that is not deleted, newest first."""

    async def put_alias(
        self,
        name: str,
        alias: str,
        version: int,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        actor: str | None = None,
    ) -> bool:
        """Point an alias at a version, whatever it named before; False where there is no such version."""

    async def delete_alias(
        self, name: str, alias: str, *, namespace: str = DEFAULT_NAMESPACE, actor: str | None = None
    ) -> bool:
        """Remove an alias; False where there is none."""

    async def delete_workflow(
        self, name: str, *, namespace: str = DEFAULT_NAMESPACE, actor: str | None = None
    ) -> bool:
        """Delete a workflow and its aliases: no new execution starts by its name. False where there is none.

        Executions and their history stay.
        """

    # -- upkeep --------------------------------------------------------------------------------------

    async def check(self) -> None:
        """Return if the journal can be read and written now; raises JournalError otherwise."""

    async def schema(self) -> JournalSchema:
        """Read how far the schema of the journal is."""

    async def stats(self) -> JournalStats:
        """Count what is not done, of all namespaces."""


class JournalAdapter(Journal, Catalog, Protocol):
    """Journal and catalog in one object on the same connections, as every adapter implements them."""
