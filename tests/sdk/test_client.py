from __future__ import annotations

import asyncio
import inspect
import json
import subprocess
import sys
import threading
import uuid
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest
from aiohttp import web
from tests.background import FRAGILE, HELD, ORDER, PATIENCE_SECONDS, BackgroundServer, serving

import weft
from weft import ApiError, AsyncClient, Client, InputError, UnreachableError
from weft.sdk.sse import EventReader, ServerSentEvent

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator


@pytest.fixture(scope="module")
def server() -> Iterator[BackgroundServer]:
    with serving() as server:
        yield server


@pytest.fixture
def client(server: BackgroundServer) -> Iterator[Client]:
    with Client(server.url) as client:
        for definition in (ORDER, HELD, FRAGILE):
            client.deploy(definition)
        yield client


def fresh() -> str:
    return uuid.uuid4().hex


# --- Workflows


def test_a_definition_is_deployed_as_a_workflow_a_dict_or_a_file(client: Client, tmp_path: Path) -> None:
    name = f"w-{fresh()}"
    definition = {"name": name, "nodes": [{"id": "a", "handler": "echo", "config": 1}]}
    flow = weft.Workflow(name)
    flow.node(id="a", handler="echo", config=1)
    (tmp_path / "flow.json").write_text(json.dumps(definition))
    (tmp_path / "flow.yaml").write_text(f"name: {name}\nnodes:\n  - {{id: a, handler: echo, config: 1}}\n")
    module = f"m_{fresh()}"
    (tmp_path / f"{module}.py").write_text(f"flow = {definition!r}")
    sources: list[Any] = [
        definition,
        flow,
        tmp_path / "flow.json",
        str(tmp_path / "flow.yaml"),
        f"{tmp_path / module}.py:flow",
    ]
    deployed = [client.deploy(source) for source in sources]
    assert [(one.name, one.version) for one in deployed] == [(name, 1)] * len(sources)
    assert client.validate(flow).layers == [["a"]]
    assert client.workflow(name).definition == definition


def test_versions_and_aliases(client: Client) -> None:
    name = f"w-{fresh()}"
    for config in (1, 2):
        client.deploy({"name": name, "nodes": [{"id": "a", "handler": "echo", "config": config}]})
    client.set_alias(name, "stable", 1)
    assert [one.version for one in client.versions(name)] == [2, 1]
    assert name in {one.name for one in client.workflows()}
    assert client.workflow(name).version == 2
    stable = client.workflow(name, version="stable")
    assert stable.version == 1
    assert stable.created_at is not None
    assert stable.created_at.tzinfo is not None
    started = client.start(name, version="stable", wait_seconds=PATIENCE_SECONDS)
    assert (started.version, started.output) == (1, {"a": 1})
    client.delete_alias(name, "stable")
    with pytest.raises(ApiError, match="stable"):
        client.start(name, version="stable")
    client.delete_workflow(name)
    with pytest.raises(ApiError) as caught:
        client.start(name)
    assert (caught.value.status, caught.value.code) == (404, "not_found")


@pytest.mark.parametrize("call", ["deploy", "validate"])
def test_every_problem_of_a_definition_has_its_pointer(call: str, client: Client) -> None:
    bad = {"name": "bad", "nodes": [{"id": "a", "handler": "ecko"}, {"id": "b", "handler": 3}]}
    pointers = {"/nodes/0/handler", "/nodes/1/handler"}
    if call == "validate":
        verdict = client.validate(bad)
        assert (verdict.valid, {problem.pointer for problem in verdict.problems}) == (False, pointers)
        return
    with pytest.raises(ApiError) as caught:
        client.deploy(bad)
    assert (caught.value.status, caught.value.code) == (422, "invalid_definition")
    assert {problem.pointer for problem in caught.value.problems} == pointers
    assert all(pointer in str(caught.value) for pointer in pointers)


def test_a_file_that_is_no_json_is_judged_by_the_server(client: Client, tmp_path: Path) -> None:
    (tmp_path / "flow.json").write_text('{"name": "a", "name": "b"}')
    with pytest.raises(ApiError) as caught:
        client.deploy(tmp_path / "flow.json")
    assert (caught.value.status, caught.value.code) == (400, "bad_syntax")


