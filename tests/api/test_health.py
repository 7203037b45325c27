"""Alive is not ready: what each says when something is down."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from weft.api import health
from weft.clock import VirtualClock
from weft.core.time import MICROSECONDS
from weft.telemetry import LOOP_STALLS, Metrics, watch_loop

if TYPE_CHECKING:
    from pathlib import Path

    from tests.api.conftest import Answer, Serve, Server

NAMES = ["journal", "orchestrator", "worker", "stopping"]


async def not_ready(server: Server) -> dict[str, str]:
    """Ask a server that is not ready why; give the messages of the checks that fail."""
    answer = await server.get("/readyz")
    assert answer.status == 503, answer.json
    assert answer.json["ready"] is False
    return {name: check["message"] for name, check in answer.json["checks"].items() if not check["ok"]}


async def test_a_server_is_not_ready_before_the_workflows_of_its_files_are_stored(server: Server) -> None:
    server.service.deploying = True
    assert await not_ready(server) == {"workflows": "the workflows of its files are not stored yet"}
    server.service.deploying = False
    assert (await server.get("/readyz")).status == 200


async def test_a_server_that_runs_is_alive_and_ready(server: Server) -> None:
    alive = await server.get("/healthz")
    assert (alive.status, alive.json) == (200, {"alive": True})
    ready = await server.get("/readyz")
    assert (ready.status, ready.json["ready"]) == (200, True)
    assert list(ready.json["checks"]) == NAMES
    for check in ready.json["checks"].values():
        assert set(check) == {"ok", "message"}
        assert check["ok"] is True


async def test_those_who_ask_at_once_share_one_check(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = server.engine.ports.catalog
    asked = 0

    async def check() -> None:
        nonlocal asked
        asked += 1
        async with asyncio.timeout(10):
            while server.service.load.open_requests.in_use < 20:  # noqa: ASYNC110 - there is no event for it
                await asyncio.sleep(0.001)

    monkeypatch.setattr(catalog, "check", check)
    answers = await asyncio.gather(*(server.get("/readyz") for _ in range(20)))
    assert {answer.status for answer in answers} == {200}
    assert asked == 1


async def test_without_its_journal_a_server_is_alive_and_not_ready(server: Server, tmp_path: Path) -> None:
    await server.engine.ports.journal.close()
    assert (await server.get("/healthz")).status == 200
    faults = await not_ready(server)
    assert list(faults) == ["journal"]
    assert str(tmp_path) not in faults["journal"]
    await server.engine.ports.journal.open()
    assert (await server.get("/readyz")).status == 200


async def test_a_journal_that_does_not_answer_in_time_is_no_reason_to_hang(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "LONGEST_SECONDS", 0.1)
    with closing(sqlite3.connect(tmp_path / "data" / "weft.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        faults = await not_ready(server)
        assert faults == {"journal": "it did not answer within 0.1 s"}
        assert (await server.get("/healthz")).status == 200
        other.execute("ROLLBACK")


async def test_an_orchestrator_that_has_stopped_is_said_so(server: Server) -> None:
    await server.engine.orchestrator.stop()
    assert await not_ready(server) == {"orchestrator": "it is not running"}


async def test_an_orchestrator_whose_loop_has_died_is_said_so(server: Server) -> None:
    loop = server.engine.orchestrator._loops[0]
    loop.cancel()
    await asyncio.wait([loop])
    assert await not_ready(server) == {"orchestrator": "one of its loops has ended"}


async def test_an_orchestrator_that_stands_still_is_said_so(server: Server) -> None:
    server.engine.orchestrator._swept_at -= 100 * MICROSECONDS
    faults = await not_ready(server)
    assert list(faults) == ["orchestrator"]
    assert "stood still for 10" in faults["orchestrator"]


async def test_a_worker_that_has_stopped_is_said_so(server: Server) -> None:
    await server.engine.drain()
    assert (await not_ready(server))["worker"] == "it is not running"


async def test_a_worker_whose_heart_has_stopped_is_said_so(server: Server) -> None:
    server.engine.worker._heartbeat.end()
    assert await not_ready(server) == {"worker": "its heartbeat has ended"}


async def test_a_server_that_stops_is_alive_and_not_ready(server: Server) -> None:
    server.service.stopping.set()
    assert list(await not_ready(server)) == ["stopping"]
    assert (await server.get("/healthz")).status == 200


async def test_health_needs_no_key_and_metrics_do(serve: Serve) -> None:
    async with serve(api_keys=("a-key-of-some-length",)) as server:
        assert (await server.get("/healthz")).status == 200
        assert (await server.get("/readyz")).status == 200
        refused: Answer = await server.get("/metrics")
        assert (refused.status, refused.json["code"]) == (401, "unauthenticated")
        headers = {"Authorization": "Bearer a-key-of-some-length"}
        assert (await server.get("/metrics", headers=headers)).status == 200


async def test_a_loop_that_stands_still_is_noticed(caplog: pytest.LogCaptureFixture) -> None:
    metrics, clock = Metrics(), VirtualClock()
    late_seconds = [0.0, 0.4, 0.65, 0.0]

    async def sleep(seconds: float) -> None:
        if not late_seconds:
            raise asyncio.CancelledError
        clock.advance(seconds + late_seconds.pop(0))

    with caplog.at_level(logging.WARNING, "weft.loop"), pytest.raises(asyncio.CancelledError):
        await watch_loop(metrics, now=clock.now, sleep=sleep)
    (record,) = caplog.records
    assert (record.message, record.__dict__["seconds"]) == ("loop.stalled", 0.65)
    assert f"{LOOP_STALLS.name} 1.0\n" in metrics.render().decode()


async def test_the_engine_of_a_server_watches_its_loop(server: Server) -> None:
    assert any(task.get_name() == "watch_loop" for task in asyncio.all_tasks())


async def test_where_no_worker_is_of_this_process_the_living_ones_are_counted(server: Server) -> None:
    """As an API of a fleet is: without workers it accepts work all the same, so it is ready."""
    server.service.faults = lambda: {"journal": None, "store": None}

    async def said() -> object:
        answer = await server.get("/readyz")
        assert (answer.status, answer.json["ready"]) == (200, True)
        return answer.json["checks"]["workers"]

    assert await said() == {"ok": True, "message": "no living worker"}
    await server.engine.worker.announce()
    assert await said() == {"ok": True, "message": "1 living worker"}
    # Where the store cannot be asked, nobody knows.
    server.service.faults = lambda: {"journal": None, "store": "away"}
    assert list(await not_ready(server)) == ["store"]
    assert "workers" not in (await server.get("/readyz")).json["checks"]
    # A process that shows its own health only tells of nobody else.
    server.service.faults = lambda: {"journal": None, "store": None}
    server.service.shows_fleet = False
    assert "workers" not in (await server.get("/readyz")).json["checks"]
