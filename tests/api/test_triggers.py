"""Triggers over REST: stored whole or not at all, and executions start by them."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from tests.api.play import QUICK, Play, check_problem
from tests.walks.stage import PATIENCE_SECONDS, Stage, echo, node

from weft.core.time import parse_rfc3339

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.api.conftest import Answer, Serve

NIGHTLY = {"workflow": "flow", "schedule": {"cron": "0 3 * * *", "timezone": "Europe/Berlin"}}
EVERY_SECOND = {"workflow": "flow", "schedule": {"every_seconds": 1}}
# Some 100,000 steps of an evaluation, in a few hundred characters.
COSTLY = f"('{'a' * 300}'" + "|replace('a','aa')" * 9 + "|replace('aa','a'))|length"
# More than what a trigger may have with expressions.
LONG = "a" * 16 * 1024
LONG_TEMPLATE = f"{{{{ trigger.due_at }}}} {LONG}"
TRIGGER = {
    *("name", "workflow", "version", "enabled", "input", "labels", "priority", "overlap", "created_at"),
    *("changed_at", "next_at", "skipped", "skipped_at", "error"),
}


async def put(play: Play, trigger: Any, name: str = "nightly", *, status: int = 201) -> dict[str, Any]:
    answer = await play.call("PUT", f"/v1/triggers/{name}", json=trigger)
    assert answer.status == status, answer.json
    return dict(answer.json)


async def shown(play: Play, name: str = "nightly") -> dict[str, Any]:
    answer = await play.get(f"/v1/triggers/{name}")
    assert answer.status == 200, answer.json
    return dict(answer.json)


async def until(play: Play, is_so: Callable[[dict[str, Any]], bool], name: str = "nightly") -> dict[str, Any]:
    """Look at a trigger until something is so."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not is_so(found := await shown(play, name)):
            pass
        return found


async def fire(play: Play, name: str = "nightly", **kwargs: Any) -> Answer:
    return await play.post(f"/v1/triggers/{name}/fire", **kwargs)


async def test_a_schedule_starts_executions_at_its_due_times(play: Play) -> None:
    await play.store(echo("a", config="{{ input.day }}"), output="{{ a.output }}")
    await put(play, {**EVERY_SECOND, "input": {"day": "{{ trigger.due_at }}"}, "labels": {"by": "clock"}})
    found = await until(play, lambda trigger: len(trigger["executions"]) >= 2)
    assert found["error"] is None
    (later, first) = found["executions"][-2:]
    ended = await play.ended(first["id"])
    assert (ended["state"], ended["trigger"], ended["labels"]) == ("COMPLETED", "nightly", {"by": "clock"})
    # The due time is the nominal one, a second behind the change.
    assert ended["output"] > found["changed_at"]
    assert ended["output"] == ended["input"]["day"] <= ended["created_at"] <= later["created_at"]
    events = (await play.get(f"/v1/executions/{first['id']}/events")).json["items"]
    assert events[0]["actor"] == "trigger/nightly"
    listed = (await play.get("/v1/executions?trigger=nightly")).json["items"]
    assert {one["trigger"] for one in listed} == {"nightly"}
    assert (await play.get("/v1/executions?trigger=other")).json["items"] == []