# --- Executions


def test_an_execution_is_started_waited_for_and_looked_into(client: Client) -> None:
    labels = {"order": fresh()}
    started = client.start("order", {"number": 7}, labels=labels, priority="high")
    ended = client.wait(started.id, timeout_seconds=PATIENCE_SECONDS)
    assert ended.state is weft.ExecutionState.COMPLETED
    assert ended.is_terminal
    assert (ended.input, ended.output, ended.priority) == ({"number": 7}, {"label": "parcel 7"}, "high")
    assert ended.counts[weft.NodeState.COMPLETED] == 2
    assert ended.node("order").output == {"number": 7}
    assert datetime.now(UTC) - ended.created_at < timedelta(minutes=5)
    assert [one.id for one in client.executions(labels=labels, state=["COMPLETED", "FAILED"])] == [started.id]
    assert [one.id for one in client.executions(labels=labels, state="FAILED")] == []
    assert [one.id for one in client.nodes(started.id, state="COMPLETED")] == ["order", "label"]
    detail = client.node(started.id, "label")
    assert (detail.config, [one.outcome for one in detail.attempts]) == ("parcel 7", ["completed"])
    assert client.explain(started.id, "label").reasons == []
    assert client.execution(started.id, nodes="none").nodes == []


def test_the_nodes_of_an_execution_go_by_id_and_by_place(client: Client) -> None:
    ended = client.wait(client.start("order", {"number": 7}).id, timeout_seconds=60).raise_for_state()
    assert [node.id for node in ended.nodes] == ended.nodes.keys() == ["order", "label"]
    assert ended.nodes["order"] is ended.nodes[0] is ended.node("order") is ended.nodes.get("order")
    assert [name in ended.nodes for name in ("label", "ghost")] == [True, False]  # type: ignore[comparison-overlap]
    assert ended.nodes.get("ghost") is None
    assert dict(ended.nodes.items())["label"].output == "parcel 7"
    assert ended.nodes.values() == ended.nodes[:]
    assert ended.duration is not None
    assert (ended.nodes["order"].duration or 0) <= ended.duration
    with pytest.raises(KeyError, match="ghost"):
        ended.nodes["ghost"]
    with pytest.raises(KeyError, match=r"without nodes; fetch them with client.wait"):
        client.execution(ended.id, nodes="none").nodes["order"]


def test_an_execution_that_failed_or_has_not_ended_raises_for_its_state(client: Client) -> None:
    node = {"id": "bad", "handler": "python", "config": {"function": "os:getcwd"}}
    ended = client.start_definition({"nodes": [node]}, wait_seconds=60)
    with pytest.raises(weft.ExecutionFailed) as caught:
        ended.raise_for_state()
    assert (caught.value.execution, caught.value.state) == (ended.id, "FAILED")
    assert caught.value.error is not None
    assert (caught.value.error.code, caught.value.error.node) == ("node_failed", "bad")
    assert "failed: bad: function_not_allowed: " in str(caught.value)
    held = client.start_definition({"nodes": [{"id": "a", "handler": "sleep", "config": {"seconds": 60}}]})
    with pytest.raises(weft.WeftError, match="wait for its end first"):
        held.raise_for_state()
    client.cancel(held.id)
    with pytest.raises(weft.ExecutionFailed, match="is CANCELLED"):
        client.wait(held.id, timeout_seconds=60).raise_for_state()


def test_an_input_may_be_of_any_type_that_a_function_may_return(client: Client) -> None:
    @dataclass
    class Order:
        number: int
        at: date

    ended = client.start("order", Order(7, date(2026, 5, 1)), wait_seconds=60)
    assert ended.input == {"number": 7, "at": "2026-05-01"}


