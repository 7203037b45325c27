"""What holds a node back: rates, concurrency slots, the window, priorities, the deadline."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import pytest
from tests.walks.stage import LATER_SECONDS, Stage, by_id, echo, node, states, workflow

from weft.core.time import MICROSECONDS
from weft.settings import ResourceLimit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.core.payload import Json
    from weft.engine import Engine
    from weft.handlers.contract import HandlerContext

# One token, and none after it within the life of a test.
ONE = ResourceLimit(rate_per_second=1 / LATER_SECONDS, burst=1)


def within_rate(starts: Sequence[int], limit: ResourceLimit) -> bool:
    """True if no stretch of time saw more than ``rate × t + burst`` starts.

    The token is spent a moment before the start is stamped: half an interval is for that moment.
    """
    interval = MICROSECONDS / limit.rate_per_second
    starts = sorted(starts)
    return all(
        last - first >= (number - limit.burst) * interval - interval / 2
        for index, first in enumerate(starts)
        for number, last in enumerate(starts[index:], start=1)
    )


async def starts_of(stage: Stage, execution_id: str, node_ids: Sequence[str]) -> list[int]:
    """Return the moments at which attempts of these nodes were started, the failed ones included."""
    ends = ("node.completed", "node.retrying", "node.failed")
    return [
        event.started_at
        for event in await stage.events(execution_id)
        if event.type in ends and event.node in node_ids and event.started_at is not None
    ]


class TestResourceTags:
    @pytest.mark.parametrize("burst", [1, 3])
    async def test_starts_never_exceed_the_rate(self, stage: Stage, burst: int) -> None:
        limit = ResourceLimit(rate_per_second=25, burst=burst)
        names = [f"n{i}" for i in range(10)]
        async with stage.open(resource_limits={"api": limit}):
            shown = await stage.run(workflow(*(echo(name, resource_tag="api") for name in names)))
            assert shown["state"] == "COMPLETED"
            starts = await starts_of(stage, shown["id"], names)
        assert len(starts) == 10
        assert within_rate(starts, limit)

    async def test_a_retry_is_a_start_like_any_other(self, stage: Stage) -> None:
        limit = ResourceLimit(rate_per_second=25, burst=1)

        async def stumble(config: Json, context: HandlerContext) -> Json:
            if context.attempt < 4:
                raise RuntimeError("not yet")
            return context.attempt

        stage.add("stumble", stumble)
        async with stage.open(resource_limits={"api": limit}):
            shown = await stage.run(workflow(node("a", handler="stumble", resource_tag="api")))
            assert shown["output"] == {"a": 4}
            starts = await starts_of(stage, shown["id"], ["a"])
        assert len(starts) == 4
        assert within_rate(starts, limit)

    async def test_the_rate_holds_across_executions(self, stage: Stage) -> None:
        limit = ResourceLimit(rate_per_second=25, burst=1)
        async with stage.open(resource_limits={"api": limit}):
            document = workflow(echo("a", resource_tag="api"))
            ids = [await stage.submit(document) for _ in range(6)]
            starts = []
            for execution_id in ids:
                await stage.ended(execution_id)
                starts += await starts_of(stage, execution_id, ["a"])
        assert len(starts) == 6
        assert within_rate(starts, limit)

    async def test_each_tag_has_its_own_rate(self, stage: Stage) -> None:
        limits = {
            "quick": ResourceLimit(rate_per_second=200, burst=2),
            "slow": ResourceLimit(rate_per_second=40, burst=1),
            "still": ONE,
        }
        names = {tag: [f"{tag}{i}" for i in range(6)] for tag in ("quick", "slow")}
        async with stage.open(resource_limits=limits) as engine:
            tagged = [
                echo(name, resource_tag=tag)
                for pair in zip(names["quick"], names["slow"], strict=True)
                for name, tag in zip(pair, ("quick", "slow"), strict=True)
            ]
            held_back = [echo(f"still{i}", resource_tag="still") for i in range(2)]
            free = [echo(f"free{i}", resource_tag="unlimited") for i in range(6)]
            execution_id = await stage.submit(workflow(*held_back, *tagged, *free))

            async def all_but_one() -> bool:
                counts = (await engine.describe(execution_id))["counts"]
                return bool(counts["COMPLETED"] == 19)

            await stage.until(all_but_one)
            assert (await stage.states(execution_id))["still1"] == "QUEUED"
            for tag, tagged_names in names.items():
                starts = await starts_of(stage, execution_id, tagged_names)
                assert len(starts) == 6
                assert within_rate(starts, limits[tag])

    async def test_a_node_that_waits_holds_neither_kind_of_slot(self, stage: Stage) -> None:
        async with stage.open(resource_limits={"api": ONE}, worker_concurrency=1) as engine:
            execution_id = await stage.submit(
                workflow(
                    echo("first", resource_tag="api"),
                    echo("second", resource_tag="api"),
                    echo("third", resource_tag="api"),
                    node("free"),
                    max_concurrency=1,
                )
            )
            (await stage.call("free")).complete("ran")
            for name in ("free", "first"):
                await stage.until_state(execution_id, name, "COMPLETED")

            assert await stage.states(execution_id) == {
                "first": "COMPLETED",
                "second": "QUEUED",
                "third": "QUEUED",
                "free": "COMPLETED",
            }
            for name in ("second", "third"):
                assert await stage.reasons(execution_id, name) == ["rate_limited"]
            shown = by_id(await engine.describe(execution_id))
            # Each of them knows its turn, counted from the start that took the only token.
            turns = [datetime.fromisoformat(shown[name]["due_at"]) for name in ("second", "third")]
            since = datetime.fromisoformat(shown["first"]["started_at"])
            assert [round((turn - since).total_seconds() * ONE.rate_per_second) for turn in turns] == [1, 2]
            (reason,) = (await engine.explain(execution_id, "third"))["reasons"]
            assert reason["until"] == shown["third"]["due_at"]
            await engine.cancel(execution_id)

    async def test_who_leaves_the_line_holds_nobody_up(self, stage: Stage) -> None:
        limit = ResourceLimit(rate_per_second=20, burst=1)
        async with stage.open(resource_limits={"api": limit}) as engine:
            many = await stage.submit(workflow(*(node(f"n{i}", resource_tag="api") for i in range(50))))
            await stage.call("n0")
            await engine.cancel(many)

            shown = await stage.run(workflow(echo("a", resource_tag="api")))

            assert shown["state"] == "COMPLETED"
            starts = [call.context.node_id for call in stage.calls]
            assert len(starts) < 10

    async def test_a_paused_execution_in_line_goes_on_when_it_is_resumed(self, stage: Stage) -> None:
        limit = ResourceLimit(rate_per_second=25, burst=1)
        async with stage.open(resource_limits={"api": limit}) as engine:
            execution_id = await stage.submit(
                workflow(*(node(f"n{i}", resource_tag="api") for i in range(3)))
            )
            first = await stage.call("n0")
            await engine.pause(execution_id)
            first.complete()
            await engine.resume(execution_id)
            for name in ("n1", "n2"):
                (await stage.call(name)).complete()
            assert (await stage.ended(execution_id))["state"] == "COMPLETED"

    async def test_a_tag_without_a_limit_is_unlimited(self, engine: Engine, stage: Stage) -> None:
        shown = await stage.run(workflow(*(echo(f"n{i}", resource_tag="api") for i in range(20))))
        assert shown["state"] == "COMPLETED"


class TestConcurrencySlots:
    async def test_no_more_nodes_of_an_execution_are_in_flight_than_it_allows(
        self, engine: Engine, stage: Stage
    ) -> None:
        names = [f"n{i}" for i in range(5)]
        execution_id = await stage.submit(workflow(*map(node, names), max_concurrency=2))
        first, second = await stage.calls_of(names[:2])
        assert await stage.states(execution_id) == {
            **dict.fromkeys(names[:2], "RUNNING"),
            **dict.fromkeys(names[2:], "PENDING"),
        }
        assert await stage.reasons(execution_id, "n2") == ["max_concurrency"]

        first.complete()
        third = await stage.call("n2")
        assert len(stage.calls) == 3
        for call in (second, third):
            call.complete()
        for call in await stage.calls_of(names[3:]):
            call.complete()

        await stage.ended(execution_id)
        rows = await stage.rows(execution_id)
        moments = sorted(
            [(row.queued_at, 1) for row in rows.values()] + [(row.finished_at, -1) for row in rows.values()],
            key=lambda moment: (moment[0] or 0, moment[1]),
        )
        in_flight = most = 0
        for _, change in moments:
            in_flight += change
            most = max(most, in_flight)
        assert most == 2

    async def test_other_executions_are_not_counted(self, engine: Engine, stage: Stage) -> None:
        document = workflow(node("a"), node("b"), max_concurrency=1)
        ids = [await stage.submit(document) for _ in range(3)]
        for execution_id in ids:
            await stage.call("a", execution_id)
        assert len(stage.calls) == 3

    async def test_a_node_that_waits_for_a_retry_holds_no_slot(self, engine: Engine, stage: Stage) -> None:
        later = {"base_delay_seconds": LATER_SECONDS}
        execution_id = await stage.submit(
            workflow(node("a", max_retries=1, retry=later), node("b"), max_concurrency=1)
        )
        (await stage.call("a")).fail(RuntimeError("later"))
        (await stage.call("b")).complete()
        await stage.until_state(execution_id, "b", "COMPLETED")
        shown = by_id(await engine.describe(execution_id))["a"]
        assert (shown["state"], shown["attempt"]) == ("QUEUED", 1)
        assert shown["due_at"] is not None
        await engine.cancel(execution_id)

    async def test_the_window_bounds_an_execution_without_a_limit_of_its_own(self, stage: Stage) -> None:
        async with stage.open(execution_window=3):
            names = [f"n{i}" for i in range(7)]
            execution_id = await stage.submit(workflow(*map(node, names), node("end", *names)))
            calls = await stage.calls_of(names[:3])
            assert await stage.reasons(execution_id, "n3") == ["window"]
            assert (await stage.states(execution_id))["n3"] == "PENDING"
            assert len(stage.calls) == 3
            for call in calls:
                call.complete()
            for name in (*names[3:], "end"):
                (await stage.call(name)).complete()
            assert (await stage.ended(execution_id))["state"] == "COMPLETED"

    async def test_a_wide_execution_starves_nobody(self, stage: Stage) -> None:
        async with stage.open(execution_window=3, worker_concurrency=4):
            wide = await stage.submit(workflow(*(node(f"n{i}") for i in range(20))))
            await stage.calls_of(["n0", "n1", "n2"], wide)
            assert (await stage.run(workflow(echo("small"))))["state"] == "COMPLETED"

    async def test_a_worker_takes_no_more_than_it_has_slots(self, stage: Stage) -> None:
        async with stage.open(worker_concurrency=2):
            execution_id = await stage.submit(workflow(*(node(f"n{i}") for i in range(4))))
            await stage.calls_of(["n0", "n1"])
            await stage.until_reason(execution_id, "n3", "waiting_for_worker")
            assert len(stage.calls) == 2
            assert (await stage.states(execution_id))["n3"] == "QUEUED"


class TestPriorities:
    async def test_of_what_waits_the_highest_priority_starts_first(self, stage: Stage) -> None:
        async with stage.open(worker_concurrency=1):
            document = workflow(node("a"))
            running = await stage.submit(document)
            call = await stage.call("a", running)
            ids = {}
            for priority in ("low", "normal", "high"):
                ids[priority] = await stage.submit(document, priority=priority)
                await stage.until_state(ids[priority], "a", "QUEUED")

            for priority in ("high", "normal", "low"):
                # Nothing is preempted: what runs is let be.
                call.complete()
                call = await stage.call("a")
                assert call.context.execution_id == ids[priority]
            call.complete()

            shown = await stage.ended(ids["low"])
            assert (shown["state"], shown["priority"]) == ("COMPLETED", "low")

    async def test_low_priority_is_not_starved(self, stage: Stage) -> None:
        async with stage.open(worker_concurrency=1):
            document = workflow(node("a"))
            running = await stage.submit(document)
            call = await stage.call("a", running)
            low = await stage.submit(document, priority="low")
            for _ in range(20):
                last = await stage.submit(document, priority="high")
            await stage.until_state(last, "a", "QUEUED")
            for _ in range(10):
                call.complete()
                call = await stage.call("a")
            assert low in {call.context.execution_id for call in stage.calls}


class TestTheDeadline:
    async def test_what_is_unsettled_then_is_cancelled_and_stopped(
        self, engine: Engine, stage: Stage
    ) -> None:
        execution_id = await stage.submit(
            workflow(
                node("done"),
                node("running", "done"),
                node("waiting", "running"),
                echo("handler", "running", rule="one_failed"),
                echo("cleanup", "running", rule="all_done"),
                timeout_seconds=0.6,
            )
        )
        (await stage.call("done")).complete()
        call = await stage.call("running")

        shown: dict[str, Any] = await stage.ended(execution_id)

        assert (shown["state"], shown["error"]["code"]) == ("FAILED", "deadline_exceeded")
        unsettled = ("running", "waiting", "handler", "cleanup")
        assert states(shown) == {"done": "COMPLETED", **dict.fromkeys(unsettled, "CANCELLED deadline")}
        row = await stage.execution(execution_id)
        assert row.started_at is not None
        assert row.finished_at is not None
        assert row.finished_at >= row.started_at + 600_000
        await call.heard_stop.wait()
        assert await stage.letters(execution_id) == {}, "a node that was stopped did not fail"

    async def test_an_execution_that_is_done_in_time_hears_nothing_of_it(
        self, engine: Engine, stage: Stage
    ) -> None:
        shown = await stage.run(workflow(echo("a"), timeout_seconds=0.4))
        other = await stage.run(workflow(node("slow", handler="sleep", config={"seconds": 0.5})))
        assert (shown["state"], other["state"]) == ("COMPLETED", "COMPLETED")
        assert await engine.describe(shown["id"]) == shown
