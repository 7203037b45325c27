"""Idempotency keys: the same request again gives the same resource (F82)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from tests.api.play import EXECUTION, QUICK, Play, check_problem
from tests.walks.stage import echo, node, workflow

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.api.conftest import Serve
    from tests.walks.stage import Stage

START = "/v1/workflows/flow/executions"
KEY = {"Idempotency-Key": "order-7"}


def a_start(n: int = 1) -> tuple[str, Any]:
    return START, {"input": {"n": n}}


def a_definition(n: int = 1) -> tuple[str, Any]:
    return "/v1/executions", {"definition": workflow(echo("a", config=n))}


def a_batch(n: int = 1) -> tuple[str, Any]:
    return "/v1/batches", {"workflow": "flow", "inputs": [{"n": n}]}


A_START_OF = pytest.mark.parametrize("request_of", [a_start, a_definition, a_batch])


async def count(play: Play) -> int:
    return len((await play.get("/v1/executions")).json["items"])


@A_START_OF
async def test_the_same_key_and_body_give_the_same_resource(
    play: Play, request_of: Callable[..., tuple[str, Any]]
) -> None:
    await play.store(echo("a"))
    path, body = request_of()
    first = await play.post(path, json=body, headers=KEY)
    second = await play.post(path, json=body, headers=KEY)
    assert (first.status, second.status) == (202, 200)
    assert second.json["id"] == first.json["id"]
    assert second.json.keys() == first.json.keys()
    assert second.headers["Location"] == first.headers["Location"]
    assert await count(play) == 1


@A_START_OF
async def test_the_same_key_with_another_body_is_a_conflict(
    play: Play, request_of: Callable[..., tuple[str, Any]]
) -> None:
    await play.store(echo("a"))
    path, body = request_of(1)
    await play.post(path, json=body, headers=KEY)
    path, body = request_of(2)
    check_problem(await play.post(path, json=body, headers=KEY), 409, "idempotency_conflict")
    assert await count(play) == 1


async def test_the_same_key_on_another_path_is_a_conflict(play: Play) -> None:
    await play.store(echo("a"))
    await play.store(echo("a"), name="other")
    await play.post(START, json={}, headers=KEY)
    answer = await play.post("/v1/workflows/other/executions", json={}, headers=KEY)
    check_problem(answer, 409, "idempotency_conflict")


@A_START_OF
async def test_of_requests_side_by_side_one_starts_something(
    play: Play, request_of: Callable[..., tuple[str, Any]]
) -> None:
    await play.store(echo("a"))
    path, body = request_of()
    answers = await asyncio.gather(*[play.post(path, json=body, headers=KEY) for _ in range(20)])
    assert sorted(answer.status for answer in answers) == [*[200] * 19, 202]
    assert len({answer.json["id"] for answer in answers}) == 1
    assert await count(play) == 1


@A_START_OF
async def test_a_key_outlives_the_server(
    serve: Serve, stage: Stage, request_of: Callable[..., tuple[str, Any]]
) -> None:
    path, body = request_of()
    async with serve() as server:
        play = Play(server, stage)
        await play.store(echo("a"))
        first = await play.post(path, json=body, headers=KEY)
    async with serve() as server:
        play = Play(server, stage)
        again = await play.post(path, json=body, headers=KEY)
        assert (again.status, again.json["id"]) == (200, first.json["id"])
        other = await play.post(*request_of(2)[:1], json=request_of(2)[1], headers=KEY)
        check_problem(other, 409, "idempotency_conflict")
        assert await count(play) == 1


async def test_how_the_body_was_written_is_of_no_consequence(play: Play) -> None:
    await play.store(echo("a"))
    first = await play.post(START, json={"input": {"a": 1, "b": 2}, "priority": "high"}, headers=KEY)
    yaml = "priority: high\ninput: {b: 2, a: 1}"
    headers = {**KEY, "Content-Type": "application/yaml"}
    second = await play.post(START, data=yaml, headers=headers)
    assert (second.status, second.json["id"]) == (200, first.json["id"])


async def test_a_key_still_gives_its_execution_when_the_workflow_is_gone(play: Play) -> None:
    await play.store(echo("a"))
    first = await play.post(START, json={}, headers=KEY)
    await play.call("DELETE", "/v1/workflows/flow")
    second = await play.post(START, json={}, headers=KEY)
    assert (second.status, second.json["id"]) == (200, first.json["id"])


async def test_a_request_that_was_refused_takes_no_key(play: Play) -> None:
    check_problem(await play.post(START, json={}, headers=KEY), 404, "not_found")
    await play.store(echo("a"), input_schema={"required": ["n"]})
    check_problem(await play.post(START, json={}, headers=KEY), 422, "invalid_input")
    assert (await play.post(START, json={"input": {"n": 1}}, headers=KEY)).status == 202


async def test_a_start_that_waits_may_be_sent_again(play: Play) -> None:
    await play.store(node("a"))
    first = await play.post(f"{START}?wait=0", json={}, headers=KEY)
    assert first.status == 202
    again = await play.post(f"{START}?wait=0", json={}, headers=KEY)
    assert (again.status, again.json.keys()) == (200, EXECUTION)
    waiting = asyncio.create_task(play.post(f"{START}?wait=30", json={}, headers=KEY))
    (await play.stage.call("a")).complete()
    ended = await waiting
    assert (ended.status, ended.json["id"], ended.json["state"]) == (200, first.json["id"], "COMPLETED")
    assert "nodes" in ended.json


class TestRetry:
    async def failed(self, play: Play) -> str:
        await play.store(node("a", max_retries=0))
        execution_id = await play.start()
        (await play.stage.call("a")).fail()
        await play.until(execution_id, "FAILED")
        return execution_id

    async def test_it_is_done_once(self, play: Play) -> None:
        execution_id = await self.failed(play)
        answers = await asyncio.gather(
            *[play.control(execution_id, "retry", headers=KEY, json={"nodes": ["a"]}) for _ in range(10)]
        )
        assert sorted(answer.status for answer in answers) == [*[200] * 9, 202]
        assert {answer.json["generation"] for answer in answers} == {2}
        (await play.stage.call("a")).fail()
        await play.until(execution_id, "FAILED")
        # It stands for the retry that was done, whatever has become of it.
        again = await play.control(execution_id, "retry", headers=KEY, json={"nodes": ["a"]})
        assert (again.status, again.json["generation"], again.json["state"]) == (200, 2, "FAILED")
        assert again.json.keys() == EXECUTION

    async def test_another_body_is_a_conflict(self, play: Play) -> None:
        execution_id = await self.failed(play)
        await play.control(execution_id, "retry", headers=KEY)
        answer = await play.control(execution_id, "retry", headers=KEY, json={"nodes": ["a"]})
        check_problem(answer, 409, "idempotency_conflict")

    async def test_one_that_is_refused_or_only_planned_takes_no_key(self, play: Play) -> None:
        await play.store(node("a", max_retries=0))
        execution_id = await play.start()
        call = await play.stage.call("a")
        answer = await play.control(execution_id, "retry", headers=KEY)
        check_problem(answer, 409, "not_allowed")
        call.fail()
        await play.until(execution_id, "FAILED")
        planned = await play.control(execution_id, "retry", headers=KEY, json={"dry_run": True})
        assert (planned.status, planned.json["run"]) == (200, ["a"])
        assert (await play.control(execution_id, "retry", headers=KEY)).status == 202


class TestTheKey:
    @pytest.mark.parametrize("key", ["x", " x", "x" * 255, "a b/c:d!~", "ключ-7"])
    async def test_one_of_printable_characters_is_taken(self, play: Play, key: str) -> None:
        await play.store(echo("a"))
        for status in (202, 200):
            answer = await play.post(START, json={}, headers={"Idempotency-Key": key})
            assert answer.status == status

    @pytest.mark.parametrize("key", ["", " ", "x" * 256, "a\tb", "\u200b"])
    async def test_any_other_is_refused(self, play: Play, key: str) -> None:
        await play.store(echo("a"))
        answer = await play.post(START, json={}, headers={"Idempotency-Key": key})
        check_problem(answer, 422, "invalid_request", "/Idempotency-Key")
        assert await count(play) == 0

    async def test_two_of_them_are_refused(self, play: Play) -> None:
        await play.store(echo("a"))
        headers = [("Idempotency-Key", "a"), ("Idempotency-Key", "b")]
        answer = await play.post(START, json={}, headers=headers)
        check_problem(answer, 422, "invalid_request", "/Idempotency-Key")


async def test_without_a_key_the_same_request_starts_anew(play: Play) -> None:
    await play.store(echo("a"))
    first, second = await play.start(), await play.start()
    assert first != second


async def test_a_commit_that_nobody_heard_of_is_found_by_its_key(
    serve: Serve, stage: Stage, tmp_path: Path
) -> None:
    """F04: a server stops after the commit and before the answer; F05: it stops before the commit."""
    async with serve(data=tmp_path / "data", **QUICK) as server:
        play = Play(server, stage)
        await play.store(echo("a"))
        journal = server.engine.ports.journal
        submit = journal.submit

        async def lost_before(*args: Any, **kwargs: Any) -> Any:
            raise ConnectionAbortedError

        async def lost_after(*args: Any, **kwargs: Any) -> Any:
            await submit(*args, **kwargs)
            raise ConnectionAbortedError

        for lose, executions in ((lost_before, 0), (lost_after, 1)):
            journal.submit = lose  # type: ignore[method-assign]
            assert (await play.post(START, json={}, headers=KEY)).status == 500
            assert await count(play) == executions
        del journal.submit
        again = await play.post(f"{START}?wait=0", json={}, headers=KEY)
        assert again.status == 200
        assert await count(play) == 1