def test_what_a_server_refuses_is_raised_without_frames_of_weft(client: Client) -> None:
    with pytest.raises(ApiError) as caught:
        client.execution("ghost")
    assert [Path(frame.path).name for frame in caught.traceback] == ["test_client.py", "public.py"]
    assert caught.value.__cause__ is None
    with pytest.raises(ApiError) as caught:
        list(client.nodes("ghost"))
    assert len(caught.traceback) == 2


def test_a_definition_is_started_without_being_stored(client: Client) -> None:
    definition = {"nodes": [{"id": "a", "handler": "echo", "config": "{{ input.x }}"}]}
    ended = client.start_definition(definition, {"x": 3}, wait_seconds=PATIENCE_SECONDS)
    assert (ended.version, ended.output) == (None, {"a": 3})


def test_a_list_is_read_page_by_page(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft.sdk.calls.PAGE_SIZE", 2)
    labels = {"pages": fresh()}
    started = [client.start("order", {"number": 1}, labels=labels).id for _ in range(5)]
    assert {one.id for one in client.executions(labels=labels)} == set(started)
    client.wait(started[0])
    events = list(client.events(started[0]))
    assert [event.seq for event in events] == list(range(1, 6))
    assert [event.seq for event in client.events(started[0], after=3)] == [4, 5]


def test_what_is_in_hand_is_explained_paused_and_cancelled(client: Client) -> None:
    execution = client.start("held", {"gate": fresh()})
    while client.node(execution.id, "gate").state != "RUNNING":
        pass
    assert [reason.code for reason in client.explain(execution.id, "after").reasons] == [
        "waiting_for_parents"
    ]
    assert client.pause(execution.id).state == "PAUSED"
    assert client.resume(execution.id).state == "RUNNING"
    with pytest.raises(TimeoutError, match="RUNNING"):
        client.wait(execution.id, timeout_seconds=0.05)
    assert client.cancel(execution.id).state == "CANCELLED"
    assert client.cancel(execution.id).state == "CANCELLED"
    with pytest.raises(ApiError) as caught:
        client.pause(execution.id)
    assert (caught.value.status, caught.value.code) == (409, "not_allowed")


def test_a_failed_execution_is_planned_and_retried(client: Client, server: BackgroundServer) -> None:
    gate = fresh()
    failed = client.wait(client.start("fragile", {"gate": gate}).id)
    assert failed.error is not None
    assert (failed.state, failed.error.node) == ("FAILED", "crack")
    plan = client.retry_plan(failed.id)
    assert (plan.generation, plan.run, plan.reuse) == (2, ["crack", "last"], ["first"])
    server.open(gate)
    key = fresh()
    again = [client.retry(failed.id, key=key) for _ in range(2)]
    assert {one.generation for one in again} == {2}
    assert client.wait(failed.id).state == "COMPLETED"


def test_dead_letters_are_listed_retried_and_dropped(client: Client, server: BackgroundServer) -> None:
    gate = fresh()
    executions = [client.wait(client.start("fragile", {"gate": gate}).id).id for _ in range(2)]
    letters = {
        letter.execution: letter.id for letter in client.dead_letters(workflow="fragile", state="open")
    }
    first, second = (letters[execution] for execution in executions)
    letter = client.dead_letter(first)
    assert letter.error is not None
    assert (letter.node, letter.error.message) == ("crack", f"it cracked at {gate}")
    client.drop_dead_letter(second)
    assert client.dead_letter(second).state == "dropped"
    server.open(gate)
    assert client.retry_dead_letter(first).generation == 2
    assert client.dead_letter(first).state == "retried"
    assert client.wait(executions[0]).state == "COMPLETED"


def test_executions_and_dead_letters_are_searched_and_mended_by_the_group(
    client: Client, server: BackgroundServer
) -> None:
    gate, case = fresh(), fresh()
    failed = [
        client.wait(client.start("fragile", {"gate": gate}, labels={"case": case}).id).id for _ in range(2)
    ]
    found = client.executions(error="handler_error", node="crack", q=case, min_seconds=0, max_seconds=1e6)
    assert [one.id for one in found] == failed[::-1]
    assert list(client.executions(q=case, worker="stranger")) == []
    letters = [letter.id for letter in client.dead_letters(node="crack", q=case)]
    assert len(letters) == 2
    (group,) = [one for one in client.dead_letter_groups(workflow="fragile") if one.node == "crack"]
    assert group.count >= 2
    assert group.sample.id == letters[0]
    refused = client.drop_dead_letters(ids=["stranger"])
    assert (refused.done, refused.refused[0].code) == (0, "not_found")
    server.open(gate)
    assert client.retry_dead_letters(ids=letters).done == 2
    assert {client.wait(one).state for one in failed} == {"COMPLETED"}
    assert client.drop_dead_letters(workflow="fragile", node="stranger").matched == 0


def test_figures_of_the_server_and_of_a_workflow_are_read(client: Client) -> None:
    client.wait(client.start("order", {"number": 7}).id)
    shown = client.overview()
    assert len(shown.hours) == 24
    assert sum(hour.completed for hour in shown.hours) == shown.executions["COMPLETED"] >= 1
    assert shown.workers is not None
    figures = client.statistics("order")
    assert figures.recent[0].seconds is not None
    assert figures.success_rate is not None
    assert client.statistics("order", version=1).nodes


def test_a_batch_gives_its_results_in_the_order_of_the_inputs(client: Client) -> None:
    batch = client.start_batch("order", [{"number": number} for number in range(5)])
    while batch.finished_at is None:
        batch = client.batch(batch.id)
    assert (batch.state, batch.total, batch.counts[weft.ExecutionState.COMPLETED]) == ("COMPLETED", 5, 5)
    results = list(client.batch_results(batch.id))
    assert [result.index for result in results] == list(range(5))
    assert [result.output for result in results] == [{"label": f"parcel {number}"} for number in range(5)]
    held = client.start_batch("held", [{"gate": fresh()}] * 2)
    assert client.cancel_batch(held.id).counts[weft.ExecutionState.CANCELLED] == 2


def test_the_fleet(client: Client) -> None:
    client.wait(client.start("order", {"number": 1}).id)
    assert [worker.state for worker in client.workers()] == ["alive"]
    assert "echo" in {queue.name for queue in client.queues()}
    assert client.ready().ready


def test_a_watcher_sees_each_event_once_to_the_end(client: Client, server: BackgroundServer) -> None:
    gate = fresh()
    execution = client.start("held", {"gate": gate})
    seen = []
    for event in client.watch(execution.id):
        seen.append(event)
        if event.type == "execution.started":
            server.open(gate)
    recorded = [event for event in seen if event.seq]
    assert [event.seq for event in recorded] == list(range(1, len(recorded) + 1))
    assert recorded[-1].type == "execution.completed"
    assert [event.seq for event in client.watch(execution.id, after=4)] == [5]
    assert list(client.watch(execution.id, after=5)) == []


def test_what_waits_is_listed_and_answered(client: Client) -> None:
    flow = weft.Workflow(f"w-{fresh()}")
    flow.wait("approval", prompt="Apply {{ 1 + 2 }}?", schema={"enum": ["yes", None]}, expires_seconds=3600)
    flow.wait("paid", signal="payment", dependencies=["approval"])
    client.deploy(flow)
    started = client.start(flow.name)
    next(event for event in client.watch(started.id) if event.type == "node.waiting")
    (wait,) = client.waits(workflow=flow.name, execution=started.id, signal="approval")
    assert (wait.node, wait.prompt, wait.schema) == ("approval", "Apply 3?", {"enum": ["yes", None]})
    assert wait.expires_at is not None
    assert wait.expires_at - wait.since == timedelta(hours=1)
    assert client.signal(started.id, "payment", {"amount": 7}).answered is None
    with pytest.raises(ApiError) as refused:
        client.answer(started.id, "approval", "no")
    assert [problem.pointer for problem in refused.value.problems] == ["/value"]
    key = fresh()
    for _ in range(2):
        answered = client.answer(started.id, "approval", None, key=key)
        assert (answered.state, answered.output["value"]) == (weft.NodeState.COMPLETED, None)
    with pytest.raises(ApiError, match="does not wait for an answer"):
        client.answer(started.id, "approval", "yes")
    ended = client.wait(started.id, timeout_seconds=PATIENCE_SECONDS)
    assert ended.node("paid").output["value"] == {"amount": 7}
    signals = [(one.node, one.signal) for one in client.events(started.id) if one.type == "signal.received"]
    assert signals == [(None, "payment"), ("approval", "approval")]
    assert list(client.waits(execution=started.id)) == []


async def test_the_async_client_answers_too(server: BackgroundServer) -> None:
    definition = {"nodes": [{"id": "a", "handler": "wait"}, {"id": "b", "handler": "wait"}]}
    async with AsyncClient(server.url) as client:
        started = await client.start_definition(definition)
        waits: list[Any] = []
        while len(waits) < 2:
            waits = [wait async for wait in client.waits(execution=started.id)]
        assert {wait.node for wait in waits} == {"a", "b"}
        assert (await client.signal(started.id, "a", 1)).answered == "a"
        assert (await client.answer(started.id, "b", 2)).output["value"] == 2
        ended = await client.wait(started.id, timeout_seconds=PATIENCE_SECONDS)
        assert [node.output["value"] for node in ended.nodes] == [1, 2]


# --- Idempotency and retries


def test_the_same_key_starts_one_execution_and_another_body_is_a_conflict(client: Client) -> None:
    key = fresh()
    first = client.start("order", {"number": 1}, key=key)
    assert client.start("order", {"number": 1}, key=key).id == first.id
    with pytest.raises(ApiError) as caught:
        client.start("order", {"number": 2}, key=key)
    assert (caught.value.status, caught.value.code) == (409, "idempotency_conflict")


@asynccontextmanager
async def losing(server: BackgroundServer, lost: int) -> AsyncIterator[str]:
    """A way to a server on which the first answers get lost, after the server has given them."""
    left = lost
    host, port = server.url.removeprefix("http://").split(":")
    carrying: set[asyncio.Task[Any]] = set()

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal left
        task = asyncio.current_task()
        assert task is not None
        carrying.add(task)
        up_reader, up_writer = await asyncio.open_connection(host, int(port))

        async def requests() -> None:
            while piece := await reader.read(65536):
                up_writer.write(piece)
            up_writer.close()

        forward = asyncio.create_task(requests())
        with suppress(ConnectionError):
            while piece := await up_reader.read(65536):
                if left:
                    left -= 1
                    break
                writer.write(piece)
        forward.cancel()
        for one in (up_writer, writer):
            one.close()
            with suppress(ConnectionError):
                await one.wait_closed()

    listener = await asyncio.start_server(carry, "127.0.0.1", 0)
    async with listener:
        yield "http://{}:{}".format(*listener.sockets[0].getsockname())
        await asyncio.gather(*carrying)


async def test_a_call_whose_answer_was_lost_is_repeated_and_starts_nothing_twice(
    client: Client, server: BackgroundServer
) -> None:
    labels = {"lost": fresh()}
    async with losing(server, lost=2) as url, AsyncClient(url) as lossy:  # closed in the reverse order
        started = await lossy.start("order", {"number": 1}, labels=labels)
        batch = await lossy.start_batch("order", [{"number": 1}], labels={"batch": labels["lost"]})
        assert [one.id async for one in lossy.executions(labels=labels)] == [started.id]
        assert [one.batch async for one in lossy.executions(labels={"batch": labels["lost"]})] == [batch.id]


Answer: TypeAlias = "Callable[[web.Request], Awaitable[web.StreamResponse]]"


@asynccontextmanager
async def scripted(*answers: Answer) -> AsyncIterator[tuple[str, list[web.Request]]]:
    """A server that answers by a script, the last answer for ever."""
    asked: list[web.Request] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        asked.append(request)
        return await answers[min(len(asked), len(answers)) - 1](request)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app, shutdown_timeout=0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield "http://{}:{}".format(*runner.addresses[0]), asked
    finally:
        await runner.cleanup()


def gives(status: int, body: Any = None, **headers: str) -> Answer:
    async def answer(_: web.Request) -> web.StreamResponse:
        return web.json_response(body, status=status, headers=headers)

    return answer


def refuses(status: int, code: str, **headers: str) -> Answer:
    return gives(status, {"code": code, "detail": "not now", "status": status}, **headers)


READY = gives(200, {"ready": True, "new_field": [1]})


@pytest.mark.parametrize(("status", "code"), [(429, "rate_limited"), (503, "unavailable"), (502, "proxy")])
async def test_not_now_is_asked_again_and_the_time_to_wait_is_kept(status: int, code: str) -> None:
    queues = gives(200, {"items": [], "next_cursor": None, "added_later": 1})
    async with scripted(refuses(status, code, **{"Retry-After": "1"}), queues) as (url, asked):
        async with AsyncClient(url) as client:
            begun = asyncio.get_running_loop().time()
            assert [queue async for queue in client.queues()] == []
            assert asyncio.get_running_loop().time() - begun >= 1
        assert len(asked) == 2


async def test_a_wait_that_is_longer_than_the_budget_is_not_begun() -> None:
    async with scripted(refuses(503, "unavailable", **{"Retry-After": "60"})) as (url, asked):
        async with AsyncClient(url, retry_seconds=5) as client:
            with pytest.raises(ApiError) as caught:
                await client.workflow("x")
        assert (caught.value.code, caught.value.retry_after_seconds) == ("unavailable", 60)
        assert len(asked) == 1


@pytest.mark.parametrize("status", [400, 404, 409, 422, 500])
async def test_a_refusal_is_not_asked_again(status: int) -> None:
    async with scripted(refuses(status, "some_code")) as (url, asked):
        async with AsyncClient(url) as client:
            with pytest.raises(ApiError) as caught:
                await client.start("x")
        assert (caught.value.status, caught.value.code, len(asked)) == (status, "some_code", 1)


async def test_a_server_that_is_not_ready_says_so_without_an_error() -> None:
    checks = {"journal": {"ok": False, "message": "locked"}}
    async with scripted(gives(503, {"ready": False, "checks": checks})) as (url, asked):
        async with AsyncClient(url) as client:
            found = await client.ready()
        assert (found.ready, found.checks["journal"].message, len(asked)) == (False, "locked", 1)


async def test_fields_that_are_not_known_are_ignored() -> None:
    async with scripted(READY) as (url, _), AsyncClient(url) as client:
        assert (await client.ready()).ready


@pytest.mark.parametrize(
    "answer",
    [
        gives(200, "hello"),
        gives(302, None, Location="https://elsewhere.example/"),
        gives(404, {"error": "no such page"}),
    ],
)
async def test_an_answer_of_something_else_is_said_to_be_one(answer: Answer) -> None:
    async with scripted(answer) as (url, _), AsyncClient(url) as client:
        with pytest.raises(ApiError, match="not one of a weft server") as caught:
            await client.workflow("x")
        assert caught.value.code == "bad_answer"


async def test_the_key_goes_with_every_call_and_is_read_from_the_environment_or_a_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "key").write_text("from-file\n")
    async with scripted(READY) as (url, asked):
        monkeypatch.setenv("WEFT_URL", f"{url}/")
        async with AsyncClient(api_key="given") as client:
            await client.ready()
        monkeypatch.setenv("WEFT_API_KEY", "from-env")
        async with AsyncClient() as client:
            await client.ready()
        monkeypatch.delenv("WEFT_API_KEY")
        monkeypatch.setenv("WEFT_API_KEY_FILE", str(tmp_path / "key"))
        async with AsyncClient() as client:
            await client.ready()
        sent = [request.headers["Authorization"] for request in asked]
    assert sent == ["Bearer given", "Bearer from-env", "Bearer from-file"]


