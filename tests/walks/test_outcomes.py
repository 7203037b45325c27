"""How attempts end: error codes, retries and their delays, timeouts, the cache, large outputs, secrets."""

from __future__ import annotations

import asyncio
import base64
import json
import sqlite3
import threading
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.hold.handler import HANDLER
from tests.walks.stage import PATIENCE_SECONDS, Stage, by_id, echo, fails, node, states, workflow

from weft.core.payload import encode
from weft.core.time import MICROSECONDS
from weft.errors import InputError, NonRetryable, RetryAfter
from weft.views.describe import describe_dead_letter

if TYPE_CHECKING:
    from pathlib import Path

    from weft.core.payload import Json
    from weft.engine import Engine
    from weft.handlers.contract import HandlerContext

NO_DELAY = {"base_delay_seconds": 0}


def an_int(config: Any, context: HandlerContext) -> Json:
    return config["n"] + 1


def broken(config: Any, context: HandlerContext) -> Json:
    raise ZeroDivisionError("no")


def not_json(config: Any, context: HandlerContext) -> Any:
    return object()


def large(config: Any, context: HandlerContext) -> Json:
    return "x" * config["size"]


async def slow(config: Any, context: HandlerContext) -> None:
    await asyncio.Event().wait()


@pytest.fixture(autouse=True)
def handlers(stage: Stage) -> None:
    integer = {"type": "object", "properties": {"n": {"type": "integer"}}}
    stage.add("an_int", an_int, schema=integer)
    stage.add("broken", broken)
    stage.add("not_json", not_json)
    stage.add("large", large)
    stage.add("slow", slow)


class TestErrorCodes:
    @pytest.mark.parametrize(
        ("written", "code", "message", "retryable", "attempts"),
        [
            ({"handler": "broken"}, "handler_error", "ZeroDivisionError: no", True, 2),
            ({"handler": "fail"}, "handler_error", "it always fails", False, 1),
            ({"handler": "slow", "timeout_seconds": 0.01}, "timeout", "0.01 s", True, 2),
            ({"handler": "an_int", "config": {"n": "{{ input.text }}"}}, "bad_config", "integer", False, 1),
            (
                {"handler": "an_int", "config": {"x": "{{ secrets.ABSENT }}"}},
                "bad_config",
                "WEFT_SECRET_ABSENT",
                False,
                1,
            ),
            ({"handler": "echo", "config": {"x": "{{ input.y.z }}"}}, "template_error", "input.y", False, 0),
            ({"handler": "echo", "condition": "input.y > 1"}, "condition_error", "input.y", False, 0),
            ({"handler": "not_json"}, "output_not_json", "", False, 1),
            ({"handler": "large", "config": {"size": 2000}}, "output_too_large", "1,000", False, 1),
            (
                {"handler": "python", "config": {"function": "os:getcwd"}},
                "function_not_allowed",
                "os:getcwd",
                False,
                1,
            ),
        ],
        ids=lambda value: value if isinstance(value, str) else "",
    )
    async def test_a_node_fails_with_its_code(
        self,
        stage: Stage,
        written: dict[str, Json],
        code: str,
        message: str,
        retryable: bool,
        attempts: int,
    ) -> None:
        async with stage.open(max_payload_bytes=1000):
            shown = await stage.run(workflow({"id": "a", "max_retries": 1, **written}), input={"text": "x"})
        (failed,) = shown["nodes"]
        assert shown["state"] == failed["state"] == "FAILED"
        assert (failed["error"]["code"], failed["error"]["retryable"]) == (code, retryable)
        assert message in failed["error"]["message"]
        assert failed["attempt"] == attempts
        assert shown["error"]["code"] == "node_failed"
        assert shown["error"]["node"] == "a"
        assert shown["error"]["details"] == {"code": code}

    async def test_a_handlers_error_names_the_exceptions_type(self, engine: Engine, stage: Stage) -> None:
        shown = await stage.run(workflow(node("a", handler="broken", max_retries=0)))
        assert shown["nodes"][0]["error"]["details"]["type"] == "ZeroDivisionError"

    async def test_an_output_that_cannot_be_made_leaves_the_state_as_it_is(
        self, engine: Engine, stage: Stage
    ) -> None:
        shown = await stage.run(workflow(echo("a", config={"n": 0}), output={"x": "{{ 1 / a.n }}"}))
        assert (shown["state"], shown["output"]) == ("COMPLETED", None)
        assert shown["error"]["code"] == "output_error"

    async def test_what_is_undefined_in_the_output_reads_as_null(self, engine: Engine, stage: Stage) -> None:
        shown = await stage.run(
            workflow(
                echo("a", condition="1 == 2"), echo("b"), output={"a": "{{ a.x }}", "b": "{{ b.output }}"}
            )
        )
        assert (shown["output"], shown["error"]) == ({"a": None, "b": {}}, None)

    async def test_an_execution_that_is_not_done_in_time_fails(self, engine: Engine, stage: Stage) -> None:
        shown = await stage.run(workflow(node("a", handler="slow"), timeout_seconds=0.05))
        assert shown["state"] == "FAILED"
        assert shown["error"] == {
            "code": "deadline_exceeded",
            "message": "the execution did not finish within 0.05 s",
            "retryable": False,
            "details": {},
        }
        assert states(shown) == {"a": "CANCELLED deadline"}


