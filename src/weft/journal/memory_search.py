"""The lists and searches of the journal in memory: each walks over all there is."""

from __future__ import annotations

from collections import Counter
from heapq import nlargest
from typing import TYPE_CHECKING

from msgspec.structs import replace

from weft.core.rows import DeadLetter, ExecutionRow, History, NodeRow
from weft.core.state import TERMINAL, ExecutionState, NodeState
from weft.definition.waits import WaitKind
from weft.journal.contract import (
    DEFAULT_NAMESPACE,
    EVERY_EXECUTION,
    EVERY_LETTER,
    ExecutionQuery,
    LetterQuery,
)
from weft.journal.search import (
    ID_CHARACTERS,
    MAX_COUNTED,
    MAX_WALKED,
    Found,
    LetterGroup,
    NamespaceCounts,
    NodeRuns,
    PeriodCounts,
    code_of,
    failure_terms,
    folded,
    group_key,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


class MemorySearch:
    """The part of a journal that lists executions and dead letters by conditions."""

    _now: Callable[[], int]
    _executions: dict[str, ExecutionRow]
    _events: dict[str, list[History | str]]
    _nodes: dict[str, dict[str, NodeRow]]
    _letters: dict[str, list[DeadLetter]]

    async def executions(
        self,
        query: ExecutionQuery = EVERY_EXECUTION,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        before: tuple[int, str] | None = None,
        limit: int = 50,
    ) -> Sequence[ExecutionRow]:
        found = (
            row
            for row in self._executions.values()
            if row.namespace == namespace
            and _is_asked_for(row, query)
            and self._is_searched_for(row, query)
            and (before is None or (row.created_at, row.id) < before)
        )
        newest = nlargest(limit, found, key=lambda row: (row.created_at, row.id))
        return [replace(row, input=b"", output=None) for row in newest]

    async def search(
        self,
        query: ExecutionQuery,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        before: tuple[int, str] | None = None,
        limit: int = 50,
    ) -> Found[ExecutionRow]:
        text = query.text
        if text is not None and len(text) >= ID_CHARACTERS:
            beginning = folded(text)
            ids = [
                row.id
                for row in self._executions.values()
                if row.namespace == namespace and row.id.startswith(beginning)
            ]
            if ids:
                found = await self.executions(
                    replace(query, text=None), namespace=namespace, before=before, limit=len(self._executions)
                )
                return Found(rows=[row for row in found if row.id in ids][:limit])
        rows = await self.executions(query, namespace=namespace, before=before, limit=limit)
        return Found(rows=rows)

    def _is_searched_for(self, row: ExecutionRow, query: ExecutionQuery) -> bool:
        terms = [("error", query.error), ("node", query.node), ("worker", query.worker)]
        wanted = {(field, value) for field, value in terms if value is not None}
        if wanted and not wanted <= self._failure_terms(row.id):
            return False
        if query.text is not None and not _has_text(row, query.text):
            return False
        if query.min_microseconds is None and query.max_microseconds is None:
            return True
        if row.started_at is None:
            return False
        took = (self._now() if row.finished_at is None else row.finished_at) - row.started_at
        return (query.min_microseconds or 0) <= took and (
            query.max_microseconds is None or took <= query.max_microseconds
        )

    def _failure_terms(self, execution_id: str) -> set[tuple[str, str]]:
        stored = self._events.get(execution_id, [])
        return {term for event in stored if isinstance(event, History) for term in failure_terms(event)}

    async def dead_letters(
        self,
        query: LetterQuery = EVERY_LETTER,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        before: tuple[int, str] | None = None,
        limit: int = 50,
    ) -> Sequence[DeadLetter]:
        found = (
            letter
            for execution_id, letters in self._letters.items()
            if self._executions[execution_id].namespace == namespace
            for letter in letters
            if query.execution_id in (None, execution_id)
            and query.workflow in (None, letter.workflow or "")
            and query.state in (None, letter.state)
            and query.code in (None, code_of(letter.error) or "")
            and query.node in (None, letter.node_id)
            and (query.text is None or _has_text(self._executions[execution_id], query.text))
            and (before is None or (letter.created_at, letter.id) < before)
        )
        return nlargest(limit, found, key=lambda letter: (letter.created_at, letter.id))

    async def search_letters(
        self,
        query: LetterQuery,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        before: tuple[int, str] | None = None,
        limit: int = 50,
    ) -> Found[DeadLetter]:
        return Found(rows=await self.dead_letters(query, namespace=namespace, before=before, limit=limit))

    async def letter_groups(
        self,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        state: str = "open",
        workflow: str | None = None,
        after: str | None = None,
        limit: int = 50,
    ) -> Sequence[LetterGroup]:
        groups = await self._groups(namespace, LetterQuery(state=state, workflow=workflow))
        return [groups[key] for key in sorted(groups) if after is None or key > after][:limit]

    async def newest_letter_groups(
        self, *, namespace: str = DEFAULT_NAMESPACE, state: str = "open", limit: int = 10
    ) -> Sequence[LetterGroup]:
        return list((await self._groups(namespace, LetterQuery(state=state))).values())[:limit]

    async def namespace_counts(self, *, namespace: str = DEFAULT_NAMESPACE) -> NamespaceCounts:
        states = Counter(row.state for row in self._executions.values() if row.namespace == namespace)
        letters = await self.dead_letters(LetterQuery(state="open"), namespace=namespace, limit=MAX_COUNTED)
        return NamespaceCounts(
            executions={state: states[state] for state in ExecutionState if state not in TERMINAL},
            open_letters=len(letters),
            open_waits=sum(
                row.wait is not None and row.wait.kind is WaitKind.SIGNAL
                for id_, rows in self._nodes.items()
                if self._executions[id_].namespace == namespace
                for row in rows.values()
            ),
        )

    async def period_counts(
        self, *, namespace: str = DEFAULT_NAMESPACE, since: int, until: int
    ) -> PeriodCounts:
        rows = [row for row in self._executions.values() if row.namespace == namespace and row.parent is None]
        ends = Counter(
            row.state for row in rows if row.finished_at is not None and since <= row.finished_at < until
        )
        return PeriodCounts(
            created=sum(since <= row.created_at < until for row in rows),
            ended={state: ends[state] for state in ExecutionState if state in TERMINAL},
        )

    async def node_runs(self, execution_ids: Sequence[str]) -> Mapping[str, NodeRuns]:
        durations: dict[str, list[int]] = {}
        failures = Counter[str]()
        for execution_id in execution_ids:
            failures.update(letter.node_id for letter in self._letters.get(execution_id, []))
            for row in self._nodes.get(execution_id, {}).values():
                if row.state is NodeState.COMPLETED and not row.has_no_attempt:
                    assert row.started_at is not None
                    assert row.finished_at is not None
                    durations.setdefault(row.node_id, []).append(row.finished_at - row.started_at)
        return {
            node_id: NodeRuns(durations=durations.get(node_id, []), failures=failures[node_id])
            for node_id in {*durations, *failures}
        }

    async def _groups(self, namespace: str, query: LetterQuery) -> dict[str, LetterGroup]:
        """Return all groups by their keys, the one with the newest letter first."""
        most = sum(map(len, self._letters.values()))
        letters: dict[str, list[DeadLetter]] = {}
        for letter in await self.dead_letters(query, namespace=namespace, limit=most):
            letters.setdefault(_group_of(letter), []).append(letter)
        return {key: _group(own) for key, own in letters.items()}


def _group_of(letter: DeadLetter) -> str:
    return group_key(letter.workflow, letter.node_id, code_of(letter.error))


def _group(letters: Sequence[DeadLetter]) -> LetterGroup:
    """Return the group of letters that are given newest first."""
    newest = letters[0]
    counted = letters[:MAX_WALKED]
    return LetterGroup(
        workflow=newest.workflow,
        node_id=newest.node_id,
        code=code_of(newest.error),
        count=len(counted),
        executions=len({letter.execution_id for letter in counted}),
        first_at=letters[-1].created_at,
        last_at=newest.created_at,
        sample=newest,
    )


def _is_asked_for(row: ExecutionRow, query: ExecutionQuery) -> bool:
    return (
        query.workflow in (None, row.workflow)
        and query.version in (None, row.version)
        and (not query.states or row.state in query.states)
        and all(row.labels.get(key) == value for key, value in query.labels)
        and query.batch in (None, row.batch)
        and query.trigger in (None, row.trigger)
        and query.group in (None, row.group_name)
        and query.parent == (None if row.parent is None else row.parent.execution)
        and (query.created_after is None or row.created_at >= query.created_after)
        and (query.created_before is None or row.created_at < query.created_before)
    )


def _has_text(row: ExecutionRow, text: str) -> bool:
    wanted = folded(text)
    texts = [row.workflow or "", *row.labels.values()]
    return row.id.startswith(wanted) or any(wanted in folded(each) for each in texts)
