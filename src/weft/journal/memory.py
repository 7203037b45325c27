"""A journal in this process's memory: the reference for the others, and what a script runs on.

It keeps every promise of the contract but one: it does not survive the process.
"""

from __future__ import annotations

import os
from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from weft.core.event import CallStarted
from weft.core.ledger.changes import Changes, LiveExecution, RecordedEvent, Verdict, moved_letter
from weft.core.ledger.fence import Ledger, Loaders
from weft.core.ledger.waits import MAILBOX_PAGE
from weft.core.payload import canonical, decode
from weft.core.rows import DeadLetter, ExecutionRow, History, NodeRow, PastEvent, completion_event, digest_of
from weft.core.snapshot import Snapshot
from weft.core.state import TERMINAL, ExecutionState
from weft.core.time import MICROSECONDS, micros
from weft.definition.bounds import DEFAULT_BOUNDS, Bounds
from weft.definition.waits import WaitKind
from weft.errors import ClaimedError, JournalError
from weft.journal.children_in_memory import MemoryChildren
from weft.journal.contract import (
    DEFAULT_NAMESPACE,
    EVERY_WAIT,
    LATEST,
    RESULTS_BYTES,
    ActiveExecution,
    Batch,
    CatalogChange,
    Claim,
    DueWait,
    DueWaits,
    EndedWait,
    JournalSchema,
    JournalStats,
    LogChunk,
    NewBatch,
    OpenWait,
    StoredChunk,
    Submission,
    Version,
    WorkflowRow,
)
from weft.journal.memory_search import MemorySearch
from weft.journal.notifications import shortened, state_of
from weft.journal.triggers_in_memory import MemoryTriggers
from weft.journal.waits import answer_of, matches

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from weft.core.event import Event, NotificationEnded
    from weft.core.rows import NodeProgress, Notification, Signal, Wait
    from weft.definition.model import NotifyTarget
    from weft.definition.plan import Plan
    from weft.journal.contract import ReportedProgress, WaitQuery
    from weft.triggers.cloudevent import InboundEvent


def _place_of(chunk: LogChunk) -> tuple[str, int, int]:
    return chunk.node_id, chunk.attempt, chunk.number


class _Shelf:
    """One workflow's versions by their numbers. A deleted one has none, and remembers the last number."""

    def __init__(self) -> None:
        self.versions: dict[int, Version] = {}
        self.aliases: dict[str, int] = {}
        self.last = self.latest = self.created_at = 0


