"""Notifications of one process: from the commit of an end to the receiver's answer, over real connections."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from tests.notifications.receiver import KEY, Receiver, is_signed

from weft.core.time import rfc3339
from weft.definition.plan import compile_plan
from weft.engine import Engine, EngineParts
from weft.errors import SettingsError
from weft.handlers.registry import Registry
from weft.orchestrator.notifications.deliver import MAX_ATTEMPTS, delay_seconds
from weft.orchestrator.waits.answers import answer
from weft.settings import Settings
from weft.testing.http_server import Answer, Silence

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from pathlib import Path

    from weft.core.rows import Notification

GOOD: dict[str, Any] = {"name": "good", "nodes": [{"id": "a", "handler": "echo"}]}
# Its only node fails at once, and for good.
BAD: dict[str, Any] = {
    "name": "bad",
    "nodes": [{"id": "a", "handler": "echo", "config": "{{ input.missing }}"}],
}


@asynccontextmanager
async def server(data: Path, **settings: Any) -> AsyncIterator[Engine]:
    engine = Engine(
        registry=Registry(),
        settings=Settings(notify_secret=KEY, **settings),
        data=data,
        parts=EngineParts(notifies=True),
    )
    async with asyncio.timeout(30), engine:
        yield engine


async def run(engine: Engine, document: dict[str, Any], **fields: Any) -> str:
    """Run an execution to its end, and return its id."""
    document = {**document, **fields}
    execution_id = await engine.submit(compile_plan(document), document=document)
    await engine.wait(execution_id)
    return execution_id


async def until(
    engine: Engine, execution_id: str, holds: Callable[[Sequence[Notification]], bool]
) -> Sequence[Notification]:
    """Return the notifications of an execution as soon as something holds of them."""
    while True:
        found = await engine.ports.catalog.notifications(execution_id)
        if holds(found):
            return found
        await asyncio.sleep(0.01)


def all_ended(found: Sequence[Notification]) -> bool:
    return bool(found) and all(one.state != "pending" for one in found)


async def test_a_failure_is_told_with_a_signature_and_seen_in_the_events(tmp_path: Path) -> None:
    with Receiver() as receiver:
        async with server(tmp_path, notify=(receiver.hook,)) as engine:
            execution_id = await run(engine, BAD)
            (one,) = await until(engine, execution_id, all_ended)
            events = await engine.ports.catalog.events(execution_id)
    (request,) = receiver.received
    assert (request.method, request.target) == ("POST", "/hooks/T0/B0")
    assert request.headers["content-type"] == "application/json"
    assert is_signed(request)
    assert request.headers["webhook-id"] == one.id
    body = request.json()
    assert body["text"].startswith(f"Execution {execution_id} of workflow bad failed: node a failed: ")
    assert (body["id"], body["type"], body["node"]) == (one.id, "execution.failed", "a")
    assert (body["execution"]["id"], body["execution"]["state"]) == (execution_id, "FAILED")
    assert body["error"]["code"] == "node_failed"
    assert (one.state, one.attempts) == ("delivered", 1)
    assert [event.type for event in events][-2:] == ["execution.failed", "notification.delivered"]
    assert events[-1].reason == "failed"


async def test_a_workflow_says_by_itself_who_is_told_of_what(tmp_path: Path) -> None:
    with Receiver() as receiver, Receiver() as other:
        settings = {"http_allow": ("127.0.0.1",), "notify": (other.hook,)}
        async with server(tmp_path, **settings) as engine:
            notify = {"url": receiver.hook, "on": ["completed"]}
            told = await run(engine, GOOD, notify=notify)
            await until(engine, told, all_ended)
            untold = await run(engine, BAD, notify=notify)
            await until(engine, untold, all_ended)
    assert [body["execution"]["id"] for body in receiver.bodies()] == [told]
    assert [body["execution"]["id"] for body in other.bodies()] == [untold]


ASKING: dict[str, Any] = {
    "name": "asking",
    "nodes": [
        {
            "id": "approval",
            "handler": "wait",
            "config": {"signal": "ok", "prompt": "Pay <b>20</b>?", "expires_seconds": 60},
        }
    ],
}


async def test_a_question_is_told_with_a_link_to_its_form(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"notify_on": ("waiting", "completed"), "public_url": "https://weft.example/w"}
    with Receiver() as receiver:
        async with server(tmp_path, notify=(receiver.hook,), **settings) as engine:
            execution_id = await engine.submit(compile_plan(ASKING), document=ASKING)
            await until(engine, execution_id, all_ended)
            await answer(execution_id, "approval", "yes", engine.ports)
            await engine.wait(execution_id)
            await until(engine, execution_id, lambda found: len(found) == 2 and all_ended(found))
            events = await engine.ports.catalog.events(execution_id)
    asked, done = receiver.bodies()
    link = f"https://weft.example/w/#/waits/{execution_id}/approval"
    assert asked["text"] == (
        f"Execution {execution_id} of workflow asking waits for an answer to approval: "
        f"Pay &lt;b&gt;20&lt;/b&gt;? {link}"
    )
    assert (asked["type"], asked["node"], asked["error"]) == ("node.waiting", "approval", None)
    (waiting,) = (event for event in events if event.type == "node.waiting")
    assert waiting.due_at is not None
    expires_at = rfc3339(waiting.due_at)
    assert asked["wait"] == {"signal": "ok", "prompt": "Pay <b>20</b>?", "expires_at": expires_at}
    assert (asked["url"], asked["execution"]["state"]) == (link, "RUNNING")
    assert done["url"] == f"https://weft.example/w/#/executions/{execution_id}"
    assert "wait" not in done
    told = [event.reason for event in events if event.type == "notification.delivered"]
    assert told == ["waiting", "completed"]


async def test_a_long_prompt_leaves_the_link_whole(tmp_path: Path) -> None:
    node = {"id": "a", "handler": "wait", "config": {"prompt": "p" * 2_000}}
    document = {"name": "long", "nodes": [node]}
    with Receiver() as receiver:
        for name, public_url in (("with", "http://127.0.0.1:8700"), ("without", None)):
            settings: dict[str, Any] = {"notify_on": ("waiting",), "public_url": public_url}
            async with server(tmp_path / name, notify=(receiver.hook,), **settings) as engine:
                execution_id = await engine.submit(compile_plan(document), document=document)
                await until(engine, execution_id, all_ended)
    linked, unlinked = receiver.bodies()
    assert linked["text"].endswith(f"p… {linked['url']}")
    assert linked["url"].startswith("http://127.0.0.1:8700/#/waits/")
    assert linked["wait"]["prompt"] == "p" * 2_000
    assert unlinked["url"] is None
    assert unlinked["text"].endswith("p…")


async def test_an_answer_that_is_no_success_is_tried_again_under_the_same_id(tmp_path: Path) -> None:
    with Receiver(500, 503) as receiver:
        async with server(tmp_path, notify=(receiver.hook,)) as engine:
            engine.ports.draw = lambda: 0.0
            execution_id = await run(engine, BAD)
            (one,) = await until(engine, execution_id, all_ended)
    assert (one.state, one.attempts, one.error) == ("delivered", 3, None)
    assert receiver.ids() == [one.id] * 3
    assert len({request.body for request in receiver.received}) == 1
    assert all(map(is_signed, receiver.received))
    times = [request.at for request in receiver.received]
    assert times[1] - times[0] >= 700_000
    assert times[2] - times[1] >= 1_400_000


async def test_410_ends_it_and_the_history_says_why(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with Receiver(410) as receiver:
        async with server(tmp_path, notify=(receiver.hook,)) as engine:
            execution_id = await run(engine, BAD)
            (one,) = await until(engine, execution_id, all_ended)
            event = (await engine.ports.catalog.events(execution_id))[-1]
    assert (one.state, one.attempts, one.error) == ("failed", 1, "the receiver answered 410 Gone")
    assert event.type == "notification.failed"
    assert event.error is not None
    assert event.error["message"] == one.error
    assert "/hooks/T0" not in caplog.text


async def test_what_a_workflow_names_may_not_be_on_the_inside(tmp_path: Path) -> None:
    with Receiver() as receiver:
        async with server(tmp_path) as engine:
            execution_id = await run(engine, BAD, notify={"url": receiver.hook})
            (one,) = await until(engine, execution_id, all_ended)
        async with server(tmp_path / "other", http_allow=("127.0.0.1",)) as engine:
            await until(engine, await run(engine, BAD, notify={"url": receiver.hook}), all_ended)
    assert one.state == "failed"
    assert one.error is not None
    assert "is not a public address" in one.error
    assert "WEFT_HTTP_ALLOW" in one.error
    assert len(receiver.received) == 1


async def test_a_redirect_is_not_followed(tmp_path: Path) -> None:
    with Receiver() as inside:
        moved = Answer(302, headers={"Location": inside.hook})
        with Receiver(answer=lambda _: moved) as receiver:
            async with server(tmp_path, notify=(receiver.hook,)) as engine:
                execution_id = await run(engine, BAD)
                (one,) = await until(engine, execution_id, lambda found: found[0].error is not None)
    assert (one.state, one.error) == ("pending", "the receiver answered 302 Found")
    assert inside.received == []


async def test_a_receiver_that_hangs_holds_up_no_execution_and_no_other_receiver(tmp_path: Path) -> None:
    with Receiver(answer=lambda _: Silence()) as silent, Receiver() as receiver:
        async with server(tmp_path, notify=(silent.hook, receiver.hook)) as engine:
            first = await run(engine, BAD)
            second = await run(engine, BAD)
            found = await until(engine, first, lambda found: any(one.state == "delivered" for one in found))
            assert second != first
    assert {one.url for one in found if one.state == "pending"} == {silent.hook}


async def test_a_secret_of_the_orchestrator_fills_the_url(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = "{{ secrets.HOOK }}/{{secrets.PATH_OF_HOOK}}"
    with Receiver() as receiver:
        monkeypatch.setenv("WEFT_SECRET_PATH_OF_HOOK", "hidden/path")
        async with server(tmp_path, http_allow=("127.0.0.1",)) as engine:
            execution_id = await run(engine, BAD, notify={"url": url})
            (one,) = await until(engine, execution_id, lambda found: found[0].error is not None)
            # It may be set with the next start of the server: until then it is tried again.
            assert one.state == "pending"
            assert "set WEFT_SECRET_HOOK" in str(one.error)
        monkeypatch.setenv("WEFT_SECRET_HOOK", receiver.url)
        async with server(tmp_path, http_allow=("127.0.0.1",)) as engine:
            (one,) = await until(engine, execution_id, all_ended)
    assert (one.state, one.url) == ("delivered", url)
    assert [request.target for request in receiver.received] == ["/hidden/path"]


async def test_a_program_notifies_nobody(tmp_path: Path) -> None:
    async with (
        asyncio.timeout(20),
        Engine(
            registry=Registry(), settings=Settings(notify=("http://127.0.0.1:1/",)), data=tmp_path
        ) as engine,
    ):
        execution_id = await run(engine, BAD, notify={"url": "https://hooks.example"})
        assert await engine.ports.catalog.notifications(execution_id) == []


def test_the_delays_double_up_to_four_hours_and_the_last_is_about_a_day_later() -> None:
    delays = [delay_seconds(attempts, draw=0.5) for attempts in range(1, MAX_ATTEMPTS)]
    assert delays[:4] == [1, 2, 4, 8]
    assert max(delays) == delays[-1] == 4 * 3600
    assert 23 * 3600 < sum(delays) < 26 * 3600
    assert delay_seconds(1, draw=0.0) == 0.75
    assert delay_seconds(1, draw=0.5) == 1.0
    assert delay_seconds(1, draw=0.0, asked=60.0) == 60.0
    assert delay_seconds(1, draw=0.0, asked=1e9) == 4 * 3600


def test_a_secret_that_is_no_base64_is_refused() -> None:
    from weft.handlers.http.webhook import read_key

    assert read_key("whsec_c2VjcmV0") == b"secret"
    assert read_key("secret") == b"secret"
    with pytest.raises(SettingsError, match="WEFT_NOTIFY_SECRET"):
        read_key("whsec_???")