def test_no_server_is_an_error_of_its_own() -> None:
    with (
        Client("http://127.0.0.1:1") as client,  # which would wait for 30 s for a server it knew
        pytest.raises(UnreachableError, match="connection refused") as caught,
    ):
        client.ready()
    assert "\n" not in str(caught.value)
    assert len(caught.traceback) == 2


@pytest.mark.parametrize("url", ["localhost:8700", "ftp://x", "http://", "http://x:port", "http://x/?a=b"])
def test_what_is_no_url_of_a_server_is_refused(url: str) -> None:
    with pytest.raises(weft.SettingsError, match="URL"):
        Client(url)


def test_a_key_with_a_line_break_is_refused_and_not_shown() -> None:
    with pytest.raises(weft.SettingsError) as caught:
        Client(api_key="secret\r\nX-Evil: 1")
    assert "secret" not in str(caught.value)


async def test_a_broken_stream_goes_on_behind_the_last_event() -> None:
    def event(seq: int | None, kind: str) -> bytes:
        data = json.dumps({"seq": seq, "type": kind, "execution": "x"})
        return (f"id: {seq}\n" if seq else "").encode() + f"event: {kind}\ndata: {data}\n\n".encode()

    def streams(*pieces: bytes) -> Answer:
        async def answer(request: web.Request) -> web.StreamResponse:
            response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
            await response.prepare(request)
            for piece in pieces:
                await response.write(piece)
            return response

        return answer

    last = event(4, "execution.completed")
    async with scripted(
        streams(
            b": hello\n\n", event(1, "execution.created"), event(2, "execution.failed"), event(3, "retried")
        ),
        streams(event(None, "node.started"), last[:20]),
        refuses(503, "unavailable", **{"Retry-After": "0"}),
        # What was told before may come again; the second time it is not passed on.
        streams(event(3, "retried"), last[:7], last[7:]),
    ) as (url, asked):
        async with AsyncClient(url) as client:
            seen = [(one.seq, one.type) async for one in client.watch("x")]
        assert [request.headers.get("Last-Event-ID") for request in asked] == [None, "3", "3", "3"]
    assert [seq for seq, _ in seen] == [1, 2, 3, None, 4]