class MemoryWorkflows:
    """The part of a journal that is about workflows: versions, the names given to them, definitions."""

    def __init__(self, *, now: Callable[[], int]) -> None:
        self._now = now
        self._shelves: dict[tuple[str, str], _Shelf] = {}
        # digest → the definition, ready to run and as it was given
        self._plans: dict[str, Plan] = {}
        self._documents: dict[str, bytes] = {}
        # With their namespaces, oldest first.
        self._changes: list[tuple[str, CatalogChange]] = []
        self._last_change = 0

    async def changes(
        self, *, namespace: str = DEFAULT_NAMESPACE, before: int | None = None, limit: int = 50
    ) -> Sequence[CatalogChange]:
        found = (
            change
            for place, change in reversed(self._changes)
            if place == namespace and (before is None or change.number < before)
        )
        return list(islice(found, limit))

    def _add_change(self, namespace: str, actor: str | None, action: str, **fields: Any) -> None:
        self._last_change += 1
        change = CatalogChange(number=self._last_change, at=self._now(), action=action, actor=actor, **fields)
        self._changes.append((namespace, change))

    async def put_version(
        self,
        name: str,
        plan: Plan,
        document: bytes,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        actor: str | None = None,
    ) -> tuple[Version, bool]:
        self._put_definition(plan, document)
        shelf = self._shelves.setdefault((namespace, name), _Shelf())
        known = next((each for each in shelf.versions.values() if each.digest == plan.digest), None)
        if known is not None:
            shelf.latest = known.version
            self._add_change(namespace, actor, "workflow.stored", workflow=name, version=known.version)
            return known, False
        now = self._now()
        if not shelf.versions:
            shelf.created_at = now
        shelf.last = shelf.latest = number = shelf.last + 1
        shelf.versions[number] = new = Version(
            workflow=name, version=number, digest=plan.digest, created_at=now
        )
        self._add_change(namespace, actor, "workflow.stored", workflow=name, version=number)
        return new, True

    async def version(
        self, name: str, version: int | str = LATEST, *, namespace: str = DEFAULT_NAMESPACE
    ) -> Version | None:
        shelf = self._shelves.get((namespace, name), _NOTHING)
        if isinstance(version, str):
            version = shelf.latest if version == LATEST else shelf.aliases.get(version, 0)
        return shelf.versions.get(version)

    async def document(self, digest: str) -> bytes | None:
        return self._documents.get(digest)

    async def plan(self, digest: str) -> Plan | None:
        return self._plans.get(digest)

    async def workflow(self, name: str, *, namespace: str = DEFAULT_NAMESPACE) -> WorkflowRow | None:
        shelf = self._shelves.get((namespace, name), _NOTHING)
        if not shelf.versions:
            return None
        latest = shelf.versions[shelf.latest]
        return WorkflowRow(name=name, latest=latest, aliases=dict(shelf.aliases), created_at=shelf.created_at)

    async def workflows(
        self, *, namespace: str = DEFAULT_NAMESPACE, after: str = "", limit: int = 50
    ) -> Sequence[WorkflowRow]:
        names = sorted(name for place, name in self._shelves if place == namespace and name > after)
        found = [await self.workflow(name, namespace=namespace) for name in names]
        return [workflow for workflow in found if workflow is not None][:limit]

    async def versions(
        self, name: str, *, namespace: str = DEFAULT_NAMESPACE, before: int | None = None, limit: int = 50
    ) -> Sequence[Version]:
        shelf = self._shelves.get((namespace, name), _NOTHING)
        numbers = sorted((n for n in shelf.versions if before is None or n < before), reverse=True)
        return [shelf.versions[number] for number in numbers[:limit]]

    async def put_alias(
        self,
        name: str,
        alias: str,
        version: int,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        actor: str | None = None,
    ) -> bool:
        shelf = self._shelves.get((namespace, name), _NOTHING)
        if version not in shelf.versions:
            return False
        shelf.aliases[alias] = version
        self._add_change(namespace, actor, "alias.set", workflow=name, alias=alias, version=version)
        return True

    async def delete_alias(
        self, name: str, alias: str, *, namespace: str = DEFAULT_NAMESPACE, actor: str | None = None
    ) -> bool:
        if self._shelves.get((namespace, name), _NOTHING).aliases.pop(alias, None) is None:
            return False
        self._add_change(namespace, actor, "alias.deleted", workflow=name, alias=alias)
        return True

    async def delete_workflow(
        self, name: str, *, namespace: str = DEFAULT_NAMESPACE, actor: str | None = None
    ) -> bool:
        shelf = self._shelves.get((namespace, name), _NOTHING)
        existed = bool(shelf.versions)
        shelf.versions.clear()
        shelf.aliases.clear()
        if existed:
            self._add_change(namespace, actor, "workflow.deleted", workflow=name)
        return existed

    def _put_definition(self, plan: Plan, document: bytes) -> None:
        if not document and plan.digest not in self._documents:
            raise JournalError(f"the journal has no definition {plan.digest}")
        self._plans.setdefault(plan.digest, plan)
        self._documents.setdefault(plan.digest, document)

    def _named_digests(self) -> set[str]:
        """Return the definitions that are versions of a workflow."""
        return {version.digest for shelf in self._shelves.values() for version in shelf.versions.values()}


_NOTHING = _Shelf()


class _Batch(msgspec.Struct, frozen=True):
    new: NewBatch
    executions: tuple[str, ...]  # in the order of the inputs
    created_at: int


class _Wait(msgspec.Struct):
    row: NodeRow
    settled_at: int | None = None


