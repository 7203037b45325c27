"""Events and webhooks from outside: kept once, and what they start is in the same commit."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest
from tests.api.play import Play, check_problem
from tests.api.test_waits import shown_node, until_waiting, wait
from tests.walks.stage import PATIENCE_SECONDS, echo

from weft.api.load import OverloadedError, RequestLoad
from weft.core.time import MICROSECONDS
from weft.settings import RateLimit

if TYPE_CHECKING:
    from tests.api.conftest import Answer, Serve

SECRET = "correct horse battery staple"
EVENT = {"type": "order.paid", "source": "/shop", "id": "1", "data": {"order": 7, "total": 20}}


async def put(play: Play, name: str = "hook", **trigger: Any) -> None:
    answer = await play.call("PUT", f"/v1/triggers/{name}", json={"workflow": "flow", **trigger})
    assert answer.status in (200, 201), answer.json


async def send(play: Play, **event: Any) -> Answer:
    return await play.post("/v1/events", json={**EVENT, **event})


@pytest.fixture
def secret(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("WEFT_SECRET_HOOK", SECRET)
    return SECRET


# --- Events.


async def test_an_event_starts_every_trigger_that_it_fits(play: Play) -> None:
    await play.store(echo("a", config="{{ input }}"), output="{{ a.output }}")
    by_event = {"order": "{{ event.data.order }}", "from": "{{ event.source }}"}
    await put(play, "a", event={"type": "order.paid"}, input=by_event)
    await put(play, "b", event={"type": "order.paid", "when": "event.data.total > 10"}, input=by_event)
    await put(play, "c", event={"type": "order.paid", "when": "event.data.total > 99"}, input=by_event)
    await put(play, "d", event={"type": "order.lost"}, input=by_event)
    await put(play, "e", event={"type": "order.paid"}, enabled=False)
    answer = await send(play)
    assert (answer.status, answer.json["answered"], len(answer.json["started"])) == (202, [], 2)
    ended = [await play.ended(id_) for id_ in answer.json["started"]]
    assert [(one["trigger"], one["output"]) for one in ended] == [
        ("a", {"order": 7, "from": "/shop"}),
        ("b", {"order": 7, "from": "/shop"}),
    ]


async def test_an_event_answers_the_waits_that_it_matches(play: Play) -> None:
    paid = wait("paid", event="order.paid", match={"order": "{{ input.order }}"})
    await play.store(paid, echo("b", "paid", config="{{ paid }}"))
    ids = [await play.start(input={"order": order}) for order in (7, 7, 8)]
    for id_ in ids:
        await until_waiting(play, id_, "paid")
    answer = await send(play)
    answered = [{"execution": id_, "node": "paid"} for id_ in sorted(ids[:2])]
    assert (answer.status, answer.json) == (202, {"started": [], "answered": answered})
    again = await send(play)
    assert (again.status, again.json) == (200, answer.json)
    for id_ in ids[:2]:
        output = (await play.ended(id_))["nodes"][1]["output"]
        assert (output["value"], output["by"], output["expired"]) == (EVENT["data"], "/shop", False)
    assert (await shown_node(play, ids[2], "paid"))["state"] == "WAITING"
    (item,) = (await play.get("/v1/events/inbound")).json["items"]
    assert item["answered"] == answered


async def test_a_wait_that_looks_back_is_answered_by_an_event_that_came_before(play: Play) -> None:
    answer = await send(play)
    paid = wait("paid", event="order.paid", match={"order": 7}, lookback_seconds=60)
    await play.store(paid, wait("late", event="order.paid", expires_seconds=0, default=1))
    execution_id = await play.start()
    nodes = (await play.ended(execution_id))["nodes"]
    assert [node["output"]["value"] for node in nodes] == [EVENT["data"], 1]
    (item,) = (await play.get("/v1/events/inbound")).json["items"]
    assert item["answered"] == [{"execution": execution_id, "node": "paid"}]
    # What it is answered with stays as it was.
    assert (await send(play)).json == answer.json == {"started": [], "answered": []}


async def test_the_same_event_starts_nothing_again(play: Play) -> None:
    await play.store(echo("a"))
    await put(play, event={"type": "order.paid"})
    answers = await asyncio.gather(*(send(play) for _ in range(5)))
    assert sorted(answer.status for answer in answers) == [200, 200, 200, 200, 202]
    assert len({tuple(answer.json["started"]) for answer in answers}) == 1
    # Other data under the same name is the same event.
    again = await send(play, data={"order": 8})
    assert (again.status, again.json) == (200, answers[0].json)
    assert (await send(play, source="/other")).status == 202
    assert len((await play.get("/v1/executions")).json["items"]) == 2


async def test_an_event_for_nobody_is_kept_and_shown(play: Play) -> None:
    for n in range(3):
        assert (await send(play, id=str(n), type=f"type.{n}")).json == {"started": [], "answered": []}
    page = (await play.get("/v1/events/inbound?limit=2")).json
    assert [one["id"] for one in page["items"]] == ["2", "1"]
    assert page["items"][0].keys() == {
        *("id", "source", "type", "received_at", "event", "started", "answered"),
    }
    assert page["items"][0]["event"] == {**EVENT, "id": "2", "type": "type.2"}
    rest = (await play.get(f"/v1/events/inbound?cursor={page['next_cursor']}")).json
    assert ([one["id"] for one in rest["items"]], rest["next_cursor"]) == (["0"], None)
    of_type = (await play.get("/v1/events/inbound?type=type.1")).json["items"]
    assert [one["id"] for one in of_type] == ["1"]


async def test_an_event_that_a_trigger_cannot_use_is_kept_with_the_trigger_told(play: Play) -> None:
    await play.store(echo("a"))
    await put(play, "bad", event={"type": "order.paid"}, input={"n": "{{ event.data.missing }}"})
    await put(play, "good", event={"type": "order.paid"})
    answer = await send(play)
    assert (answer.status, len(answer.json["started"])) == (202, 1)
    error = (await play.get("/v1/triggers/bad")).json["error"]
    assert error["code"] == "template_error"
    assert "missing" in error["message"]


async def test_cloudevents_come_by_their_own_media_type(play: Play) -> None:
    headers = {"Content-Type": "application/cloudevents+json"}
    body = (
        b'{"specversion":"1.0","type":"t","source":"s","id":"1","data":[1],"comexample":"x",'
        b'"time":"2026-01-31T09:30:00Z"}'
    )
    assert (await play.post("/v1/events", data=body, headers=headers)).status == 202
    headers = {"Content-Type": "application/yaml"}
    check_problem(await play.post("/v1/events", data=body, headers=headers), 415, "unsupported_media_type")


@pytest.mark.parametrize(
    ("event", "pointers"),
    [
        ({}, ["", "", ""]),
        ([], [""]),
        ({**EVENT, "id": ""}, ["/id"]),
        ({**EVENT, "id": 1}, ["/id"]),
        ({**EVENT, "id": "a\0b"}, ["/id"]),
        ({**EVENT, "source": "x" * 2_000}, ["/source"]),
        ({**EVENT, "specversion": "0.3"}, ["/specversion"]),
        ({**EVENT, "time": "yesterday"}, ["/time"]),
        ({**EVENT, "Bad-Name": 1}, ["/Bad-Name"]),
        ({**EVENT, "extension": {}}, ["/extension"]),
        ({**EVENT, "data_base64": 5}, ["/data_base64"]),
    ],
)
async def test_what_is_no_event_is_refused(play: Play, event: Any, pointers: list[str]) -> None:
    check_problem(await play.post("/v1/events", json=event), 422, "invalid_request", *pointers)
    assert (await play.get("/v1/events/inbound")).json["items"] == []


# --- Webhooks.


def github(body: bytes, secret: str = SECRET) -> dict[str, str]:
    return {"X-Hub-Signature-256": "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()}


def stripe(body: bytes, at: int, secret: str = SECRET) -> dict[str, str]:
    digest = hmac.new(secret.encode(), f"{at}.".encode() + body, hashlib.sha256).hexdigest()
    return {"Stripe-Signature": f"t={at},v1={'0' * 64},v1={digest},v0=x"}


async def test_a_token_starts_with_body_headers_and_query(play: Play, secret: str) -> None:
    await play.store(echo("a", config="{{ input }}"), output="{{ a.output }}")
    await put(play, webhook={"secret": "HOOK"}, input={"request": "{{ request }}"})
    answer = await play.post(
        "/v1/hooks/hook?a=1&b=2&b=3",
        data=b'{"ref": "main"}',
        headers={"Authorization": f"Bearer {secret}", "X-Event": "push"},
    )
    assert answer.status == 202, answer.json
    (execution,) = answer.json["started"]
    request = (await play.ended(execution))["output"]["request"]
    assert (request["body"], request["query"]) == ({"ref": "main"}, {"a": "1", "b": ["2", "3"]})
    assert request["headers"]["x-event"] == "push"
    # What proves the sender is kept nowhere.
    assert secret not in str(request)
    for header in ("X-Weft-Token", "X-Gitlab-Token"):
        assert (await play.post("/v1/hooks/hook", headers={header: secret})).status == 202


@pytest.mark.parametrize(
    ("body", "content"),
    [
        (b"[1, 2]", {"body": [1, 2]}),
        (b"plain text", {"body": "plain text"}),
        (b"", {"body": ""}),
        (b"\xff\x00", {"body": "/wA=", "body_encoding": "base64"}),
    ],
)
async def test_any_body_is_taken(play: Play, secret: str, body: bytes, content: dict[str, Any]) -> None:
    await play.store(echo("a", config="{{ input }}"), output="{{ a.output }}")
    seen = {"body": "{{ request.body }}", "encoding": "{{ request.body_encoding | default('none') }}"}
    await put(play, webhook={"secret": "HOOK", "scheme": "github"}, input=seen)
    answer = await play.post("/v1/hooks/hook", data=body, headers=github(body))
    (execution,) = answer.json["started"]
    expected = {"body": content["body"], "encoding": content.get("body_encoding", "none")}
    assert (await play.ended(execution))["output"] == expected


async def test_a_wrong_signature_starts_nothing(play: Play, secret: str) -> None:
    await play.store(echo("a"))
    for scheme in ("token", "github", "stripe"):
        await put(play, scheme, webhook={"secret": "HOOK", "scheme": scheme})
    now = play.server.engine.ports.clock.now() // MICROSECONDS
    body = b'{"a": 1}'
    wrong: list[tuple[str, dict[str, str]]] = [
        ("token", {}),
        ("token", {"X-Weft-Token": "wrong"}),
        ("token", {"Authorization": f"Basic {secret}"}),
        ("github", {}),
        ("github", github(body + b" ")),
        ("github", github(body, "wrong")),
        ("github", {"X-Hub-Signature-256": "sha256="}),
        ("github", {"X-Weft-Token": secret}),
        ("stripe", {}),
        ("stripe", stripe(body, now, "wrong")),
        ("stripe", stripe(b"other", now)),
        # Good once, and sent again too late; or from a future that nobody has seen.
        ("stripe", stripe(body, now - 301)),
        ("stripe", stripe(body, now + 400)),
        ("stripe", {"Stripe-Signature": "t=soon,v1=00"}),
    ]
    for scheme, headers in wrong:
        refused = await play.post(f"/v1/hooks/{scheme}", data=body, headers=headers)
        check_problem(refused, 401, "unauthenticated")
    assert (await play.get("/v1/executions")).json["items"] == []
    assert (await play.post("/v1/hooks/github", data=body, headers=github(body))).status == 202
    assert (await play.post("/v1/hooks/stripe", data=body, headers=stripe(body, now - 200))).status == 202


async def test_an_unknown_or_disabled_hook_is_not_found(play: Play, secret: str) -> None:
    await play.store(echo("a"))
    headers = {"X-Weft-Token": secret}
    await put(play, "off", webhook={"secret": "HOOK"}, enabled=False)
    await put(play, "clock", schedule={"cron": "0 3 * * *"})
    for name in ("off", "clock", "nobody", "No%20Name"):
        check_problem(await play.post(f"/v1/hooks/{name}", headers=headers), 404, "not_found")
    assert (await play.get("/v1/executions")).json["items"] == []


async def test_an_empty_secret_lets_nobody_in(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_SECRET_HOOK", SECRET)
    await play.store(echo("a"))
    await put(play, webhook={"secret": "HOOK"})
    monkeypatch.setenv("WEFT_SECRET_HOOK", "")
    refused = await play.post("/v1/hooks/hook", headers={"X-Weft-Token": ""})
    check_problem(refused, 401, "unauthenticated")


async def test_a_hook_needs_no_key_and_nothing_else_is_open(serve: Serve, secret: str) -> None:
    async with serve(api_keys=("a-key-of-this-server",)) as server:
        key = {"Authorization": "Bearer a-key-of-this-server"}
        await server.post("/v1/workflows", json={"name": "flow", "nodes": [echo("a")]}, headers=key)
        trigger = {"workflow": "flow", "webhook": {"secret": "HOOK"}}
        await server.call("PUT", "/v1/triggers/hook", json=trigger, headers=key)
        answer = await server.post("/v1/hooks/hook", headers={"X-Weft-Token": secret})
        assert answer.status == 202
        refused = await server.post("/v1/hooks/hook", headers=key)
        check_problem(refused, 401, "unauthenticated")
        for method, path in (("GET", "/v1/hooks/hook"), ("POST", "/v1/hooks/a/b"), ("POST", "/v1/events")):
            check_problem(await server.call(method, path), 401, "unauthenticated")


@pytest.mark.parametrize(
    ("scheme", "headers"),
    [
        ("token", {"X-Weft-Token": "a guess"}),
        ("github", {"X-Hub-Signature-256": "sha256=1"}),
        ("stripe", {"Stripe-Signature": f"t=1,v1={'0' * 64}"}),
    ],
)
async def test_a_body_whose_head_is_not_signed_is_not_read(
    play: Play, secret: str, scheme: str, headers: dict[str, str]
) -> None:
    await play.store(echo("a"))
    await put(play, webhook={"secret": "HOOK", "scheme": scheme})
    lines = [f"{name}: {value}" for name, value in headers.items()]
    host, port = play.server.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    head = ["POST /v1/hooks/hook HTTP/1.1", "Host: localhost", "Content-Length: 1000000", *lines, "", ""]
    writer.write("\r\n".join(head).encode())
    async with asyncio.timeout(PATIENCE_SECONDS):
        assert b" 401 " in await reader.readline()
    writer.close()


async def test_hooks_that_send_slowly_leave_room_for_health(
    serve: Serve, secret: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of two hundred addresses has a body on its way, and none of them had a key."""
    addresses = iter(f"192.0.{number // 250}.{number % 250}" for number in range(1000))
    monkeypatch.setattr("weft.api.gateway._address", lambda scope: next(addresses))
    async with serve() as server, AsyncExitStack() as opened:
        await server.post("/v1/workflows", json={"name": "flow", "nodes": [echo("a")]})
        trigger = {"workflow": "flow", "webhook": {"secret": "HOOK", "scheme": "github"}}
        assert (await server.call("PUT", "/v1/triggers/hook", json=trigger)).status == 201
        signature = f"X-Hub-Signature-256: sha256={'0' * 64}"
        head = ["POST /v1/hooks/hook HTTP/1.1", "Host: localhost", "Content-Length: 9", signature, "", ""]
        host, port = server.url.removeprefix("http://").split(":")
        for _ in range(200):
            _, writer = await asyncio.open_connection(host, int(port))
            opened.callback(writer.close)
            writer.write("\r\n".join(head).encode())
        async with asyncio.timeout(PATIENCE_SECONDS):
            while server.service.load.unproven.in_use < 200:  # noqa: ASYNC110 - there is no event for it
                await asyncio.sleep(0.01)
        assert (await server.post("/v1/hooks/hook")).status == 503
        assert (await server.get("/healthz")).status == 200
        assert (await server.get("/v1/triggers")).status == 200