async def test_a_watcher_who_leaves_closes_the_stream(client: Client, server: BackgroundServer) -> None:
    execution = client.start("held", {"gate": fresh()})
    async with AsyncClient(server.url) as watching:
        events = watching.watch(execution.id)
        assert (await anext(events)).type == "execution.created"
        await events.aclose()
        session = watching._connection._session
        assert session is not None
        assert session.connector is not None
        assert not session.connector._acquired


async def test_a_watcher_survives_a_restart_of_the_server(tmp_path: Path) -> None:
    gate = fresh()
    with serving(tmp_path) as first:
        port = int(first.url.rpartition(":")[2])
        async with AsyncClient(first.url) as client:
            await client.deploy(HELD)
            execution = await client.start("held", {"gate": gate})
            seen: list[int] = []
            watching = client.watch(execution.id)
            async for event in watching:
                seen += [event.seq] if event.seq else []
                if event.type == "execution.started":
                    break
            await asyncio.to_thread(first.stop)
            with serving(tmp_path, port=port) as second:
                second.open(gate)
                async for event in watching:
                    seen += [event.seq] if event.seq else []
            assert event.type == "execution.completed"
            assert seen == list(range(1, len(seen) + 1))


# --- The two faces


def test_both_clients_have_the_same_methods() -> None:
    def methods(kind: type) -> dict[str, inspect.Signature]:
        names = [name for name in vars(kind) if not name.startswith("_")]
        return {name: inspect.signature(getattr(kind, name)) for name in names}

    ours, theirs = methods(Client), methods(AsyncClient)
    assert {name: list(one.parameters) for name, one in ours.items()} == {
        name: list(one.parameters) for name, one in theirs.items()
    }


