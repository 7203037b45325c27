"""Cancel, pause, resume and retry over REST: the table, what each does, and what happens side by side."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from tests.api.play import EXECUTION, QUICK, Play, check_problem, node_counts
from tests.walks.stage import echo, fails, node

if TYPE_CHECKING:
    from tests.api.conftest import Serve
    from tests.walks.stage import Stage

STATES = ("RUNNING", "PAUSED", "COMPLETED", "FAILED", "CANCELLED")
# What each call leads to, from each of these states; None: 409.
TABLE = {
    "cancel": ("CANCELLED", "CANCELLED", None, None, "CANCELLED"),
    "pause": ("PAUSED", "PAUSED", None, None, None),
    "resume": ("RUNNING", "RUNNING", None, None, None),
    "retry": (None, None, None, "RUNNING", "RUNNING"),
}


async def brought_to(state: str, play: Play) -> str:
    """Bring an execution of one held node to a state; give its id."""
    await play.store(node("a", max_retries=0))
    execution_id = await play.start()
    call = await play.stage.call("a")
    match state:
        case "PAUSED":
            await play.control(execution_id, "pause")
        case "COMPLETED":
            call.complete()
        case "FAILED":
            call.fail()
        case "CANCELLED":
            await play.control(execution_id, "cancel")
    await play.until(execution_id, state)
    return execution_id


@pytest.mark.parametrize(
    ("verb", "state", "outcome"),
    [
        (verb, state, outcome)
        for verb, outcomes in TABLE.items()
        for state, outcome in zip(STATES, outcomes, strict=True)
    ],
)
async def test_a_call_does_what_the_table_says(
    play: Play, verb: str, state: str, outcome: str | None
) -> None:
    execution_id = await brought_to(state, play)
    answer = await play.control(execution_id, verb)
    if outcome is None:
        check_problem(answer, 409, "not_allowed")
        assert answer.json["state"] == state
        assert (await play.show(execution_id))["state"] == state
    else:
        assert answer.status == 202
        assert answer.json.keys() == EXECUTION
        assert (answer.json["id"], answer.json["state"]) == (execution_id, outcome)
        assert sum(answer.json["counts"].values()) == 1


@pytest.mark.parametrize("verb", TABLE)
async def test_what_does_not_exist_cannot_be_controlled(play: Play, verb: str) -> None:
    check_problem(await play.control("nobody", verb), 404, "not_found")


@pytest.mark.parametrize("verb", ["cancel", "pause", "resume"])
async def test_the_same_call_again_changes_nothing_more(play: Play, verb: str) -> None:
    execution_id = await brought_to("PAUSED" if verb == "resume" else "RUNNING", play)
    first = await play.control(execution_id, verb)
    events = await play.server.engine.ports.catalog.events(execution_id)
    second = await play.control(execution_id, verb)
    assert (first.status, second.status) == (202, 202)
    assert second.json == first.json
    assert await play.server.engine.ports.catalog.events(execution_id) == events


class TestCancel:
    async def test_everything_is_settled_before_the_answer_and_nothing_starts_after_it(
        self, play: Play
    ) -> None:
        await play.store(node("a"), node("b", "a"))
        execution_id = await play.start()
        call = await play.stage.call("a")
        answer = await play.control(execution_id, "cancel")
        assert answer.json["counts"] == node_counts(CANCELLED=2)
        shown = await play.show(execution_id)
        assert [(each["state"], each["reason"]) for each in shown["nodes"]] == [
            ("CANCELLED", "cancelled")
        ] * 2
        async with asyncio.timeout(10):
            await call.heard_stop.wait()
        assert play.stage.started() == [("a", 1)]

    async def test_the_history_says_who_it_was(self, serve: Serve, stage: Stage) -> None:
        async with serve(data=None, api_keys=("secret-key-of-somebody",), **QUICK) as server:
            play = Play(server, stage)
            server.session.headers["Authorization"] = "Bearer secret-key-of-somebody"
            execution_id = await brought_to("CANCELLED", play)
            await play.control(execution_id, "retry")
            events = await server.engine.ports.catalog.events(execution_id)
            actors = {event.type: event.actor for event in events if event.actor is not None}
            assert actors.keys() == {"execution.created", "execution.cancelled", "execution.retried"}
            (actor,) = set(actors.values())
            assert actor.startswith("key-")


class TestRetry:
    async def test_what_failed_runs_again_and_what_completed_is_kept(self, play: Play) -> None:
        await play.store(echo("kept"), node("a", "kept", max_retries=0), echo("b", "a"))
        execution_id = await play.start()
        (await play.stage.call("a")).fail()
        await play.until(execution_id, "FAILED")
        answer = await play.control(execution_id, "retry")
        assert (answer.status, answer.json["generation"], answer.json["state"]) == (202, 2, "RUNNING")
        assert answer.json["counts"]["COMPLETED"] == 1
        (await play.stage.call("a")).complete()
        shown = await play.ended(execution_id)
        assert (shown["state"], shown["generation"]) == ("COMPLETED", 2)
        assert [each["attempt"] for each in shown["nodes"]] == [1, 2, 1]

    async def test_a_dry_run_says_what_would_run_and_does_nothing(self, play: Play) -> None:
        await play.store(echo("kept"), echo("again", "kept"), fails("bad"), failure_policy="continue")
        execution_id = await play.start()
        before = await play.ended(execution_id)
        answer = await play.control(execution_id, "retry", json={"dry_run": True})
        assert answer.status == 200
        assert answer.json == {"generation": 2, "run": ["bad"], "reuse": ["kept", "again"]}
        answer = await play.control(execution_id, "retry", json={"dry_run": True, "nodes": ["kept"]})
        assert answer.json == {"generation": 2, "run": ["kept", "again", "bad"], "reuse": []}
        assert await play.show(execution_id) == before

    async def test_nodes_that_are_named_run_again_with_what_is_behind_them(self, play: Play) -> None:
        await play.store(echo("kept"), echo("again", "kept"), fails("bad"), failure_policy="continue")
        execution_id = await play.start()
        await play.ended(execution_id)
        answer = await play.control(execution_id, "retry", json={"nodes": ["again"]})
        assert answer.status == 202
        shown = await play.ended(execution_id)
        assert [each["attempt"] for each in shown["nodes"]] == [1, 2, 2]

    async def test_unknown_nodes_are_named_and_nothing_is_retried(self, play: Play) -> None:
        execution_id = await brought_to("FAILED", play)
        for dry_run in (True, False):
            body = {"nodes": ["nobody", "a", "x"], "dry_run": dry_run}
            answer = await play.control(execution_id, "retry", json=body)
            check_problem(answer, 422, "invalid_request", "/nodes/0", "/nodes/2")
        assert (await play.show(execution_id))["generation"] == 1

    async def test_a_dry_run_is_refused_where_the_retry_would_be(self, play: Play) -> None:
        execution_id = await brought_to("RUNNING", play)
        answer = await play.control(execution_id, "retry", json={"dry_run": True})
        check_problem(answer, 409, "not_allowed")
        assert answer.json["state"] == "RUNNING"

    @pytest.mark.parametrize(
        ("body", "pointer"),
        [
            ({"nodes": "a"}, "/nodes"),
            ({"nodes": [1]}, "/nodes/0"),
            ({"dry_run": 1}, "/dry_run"),
            ({"x": 1}, "/x"),
        ],
    )
    async def test_a_bad_field_is_refused(self, play: Play, body: object, pointer: str) -> None:
        execution_id = await brought_to("FAILED", play)
        answer = await play.control(execution_id, "retry", json=body)
        check_problem(answer, 422, "invalid_request", pointer)


class TestSideBySide:
    """F43: calls in parallel have one outcome."""

    PARALLEL = 50

    async def test_of_many_cancels_each_is_done_and_one_is_recorded(self, play: Play) -> None:
        execution_id = await brought_to("RUNNING", play)
        answers = await asyncio.gather(*[play.control(execution_id, "cancel") for _ in range(self.PARALLEL)])
        assert {answer.status for answer in answers} == {202}
        assert {answer.json["state"] for answer in answers} == {"CANCELLED"}
        events = await play.server.engine.ports.catalog.events(execution_id)
        assert [event.type for event in events].count("execution.cancelled") == 1

    async def test_of_many_retries_one_opens_a_generation(self, play: Play) -> None:
        execution_id = await brought_to("FAILED", play)
        answers = await asyncio.gather(*[play.control(execution_id, "retry") for _ in range(self.PARALLEL)])
        assert sorted(answer.status for answer in answers) == [202, *[409] * (self.PARALLEL - 1)]
        refused = [answer.json for answer in answers if answer.status == 409]
        assert {(each["code"], each["state"]) for each in refused} == {("not_allowed", "RUNNING")}
        assert (await play.show(execution_id))["generation"] == 2
        (await play.stage.call("a")).complete()
        assert (await play.ended(execution_id))["state"] == "COMPLETED"
        assert play.stage.started() == [("a", 1), ("a", 2)]

    async def test_cancels_and_retries_end_in_a_state_that_one_of_them_left(self, play: Play) -> None:
        execution_id = await brought_to("CANCELLED", play)
        verbs = ["cancel", "retry"] * (self.PARALLEL // 2)
        answers = await asyncio.gather(*[play.control(execution_id, verb) for verb in verbs])
        assert {answer.status for answer in answers} <= {202, 409}
        shown = await play.show(execution_id)
        retried = sum(
            answer.status == 202 for verb, answer in zip(verbs, answers, strict=True) if verb == "retry"
        )
        assert shown["generation"] == 1 + retried
        assert shown["state"] in ("RUNNING", "CANCELLED")
        # Whatever it was, it can be ended, and then nothing of it is left.
        assert (await play.control(execution_id, "cancel")).status == 202
        assert (await play.show(execution_id))["counts"]["CANCELLED"] == 1
        assert list(await play.server.engine.ports.store.in_flight([execution_id])) == [None]


async def test_the_answer_to_a_call_shows_a_large_input(play: Play) -> None:
    await play.store(node("a"))
    given = {"text": "x" * 100_000}
    execution_id = await play.start(input=given)
    await play.stage.call("a")
    for verb in ("pause", "resume", "cancel", "retry"):
        answer = await play.post(f"/v1/executions/{execution_id}/{verb}")
        assert answer.status == 202
        assert answer.json["input"] == given