class TestRetries:
    async def test_the_delays_grow_and_are_kept(self, engine: Engine, stage: Stage) -> None:
        policy = {
            "base_delay_seconds": 0.01,
            "multiplier": 2,
            "max_delay_seconds": 0.03,
            "jitter": 0,
        }
        shown = await stage.run(workflow(node("a", handler="broken", max_retries=3, retry=policy)))

        assert by_id(shown)["a"]["attempt"] == 4
        retrying = [event for event in await stage.events(shown["id"]) if event.type == "node.retrying"]
        attempts = (await engine.describe_node(shown["id"], "a"))["attempts"]
        assert [attempt["outcome"] for attempt in attempts] == ["failed"] * 4
        starts = [row.started_at for row in retrying[1:]] + [(await stage.rows(shown["id"]))["a"].started_at]
        for event, delay, next_start in zip(retrying, (0.01, 0.02, 0.03), starts, strict=True):
            assert event.due_at is not None
            assert event.finished_at is not None
            # Counted from when the failure was judged: after the handler ended, before it was recorded.
            wanted = round(delay * MICROSECONDS)
            assert event.due_at - event.at <= wanted <= event.due_at - event.finished_at
            assert next_start is not None
            assert next_start >= event.due_at

    async def test_retry_after_is_a_floor(self, engine: Engine, stage: Stage) -> None:
        execution_id = await stage.submit(workflow(node("a", retry=NO_DELAY)))
        (await stage.call("a")).fail(RetryAfter(0.05))
        (await stage.call("a")).complete()
        await stage.ended(execution_id)

        (event,) = [event for event in await stage.events(execution_id) if event.type == "node.retrying"]
        assert event.due_at is not None
        assert event.finished_at is not None
        assert event.due_at - event.finished_at >= 50_000
        assert event.error is not None
        assert event.error["retryable"]
        started_at = (await stage.rows(execution_id))["a"].started_at
        assert started_at is not None
        assert started_at >= event.due_at

    async def test_retry_after_does_not_shorten_the_delay(self, engine: Engine, stage: Stage) -> None:
        policy = {"base_delay_seconds": 0.05, "jitter": 0}
        execution_id = await stage.submit(workflow(node("a", retry=policy)))
        (await stage.call("a")).fail(RetryAfter(0.001))
        (await stage.call("a")).complete()
        await stage.ended(execution_id)
        (event,) = [event for event in await stage.events(execution_id) if event.type == "node.retrying"]
        assert event.due_at is not None
        assert event.finished_at is not None
        assert event.due_at - event.finished_at >= 50_000

    async def test_what_cannot_be_mended_is_not_retried(self, engine: Engine, stage: Stage) -> None:
        execution_id = await stage.submit(workflow(node("a", max_retries=5)))
        (await stage.call("a")).fail(NonRetryable("never"))
        shown = await stage.ended(execution_id)
        assert by_id(shown)["a"]["attempt"] == 1
        assert by_id(shown)["a"]["error"]["retryable"] is False

    async def test_every_attempt_has_its_number_and_the_same_key(self, engine: Engine, stage: Stage) -> None:
        execution_id = await stage.submit(workflow(node("a", max_retries=2)))
        for _ in range(2):
            (await stage.call("a")).fail(RuntimeError("again"))
        (await stage.call("a")).complete("done")
        shown = await stage.ended(execution_id)
        assert shown["output"] == {"a": "done"}
        assert stage.started() == [("a", 1), ("a", 2), ("a", 3)]
        assert {call.context.idempotency_key for call in stage.calls} == {f"{execution_id}/a/1"}
        assert by_id(shown)["a"]["error"] is None

    async def test_an_at_most_once_node_is_not_retried(self, engine: Engine, stage: Stage) -> None:
        execution_id = await stage.submit(
            workflow(node("a", delivery="at_most_once"), defaults={"max_retries": 3, "retry": NO_DELAY})
        )
        (await stage.call("a")).fail(RuntimeError("perhaps half done"))
        shown = await stage.ended(execution_id)
        assert by_id(shown)["a"]["error"]["code"] == "handler_error"
        assert stage.started() == [("a", 1)]

    async def test_an_at_most_once_node_runs_again_when_the_execution_is_retried(
        self, engine: Engine, stage: Stage
    ) -> None:
        execution_id = await stage.submit(workflow(node("a", delivery="at_most_once")))
        (await stage.call("a")).fail()
        await stage.ended(execution_id)
        await engine.retry(execution_id)
        (await stage.call("a")).complete()
        assert (await stage.ended(execution_id))["state"] == "COMPLETED"
        assert stage.started() == [("a", 1), ("a", 2)]