async def test_bodies_that_nobody_vouches_for_have_a_bound_of_their_own(serve: Serve) -> None:
    async with serve() as server:
        load = server.service.load
        first, second = (RequestLoad(load, name, is_open=True, is_unproven=True) for name in ("a", "b"))
        known = RequestLoad(load, "c")
        first.hold(30 * 2**20)
        with pytest.raises(OverloadedError):
            second.hold(40 * 2**20)
        known.hold(100 * 2**20)


async def test_what_is_no_header_of_the_sender_is_not_shown_to_templates(play: Play, secret: str) -> None:
    await play.store(echo("a", config="{{ input }}"), output="{{ a.output }}")
    await put(
        play, webhook={"secret": "HOOK", "scheme": "github"}, input={"headers": "{{ request.headers }}"}
    )
    sent = {**github(b"{}"), "X-Hub-Signature": "sha1=1", "X-Api-Key": "k", "Cookie": "c", "X-Event": "push"}
    answer = await play.post("/v1/hooks/hook", data=b"{}", headers=sent)
    shown = (await play.ended(answer.json["started"][0]))["output"]["headers"]
    assert shown["x-event"] == "push"
    assert not {"x-hub-signature", "x-hub-signature-256", "x-api-key", "cookie", "authorization"} & set(shown)


