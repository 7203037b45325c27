"""An engine that closes in the middle, and another that opens on what it left."""

from __future__ import annotations

import asyncio
import shutil
from typing import TYPE_CHECKING

import pytest
from tests.walks.stage import (
    LATER_SECONDS,
    PATIENCE_SECONDS,
    Stage,
    by_id,
    echo,
    node,
    states,
    workflow,
)

from weft.errors import DataFolderError

if TYPE_CHECKING:
    from pathlib import Path

    from weft.core.payload import Json
    from weft.handlers.contract import HandlerContext


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Nothing is left of a journal in memory."""
    return tmp_path / "data"


class TestTheNextEngine:
    async def test_it_completes_what_was_under_way(self, stage: Stage) -> None:
        async with stage.open():
            execution_id = await stage.submit(
                workflow(
                    node("done"),
                    node("running", "done", config={"given": "{{ done.n }}"}),
                    node("behind", "running"),
                )
            )
            (await stage.call("done")).complete({"n": 7})
            await stage.call("running")
            before = (await stage.rows(execution_id))["done"]

        async with stage.open():
            call = await stage.call("running")
            assert call.config == {"given": 7}
            assert (await stage.rows(execution_id))["done"] == before, "what is settled is not touched"
            call.complete()
            (await stage.call("behind")).complete("end")
            shown = await stage.ended(execution_id)

        assert (shown["state"], shown["output"], shown["generation"]) == ("COMPLETED", {"behind": "end"}, 1)
        # What was in flight goes on under the next number, and nothing else does.
        assert stage.started() == [("done", 1), ("running", 1), ("running", 2), ("behind", 1)]

    async def test_being_closed_counts_as_neither_failure_nor_delivery(self, stage: Stage) -> None:
        """Four times, where three losses in a row or one failure would be the end."""
        async with stage.open():
            execution_id = await stage.submit(workflow(node("a", max_retries=0)))
            await stage.call("a")
        for _ in range(4):
            async with stage.open():
                await stage.call("a")
                row = (await stage.rows(execution_id))["a"]
                assert (row.failures, row.losses) == (0, 0)
        async with stage.open() as engine:
            (await stage.call("a")).complete()
            assert (await stage.ended(execution_id))["state"] == "COMPLETED"
            attempts = (await engine.describe_node(execution_id, "a"))["attempts"]
        assert [attempt["outcome"] for attempt in attempts] == ["lost"] * 5 + ["completed"]
        assert [number for _, number in stage.started()] == [1, 2, 3, 4, 5, 6]

    async def test_a_paused_execution_stays_paused(self, stage: Stage) -> None:
        async with stage.open() as engine:
            execution_id = await stage.submit(workflow(node("a"), node("b", "a")))
            call = await stage.call("a")
            await engine.pause(execution_id)
            call.complete()
            await stage.until_state(execution_id, "a", "COMPLETED")

        async with stage.open() as engine:
            assert (await stage.run(workflow(echo("other"))))["state"] == "COMPLETED"
            assert (await stage.execution(execution_id)).state == "PAUSED"
            assert await stage.reasons(execution_id, "b") != []
            assert stage.started() == [("a", 1)]
            await engine.resume(execution_id)
            (await stage.call("b")).complete()
            assert (await stage.ended(execution_id))["state"] == "COMPLETED"

    async def test_what_was_never_started_of_a_paused_execution_keeps_its_attempt(self, stage: Stage) -> None:
        """However often it is restarted in good order; one is queued and marked as handed out."""
        async with stage.open(worker_concurrency=1) as engine:
            execution_id = await stage.submit(
                workflow(node("a"), node("b", "a"), node("once", delivery="at_most_once"))
            )
            call = await stage.call("a")
            await stage.until_state(execution_id, "once", "QUEUED")
            await engine.pause(execution_id)
            call.complete()
            await stage.until_state(execution_id, "a", "COMPLETED")
        for _ in range(4):
            async with stage.open():
                await stage.until_idle()
                assert "node.lost" not in await stage.event_types(execution_id)
        async with stage.open() as engine:
            await engine.resume(execution_id)
            for call in await stage.calls_of(["b", "once"]):
                call.complete()
            assert (await stage.ended(execution_id))["state"] == "COMPLETED"
        assert sorted(stage.started()) == [("a", 1), ("b", 1), ("once", 1)]

    async def test_what_was_never_started_keeps_its_attempt_after_an_orderly_stop(self, stage: Stage) -> None:
        async with stage.open(worker_concurrency=1):
            execution_id = await stage.submit(
                workflow(node("a"), node("b"), node("once", delivery="at_most_once"))
            )
            await stage.call("a")
            await stage.until_state(execution_id, "once", "QUEUED")
        async with stage.open():
            for call in await stage.calls_of(["a", "b", "once"]):
                call.complete()
            assert (await stage.ended(execution_id))["state"] == "COMPLETED"
            assert (await stage.event_types(execution_id)).count("node.lost") == 1
        assert sorted(stage.started()) == [("a", 1), ("a", 2), ("b", 1), ("once", 1)]

    async def test_a_killed_engine_has_lost_what_a_paused_execution_had_in_hand(
        self, stage: Stage, data: Path, tmp_path: Path
    ) -> None:
        """What it had not is known from the pause on; what became ready since then is not in hand either."""
        async with stage.open(worker_concurrency=2) as engine:
            execution_id = await stage.submit(
                workflow(node("a"), node("held"), node("b", "a"), node("once", delivery="at_most_once"))
            )
            call, _ = await stage.calls_of(["a", "held"])
            await stage.until_state(execution_id, "once", "QUEUED")
            await engine.pause(execution_id)
            call.complete()
            await stage.until_state(execution_id, "a", "COMPLETED")
            # The folder as a kill -9 leaves it: nothing of the stop is in it.
            for number in range(3):
                shutil.copytree(data, tmp_path / f"killed-{number}")
        for number in range(3):
            stage.data = tmp_path / f"killed-{number}"
            async with stage.open() as engine:
                await stage.until_attempt(execution_id, "held", 2)
                assert (await stage.event_types(execution_id)).count("node.lost") == 1
                if number == 2:
                    await engine.resume(execution_id)
                    for call in await stage.calls_of(["held", "b", "once"]):
                        call.complete()
                    assert (await stage.ended(execution_id))["state"] == "COMPLETED"
        assert sorted(stage.started()) == [("a", 1), ("b", 1), ("held", 1), ("held", 2), ("once", 1)]

    async def test_a_retry_that_is_not_due_yet_still_waits(self, stage: Stage) -> None:
        later = {"base_delay_seconds": LATER_SECONDS, "jitter": 0}
        async with stage.open():
            execution_id = await stage.submit(workflow(node("a", max_retries=1, retry=later)))
            (await stage.call("a")).fail(RuntimeError("once"))
            await stage.until_reason(execution_id, "a", "retry_scheduled")
            before = await stage.node(execution_id, "a")

        async with stage.open() as engine:
            assert (await stage.run(workflow(echo("other"))))["state"] == "COMPLETED"
            assert await stage.node(execution_id, "a") == before
            assert await stage.reasons(execution_id, "a") == ["retry_scheduled"]
            await engine.cancel(execution_id)
        assert stage.started() == [("a", 1)]

    async def test_a_retry_comes_when_it_is_due(self, stage: Stage) -> None:
        soon = {"base_delay_seconds": 0.8, "jitter": 0}
        async with stage.open():
            execution_id = await stage.submit(workflow(node("a", max_retries=1, retry=soon)))
            (await stage.call("a")).fail(RuntimeError("once"))
            await stage.until_reason(execution_id, "a", "retry_scheduled")
            due_at = (await stage.rows(execution_id))["a"].retry_at

        async with stage.open():
            (await stage.call("a")).complete()
            await stage.ended(execution_id)
            started_at = (await stage.rows(execution_id))["a"].started_at
        assert started_at is not None
        assert due_at is not None
        assert started_at >= due_at

    async def test_the_deadline_is_where_it_was(self, stage: Stage) -> None:
        async with stage.open():
            execution_id = await stage.submit(workflow(node("a"), timeout_seconds=0.3))
            await stage.call("a")
            before = await stage.execution(execution_id)

        async with stage.open():
            shown = await stage.ended(execution_id)
            after = await stage.execution(execution_id)
        assert (shown["state"], shown["error"]["code"]) == ("FAILED", "deadline_exceeded")
        assert (after.started_at, after.deadline_at) == (before.started_at, before.deadline_at)

    async def test_one_that_was_accepted_and_never_taken_up_starts_properly(self, stage: Stage) -> None:
        async with stage.open() as engine:
            await engine.orchestrator.stop()
            execution_id = await stage.submit_pending(workflow(node("a"), timeout_seconds=LATER_SECONDS))
            assert (await stage.execution(execution_id)).state == "PENDING"

        async with stage.open():
            call = await stage.call("a")
            assert call.context.attempt == 1, "nothing was in flight, so no number was used"
            shown = await stage.engine.describe(execution_id)
            assert shown["state"] == "RUNNING"
            assert (await stage.execution(execution_id)).deadline_at is not None
            call.complete()
            shown = await stage.ended(execution_id)
            assert await stage.event_types(execution_id) == [
                "execution.created",
                "execution.started",
                "node.completed",
                "execution.completed",
            ]
        assert shown["created_at"] <= shown["started_at"] <= shown["finished_at"]

    async def test_a_retry_that_was_accepted_is_made(self, stage: Stage) -> None:
        async with stage.open() as engine:
            execution_id = await stage.submit(workflow(node("a")))
            (await stage.call("a")).fail()
            await stage.ended(execution_id)
            await engine.orchestrator.stop()
            await engine.retry(execution_id)

        async with stage.open():
            call = await stage.call("a")
            assert call.context.generation == 2
            call.complete()
            assert (await stage.ended(execution_id))["state"] == "COMPLETED"

    async def test_an_at_most_once_attempt_that_may_have_run_is_lost(self, stage: Stage) -> None:
        async with stage.open():
            execution_id = await stage.submit(
                workflow(
                    node("once", delivery="at_most_once"),
                    node("behind", "once", delivery="at_most_once"),
                    failure_policy="continue",
                )
            )
            await stage.call("once")

        async with stage.open():
            shown = await stage.ended(execution_id)
        assert by_id(shown)["once"]["error"]["code"] == "lost"
        assert states(shown) == {"once": "FAILED", "behind": "SKIPPED upstream_failed once"}
        assert stage.started() == [("once", 1)]

    async def test_terminal_executions_are_left_alone(self, stage: Stage) -> None:
        async with stage.open() as engine:
            completed = await stage.run(workflow(echo("a")))
            cancelled = await stage.submit(workflow(node("a")))
            await stage.call("a")
            await engine.cancel(cancelled)
            seen = [await engine.describe(completed["id"]), await engine.describe(cancelled)]

        async with stage.open() as engine:
            assert (await stage.run(workflow(echo("other"))))["state"] == "COMPLETED"
            assert [await engine.describe(completed["id"]), await engine.describe(cancelled)] == seen
        assert len(stage.calls) == 1

    async def test_large_outputs_and_the_cache_are_still_there(self, stage: Stage) -> None:
        async def large(config: Json, context: HandlerContext) -> Json:
            return "x" * 300_000

        stage.add("large", large)
        cache = {"ttl_seconds": LATER_SECONDS}
        async with stage.open():
            execution_id = await stage.submit(
                workflow(
                    node("big", handler="large", cache=cache),
                    node("held", "big"),
                    echo("end", "held", config={"n": "{{ big.output | length }}"}),
                )
            )
            await stage.call("held")

        async with stage.open():
            (await stage.call("held")).complete()
            assert (await stage.ended(execution_id))["output"] == {"end": {"n": 300_000}}
            shown = await stage.run(workflow(node("big", handler="large", cache=cache)))
            assert by_id(shown)["big"]["cached"]

    async def test_many_executions_are_taken_up_together(self, stage: Stage) -> None:
        async with stage.open(worker_concurrency=10):
            document = workflow(node("a"), echo("b", "a"))
            ids = [await stage.submit(document) for _ in range(30)]
            for execution_id in ids[:10]:
                await stage.call("a", execution_id)

        async with stage.open(worker_concurrency=10):
            # In any order: those that were never started have no attempt to lose first.
            for _ in ids:
                (await stage.call("a")).complete()
            for execution_id in ids:
                assert (await stage.ended(execution_id))["state"] == "COMPLETED"


class TestAGracefulStop:
    async def test_what_ends_within_the_grace_time_counts(self, stage: Stage) -> None:
        leave = asyncio.Event()

        async def live() -> None:
            async with stage.open(worker_grace_seconds=PATIENCE_SECONDS):
                opened.set_result(None)
                await leave.wait()

        opened = asyncio.get_running_loop().create_future()
        life = asyncio.create_task(live())
        await opened
        execution_id = await stage.submit(
            workflow(node("a", delivery="at_most_once"), node("b", "a", delivery="at_most_once"))
        )
        call = await stage.call("a")

        leave.set()
        for _ in range(100):  # turns of the loop, by which the engine is closing and waits for this call
            await asyncio.sleep(0)
        assert not life.done()
        call.complete("in time")
        await life

        assert not call.heard_stop.is_set()
        assert stage.started() == [("a", 1)], "nothing more was started"
        async with stage.open():
            (await stage.call("b")).complete()
            shown = await stage.ended(execution_id)
        assert shown["state"] == "COMPLETED"
        assert by_id(shown)["a"]["output"] == "in time"
        assert [name for name, _ in stage.started()] == ["a", "b"]

    async def test_what_does_not_is_asked_to_stop_and_handed_back(self, stage: Stage) -> None:
        async with stage.open(worker_grace_seconds=0.01):
            execution_id = await stage.submit(workflow(node("a")))
            call = await stage.call("a")
        assert call.heard_stop.is_set()

        async with stage.open():
            (await stage.call("a")).complete()
            assert (await stage.ended(execution_id))["state"] == "COMPLETED"
        assert stage.started() == [("a", 1), ("a", 2)]


class TestTheDataFolder:
    async def test_a_second_engine_is_refused_and_harms_nothing(self, stage: Stage, data: Path) -> None:
        async with stage.open():
            execution_id = await stage.submit(workflow(node("a")))
            call = await stage.call("a")

            with pytest.raises(DataFolderError, match=str(data)):
                async with Stage(data).open():
                    pass

            call.complete()
            assert (await stage.ended(execution_id))["state"] == "COMPLETED"

    async def test_it_is_free_once_the_first_has_closed(self, stage: Stage) -> None:
        async with stage.open():
            execution_id = (await stage.run(workflow(echo("a"))))["id"]
        async with stage.open() as engine:
            assert (await engine.describe(execution_id))["state"] == "COMPLETED"
