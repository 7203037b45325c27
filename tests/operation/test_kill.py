"""``kill -9`` of ``weft up``: what was accepted comes to its end, and what was settled never runs again."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import aiohttp
import pytest
from tests.operation.chaos import kill_all_at_once, kill_at_random
from tests.operation.serving import Api, Server, serving
from tests.support.crash import VARIABLE

if TYPE_CHECKING:
    from pathlib import Path


async def test_a_server_killed_ten_times_loses_nothing_and_repeats_nothing_settled(tmp_path: Path) -> None:
    chaos = await kill_at_random(tmp_path, seed=1, kills=10)
    assert chaos.kills == 10
    # Otherwise it was never killed at work, and this test has shown nothing.
    assert len(chaos.service.calls) > len(chaos.submitted) * len(chaos.graph)


async def test_two_hundred_executions_in_flight_survive_a_kill_of_everything(tmp_path: Path) -> None:
    chaos = await kill_all_at_once(tmp_path, seed=1)
    assert len(chaos.service.calls) > len(chaos.submitted) * len(chaos.graph)


CRASHING = (sys.executable, "-m", "tests.operation.crashing")
ECHO = {"nodes": [{"id": "a", "handler": "echo", "config": "done"}]}


@pytest.mark.parametrize(
    ("crash_point", "is_stored"),
    [("journal.submit:before:1", False), ("journal.submit:after:1", True), ("store.install:after:1", True)],
)
async def test_a_submit_without_an_answer_is_repeated_under_its_key_and_made_once(
    crash_point: str, is_stored: bool, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    server = await Server.start(data, command=CRASHING, settings={VARIABLE: crash_point})
    async with Api(await server.ready()) as api:
        with pytest.raises(aiohttp.ClientError):
            await api.start(ECHO, key="once")
    assert await server.ended() < 0
    async with serving(data) as (_, api):
        # Nothing is ever half-stored: before the commit it is not there, after it it is whole, and runs.
        before = (await api.get("/v1/executions"))["items"]
        assert len(before) == is_stored
        execution_id = await api.start(ECHO, key="once")
        assert await api.start(ECHO, key="once") == execution_id
        assert (await api.terminal(execution_id))["output"] == {"a": "done"}
        (only,) = (await api.get("/v1/executions"))["items"]
        assert only["id"] == execution_id
        if is_stored:
            assert before[0]["id"] == execution_id
