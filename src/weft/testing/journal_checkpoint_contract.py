"""What a journal of a fleet promises of executions that are committed at checkpoints, as tests.

The suite of a journal that stores ``ExecutionRow.checkpoint`` is a subclass of this beside
``JournalContract``, with the same fixture ``journal``. A journal of a single process needs none of it: there
is no store that outlives it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from weft.core.event import AttemptIssued, CancelRequested, DeadlinePassed
from weft.core.ledger import Verdict
from weft.core.state import ExecutionState, NodeState
from weft.testing.recording import Recording, node, submission

if TYPE_CHECKING:
    from weft.clock import VirtualClock
    from weft.journal.contract import Journal


class CheckpointJournalContract:
    async def test_an_execution_keeps_how_it_is_committed(self, journal: Journal) -> None:
        run = await started(journal, node("a"))
        assert (await run.row()).checkpoint
        (shown,) = await journal.executions()
        assert shown.checkpoint
        await run.record(replace(run.failure("a"), asked=1))
        await run.retry()
        assert (await run.row()).checkpoint

    async def test_what_comes_without_asking_the_store_is_turned_away_and_changes_nothing(
        self, journal: Journal, clock: VirtualClock
    ) -> None:
        run = await started(journal, node("a"), node("b"), timeout_seconds=5)
        clock.advance(6)
        before = await run.row()
        standings = [
            await run.completed("a"),
            await run.failed("a"),
            await run.failed_once("a"),
            await run.lost("a"),
            await run.skipped("a"),
            await run.cached("a", b"1"),
            await run.issued("a"),
            await run.deadline_passed(),
            await run.cancel(),
        ]
        assert {standing.verdict for standing in standings} == {Verdict.UNASKED}
        assert all(standing.execution == before for standing in standings)
        assert await run.row() == before
        assert await journal.nodes(run.id) == {}

    async def test_what_was_asked_of_the_store_of_this_epoch_counts(self, journal: Journal) -> None:
        run = await started(journal, node("a"), node("b", "a"))
        assert (await run.completed("a", asked=1)).verdict is Verdict.ACCEPTED
        assert (await run.completed("a", asked=1)).verdict is Verdict.KNOWN
        assert await journal.rebuild(run.id, seen_epoch=1) is not None
        failed = await run.record(replace(run.failure("b"), asked=1))
        assert failed.verdict is Verdict.UNASKED
        assert (await run.completed("b", asked=2)).verdict is Verdict.ACCEPTED
        assert (await run.row()).state is ExecutionState.COMPLETED

    async def test_a_completion_that_a_store_of_an_earlier_epoch_has_taken_counts_by_its_number(
        self, journal: Journal
    ) -> None:
        run = await started(journal, node("a"), node("b", "a"), node("c", "b"))
        await run.completed("a", asked=1)
        assert await journal.rebuild(run.id, seen_epoch=1) is not None
        assert (await run.completed("b", asked=3)).verdict is Verdict.UNASKED
        assert (await run.completed("b", asked=1)).verdict is Verdict.ACCEPTED
        # It was made of what was not recorded then.
        assert (await run.completed("c", asked=1)).verdict is Verdict.STALE

    async def test_pause_resume_and_retry_need_not_ask(self, journal: Journal) -> None:
        run = await started(journal, node("a"))
        for call in ("pause", "resume"):
            assert await run.control(call) is Verdict.ACCEPTED
        cancel = CancelRequested(execution_id=run.id, generation=0, asked=1)
        assert (await run.record(cancel)).verdict is Verdict.ACCEPTED
        assert (await run.cancel()).verdict is Verdict.KNOWN
        assert await run.control("retry") is Verdict.ACCEPTED

    async def test_a_deadline_that_was_asked_for_ends_the_execution(
        self, journal: Journal, clock: VirtualClock
    ) -> None:
        run = await started(journal, node("a"), timeout_seconds=5)
        clock.advance(6)
        await run.record(DeadlinePassed(execution_id=run.id, generation=1, asked=1))
        assert (await run.row()).state is ExecutionState.FAILED

    async def test_a_rebuild_passes_over_the_numbers_that_may_be_in_hand_on_what_is_lost(
        self, journal: Journal
    ) -> None:
        run = await started(
            journal, node("a"), node("b", "a"), node("c", "b"), node("d", "a", "z"), node("z")
        )
        await run.completed("a", asked=1)
        before = await run.types()
        snapshot = await journal.rebuild(run.id, seen_epoch=1)
        assert snapshot is not None
        rows = {row.node_id: row for row in snapshot.rows}
        # What is ready by the rows keeps its number: it may be running, and its result counts.
        assert {name: row.attempt for name, row in rows.items()} == {"a": 1, "c": 2, "d": 2}
        assert await journal.nodes(run.id) == rows
        assert all(
            (row.losses, row.failures, row.ended) == (0, 0, 0) for row in rows.values() if not row.state
        )
        assert await run.types() == before
        assert (await run.completed("c", asked=2)).verdict is Verdict.STALE
        assert (await run.types())[-1] == "result.discarded"

    async def test_a_rebuild_leaves_the_number_that_was_issued(self, journal: Journal) -> None:
        once = node("once", "a", "b", trigger_rule="one_success", delivery="at_most_once")
        run = await started(
            journal, node("a"), node("b"), once, node("early", "a", "b", trigger_rule="one_success")
        )
        await run.completed("a", asked=1)
        standing = await run.record(replace(_issue(run, "once"), asked=1))
        assert standing.verdict is Verdict.ACCEPTED
        await journal.rebuild(run.id, seen_epoch=1)
        assert (await run.node("once")).attempt == 1
        # It may have seen b, which is lost.
        assert (await run.node("early")).attempt == 2

    async def test_a_rebuild_of_what_was_never_taken_up_passes_over_nothing(self, journal: Journal) -> None:
        await journal.submit([replace(submission("x", node("a"), node("b", "a")), checkpoint=True)])
        assert await journal.rebuild("x", seen_epoch=1) is not None
        assert await journal.nodes("x") == {}

    async def test_a_batch_of_outcomes_ends_the_execution(self, journal: Journal) -> None:
        run = await started(journal, node("a"), node("b", "a"))
        standings = await journal.record([run.completion("a", asked=1), run.completion("b", asked=1)])
        assert [standing.verdict for standing in standings] == [Verdict.ACCEPTED, Verdict.ACCEPTED]
        assert (await run.row()).state is ExecutionState.COMPLETED
        assert set((await run.states()).values()) == {NodeState.COMPLETED}


async def started(journal: Journal, *nodes: Any, **fields: Any) -> Recording:
    """Submit an execution that is committed at checkpoints, and take it up."""
    new = replace(submission("x", *nodes, **fields), checkpoint=True)
    await journal.submit([new])
    run = Recording(journal, "x", new.plan)
    await run.started()
    return run


def _issue(run: Recording, node_id: str) -> AttemptIssued:
    return AttemptIssued(execution_id=run.id, generation=1, node_id=node_id, attempt=1, epoch=1)