def test_help_shows_what_a_method_takes_and_gives() -> None:
    shown = str(inspect.signature(Client("http://x").workflow))
    assert shown == "(name: 'str', *, version: 'int | str | None' = None) -> 'shapes.WorkflowVersion'"
    assert "alias" in (Client.workflow.__doc__ or "")


async def test_the_blocking_client_works_where_a_loop_is_running(client: Client) -> None:
    # As in a notebook: this thread's loop is busy with this very line.
    assert client.ready().ready


def test_one_client_serves_many_threads(client: Client) -> None:
    outputs: dict[int, Any] = {}

    def work(number: int) -> None:
        started = client.start("order", {"number": number}, wait_seconds=PATIENCE_SECONDS)
        outputs[number] = started.output

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outputs == {number: {"label": f"parcel {number}"} for number in range(8)}


def test_a_closed_client_can_be_used_again_and_leaves_no_thread(server: BackgroundServer) -> None:
    client = Client(server.url)
    before = threading.active_count()
    for _ in range(2):
        assert client.ready().ready
        client.close()
        assert threading.active_count() == before


@pytest.mark.parametrize("forgets", ["client = None", "pass"])
def test_a_client_that_nobody_closes_leaves_without_a_word(forgets: str, server: BackgroundServer) -> None:
    script = f"import weft\nclient = weft.Client({server.url!r})\nprint(client.ready().ready)\n{forgets}"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    assert (done.stdout, done.stderr) == ("True\n", "")


