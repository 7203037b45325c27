"""A journal in this process's memory: the reference for the others, and what a script runs on.

It keeps every promise of the contract but one: it does not survive the process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.core.bounds import DEFAULT_BOUNDS, Bounds
from weft.core.ledger import Changes, Ledger, Standing, moved_letter
from weft.core.row import DeadLetter, ExecutionRow, History, NodeRow
from weft.core.snapshot import Snapshot
from weft.core.state import ExecutionState
from weft.core.time import micros
from weft.journal.contract import DEFAULT_NAMESPACE, ActiveExecution, Submission

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from weft.core.event import Event
    from weft.core.plan import Plan


class MemoryJournal:
    def __init__(
        self, *, now: Callable[[], int], new_id: Callable[[], str], bounds: Bounds = DEFAULT_BOUNDS
    ) -> None:
        self._now = now
        self._new_id = new_id
        self._bounds = bounds
        self._plans: dict[str, Plan] = {}
        self._executions: dict[str, ExecutionRow] = {}
        self._nodes: dict[str, dict[str, NodeRow]] = {}
        self._events: dict[str, list[History]] = {}
        self._letters: dict[str, list[DeadLetter]] = {}
        # key → (output, good until)
        self._cache: dict[str, tuple[bytes, int]] = {}
        self._blobs: dict[str, bytes] = {}

    async def open(self) -> None:
        pass

    async def close(self) -> None:
        pass

    # -- writing -----------------------------------------------------------------------------------

    async def submit(self, submissions: Sequence[Submission]) -> Sequence[ExecutionRow]:
        ledger = self._ledger()
        rows = []
        for submission in submissions:
            self._plans.setdefault(submission.plan.digest, submission.plan)
            rows.append(ledger.admit(new_execution(submission)))
        self._commit(ledger.changes)
        return rows

    async def record(self, events: Sequence[Event]) -> Sequence[Standing]:
        ledger = self._ledger()
        standings = [ledger.record(event) for event in events]
        self._commit(ledger.changes)
        return standings

    async def rebuild(self, execution_id: str, *, seen_epoch: int) -> Snapshot | None:
        ledger = self._ledger()
        execution = ledger.rebuild(execution_id, seen_epoch=seen_epoch)
        if execution is None:
            return None
        self._commit(ledger.changes)
        rows = list(self._nodes.get(execution_id, {}).values())
        return Snapshot(execution, self._plans[execution.digest], rows)

    def _ledger(self) -> Ledger:
        return Ledger(
            executions=self._executions,
            nodes=self._nodes,
            plan_of=self._plans.__getitem__,
            load_blob=self._blobs.__getitem__,
            new_id=self._new_id,
            max_payload_bytes=self._bounds.max_payload_bytes,
            now=self._now(),
        )

    def _commit(self, changes: Changes) -> None:
        self._executions.update(changes.executions)
        for execution_id, rows in changes.nodes.items():
            self._nodes.setdefault(execution_id, {}).update(rows)
        for event in changes.events:
            self._events.setdefault(event.execution, []).append(event)
        for execution_id, node_id, state in changes.letter_states:
            self._letters[execution_id] = [
                moved_letter(letter, node_id, state) for letter in self._letters.get(execution_id, [])
            ]
        for letter in changes.letters:
            self._letters.setdefault(letter.execution_id, []).append(letter)
        now = self._now()
        for key, output, blob, ttl_seconds in changes.cache:
            payload = output if blob is None else self._blobs[blob]
            assert payload is not None
            self._cache[key] = (payload, now + micros(ttl_seconds))

    def forget(self, execution_id: str) -> None:
        """Let go of a terminal execution: a program that goes on has no use for it."""
        for held in (self._executions, self._nodes, self._events, self._letters):
            held.pop(execution_id, None)

    async def put_blob(self, payload: bytes) -> str:
        name = self._new_id()
        self._blobs[name] = payload
        return name

    # -- reading -----------------------------------------------------------------------------------

    async def active(self, *, not_updated_since: int) -> Sequence[ActiveExecution]:
        return [
            ActiveExecution(row.id, row.generation, row.epoch, row.updated_at)
            for row in self._executions.values()
            if not row.is_terminal and row.updated_at <= not_updated_since
        ]

    async def plan(self, digest: str) -> Plan | None:
        return self._plans.get(digest)

    async def execution(self, execution_id: str, *, namespace: str | None = None) -> ExecutionRow | None:
        row = self._executions.get(execution_id)
        return row if row is not None and namespace in (None, row.namespace) else None

    async def nodes(self, execution_id: str) -> Mapping[str, NodeRow]:
        return dict(self._nodes.get(execution_id, {}))

    async def events(self, execution_id: str, *, after: int = 0, limit: int = 500) -> Sequence[History]:
        return self._events.get(execution_id, [])[after : after + limit]

    async def executions(
        self, *, namespace: str = DEFAULT_NAMESPACE, limit: int = 50
    ) -> Sequence[ExecutionRow]:
        rows = [row for row in self._executions.values() if row.namespace == namespace]
        return sorted(rows, key=lambda row: (row.created_at, row.id), reverse=True)[:limit]

    async def dead_letters(
        self, *, execution_id: str | None = None, namespace: str = DEFAULT_NAMESPACE, limit: int = 50
    ) -> Sequence[DeadLetter]:
        letters = [
            letter
            for letters in self._letters.values()
            for letter in letters
            if execution_id in (None, letter.execution_id)
            and self._executions[letter.execution_id].namespace == namespace
        ]
        return sorted(letters, key=lambda letter: (letter.created_at, letter.id), reverse=True)[:limit]

    async def cached(self, keys: Sequence[str]) -> Mapping[str, bytes]:
        now = self._now()
        hits = ((key, self._cache.get(key)) for key in keys)
        return {key: hit[0] for key, hit in hits if hit is not None and hit[1] > now}

    async def blobs(self, names: Sequence[str]) -> Mapping[str, bytes]:
        return {name: self._blobs[name] for name in names if name in self._blobs}


def new_execution(submission: Submission) -> ExecutionRow:
    """Make the row of a new execution; the ledger puts the times in."""
    return ExecutionRow(
        id=submission.id,
        namespace=submission.namespace,
        workflow=submission.workflow,
        version=submission.version,
        digest=submission.plan.digest,
        state=ExecutionState.PENDING,
        generation=1,
        epoch=1,
        unsettled=len(submission.plan.nodes),
        failed=0,
        seq=0,
        input=submission.input,
        labels=submission.labels,
        priority=submission.priority,
        batch=submission.batch,
        created_at=0,
    )
