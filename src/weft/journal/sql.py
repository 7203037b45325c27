"""The base of the two SQL journals: every method whose statements SQLite and PostgreSQL both understand."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec.structs import replace

from weft.core.time import micros
from weft.journal import (
    activity,
    children,
    letter_groups,
    logs,
    notifications,
    pages,
    purge,
    queries,
    triggers,
    waits,
)
from weft.journal.contract import (
    DEFAULT_NAMESPACE,
    EVERY_EXECUTION,
    EVERY_LETTER,
    EVERY_WAIT,
    LATEST,
    RESULTS_BYTES,
    ActiveExecution,
    Batch,
    CatalogChange,
    ChildQuery,
    Claim,
    DueWaits,
    EndedWait,
    ExecutionQuery,
    JournalSchema,
    JournalStats,
    LetterQuery,
    OpenWait,
    StrayChild,
    Version,
    WaitQuery,
    WorkflowRow,
)
from weft.journal.firing import NOTHING_RELEASED
from weft.journal.pages import PageOf
from weft.journal.search import Found, NamespaceCounts, PeriodCounts
from weft.lru import Lru

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from types import ModuleType

    from weft.core.rows import DeadLetter, ExecutionRow, History, NodeProgress, NodeRow, Notification
    from weft.core.state import ExecutionState
    from weft.definition.plan import Plan
    from weft.journal.contract import LogChunk, ReportedProgress, StoredChunk, StoredEvent
    from weft.journal.firing import LaneRelease, QueuePlace
    from weft.journal.queries import Query
    from weft.journal.search import LetterGroup, NodeRuns
    from weft.triggers.model import TriggerRow

T = TypeVar("T")


# Many small workflows, or two of the largest: a plan takes about 1.7 kB a node.
MAX_NODES = 200_000


class PlanCache:
    """Keeps the plans used last, by the digest of their definitions, up to a number of nodes in all.

    Any thread may ask it.
    """

    def __init__(self, max_nodes: int = MAX_NODES) -> None:
        self._plans: Lru[str, Plan] = Lru(max_nodes, lambda plan: len(plan.nodes))
        self._lock = Lock()

    def get(self, digest: str) -> Plan | None:
        with self._lock:
            return self._plans.get(digest)

    def put(self, plan: Plan) -> None:
        """Keep a plan in the place of those used longest ago; a plan that is kept stays the same object."""
        with self._lock:
            if plan.digest not in self._plans:
                self._plans.put(plan.digest, plan)

    def drop(self, digest: str) -> None:
        """Forget a plan whose definition is gone."""
        with self._lock:
            self._plans.drop(digest)


_UNKNOWN = JournalSchema(database="memory")


class SqlJournal:
    # The questions that are put to this database in its own words.
    _own: ModuleType
    _event_table: str
    _plans: PlanCache
    _new_id: Callable[[], str]

    async def _read(self, work: Callable[..., Any], *args: Any, nothing: T) -> T:
        """Read what is committed; ``nothing``: the answer to values that the database cannot hold."""
        raise NotImplementedError

    async def _query(self, query: Callable[..., Query[T]], *args: Any, nothing: T) -> T:
        return await self._read(self._own.run_query, query(*args), nothing=nothing)

    async def _transact(self, query: Callable[..., Query[T]], *args: Any) -> T:
        """Change something in a transaction."""
        raise NotImplementedError

    async def _execute(self, query: Callable[..., Query[T]], *args: Any) -> T:
        """Change something by one statement, which is a transaction by itself."""
        return await self._transact(query, *args)

    async def _clock(self) -> int:
        """Return the time that the journal writes down."""
        raise NotImplementedError

    @staticmethod
    def _stored_label(text: str) -> bytes | str:
        """Return a key or a value of a label as the database holds it."""
        return text

    async def active(self, *, not_updated_since: int) -> Sequence[ActiveExecution]:
        return await self._query(queries.active, not_updated_since, nothing=[])

    async def waiting(self, *, not_updated_since: int) -> Sequence[ActiveExecution]:
        return await self._query(queries.waiting, not_updated_since, nothing=[])

    async def evicted(self) -> Sequence[str]:
        return await self._query(queries.evicted, nothing=[])

    async def execution(self, execution_id: str, *, namespace: str | None = None) -> ExecutionRow | None:
        found = await self._query(queries.execution, execution_id, nothing=None)
        return found[1] if found is not None and namespace in (None, found[1].namespace) else None

    async def executions(
        self,
        query: ExecutionQuery = EVERY_EXECUTION,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        before: tuple[int, str] | None = None,
        limit: int = 50,
    ) -> Sequence[ExecutionRow]:
        page = PageOf(namespace, before, limit)
        return await self._query(pages.executions, *await self._asked(query, page), nothing=[])

    async def search(
        self,
        query: ExecutionQuery,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        before: tuple[int, str] | None = None,
        limit: int = 50,
    ) -> Found[ExecutionRow]:
        page = PageOf(namespace, before, limit)
        return await self._query(pages.search, *await self._asked(query, page), nothing=Found(rows=[]))

    async def _asked(self, query: ExecutionQuery, page: PageOf) -> tuple[ExecutionQuery, PageOf, int]:
        """Return a query as the database holds what it asks for, and the time where it asks for that."""
        labels: Any = tuple(tuple(map(self._stored_label, label)) for label in query.labels)
        asks_duration = query.min_microseconds is not None or query.max_microseconds is not None
        return replace(query, labels=labels), page, await self._clock() if asks_duration else 0

    async def schema(self) -> JournalSchema:
        return await self._query(self._own.schema, nothing=_UNKNOWN)

    async def nodes(
        self, execution_id: str, *, names: Collection[str] | None = None
    ) -> Mapping[str, NodeRow]:
        return await self._read(self._own.nodes_of, execution_id, names, nothing={})

    async def node_states(
        self, execution_id: str, *, names: Collection[str] | None = None
    ) -> Mapping[str, NodeRow]:
        return await self._read(self._own.node_states, execution_id, names, nothing={})

    async def events(
        self,
        execution_id: str,
        *,
        after: int = 0,
        limit: int = 500,
        nodes: Collection[str] | None = None,
    ) -> Sequence[History]:
        return await self._read(self._own.events, execution_id, after, limit, nodes, nothing=[])

    async def stats(self) -> JournalStats:
        return await self._query(queries.stats, nothing=JournalStats(executions={}, open_letters=0))

    async def claim(self, key: str, *, namespace: str = DEFAULT_NAMESPACE) -> Claim | None:
        return await self._query(queries.claim, key, namespace, nothing=None)

    async def batch(self, batch_id: str, *, namespace: str = DEFAULT_NAMESPACE) -> Batch | None:
        return await self._query(queries.batch, batch_id, namespace, nothing=None)

    async def batches(
        self,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        before: tuple[int, str] | None = None,
        limit: int = 50,
    ) -> Sequence[Batch]:
        return await self._query(queries.batches, namespace, before, limit, nothing=[])

    async def batch_results(
        self, batch_id: str, *, after: int = -1, limit: int = 50, most_bytes: int = RESULTS_BYTES
    ) -> Sequence[tuple[int, ExecutionRow]]:
        return await self._read(self._own.batch_results, batch_id, after, limit, most_bytes, nothing=[])

    async def dead_letter(self, letter_id: str, *, namespace: str = DEFAULT_NAMESPACE) -> DeadLetter | None:
        return await self._query(queries.dead_letter, letter_id, namespace, nothing=None)

    async def dead_letters(
        self,
        query: LetterQuery = EVERY_LETTER,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        before: tuple[int, str] | None = None,
        limit: int = 50,
    ) -> Sequence[DeadLetter]:
        return await self._query(pages.dead_letters, query, PageOf(namespace, before, limit), nothing=[])

    async def search_letters(
        self,
        query: LetterQuery,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        before: tuple[int, str] | None = None,
        limit: int = 50,
    ) -> Found[DeadLetter]:
        page = PageOf(namespace, before, limit)
        return await self._query(pages.search_letters, query, page, nothing=Found(rows=[]))

    async def drop_letter(
        self, letter_id: str, *, namespace: str = DEFAULT_NAMESPACE, actor: str | None = None
    ) -> bool:
        by = queries.CatalogWriter(namespace, actor, await self._clock())
        return await self._transact(queries.drop_letter, by, letter_id)

    async def drop_letters(
        self, letter_ids: Sequence[str], *, namespace: str = DEFAULT_NAMESPACE, actor: str | None = None
    ) -> int:
        by = queries.CatalogWriter(namespace, actor, await self._clock())
        return await self._transact(queries.drop_letters, by, list(letter_ids))

    async def letter_groups(
        self,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        state: str = "open",
        workflow: str | None = None,
        after: str | None = None,
        limit: int = 50,
    ) -> Sequence[LetterGroup]:
        chosen = namespace, state, workflow, after, limit
        return await self._query(letter_groups.letter_groups, *chosen, nothing=[])

    async def newest_letter_groups(
        self, *, namespace: str = DEFAULT_NAMESPACE, state: str = "open", limit: int = 10
    ) -> Sequence[LetterGroup]:
        return await self._query(letter_groups.newest_groups, namespace, state, limit, nothing=[])

    async def namespace_counts(self, *, namespace: str = DEFAULT_NAMESPACE) -> NamespaceCounts:
        nothing = NamespaceCounts(executions={}, open_letters=0, open_waits=0)
        return await self._query(activity.namespace_counts, namespace, nothing=nothing)

    async def period_counts(
        self, *, namespace: str = DEFAULT_NAMESPACE, since: int, until: int
    ) -> PeriodCounts:
        nothing = PeriodCounts(created=0, ended={})
        return await self._query(activity.period_counts, namespace, since, until, nothing=nothing)

    async def node_runs(self, execution_ids: Sequence[str]) -> Mapping[str, NodeRuns]:
        return await self._query(activity.node_runs, list(execution_ids), nothing={})

    async def changes(
        self, *, namespace: str = DEFAULT_NAMESPACE, before: int | None = None, limit: int = 50
    ) -> Sequence[CatalogChange]:
        return await self._query(queries.changes, namespace, before, limit, nothing=[])

    async def put_version(
        self,
        name: str,
        plan: Plan,
        document: bytes,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        actor: str | None = None,
    ) -> tuple[Version, bool]:
        self._plans.put(plan)
        by = queries.CatalogWriter(namespace, actor, await self._clock())
        return await self._transact(queries.put_version, by, name, plan.digest, document)

    async def version(
        self, name: str, version: int | str = LATEST, *, namespace: str = DEFAULT_NAMESPACE
    ) -> Version | None:
        return await self._query(queries.version, namespace, name, version, nothing=None)

    async def document(self, digest: str) -> bytes | None:
        return await self._query(queries.document, digest, nothing=None)

    async def workflow(self, name: str, *, namespace: str = DEFAULT_NAMESPACE) -> WorkflowRow | None:
        return await self._query(queries.workflow, namespace, name, nothing=None)

    async def workflows(
        self, *, namespace: str = DEFAULT_NAMESPACE, after: str = "", limit: int = 50
    ) -> Sequence[WorkflowRow]:
        return await self._query(queries.workflows, namespace, after, limit, nothing=[])

    async def versions(
        self, name: str, *, namespace: str = DEFAULT_NAMESPACE, before: int | None = None, limit: int = 50
    ) -> Sequence[Version]:
        return await self._query(queries.versions, namespace, name, before, limit, nothing=[])

    async def put_alias(
        self,
        name: str,
        alias: str,
        version: int,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        actor: str | None = None,
    ) -> bool:
        by = queries.CatalogWriter(namespace, actor, await self._clock())
        return await self._transact(queries.put_alias, by, name, alias, version)

    async def delete_alias(
        self, name: str, alias: str, *, namespace: str = DEFAULT_NAMESPACE, actor: str | None = None
    ) -> bool:
        by = queries.CatalogWriter(namespace, actor, await self._clock())
        return await self._transact(queries.delete_alias, by, name, alias)

    async def delete_workflow(
        self, name: str, *, namespace: str = DEFAULT_NAMESPACE, actor: str | None = None
    ) -> bool:
        by = queries.CatalogWriter(namespace, actor, await self._clock())
        return await self._transact(queries.delete_workflow, by, name)

    async def cached(self, keys: Sequence[str]) -> Mapping[str, bytes]:
        return await self._query(queries.cached, list(keys), await self._clock(), nothing={})

    async def cached_sizes(self, keys: Sequence[str]) -> Mapping[str, int]:
        return await self._query(queries.cached_sizes, list(keys), await self._clock(), nothing={})

    async def put_blob(self, payload: bytes) -> str:
        name = self._new_id()
        await self._execute(queries.put_blob, name, payload, await self._clock())
        return name

    async def drop_blobs(self, names: Sequence[str]) -> None:
        await self._execute(purge.drop_blobs, list(names))

    async def claim_notifications(self, *, limit: int, lease_seconds: float) -> Sequence[Notification]:
        now = await self._clock()
        # Asked first, without a transaction: mostly there is none.
        due_at = await self._query(notifications.next_due, nothing=None)
        if due_at is None or due_at > now:
            return []
        taken = await self._transact(notifications.claim, now, now + micros(lease_seconds), limit)
        return [replace(one, attempts=one.attempts + 1) for one in taken]

    async def put_off_notification(
        self, notification_id: str, *, attempts: int, seconds: float, error: str
    ) -> None:
        due_at = await self._clock() + micros(seconds)
        await self._execute(notifications.put_off, notification_id, attempts, due_at, error)

    async def due_waits(self, *, limit: int) -> DueWaits:
        return await self._query(waits.due, await self._clock(), limit, nothing=DueWaits([], None))

    async def untold_waits(self, *, older_than_seconds: float, limit: int) -> Sequence[EndedWait]:
        settled_before = await self._clock() - micros(older_than_seconds)
        return await self._query(waits.untold, settled_before, limit, nothing=[])

    async def forget_waits(self, ended: Sequence[EndedWait]) -> None:
        if ended:
            await self._transact(waits.forget, ended)

    async def open_waits(
        self,
        query: WaitQuery = EVERY_WAIT,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        after: tuple[int, str, str] | None = None,
        limit: int = 50,
    ) -> Sequence[OpenWait]:
        return await self._query(waits.open_waits, query, namespace, after, limit, nothing=[])

    async def untold_children(self, *, older_than_seconds: float, limit: int) -> Sequence[ExecutionRow]:
        ended_before = await self._clock() - micros(older_than_seconds)
        return await self._query(children.untold, ended_before, limit, nothing=[])

    async def forget_children(self, rows: Sequence[ExecutionRow]) -> None:
        if rows:
            await self._transact(children.forget, rows)

    async def idle_children(self, execution_id: str, *, limit: int) -> Sequence[ExecutionRow]:
        return await self._query(children.idle, execution_id, limit, nothing=[])

    async def open_children(self, execution_id: str) -> Sequence[ExecutionRow]:
        return await self._query(children.still_open, execution_id, nothing=[])

    async def ended_children(
        self, execution_id: str, *, after: str = "", limit: int
    ) -> Sequence[ExecutionRow]:
        return await self._query(children.ended, execution_id, after, limit, nothing=[])

    async def stray_children(self, *, limit: int) -> Sequence[StrayChild]:
        return await self._query(children.stray, limit, nothing=[])

    async def children(
        self, query: ChildQuery, *, after: int = -1, limit: int = 50
    ) -> Sequence[ExecutionRow]:
        return await self._query(children.listed, query, after, limit, nothing=[])

    async def child_counts(self, execution_id: str) -> Mapping[str, Mapping[ExecutionState, int]]:
        return await self._query(children.counts, execution_id, nothing={})

    async def notifications(self, execution_id: str) -> Sequence[Notification]:
        return await self._query(notifications.of_execution, execution_id, nothing=[])

    async def trigger(self, name: str, *, namespace: str = DEFAULT_NAMESPACE) -> TriggerRow | None:
        return await self._query(triggers.trigger, name, namespace, nothing=None)

    async def triggers(
        self,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        workflow: str | None = None,
        after: str = "",
        limit: int = 50,
    ) -> Sequence[TriggerRow]:
        return await self._query(triggers.triggers, namespace, workflow, after, limit, nothing=[])

    async def coming_triggers(
        self, *, namespace: str = DEFAULT_NAMESPACE, limit: int = 10
    ) -> Sequence[TriggerRow]:
        return await self._query(triggers.coming_triggers, namespace, limit, nothing=[])

    async def due_triggers(self, *, now: int, limit: int) -> Sequence[TriggerRow]:
        return await self._query(triggers.due_triggers, now, limit, nothing=[])

    async def next_fire_at(self) -> int | None:
        return await self._query(triggers.next_fire_at, nothing=None)

    async def event_triggers(
        self,
        event_type: str,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        after: str = "",
        limit: int = 50,
    ) -> Sequence[TriggerRow]:
        return await self._query(triggers.event_triggers, event_type, namespace, after, limit, nothing=[])

    async def put_trigger(
        self, row: TriggerRow, *, seen_revision: int | None, action: str, actor: str | None = None
    ) -> bool:
        by = queries.CatalogWriter(row.namespace, actor, await self._clock())
        return await self._transact(triggers.put_trigger, by, row, seen_revision, action)

    async def delete_trigger(
        self, name: str, *, namespace: str = DEFAULT_NAMESPACE, actor: str | None = None
    ) -> bool:
        by = queries.CatalogWriter(namespace, actor, await self._clock())
        return await self._transact(triggers.delete_trigger, by, name)

    async def stored_event(
        self,
        source: str,
        event_id: str,
        *,
        namespace: str = DEFAULT_NAMESPACE,
    ) -> StoredEvent | None:
        return await self._query(triggers.stored_event, namespace, source, event_id, nothing=None)

    async def inbound_events(
        self,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        event_type: str | None = None,
        before: int | None = None,
        limit: int = 50,
    ) -> Sequence[StoredEvent]:
        return await self._query(triggers.inbound_events, namespace, event_type, before, limit, nothing=[])

    async def purge_events(self, *, received_before: int, limit: int) -> int:
        return await self._transact(triggers.purge_events, received_before, limit)

    async def is_queued(self, execution_id: str) -> bool:
        return await self._query(triggers.is_queued, execution_id, nothing=False)

    async def place_in_queue(self, execution_id: str) -> QueuePlace | None:
        return await self._query(triggers.place_in_queue, execution_id, nothing=None)

    async def release_queued(self, lane: str, *, namespace: str = DEFAULT_NAMESPACE) -> LaneRelease:
        # Asked first, without a transaction: mostly nothing waits.
        if not await self._query(triggers.has_queued, namespace, lane, nothing=False):
            return NOTHING_RELEASED
        return await self._transact(triggers.release_queued, namespace, lane)

    async def stalled_lanes(
        self, *, limit: int, after: tuple[str, str] = ("", "")
    ) -> Sequence[tuple[str, str]]:
        return await self._query(triggers.stalled_lanes, limit, after, nothing=[])

    async def append_logs(
        self, chunks: Sequence[LogChunk], *, progress: Sequence[ReportedProgress] = ()
    ) -> None:
        if chunks or progress:
            await self._transact(logs.append, chunks, progress)

    async def progress(
        self, execution_id: str, *, names: Collection[str] | None = None
    ) -> Mapping[str, tuple[int, NodeProgress]]:
        wanted = None if names is None else list(names)
        return await self._query(logs.read_progress, execution_id, wanted, nothing={})

    async def logs(
        self,
        execution_id: str,
        *,
        after: int = 0,
        limit: int = 50,
        node_id: str | None = None,
        attempt: int | None = None,
    ) -> Sequence[StoredChunk]:
        return await self._query(logs.read, execution_id, after, limit, node_id, attempt, nothing=[])

    async def blobs(self, names: Sequence[str]) -> Mapping[str, bytes]:
        return await self._query(queries.blobs, list(names), nothing={})

    async def purge(self, *, finished_before: int, limit: int) -> int:
        purged = 0
        while purged < limit:
            hidden, digests = await self._transact(purge.hide_some, finished_before, limit - purged)
            if not hidden:
                # None is left. There may be definitions that no execution was the last to name.
                digests = await self._query(queries.unnamed_definitions, nothing=[])
            if digests:
                await self._transact(purge.drop_definitions, digests)
                for digest in digests:
                    self._plans.drop(digest)
            if not hidden:
                break
            purged += hidden
        while await self._transact(purge.remove_some, self._event_table):
            pass
        await self._transact(purge.drop_batches, finished_before)
        while await self._execute(purge.drop_changes, finished_before):
            pass
        return purged

    async def sweep_blobs(self, *, older_than: int) -> int:
        while await self._execute(purge.drop_stale, await self._clock()):
            pass
        swept = 0
        while some := await self._execute(purge.sweep_blobs, older_than):
            swept += some
        return swept