def test_a_client_works_on_in_a_forked_process(server: BackgroundServer) -> None:
    script = (
        f"import os, signal, weft\nclient = weft.Client({server.url!r})\nclient.ready()\nchild = os.fork()\n"
        "if not child:\n    signal.alarm(30)\n    os._exit(0 if client.ready().ready else 1)\n"
        "raise SystemExit(os.waitpid(child, 0)[1])"
    )
    assert subprocess.run([sys.executable, "-c", script], timeout=60, check=False).returncode == 0


def test_an_async_client_outlives_its_loop(server: BackgroundServer) -> None:
    client = AsyncClient(server.url)

    async def use() -> bool:
        try:
            return (await client.ready()).ready
        finally:
            await client.close()

    assert [asyncio.run(use()), asyncio.run(use())] == [True, True]


# --- What is sent


@pytest.mark.parametrize("value", [float("nan"), object(), "\ud800"])
def test_an_input_that_is_no_json_is_refused_with_its_place(value: Any, client: Client) -> None:
    with pytest.raises(InputError) as caught:
        client.start("order", {"number": [value]})
    assert [problem.pointer for problem in caught.value.problems] == ["/number/0"]
    with pytest.raises(InputError) as caught:
        client.start_batch("order", [{"number": 1}, {"number": value}])
    assert [problem.pointer for problem in caught.value.problems] == ["/1/number"]