class TestTimeouts:
    async def test_a_coroutine_is_asked_to_stop_and_tried_again(self, engine: Engine, stage: Stage) -> None:
        heard = []

        async def slow_at_first(config: Any, context: HandlerContext) -> Json:
            try:
                return "in time" if context.attempt > 1 else await asyncio.Event().wait()
            except asyncio.CancelledError:
                heard.append((context.attempt, context.cancelled()))
                raise

        stage.add("slow_at_first", slow_at_first)
        shown = await stage.run(
            workflow(node("a", handler="slow_at_first", timeout_seconds=0.05, max_retries=1))
        )

        assert heard == [(1, True)]
        assert shown["output"] == {"a": "in time"}
        attempts = (await engine.describe_node(shown["id"], "a"))["attempts"]
        assert [attempt["outcome"] for attempt in attempts] == ["failed", "completed"]
        assert attempts[0]["error"]["code"] == "timeout"

    async def test_what_a_function_returns_after_its_time_does_not_count(
        self, engine: Engine, stage: Stage
    ) -> None:
        left = threading.Event()

        def work(config: Json, context: HandlerContext) -> Json:
            while not context.cancelled():
                left.wait(0.001)
            left.set()
            return "late"

        stage.add("work", work)
        shown = await stage.run(
            workflow(node("a", handler="work", timeout_seconds=0.02, max_retries=0), echo("b", "a"))
        )
        assert states(shown) == {"a": "FAILED", "b": "SKIPPED upstream_failed a"}
        assert by_id(shown)["a"]["error"]["code"] == "timeout"
        assert await asyncio.to_thread(left.wait, PATIENCE_SECONDS)

    async def test_one_that_ignores_its_stop_is_left_behind_after_the_grace_time(self, stage: Stage) -> None:
        release = asyncio.Event()

        async def stubborn(config: Json, context: HandlerContext) -> Json:
            while not release.is_set():
                try:
                    await release.wait()
                except asyncio.CancelledError:
                    continue
            return "very late"

        stage.add("stubborn", stubborn)
        async with stage.open(worker_grace_seconds=0.02):
            shown = await stage.run(
                workflow(node("a", handler="stubborn", timeout_seconds=0.01, max_retries=0))
            )
            assert by_id(shown)["a"]["error"]["code"] == "timeout"
            await stage.until_idle()
            release.set()
            assert (await stage.run(workflow(echo("other"))))["state"] == "COMPLETED"

    async def test_a_handler_on_the_workers_loop_is_stopped_too(self, engine: Engine, stage: Stage) -> None:
        stage.registry.add(HANDLER)
        shown = await stage.run(
            workflow(node("a", handler="hold", config={"seconds": 600}, timeout_seconds=0.02, max_retries=0))
        )
        assert by_id(shown)["a"]["error"]["code"] == "timeout"