async def test_schedules_start_nothing_while_the_backlog_is_full(
    serve: Serve, stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """They are no other way in: their executions would pile up without a bound."""
    async with serve(max_backlog=2, **QUICK) as server:
        play = Play(server, stage)
        await play.store(node("a", handler="held"), node("b", handler="held"), name="large")
        await play.store(echo("a"))
        large = await play.start("large")
        await put(play, EVERY_SECOND)
        async with asyncio.timeout(PATIENCE_SECONDS):
            while "trigger.delayed" not in caplog.messages:  # noqa: ASYNC110 - there is no event for it
                await asyncio.sleep(0.05)
        assert (await shown(play))["executions"] == []
        await play.control(large, "cancel")
        await until(play, lambda trigger: len(trigger["executions"]) > 0)


async def test_a_trigger_is_shown_as_it_was_stored(play: Play) -> None:
    await play.store(echo("a"))
    stored = await put(play, NIGHTLY)
    assert stored.keys() == TRIGGER | {"schedule"}
    assert stored["schedule"] == {
        "cron": "0 3 * * *",
        "timezone": "Europe/Berlin",
        "catch_up": "latest",
        "jitter_seconds": 0,
    }
    assert stored["next_at"] > stored["created_at"]
    found = await shown(play)
    upcoming = found.pop("upcoming")
    assert found == {**stored, "executions": []}
    # In Berlin there are two changes of clocks a year; a night is a day, or an hour more or less.
    nights = [parse_rfc3339(at) / 3_600_000_000 for at in upcoming]
    assert upcoming[0] == stored["next_at"]
    assert [round(after - before) in (23, 24, 25) for before, after in pairwise(nights)] == [True] * 4
    # Once more changes nothing: neither its due times nor the history of changes.
    again = await put(play, {**NIGHTLY, "name": "nightly"}, status=200)
    assert again == stored
    changes = (await play.get("/v1/changes")).json["items"]
    assert [change["action"] for change in changes] == ["trigger.stored", "workflow.stored"]
    assert (changes[0]["trigger"], changes[0]["actor"]) == ("nightly", "local")
    changed = await put(play, {**NIGHTLY, "priority": "high"}, status=200)
    assert changed["changed_at"] > stored["changed_at"]
    assert changed["created_at"] == stored["created_at"]


async def test_triggers_are_listed_by_name(play: Play) -> None:
    await play.store(echo("a"))
    await play.store(echo("a"), name="other")
    for name in ("b", "a", "c"):
        await put(play, {**NIGHTLY, "workflow": "other" if name == "c" else "flow"}, name)
    first = (await play.get("/v1/triggers?limit=2")).json
    assert [one["name"] for one in first["items"]] == ["a", "b"]
    rest = (await play.get(f"/v1/triggers?limit=2&cursor={first['next_cursor']}")).json
    assert ([one["name"] for one in rest["items"]], rest["next_cursor"]) == (["c"], None)
    of_other = (await play.get("/v1/triggers?workflow=other")).json["items"]
    assert [one["name"] for one in of_other] == ["c"]


async def test_a_disabled_trigger_starts_nothing_and_catches_nothing_up(play: Play) -> None:
    await play.store(echo("a"))
    await put(play, NIGHTLY)
    off = await play.post("/v1/triggers/nightly/disable")
    assert (off.status, off.json["enabled"], off.json["next_at"]) == (200, False, None)
    assert (await play.post("/v1/triggers/nightly/disable")).json == off.json
    on = await play.post("/v1/triggers/nightly/enable")
    assert (on.json["enabled"], on.json["next_at"] is None) == (True, False)
    actions = [change["action"] for change in (await play.get("/v1/changes")).json["items"]]
    assert actions[:2] == ["trigger.enabled", "trigger.disabled"]
    # A start by hand is not its schedule's.
    await play.post("/v1/triggers/nightly/disable")
    assert (await fire(play)).status == 202


async def test_a_deleted_trigger_is_gone_and_its_executions_stay(play: Play) -> None:
    await play.store(echo("a"))
    await put(play, NIGHTLY)
    execution = (await fire(play)).json["id"]
    assert (await play.call("DELETE", "/v1/triggers/nightly")).status == 204
    check_problem(await play.get("/v1/triggers/nightly"), 404, "not_found")
    check_problem(await play.call("DELETE", "/v1/triggers/nightly"), 404, "not_found")
    for verb in ("enable", "disable", "fire"):
        check_problem(await play.post(f"/v1/triggers/nightly/{verb}"), 404, "not_found")
    assert (await play.ended(execution))["trigger"] == "nightly"


async def test_a_start_by_hand_is_one_execution_for_one_key(play: Play) -> None:
    await play.store(echo("a", config="{{ input.order }}"), output="{{ a.output }}")
    await put(
        play, {"workflow": "flow", "event": {"type": "t"}, "input": {"order": "{{ event.data.order }}"}}
    )
    body = {"event": {"data": {"order": 7}}}
    first = await fire(play, json=body, headers={"Idempotency-Key": "k"})
    assert first.status == 202, first.json
    assert first.headers["Location"] == f"/v1/executions/{first.json['id']}"
    again = await fire(play, json=body, headers={"Idempotency-Key": "k"})
    assert (again.status, again.json["id"]) == (200, first.json["id"])
    other = await fire(play, json={"event": {"data": {}}}, headers={"Idempotency-Key": "k"})
    check_problem(other, 409, "idempotency_conflict")
    assert (await play.ended(first.json["id"]))["output"] == 7
    # What the input needs did not come: nothing starts.
    check_problem(await fire(play), 422, "invalid_input")
    assert len((await play.get("/v1/executions")).json["items"]) == 1
    events = (await play.get(f"/v1/executions/{first.json['id']}/events")).json["items"]
    assert events[0]["actor"] == "local"


async def test_what_fails_at_a_due_time_is_kept_on_the_trigger(play: Play) -> None:
    await play.store(echo("a"), input_schema={"required": ["day"]})
    trigger = {**EVERY_SECOND, "input": {"other": "{{ trigger.due_at }}"}}
    await put(play, trigger)
    found = await until(play, lambda trigger: trigger["error"] is not None)
    assert found["error"]["code"] == "invalid_input"
    assert "day" in found["error"]["message"]
    assert found["executions"] == []
    # It goes on, and is as good as new behind a change.
    await play.call("DELETE", "/v1/workflows/flow")
    await until(play, lambda trigger: trigger["error"]["code"] == "not_found")
    await play.store(echo("a"))
    assert (await put(play, {**trigger, "priority": "low"}, status=200))["error"] is None


@pytest.mark.parametrize(
    ("trigger", "pointers"),
    [
        ({**NIGHTLY, "schedule": {"cron": "0 3 * *"}}, ["/schedule/cron"]),
        ({**NIGHTLY, "schedule": {"cron": "61 3 * * *"}}, ["/schedule/cron"]),
        ({**NIGHTLY, "schedule": {"cron": "0 0 30 2 *"}}, ["/schedule/cron"]),
        ({**NIGHTLY, "schedule": {"cron": 5}}, ["/schedule/cron"]),
        ({**NIGHTLY, "schedule": {"cron": "* * * * *", "timezone": "Mars/Base"}}, ["/schedule/timezone"]),
        ({**NIGHTLY, "schedule": {"cron": "* * * * *", "timezone": "../etc"}}, ["/schedule/timezone"]),
        ({**NIGHTLY, "schedule": {"every_seconds": 0.5}}, ["/schedule/every_seconds"]),
        ({**NIGHTLY, "schedule": {"every_seconds": "5"}}, ["/schedule/every_seconds"]),
        ({**NIGHTLY, "schedule": {"every_seconds": 5, "cron": "* * * * *"}}, ["/schedule"]),
        ({**NIGHTLY, "schedule": {}}, ["/schedule"]),
        ({**NIGHTLY, "schedule": {"every_seconds": 5, "catch_up": "some"}}, ["/schedule/catch_up"]),
        ({**NIGHTLY, "schedule": {"every_seconds": 5, "jitter_seconds": -1}}, ["/schedule/jitter_seconds"]),
        ({"workflow": "flow"}, [""]),
        ({**NIGHTLY, "event": {"type": "t"}}, [""]),
        ({"schedule": {"every_seconds": 5}}, [""]),
        ({**NIGHTLY, "workflow": "none"}, ["/workflow"]),
        ({**NIGHTLY, "version": "nobody"}, ["/version"]),
        ({**NIGHTLY, "version": 7}, ["/version"]),
        (
            {**NIGHTLY, "overlap": "maybe", "priority": 3, "enabled": "yes"},
            ["/overlap", "/priority", "/enabled"],
        ),
        ({**NIGHTLY, "name": "other"}, ["/name"]),
        ({**NIGHTLY, "labels": {"A": "b"}}, ["/labels/A"]),
        ({**NIGHTLY, "input": {"a": "{{ event.data }}"}}, ["/input"]),
        ({**NIGHTLY, "input": {"a": "{{ input.b }} {{ execution.id }}"}}, ["/input"]),
        ({**NIGHTLY, "input": {"a": "{{ trigger. }}"}}, ["/input/a"]),
        ({**NIGHTLY, "input": 5}, ["/input"]),
        ({**NIGHTLY, "input": {"n": "x"}}, ["/input/n"]),
        ({**NIGHTLY, "extra": 1}, ["/extra"]),
        ({"workflow": "flow", "event": {}}, ["/event"]),
        ({"workflow": "flow", "event": {"type": "t", "when": "event.data ="}}, ["/event/when"]),
        ({"workflow": "flow", "event": {"type": "t", "when": "request.body"}}, ["/event/when"]),
        ({"workflow": "flow", "webhook": {"secret": "NOT_SET"}}, ["/webhook/secret"]),
        ({"workflow": "flow", "webhook": {"secret": "not a name"}}, ["/webhook/secret"]),
        ({"workflow": "flow", "webhook": {"secret": "A", "scheme": "none"}}, ["/webhook/scheme"]),
        ({**NIGHTLY, "input": {"a": LONG_TEMPLATE}}, ["/input"]),
        ({**NIGHTLY, "input": {LONG_TEMPLATE: "a"}}, ["/input"]),
        ({"workflow": "flow", "event": {"type": "t", "when": f"event.data.a == {LONG!r}"}}, ["/event/when"]),
        ([], [""]),
    ],
)
async def test_a_bad_trigger_is_refused_and_nothing_is_stored(
    play: Play, trigger: Any, pointers: list[str]
) -> None:
    await play.store(echo("a"), input_schema={"properties": {"n": {"type": "integer"}}})
    answer = await play.call("PUT", "/v1/triggers/nightly", json=trigger)
    check_problem(answer, 422, "invalid_request", *pointers)
    assert (await play.get("/v1/triggers")).json["items"] == []


async def test_a_bad_name_is_refused(play: Play) -> None:
    await play.store(echo("a"))
    check_problem(
        await play.call("PUT", "/v1/triggers/Nightly", json=NIGHTLY), 422, "invalid_request", "/name"
    )
    check_problem(await play.get("/v1/triggers/Nightly"), 404, "not_found")


# --- Overlap.


async def test_a_start_is_skipped_while_one_runs(play: Play) -> None:
    await play.store(node("a", handler="held"))
    await put(play, {**NIGHTLY, "overlap": "skip"})
    first = (await fire(play)).json["id"]
    check_problem(await fire(play), 409, "not_allowed")
    found = await shown(play)
    assert (found["skipped"], len(found["executions"])) == (1, 1)
    assert found["skipped_at"] is not None
    await play.control(first, "cancel")
    assert (await fire(play)).status == 202


async def test_starts_wait_for_their_turn(play: Play) -> None:
    await play.store(node("a", handler="held"))
    await put(play, {**NIGHTLY, "overlap": "queue"})
    first, second, third, fourth = [(await fire(play)).json for _ in range(4)]
    assert [one["state"] for one in (first, second, third, fourth)] == [
        "RUNNING",
        "PENDING",
        "PENDING",
        "PENDING",
    ]
    # Neither a pause nor its end lets one start before its turn.
    await play.control(second["id"], "pause")
    await play.control(second["id"], "resume")
    assert (await play.show(second["id"]))["state"] == "PENDING"
    await play.control(third["id"], "cancel")
    await play.control(first["id"], "cancel")
    await play.until(second["id"], "RUNNING")
    assert (await play.show(fourth["id"]))["state"] == "PENDING"
    await play.control(second["id"], "cancel")
    await play.until(fourth["id"], "RUNNING")


async def test_the_end_of_one_starts_the_next(play: Play) -> None:
    await play.store(echo("a", config="{{ execution.id }}"))
    await put(play, {**NIGHTLY, "overlap": "queue"})
    started = [(await fire(play)).json["id"] for _ in range(5)]
    times = [(await play.ended(id_)) for id_ in started]
    assert {one["state"] for one in times} == {"COMPLETED"}
    for before, behind in pairwise(times):
        assert before["finished_at"] <= behind["started_at"]


async def test_a_start_takes_the_place_of_the_one_that_runs(play: Play) -> None:
    await play.store(node("a", handler="held"))
    await put(play, {**NIGHTLY, "overlap": "cancel_running"})
    first = (await fire(play)).json["id"]
    second = await fire(play)
    assert second.status == 202
    assert (await play.show(first))["state"] == "CANCELLED"
    events = (await play.get(f"/v1/executions/{first}/events")).json["items"]
    assert (events[-1]["type"], events[-1]["actor"]) == ("execution.cancelled", "trigger/nightly")
    assert (await play.show(second.json["id"]))["state"] == "RUNNING"


# --- Backfill.

SPAN = {"from": "2026-03-28T00:00:00Z", "to": "2026-03-31T00:00:00Z"}


async def test_a_backfill_is_a_batch_over_the_due_times_of_a_span(play: Play) -> None:
    await play.store(echo("a", config="{{ input.day }}"), output="{{ a.output }}")
    await put(play, {**NIGHTLY, "input": {"day": "{{ trigger.due_at }}"}, "enabled": False})
    # Clocks go forward on the second day.
    days = ["2026-03-28T02:00:00.000000Z", "2026-03-29T01:00:00.000000Z", "2026-03-30T01:00:00.000000Z"]
    plan = await play.post("/v1/triggers/nightly/backfill", json={**SPAN, "dry_run": True})
    assert (plan.status, plan.json) == (200, {"total": 3, "due": days})
    assert (await play.get("/v1/executions")).json["items"] == []
    batch = await play.post("/v1/triggers/nightly/backfill", json=SPAN)
    assert (batch.status, batch.json["total"], batch.json["workflow"]) == (202, 3, "flow")
    async with asyncio.timeout(PATIENCE_SECONDS):
        while (await play.get(f"/v1/batches/{batch.json['id']}")).json["state"] != "COMPLETED":
            pass
    results = (await play.get(f"/v1/batches/{batch.json['id']}/results")).json["items"]
    assert [one["output"] for one in results] == days
    listed = (await play.get("/v1/executions?trigger=nightly")).json["items"]
    assert {one["batch"] for one in listed} == {batch.json["id"]}


async def test_no_more_than_max_running_run_at_once(play: Play) -> None:
    await play.store(node("a", handler="held"))
    await put(play, NIGHTLY)
    batch = (await play.post("/v1/triggers/nightly/backfill", json={**SPAN, "max_running": 2})).json
    assert (batch["counts"]["RUNNING"], batch["counts"]["PENDING"]) == (2, 1)
    results = (await play.get(f"/v1/batches/{batch['id']}/results")).json["items"]
    assert [one["state"] for one in results] == ["RUNNING", "RUNNING", "PENDING"]
    await play.control(results[0]["execution"], "cancel")
    await play.until(results[2]["execution"], "RUNNING")


async def test_a_batch_may_say_how_many_run_at_once(play: Play) -> None:
    await play.store(node("a", handler="held"))
    body = {"workflow": "flow", "inputs": [{}] * 5, "max_running": 1}
    batch = (await play.post("/v1/batches", json=body)).json
    assert (batch["counts"]["RUNNING"], batch["counts"]["PENDING"]) == (1, 4)
    cancelled = await play.post(f"/v1/batches/{batch['id']}/cancel")
    assert cancelled.json["counts"]["CANCELLED"] == 5
    check_problem(
        await play.post("/v1/batches", json={**body, "max_running": 0}),
        422,
        "invalid_request",
        "/max_running",
    )


@pytest.mark.parametrize(
    ("span", "pointers"),
    [
        ({}, ["", ""]),
        ({**SPAN, "from": "yesterday"}, ["/from"]),
        ({**SPAN, "to": SPAN["from"]}, ["/to"]),
        ({**SPAN, "from": "1990-01-01T00:00:00Z", "to": "2200-01-01T00:00:00Z"}, ["/to"]),
        ({"from": "2026-03-28T05:00:00Z", "to": "2026-03-28T06:00:00Z"}, ["/to"]),
        ({**SPAN, "from": "0001-01-01T00:00:00Z"}, ["/from"]),
        ({**SPAN, "to": "9999-12-31T23:59:59Z"}, ["/to"]),
        ({**SPAN, "max_running": 0}, ["/max_running"]),
    ],
)
async def test_a_bad_span_is_refused(play: Play, span: Any, pointers: list[str]) -> None:
    await play.store(echo("a"))
    await put(play, NIGHTLY)
    answer = await play.post("/v1/triggers/nightly/backfill", json=span)
    check_problem(answer, 422, "invalid_request", *pointers)
    assert (await play.get("/v1/batches")).json["items"] == []


@pytest.mark.parametrize(
    ("given", "span_hours"),
    [
        pytest.param(["a" * 15_000, "{{ trigger.due_at }}"], 1, id="bytes"),
        pytest.param([*[0] * 7_000, "{{ trigger.due_at }}"], 1, id="values"),
        pytest.param("{{ " + COSTLY + " }}", 1, id="steps"),
    ],
)
async def test_a_backfill_has_no_larger_inputs_than_a_batch_by_hand(
    play: Play, given: Any, span_hours: int
) -> None:
    await play.store(echo("a"))
    await put(play, {"workflow": "flow", "schedule": {"every_seconds": 1}, "input": {"a": given}})
    span = {"from": "2026-03-28T00:00:00Z", "to": f"2026-03-28T0{span_hours}:00:00Z"}
    answer = await play.post("/v1/triggers/nightly/backfill", json=span)
    check_problem(answer, 422, "invalid_request", "/to")
    assert "use a shorter span" in answer.json["problems"][0]["message"]
    assert (await play.get("/v1/batches")).json["items"] == []


async def test_only_a_schedule_has_due_times(play: Play) -> None:
    await play.store(echo("a"))
    await put(play, {"workflow": "flow", "event": {"type": "t"}})
    check_problem(await play.post("/v1/triggers/nightly/backfill", json=SPAN), 422, "invalid_request")
