"""The contract of nodes that no worker runs: a part of ``JournalContract``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.core.ledger.changes import Verdict
from weft.core.rows import Parked
from weft.core.state import NodeState
from weft.core.time import micros
from weft.testing.recording import Recording, node

if TYPE_CHECKING:
    from weft.clock import VirtualClock
    from weft.journal.contract import JournalAdapter

SLEEPER = node("a", handler="sleep", config={"seconds": 60})
# Larger than what a journal keeps in memory of an output.
_LARGE = b'"' + b"x" * 40_000 + b'"'


class ParkedRowsContract:
    async def test_the_commit_that_parks_an_attempt_starts_it(
        self, journal: JournalAdapter, clock: VirtualClock
    ) -> None:
        run = await Recording.start(journal, SLEEPER)
        clock.advance(1)
        at = clock.now()
        before = await run.types()
        recorded_event = await run.parked("a", seconds=60)
        assert recorded_event.verdict is Verdict.ACCEPTED
        row = await run.node("a")
        assert recorded_event.rows == (row,)
        assert (row.state, row.issued, row.worker) == (None, 1, None)
        assert (row.queued_at, row.started_at, row.finished_at) == (at, at, None)
        assert row.parked == Parked(at + micros(60), b"1")
        # Nothing has happened to the node that people are told of.
        assert await run.types() == before

    async def test_its_time_begins_once(self, journal: JournalAdapter, clock: VirtualClock) -> None:
        run = await Recording.start(journal, SLEEPER)
        await run.parked("a", seconds=60)
        row = await run.node("a")
        clock.advance(30)
        assert (await run.parked("a", seconds=60)).verdict is Verdict.KNOWN
        snapshot = await journal.rebuild(run.id, seen_epoch=1)
        assert snapshot is not None
        assert list(snapshot.rows) == [row]
        assert (await run.parked("a", seconds=60, epoch=2)).verdict is Verdict.KNOWN
        assert await run.node("a") == row

    async def test_it_completes_when_it_is_due_by_the_journals_clock(
        self, journal: JournalAdapter, clock: VirtualClock
    ) -> None:
        run = await Recording.start(journal, SLEEPER, node("b", "a"))
        await run.parked("a", seconds=60, output=b'{"seconds":60}')
        parked = await run.node("a")
        clock.advance(59.9)
        early = await run.due("a")
        assert (early.verdict, early.rows) == (Verdict.KNOWN, (parked,))
        clock.advance(0.1)
        recorded_event = await run.due("a")
        assert recorded_event.verdict is Verdict.ACCEPTED
        row = await run.node("a")
        assert recorded_event.completed_row == row
        assert (row.state, row.output, row.output_bytes) == (NodeState.COMPLETED, b'{"seconds":60}', 14)
        assert (row.ended, row.answered, row.worker, row.parked) == (1, 1, None, None)
        assert row.finished_at == (row.started_at or 0) + micros(60) == clock.now()
        event = (await journal.events(run.id))[-1]
        assert (event.type, event.attempt, event.started_at) == ("node.completed", 1, row.started_at)
        assert recorded_event.history[-1] == event
        assert (await run.due("a")).verdict is Verdict.KNOWN

    async def test_a_large_output_is_what_was_parked(
        self, journal: JournalAdapter, clock: VirtualClock
    ) -> None:
        other = node("b", handler="sleep", config={"seconds": 60})
        run = await Recording.start(journal, SLEEPER, other, node("c"))
        await run.parked("a", seconds=60, output=_LARGE)
        name = await journal.put_blob(_LARGE)
        await run.parked("b", seconds=60, output=None, blob=name, output_bytes=len(_LARGE))
        clock.advance(60)
        # A row names it: it is no stray one, however old it is.
        await journal.sweep_blobs(older_than=clock.now())
        await run.due("a")
        await run.due("b")
        rows = [await run.node("a"), await run.node("b")]
        assert (rows[0].output, rows[1].blob) == (_LARGE, name)
        assert await journal.blobs([name]) == {name: _LARGE}
        assert [row.output_bytes for row in rows] == [len(_LARGE)] * 2

    async def test_its_output_goes_to_the_cache_when_it_completes(
        self, journal: JournalAdapter, clock: VirtualClock
    ) -> None:
        run = await Recording.start(journal, {**SLEEPER, "cache": {"ttl_seconds": 600}})
        await run.parked("a", seconds=60, cache_key="key")
        assert await journal.cached(["key"]) == {}
        clock.advance(60)
        await run.due("a")
        assert await journal.cached(["key"]) == {"key": b"1"}

    async def test_none_is_parked_while_the_execution_is_paused_or_under_another_epoch(
        self, journal: JournalAdapter
    ) -> None:
        run = await Recording.start(journal, SLEEPER)
        assert (await run.parked("a", seconds=60, epoch=2)).verdict is Verdict.STALE
        await run.pause()
        assert (await run.parked("a", seconds=60)).verdict is Verdict.STALE
        await run.resume()
        assert (await run.parked("a", seconds=60)).verdict is Verdict.ACCEPTED

    async def test_a_parked_node_of_a_paused_execution_completes(
        self, journal: JournalAdapter, clock: VirtualClock
    ) -> None:
        run = await Recording.start(journal, SLEEPER, node("b", "a"))
        await run.parked("a", seconds=60)
        await run.pause()
        clock.advance(60)
        assert (await run.due("a")).verdict is Verdict.ACCEPTED

    async def test_what_was_not_parked_is_not_due(self, journal: JournalAdapter) -> None:
        run = await Recording.start(journal, SLEEPER)
        assert (await run.due("a")).verdict is Verdict.STALE

    async def test_a_cancel_ends_a_parked_attempt_without_the_store(
        self, journal: JournalAdapter, clock: VirtualClock
    ) -> None:
        run = await Recording.start(journal, SLEEPER)
        await run.parked("a", seconds=60)
        started_at = clock.now()
        clock.advance(60)
        await run.cancel()
        row = await run.node("a")
        assert (row.state, row.ended, row.worker) == (NodeState.CANCELLED, 1, None)
        assert (row.started_at, row.finished_at, row.parked) == (started_at, clock.now(), None)
        assert (await run.due("a")).verdict is not Verdict.ACCEPTED
        await run.retry()
        again = await run.node("a")
        assert (again.attempt, again.parked, again.output_bytes) == (2, None, None)
