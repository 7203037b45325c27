"""Workers and queues over REST."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace
from tests.api.play import Play
from tests.walks.stage import node

from weft.store.contract import WorkerState

if TYPE_CHECKING:
    from tests.api.conftest import Serve
    from tests.walks.stage import Stage


async def test_a_worker_is_shown_with_its_load_and_the_age_of_its_heartbeat(play: Play) -> None:
    worker = play.server.engine.worker
    await play.store(node("a", queue="slow"))
    await play.start()
    await play.stage.call("a")
    await worker.announce()
    answer = await play.get("/v1/workers")
    assert (answer.status, answer.json["next_cursor"]) == (200, None)
    (shown,) = answer.json["items"]
    assert list(shown) == [
        *("id", "host", "pid", "version", "state", "queues", "handlers", "concurrency", "running"),
        *("started_at", "heartbeat_age_seconds"),
    ]
    assert (shown["id"], shown["state"], shown["running"]) == (worker.name, "alive", 1)
    assert shown["concurrency"] == worker.concurrency
    assert {"echo", "held", "slow"} <= set(shown["queues"])
    assert {"echo", "held"} <= set(shown["handlers"])
    assert "slow" not in shown["handlers"]
    assert 0 <= shown["heartbeat_age_seconds"] < 30


async def test_a_queue_is_shown_with_what_waits_in_it_and_who_serves_it(serve: Serve, stage: Stage) -> None:
    # No heartbeat comes between: what the store knows of workers is what this test says.
    async with serve(
        data=None, worker_concurrency=1, worker_heartbeat_interval_seconds=600, worker_grace_seconds=0.05
    ) as server:
        play = Play(server, stage)
        store = server.engine.ports.store
        assert (await play.get("/v1/queues")).json == {"items": [], "next_cursor": None}
        await play.store(node("a", queue="slow"), node("b", queue="slow"))
        await play.start()
        await play.stage.call("a")
        await server.engine.worker.announce()
        (known,) = await store.workers()
        await store.announce_worker(replace(known, id="elsewhere", queues=("fast", "slow")))
        await store.announce_worker(replace(known, id="leaving", state=WorkerState.DRAINING))

        answer = await play.get("/v1/queues")
        fast, slow = answer.json["items"]
        assert fast == {"name": "fast", "depth": 0, "oldest_age_seconds": None, "in_flight": 0, "workers": 2}
        assert 0 <= slow.pop("oldest_age_seconds") < 30
        assert slow == {"name": "slow", "depth": 1, "in_flight": 1, "workers": 2}
        workers = {each["id"]: each for each in (await play.get("/v1/workers")).json["items"]}
        assert (workers["leaving"]["state"], workers["elsewhere"]["state"]) == ("draining", "alive")
        assert workers["elsewhere"]["queues"] == ["fast", "slow"]