async def test_an_event_gives_no_more_to_its_triggers_than_a_body_may_have(serve: Serve) -> None:
    async with serve(max_body_bytes=2 * 2**20) as server:
        await server.post("/v1/workflows", json={"name": "flow", "nodes": [echo("a")]})
        for number in range(5):
            trigger = {"workflow": "flow", "event": {"type": "order.paid"}, "input": {"e": "{{ event }}"}}
            assert (await server.call("PUT", f"/v1/triggers/t{number}", json=trigger)).status == 201
        answer = await server.post("/v1/events", json={**EVENT, "data": "a" * 500_000})
        check_problem(answer, 422, "invalid_request", "")
        assert (await server.get("/v1/executions")).json["items"] == []
        assert (await server.get("/v1/events/inbound")).json["items"] == []


async def test_a_page_of_large_events_ends_early_and_the_next_goes_on(play: Play) -> None:
    for number in range(12):
        assert (await send(play, id=str(number), data="a" * 1_000_000)).status == 202
    found, path = [], "/v1/events/inbound?limit=500"
    while path:
        page = (await play.get(path)).json
        assert 0 < len(page["items"]) <= 3
        found += [item["id"] for item in page["items"]]
        path = page["next_cursor"] and f"/v1/events/inbound?limit=500&cursor={page['next_cursor']}"
    assert found == [str(number) for number in reversed(range(12))]


