"""Recording in one round trip: judge by what this process has seen last, write if that is how it still is.

Most events are results of executions that this process has recorded for before. They are judged by the rows
that are kept (``Seen``), and written by one statement that locks the executions in the order of their
numbers, passes over those that somebody else has changed since, and commits. For these, and for executions
that are not kept, the rows are read without a lock and it is tried again; what is then still in somebody's
way is recorded behind a lock, as everything else is that is not a plain step of an execution.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.core.event import AttemptFailed, Event, ExecutionStarted, NodeCached, NodeCompleted, NodeSkipped
from weft.core.ledger import Ledger, Standing
from weft.errors import OutcomeUnknownError
from weft.journal import postgres_changes as changes
from weft.journal import postgres_queries as queries
from weft.journal.postgres_connection import was_lost
from weft.journal.postgres_recent import Seen, may_be_kept, recent_executions

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence

    from weft.core.bounds import Bounds
    from weft.core.ledger import Changes
    from weft.core.plan import Plan
    from weft.core.row import ExecutionRow, NodeRow
    from weft.journal.plans import PlanCache
    from weft.journal.postgres_clock import DatabaseClock
    from weft.journal.postgres_connection import Connection
    from weft.journal.postgres_recent import Facts

_PLAIN = frozenset({ExecutionStarted, NodeCompleted, NodeCached, NodeSkipped, AttemptFailed})
_TRIES = 2


class _UnreadError(Exception):
    """A blob is needed that was not read."""


class QuickRecorder:
    def __init__(
        self,
        *,
        clock: DatabaseClock,
        new_id: Callable[[], str],
        bounds: Bounds,
        plans: PlanCache,
        facts: Facts,
        find_plan: Callable[[Connection, str], Awaitable[Plan]],
    ) -> None:
        self._clock = clock
        self._new_id = new_id
        self._bounds = bounds
        self._plans = plans
        self._facts = facts
        self._find_plan = find_plan
        self._recent = recent_executions()
        # What was written, perhaps: the answer was lost. Standings by execution.
        self._unknown: dict[str, list[Standing]] = {}

    def forget(self, execution_ids: Iterable[str]) -> None:
        """Let go of executions that are changed in another way."""
        for execution_id in execution_ids:
            self._recent.drop(execution_id)

    def clear(self) -> None:
        """Let go of everything: the database has lost commits."""
        self._recent = recent_executions()
        self._unknown = {}

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
        done = {}
        for id_, standings in unknown.items():
            if [standing.event for standing in standings] != left.get(id_):
                continue
            last = [told for standing in standings for told in standing.history][-1]
            if await queries.event_at(connection, id_, last.seq) == last:
                done[id_] = standings
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
        if self._clock.time() is None:
            self._clock.hear(await queries.clock(connection))
        if not missing:
            return
        begun = []
        for number, row in await queries.executions(connection, missing):
            self._facts.put(row.id, (number, row))
            if row.is_terminal or not may_be_kept(await self._find_plan(connection, row.digest)):
                continue
            if row.seq <= 2:
                self._keep(number, row, {})  # created and perhaps started: no node has a row
            else:
                begun.append((number, row))
        if begun:
            # Read behind the execution's row: rows that are younger than that are seen by its seq.
            nodes = await queries.all_nodes(connection, [number for number, _ in begun])
            for number, row in begun:
                self._keep(number, row, nodes[number])

    def _keep(self, number: int, row: ExecutionRow, rows: Mapping[str, NodeRow]) -> None:
        seen = self._recent.get(row.id) or Seen(number, row, {})
        seen.add(row, rows)
        self._recent.put(row.id, seen)

    async def _try(
        self, connection: Connection, events: Mapping[str, Sequence[Event]]
    ) -> dict[str, list[Standing]]:
        """Judge by what is kept, and write; give the standings of what was so still."""
        kept = {id_: seen for id_ in events if (seen := self._recent.get(id_)) is not None}
        if not kept:
            return {}
        plans = {
            seen.execution.digest: await self._find_plan(connection, seen.execution.digest)
            for seen in kept.values()
        }
        judged = self._judge(events, kept, plans)
        if judged is None:
            self.forget(kept)
            return {}
        standings, gathered = judged
        self._leave_out(kept, standings, gathered)
        written = await self._write(connection, kept, standings, gathered) if kept else set()
        for id_, seen in kept.items():
            row = gathered.executions[id_]
            if seen.number not in written:
                del standings[id_]
            if seen.number not in written or row.is_terminal:
                self._recent.drop(id_)
                self._facts.drop(id_)
            else:
                self._keep(seen.number, row, gathered.nodes.get(id_, {}))
        return standings

    def _judge(
        self, events: Mapping[str, Sequence[Event]], kept: Mapping[str, Seen], plans: Mapping[str, Plan]
    ) -> tuple[dict[str, list[Standing]], Changes] | None:
        """Give the standings of each execution's events, and what they change; None: it takes a blob."""
        ledger = Ledger(
            executions={id_: seen.execution for id_, seen in kept.items()},
            nodes={id_: seen.nodes for id_, seen in kept.items()},
            plan_of=plans.__getitem__,
            load_blob=_not_read,
            new_id=self._new_id,
            max_payload_bytes=self._bounds.max_payload_bytes,
            keeps=True,
            now=self._time_behind(seen.execution for seen in kept.values()),
        )
        try:
            return {id_: [ledger.record(event) for event in events[id_]] for id_ in kept}, ledger.changes
        except _UnreadError:
            return None

    def _leave_out(
        self, kept: dict[str, Seen], standings: dict[str, list[Standing]], gathered: Changes
    ) -> None:
        """Leave to the transaction behind a lock what cannot be written here.

        What changes nothing is not written, so nothing would say whether it was judged by what is so still.
        And of letters no statement here knows.
        """
        left_out = {id_ for id_, seen in kept.items() if gathered.executions[id_].seq == seen.execution.seq}
        left_out |= {id_ for id_, _, _ in gathered.letter_states}
        left_out |= {letter.execution_id for letter in gathered.letters}
        if not left_out:
            return
        gathered.events = [event for event in gathered.events if event.execution not in left_out]
        for id_ in left_out:
            del kept[id_], standings[id_], gathered.executions[id_]
            gathered.nodes.pop(id_, None)
        self.forget(left_out)

    async def _write(
        self,
        connection: Connection,
        kept: Mapping[str, Seen],
        standings: Mapping[str, list[Standing]],
        gathered: Changes,
    ) -> Collection[int]:
        """Write what has not changed since; give the numbers of these executions."""
        try:
            written = await changes.write_if_current(
                connection,
                gathered,
                {id_: seen.execution for id_, seen in kept.items()},
                {id_: seen.nodes for id_, seen in kept.items()},
                {id_: seen.number for id_, seen in kept.items()},
            )
        except Exception as error:
            self.forget(kept)
            if was_lost(error) or connection.is_closed():
                self._unknown = {id_: standings[id_] for id_ in kept}
                raise OutcomeUnknownError(f"the answer was lost: {error!r}") from error
            raise
        if written is None:
            return ()
        clock, current = written
        self._clock.hear(clock)
        return current

    def _time_behind(self, executions: Iterable[ExecutionRow]) -> int:
        """Give the database's time, as far as it is known, and none that is before what is recorded."""
        now = self._clock.time()
        assert now is not None
        return max(now, *(row.updated_at for row in executions))


def _not_read(_: str) -> bytes:
    raise _UnreadError
