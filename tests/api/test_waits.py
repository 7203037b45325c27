"""Nodes that wait: answers, signals and the list of what waits, over REST on each journal."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from tests.api.play import QUICK, Play, check_problem, node_counts
from tests.walks.stage import PATIENCE_SECONDS, echo, node

from weft.api.auth import fingerprint

if TYPE_CHECKING:
    from tests.api.conftest import Answer, Serve
    from tests.walks.stage import Stage

    from weft.core.payload import Json

SOON_SECONDS = 0.05
LATER_SECONDS = 3600
KEY = "secret-key-of-somebody"
CHOICE = {"enum": ["approve", "reject"]}


def wait(node_id: str, *dependencies: str, condition: str | None = None, **config: Json) -> dict[str, Json]:
    fields = {} if condition is None else {"condition": condition}
    return node(node_id, *dependencies, handler="wait", config=config, **fields)


async def waiting(play: Play, *nodes: Json, **fields: Json) -> str:
    """Start an execution of these nodes; return its id once every node waits that depends on none."""
    await play.store(*nodes, **fields)
    execution_id = await play.start()
    for each in nodes:
        if each["handler"] == "wait" and not each.get("dependencies"):
            await until_waiting(play, execution_id, each["id"])
    return execution_id


async def until_waiting(play: Play, execution_id: str, node_id: str) -> dict[str, Any]:
    """Return a node once it waits."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while (shown := await shown_node(play, execution_id, node_id))["state"] != "WAITING":
            pass
    return shown


async def shown_node(play: Play, execution_id: str, node_id: str) -> dict[str, Any]:
    return dict((await play.get(f"/v1/executions/{execution_id}/nodes/{node_id}")).json)


async def answer(play: Play, execution_id: str, node_id: str, value: Json, **kwargs: Any) -> Answer:
    path = f"/v1/executions/{execution_id}/nodes/{node_id}/answer"
    return await play.post(path, json={"value": value}, **kwargs)


async def send(play: Play, execution_id: str, name: str, value: Json, **kwargs: Any) -> Answer:
    return await play.post(f"/v1/executions/{execution_id}/signals/{name}", json={"value": value}, **kwargs)


async def events(play: Play, execution_id: str, *types: str) -> list[dict[str, Any]]:
    """Return the events of these types, in order."""
    listed = (await play.get(f"/v1/executions/{execution_id}/events?limit=200")).json["items"]
    return [event for event in listed if event["type"] in types]