async def test_a_hook_is_called_by_any_name_of_the_server(play: Play, secret: str) -> None:
    await play.store(echo("a"))
    await put(play, webhook={"secret": "HOOK"})
    headers = {"Host": "hooks.example.org", "X-Weft-Token": secret}
    assert (await play.post("/v1/hooks/hook", headers=headers)).status == 202
    check_problem(await play.get("/v1/triggers", headers={"Host": "hooks.example.org"}), 403, "forbidden")


async def test_events_and_hooks_have_a_limit_of_their_own(
    serve: Serve, secret: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weft.api.gateway.peer_of", lambda scope: "192.0.2.7")
    limits = {"event_rate_limit": RateLimit(3, 60.0), "api_rate_limit": RateLimit(9, 60.0)}
    async with serve(**limits) as server:
        statuses = [(await server.post("/v1/events", json={**EVENT, "id": str(n)})).status for n in range(5)]
        assert statuses == [202, 202, 202, 429, 429]
        statuses = [(await server.post("/v1/hooks/nobody")).status for _ in range(5)]
        assert statuses == [404, 404, 404, 429, 429]
        # Neither has used up what other calls may ask.
        assert [(await server.get("/v1/triggers")).status for _ in range(10)] == [200] * 9 + [429]


async def test_events_are_kept_for_their_retention(serve: Serve) -> None:
    async with serve(event_retention_seconds=0.2) as server:
        assert (await server.post("/v1/events", json=EVENT)).status == 202
        async with asyncio.timeout(PATIENCE_SECONDS):
            while (await server.get("/v1/events/inbound")).json["items"]:
                pass
        # It is another event by now.
        assert (await server.post("/v1/events", json=EVENT)).status == 202
