"""Cancel, pause, resume and retry, in every state of an execution."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest
from tests.walks.stage import (
    LATER_SECONDS,
    PATIENCE_SECONDS,
    Stage,
    by_id,
    echo,
    fails,
    node,
    states,
    workflow,
)

from weft.core.retry_plan import RetryPlan
from weft.errors import NotAllowedError, NotFoundError, RequestError
from weft.orchestrator.control import retry_plan

if TYPE_CHECKING:
    from weft.core.payload import Json
    from weft.engine import Engine
    from weft.handlers.contract import HandlerContext

STATES = ("PENDING", "RUNNING", "PAUSED", "COMPLETED", "FAILED", "CANCELLED")

# What each call makes of each state; None: it is refused.
CONTROL: dict[str, tuple[str | None, ...]] = {
    "cancel": ("CANCELLED", "CANCELLED", "CANCELLED", None, None, "CANCELLED"),
    "pause": ("PAUSED", "PAUSED", "PAUSED", None, None, None),
    "resume": ("PENDING", "RUNNING", "RUNNING", None, None, None),
    "retry": (None, None, None, None, "RUNNING", "RUNNING"),
}
CELLS = [
    (action, state, after)
    for action, outcomes in CONTROL.items()
    for state, after in zip(STATES, outcomes, strict=True)
]


async def brought_to(state: str, stage: Stage) -> str:
    """Bring an execution of one held node into a state."""
    if state == "PENDING":
        # Nobody takes it up.
        await stage.engine.orchestrator.stop()
        return await stage.submit_pending(workflow(node("a")))
    execution_id = await stage.submit(workflow(node("a")))
    call = await stage.call("a")
    match state:
        case "PAUSED":
            await stage.engine.pause(execution_id)
        case "COMPLETED":
            call.complete()
            await stage.ended(execution_id)
        case "FAILED":
            call.fail()
            await stage.ended(execution_id)
        case "CANCELLED":
            await stage.engine.cancel(execution_id)
    return execution_id


async def control(engine: Engine, action: str, execution_id: str) -> None:
    await getattr(engine, action)(execution_id)


class TestTheTable:
    @pytest.mark.parametrize(("action", "state", "after"), CELLS)
    async def test_a_call_does_what_the_table_says(
        self, engine: Engine, stage: Stage, action: str, state: str, after: str | None
    ) -> None:
        execution_id = await brought_to(state, stage)
        before = await stage.execution(execution_id)
        assert before.state == state

        if after is None:
            with pytest.raises(NotAllowedError) as refused:
                await control(engine, action, execution_id)
            assert refused.value.state == state
        else:
            await control(engine, action, execution_id)

        now = await stage.execution(execution_id)
        assert now.state == (after or state)
        changes = after is not None and after != state
        assert (now.seq > before.seq) == changes, "a call that changes nothing leaves no trace"

    @pytest.mark.parametrize(("action", "state", "after"), [cell for cell in CELLS if cell[2] is not None])
    async def test_the_same_call_again_changes_nothing_more(
        self, engine: Engine, stage: Stage, action: str, state: str, after: str
    ) -> None:
        execution_id = await brought_to(state, stage)
        await control(engine, action, execution_id)
        seq = (await stage.execution(execution_id)).seq

        if action == "retry":
            with pytest.raises(NotAllowedError):
                await control(engine, action, execution_id)
        else:
            await control(engine, action, execution_id)

        assert (await stage.execution(execution_id)).seq == seq

    @pytest.mark.parametrize("action", CONTROL)
    async def test_an_execution_that_does_not_exist_is_not_found(self, engine: Engine, action: str) -> None:
        with pytest.raises(NotFoundError):
            await control(engine, action, "0198c0de-0000-7000-8000-000000000000")

    async def test_of_many_retries_at_once_one_is_made(self, engine: Engine, stage: Stage) -> None:
        execution_id = await brought_to("FAILED", stage)

        answers = await asyncio.gather(
            *(engine.retry(execution_id) for _ in range(20)), return_exceptions=True
        )

        assert [answer for answer in answers if not isinstance(answer, NotAllowedError)] == [None]
        assert (await stage.execution(execution_id)).generation == 2
        (await stage.call("a")).complete()
        assert (await stage.ended(execution_id))["state"] == "COMPLETED"
        assert stage.started() == [("a", 1), ("a", 2)]

    async def test_of_many_cancels_at_once_one_is_recorded_and_all_are_answered(
        self, engine: Engine, stage: Stage
    ) -> None:
        execution_id = await brought_to("RUNNING", stage)

        await asyncio.gather(*(engine.cancel(execution_id) for _ in range(20)))

        assert (await stage.event_types(execution_id)).count("execution.cancelled") == 1

    async def test_cancels_and_retries_at_once_leave_one_outcome(self, engine: Engine, stage: Stage) -> None:
        execution_id = await brought_to("RUNNING", stage)

        await asyncio.gather(
            *(engine.cancel(execution_id) for _ in range(10)),
            *(engine.retry(execution_id) for _ in range(10)),
            return_exceptions=True,
        )

        row = await stage.execution(execution_id)
        types = await stage.event_types(execution_id)
        assert row.generation == 1 + types.count("execution.retried")
        assert types.count("execution.cancelled") - types.count("execution.retried") == (
            row.state == "CANCELLED"
        )


class TestCancel:
    async def test_everything_unsettled_is_cancelled_before_it_returns(self, stage: Stage) -> None:
        async with stage.open(worker_concurrency=2) as engine:
            execution_id = await stage.submit(
                workflow(
                    node("done"),
                    node("retrying", max_retries=1, retry={"base_delay_seconds": LATER_SECONDS}),
                    node("running", "done"),
                    node("running_too", "done"),
                    node("queued", "done"),
                    node("waiting", "running"),
                )
            )
            (await stage.call("retrying")).fail(RuntimeError("not yet"))
            (await stage.call("done")).complete(1)
            await stage.calls_of(["running", "running_too"])
            await stage.until_state(execution_id, "queued", "QUEUED")

            await engine.cancel(execution_id)

            shown = await engine.describe(execution_id)
            assert shown["state"] == "CANCELLED"
            assert shown["error"] is None
            assert shown["output"] is None
            assert shown["finished_at"] is not None
            cancelled = ("retrying", "running", "running_too", "queued", "waiting")
            assert states(shown) == {"done": "COMPLETED", **dict.fromkeys(cancelled, "CANCELLED cancelled")}
            # One that was in hand shows the attempt that was cut short, the others none.
            nodes = by_id(shown)
            assert [nodes[name]["attempt"] for name in cancelled] == [1, 1, 1, 0, 0]
            assert nodes["running"]["started_at"] <= nodes["running"]["finished_at"]
            assert nodes["queued"]["started_at"] is None

    async def test_no_attempt_starts_after_it(self, stage: Stage) -> None:
        async with stage.open(worker_concurrency=1) as engine:
            execution_id = await stage.submit(workflow(*(node(f"n{i}") for i in range(20))))
            call = await stage.call("n0")
            await stage.until_state(execution_id, "n19", "QUEUED")

            await engine.cancel(execution_id)
            # At once the slot is free for the next of those that are queued.
            call.complete()

            await stage.until_idle()
            assert (await stage.run(workflow(echo("other"))))["state"] == "COMPLETED"
            assert stage.started() == [("n0", 1)]

    async def test_a_coroutine_hears_it(self, engine: Engine, stage: Stage) -> None:
        execution_id = await stage.submit(workflow(node("a")))
        call = await stage.call("a")

        await engine.cancel(execution_id)

        async with asyncio.timeout(PATIENCE_SECONDS):
            await call.heard_stop.wait()
        assert call.context.cancelled()

    async def test_a_plain_function_hears_it(self, engine: Engine, stage: Stage) -> None:
        running, heard = threading.Event(), threading.Event()

        def work(config: Json, context: HandlerContext) -> Json:
            running.set()
            while not context.cancelled():
                heard.wait(0.001)
            heard.set()
            return "late"

        stage.add("work", work)
        execution_id = await stage.submit(workflow(node("a", handler="work")))
        assert await asyncio.to_thread(running.wait, PATIENCE_SECONDS)

        await engine.cancel(execution_id)

        assert await asyncio.to_thread(heard.wait, PATIENCE_SECONDS)
        await stage.until_idle()
        assert await stage.states(execution_id) == {"a": "CANCELLED cancelled"}

    async def test_a_late_result_is_recorded_as_discarded_and_changes_nothing(
        self, engine: Engine, stage: Stage
    ) -> None:
        execution_id = await stage.submit(workflow(node("a"), node("b", "a")))
        call = await stage.call("a")
        await engine.cancel(execution_id)
        before = await engine.describe(execution_id)

        await stage.publish_late(call)

        assert await engine.describe(execution_id) == before
        last = (await stage.events(execution_id))[-1]
        assert (last.type, last.node, last.attempt, last.generation) == ("result.discarded", "a", 1, 1)

    async def test_other_executions_go_on(self, engine: Engine, stage: Stage) -> None:
        cancelled = await stage.submit(workflow(node("a")))
        other = await stage.submit(workflow(node("a")))
        await stage.call("a", cancelled)
        call = await stage.call("a", other)

        await engine.cancel(cancelled)

        call.complete()
        assert (await stage.ended(other))["state"] == "COMPLETED"


class TestPause:
    async def test_what_runs_finishes_and_counts_and_nothing_else_starts(
        self, engine: Engine, stage: Stage
    ) -> None:
        execution_id = await stage.submit(workflow(node("a"), node("b", "a"), node("c", "b")))
        call = await stage.call("a")

        await engine.pause(execution_id)
        call.complete("counted")
        await stage.until_state(execution_id, "a", "COMPLETED")

        assert (await stage.run(workflow(echo("other"))))["state"] == "COMPLETED"
        assert stage.started() == [("a", 1)]
        shown = await engine.describe(execution_id)
        assert shown["state"] == "PAUSED"
        assert states(shown) == {"a": "COMPLETED", "b": "PENDING", "c": "PENDING"}
        assert by_id(shown)["a"]["output"] == "counted"
        assert await stage.reasons(execution_id, "b") == ["paused"]

        await engine.resume(execution_id)

        (await stage.call("b")).complete()
        (await stage.call("c")).complete()
        assert (await stage.ended(execution_id))["state"] == "COMPLETED"
        assert stage.started() == [("a", 1), ("b", 1), ("c", 1)]

    async def test_a_task_on_its_way_does_not_start(self, stage: Stage) -> None:
        async with stage.open(worker_concurrency=1) as engine:
            execution_id = await stage.submit(workflow(node("a"), node("b")))
            call = await stage.call("a")
            await stage.until_state(execution_id, "b", "QUEUED")

            await engine.pause(execution_id)
            call.complete()
            await stage.until_state(execution_id, "b", "PENDING")
            await stage.until_idle()
            assert stage.started() == [("a", 1)]

            await engine.resume(execution_id)
            (await stage.call("b")).complete()
            assert (await stage.ended(execution_id))["state"] == "COMPLETED"
            # It is the same attempt: the refused start did not use its number up.
            assert stage.started() == [("a", 1), ("b", 1)]

    async def test_a_timer_that_comes_due_waits_for_resume(self, engine: Engine, stage: Stage) -> None:
        delay = {"base_delay_seconds": 0.05, "jitter": 0}
        execution_id = await stage.submit(workflow(node("a", max_retries=1, retry=delay)))
        call = await stage.call("a")
        await engine.pause(execution_id)

        call.fail(RuntimeError("once"))

        async def is_due() -> bool:
            return await stage.reasons(execution_id, "a") == ["paused"]

        await stage.until(is_due)
        (event,) = [event for event in await stage.events(execution_id) if event.type == "node.retrying"]
        assert event.due_at is not None
        assert event.due_at <= engine.ports.clock.now()
        assert stage.started() == [("a", 1)]

        await engine.resume(execution_id)
        (await stage.call("a")).complete()
        assert by_id(await stage.ended(execution_id))["a"]["attempt"] == 2

    async def test_the_deadline_keeps_running(self, engine: Engine, stage: Stage) -> None:
        execution_id = await stage.submit(workflow(node("a"), node("b", "a"), timeout_seconds=0.6))
        call = await stage.call("a")
        await engine.pause(execution_id)
        call.complete()

        shown = await stage.ended(execution_id)

        assert (shown["state"], shown["error"]["code"]) == ("FAILED", "deadline_exceeded")
        assert states(shown) == {"a": "COMPLETED", "b": "CANCELLED deadline"}

    async def test_an_execution_completes_where_its_last_running_nodes_settle_it(
        self, engine: Engine, stage: Stage
    ) -> None:
        execution_id = await brought_to("PAUSED", stage)

        stage.calls[0].complete("done")

        shown = await stage.ended(execution_id)
        assert (shown["state"], shown["output"]) == ("COMPLETED", {"a": "done"})

    async def test_one_that_was_never_taken_up_starts_when_it_is_resumed(
        self, engine: Engine, stage: Stage
    ) -> None:
        execution_id = await brought_to("PENDING", stage)
        await engine.pause(execution_id)
        await engine.orchestrator.start()
        assert (await stage.run(workflow(echo("other"))))["state"] == "COMPLETED"
        assert stage.started() == []

        await engine.resume(execution_id)

        (await stage.call("a")).complete()
        shown = await stage.ended(execution_id)
        assert shown["state"] == "COMPLETED"
        assert await stage.event_types(execution_id) == [
            "execution.created",
            "execution.paused",
            "execution.resumed",
            "execution.started",
            "node.completed",
            "execution.completed",
        ]


class TestRetry:
    async def test_what_completed_is_kept_and_what_failed_runs_again_under_the_next_number(
        self, engine: Engine, stage: Stage
    ) -> None:
        execution_id = await stage.submit(
            workflow(node("first"), node("second", "first", config={"given": "{{ first.n }}"}))
        )
        (await stage.call("first")).complete({"n": 7})
        (await stage.call("second")).fail()
        failed = await stage.ended(execution_id)

        await engine.retry(execution_id)

        call = await stage.call("second")
        again = await engine.describe(execution_id)
        assert (again["state"], again["generation"]) == ("RUNNING", 2)
        assert again["error"] is None
        assert again["finished_at"] is None
        assert again["started_at"] > failed["started_at"]
        assert by_id(again)["first"] == by_id(failed)["first"]
        assert call.config == {"given": 7}
        assert (call.context.attempt, call.context.generation) == (2, 2)
        assert call.context.idempotency_key == f"{execution_id}/second/2"

        call.complete("at last")
        shown = await stage.ended(execution_id)
        assert (shown["state"], shown["output"]) == ("COMPLETED", {"second": "at last"})
        assert stage.started() == [("first", 1), ("second", 1), ("second", 2)]

    async def test_failures_are_counted_anew_and_attempts_are_not(self, engine: Engine, stage: Stage) -> None:
        execution_id = await stage.submit(workflow(node("a", max_retries=1)))
        for generation in (1, 2):
            for _ in range(2):
                (await stage.call("a")).fail(RuntimeError("again"))
            assert (await stage.ended(execution_id))["state"] == "FAILED"
            if generation == 1:
                await engine.retry(execution_id)

        attempts = (await engine.describe_node(execution_id, "a"))["attempts"]
        assert [(attempt["number"], attempt["generation"]) for attempt in attempts] == [
            (1, 1),
            (2, 1),
            (3, 2),
            (4, 2),
        ]

    async def test_a_cancelled_execution_can_be_retried(self, engine: Engine, stage: Stage) -> None:
        execution_id = await stage.submit(workflow(node("a"), node("b", "a")))
        await stage.call("a")
        await engine.cancel(execution_id)

        await engine.retry(execution_id)

        (await stage.call("a")).complete()
        (await stage.call("b")).complete()
        shown = await stage.ended(execution_id)
        assert shown["state"] == "COMPLETED"
        # b was never handed out, so its first number is still to be used.
        assert stage.started() == [("a", 1), ("a", 2), ("b", 1)]

    async def test_a_node_that_never_started_keeps_its_first_number(
        self, engine: Engine, stage: Stage
    ) -> None:
        stage.add("picky", _doubled, schema={"type": "object"})
        document = workflow(
            node("source"),
            node("a", "source", handler="picky", config={"n": "{{ source.n }}"}),
        )
        execution_id = await stage.submit(document)
        (await stage.call("source")).complete({"m": 1})
        shown = await stage.ended(execution_id)
        assert by_id(shown)["a"]["error"]["code"] == "template_error"
        assert by_id(shown)["a"]["attempt"] == 0

        await engine.retry(execution_id, nodes=["source"])
        (await stage.call("source")).complete({"n": 21})

        shown = await stage.ended(execution_id)
        assert shown["output"] == {"a": 42}
        assert by_id(shown)["a"]["attempt"] == 1

    async def test_a_late_result_of_the_old_generation_changes_nothing(
        self, engine: Engine, stage: Stage
    ) -> None:
        execution_id = await stage.submit(workflow(node("a")))
        old = await stage.call("a")
        await engine.cancel(execution_id)
        await engine.retry(execution_id)
        new = await stage.call("a")

        await stage.publish_late(old)
        assert (await stage.events(execution_id))[-1].type == "result.discarded"
        new.complete("new")

        assert (await stage.ended(execution_id))["output"] == {"a": "new"}

    async def test_the_deadline_starts_anew(self, engine: Engine, stage: Stage) -> None:
        execution_id = await stage.submit(workflow(node("a"), timeout_seconds=0.1))
        assert (await stage.ended(execution_id))["error"]["code"] == "deadline_exceeded"
        first = await stage.execution(execution_id)

        await engine.retry(execution_id)

        second = await stage.execution(execution_id)
        assert first.deadline_at is not None
        assert second.deadline_at is not None
        assert second.started_at is not None
        assert second.deadline_at - second.started_at == 100_000
        assert (await stage.ended(execution_id))["error"]["code"] == "deadline_exceeded"

    @pytest.mark.parametrize(
        ("nodes", "plan"),
        [
            ((), RetryPlan(run=("bad", "behind", "handler", "cleanup"), reuse=("good", "next", "idle"))),
            (
                ("good",),
                RetryPlan(run=("good", "next", "idle", "bad", "behind", "handler", "cleanup"), reuse=()),
            ),
            (
                ("next",),
                RetryPlan(run=("next", "bad", "behind", "handler", "cleanup"), reuse=("good", "idle")),
            ),
        ],
        ids=["what failed", "from the root", "from the middle"],
    )
    async def test_the_plan_says_what_then_happens(
        self, engine: Engine, stage: Stage, nodes: tuple[str, ...], plan: RetryPlan
    ) -> None:
        execution_id = await stage.submit(
            workflow(
                echo("good"),
                echo("next", "good"),
                echo("idle", "good", condition="1 == 2"),
                fails("bad"),
                echo("behind", "bad"),
                echo("handler", "behind", "bad", rule="one_failed", condition="1 == 2"),
                echo("cleanup", "bad", "next", rule="all_done"),
                failure_policy="continue",
            )
        )
        await stage.ended(execution_id)
        before = await stage.rows(execution_id)

        generation, planned = await retry_plan(execution_id, engine.ports, nodes=nodes)
        assert generation == 2
        assert (set(planned.run), set(planned.reuse)) == (set(plan.run), set(plan.reuse))
        assert (await stage.execution(execution_id)).generation == 1, "a plan does nothing"
        await engine.retry(execution_id, nodes=nodes)
        await stage.ended(execution_id)

        after = await stage.rows(execution_id)
        assert {name for name, row in after.items() if row.generation == 2} == set(planned.run)
        assert {name: after[name] for name in planned.reuse} == {name: before[name] for name in planned.reuse}

    @pytest.mark.parametrize("state", ["PENDING", "RUNNING", "PAUSED", "COMPLETED"])
    async def test_a_plan_is_refused_where_the_retry_would_be(
        self, engine: Engine, stage: Stage, state: str
    ) -> None:
        execution_id = await brought_to(state, stage)
        with pytest.raises(NotAllowedError) as refused:
            await retry_plan(execution_id, engine.ports)
        assert refused.value.state == state

    async def test_a_node_that_does_not_exist_is_named_and_nothing_is_retried(
        self, engine: Engine, stage: Stage
    ) -> None:
        execution_id = await brought_to("FAILED", stage)
        for refused in (
            engine.retry(execution_id, nodes=["nobody"]),
            retry_plan(execution_id, engine.ports, nodes=("nobody",)),
        ):
            with pytest.raises(RequestError, match="nobody"):
                await refused
        assert (await stage.execution(execution_id)).generation == 1


async def _doubled(config: Any, context: HandlerContext) -> Json:
    return config["n"] * 2