class TestAnswer:
    async def test_an_answer_completes_the_node_and_what_follows_reads_it(self, play: Play) -> None:
        execution_id = await waiting(play, wait("a"), echo("b", "a", config="{{ a.value.word }}"))
        answered = await answer(play, execution_id, "a", {"word": "yes"})
        assert (answered.status, answered.json["state"]) == (202, "COMPLETED")
        ended = await play.ended(execution_id)
        a, b = ended["nodes"]
        assert a["output"] == {
            "value": {"word": "yes"},
            "by": None,
            "at": a["output"]["at"],
            "expired": False,
        }
        assert (a["attempt"], a["worker"], a["queued_at"]) == (1, None, a["started_at"])
        assert (ended["state"], b["output"]) == ("COMPLETED", "yes")

    async def test_the_first_answer_counts(self, play: Play) -> None:
        execution_id = await waiting(play, wait("a"))
        answers = await asyncio.gather(*(answer(play, execution_id, "a", number) for number in range(5)))
        (won,) = [each for each in answers if each.status == 202]
        for each in answers:
            if each is not won:
                check_problem(each, 409, "not_allowed")
        (shown,) = (await play.ended(execution_id))["nodes"]
        assert shown["output"]["value"] == answers.index(won)

    async def test_a_value_that_does_not_fit_is_refused_and_the_node_waits_on(self, play: Play) -> None:
        schema = {"type": "object", "properties": {"verdict": CHOICE}}
        execution_id = await waiting(play, wait("a", schema=schema))
        refused = await answer(play, execution_id, "a", {"verdict": "maybe"})
        check_problem(refused, 422, "invalid_input", "/value/verdict")
        check_problem(await answer(play, execution_id, "a", "approve"), 422, "invalid_input", "/value")
        assert (await answer(play, execution_id, "a", {"verdict": "reject"})).status == 202

    async def test_what_is_unknown_is_not_found(self, play: Play) -> None:
        execution_id = await waiting(play, wait("a"))
        check_problem(await answer(play, execution_id, "nobody", 1), 404, "not_found")
        check_problem(await answer(play, "nobody", "a", 1), 404, "not_found")
        check_problem(await send(play, "nobody", "a", 1), 404, "not_found")

    @pytest.mark.parametrize("config", [{"seconds": LATER_SECONDS}, {"event": "paid"}])
    async def test_what_waits_for_no_signal_takes_no_answer(self, play: Play, config: Json) -> None:
        execution_id = await waiting(play, wait("a", **config))
        check_problem(await answer(play, execution_id, "a", 1), 409, "not_allowed")
        assert (await send(play, execution_id, "a", 1)).json == {"answered": None}
        assert (await shown_node(play, execution_id, "a"))["state"] == "WAITING"

    async def test_a_node_that_is_not_ready_takes_no_answer(self, play: Play) -> None:
        await play.store(node("held"), wait("a", "held"))
        execution_id = await play.start()
        call = await play.stage.call("held")
        check_problem(await answer(play, execution_id, "a", 1), 409, "not_allowed")
        check_problem(await answer(play, execution_id, "held", 1), 409, "not_allowed")
        call.complete()
        await until_waiting(play, execution_id, "a")
        assert (await answer(play, execution_id, "a", 1)).status == 202

    @pytest.mark.parametrize("body", [{}, {"values": 1}, {"value": 1, "by": "me"}])
    async def test_a_body_is_a_value_and_nothing_else(self, play: Play, body: Json) -> None:
        execution_id = await waiting(play, wait("a"))
        for path in ("nodes/a/answer", "signals/a"):
            refused = await play.post(f"/v1/executions/{execution_id}/{path}", json=body)
            check_problem(refused, 422, "invalid_request")

    async def test_the_same_request_with_the_same_key_answers_once(self, play: Play) -> None:
        execution_id = await waiting(play, wait("a"))
        key = {"Idempotency-Key": "approval-7"}
        first = await answer(play, execution_id, "a", "yes", headers=key)
        second = await answer(play, execution_id, "a", "yes", headers=key)
        assert (first.status, second.status) == (202, 202)
        assert second.json["output"] == first.json["output"]
        check_problem(await answer(play, execution_id, "a", "no", headers=key), 409, "idempotency_conflict")
        assert len(await events(play, execution_id, "signal.received")) == 1

    async def test_a_paused_execution_is_answered_and_goes_on_with_the_resume(self, play: Play) -> None:
        execution_id = await waiting(play, wait("a"), echo("b", "a"))
        await play.control(execution_id, "pause")
        assert (await answer(play, execution_id, "a", 1)).json["state"] == "COMPLETED"
        paused = await play.show(execution_id)
        assert [each["state"] for each in paused["nodes"]] == ["COMPLETED", "PENDING"]
        await play.control(execution_id, "resume")
        assert (await play.ended(execution_id))["state"] == "COMPLETED"

    async def test_a_cancelled_wait_takes_nothing_any_more(self, play: Play) -> None:
        execution_id = await waiting(play, wait("a"))
        cancelled = await play.control(execution_id, "cancel")
        assert cancelled.json["counts"] == node_counts(CANCELLED=1)
        check_problem(await answer(play, execution_id, "a", 1), 409, "not_allowed")
        refused = await send(play, execution_id, "a", 1)
        check_problem(refused, 409, "not_allowed")
        assert refused.json["state"] == "CANCELLED"
        assert (await play.get("/v1/waits")).json["items"] == []

    async def test_a_retry_keeps_the_answers_that_were_given(self, play: Play) -> None:
        execution_id = await waiting(play, wait("a"), node("b", "a", max_retries=0), wait("c", "b"))
        await answer(play, execution_id, "a", "yes")
        (await play.stage.call("b")).fail()
        await play.until(execution_id, "FAILED")
        await play.control(execution_id, "retry")
        (await play.stage.call("b")).complete()
        shown = await until_waiting(play, execution_id, "c")
        assert (shown["attempt"], shown["generation"]) == (1, 2)
        await answer(play, execution_id, "c", "done")
        a, _, c = (await play.ended(execution_id))["nodes"]
        assert (a["attempt"], a["output"]["value"], c["output"]["value"]) == (1, "yes", "done")

    async def test_the_output_and_the_history_name_whoever_answered(self, serve: Serve, stage: Stage) -> None:
        async with serve(data=None, api_keys=(KEY,), **QUICK) as server:
            play = Play(server, stage)
            server.session.headers["Authorization"] = f"Bearer {KEY}"
            execution_id = await waiting(play, wait("a"))
            await answer(play, execution_id, "a", "yes")
            (shown,) = (await play.ended(execution_id))["nodes"]
            assert shown["output"]["by"] == fingerprint(KEY)
            (received,) = await events(play, execution_id, "signal.received")
            assert received["actor"] == fingerprint(KEY)