class TestTheCache:
    def written(self, node_id: str = "a", ttl_seconds: float = 600, **fields: Json) -> dict[str, Json]:
        return node(node_id, config={"x": "{{ input.x }}"}, cache={"ttl_seconds": ttl_seconds}, **fields)

    async def test_the_same_handler_and_config_give_the_stored_output(
        self, engine: Engine, stage: Stage
    ) -> None:
        first = await stage.submit(workflow(self.written()), input={"x": 1})
        (await stage.call("a")).complete({"answer": 42})
        await stage.ended(first)

        # In another workflow, under another name.
        before = engine.ports.clock.now()
        shown = await stage.run(workflow(self.written("b"), echo("c", "b")), input={"x": 1})

        hit = by_id(shown)["b"]
        assert hit["state"] == "COMPLETED"
        assert hit["output"] == {"answer": 42}
        assert (hit["cached"], hit["attempt"], hit["worker"]) == (True, 0, None)
        assert hit["queued_at"] == hit["started_at"] == hit["finished_at"]
        row = (await stage.rows(shown["id"]))["b"]
        assert row.finished_at is not None
        assert row.finished_at >= before
        assert by_id(shown)["c"]["cached"] is False
        assert stage.started() == [("a", 1)]
        assert (await engine.describe_node(shown["id"], "b"))["attempts"] == []
        assert (await engine.describe_node(shown["id"], "b"))["config"] == {"x": 1}

    async def test_another_config_or_handler_does_not(self, engine: Engine, stage: Stage) -> None:
        first = await stage.submit(workflow(self.written()), input={"x": 1})
        (await stage.call("a")).complete("one")
        await stage.ended(first)

        second = await stage.submit(workflow(self.written()), input={"x": 2})
        (await stage.call("a")).complete("two")
        assert (await stage.ended(second))["output"] == {"a": "two"}
        shown = await stage.run(
            workflow(echo("a", config={"x": "{{ input.x }}"}, cache={"ttl_seconds": 600})), input={"x": 1}
        )
        assert shown["output"] == {"a": {"x": 1}}

    async def test_an_output_that_is_too_old_is_not_used(self, engine: Engine, stage: Stage) -> None:
        document = workflow(self.written(ttl_seconds=0.001))
        for output in ("old", "new"):
            execution_id = await stage.submit(document, input={"x": 1})
            (await stage.call("a")).complete(output)
            await stage.ended(execution_id)
            too_old_at = engine.ports.clock.now() + 1000

            async def has_passed(too_old_at: int = too_old_at) -> bool:
                return engine.ports.clock.now() > too_old_at

            await stage.until(has_passed)
        assert stage.started() == [("a", 1), ("a", 1)]

    async def test_only_accepted_outputs_are_stored(self, engine: Engine, stage: Stage) -> None:
        document = workflow(self.written(max_retries=0))
        failed = await stage.submit(document, input={"x": 1})
        (await stage.call("a")).fail()
        await stage.ended(failed)
        cancelled = await stage.submit(document, input={"x": 1})
        call = await stage.call("a")
        await engine.cancel(cancelled)
        await stage.publish_late(call)

        third = await stage.submit(document, input={"x": 1})
        (await stage.call("a")).complete("accepted")
        assert (await stage.ended(third))["output"] == {"a": "accepted"}

    async def test_a_hit_after_a_failed_attempt_shows_nothing_of_it(
        self, engine: Engine, stage: Stage
    ) -> None:
        """It is paused before its second attempt; meanwhile another execution completes the same work."""
        execution_id = await stage.submit(workflow(self.written(max_retries=1)), input={"x": 1})
        call = await stage.call("a")
        await engine.pause(execution_id)
        call.fail(RuntimeError("once"))
        other = await stage.submit(workflow(self.written()), input={"x": 1})
        (await stage.call("a", other)).complete("shared")
        await stage.ended(other)
        await stage.until_state(execution_id, "a", "PENDING")

        await engine.resume(execution_id)
        shown = await stage.ended(execution_id)

        hit = by_id(shown)["a"]
        assert (hit["cached"], hit["output"], hit["attempt"]) == (True, "shared", 0)
        assert (hit["worker"], hit["error"], hit["due_at"]) == (None, None, None)
        attempts = (await engine.describe_node(execution_id, "a"))["attempts"]
        assert [attempt["outcome"] for attempt in attempts] == ["failed"]

    async def test_a_large_output_comes_from_the_cache_whole(self, engine: Engine, stage: Stage) -> None:
        document = workflow(
            node("a", handler="large", config={"size": 300_000}, cache={"ttl_seconds": 600}),
            echo("b", "a", config={"n": "{{ a.output | length }}"}),
        )
        await stage.run(document)
        shown = await stage.run(document)
        assert by_id(shown)["a"]["cached"]
        assert shown["output"] == {"b": {"n": 300_000}}

    async def test_a_hit_uses_no_number_up(self, engine: Engine, stage: Stage) -> None:
        first = await stage.submit(workflow(self.written()), input={"x": 1})
        (await stage.call("a")).complete("stored")
        await stage.ended(first)
        execution_id = await stage.submit(workflow(self.written(), fails("bad", "a")), input={"x": 1})
        await stage.ended(execution_id)

        await engine.retry(execution_id, nodes=["a"])
        await stage.ended(execution_id)

        assert (await stage.rows(execution_id))["a"].attempt == 1


