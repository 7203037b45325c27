"""What a worker of Celery is held to, and what it cannot spoil. The broker is Redis: it starts sooner."""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio
from kombu import Connection
from tests.fleet.harness import LEASE_SECONDS, SHORT_LEASE, SWEEP_SECONDS
from tests.operation.calling import calling
from tests.operation.serving import PATIENCE_SECONDS
from tests.tracecheck import DrawnNode

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.celery.conftest import CeleryFleets
    from tests.celery.harness import CeleryFleet

pytestmark = pytest.mark.asyncio(loop_scope="module")

ONE = [DrawnNode("a", ())]
QUICK: dict[str, Any] = {"WEFT_WORKER_GRACE": "0.5"}
MISBEHAVING: dict[str, Any] = {
    "WEFT_IMPORTS": "tests.celery.misbehaving",
    "WEFT_PYTHON_ALLOW": "tests.celery.misbehaving:*",
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fleet(celery_fleets: CeleryFleets) -> AsyncIterator[CeleryFleet]:
    """One API, one orchestrator, and a worker of an app that is somebody's own."""
    async with celery_fleets("redis") as running:
        await asyncio.gather(
            running.start(workers=0, **QUICK),
            running.work(app="tests.celery.shop", **SHORT_LEASE, **QUICK, **MISBEHAVING),
        )
        yield running


def calls_once(fleet: CeleryFleet, **fields: Any) -> dict[str, Any]:
    return {"nodes": calling(ONE, fleet.service.url, **fields)}


async def test_an_app_of_ones_own_runs_its_tasks_and_those_of_weft(fleet: CeleryFleet) -> None:
    adding = fleet.client.send_task("shop.add", args=(20, 22), queue="shop")
    execution = await fleet.api.start(calls_once(fleet))
    await fleet.check(execution, graph=ONE)
    assert await asyncio.to_thread(adding.get, timeout=PATIENCE_SECONDS) == 42


@pytest.mark.parametrize("dies", [False, True])
async def test_a_visibility_timeout_neither_doubles_nor_loses_a_long_task(
    fleet: CeleryFleet, dies: bool
) -> None:
    """It is given out again while it runs, and refused: the lease, renewed as it runs, decides."""
    (worker,) = fleet.celery
    calls = len(fleet.service.calls)
    fleet.service.hold()
    execution = await fleet.api.start(calls_once(fleet))
    pid = await fleet.running_in(execution, "a")
    running_since = asyncio.get_running_loop().time()
    await worker.said(f"{execution}:a:1] received", times=2)
    # It was refused, and so acknowledged: nobody has the message any more.
    await worker.said(f"{execution}:a:1] succeeded")
    if dies:
        os.kill(pid, signal.SIGKILL)
        await fleet.service.came(calls + 2)
    else:
        # A lease that nobody renews would be over by now, and its end be seen.
        over = running_since + LEASE_SECONDS + 2 * SWEEP_SECONDS
        await asyncio.sleep(over - asyncio.get_running_loop().time())
        assert (await fleet.api.get(f"/v1/executions/{execution}"))["state"] == "RUNNING"
    fleet.service.release()
    (shown,) = await fleet.check(execution, graph=ONE, faults=int(dies))
    assert [node["attempt"] for node in shown["nodes"]] == [2 if dies else 1]
    assert len(fleet.service.calls) == calls + (2 if dies else 1)


async def test_a_function_that_does_not_end_is_killed_after_its_timeout(fleet: CeleryFleet) -> None:
    node = {"id": "a", "handler": "python", "config": {"function": "tests.celery.misbehaving:deaf"}}
    execution = await fleet.api.start({"nodes": [{**node, "timeout_seconds": 0.5, "max_retries": 0}]})
    (shown,) = await fleet.settle(execution)
    assert (shown["state"], shown["nodes"][0]["error"]["code"]) == ("FAILED", "timeout")


async def test_a_failure_carries_its_traceback_its_progress_and_what_was_printed(fleet: CeleryFleet) -> None:
    config = {"function": "tests.celery.misbehaving:fails", "args": {"order": {"price": 3}}}
    execution = await fleet.api.start(
        {"nodes": [{"id": "a", "handler": "python", "config": config, "max_retries": 0}]}
    )
    (shown,) = await fleet.settle(execution)
    trace = shown["nodes"][0]["error"]["details"]["traceback"]
    assert 'in fails\n    return order["prize"]\n' in trace
    assert trace.endswith("KeyError: 'prize'")
    progress = shown["nodes"][0]["progress"]
    assert (progress["done"], progress["total"], progress["message"]) == (1, 2, "reading")
    (letter,) = (await fleet.api.get("/v1/dead-letters"))["items"][:1]
    assert letter["error"]["details"]["traceback"] == trace
    (line,) = (await fleet.api.get(f"/v1/executions/{execution}/logs"))["items"]
    assert (line["node"], line["stream"], line["message"]) == ("a", "stdout", "an order of 3")


async def test_what_holds_up_the_worker_itself_is_ended_by_celerys_hard_limit(fleet: CeleryFleet) -> None:
    """Its heart beats on, so no lease would ever run out."""
    (worker,) = fleet.celery
    node = {"id": "a", "handler": "stuck", "config": 1, "timeout_seconds": 0.5, "max_retries": 0}
    execution = await fleet.api.start({"nodes": [node]})
    await worker.said("Soft time limit")
    await worker.said("Hard time limit")
    (shown,) = await fleet.settle(execution)
    assert (shown["state"], shown["nodes"][0]["attempt"], shown["output"]) == ("COMPLETED", 2, {"a": 2})
    assert (await fleet.events(execution)).count("node.lost") == 1


async def test_nothing_but_json_is_read(fleet: CeleryFleet, tmp_path: Path) -> None:
    (worker,) = fleet.celery

    class Evil:
        def __reduce__(self) -> tuple[Any, ...]:
            return (open, (str(tmp_path / "harm"), "w"))

    with Connection(fleet.broker_url) as connection:
        connection.Producer().publish(
            pickle.dumps([[Evil()], {}, {}]),
            content_type="application/x-python-serialize",
            content_encoding="binary",
            exchange="",
            routing_key="weft.echo",
            headers={"lang": "py", "task": "weft.run", "id": "evil"},
        )
    await worker.said("ContentDisallowed")
    assert os.listdir(tmp_path) == []
    garbage = fleet.client.send_task("weft.run", args=("[1, 0, {}]",), queue="weft.echo")
    assert await asyncio.to_thread(garbage.get, timeout=PATIENCE_SECONDS) == "garbage"
