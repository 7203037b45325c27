"""What users are shown of an execution: the shapes, the numbers and the reasons, at every moment."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace as changed
from tests.walks.stage import LATER_SECONDS, PATIENCE_SECONDS, Stage, by_id, echo, fails, node, workflow

from weft.core.state import SETTLED, TERMINAL, ExecutionState, NodeState
from weft.errors import NotFoundError
from weft.settings import ResourceLimit
from weft.store.contract import WorkerState
from weft.store.memory import MemoryStore
from weft.views.describe import describe_execution, explain_node

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from weft.core.payload import Json
    from weft.engine import Engine
    from weft.handlers.contract import HandlerContext
    from weft.journal.contract import RowReader

EXECUTION = [
    *("id", "workflow", "version", "digest", "generation", "state", "live", "input", "output", "error"),
    *(
        "labels",
        "priority",
        "batch",
        "trigger",
        "group",
        "parent",
        "forked_from",
        "trace_id",
        "created_at",
        "started_at",
    ),
    "finished_at",
    *("counts", "nodes"),
]
NODE = [
    *("id", "handler", "state", "attempt", "queued_at", "started_at", "finished_at", "due_at", "worker"),
    *("progress", "reason", "cause", "cached", "reused", "children", "error", "output", "output_bytes"),
]
ONE_NODE = [*NODE, "config", "generation", "max_retries", "attempts"]
ATTEMPT = [
    *("number", "generation", "worker", "queued_at", "started_at", "finished_at", "outcome", "error"),
]
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z\Z")
# How far a node has come; only a retry of the execution takes it back. QUEUED and RUNNING change places.
PROGRESS = {NodeState.PENDING: 0, NodeState.QUEUED: 1, NodeState.RUNNING: 1, **dict.fromkeys(SETTLED, 2)}


def check_shape(shown: dict[str, Any]) -> None:
    """Check what is true of every answer, whatever the moment."""
    assert list(shown) == EXECUTION
    assert list(shown["counts"]) == list(NodeState)
    assert sum(shown["counts"].values()) == len(shown["nodes"])
    for state, count in shown["counts"].items():
        assert count == sum(node["state"] == state for node in shown["nodes"])
    if shown["state"] in TERMINAL:
        assert all(node["state"] in SETTLED for node in shown["nodes"]), "terminal, and not settled"
    else:
        assert not all(node["state"] in SETTLED for node in shown["nodes"]), "settled, and not terminal"
    times = [shown[key] for key in ("created_at", "started_at", "finished_at")]
    check_times(times)
    for written in shown["nodes"]:
        assert list(written) == NODE
        check_times([written[key] for key in ("queued_at", "started_at", "finished_at")])
        if written["attempt"] == 0:
            assert written["started_at"] is None


def check_times(times: Sequence[str | None]) -> None:
    """Check the form of times, and that each is not before the one before it."""
    known = [time for time in times if time is not None]
    assert all(TIME.match(time) for time in known)
    assert known == sorted(known)


class Interrupted:
    """A journal that lets something happen before it gives its first answer to one kind of question."""

    def __init__(self, journal: RowReader, method: str, between: Callable[[], Awaitable[None]]) -> None:
        self._journal = journal
        self._method = method
        self._between = between
        self._was_asked = False

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._journal, name)
        if name != self._method or self._was_asked:
            return method
        self._was_asked = True

        async def answer(*args: Any, **fields: Any) -> Any:
            found = await method(*args, **fields)
            await self._between()
            return found

        return answer


class TestShapes:
    async def test_an_execution(self, engine: Engine, stage: Stage) -> None:
        execution_id = await stage.submit(
            workflow(
                echo("z", config={"n": "{{ input.n }}"}), fails("b"), echo("a"), failure_policy="continue"
            ),
            input={"n": 1},
            labels={"team": "blue"},
            priority="high",
        )
        shown = await stage.ended(execution_id)

        check_shape(shown)
        assert shown["id"] == execution_id
        assert (shown["workflow"], shown["version"], shown["generation"]) == ("walk", None, 1)
        assert re.fullmatch("[0-9a-f]{64}", shown["digest"])
        assert shown["live"] is True
        assert (shown["input"], shown["labels"], shown["priority"]) == ({"n": 1}, {"team": "blue"}, "high")
        assert shown["batch"] is None
        assert [written["id"] for written in shown["nodes"]] == ["z", "b", "a"]
        assert shown["counts"] == {
            **dict.fromkeys(NodeState, 0),
            NodeState.COMPLETED: 2,
            NodeState.FAILED: 1,
        }
        completed = by_id(shown)["z"]
        assert (completed["output"], completed["output_bytes"]) == ({"n": 1}, 7)
        assert (completed["worker"], completed["cached"], completed["error"]) == (
            engine.worker.name,
            False,
            None,
        )

    async def test_one_node_with_its_attempts(self, engine: Engine, stage: Stage) -> None:
        execution_id = await stage.submit(workflow(node("a", max_retries=1)))
        (await stage.call("a")).fail(RuntimeError("first"))
        await stage.call("a")
        await engine.cancel(execution_id)
        await engine.retry(execution_id)
        (await stage.call("a")).complete("last")
        await stage.ended(execution_id)

        shown = await engine.describe_node(execution_id, "a")

        assert list(shown) == ONE_NODE
        assert (shown["state"], shown["attempt"], shown["generation"]) == ("COMPLETED", 3, 2)
        assert [list(attempt) for attempt in shown["attempts"]] == [ATTEMPT] * 3
        assert [
            (attempt["number"], attempt["generation"], attempt["outcome"]) for attempt in shown["attempts"]
        ] == [(1, 1, "failed"), (2, 1, "cancelled"), (3, 2, "completed")]
        assert [attempt["error"] is None for attempt in shown["attempts"]] == [False, True, True]
        moments = [
            attempt[key]
            for attempt in shown["attempts"]
            for key in ("queued_at", "started_at", "finished_at")
        ]
        assert None not in moments
        check_times(moments)

    async def test_what_does_not_exist_is_not_found(self, engine: Engine, stage: Stage) -> None:
        execution_id = (await stage.run(workflow(echo("a"))))["id"]
        for asked in (
            engine.describe("nothing"),
            engine.describe_node("nothing", "a"),
            engine.explain("nothing", "a"),
            engine.describe_node(execution_id, "nobody"),
            engine.explain(execution_id, "nobody"),
        ):
            with pytest.raises(NotFoundError):
                await asked

    async def test_a_child_is_not_queued_before_its_parents_have_finished(
        self, engine: Engine, stage: Stage
    ) -> None:
        names = ["a", "b", "c", "d", "e"]
        shown = await stage.run(workflow(echo("a"), *(echo(two, one) for one, two in pairwise(names))))
        moments = [
            by_id(shown)[name][key] for name in names for key in ("queued_at", "started_at", "finished_at")
        ]
        check_times([shown["created_at"], shown["started_at"], *moments, shown["finished_at"]])

    async def test_events_are_numbered_without_gaps_and_carry_the_times_of_their_attempt(
        self, engine: Engine, stage: Stage
    ) -> None:
        execution_id = await stage.submit(workflow(node("a", max_retries=1), echo("b", "a")))
        (await stage.call("a")).fail(RuntimeError("once"))
        (await stage.call("a")).complete()
        await stage.ended(execution_id)

        events = await stage.events(execution_id)

        assert [event.seq for event in events] == list(range(1, len(events) + 1))
        assert [event.at for event in events] == sorted(event.at for event in events)
        assert [(event.type, event.node, event.attempt) for event in events] == [
            ("execution.created", None, None),
            ("execution.started", None, None),
            ("node.retrying", "a", 1),
            ("node.completed", "a", 2),
            ("node.completed", "b", 1),
            ("execution.completed", None, None),
        ]
        for event in events[2:5]:
            assert event.queued_at is not None
            assert event.started_at is not None
            assert event.finished_at is not None
            assert event.queued_at <= event.started_at <= event.finished_at <= event.at


class TestWhileItRuns:
    async def test_every_answer_adds_up_and_none_goes_back(self, stage: Stage) -> None:
        """Asked all the time, while nodes complete, fail, are tried again, skipped and held up."""

        async def stumble(config: Any, context: HandlerContext) -> Json:
            await asyncio.sleep(0)
            if context.attempt == 1:
                raise RuntimeError("once")
            return context.attempt

        stage.add("stumble", stumble)
        layers = [[f"n{layer}_{i}" for i in range(6)] for layer in range(8)]
        nodes = [echo("root")]
        above = ["root"]
        for layer in layers:
            for i, name in enumerate(layer):
                handler = ("echo", "stumble", "echo", "fail", "stumble", "echo")[i]
                tagged = {"resource_tag": "api"} if i == 2 else {}
                rule = "all_done" if i % 2 == 0 else "one_success"
                nodes.append(node(name, *above, handler=handler, rule=rule, **tagged))
            above = layer
        limit = ResourceLimit(rate_per_second=100, burst=2)
        async with stage.open(worker_concurrency=3, resource_limits={"api": limit}) as engine:
            execution_id = await stage.submit(workflow(*nodes, failure_policy="continue", max_concurrency=4))
            before: dict[str, int] = {}
            shown: dict[str, Any] = {"state": ExecutionState.PENDING}
            async with asyncio.timeout(PATIENCE_SECONDS):
                while shown["state"] not in TERMINAL:
                    shown = await engine.describe(execution_id)
                    check_shape(shown)
                    now = {written["id"]: PROGRESS[written["state"]] for written in shown["nodes"]}
                    assert all(now[name] >= reached for name, reached in before.items() if reached == 2)
                    before = now
                    for name, reached in now.items():
                        explained = await engine.explain(execution_id, name)
                        if explained["state"] in SETTLED:
                            assert explained["reasons"] == []
                        else:
                            assert explained["reasons"] != [], (name, explained)
                        assert PROGRESS[explained["state"]] == 2 or reached != 2
                    await asyncio.sleep(0)
            assert shown["counts"]["FAILED"] == 8

    @pytest.mark.parametrize(("method", "state"), [("execution", "COMPLETED"), ("nodes", "RUNNING")])
    async def test_what_changes_while_the_parts_are_read_does_not_tear_the_answer(
        self, engine: Engine, stage: Stage, method: str, state: str
    ) -> None:
        """The last node completes just after its execution, or its row, was read: all is shown, or none."""
        execution_id = await stage.submit(workflow(node("a")))
        call = await stage.call("a")

        async def complete() -> None:
            call.complete()
            await stage.ended(execution_id)

        interrupted: Any = Interrupted(engine.ports.catalog, method, complete)
        shown = await describe_execution(execution_id, replace(engine.ports, catalog=interrupted))

        check_shape(shown)
        assert (shown["state"], by_id(shown)["a"]["state"]) == (state, state)
        assert shown["live"] is True

    async def test_an_end_that_comes_while_the_journal_is_asked_is_not_missed(
        self, engine: Engine, stage: Stage
    ) -> None:
        execution_id = await stage.submit(workflow(node("a")))
        call = await stage.call("a")

        async def complete() -> None:
            call.complete()
            await stage.until_state(execution_id, "a", "COMPLETED")

        interrupted: Any = Interrupted(engine.ports.journal, "execution", complete)
        engine.ports.journal = interrupted
        assert (await stage.ended(execution_id))["state"] == "COMPLETED"

    async def test_a_node_in_flight_shows_the_attempt_that_is_under_way(
        self, engine: Engine, stage: Stage
    ) -> None:
        execution_id = await stage.submit(workflow(node("a", max_retries=1)))
        (await stage.call("a")).fail(RuntimeError("once"))
        call = await stage.call("a")

        shown = await stage.node(execution_id, "a")
        assert (shown["state"], shown["attempt"], shown["worker"]) == ("RUNNING", 2, engine.worker.name)
        assert shown["queued_at"] <= shown["started_at"]
        assert shown["finished_at"] is None
        assert shown["error"]["message"] == "RuntimeError: once"
        call.complete()
        assert (await stage.ended(execution_id))["state"] == "COMPLETED"

    async def test_a_node_that_waits_for_its_retry_says_until_when(
        self, engine: Engine, stage: Stage
    ) -> None:
        later = {"base_delay_seconds": LATER_SECONDS, "jitter": 0}
        execution_id = await stage.submit(workflow(node("a", max_retries=1, retry=later)))
        (await stage.call("a")).fail(RuntimeError("once"))
        await stage.until_reason(execution_id, "a", "retry_scheduled")

        shown = await stage.node(execution_id, "a")
        assert (shown["state"], shown["attempt"]) == ("QUEUED", 1)
        assert TIME.match(shown["due_at"])
        assert shown["finished_at"] < shown["due_at"]
        await engine.cancel(execution_id)
        assert (await stage.node(execution_id, "a"))["due_at"] is None


class TestTheConfig:
    async def config(self, stage: Stage, execution_id: str, node_id: str) -> Json:
        return (await stage.engine.describe_node(execution_id, node_id))["config"]

    async def test_of_an_output_node_without_one_is_the_outputs_of_its_parents(
        self, engine: Engine, stage: Stage
    ) -> None:
        execution_id = await stage.submit(
            workflow(node("a"), {"id": "out", "handler": "output", "dependencies": ["a"]})
        )
        assert await self.config(stage, execution_id, "out") is None
        (await stage.call("a")).complete(7)
        await stage.ended(execution_id)
        assert await self.config(stage, execution_id, "out") == {"a": 7}

    async def test_it_is_shown_as_the_handler_got_it_once_it_is_known(
        self, engine: Engine, stage: Stage
    ) -> None:
        execution_id = await stage.submit(
            workflow(
                node("a", config={"fixed": [1, "two"]}),
                node("b", "a", config={"n": "{{ a.n }}", "text": "{{ input.x }}/{{ execution.generation }}"}),
                node("c", "b", config={"maybe": "{{ b.n | default('none') }}"}),
            ),
            input={"x": "y"},
        )
        call = await stage.call("a")
        assert await self.config(stage, execution_id, "a") == {"fixed": [1, "two"]}
        assert await self.config(stage, execution_id, "b") is None, "its parent has not settled"
        call.complete({"n": 7})

        call = await stage.call("b")
        assert await self.config(stage, execution_id, "b") == call.config == {"n": 7, "text": "y/1"}
        assert await self.config(stage, execution_id, "c") is None
        call.fail()
        await stage.ended(execution_id)
        assert await self.config(stage, execution_id, "b") == call.config
        assert await self.config(stage, execution_id, "c") is None, "it was skipped"

    async def test_one_that_could_not_be_filled_is_not_shown(self, engine: Engine, stage: Stage) -> None:
        shown = await stage.run(workflow(echo("a", config={"x": "{{ input.missing }}"})))
        assert await self.config(stage, shown["id"], "a") is None

    async def test_what_settled_after_the_node_became_free_is_no_part_of_it(
        self, engine: Engine, stage: Stage
    ) -> None:
        execution_id = await stage.submit(
            workflow(
                node("slow"),
                node("quick"),
                node("first", "slow", "quick", rule="one_success", config={"x": "{{ slow.n | default(0) }}"}),
            )
        )
        slow, quick = await stage.calls_of(["slow", "quick"])
        quick.complete()
        first = await stage.call("first")
        slow.complete({"n": 1})
        await stage.until_state(execution_id, "slow", "COMPLETED")
        assert first.config == {"x": 0}
        assert await self.config(stage, execution_id, "first") == first.config

    async def test_it_is_that_of_the_generation_in_which_the_node_ran(
        self, engine: Engine, stage: Stage
    ) -> None:
        execution_id = await stage.submit(
            workflow(
                echo("a", config={"n": "{{ execution.generation }}"}),
                node("b", "a", config={"n": "{{ a.n }}", "g": "{{ execution.generation }}"}),
            )
        )
        (await stage.call("b")).fail()
        await stage.ended(execution_id)
        await engine.retry(execution_id)
        call = await stage.call("b")
        assert await self.config(stage, execution_id, "a") == {"n": 1}
        assert await self.config(stage, execution_id, "b") == call.config == {"n": 1, "g": 2}
        call.complete()
        await stage.ended(execution_id)
        assert await self.config(stage, execution_id, "b") == call.config


class TestReasons:
    async def test_each_situation_has_its_own(self, stage: Stage) -> None:
        one = ResourceLimit(rate_per_second=1 / LATER_SECONDS, burst=1)
        later = {"base_delay_seconds": LATER_SECONDS, "jitter": 0}
        async with stage.open(worker_concurrency=2, resource_limits={"api": one}) as engine:
            execution_id = await stage.submit(
                workflow(
                    node("retrying", max_retries=1, retry=later),
                    echo("token", resource_tag="api"),
                    echo("limited", "token", resource_tag="api"),
                    # Behind the token's node: it would wait for a worker that they keep busy.
                    node("running", "token"),
                    node("running_too", "token"),
                    node("queued", "token"),
                    node("waiting", "running", "queued"),
                )
            )
            (await stage.call("retrying")).fail(RuntimeError("later"))
            await stage.calls_of(["running", "running_too"])
            for name, code in (
                ("retrying", "retry_scheduled"),
                ("limited", "rate_limited"),
                ("running", "running"),
                ("queued", "waiting_for_worker"),
                ("waiting", "waiting_for_parents"),
            ):
                await stage.until_reason(execution_id, name, code)
                explained = await engine.explain(execution_id, name)
                (reason,) = explained["reasons"]
                assert reason["code"] == code
                assert reason["message"]
            waiting = (await engine.explain(execution_id, "waiting"))["reasons"][0]
            assert waiting["nodes"] == ["running", "queued"]
            retrying = (await engine.explain(execution_id, "retrying"))["reasons"][0]
            assert retrying["until"] == (await stage.node(execution_id, "retrying"))["due_at"]
            assert await engine.explain(execution_id, "token") == {"state": "COMPLETED", "reasons": []}

            # No living worker has its queue and its handler.
            await engine.worker.announce()
            (worker,) = await engine.ports.store.workers()
            for workers, reason_code in (
                ([], "no_worker"),
                ([changed(worker, queues=("echo",))], "no_worker"),
                ([changed(worker, handlers=("echo",))], "no_worker"),
                ([changed(worker, state=WorkerState.LOST)], "no_worker"),
                ([changed(worker, queues=("echo",)), worker], "waiting_for_worker"),
            ):
                seen = await explain_node(execution_id, "queued", engine.ports, workers=workers)
                assert [reason["code"] for reason in seen["reasons"]] == [reason_code]

            await engine.pause(execution_id)
            assert await stage.reasons(execution_id, "running") == ["paused", "running"]
            for name in ("retrying", "limited", "queued", "waiting"):
                assert (await stage.reasons(execution_id, name))[0] == "paused"

            await engine.cancel(execution_id)
            for name in ("retrying", "limited", "running", "queued", "waiting"):
                assert await engine.explain(execution_id, name) == {"state": "CANCELLED", "reasons": []}

    async def test_an_execution_that_was_not_taken_up_is_starting(self, engine: Engine, stage: Stage) -> None:
        await engine.orchestrator.stop()
        execution_id = await stage.submit_pending(workflow(node("a"), node("b", "a")))
        assert await stage.reasons(execution_id, "a") == ["starting"]
        assert (await stage.reasons(execution_id, "b"))[0] == "starting"
        shown = await engine.describe(execution_id)
        check_shape(shown)
        assert (shown["state"], shown["started_at"], shown["live"]) == ("PENDING", None, False)

    async def test_one_that_the_store_has_lost_is_recovering(self, engine: Engine, stage: Stage) -> None:
        execution_id = await stage.submit(workflow(node("a"), node("b", "a")))
        (await stage.call("a")).complete()
        await stage.call("b")
        assert isinstance(engine.ports.store, MemoryStore)

        engine.ports.store.flush()

        shown = await engine.describe(execution_id)
        check_shape(shown)
        assert shown["live"] is False
        assert by_id(shown)["a"]["state"] == "COMPLETED"
        assert await stage.reasons(execution_id, "b") == ["recovering"]
