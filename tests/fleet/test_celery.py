"""Faults of a fleet on Celery: its workers, its brokers, and everything at once.

The quicker ones are in ``tests/celery``.
"""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
import pytest_asyncio
from tests.celery.harness import celery_fleet
from tests.fleet.harness import SHORT_LEASE
from tests.operation.calling import calling, layered
from tests.support.fault_proxy import FaultProxy
from tests.support.fixtures import or_not_run
from tests.support.servers.rabbitmq import RabbitServer
from tests.support.servers.redis import RedisServer
from tests.tracecheck import DrawnNode

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.celery.conftest import CeleryFleets
    from tests.celery.harness import CeleryFleet
    from tests.support.servers.postgres import PostgresServer

pytestmark = pytest.mark.asyncio(loop_scope="module")

KILLED = -signal.SIGKILL
ONE = [DrawnNode("a", ())]
BROKERS = ["redis", "rabbitmq"]


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=BROKERS)
async def fleet(request: pytest.FixtureRequest, celery_fleets: CeleryFleets) -> AsyncIterator[CeleryFleet]:
    """One API and one orchestrator; the workers die."""
    async with celery_fleets(request.param) as running:
        await running.start(workers=0)
        yield running


def calls_once(fleet: CeleryFleet, **fields: Any) -> dict[str, Any]:
    return {"nodes": calling(ONE, fleet.service.url, **fields)}


@pytest.mark.parametrize(
    ("crash", "attempt", "calls"),
    [
        # It was about to begin.
        ("store.start:after:1", 2, 1),
        # The effect has happened, and nobody knows.
        ("store.report:before:1", 2, 2),
        # The result is on its way.
        ("store.report:after:1", 1, 1),
    ],
)
async def test_a_process_that_dies_around_its_attempt_has_it_counted_once(
    crash: str, attempt: int, calls: int, fleet: CeleryFleet
) -> None:
    mortal = await fleet.work(
        "mortal", app="tests.celery.crashing", concurrency=1, WEFT_TEST_CRASH=crash, **SHORT_LEASE
    )
    execution = await fleet.api.start(calls_once(fleet, queue="mortal"))
    await mortal.said("exited with 'signal 9 (SIGKILL)'")
    await mortal.kill()
    heir = await fleet.work("mortal", pool="solo")
    (shown,) = await fleet.check(execution, graph=ONE, faults=attempt - 1)
    made = [call for call in fleet.service.calls if call.execution == execution]
    assert (shown["nodes"][0]["attempt"], len(made)) == (attempt, calls)
    assert len({call.key for call in made}) == 1
    await heir.kill()


async def test_a_worker_that_loses_the_broker_in_the_middle_of_an_attempt_runs_it_once(
    fleet: CeleryFleet,
) -> None:
    """RabbitMQ gives it out again at once, to the same worker; Redis does when its timeout is over."""
    before = len(fleet.service.calls)
    with FaultProxy(fleet.broker_url) as proxy:
        worker = await fleet.work(WEFT_CELERY_BROKER_URL=proxy.url)
        fleet.service.hold()
        execution = await fleet.api.start(calls_once(fleet))
        await fleet.service.came(before + 1)
        proxy.reset()
        if "amqp" in fleet.broker_url:
            await worker.said(f"{execution}:a:1] received", times=2)
            await worker.said(f"{execution}:a:1] succeeded")
        fleet.service.release()
        (shown,) = await fleet.check(execution, graph=ONE)
        assert (shown["nodes"][0]["attempt"], len(fleet.service.calls)) == (1, before + 1)
        await worker.kill()


async def test_what_was_moved_and_not_sent_is_sent_again_as_the_same_attempt(fleet: CeleryFleet) -> None:
    """The one gap that a store without a say over the broker leaves."""
    for peer in fleet.having("orchestrator"):
        assert await peer.stop() == 0
    quick: dict[str, Any] = {"WEFT_REAPER_IDLE_TIMEOUT": "3"}
    mortal = await fleet.add("api", crash="transport.send:before:1", **quick)
    with pytest.raises(aiohttp.ClientError):
        await fleet.api_of(mortal).start(calls_once(fleet), key="moved")
    assert await mortal.ended() == KILLED
    execution = await fleet.api.start(calls_once(fleet), key="moved")
    _, worker = await asyncio.gather(fleet.add("orchestrator", **quick), fleet.work())
    (shown,) = await fleet.check(execution, graph=ONE)
    assert shown["nodes"][0]["attempt"] == 1
    await worker.kill()


async def test_fifty_executions_in_flight_survive_a_kill_of_every_process(fleet: CeleryFleet) -> None:
    graph = layered(1, 2)
    before = len(fleet.service.calls)
    first = await fleet.work(concurrency=4, **SHORT_LEASE)
    fleet.service.hold()
    definition = {"nodes": calling(graph, fleet.service.url)}
    executions = await asyncio.gather(*(fleet.api.start(definition) for _ in range(50)))
    await fleet.service.came(before + 4)
    for member in fleet.members:
        if member.process.returncode is None:
            member.process.kill()
    await first.kill()
    fleet.service.release()
    await asyncio.gather(fleet.start(workers=0), fleet.work(pool="threads", concurrency=20))
    shown = await fleet.check(*executions, graph=graph, faults=1)
    assert Counter(execution["state"] for execution in shown) == {"COMPLETED": 50}
    for worker in fleet.celery:
        await worker.kill()


@pytest.mark.parametrize("broker", BROKERS)
async def test_a_broker_that_is_away_and_loses_what_it_had_holds_up_nothing_for_good(
    broker: str, postgres_server: PostgresServer, migrated_database: str, tmp_path: Path
) -> None:
    """What comes meanwhile is sent when it is back; what it has lost is sent again, as the same attempt."""
    with or_not_run():
        server: RedisServer | RabbitServer = RedisServer() if broker == "redis" else RabbitServer()
        server.__enter__()
    with server:
        fleets = celery_fleet(postgres_server, migrated_database, tmp_path, broker_url=server.url)
        async with fleets as fleet:
            await fleet.start(workers=0, WEFT_REAPER_IDLE_TIMEOUT="3")
            (orchestrator,) = fleet.having("orchestrator")
            early = await fleet.api.start(calls_once(fleet))
            async with asyncio.timeout(30):
                while not (await fleet.api.get("/v1/queues"))["items"]:  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
            server.kill()
            late = await fleet.api.start(calls_once(fleet))
            await orchestrator.logged("broker.unavailable")
            status, _, _ = await fleet.api.call("GET", "/v1/queues")
            assert status == 503
            server.start()
            await fleet.work()
            shown = await fleet.check(early, late, graph=ONE)
            assert [one["nodes"][0]["attempt"] for one in shown] == [1, 1]