class TestPayloads:
    SIZE = 300_000

    async def test_a_large_output_flows_to_the_children_and_is_shown_where_one_node_is_asked_for(
        self, engine: Engine, stage: Stage
    ) -> None:
        shown = await stage.run(
            workflow(
                node("big", handler="large", config={"size": self.SIZE}),
                echo("whole", "big", config={"text": "{{ big.output }}"}),
                echo("length", "whole", config={"n": "{{ whole.text | length }}"}),
            )
        )
        assert shown["output"] == {"length": {"n": self.SIZE}}
        nodes = by_id(shown)
        assert nodes["big"]["output"] is None
        assert nodes["big"]["output_bytes"] == self.SIZE + 2
        assert nodes["length"]["output_bytes"] == len(encode({"n": self.SIZE}, max_bytes=1000))
        assert (await engine.describe_node(shown["id"], "big"))["output"] == "x" * self.SIZE
        whole = await engine.describe_node(shown["id"], "whole")
        assert whole["output"] == whole["config"] == {"text": "x" * self.SIZE}

    async def test_large_outputs_of_many_executions_at_once_all_reach_their_children(
        self, engine: Engine, stage: Stage
    ) -> None:
        names = [f"big{i}" for i in range(4)]
        chain = [
            echo(f"sum{i}", name, *([f"sum{i - 1}"] if i else []), config=_lengths(names[: i + 1]))
            for i, name in enumerate(names)
        ]
        document = workflow(
            *(node(name, handler="large", config={"size": self.SIZE}) for name in names), *chain
        )
        ids = [await stage.submit(document) for _ in range(8)]
        for execution_id in ids:
            shown = await stage.ended(execution_id)
            assert shown["output"] == {"sum3": {"lengths": [self.SIZE] * 4}}

    async def test_a_large_output_is_the_executions(self, engine: Engine, stage: Stage) -> None:
        shown = await stage.run(workflow(node("big", handler="large", config={"size": self.SIZE})))
        assert shown["output"] == {"big": "x" * self.SIZE}

    async def test_an_output_is_what_the_children_see_to_the_last_digit(
        self, engine: Engine, stage: Stage
    ) -> None:
        value = {"large": 2**63 + 1, "small": 1e-7, "text": "é\u2028", "empty": [{}, [], None, ""], "t": True}
        execution_id = await stage.submit(
            workflow(node("a"), echo("b", "a", config={"all": "{{ a.output }}"}))
        )
        (await stage.call("a")).complete(value)
        assert (await stage.ended(execution_id))["output"] == {"b": {"all": value}}

    async def test_an_input_that_does_not_fit_is_refused_with_every_problem(
        self, engine: Engine, stage: Stage
    ) -> None:
        schema = {
            "type": "object",
            "required": ["name"],
            "properties": {"count": {"type": "integer"}, "tags": {"items": {"type": "string"}}},
        }
        document = workflow(echo("a"), input_schema=schema)
        with pytest.raises(InputError) as refused:
            await stage.submit(document, input={"count": "3", "tags": ["a", 1]})
        assert {problem.pointer for problem in refused.value.problems} == {"", "/count", "/tags/1"}
        assert await engine.ports.journal.executions() == []

        shown = await stage.run(document, input={"name": "n", "count": 3})
        assert shown["input"] == {"name": "n", "count": 3}

    @pytest.mark.parametrize("given", [[], "text", 3], ids=str)
    async def test_an_input_is_an_object(self, engine: Engine, stage: Stage, given: Json) -> None:
        with pytest.raises(InputError):
            await stage.submit(workflow(echo("a")), input=given)

    async def test_an_input_that_is_missing_is_empty(self, engine: Engine, stage: Stage) -> None:
        shown = await stage.run(workflow(node("input", handler="input")))
        assert (shown["input"], shown["output"]) == ({}, {"input": {}})

    async def test_an_input_over_the_limit_is_refused(self, stage: Stage) -> None:
        async with stage.open(max_payload_bytes=100):
            with pytest.raises(InputError):
                await stage.submit(workflow(echo("a")), input={"text": "x" * 100})


