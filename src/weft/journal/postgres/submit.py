"""Storing new executions in PostgreSQL, and taking idempotency keys.

All processes take locks in one order: definitions, keys, executions, each by name. So two that store the same
wait for one another, and never in a circle.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from weft.core.ledger.changes import LiveExecution
from weft.errors import (
    ClaimedError,
    JournalError,
    NotAllowedError,
    OutcomeUnknownError,
    TriggerChangedError,
)
from weft.journal import triggers
from weft.journal.firing import (
    FireAnswer,
    GroupCounts,
    StoredEvent,
    answered_waits,
    fired,
    rejecting_group,
    submitted,
    turn_values,
)
from weft.journal.memory import accepted_claim, admit
from weft.journal.postgres import changes, queries
from weft.journal.postgres.connection import CLOCK, was_lost
from weft.journal.postgres.record import hold_events
from weft.journal.queries import claim as find_claim
from weft.journal.queries import put_batch, put_definition
from weft.journal.waits import matching
from weft.triggers.model import Overlap

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from weft.core.event import Event, WaitAnswered
    from weft.journal.contract import Claim, Firing, NewBatch, Submission
    from weft.journal.postgres.connection import Connection, DatabaseClock
    from weft.journal.postgres.group_commit import Transaction
    from weft.journal.postgres.record import Recorder
    from weft.triggers.cloudevent import InboundEvent
    from weft.triggers.overlap import Step

_LOOK = f"""
    SELECT {CLOCK}, pg_current_xact_id()::text,
        ARRAY(SELECT id FROM executions WHERE id = ANY($1))
