"""Which nodes a retry runs again, and under which number."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft.core.event import CancelRequested, PauseRequested, RetryRequested
from weft.core.retry_plan import RetryPlan, may_have_started, plan_retry
from weft.core.rows import NodeRow
from weft.core.state import ExecutionState
from weft.testing.walk import Walk, node, workflow

if TYPE_CHECKING:
    from weft.core.payload import Json

X: dict[str, Any] = {"execution_id": "x1"}


async def walked(document: Json) -> Walk:
    walk = Walk(document)
    await walk.begin()
    return walk


async def planned(walk: Walk, *nodes: str) -> RetryPlan:
    assert (await walk.execution()).state in (ExecutionState.FAILED, ExecutionState.CANCELLED)
    return plan_retry(walk.plan, await walk.rows(), nodes)


async def retry(walk: Walk, *nodes: str) -> list[str]:
    await walk.record(RetryRequested(**X, generation=0, nodes=nodes))
    return await walk.reopen()


class TestThePlan:
    async def test_what_failed_what_was_cancelled_and_what_was_behind_runs_again(self) -> None:
        walk = await walked(
            workflow("done", node("bad", "done"), node("behind", "bad"), node("stopped", "done"))
        )
        await walk.complete("done")
        await walk.fail("bad")
        assert await planned(walk) == RetryPlan(run=("bad", "behind", "stopped"), reuse=("done",))

    async def test_completed_nodes_keep_their_outputs(self) -> None:
        walk = await walked(workflow("bad", "other", node("end", "other"), failure_policy="continue"))
        await walk.fail("bad")
        await walk.complete("other", "end")
        assert await planned(walk) == RetryPlan(run=("bad",), reuse=("other", "end"))

    async def test_handlers_and_clean_up_ran_on_the_old_outcome_and_run_again_with_all_behind(self) -> None:
        walk = await walked(
            workflow(
                "bad",
                node("handler", "bad", rule="one_failed"),
                node("after_handler", "handler"),
                node("cleanup", "bad", rule="all_done"),
                node("after_cleanup", "cleanup"),
                "fatal",
                failure_policy="continue",
            )
        )
        await walk.fail("bad", "fatal")
        await walk.complete("handler", "after_handler", "cleanup", "after_cleanup")
        assert (await planned(walk)).reuse == ()

    async def test_a_handler_that_was_not_triggered_is_decided_anew(self) -> None:
        walk = await walked(workflow("bad", node("behind", "bad"), node("idle", "behind", rule="one_failed")))
        await walk.fail("bad")
        assert (await planned(walk)).run == ("bad", "behind", "idle")

    async def test_a_skip_by_condition_behind_a_rerun_node_is_decided_anew(self) -> None:
        walk = await walked(
            workflow(
                "good",
                "bad",
                node("first", "good", "bad", rule="one_success", condition="bad.output is defined"),
                failure_policy="continue",
            )
        )
        await walk.fail("bad")
        await walk.complete("good")
        assert (await walk.states())["first"] == "SKIPPED condition"
        assert await planned(walk) == RetryPlan(run=("bad", "first"), reuse=("good",))

    async def test_a_skip_behind_a_node_that_keeps_its_output_is_kept_with_it(self) -> None:
        """Its parent is settled: decided anew at once, it would not see what `bad` does this time either."""
        walk = await walked(
            workflow(
                "good",
                "bad",
                node("kept", "good", "bad", rule="one_success"),
                node("look", "kept", condition="nodes.bad.state == 'COMPLETED'"),
                failure_policy="continue",
            )
        )
        await walk.fail("bad")
        await walk.complete("good", "kept")
        assert (await walk.states())["look"] == "SKIPPED condition"
        assert await planned(walk) == RetryPlan(run=("bad",), reuse=("good", "kept", "look"))

    async def test_everything_behind_a_completed_node_that_runs_again_runs_again(self) -> None:
        """Even behind a node that was skipped in between: it may name the output that changes."""
        walk = await walked(
            workflow(
                "bad",
                node("cleanup", "bad", rule="all_done"),
                node("off", "cleanup", condition="1 == 2"),
                node("far", "off", rule="none_failed", config={"x": "{{ cleanup.n }}"}),
                failure_policy="continue",
            )
        )
        await walk.fail("bad")
        await walk.complete("cleanup", output={"n": 1})
        await walk.complete("far")
        assert (await planned(walk)).run == ("bad", "cleanup", "off", "far")

    async def test_a_completed_one_success_node_keeps_its_output(self) -> None:
        walk = await walked(
            workflow(
                "good", "bad", node("first", "good", "bad", rule="one_success"), failure_policy="continue"
            )
        )
        await walk.fail("bad")
        await walk.complete("good", "first")
        assert await planned(walk) == RetryPlan(run=("bad",), reuse=("good", "first"))

    async def test_a_named_node_runs_again_with_everything_behind_it(self) -> None:
        walk = await walked(
            workflow("a", node("b", "a"), node("c", "b"), "other", "bad", failure_policy="continue")
        )
        await walk.complete("a", "b", "c", "other")
        await walk.fail("bad")
        assert await planned(walk, "b") == RetryPlan(run=("b", "c", "bad"), reuse=("a", "other"))
        assert await planned(walk, "c") == RetryPlan(run=("c", "bad"), reuse=("a", "b", "other"))

    async def test_a_plan_of_a_named_skipped_node_takes_what_is_behind_it_too(self) -> None:
        walk = await walked(
            workflow(
                node("off", condition="1 == 2"),
                node("end", "off", rule="none_failed"),
                "bad",
                failure_policy="continue",
            )
        )
        await walk.complete("end")
        await walk.fail("bad")
        assert await planned(walk, "off") == RetryPlan(run=("off", "end", "bad"), reuse=())

    async def test_what_is_planned_is_what_happens(self) -> None:
        walk = await walked(workflow("a", node("bad", "a"), node("end", "bad"), "other"))
        await walk.complete("a", "other")
        await walk.fail("bad")
        plan = await planned(walk)
        assert await retry(walk) == ["bad"]
        assert await walk.complete("bad") == ["end"]
        await walk.complete("end")
        assert {started for started, generation, _ in walk.started if generation == 2} == set(plan.run)
        execution = await walk.execution()
        assert (execution.state, execution.generation) == (ExecutionState.COMPLETED, 2)


class TestAttempts:
    async def test_a_node_that_ran_goes_on_counting(self) -> None:
        walk = await walked(workflow("bad"))
        await walk.fail("bad")
        await retry(walk)
        row = await walk.row("bad")
        assert (row.attempt, row.failures, row.generation) == (2, 0, 2)

    async def test_a_skipped_node_keeps_its_number(self) -> None:
        walk = await walked(workflow("bad", node("behind", "bad")))
        await walk.fail("bad")
        await retry(walk)
        assert (await walk.row("behind")).attempt == 1

    async def test_a_node_that_was_cancelled_before_it_was_ready_keeps_its_number(self) -> None:
        walk = await walked(workflow("slow", node("waiting", "slow"), node("far", "waiting")))
        await walk.advance(CancelRequested(**X, generation=0))
        await retry(walk)
        rows = await walk.rows()
        assert {n: row.attempt for n, row in rows.items()} == {"slow": 2, "waiting": 1, "far": 1}

    async def test_an_early_rule_makes_a_node_ready_before_its_parents_are_settled(self) -> None:
        walk = await walked(
            workflow(
                "quick",
                "slow",
                node("first", "quick", "slow", rule="one_success"),
                node("handler", "quick", "slow", rule="one_failed"),
            )
        )
        await walk.complete("quick")
        await walk.advance(CancelRequested(**X, generation=0))
        rows = await walk.rows()
        assert may_have_started(walk.plan, rows, "first")
        assert not may_have_started(walk.plan, rows, "handler")

    async def test_a_node_that_was_ready_and_not_started_is_counted_on_to_be_safe(self) -> None:
        walk = await walked(workflow("one", "two", max_concurrency=1))
        assert walk.started == [("one", 1, 1)]
        await walk.advance(CancelRequested(**X, generation=0))
        await retry(walk)
        assert (await walk.row("two")).attempt == 2

    async def test_a_retry_scheduled_at_the_time_of_the_cancel_is_counted_on(self) -> None:
        walk = await walked(workflow("bad"))
        await walk.advance(await walk.failed("bad", retryable=True))
        await walk.advance(PauseRequested(**X, generation=0), CancelRequested(**X, generation=0))
        await retry(walk)
        row = await walk.row("bad")
        assert (row.attempt, row.retry_at) == (3, None)

    async def test_a_node_that_never_ran_in_two_generations_still_has_its_first_number(self) -> None:
        walk = await walked(workflow("bad", node("behind", "bad")))
        for _ in range(2):
            await walk.fail("bad")
            await retry(walk)
        await walk.complete("bad", "behind")
        assert [attempt for name, _, attempt in walk.started if name == "behind"] == [1]
        assert [attempt for name, _, attempt in walk.started if name == "bad"] == [1, 2, 3]


def test_a_missing_row_reads_as_attempt_one_that_is_not_settled() -> None:
    row = NodeRow(node_id="a")
    assert (row.attempt, row.ended, row.is_settled, row.failures) == (1, 0, False, 0)