class MemoryJournal(MemoryWorkflows, MemorySearch, MemoryTriggers, MemoryChildren):
    def __init__(
        self,
        *,
        now: Callable[[], int],
        new_id: Callable[[], str],
        bounds: Bounds = DEFAULT_BOUNDS,
        notify: Sequence[NotifyTarget] | None = None,
    ) -> None:
        MemoryWorkflows.__init__(self, now=now)
        MemoryTriggers.__init__(self)
        MemoryChildren.__init__(self)
        self._new_id = new_id
        self._bounds = bounds
        self._executions: dict[str, ExecutionRow] = {}
        self._nodes: dict[str, dict[str, NodeRow]] = {}
        # Event n of an execution is at n - 1: the event, or the id of the node whose row stands for it.
        self._events: dict[str, list[History | str]] = {}
        self._letters: dict[str, list[DeadLetter]] = {}
        self._batches: dict[str, _Batch] = {}
        # (namespace, key) → what it stands for
        self._claims: dict[tuple[str, str], Claim] = {}
        # key → (output, good until)
        self._cache: dict[str, tuple[bytes, int]] = {}
        self._blobs: dict[str, bytes] = {}
        self._blobs_from: dict[str, int] = {}
        # By execution: its chunks in the order of their numbers, each with the chunk that was written.
        self._logs: dict[str, list[tuple[LogChunk, int]]] = {}
        # By execution and node: the attempt that last spoke of its progress, and what it said.
        self._told: dict[str, dict[str, tuple[int, NodeProgress]]] = {}
        self._notify = notify
        # By id, in the order of their commits.
        self._notifications: dict[str, Notification] = {}
        # By execution and node: when its wait began, when it is due, and when it was answered while the store
        # was not told of that.
        self._waits: dict[tuple[str, str], _Wait] = {}
        # By execution: its mailbox, in the order in which the signals came.
        self._mailboxes: dict[str, dict[int, Signal]] = {}
        self._signing_key = os.urandom(32)

    async def open(self) -> None:
        pass

    async def close(self) -> None:
        pass

    # -- writing -----------------------------------------------------------------------------------

    async def submit(
        self,
        submissions: Sequence[Submission],
        *,
        claim: Claim | None = None,
        batch: NewBatch | None = None,
    ) -> Sequence[ExecutionRow]:
        self._refuse_taken(claim)
        self._refuse_busy(submissions)
        return self._store(submissions, claim, batch)

    def _store(
        self, submissions: Sequence[Submission], claim: Claim | None, batch: NewBatch | None = None
    ) -> list[ExecutionRow]:
        ledger = self._ledger()
        rows = []
        for submission in submissions:
            self._put_definition(submission.plan, submission.document)
            rows.append(admit(submission, ledger, batch))
        if batch is not None:
            self._batches.setdefault(batch.id, _Batch(batch, tuple(row.id for row in rows), self._now()))
        self._commit(ledger.changes, claim)
        return rows

    async def record(self, events: Sequence[Event], *, claim: Claim | None = None) -> Sequence[RecordedEvent]:
        self._refuse_taken(claim)
        ledger = self._ledger()
        recorded_events = [ledger.record(event) for event in events]
        for event in events:
            if isinstance(event, CallStarted) and event.called.child in ledger.changes.executions:
                self._put_definition(event.new.plan, event.new.document)
        self._commit(ledger.changes, accepted_claim(claim, recorded_events))
        return recorded_events

    async def rebuild(self, execution_id: str, *, seen_epoch: int) -> Snapshot | None:
        ledger = self._ledger()
        change = ledger.rebuild(execution_id, seen_epoch=seen_epoch)
        if change is None:
            return None
        self._commit(ledger.changes)
        return Snapshot(change.row, change.plan, list(change.live.rows.values()))

    def _ledger(self) -> Ledger:
        return Ledger(
            self._find,
            loaders=Loaders(
                self._blobs.__getitem__, lambda id_: self._executions[id_].input, self, self._is_group_busy
            ),
            new_id=self._new_id,
            max_payload_bytes=self._bounds.max_payload_bytes,
            now=self._now(),
            notify=self._notify,
        )

    def _find(self, execution_id: str) -> LiveExecution | None:
        row = self._executions.get(execution_id)
        if row is None:
            return None
        return LiveExecution(0, row, self._plans[row.digest], self._nodes[execution_id], is_whole=True)

    def _refuse_taken(self, claim: Claim | None) -> None:
        taken = None if claim is None else self._claims.get((claim.namespace, claim.key))
        if taken is not None:
            raise ClaimedError(taken.key, request_digest=taken.request_digest, resource=taken.resource)

    def _commit(self, changes: Changes, claim: Claim | None = None) -> None:
        if claim is not None:
            self._claims[claim.namespace, claim.key] = claim
        for execution_id, change in changes.executions.items():
            self._executions[execution_id] = change.row
            self._nodes.setdefault(execution_id, {}).update(change.rows)
            events = self._events.setdefault(execution_id, [])
            events.extend([""] * (change.row.seq - len(events)))
            for row in change.rows.values():
                if row.recorded_at is not None:
                    events[row.seq - 1] = row.node_id
        for event in (*changes.overwritten, *changes.events):
            self._events[event.execution][event.seq - 1] = event
        for execution_id, node_id, state in changes.letter_states:
            self._letters[execution_id] = [
                moved_letter(letter, node_id, state) for letter in self._letters.get(execution_id, [])
            ]
        for letter in changes.letters:
            self._letters.setdefault(letter.execution_id, []).append(letter)
        now = self._now()
        self._notifications |= {one.id: one for one in changes.notifications}
        for ended in changes.notification_ends:
            self._end_notification(ended, now)
        self._commit_waits(changes)
        self._put_turns(changes.joined)
        self._commit_children(changes)
        for key, output, blob, ttl_seconds in changes.cache:
            payload = output if blob is None else self._blobs[blob]
            assert payload is not None
            self._cache[key] = (payload, now + micros(ttl_seconds))

    def _commit_waits(self, changes: Changes) -> None:
        for key, row in changes.waits_started.items():
            self._waits[key] = _Wait(row)
        for key, is_untold in changes.waits_ended.items():
            if is_untold:
                self._waits[key].settled_at = changes.now
            else:
                del self._waits[key]
        for signal in changes.signals_kept:
            self._mailboxes.setdefault(signal.execution_id, {})[signal.number] = signal
        for execution_id, number in changes.signals_taken:
            del self._mailboxes[execution_id][number]
        for number, execution_id, node_id in changes.events_taken:
            self._answer_later(number, execution_id, node_id)

    def _answer_waits(self, event: InboundEvent) -> list[RecordedEvent]:
        data = event.body.get("data")
        pairs = set() if not isinstance(data, dict) else {(key, canonical(data[key])) for key in data}
        found: dict[str, tuple[int, str]] = {}
        for (execution_id, node_id), one in self._waits.items():
            wait, since = one.row.wait, one.row.started_at or 0
            if (
                one.settled_at is None
                and wait is not None
                and wait.match is not None
                and (wait.kind, wait.name) == (WaitKind.EVENT, event.type)
                and self._executions[execution_id].namespace == event.namespace
                and {(key, canonical(value)) for key, value in decode(wait.match).items()} <= pairs
            ):
                found[execution_id] = min(found.get(execution_id, (since, node_id)), (since, node_id))
        ledger = self._ledger()
        answers = [answer_of(event, id_, node_id) for id_, (_, node_id) in sorted(found.items())]
        recorded_events = [ledger.record(answer) for answer in answers]
        self._commit(ledger.changes)
        return recorded_events

    def signals(self, execution_id: str, name: str, after: int) -> Sequence[Signal]:
        mailbox = self._mailboxes.get(execution_id, {}).values()
        return [one for one in mailbox if one.name == name and one.number > after][:MAILBOX_PAGE]

    def output(self, execution_id: str, number: int) -> bytes:
        output = self._mailboxes[execution_id][number].output
        assert output is not None
        return output

    def past_event(
        self, execution: ExecutionRow, wait: Wait, since: int, taken: tuple[int, ...]
    ) -> PastEvent | None:
        assert wait.match is not None
        for event in self._inbound.values():
            if (
                (event.namespace, event.type) == (execution.namespace, wait.name)
                and event.received_at >= since
                and event.number not in taken
                and matches(decode(wait.match), decode(event.body).get("data"))
                and execution.id not in [id_ for id_, _ in (*event.answered, *event.answered_later)]
            ):
                value = msgspec.json.encode(decode(event.body).get("data"))
                return PastEvent(event.number, event.source, event.received_at, value)
        return None

    async def due_waits(self, *, limit: int) -> DueWaits:
        now = self._now()
        timed = sorted(
            (wait.row.parked.due_at, *key, wait.row)
            for key, wait in self._waits.items()
            if wait.settled_at is None and wait.row.parked is not None and wait.row.parked.due_at is not None
        )
        due = [
            DueWait(id_, row.generation, node_id, row.attempt, self._executions[id_].digest)
            for at, id_, node_id, row in timed
            if at <= now
        ]
        deadlines = sorted(
            (row.deadline_at, row.id, row.generation)
            for row in self._executions.values()
            if row.evicted and row.deadline_at is not None and not row.is_terminal
        )
        late = [(id_, generation) for at, id_, generation in deadlines if at <= now]
        times = [*(at for at, *_ in timed), *(at for at, *_ in deadlines)]
        later = min((at for at in times if at > now), default=None)
        next_in_seconds = None if later is None else (later - now) / MICROSECONDS
        return DueWaits(due[:limit], next_in_seconds, late[:limit])

    async def untold_waits(self, *, older_than_seconds: float, limit: int) -> Sequence[EndedWait]:
        before = self._now() - micros(older_than_seconds)
        settled = sorted(
            (wait.settled_at, id_, wait.row.generation, node_id)
            for (id_, node_id), wait in self._waits.items()
            if wait.settled_at is not None and wait.settled_at <= before
        )
        return [EndedWait(id_, generation, node_id) for _, id_, generation, node_id in settled[:limit]]

    async def forget_waits(self, ended: Sequence[EndedWait]) -> None:
        for one in ended:
            key = (one.execution_id, one.node_id)
            wait = self._waits.get(key)
            if wait is not None and wait.settled_at is not None and wait.row.generation == one.generation:
                del self._waits[key]

    async def open_waits(
        self,
        query: WaitQuery = EVERY_WAIT,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        after: tuple[int, str, str] | None = None,
        limit: int = 50,
    ) -> Sequence[OpenWait]:
        found = []
        for (execution_id, node_id), one in self._waits.items():
            execution, wait, since = self._executions[execution_id], one.row.wait, one.row.started_at
            assert wait is not None
            assert since is not None
            assert one.row.parked is not None
            if (
                one.settled_at is None
                and wait.kind is WaitKind.SIGNAL
                and execution.namespace == namespace
                and query.workflow in (None, execution.workflow)
                and query.execution_id in (None, execution_id)
                and query.signal in (None, wait.name)
                and (after is None or (since, execution_id, node_id) > after)
            ):
                found.append(
                    OpenWait(
                        execution_id=execution_id,
                        workflow=execution.workflow,
                        digest=execution.digest,
                        node_id=node_id,
                        signal=wait.name,
                        prompt=wait.prompt,
                        since=since,
                        expires_at=one.row.parked.due_at,
                    )
                )
        return sorted(found, key=lambda one: (one.since, one.execution_id, one.node_id))[:limit]

    def _end_notification(self, event: NotificationEnded, now: int) -> None:
        one = self._notifications.get(event.notification_id)
        if one is not None and one.state == "pending":
            error = None if event.error is None else shortened(event.error)
            self._notifications[one.id] = replace(
                one, state=state_of(event), ended_at=now, due_at=None, error=error
            )

    async def claim_notifications(self, *, limit: int, lease_seconds: float) -> Sequence[Notification]:
        now = self._now()
        due = [one for one in self._notifications.values() if one.due_at is not None and one.due_at <= now]
        taken = []
        for one in sorted(due, key=lambda one: one.due_at or 0)[:limit]:
            leased = replace(one, due_at=now + micros(lease_seconds), attempts=one.attempts + 1)
            self._notifications[one.id] = leased
            taken.append(leased)
        return taken

    async def put_off_notification(
        self, notification_id: str, *, attempts: int, seconds: float, error: str
    ) -> None:
        one = self._notifications.get(notification_id)
        if one is not None and one.state == "pending" and one.attempts == attempts:
            due_at = self._now() + micros(seconds)
            self._notifications[one.id] = replace(one, due_at=due_at, error=shortened(error))

    async def notifications(self, execution_id: str) -> Sequence[Notification]:
        return [one for one in self._notifications.values() if one.execution_id == execution_id]

    async def drop_letter(
        self, letter_id: str, *, namespace: str = DEFAULT_NAMESPACE, actor: str | None = None
    ) -> bool:
        letter = await self.dead_letter(letter_id, namespace=namespace)
        if letter is None:
            return False
        letters = self._letters[letter.execution_id]
        letters[letters.index(letter)] = replace(letter, state="dropped")
        self._add_change(namespace, actor, "dead_letter.dropped", dead_letter=letter_id)
        return True

    async def drop_letters(
        self, letter_ids: Sequence[str], *, namespace: str = DEFAULT_NAMESPACE, actor: str | None = None
    ) -> int:
        dropped = 0
        for letter_id in dict.fromkeys(letter_ids):
            letter = await self.dead_letter(letter_id, namespace=namespace)
            if letter is not None and letter.state != "dropped":
                dropped += await self.drop_letter(letter_id, namespace=namespace, actor=actor)
        return dropped

    async def put_blob(self, payload: bytes) -> str:
        name = self._new_id()
        self._blobs[name] = payload
        self._blobs_from[name] = self._now()
        return name

    async def append_logs(
        self, chunks: Sequence[LogChunk], *, progress: Sequence[ReportedProgress] = ()
    ) -> None:
        for one in progress:
            if one.execution_id in self._executions:
                told = self._told.setdefault(one.execution_id, {})
                if one.node_id not in told or told[one.node_id][0] <= one.attempt:
                    told[one.node_id] = one.attempt, one.progress
        for chunk in chunks:
            if chunk.execution_id not in self._executions:
                continue
            stored = self._logs.setdefault(chunk.execution_id, [])
            last = stored[-1][1] + len(stored[-1][0].lines) if stored else 0
            if not any(_place_of(chunk) == _place_of(one) for one, _ in stored):
                stored.append((chunk, last + 1))
            stored[:] = [
                (one, first)
                for one, first in stored
                if _place_of(one)[:2] != _place_of(chunk)[:2] or one.number >= chunk.keep_from
            ]

    # -- letting go --------------------------------------------------------------------------------

    def forget(self, execution_id: str) -> None:
        """Drop a terminal execution from memory, and its children: a program that goes on needs none."""
        for each in self._with_children(execution_id):
            self._forget(each)

    def _forget(self, execution_id: str) -> None:
        row = self._executions.get(execution_id)
        if row is not None and row.parent is not None:
            self._forget_child(execution_id, row.parent.execution)
        tables = self._executions, self._nodes, self._events, self._letters, self._logs, self._told
        for table in tables:
            table.pop(execution_id, None)
        self._mailboxes.pop(execution_id, None)
        self._waits = {key: wait for key, wait in self._waits.items() if key[0] != execution_id}
        self._queued.pop(execution_id, None)
        if self._notifications:
            self._notifications = {
                id_: one for id_, one in self._notifications.items() if one.execution_id != execution_id
            }

    async def purge(self, *, finished_before: int, limit: int) -> int:
        old = [
            (row.finished_at, row.id)
            for row in self._executions.values()
            if row.finished_at is not None and row.finished_at < finished_before and row.parent is None
        ]
        purged = [each for _, root in sorted(old)[:limit] for each in self._with_children(root)]
        blobs = {row.blob for id_ in purged for row in self._nodes.get(id_, {}).values()}
        blobs |= {one.blob for id_ in purged for one in self._mailboxes.get(id_, {}).values()}
        for execution_id in reversed(purged):
            self._forget(execution_id)
        blobs -= self._named_blobs()
        self._blobs = {name: payload for name, payload in self._blobs.items() if name not in blobs}
        for id_, batch in list(self._batches.items()):
            if batch.created_at < finished_before and not self._executions.keys() & set(batch.executions):
                del self._batches[id_]
        self._changes = [each for each in self._changes if each[1].at >= finished_before]
        self._drop_unnamed()
        return len(purged)

    def _drop_unnamed(self) -> None:
        """Drop the claims on executions and batches that are gone, and the definitions that nothing names."""
        resources = {f"execution/{id_}" for id_ in self._executions} | {
            f"batch/{id_}" for id_ in self._batches
        }
        self._claims = {key: claim for key, claim in self._claims.items() if claim.resource in resources}
        named = self._named_digests() | {row.digest for row in self._executions.values()}
        for digest in self._documents.keys() - named:
            del self._documents[digest], self._plans[digest]

    # -- reading -----------------------------------------------------------------------------------

    async def active(self, *, not_updated_since: int) -> Sequence[ActiveExecution]:
        return [
            ActiveExecution(row.id, row.generation, row.epoch, row.updated_at, row.seq)
            for row in self._executions.values()
            if not (row.is_terminal or row.evicted)
            and row.updated_at <= not_updated_since
            and row.id not in self._queued
        ]

    async def waiting(self, *, not_updated_since: int) -> Sequence[ActiveExecution]:
        active = await self.active(not_updated_since=not_updated_since)
        return [one for one in active if self._executions[one.id].waiting]

    async def evicted(self) -> Sequence[str]:
        return [row.id for row in self._executions.values() if row.evicted and not row.is_terminal]

    async def execution(self, execution_id: str, *, namespace: str | None = None) -> ExecutionRow | None:
        row = self._executions.get(execution_id)
        return row if row is not None and namespace in (None, row.namespace) else None

    async def nodes(
        self, execution_id: str, *, names: Collection[str] | None = None
    ) -> Mapping[str, NodeRow]:
        rows = self._nodes.get(execution_id, {})
        return dict(rows) if names is None else {name: rows[name] for name in names if name in rows}

    async def node_states(
        self, execution_id: str, *, names: Collection[str] | None = None
    ) -> Mapping[str, NodeRow]:
        rows = await self.nodes(execution_id, names=names)
        return {name: row if row.output is None else replace(row, output=None) for name, row in rows.items()}

    async def events(
        self,
        execution_id: str,
        *,
        after: int = 0,
        limit: int = 500,
        nodes: Collection[str] | None = None,
    ) -> Sequence[History]:
        if nodes is None:
            return self.history(execution_id, after, after + limit)
        found = (
            self._event(execution_id, stored)
            for stored in self._events.get(execution_id, [])[after:]
            if (stored if isinstance(stored, str) else stored.node) in nodes
        )
        return list(islice(found, limit))

    def history(self, execution_id: str, after: int = 0, last: int | None = None) -> list[History]:
        """Return the events behind number ``after``, up to number ``last`` or to the end."""
        return [
            self._event(execution_id, stored) for stored in self._events.get(execution_id, [])[after:last]
        ]

    def _event(self, execution_id: str, stored: History | str) -> History:
        """Return an event; ``stored``: the event itself, or the id of the node whose row stands for it."""
        if isinstance(stored, History):
            return stored
        row = self._nodes[execution_id][stored]
        return completion_event(execution_id, row, digest_of(row.output))

    async def logs(
        self,
        execution_id: str,
        *,
        after: int = 0,
        limit: int = 50,
        node_id: str | None = None,
        attempt: int | None = None,
    ) -> Sequence[StoredChunk]:
        stored = self._logs.get(execution_id, [])
        oldest: dict[tuple[str, int], int] = {}
        for chunk, _ in stored:
            place = chunk.node_id, chunk.attempt
            oldest[place] = min(chunk.number, oldest.get(place, chunk.number))
        found = [
            StoredChunk(
                node_id=chunk.node_id,
                attempt=chunk.attempt,
                first_seq=first,
                lines_gone=chunk.lines_before if chunk.number == oldest[chunk.node_id, chunk.attempt] else 0,
                lines=chunk.lines,
            )
            for chunk, first in stored
            if first + len(chunk.lines) > after
            and node_id in (None, chunk.node_id)
            and attempt in (None, chunk.attempt)
        ]
        return found[:limit]

    async def progress(
        self, execution_id: str, *, names: Collection[str] | None = None
    ) -> Mapping[str, tuple[int, NodeProgress]]:
        told = self._told.get(execution_id, {})
        return {name: said for name, said in told.items() if names is None or name in names}

    async def claim(self, key: str, *, namespace: str = DEFAULT_NAMESPACE) -> Claim | None:
        return self._claims.get((namespace, key))

    async def batch(self, batch_id: str, *, namespace: str = DEFAULT_NAMESPACE) -> Batch | None:
        batch = self._batches.get(batch_id)
        if batch is None or batch.new.namespace != namespace:
            return None
        rows = self._present(batch.executions)
        counts = Counter(row.state for row in rows)
        ends = [row.finished_at for row in rows if row.finished_at is not None]
        return Batch(
            id=batch_id,
            workflow=batch.new.workflow,
            version=batch.new.version,
            total=len(batch.executions),
            counts={state: counts[state] for state in ExecutionState},
            retried=sum(
                max(node.attempt - 1, 0) for row in rows for node in self._nodes.get(row.id, {}).values()
            ),
            created_at=batch.created_at,
            finished_at=max(ends, default=batch.created_at) if len(ends) == len(rows) else None,
        )

    async def batches(
        self,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        before: tuple[int, str] | None = None,
        limit: int = 50,
    ) -> Sequence[Batch]:
        newest_first = sorted(((one.created_at, id_) for id_, one in self._batches.items()), reverse=True)
        ids = [id_ for created_at, id_ in newest_first if before is None or (created_at, id_) < before]
        read = [await self.batch(id_, namespace=namespace) for id_ in ids]
        return [one for one in read if one is not None][:limit]

    async def batch_results(
        self, batch_id: str, *, after: int = -1, limit: int = 50, most_bytes: int = RESULTS_BYTES
    ) -> Sequence[tuple[int, ExecutionRow]]:
        batch = self._batches.get(batch_id)
        ids = () if batch is None else batch.executions
        index_of = {id_: index for index, id_ in enumerate(ids)}
        found: list[tuple[int, ExecutionRow]] = []
        for row in self._present(ids[after + 1 :])[:limit]:
            found.append((index_of[row.id], replace(row, input=b"")))
            most_bytes -= len(row.output or b"")
            if most_bytes <= 0:
                break
        return found

    def _present(self, ids: Iterable[str]) -> list[ExecutionRow]:
        return [row for id_ in ids if (row := self._executions.get(id_)) is not None]

    async def dead_letter(self, letter_id: str, *, namespace: str = DEFAULT_NAMESPACE) -> DeadLetter | None:
        for execution_id, letters in self._letters.items():
            for letter in letters:
                if letter.id == letter_id:
                    return letter if self._executions[execution_id].namespace == namespace else None
        return None

    def _named_blobs(self) -> set[str | None]:
        """Return the blobs that rows and mailboxes name."""
        named = {row.blob for rows in self._nodes.values() for row in rows.values()}
        return named | {one.blob for box in self._mailboxes.values() for one in box.values()}

    async def sweep_blobs(self, *, older_than: int) -> int:
        now = self._now()
        self._cache = {key: entry for key, entry in self._cache.items() if entry[1] > now}
        named = self._named_blobs()
        self._blobs_from = {name: at for name, at in self._blobs_from.items() if name in self._blobs}
        swept = [name for name, at in self._blobs_from.items() if at < older_than and name not in named]
        for name in swept:
            del self._blobs[name], self._blobs_from[name]
        return len(swept)

    async def cached(self, keys: Sequence[str]) -> Mapping[str, bytes]:
        return self._hits(keys)

    async def cached_sizes(self, keys: Sequence[str]) -> Mapping[str, int]:
        return {key: len(output) for key, output in self._hits(keys).items()}

    def _hits(self, keys: Sequence[str]) -> Mapping[str, bytes]:
        now = self._now()
        hits = ((key, self._cache.get(key)) for key in keys)
        return {key: hit[0] for key, hit in hits if hit is not None and hit[1] > now}

    async def drop_blobs(self, names: Sequence[str]) -> None:
        named = self._named_blobs()
        for name in names:
            if name not in named:
                self._blobs.pop(name, None)

    async def blobs(self, names: Sequence[str]) -> Mapping[str, bytes]:
        return {name: self._blobs[name] for name in names if name in self._blobs}

    async def check(self) -> None:
        pass

    async def signing_key(self) -> bytes:
        return self._signing_key

    async def schema(self) -> JournalSchema:
        return JournalSchema(database="memory")

    async def stats(self) -> JournalStats:
        counts = Counter(row.state for row in self._executions.values())
        return JournalStats(
            executions={state: counts[state] for state in ExecutionState if state not in TERMINAL},
            open_letters=sum(
                letter.state == "open" for letters in self._letters.values() for letter in letters
            ),
        )


