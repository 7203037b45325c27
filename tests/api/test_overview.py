"""The overview, and the figures of a workflow, over REST."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.api.play import Play, check_problem
from tests.walks.stage import echo, fails, node

from weft.api.overview import _HOUR, _overview
from weft.core.time import rfc3339
from weft.errors import StoreError
from weft.views.statistics import MAX_NODES, mean, percentile, workflow_statistics

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest


async def overview(play: Play) -> dict[str, Any]:
    """Return an overview that nobody has asked for before."""
    service = play.server.service
    return dict(await _overview(service, "default", service.ports.clock.now()))


async def test_an_overview_shows_what_runs_ended_and_failed(play: Play) -> None:
    await play.store(fails("a"), name="breaks")
    await play.store(echo("a"), name="ends")
    await play.store(node("a"), name="runs")
    before = play.server.service.ports.clock.now() // _HOUR
    for name in ("breaks", "ends", "breaks"):
        await play.ended(await play.start(name))
    running = await play.start("runs")
    await play.stage.call("a", running)
    alive = len((await play.get("/v1/workers")).json["items"])
    answer = await play.get("/v1/overview")
    assert answer.status == 200, answer.json
    shown = answer.json
    assert shown["executions"] == {
        "PENDING": 0,
        "RUNNING": 1,
        "PAUSED": 0,
        "COMPLETED": 1,
        "FAILED": 2,
        "CANCELLED": 0,
    }
    assert len(shown["hours"]) == 24
    assert shown["hours"][-1]["from"] in [rfc3339((before + more) * _HOUR) for more in (0, 1)]
    sums = {key: sum(hour[key] for hour in shown["hours"]) for key in ("started", "COMPLETED", "FAILED")}
    assert sums == {"started": 4, "COMPLETED": 1, "FAILED": 2}
    (group,) = shown["failures"]
    assert (group["workflow"], group["count"], group["sample"]["node"]) == ("breaks", 2, "a")
    assert shown["dead_letters"] == 2
    assert alive <= shown["workers"]["alive"] <= 1
    assert (shown["workers"]["slots"] > 0) == (shown["workers"]["alive"] > 0)
    assert {queue["name"] for queue in shown["queues"]} >= {"held"}
    await play.control(running, "cancel")


async def test_an_overview_shows_open_questions_and_what_is_due_next(play: Play) -> None:
    await play.store(node("a", handler="wait", config={"prompt": "Go on?"}), name="asks")
    for name in ("f", "e", "d", "c", "b", "a"):
        trigger = {"workflow": "asks", "schedule": {"every_seconds": 1000 + 100 * (ord(name) - ord("a"))}}
        assert (await play.call("PUT", f"/v1/triggers/{name}", json=trigger)).status == 201
    execution = await play.start("asks")
    while (shown := await overview(play))["waits"] == 0:
        pass
    assert shown["waits"] == 1
    assert [one["trigger"] for one in shown["due_next"]] == ["a", "b", "c", "d", "e"]
    trigger = (await play.get("/v1/triggers/a")).json
    assert shown["due_next"][0] == {"trigger": "a", "workflow": "asks", "at": trigger["next_at"]}
    await play.control(execution, "cancel")
    assert (await overview(play))["waits"] == 0


async def test_an_hour_that_is_over_is_counted_once(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = play.server.service.ports.catalog
    asked: list[int] = []
    count = catalog.period_counts

    async def watched(*, namespace: str, since: int, until: int) -> Any:
        asked.append(since)
        return await count(namespace=namespace, since=since, until=until)

    monkeypatch.setattr(catalog, "period_counts", watched)
    await overview(play)
    assert len(asked) == 24
    await overview(play)
    # The running hour, and the one before it while a commit of it may be on its way.
    assert len(asked) - 24 in (1, 2)


async def test_an_overview_does_without_the_store(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    async def away() -> Sequence[Any]:
        raise StoreError("Redis is away")

    monkeypatch.setattr(play.server.service.ports.store, "workers", away)
    shown = await overview(play)
    assert (shown["workers"], shown["queues"], shown["dead_letters"]) == (None, None, 0)


async def test_statistics_are_of_the_last_executions_of_a_workflow(play: Play) -> None:
    await play.store(echo("a"), echo("b", "a"), name="flow")
    first = await play.start()
    await play.ended(first)
    await play.store(echo("a"), fails("b", "a"), name="flow")
    second = await play.start()
    await play.ended(second)
    shown = (await play.get("/v1/workflows/flow/statistics")).json
    assert [(one["id"], one["state"]) for one in shown["recent"]] == [
        (second, "FAILED"),
        (first, "COMPLETED"),
    ]
    assert shown["success_rate"] == 0.5
    took = shown["recent"][1]["seconds"]
    assert took > 0
    assert shown["seconds"] == {"p50": took, "p95": took, "mean": took}
    assert {name: one["failures"] for name, one in shown["nodes"].items()} == {"a": 0, "b": 1}
    assert all(one["p50"] >= 0 for one in shown["nodes"].values())
    of_first = (await play.get("/v1/workflows/flow/statistics?version=1")).json
    assert [one["id"] for one in of_first["recent"]] == [first]
    assert of_first["success_rate"] == 1.0
    check_problem(await play.get("/v1/workflows/flow/statistics?version=7"), 404, "not_found")
    check_problem(await play.get("/v1/workflows/stranger/statistics"), 404, "not_found")


async def test_a_workflow_that_never_ran_has_no_figures(play: Play) -> None:
    await play.store(echo("a"), name="flow")
    assert (await play.get("/v1/workflows/flow/statistics")).json == {
        "recent": [],
        "seconds": {"p50": None, "p95": None, "mean": None},
        "success_rate": None,
        "nodes": {},
    }


async def test_nodes_are_left_out_where_there_are_too_many(play: Play) -> None:
    await play.store(echo("a"), name="flow")
    await play.ended(await play.start())
    ports = play.server.service.ports
    (row,) = await ports.catalog.executions()
    row.total = MAX_NODES + 1
    assert (await workflow_statistics([row], ports))["nodes"] is None


def test_a_percentile_is_one_of_the_values() -> None:
    values = [float(number) for number in range(1, 101)]
    assert (percentile(values, 50), percentile(values, 95), percentile(values, 100)) == (50, 95, 100)
    assert (percentile([1, 2], 50), percentile([7], 95), percentile([], 50)) == (1, 7, None)
    assert (mean([1, 2]), mean([])) == (1.5, None)
