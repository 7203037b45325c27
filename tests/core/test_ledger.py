"""How executions end: the table of failure policies, the deadline, control, and the fence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from weft.core.event import (
    AttemptIssued,
    CancelRequested,
    DeadlinePassed,
    Event,
    ExecutionStarted,
    NodeCached,
    NodeCompleted,
    PauseRequested,
    ResumeRequested,
    RetryRequested,
    Running,
)
from weft.core.ledger.changes import Verdict
from weft.core.state import ExecutionState
from weft.testing.walk import WORKER, Walk, node, workflow

if TYPE_CHECKING:
    from weft.core.payload import Json

POLICIES = ["fail_fast", "continue"]
X: dict[str, Any] = {"execution_id": "x1"}


async def walked(document: Json, **fields: Any) -> Walk:
    walk = Walk(document, **fields)
    await walk.begin()
    return walk


async def letters(walk: Walk) -> dict[str, str]:
    return {letter.node_id: letter.state for letter in await walk.journal.dead_letters()}


async def types(walk: Walk) -> list[str]:
    return [event.type for event in await walk.journal.events("x1")]


def with_handler(policy: str, **handler: Json) -> Json:
    """A failing node with a handler, a branch of its own, and a node behind each."""
    return workflow(
        "bad",
        node("behind", "bad"),
        node("handler", "bad", rule="one_failed", **handler),
        node("after", "handler"),
        "other",
        node("other_end", "other"),
        failure_policy=policy,
    )


class TestAFailureThatIsHandled:
    @pytest.mark.parametrize("policy", POLICIES)
    async def test_ends_nothing_while_its_handler_may_still_run(self, policy: str) -> None:
        walk = await walked(with_handler(policy))
        assert await walk.fail("bad") == ["handler"]
        assert await walk.states() == {"bad": "FAILED", "behind": "SKIPPED upstream_failed bad"}
        assert (await walk.execution()).state is ExecutionState.RUNNING
        assert await letters(walk) == {"bad": "open"}

    @pytest.mark.parametrize("policy", POLICIES)
    async def test_leaves_the_execution_completed(self, policy: str) -> None:
        walk = await walked(with_handler(policy))
        await walk.fail("bad")
        assert await walk.complete("handler") == ["after"]
        assert await letters(walk) == {"bad": "handled"}
        await walk.complete("after", "other", "other_end")
        execution = await walk.execution()
        assert (execution.state, execution.error) == (ExecutionState.COMPLETED, None)
        assert execution.failed == 1

    @pytest.mark.parametrize("policy", POLICIES)
    async def test_may_be_handled_by_any_one_of_its_handlers(self, policy: str) -> None:
        walk = await walked(
            workflow(
                "bad",
                node("first", "bad", rule="one_failed"),
                node("second", "bad", rule="one_failed"),
                node("of_first", "first", rule="one_failed"),
                failure_policy=policy,
            )
        )
        await walk.fail("bad", "first")
        await walk.complete("second", "of_first")
        assert (await walk.execution()).state is ExecutionState.COMPLETED
        assert await letters(walk) == {"bad": "handled", "first": "handled"}

    async def test_is_handled_by_an_output_from_the_cache_too(self) -> None:
        walk = await walked(with_handler("continue"))
        await walk.fail("bad")
        cached = NodeCached(**X, generation=1, node_id="handler", attempt=1, output=b'"again"')
        await walk.advance(cached)
        assert await letters(walk) == {"bad": "handled"}

    async def test_is_handled_by_a_handler_that_completed_before_it(self) -> None:
        # A handler of two parents starts at the first failure; the second finds it done.
        walk = await walked(workflow("one", "two", node("handler", "one", "two", rule="one_failed")))
        await walk.fail("one")
        await walk.complete("handler")
        await walk.fail("two")
        assert await letters(walk) == {"one": "handled", "two": "handled"}
        assert (await walk.execution()).state is ExecutionState.COMPLETED


class TestAFailureThatNothingHandles:
    async def test_stops_a_fail_fast_execution_in_one_step(self) -> None:
        walk = await walked(
            workflow(
                "bad",
                node("behind", "bad"),
                node("far_behind", "behind"),
                node("cleanup", "bad", rule="all_done"),
                "other",
                node("other_end", "other"),
            )
        )
        before = (await walk.execution()).seq
        recorded_event = await walk.record(await walk.failed("bad"))
        assert await walk.states() == {
            "bad": "FAILED",
            "behind": "SKIPPED upstream_failed bad",
            "far_behind": "SKIPPED upstream_failed bad",
            "cleanup": "CANCELLED fail_fast bad",
            "other": "CANCELLED fail_fast bad",
            "other_end": "CANCELLED fail_fast bad",
        }
        execution = await walk.execution()
        assert recorded_event.execution == execution
        assert execution.state is ExecutionState.FAILED
        assert execution.output is None
        assert execution.error == {
            "code": "node_failed",
            "message": "node bad failed: it did not work",
            "retryable": False,
            "node": "bad",
            "details": {"code": "handler_error"},
        }
        assert (await types(walk))[before:] == [
            "node.failed",
            *["node.skipped"] * 2,
            *["node.cancelled"] * 3,
            "execution.failed",
        ]
        assert await letters(walk) == {"bad": "open"}

    async def test_lets_a_continue_execution_run_to_its_end(self) -> None:
        walk = await walked(
            workflow(
                "bad",
                node("behind", "bad"),
                node("cleanup", "behind", "other", rule="all_done"),
                "other",
                failure_policy="continue",
            )
        )
        assert await walk.fail("bad") == []
        assert await walk.complete("other") == ["cleanup"]
        await walk.complete("cleanup")
        assert await walk.states() == {
            "bad": "FAILED",
            "behind": "SKIPPED upstream_failed bad",
            "other": "COMPLETED",
            "cleanup": "COMPLETED",
        }
        execution = await walk.execution()
        assert execution.state is ExecutionState.FAILED
        assert execution.error is not None
        assert execution.error["node"] == "bad"

    @pytest.mark.parametrize("policy", POLICIES)
    async def test_is_not_handled_by_all_done(self, policy: str) -> None:
        walk = await walked(workflow("bad", node("cleanup", "bad", rule="all_done"), failure_policy=policy))
        if "cleanup" in await walk.fail("bad"):
            await walk.complete("cleanup")
        assert (await walk.execution()).state is ExecutionState.FAILED
        assert await letters(walk) == {"bad": "open"}

    async def test_names_the_first_of_several_by_the_order_of_their_commits(self) -> None:
        walk = await walked(workflow("one", "two", "three", failure_policy="continue"))
        await walk.fail("two", "one")
        await walk.complete("three")
        error = (await walk.execution()).error
        assert error is not None
        assert error["node"] == "two"

    async def test_an_attempt_in_hand_is_cancelled_with_its_times_and_its_worker(self) -> None:
        walk = await walked(workflow("bad", "running", "queued"))
        start = walk.clock.now()
        walk.clock.advance(2)
        event = await walk.failed("bad")
        in_hand = {
            "running": Running(1, WORKER, start, start + 5),
            "queued": Running(1, None, start, None),
        }
        await walk.record(_with_running(event, in_hand))
        running, queued = await walk.row("running"), await walk.row("queued")
        assert (running.worker, running.ended) == (WORKER, 1)
        assert (running.queued_at, running.started_at) == (start, start + 5)
        assert running.finished_at == walk.clock.now()
        assert (queued.worker, queued.ended, queued.started_at) == (None, 0, None)

    async def test_a_late_result_of_a_stopped_execution_is_discarded(self) -> None:
        walk = await walked(workflow("bad", "late"))
        late = await walk.completed("late")
        await walk.fail("bad")
        recorded_event = await walk.record(late)
        assert recorded_event.verdict is Verdict.STALE
        assert (await walk.row("late")).state == "CANCELLED"
        assert (await types(walk))[-1] == "result.discarded"


class TestAHandlerThatDoesNotComplete:
    ENDINGS = ("fails", "is skipped by its condition", "cannot be filled")

    async def fail_with(self, ending: str, policy: str) -> Walk:
        handlers: dict[str, dict[str, Json]] = {
            "fails": {},
            "is skipped by its condition": {"condition": "1 == 2"},
            "cannot be filled": {"config": {"x": "{{ input.missing }}"}},
        }
        walk = await walked(with_handler(policy, **handlers[ending]))
        if "handler" in await walk.fail("bad"):
            await walk.fail("handler")
        return walk

    @pytest.mark.parametrize("ending", ENDINGS)
    async def test_stops_a_fail_fast_execution_with_the_first_failure_as_cause(self, ending: str) -> None:
        walk = await self.fail_with(ending, "fail_fast")
        states = await walk.states()
        assert states["other"] == states["other_end"] == "CANCELLED fail_fast bad"
        execution = await walk.execution()
        assert execution.state is ExecutionState.FAILED
        assert execution.error is not None
        assert execution.error["node"] == "bad"
        assert (await letters(walk))["bad"] == "open"

    @pytest.mark.parametrize("ending", ENDINGS)
    async def test_lets_a_continue_execution_go_on_to_fail_at_its_end(self, ending: str) -> None:
        walk = await self.fail_with(ending, "continue")
        assert (await walk.execution()).state is ExecutionState.RUNNING
        if (await walk.row("after")).state is None:
            await walk.complete("after")
        await walk.complete("other", "other_end")
        execution = await walk.execution()
        assert execution.state is ExecutionState.FAILED
        assert execution.error is not None
        assert execution.error["node"] == "bad"

    async def test_names_the_earlier_of_two_failures_it_was_to_handle(self) -> None:
        walk = await walked(workflow("one", "two", node("handler", "one", "two", rule="one_failed"), "other"))
        await walk.fail("two", "one")
        await walk.fail("handler")
        error = (await walk.execution()).error
        assert error is not None
        assert error["node"] == "two"
        assert (await walk.states())["other"] == "CANCELLED fail_fast two"

    @pytest.mark.parametrize("policy", POLICIES)
    async def test_is_not_mended_by_a_handler_of_its_own(self, policy: str) -> None:
        walk = await walked(
            workflow(
                "bad",
                node("handler", "bad", rule="one_failed"),
                node("nested", "handler", rule="one_failed"),
                failure_policy=policy,
            )
        )
        await walk.fail("bad")
        if "nested" in await walk.fail("handler"):
            await walk.complete("nested")
            assert await letters(walk) == {"bad": "open", "handler": "handled"}
        else:
            assert (await walk.states())["nested"] == "CANCELLED fail_fast bad"
        execution = await walk.execution()
        assert execution.state is ExecutionState.FAILED
        assert execution.error is not None
        assert execution.error["node"] == "bad"


class TestSkips:
    async def test_skipped_nodes_never_fail_an_execution(self) -> None:
        walk = await walked(
            workflow(
                node("off", condition="1 == 2"),
                node("idle", "off", rule="one_failed"),
                node("behind", "off"),
                node("strict", "off", rule="all_success"),
            )
        )
        assert await walk.states() == {
            "off": "SKIPPED condition",
            "idle": "SKIPPED not_triggered",
            "behind": "SKIPPED upstream_skipped off",
            "strict": "SKIPPED upstream_skipped off",
        }
        assert (await walk.execution()).state is ExecutionState.COMPLETED

    async def test_a_failure_does_not_reach_past_a_node_that_was_skipped_for_another_reason(self) -> None:
        """`strict` was skipped before `bad` failed, so `goes_on` runs: the failure must not take it back."""
        walk = await walked(
            workflow(
                "bad",
                node("off", condition="1 == 2"),
                node("strict", "bad", "off", rule="all_success"),
                node("goes_on", "strict", rule="none_failed"),
                failure_policy="continue",
            )
        )
        assert ("goes_on", 1, 1) in walk.started
        await walk.fail("bad")
        assert (await walk.states())["strict"] == "SKIPPED upstream_skipped off"
        assert (await walk.row("goes_on")).state is None
        await walk.complete("goes_on")
        assert (await walk.states())["goes_on"] == "COMPLETED"

    async def test_past_such_a_node_a_failure_still_reaches_what_it_reaches_another_way(self) -> None:
        walk = await walked(
            workflow(
                "bad",
                node("off", condition="1 == 2"),
                node("between", "bad"),
                node("strict", "bad", "off", rule="all_success"),
                node("join", "strict", "between", "slow", rule="none_failed"),
                "slow",
                failure_policy="continue",
            )
        )
        await walk.fail("bad")
        assert (await walk.states())["join"] == "SKIPPED upstream_failed bad"


class TestTheDeadline:
    DOCUMENT = workflow("slow", node("next", "slow"), timeout_seconds=60)

    async def test_cancels_what_is_unsettled_and_fails_the_execution(self) -> None:
        walk = await walked(self.DOCUMENT)
        assert (await walk.execution()).deadline_at == walk.clock.now() + 60_000_000
        walk.clock.advance(60)
        recorded_event = await walk.record(DeadlinePassed(**X, generation=1))
        assert recorded_event.verdict is Verdict.ACCEPTED
        assert await walk.states() == {"slow": "CANCELLED deadline", "next": "CANCELLED deadline"}
        execution = await walk.execution()
        assert execution.state is ExecutionState.FAILED
        assert execution.error == {
            "code": "deadline_exceeded",
            "message": "the execution did not finish within 60 s",
            "retryable": False,
        }

    async def test_does_nothing_before_its_time(self) -> None:
        walk = await walked(self.DOCUMENT)
        walk.clock.advance(59.999999)
        before = await walk.execution()
        assert (await walk.record(DeadlinePassed(**X, generation=1))).verdict is Verdict.STALE
        assert await walk.execution() == before

    async def test_keeps_running_while_the_execution_is_paused(self) -> None:
        walk = await walked(self.DOCUMENT)
        await walk.advance(PauseRequested(**X, generation=0))
        walk.clock.advance(60)
        await walk.advance(DeadlinePassed(**X, generation=1))
        assert (await walk.execution()).state is ExecutionState.FAILED

    async def test_starts_anew_with_a_retry_and_of_the_old_one_nothing_is_left(self) -> None:
        walk = await walked(self.DOCUMENT)
        walk.clock.advance(60)
        await walk.advance(DeadlinePassed(**X, generation=1))
        walk.clock.advance(5)
        await walk.record(RetryRequested(**X, generation=1))
        execution = await walk.execution()
        assert execution.deadline_at == walk.clock.now() + 60_000_000
        assert execution.finished_at is None
        walk.clock.advance(60)
        assert (await walk.record(DeadlinePassed(**X, generation=1))).verdict is Verdict.KNOWN
        assert (await walk.execution()).state is ExecutionState.RUNNING


class TestControl:
    """The table of control calls: one row for each state."""

    STATES = ("PENDING", "RUNNING", "PAUSED", "COMPLETED", "FAILED", "CANCELLED")
    CALLS: ClassVar[dict[str, Event]] = {
        "cancel": CancelRequested(**X, generation=0, actor="somebody"),
        "pause": PauseRequested(**X, generation=0, actor="somebody"),
        "resume": ResumeRequested(**X, generation=0, actor="somebody"),
        "retry": RetryRequested(**X, generation=0, actor="somebody"),
    }
    YES, NOOP, NO = Verdict.ACCEPTED, Verdict.KNOWN, Verdict.REFUSED
    TABLE: ClassVar[dict[str, tuple[Verdict, ...]]] = {
        "cancel": (YES, YES, YES, NO, NO, NOOP),
        "pause": (YES, YES, NOOP, NO, NO, NO),
        "resume": (NOOP, NOOP, YES, NO, NO, NO),
        "retry": (NO, NO, NO, NO, YES, YES),
    }

    async def in_state(self, state: str) -> Walk:
        walk = Walk(workflow("only"))
        await walk.submit()
        if state != "PENDING":
            await walk.record(ExecutionStarted(**X, generation=1))
        match state:
            case "PAUSED":
                await walk.record(self.CALLS["pause"])
            case "COMPLETED":
                await walk.record(await walk.completed("only"))
            case "FAILED":
                await walk.record(await walk.failed("only"))
            case "CANCELLED":
                await walk.record(self.CALLS["cancel"])
        assert (await walk.execution()).state == state
        return walk

    @pytest.mark.parametrize("state", STATES)
    @pytest.mark.parametrize("call", TABLE)
    async def test_a_call_is_allowed_forbidden_or_nothing_by_the_table(self, call: str, state: str) -> None:
        walk = await self.in_state(state)
        before = await walk.execution()
        recorded_event = await walk.record(self.CALLS[call])
        assert recorded_event.verdict is self.TABLE[call][self.STATES.index(state)]
        after = await walk.execution()
        if recorded_event.verdict is not Verdict.ACCEPTED:
            assert after == before
        else:
            (event,) = await walk.journal.events("x1", after=after.seq - 1)
            assert event.actor == "somebody"

    async def test_cancelling_settles_everything_at_once(self) -> None:
        walk = await walked(workflow("done", "running", node("waiting", "running")))
        await walk.complete("done")
        await walk.advance(self.CALLS["cancel"])
        assert await walk.states() == {
            "done": "COMPLETED",
            "running": "CANCELLED cancelled",
            "waiting": "CANCELLED cancelled",
        }
        execution = await walk.execution()
        assert (execution.state, execution.error, execution.unsettled) == (ExecutionState.CANCELLED, None, 0)

    async def test_a_paused_execution_finishes_where_its_last_attempts_settle_it(self) -> None:
        walk = await walked(workflow("only"))
        await walk.advance(self.CALLS["pause"])
        await walk.complete("only")
        assert (await walk.execution()).state is ExecutionState.COMPLETED

    async def test_paused_before_it_was_taken_up_it_resumes_to_pending(self) -> None:
        walk = await self.in_state("PENDING")
        await walk.record(self.CALLS["pause"])
        assert (await walk.record(ExecutionStarted(**X, generation=1))).verdict is Verdict.KNOWN
        await walk.record(self.CALLS["resume"])
        assert (await walk.execution()).state is ExecutionState.PENDING
        await walk.record(ExecutionStarted(**X, generation=1))
        execution = await walk.execution()
        assert (execution.state, execution.started_at) == (ExecutionState.RUNNING, walk.clock.now())

    @pytest.mark.parametrize("call", ["cancel", "pause", "resume"])
    async def test_a_call_meant_for_an_older_generation_changes_nothing(self, call: str) -> None:
        walk = await self.in_state("FAILED")
        await walk.record(self.CALLS["retry"])
        if call == "resume":
            await walk.record(self.CALLS["pause"])
        before = await walk.execution()
        old = type(self.CALLS[call])(**X, generation=1)
        assert (await walk.record(old)).verdict is Verdict.STALE
        assert await walk.execution() == before

    async def test_a_retry_whose_answer_was_lost_opens_no_second_generation(self) -> None:
        walk = await self.in_state("FAILED")
        retry = RetryRequested(**X, generation=1)
        assert (await walk.record(retry)).verdict is Verdict.ACCEPTED
        await walk.record(await walk.failed("only"))
        assert (await walk.execution()).state is ExecutionState.FAILED
        assert (await walk.record(retry)).verdict is Verdict.KNOWN
        assert (await walk.execution()).generation == 2

    async def test_a_retry_of_a_node_that_is_not_there_is_unknown(self) -> None:
        walk = await self.in_state("FAILED")
        recorded_event = await walk.record(RetryRequested(**X, generation=1, nodes=("nobody",)))
        assert recorded_event.verdict is Verdict.UNKNOWN
        assert (await walk.execution()).generation == 1

    async def test_a_retry_moves_the_open_letters_on(self) -> None:
        walk = await self.in_state("FAILED")
        await walk.record(self.CALLS["retry"])
        assert await letters(walk) == {"only": "retried"}

    async def test_the_numbers_on_the_execution_follow_a_stop_and_a_retry(self) -> None:
        async def numbers() -> tuple[int, ...]:
            row = await walk.execution()
            return row.total, row.unsettled, row.completed, row.failed, row.skipped, row.cancelled

        walk = await walked(
            workflow("a", "b", node("off", "a", condition="1 == 2"), node("c", "b"), node("d", "c"), "e")
        )
        assert await numbers() == (6, 6, 0, 0, 0, 0)
        await walk.advance(await walk.completed("a"))
        assert await numbers() == (6, 4, 1, 0, 1, 0)
        await walk.advance(await walk.failed("b"))
        assert await numbers() == (6, 0, 1, 1, 3, 1)
        await walk.record(RetryRequested(**X, generation=0))
        assert await numbers() == (6, 4, 1, 0, 1, 0)
        await walk.record(CancelRequested(**X, generation=0))
        assert await numbers() == (6, 0, 1, 0, 1, 4)
        await walk.record(RetryRequested(**X, generation=0, nodes=("a",)))
        assert await numbers() == (6, 6, 0, 0, 0, 0)


class TestTheFence:
    async def test_a_result_counts_once(self) -> None:
        walk = await walked(workflow("a", "b"))
        event = await walk.completed("a", 1)
        assert (await walk.record(event)).verdict is Verdict.ACCEPTED
        before, rows = await walk.execution(), await walk.rows()
        recorded_event = await walk.record(event)
        assert recorded_event.verdict is Verdict.KNOWN
        assert recorded_event.rows == (rows["a"],)
        assert (await walk.execution(), await walk.rows()) == (before, rows)

    async def test_a_result_that_contradicts_the_recorded_one_changes_nothing(self) -> None:
        walk = await walked(workflow("a", "b"))
        other = await walk.failed("a")
        await walk.complete("a")
        assert (await walk.record(other)).verdict is Verdict.KNOWN
        assert (await walk.row("a")).state == "COMPLETED"

    async def test_a_result_of_a_superseded_attempt_is_stale_and_noted(self) -> None:
        walk = await walked(workflow("a"))
        late = await walk.completed("a")
        await walk.record(await walk.lost("a"))
        recorded_event = await walk.record(late)
        assert recorded_event.verdict is Verdict.STALE
        assert (await walk.row("a")).attempt == 2
        assert (await types(walk))[-1] == "result.discarded"

    async def test_a_result_of_an_older_generation_is_stale_and_noted_under_its_own(self) -> None:
        walk = await walked(workflow("a", "b"))
        late = await walk.completed("b")
        await walk.fail("a")
        await walk.record(RetryRequested(**X, generation=1))
        assert (await walk.record(late)).verdict is Verdict.STALE
        (noted,) = await walk.journal.events("x1", after=(await walk.execution()).seq - 1)
        assert (noted.type, noted.generation, noted.node) == ("result.discarded", 1, "b")
        assert (await walk.row("b")).state is None

    async def test_a_loss_counts_once_and_is_known_the_second_time(self) -> None:
        walk = await walked(workflow("a"))
        lost = await walk.lost("a")
        await walk.record(lost)
        before, row = await walk.execution(), await walk.row("a")
        assert (row.attempt, row.losses, row.failures) == (2, 1, 0)
        assert (await walk.record(lost)).verdict is Verdict.KNOWN
        assert (await walk.execution(), await walk.row("a")) == (before, row)

    async def test_a_loss_that_failed_the_node_is_known_the_second_time(self) -> None:
        walk = await walked(workflow(node("a", delivery="at_most_once"), "b", failure_policy="continue"))
        lost = await walk.lost("a")
        assert (await walk.record(lost)).verdict is Verdict.ACCEPTED
        before = await walk.execution()
        assert (await walk.record(lost)).verdict is Verdict.KNOWN
        assert await walk.execution() == before

    async def test_a_result_after_its_loss_is_stale(self) -> None:
        walk = await walked(workflow("a"))
        result = await walk.failed("a", retryable=True)
        await walk.record(await walk.lost("a"))
        assert (await walk.record(result)).verdict is Verdict.STALE
        assert (await walk.row("a")).failures == 0

    async def test_losses_are_counted_in_a_row_and_failures_altogether(self) -> None:
        walk = await walked(workflow("a"))
        await walk.record(await walk.lost("a"))
        await walk.record(await walk.lost("a"))
        assert (await walk.row("a")).losses == 2
        await walk.record(await walk.failed("a", retryable=True))
        row = await walk.row("a")
        assert (row.attempt, row.failures, row.losses) == (4, 1, 0)

    async def test_a_loss_that_nobody_is_to_blame_for_is_not_counted(self) -> None:
        walk = await walked(workflow("a"))
        await walk.record(await walk.lost("a", charged=False))
        row = await walk.row("a")
        assert (row.attempt, row.losses) == (2, 0)

    async def test_an_attempt_is_issued_only_under_the_current_epoch(self) -> None:
        walk = await walked(workflow(node("a", delivery="at_most_once")))
        issued = AttemptIssued(**X, generation=1, node_id="a", attempt=1, epoch=1)
        assert (await walk.record(issued)).verdict is Verdict.ACCEPTED
        assert (await walk.row("a")).issued == 1
        await walk.rebuild()
        assert (await walk.record(issued)).verdict is Verdict.STALE

    async def test_an_unknown_execution_or_node_is_unknown(self) -> None:
        walk = await walked(workflow("a"))
        event = await walk.completed("a")
        assert isinstance(event, NodeCompleted)
        for field, value in (("execution_id", "nowhere"), ("node_id", "nobody")):
            recorded_event = await walk.record(_replaced(event, **{field: value}))
            assert recorded_event.verdict is Verdict.UNKNOWN

    async def test_times_are_kept_in_order_whatever_the_workers_clock_said(self) -> None:
        walk = await walked(workflow("a"))
        now = walk.clock.now()
        result = await walk.result("a", queued_at=now + 9, started_at=now + 7, finished_at=now + 5)
        await walk.record(walk.judge(result))
        row = await walk.row("a")
        assert row.queued_at is not None
        assert row.started_at is not None
        assert row.finished_at is not None
        assert row.queued_at <= row.started_at <= row.finished_at <= now

    async def test_a_cached_output_completes_a_node_without_an_attempt(self) -> None:
        walk = await walked(workflow("a"))
        await walk.record(NodeCached(**X, generation=1, node_id="a", attempt=1, output=b"7"))
        row = await walk.row("a")
        assert (row.state, row.cached, row.ended, row.worker) == ("COMPLETED", True, 0, None)
        assert row.queued_at == row.started_at == row.finished_at == walk.clock.now()
        assert (await walk.execution()).output == b'{"a":7}'


class TestTheOutput:
    async def test_an_output_that_cannot_be_made_is_an_error_of_a_completed_execution(self) -> None:
        walk = await walked(workflow("a", output={"n": "{{ 1 / a.zero }}"}))
        await walk.complete("a", output={"zero": 0})
        execution = await walk.execution()
        assert (execution.state, execution.output) == (ExecutionState.COMPLETED, None)
        assert execution.error is not None
        assert execution.error["code"] == "output_error"

    async def test_it_is_made_of_the_completed_leaves(self) -> None:
        walk = await walked(workflow("a", node("b", "a"), node("off", "a", condition="1 == 2")))
        await walk.complete("a", "b", output=[1])
        assert (await walk.execution()).output == b'{"b":[1]}'


def _replaced(event: Any, **fields: Any) -> Any:
    return type(event)(**{**{name: getattr(event, name) for name in event.__struct_fields__}, **fields})


def _with_running(event: Any, running: dict[str, Running]) -> Any:
    return _replaced(event, running=running)