def accepted_claim(claim: Claim | None, recorded_events: Sequence[RecordedEvent]) -> Claim | None:
    """Return the claim of a control call if the journal accepted the call: only then is the key taken."""
    if claim is None:
        return None
    (recorded_event,) = recorded_events
    return claim if recorded_event.verdict is Verdict.ACCEPTED else None


def admit(submission: Submission, ledger: Ledger, batch: NewBatch | None = None) -> ExecutionRow:
    """Add the execution of a submission to a ledger; return its row."""
    execution = ExecutionRow(
        id=submission.id,
        namespace=submission.namespace,
        workflow=submission.workflow,
        version=submission.version,
        digest=submission.plan.digest,
        state=ExecutionState.PENDING,
        generation=1,
        epoch=1,
        total=len(submission.plan.nodes),
        unsettled=len(submission.plan.nodes),
        seq=0,
        input=submission.input,
        created_at=0,
    )
    # Not above: Python packs more than 15 arguments into a dict, which takes longer than all the rest.
    execution.labels, execution.priority = submission.labels, submission.priority
    execution.batch = submission.batch if batch is None else batch.id
    execution.partition, execution.forked_from = submission.partition, submission.forked_from
    execution.traceparent = submission.traceparent
    execution.trigger, execution.lane = submission.trigger, submission.lane
    execution.group_name = submission.group_name
    return ledger.admit(
        execution,
        submission.plan,
        # What waits in its lane is started when its turn has come.
        starts=submission.starts and not submission.queue_slots and submission.group_name is None,
        actor=submission.actor,
        kept=submission.kept,
        lane_slots=submission.queue_slots,
    )