class TestSignal:
    async def test_it_answers_the_node_that_has_waited_longest(self, play: Play) -> None:
        nodes = [node("held"), wait("late", "held", signal="go"), wait("early", signal="go")]
        execution_id = await waiting(play, *nodes)
        (await play.stage.call("held")).complete()
        await until_waiting(play, execution_id, "late")
        assert [(await send(play, execution_id, "go", number)).json["answered"] for number in (1, 2)] == [
            "early",
            "late",
        ]
        ended = await play.ended(execution_id)
        assert [each["output"]["value"] for each in ended["nodes"][1:]] == [2, 1]

    async def test_one_that_comes_early_is_kept_and_read_in_its_turn(self, play: Play) -> None:
        await play.store(node("held"), wait("a", "held", signal="go"), wait("b", "a", signal="go"))
        execution_id = await play.start()
        for number in (1, 2):
            kept = await send(play, execution_id, "go", number)
            assert (kept.status, kept.json) == (202, {"answered": None})
        (await play.stage.call("held")).complete()
        ended = await play.ended(execution_id)
        assert [each["output"]["value"] for each in ended["nodes"][1:]] == [1, 2]

    async def test_a_kept_one_that_does_not_fit_is_dropped(self, play: Play) -> None:
        await play.store(node("held"), wait("a", "held", schema=CHOICE))
        execution_id = await play.start()
        for value in ("maybe", "approve"):
            assert (await send(play, execution_id, "a", value)).json == {"answered": None}
        (await play.stage.call("held")).complete()
        assert (await play.ended(execution_id))["nodes"][1]["output"]["value"] == "approve"
        (dropped,) = await events(play, execution_id, "signal.discarded")
        assert (dropped["node"], dropped["signal"]) == ("a", "a")

    async def test_one_that_does_not_fit_the_open_wait_is_refused(self, play: Play) -> None:
        execution_id = await waiting(play, wait("a", schema=CHOICE))
        check_problem(await send(play, execution_id, "a", "maybe"), 422, "invalid_input", "/value")
        assert (await send(play, execution_id, "a", "approve")).json == {"answered": "a"}

    async def test_a_full_mailbox_takes_no_more(self, play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("weft.core.ledger.waits.MAILBOX_SIGNALS", 2)
        execution_id = await waiting(play, wait("a"))
        for _ in range(2):
            assert (await send(play, execution_id, "other", 1)).status == 202
        full = await send(play, execution_id, "other", 1)
        check_problem(full, 409, "mailbox_full")
        assert (await send(play, execution_id, "a", 1)).json == {"answered": "a"}

    async def test_the_same_request_with_the_same_key_counts_once(self, play: Play) -> None:
        execution_id = await waiting(play, wait("a"), wait("b", "a", signal="a"))
        key = {"Idempotency-Key": "once"}
        for _ in range(2):
            sent = await send(play, execution_id, "a", 1, headers=key)
            assert (sent.status, sent.json) == (202, {"answered": "a"})
        await until_waiting(play, execution_id, "b")
        kept = {"Idempotency-Key": "kept"}
        for _ in range(2):
            assert (await send(play, execution_id, "later", 1, headers=kept)).json == {"answered": None}
        received = await events(play, execution_id, "signal.received")
        assert [(each.get("node"), each["signal"]) for each in received] == [("a", "a"), (None, "later")]

    async def test_a_name_has_a_form(self, play: Play) -> None:
        execution_id = await waiting(play, wait("a"))
        check_problem(await send(play, execution_id, "a%20b", 1), 422, "invalid_request", "/name")


class TestTime:
    async def test_a_timer_ends_at_its_time(self, play: Play) -> None:
        await play.store(wait("a", seconds=SOON_SECONDS), echo("b", "a"))
        a, b = (await play.ended(await play.start()))["nodes"]
        assert a["output"] == {"value": None, "by": None, "at": a["output"]["at"], "expired": False}
        assert (a["attempt"], a["worker"], b["state"]) == (1, None, "COMPLETED")
        assert a["started_at"] < a["output"]["at"] <= a["finished_at"]

    async def test_a_time_that_has_passed_is_due_at_once(self, play: Play) -> None:
        await play.store(wait("a", until="2020-01-01T00:00:00Z"))
        (shown,) = (await play.ended(await play.start()))["nodes"]
        assert shown["output"]["at"] == "2020-01-01T00:00:00.000000Z"

    async def test_the_default_answers_at_expiry(self, play: Play) -> None:
        await play.store(wait("a", expires_seconds=SOON_SECONDS, default="reject", schema=CHOICE))
        (shown,) = (await play.ended(await play.start()))["nodes"]
        output = shown["output"]
        assert (output["value"], output["by"], output["expired"]) == ("reject", None, True)

    async def test_without_a_default_an_expiry_fails_the_node_and_a_retry_counts_anew(
        self, play: Play
    ) -> None:
        await play.store(wait("a", expires_seconds=SOON_SECONDS))
        execution_id = await play.start()
        ended = await play.ended(execution_id)
        assert (ended["state"], ended["nodes"][0]["error"]["code"]) == ("FAILED", "expired")
        (letter,) = (await play.get("/v1/dead-letters")).json["items"]
        assert (letter["node"], letter["error"]["code"]) == ("a", "expired")
        await play.control(execution_id, "retry")
        (shown,) = (await play.ended(execution_id))["nodes"]
        assert (shown["attempt"], shown["error"]["code"]) == (2, "expired")

    async def test_a_timer_goes_on_while_the_execution_is_paused(self, play: Play) -> None:
        execution_id = await waiting(play, wait("a", seconds=0.5), echo("b", "a"))
        await play.control(execution_id, "pause")
        async with asyncio.timeout(PATIENCE_SECONDS):
            while (await shown_node(play, execution_id, "a"))["state"] == "WAITING":
                pass
        assert [each["state"] for each in (await play.show(execution_id))["nodes"]] == [
            "COMPLETED",
            "PENDING",
        ]

    async def test_a_filled_config_that_cannot_be_fails_the_node(self, play: Play) -> None:
        await play.store(wait("a", seconds="{{ 'soon' }}"))
        ended = await play.ended(await play.start())
        (shown,) = ended["nodes"]
        assert (shown["error"]["code"], shown["attempt"]) == ("bad_config", 0)
        assert "/seconds" in shown["error"]["message"]


class TestShown:
    async def test_the_list_is_filtered_and_read_in_pages(self, play: Play) -> None:
        nodes = [wait("a", prompt="Apply {{ 1 + 2 }}?", schema=CHOICE, expires_seconds=LATER_SECONDS)]
        one = await waiting(play, *nodes, wait("b", signal="go"), wait("t", seconds=LATER_SECONDS))
        await play.store(wait("a"), name="other")
        other = await play.start("other")
        await until_waiting(play, other, "a")

        async def listed(query: str = "") -> list[tuple[str, str]]:
            items = (await play.get(f"/v1/waits{query}")).json["items"]
            return [(each["execution"], each["node"]) for each in items]

        assert sorted(await listed()) == sorted([(one, "a"), (one, "b"), (other, "a")])
        assert await listed("?workflow=other") == [(other, "a")]
        assert await listed(f"?execution={one}&signal=go") == [(one, "b")]
        assert sorted(await listed("?signal=a")) == sorted([(one, "a"), (other, "a")])
        (shown,) = (await play.get(f"/v1/waits?execution={one}&signal=a")).json["items"]
        assert (shown["prompt"], shown["schema"], shown["workflow"]) == ("Apply 3?", CHOICE, "flow")
        assert shown["since"] < shown["expires_at"]
        paged, cursor = [], ""
        for _ in range(3):
            page = (await play.get(f"/v1/waits?limit=1{cursor}")).json
            paged += [(each["execution"], each["node"]) for each in page["items"]]
            cursor = f"&cursor={page['next_cursor']}"
        assert page["next_cursor"] is None
        assert paged == await listed()
        await answer(play, one, "a", "approve")
        assert (one, "a") not in await listed()

    async def test_bad_queries_are_refused(self, play: Play) -> None:
        for query in ("limit=0", "cursor=nonsense", "node=a"):
            assert (await play.get(f"/v1/waits?{query}")).status == 422, query

    async def test_an_execution_counts_what_waits(self, play: Play) -> None:
        execution_id = await waiting(play, wait("a"), wait("b", seconds=LATER_SECONDS), echo("c", "a"))
        shown = await play.show(execution_id)
        assert (shown["state"], shown["counts"]) == ("RUNNING", node_counts(WAITING=2, PENDING=1))
        a, b, _ = shown["nodes"]
        assert (a["due_at"], a["worker"], a["attempt"]) == (None, None, 1)
        assert b["due_at"] > b["started_at"]
        listed = await play.get(f"/v1/executions/{execution_id}/nodes?state=WAITING")
        assert [each["id"] for each in listed.json["items"]] == ["a", "b"]

    @pytest.mark.parametrize(
        ("config", "code", "is_due"),
        [
            ({"seconds": LATER_SECONDS}, "waiting_for_time", True),
            ({}, "waiting_for_signal", False),
            ({"expires_seconds": LATER_SECONDS}, "waiting_for_signal", True),
            ({"event": "paid", "match": {"order": 7}}, "waiting_for_event", False),
        ],
    )
    async def test_explain_says_what_a_node_waits_for(
        self, play: Play, config: Json, code: str, is_due: bool
    ) -> None:
        execution_id = await waiting(play, wait("a", **config))
        for _ in range(2):
            explained = (await play.get(f"/v1/executions/{execution_id}/nodes/a/explain")).json
            (reason,) = explained["reasons"]
            assert (explained["state"], reason["code"]) == ("WAITING", code)
            assert ("until" in reason and reason["until"] is not None) == is_due
            await play.control(execution_id, "pause")

    async def test_the_history_tells_of_waits_and_signals(self, play: Play) -> None:
        execution_id = await waiting(play, wait("a", signal="go", expires_seconds=LATER_SECONDS))
        await send(play, execution_id, "go", 1)
        await play.ended(execution_id)
        begun, received, completed = await events(
            play, execution_id, "node.waiting", "signal.received", "node.completed"
        )
        assert (begun["type"], begun["node"], begun["state"]) == ("node.waiting", "a", "WAITING")
        assert begun["started_at"] < begun["due_at"]
        assert "signal" not in begun
        assert (received["type"], received["node"], received["signal"]) == ("signal.received", "a", "go")
        assert (completed["node"], completed["attempt"]) == ("a", 1)


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"config": {"seconds": -1}}, "/config/seconds"),
        ({"config": {"seconds": 1, "until": "2030-01-01T00:00:00Z"}}, "/config/until"),
        ({"config": {"schema": {"type": "nothing"}}}, "/config/schema/type"),
        ({"config": {"default": 1}}, "/config/default"),
        ({"config": {}, "timeout_seconds": 5}, "/timeout_seconds"),
    ],
)
async def test_a_bad_wait_is_refused_with_its_place(play: Play, fields: Json, pointer: str) -> None:
    body = {"name": "flow", "nodes": [{"id": "a", "handler": "wait", **fields}]}
    refused = await play.post("/v1/workflows", json=body)
    check_problem(refused, 422, "invalid_definition", f"/nodes/0{pointer}")