def test_a_definition_that_is_no_json_is_refused_with_its_place(client: Client) -> None:
    bad = {"name": "x", "nodes": [{"id": "a", "handler": "echo", "config": float("inf")}]}
    for call in (client.deploy, client.validate, client.start_definition):
        with pytest.raises(weft.DefinitionError) as caught:
            call(bad)
        assert [problem.pointer for problem in caught.value.problems] == ["/nodes/0/config"]


@pytest.mark.parametrize("name", ["a/b", "..", "%2e", "é", "?x=1", "a b"])
def test_a_name_cannot_lead_to_another_path(name: str, client: Client) -> None:
    with pytest.raises(ApiError) as caught:
        client.workflow(name)
    assert (caught.value.status, caught.value.code) == (404, "not_found")
    with pytest.raises(ValueError, match="is needed"):
        client.workflow("")


def test_a_time_without_a_zone_is_refused(client: Client) -> None:
    with pytest.raises(ValueError, match="time zone"):
        next(client.executions(created_after=datetime(2026, 1, 1)))


# --- Server-sent events


def test_events_are_the_same_wherever_the_stream_is_cut() -> None:
    told = (
        ": ping\n\nid: 1\nevent: a\ndata: {}\n\n",
        "data: x\r\ndata: ü\r\n\r\n",
        "\n\nretry: 5\n\nid: 2\ndata: cut",
    )
    text = "".join(told).encode()
    expected = [ServerSentEvent("{}", "a", "1"), ServerSentEvent("x\nü")]
    for cut in range(len(text) + 1):
        reader = EventReader()
        assert [*reader.read(text[:cut]), *reader.read(text[cut:])] == expected
