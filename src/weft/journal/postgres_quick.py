"""Recording in one round trip: judge by what this process has seen last, write if that is how it still is.

Most events are results of executions that this process has recorded for before. They are judged by the rows
that are kept (``Recent``), and written by one statement that locks the executions in the order of their
numbers, passes over those that somebody else has changed since, and commits. For these, and for executions
that are not kept, the rows are read without a lock and it is tried again; what is then still in somebody's
way is recorded behind a lock, as everything else is that is not a plain step of an execution.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from weft.core.event import AttemptFailed, Event, ExecutionStarted, NodeCached, NodeCompleted, NodeSkipped
from weft.core.ledger import Ledger, Standing
from weft.core.time import MICROSECONDS
from weft.errors import OutcomeUnknownError
from weft.journal import postgres_changes as changes
from weft.journal import postgres_queries as queries
from weft.journal import postgres_rows as rows
from weft.journal.postgres_connection import was_lost
from weft.journal.postgres_recent import Recent, may_be_kept

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from weft.core.bounds import Bounds
    from weft.core.plan import Plan
    from weft.core.row import ExecutionRow
    from weft.journal.plans import PlanCache
    from weft.journal.postgres_connection import Connection
    from weft.journal.postgres_facts import Facts

_PLAIN = frozenset({ExecutionStarted, NodeCompleted, NodeCached, NodeSkipped, AttemptFailed})
_TRIES = 2


class _UnreadError(Exception):
    """A blob is needed that was not read."""


class QuickRecorder:
    def __init__(
        self,
        *,
        now: Callable[[], int] | None,
        new_id: Callable[[], str],
        bounds: Bounds,
        plans: PlanCache,
        facts: Facts,
        find_plan: Callable[[Connection, str], Awaitable[Plan]],
    ) -> None:
        self._now = now
        self._new_id = new_id
        self._bounds = bounds
        self._plans = plans
        self._facts = facts
        self._find_plan = find_plan
        self._recent = Recent()
        # What was written, perhaps: the answer was lost. Standings by execution, its number beside them.
        self._unknown: dict[str, tuple[int, list[Standing]]] = {}
        # How far the database's clock is ahead of the loop's; None: it was not asked yet.
        self._ahead: int | None = None

    def forget(self, execution_ids: Iterable[str]) -> None:
        """Let go of executions that are changed in another way."""
        for execution_id in execution_ids:
            self._recent.drop(execution_id)

    def heard(self, clock: int) -> None:
        """Note the time that the database has just said."""
        self._ahead = clock - _loop_time()

    async def record(
        self, connection: Connection, events: Mapping[str, Sequence[Event]]
    ) -> dict[str, list[Standing]]:
        """Record the events of those executions that can be done so; give their standings."""
        left = {id_: own for id_, own in events.items() if self._is_plain(id_, own)}
        done = await self._ask_after(connection, left) if self._unknown else {}
        for _ in range(_TRIES):
            if not left:
                break
            await self._take_up(connection, left)
            standings = await self._try(connection, left)
            for execution_id in standings:
                del left[execution_id]
            done |= standings
        return done

    async def _ask_after(
        self, connection: Connection, left: dict[str, Sequence[Event]]
    ) -> dict[str, list[Standing]]:
        """Look for what was written, perhaps: it is there if the last thing that was to happen has happened.

        What others have written there instead differs at least in its time.
        """
        unknown, self._unknown = self._unknown, {}
        lasts = {}
        for id_, (number, standings) in unknown.items():
            if [standing.event for standing in standings] == left.get(id_):
                last = [told for standing in standings for told in standing.history][-1]
                lasts[id_] = rows.event_values(number, last)
        found = await queries.events_at(connection, [(number, seq) for number, seq, *_ in lasts.values()])
        done = {
            id_: unknown[id_][1]
            for id_, (number, seq, _, body) in lasts.items()
            if found.get((number, seq)) == body
        }
        for execution_id in done:
            del left[execution_id]
        return done

    def _is_plain(self, execution_id: str, events: Sequence[Event]) -> bool:
        if not all(
            type(event) in _PLAIN and not (type(event) is NodeCompleted and event.cache_key is not None)
            for event in events
        ):
            return False
        known = self._facts.get(execution_id)
        if known is None:
            return "\0" not in execution_id
        plan = self._plans.get(known[1].digest)
        return plan is None or may_be_kept(plan)

    async def _take_up(self, connection: Connection, execution_ids: Iterable[str]) -> None:
        """Read executions that are not kept, without a lock."""
        missing = [id_ for id_ in execution_ids if self._recent.get(id_) is None]
        if not missing and (self._ahead is not None or self._now is not None):
            return
        if self._ahead is None and self._now is None:
            self.heard(await queries.clock(connection))
        begun = []
        for number, row in await queries.executions(connection, missing):
            self._facts.put(number, row)
            if row.is_terminal or not may_be_kept(await self._find_plan(connection, row.digest)):
                continue
            if row.seq == 1:
                self._recent.put(number, row, {})  # nothing has happened yet
            else:
                begun.append((number, row))
        if begun:
            # Read behind the execution's row: rows that are younger than that are seen by its seq.
            nodes = await queries.all_nodes(connection, [number for number, _ in begun])
            for number, row in begun:
                self._recent.put(number, row, nodes[number])

    async def _try(
        self, connection: Connection, events: Mapping[str, Sequence[Event]]
    ) -> dict[str, list[Standing]]:
        """Judge by what is kept, and write; give the standings of what was so still."""
        kept = {id_: seen for id_ in events if (seen := self._recent.get(id_)) is not None}
        if not kept:
            return {}
        before = {id_: seen.execution for id_, seen in kept.items()}
        plans = {row.digest: await self._find_plan(connection, row.digest) for row in before.values()}
        ledger = Ledger(
            executions=before,
            nodes={id_: seen.nodes for id_, seen in kept.items()},
            plan_of=plans.__getitem__,
            load_blob=_not_read,
            new_id=self._new_id,
            max_payload_bytes=self._bounds.max_payload_bytes,
            now=self._time(before.values()),
        )
        standings: dict[str, list[Standing]] = {}
        try:
            for id_ in kept:
                standings[id_] = [ledger.record(event) for event in events[id_]]
        except _UnreadError:
            self.forget(kept)
            return {}
        # What changes nothing is not written, so nothing would say whether it was judged by what is so still.
        # And of letters and caches no statement here knows.
        left_out = {id_ for id_, row in before.items() if ledger.changes.executions[id_].seq == row.seq}
        left_out |= {id_ for id_, _, _ in ledger.changes.letter_states}
        left_out |= {letter.execution_id for letter in ledger.changes.letters}
        for id_ in left_out:
            del before[id_], standings[id_], ledger.changes.executions[id_]
            ledger.changes.nodes.pop(id_, None)
        if left_out:
            events_left = [event for event in ledger.changes.events if event.execution not in left_out]
            ledger.changes.events = events_left
            self.forget(left_out)
        if not before:
            return {}
        numbers = {id_: seen.number for id_, seen in kept.items()}
        nodes = {id_: seen.nodes for id_, seen in kept.items()}
        try:
            written = await changes.write_if_current(connection, ledger.changes, before, nodes, numbers)
        except Exception as error:
            self.forget(before)
            if was_lost(error) or connection.is_closed():
                self._unknown = {id_: (numbers[id_], own) for id_, own in standings.items()}
                raise OutcomeUnknownError(f"the answer was lost: {error!r}") from error
            raise
        if written is None:
            self.forget(before)
            return {}
        clock, current = written
        self.heard(clock)
        for id_ in before:
            if numbers[id_] not in current:
                self._recent.drop(id_)
                del standings[id_]
                continue
            row = ledger.changes.executions[id_]
            if row.is_terminal:
                self._recent.drop(id_)
            else:
                self._recent.put(numbers[id_], row, ledger.changes.nodes.get(id_, {}))
        return standings

    def _time(self, executions: Iterable[ExecutionRow]) -> int:
        """Give the database's time, as far as it is known, and none that is before what is recorded."""
        if self._now is not None:
            return self._now()
        assert self._ahead is not None
        return max(_loop_time() + self._ahead, *(row.updated_at for row in executions))


def _loop_time() -> int:
    return int(asyncio.get_running_loop().time() * MICROSECONDS)


def _not_read(_: str) -> bytes:
    raise _UnreadError