"""  # noqa: S608


class Submit(msgspec.Struct, frozen=True):
    """One call to store executions."""

    submissions: Sequence[Submission]
    claim: Claim | None
    batch: NewBatch | None


class Fire(msgspec.Struct, frozen=True):
    """One call to start triggers."""

    firings: Sequence[Firing]
    event: InboundEvent | None
    claim: Claim | None

    @property
    def size(self) -> int | None:
        """Its share of a common transaction; None: it has one of its own, which a refusal undoes."""
        counts = any(
            firing.overlap is not Overlap.ALLOW
            or (firing.submission is not None and rejecting_group(firing.submission) is not None)
            for firing in self.firings
        )
        is_alone = self.event is not None or self.claim is not None or counts
        return None if is_alone else 1 + len(self.firings)


class _NothingToAnswerError(Exception):
    """Ends a transaction: the event came before, or its executions are to be stored anew."""


class Submitter:
    def __init__(self, *, clock: DatabaseClock, recorder: Recorder) -> None:
        self._clock = clock
        self._recorder = recorder

    async def submit(self, transaction: Transaction, calls: Sequence[Submit]) -> list[Any]:
        """Store the executions of each call: all of them, or none where the call is refused."""
        now = self._clock.time()
        are_few = sum(len(call.submissions) for call in calls) <= changes.MAX_ROWS
        if now is not None and are_few and all(_is_plain(call) for call in calls):
            answers = await self._submit_alone(transaction, calls, now)
            if answers is not None:
                return answers
        while True:
            await transaction.begin()
            answers = await self._submit(transaction, calls)
            if answers is not None:
                return answers
            await transaction.connection.execute("ROLLBACK")

    async def _submit_alone(
        self, transaction: Transaction, calls: Sequence[Submit], now: int
    ) -> list[Any] | None:
        """Store them in one round trip; None where one is there already, or a definition is not.

        Some may have been stored then. Whoever stores them again finds them, as after a lost answer.
        """
        ledger = self._recorder.admission({}, now)
        answers = [[admit(new, ledger) for new in call.submissions] for call in calls]
        new = ledger.changes
        try:
            clock, numbers = await changes.add_executions(transaction.connection, new, {})
        except Exception as error:
            if was_lost(error) or transaction.connection.is_closed():
                raise OutcomeUnknownError(f"the answer was lost: {error!r}") from error
            raise
        self._clock.note(clock)
        if len(numbers) < len(new.executions):
            transaction.has_written = bool(numbers)
            return None
        self._recorder.remember(new, numbers)
        return answers

    async def fire(self, transaction: Transaction, calls: Sequence[Fire]) -> list[Any]:
        """Begin, and start the triggers of each call, or refuse the call."""
        while True:
            event = calls[0].event
            found = (
                None if event is None else await queries.run_query(transaction.connection, matching(event))
            )
            answers: list[Any] | None
            if found:
                answers = await self._fire_and_answer(transaction, calls[0], found)
            else:
                await transaction.begin()
                is_new = event is None or await self._answers_only(transaction, event, ())
                answers = await self._fire(transaction, calls) if is_new else None
            if answers is not None:
                return answers
            await transaction.connection.execute("ROLLBACK")

    @staticmethod
    async def _answers_only(
        transaction: Transaction, event: InboundEvent, found: Sequence[WaitAnswered]
    ) -> bool:
        """Hold off waits that begin to look back; True if the event still answers those that were found."""
        await hold_events(transaction, [event.type])
        return await queries.run_query(transaction.connection, matching(event)) == list(found)

    async def _fire_and_answer(
        self, transaction: Transaction, call: Fire, answers: Sequence[WaitAnswered]
    ) -> list[Any] | None:
        """Begin, start the triggers of an event, and end the waits that it answers."""
        assert call.event is not None
        fired_now: list[Any] | None = None

        async def fire() -> None:
            nonlocal fired_now
            assert call.event is not None
            if not await self._answers_only(transaction, call.event, answers):
                raise _NothingToAnswerError
            fired_now = await self._fire(transaction, [call])
            if fired_now is None or fired_now[0].known is not None:
                raise _NothingToAnswerError

        by_execution = {answer.execution_id: [answer] for answer in answers}
        try:
            recorded = await self._recorder.record_locked(transaction, by_execution, first=fire)
        except _NothingToAnswerError:
            if fired_now is not None:
                await transaction.connection.execute("ROLLBACK")
                await transaction.begin()
            return fired_now
        assert fired_now is not None
        recorded_events = [one for own in recorded.values() for one in own]
        started = [one.execution.id for one in fired_now[0].fired if one.execution is not None]
        note = triggers.note_effect(call.event, started, answered_waits(recorded_events))
        await queries.run_query(transaction.connection, note)
        return [replace(fired_now[0], answered=recorded_events)]

    async def _fire(self, transaction: Transaction, calls: Sequence[Fire]) -> list[Any] | None:
        connection = transaction.connection
        now = await self._clock.ask(connection)
        # Of each call what becomes of its firings, the event that was kept before, or the refusal.
        decided: list[list[Step] | StoredEvent | TriggerChangedError] = []
        for call in calls:
            try:
                decided.append(await _decide(connection, call, now))
            except TriggerChangedError as error:
                if len(calls) == 1:
                    raise
                # Nothing of this call was written.
                decided.append(error)
        submits = []
        for call, steps in zip(calls, decided, strict=True):
            submissions = submitted(call.firings, steps) if isinstance(steps, list) else []
            submits.append(Submit(submissions, call.claim if submissions else None, None))
        stored = await self._submit(transaction, submits)
        if stored is None:
            return None
        answers: list[Any] = []
        for call, steps, rows in zip(calls, decided, stored, strict=True):
            if isinstance(rows, Exception):
                # The triggers have moved on: that is not to be committed without the executions.
                raise rows
            if not isinstance(steps, list):
                answers.append(FireAnswer((), steps) if isinstance(steps, StoredEvent) else steps)
                continue
            answers.append(FireAnswer(fired(steps, rows)))
            if call.event is not None:
                note = triggers.note_effect(call.event, [row.id for row in rows], ())
                await queries.run_query(connection, note)
        return answers

    async def _submit(self, transaction: Transaction, calls: Sequence[Submit]) -> list[Any] | None:
        """Store the executions; None where another process has stored one of them at the same time."""
        connection = transaction.connection
        ids = {submission.id for call in calls for submission in call.submissions}
        clock, transaction.number, known_ids = await connection.fetchrow(_LOOK, sorted(ids))
        now = self._clock.note(clock)
        refusals: dict[int, Exception] = {}
        documents = await self._missing_documents(connection, calls, refusals)
        await self._claim(connection, calls, refusals, now)
        await self._refuse_busy(connection, calls, known_ids, refusals)
        done = [call for place, call in enumerate(calls) if place not in refusals]
        digests = {new.plan.digest for call in done for new in call.submissions}
        for digest in sorted(digests & documents.keys()):
            await queries.run_query(connection, put_definition(digest, documents[digest], now))
        known: dict[str, LiveExecution] = {}
        if known_ids:
            plans = {new.id: new.plan for call in calls for new in call.submissions}
            for number, row in await queries.executions(connection, known_ids):
                known[row.id] = LiveExecution(number, row, plans[row.id], {})
        ledger = self._recorder.admission(known, now)
        places: dict[str, int] = {}
        answers: list[Any] = []
        for place, call in enumerate(calls):
            if place in refusals:
                answers.append(refusals[place])
                continue
            answers.append([admit(new, ledger, call.batch) for new in call.submissions])
            if call.batch is not None:
                await queries.run_query(connection, put_batch(call.batch, len(call.submissions), now))
                places.update((new.id, index) for index, new in enumerate(call.submissions))
        _, numbers = await changes.add_executions(connection, ledger.changes, places)
        if len(numbers) < sum(change.is_new for change in ledger.changes.executions.values()):
            return None
        await changes.add_kept(connection, ledger.changes, numbers)
        turns = turn_values(ledger.changes.joined, numbers)
        await queries.run_query(connection, triggers.put_turns(turns))
        self._recorder.remember(ledger.changes, numbers)
        return answers

    async def _refuse_busy(
        self,
        connection: Connection,
        calls: Sequence[Submit],
        known_ids: Collection[str],
        refusals: dict[int, Exception],
    ) -> None:
        """Refuse calls with an execution whose group is full and takes no more."""
        counts = GroupCounts()
        for place, call in enumerate(calls):
            new = [one for one in call.submissions if one.id not in known_ids]
            if place in refusals or not any(map(rejecting_group, new)):
                continue
            lanes = counts.missing(new)
            found = await queries.run_query(connection, triggers.count_groups(lanes))
            for (namespace, lane), count in zip(lanes, found, strict=True):
                counts.put(namespace, lane, count)
            try:
                counts.admit(new)
            except NotAllowedError as error:
                refusals[place] = error
                if call.claim is not None:
                    await changes.drop_claim(connection, call.claim)

    async def _missing_documents(
        self, connection: Connection, calls: Sequence[Submit], refusals: dict[int, Exception]
    ) -> dict[str, bytes]:
        """Lock the stored definitions, return the other documents; refuse calls that leave one out."""
        given: dict[str, bytes] = {}
        for call in calls:
            for new in call.submissions:
                given[new.plan.digest] = given.get(new.plan.digest) or new.document
        if not given:
            return {}
        there = await changes.lock_definitions(connection, given)
        missing = {digest: document for digest, document in given.items() if digest not in there}
        for place, call in enumerate(calls):
            for new in call.submissions:
                if not missing.get(new.plan.digest, b"."):
                    refusals[place] = JournalError(f"the journal has no definition {new.plan.digest}")
        return missing

    async def _claim(
        self, connection: Connection, calls: Sequence[Submit], refusals: dict[int, Exception], now: int
    ) -> None:
        """Take the keys of the calls; refuse those whose keys are taken."""
        claims = {
            place: call.claim
            for place, call in enumerate(calls)
            if call.claim is not None and place not in refusals
        }
        if claims:
            free = await changes.take_claims(connection, list(claims.values()), now)
            for index, (place, claim) in enumerate(claims.items()):
                if index not in free:
                    refusals[place] = await _taken(connection, claim)

    async def record_claimed(
        self, transaction: Transaction, requests: Sequence[tuple[Sequence[Event], Claim]]
    ) -> list[Any]:
        """Begin, and record a control call if its key is free; the key is taken if the call is accepted."""
        ((events, claim),) = requests
        connection = transaction.connection

        async def take() -> None:
            now = await self._clock.ask(connection)
            if not await changes.take_claims(connection, [claim], now):
                raise await _taken(connection, claim)

        id_ = events[0].execution_id
        recorded_events = (await self._recorder.record_locked(transaction, {id_: events}, first=take))[id_]
        if accepted_claim(claim, recorded_events) is None:
            await changes.drop_claim(connection, claim)
        return [recorded_events]


def _is_plain(call: Submit) -> bool:
    """True if a call stores executions without labels, kept rows, a queue, a group, a claim or a batch."""
    has_more = any(
        new.labels or new.kept or new.queue_slots or new.group_name is not None for new in call.submissions
    )
    return bool(call.submissions) and call.claim is None and call.batch is None and not has_more


async def _decide(connection: Connection, call: Fire, now: int) -> list[Step] | StoredEvent:
    """Keep the event of a call and move its triggers on; or return the event, if it was kept before."""
    if call.event is not None and not await queries.run_query(
        connection, triggers.put_event(call.event, now)
    ):
        stored = triggers.stored_event(call.event.namespace, call.event.source, call.event.id)
        known = await queries.run_query(connection, stored)
        if known is not None:
            return known
        raise JournalError("an event of this source and id is being purged; send it again")
    return await queries.run_query(connection, triggers.advance(call.firings, now))


async def _taken(connection: Connection, claim: Claim) -> Exception:
    """Return the error for a key that is taken, with what the key stands for."""
    taken = await queries.run_query(connection, find_claim(claim.key, claim.namespace))
    if taken is None:
        return JournalError(f"the idempotency key {claim.key!r} was taken and has been given back")
    return ClaimedError(taken.key, request_digest=taken.request_digest, resource=taken.resource)