SECRET = 'pass"word\\ü-0123456789'


class TestSecrets:
    @pytest.fixture(autouse=True)
    def environment(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("WEFT_SECRET_TOKEN", SECRET)

    def forms(self) -> list[str]:
        escaped = json.dumps(SECRET)[1:-1]
        readable = json.dumps(SECRET, ensure_ascii=False)[1:-1]
        return [SECRET, escaped, readable, base64.b64encode(SECRET.encode()).decode()]

    async def test_a_handler_gets_it_and_nobody_else_ever_sees_it(
        self, engine: Engine, stage: Stage, data: Path | None
    ) -> None:
        seen: list[Json] = []

        async def call(config: Any, context: HandlerContext) -> Json:
            seen.append(config)
            if config["fate"] == "fails":
                raise RuntimeError(f"401 for {config['header']}")
            return {"sent": config["header"], "list": [config["token"]]}

        stage.add("call", call)
        config = {"token": "{{ secrets.TOKEN }}", "header": "Bearer {{ secrets.TOKEN }}; {{ input.x }}"}
        shown = await stage.run(
            workflow(
                node("good", handler="call", config={**config, "fate": ""}, cache={"ttl_seconds": 60}),
                node("bad", "good", handler="call", config={**config, "fate": "fails"}, max_retries=1),
                echo("shown", "good", config={"echoed": "{{ secrets.TOKEN }}", "from": "{{ good.output }}"}),
                failure_policy="continue",
            ),
            input={"x": 7},
        )
        assert [given["token"] for given in seen] == [SECRET] * 3
        assert {given["header"] for given in seen} == {f"Bearer {SECRET}; 7"}

        good = await engine.describe_node(shown["id"], "good")
        assert good["output"] == {"sent": "Bearer ***; 7", "list": ["***"]}
        assert good["config"] == {"token": "***", "header": "Bearer ***; 7", "fate": ""}
        bad = await engine.describe_node(shown["id"], "bad")
        assert bad["error"]["message"] == "RuntimeError: 401 for Bearer ***; 7"

        (letter,) = (await stage.letters(shown["id"])).values()
        told = [
            shown,
            good,
            bad,
            await engine.describe_node(shown["id"], "shown"),
            await describe_dead_letter(letter, engine.ports),
            await stage.rows(shown["id"]),
            await stage.events(shown["id"]),
            await stage.execution(shown["id"]),
        ]
        for text in map(repr, told):
            for form in self.forms():
                assert form not in text
        if data is not None:
            stored = _stored(data)
            assert any(b"Bearer ***; 7" in row for _, row in stored)
            for table, row in stored:
                for form in self.forms():
                    assert form.encode() not in row, table

    async def test_a_secret_that_is_missing_is_named_and_the_handler_is_not_called(
        self, engine: Engine, stage: Stage
    ) -> None:
        shown = await stage.run(workflow(node("a", config={"x": "{{ secrets.OTHER }}"})))
        assert by_id(shown)["a"]["error"]["code"] == "bad_config"
        assert "WEFT_SECRET_OTHER" in by_id(shown)["a"]["error"]["message"]
        assert stage.started() == []

    @pytest.mark.parametrize("handler", ["echo", "output"])
    async def test_a_secret_that_is_missing_fails_a_node_that_would_only_repeat_it(
        self, engine: Engine, stage: Stage, handler: str
    ) -> None:
        shown = await stage.run(workflow(node("a", handler=handler, config="x {{ secrets.OTHER }}")))
        assert by_id(shown)["a"]["error"]["code"] == "bad_config"
        assert "WEFT_SECRET_OTHER" in by_id(shown)["a"]["error"]["message"]

    async def test_a_secret_counts_for_the_cache_by_its_name(
        self, engine: Engine, stage: Stage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("WEFT_SECRET_OTHER", SECRET)
        cache = {"ttl_seconds": 60}
        first = await stage.submit(workflow(node("a", config={"x": "{{ secrets.TOKEN }}"}, cache=cache)))
        (await stage.call("a")).complete(1)
        await stage.ended(first)
        monkeypatch.setenv("WEFT_SECRET_TOKEN", "another value")
        same = await stage.run(workflow(node("a", config={"x": "{{ secrets.TOKEN }}"}, cache=cache)))
        assert by_id(same)["a"]["cached"]
        other = await stage.submit(workflow(node("a", config={"x": "{{ secrets.OTHER }}"}, cache=cache)))
        (await stage.call("a")).complete(2)
        assert (await stage.ended(other))["output"] == {"a": 2}


def _lengths(names: list[str]) -> dict[str, Json]:
    return {"lengths": [f"{{{{ {name}.output | length }}}}" for name in names]}


def _stored(data: Path) -> list[tuple[str, bytes]]:
    """Return every row of every table of a journal on disk, as bytes."""
    rows: list[tuple[str, bytes]] = []
    for file in data.iterdir():
        if file.read_bytes()[:15] != b"SQLite format 3":
            continue
        connection = sqlite3.connect(file)
        try:
            tables = [
                name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            ]
            for table in tables:
                for row in connection.execute(f"SELECT * FROM {table}"):
                    cells = [cell if isinstance(cell, bytes) else str(cell).encode() for cell in row]
                    rows.append((table, b" ".join(cells)))
        finally:
            connection.close()
    return rows
