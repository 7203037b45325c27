"""Workflows on Celery's workers, on both brokers: what runs, who is killed, and what Celery is told."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio
from tests.fleet.harness import SHORT_LEASE
from tests.operation.calling import calling, layered
from tests.operation.serving import PATIENCE_SECONDS
from tests.tracecheck import DrawnNode

from weft.testing.http_server import Answer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from tests.celery.conftest import CeleryFleets
    from tests.celery.harness import CeleryFleet

pytestmark = pytest.mark.asyncio(loop_scope="module")

ONE = [DrawnNode("a", ())]
TWO = [DrawnNode("a", ()), DrawnNode("b", ("a",))]
BATCH = """
import json
from weft.celery import app, batch, execute
app.set_default()
inputs = [{"number": 0}, {"number": 1}, {"number": "two"}, {"number": 3, "fail": True}, {"number": 4}]
many = batch("doubled", inputs).apply_async()
single = batch("doubled", [{"number": 7}]).apply_async()
for _ in range(2):
    twice = execute.apply_async(("doubled", {"number": 9}), task_id="twice", queue="weft-batches")
print(json.dumps([given.get(timeout=60) for given in (many, single, twice)]))
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["redis", "rabbitmq"])
async def fleet(request: pytest.FixtureRequest, celery_fleets: CeleryFleets) -> AsyncIterator[CeleryFleet]:
    """One API, one orchestrator, and one worker of Celery that stays."""
    async with celery_fleets(request.param) as running:
        await asyncio.gather(running.start(workers=0), running.work(**SHORT_LEASE))
        yield running


def definition(fleet: CeleryFleet, graph: Sequence[DrawnNode], **fields: Any) -> dict[str, Any]:
    return {"nodes": calling(graph, fleet.service.url, **fields)}


async def test_a_workflow_runs_to_its_end_and_every_node_once(fleet: CeleryFleet) -> None:
    graph = layered(2, 4)
    executions = [await fleet.api.start(definition(fleet, graph)) for _ in range(3)]
    shown = await fleet.check(*executions, graph=graph)
    assert {execution["state"] for execution in shown} == {"COMPLETED"}
    (worker,) = fleet.celery
    assert {int(node["worker"].rsplit("-", 2)[1]) for one in shown for node in one["nodes"]} <= {
        line["pid"] for line in (await fleet.api.get("/v1/workers"))["items"] if worker.has(line["pid"])
    }
    assert worker.count("Task weft.run") == 2 * 3 * len(graph)  # received, and succeeded
    # It has as many in hand as it has processes, and no more.
    asking = fleet.client.control.inspect(timeout=PATIENCE_SECONDS, limit=1)
    (said,) = (await asyncio.to_thread(asking.stats)).values()
    assert said["prefetch_count"] == 2


async def test_only_weft_counts_retries(fleet: CeleryFleet) -> None:
    """Each attempt is a Celery task of its own, which to Celery has succeeded."""
    (worker,) = fleet.celery
    fleet.service.script(Answer(503), Answer(503))
    retrying = {"max_retries": 2, "retry": {"base_delay_seconds": 0.05, "jitter": 0}}
    execution = await fleet.api.start(definition(fleet, ONE, **retrying))
    (shown,) = await fleet.settle(execution)
    assert (shown["state"], shown["nodes"][0]["attempt"]) == ("COMPLETED", 3)
    for attempt in (1, 2, 3):
        await worker.said(f"[{execution}:a:{attempt}] succeeded")
        assert worker.count(f"[{execution}:a:{attempt}] received") == 1
        assert worker.count(f"[{execution}:a:{attempt}] retry") == 0


async def test_a_batch_is_a_group_whose_ends_are_aggregated(fleet: CeleryFleet) -> None:
    """Its members wait in no slot: there are more of them than processes.

    One that fails, or is refused, is counted with the others; one that is delivered twice starts once.
    """
    workflow = {
        "name": "doubled",
        "input_schema": {"properties": {"number": {"type": "integer"}}},
        "nodes": [
            {"id": "wait", "handler": "sleep", "config": {"seconds": 0.3}},
            {
                "id": "double",
                "handler": "echo",
                "dependencies": ["wait"],
                "config": "{{ input.nowhere if input.fail | default(false) else input.number * 2 }}",
            },
        ],
    }
    status, body, _ = await fleet.api.call("POST", "/v1/workflows", workflow)
    assert status in (200, 201), body
    ended = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", BATCH],
        env=fleet.environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=True,
    )
    many, single, twice = json.loads(ended.stdout)
    assert (many["total"], many["counts"]) == (5, {"COMPLETED": 3, "FAILED": 2})
    assert [one["output"] for one in many["executions"]] == [
        {"double": 0},
        {"double": 2},
        None,
        None,
        {"double": 8},
    ]
    assert [one["index"] for one in many["executions"]] == [0, 1, 2, 3, 4]
    refused, failed = many["executions"][2:4]
    assert (refused["execution"], refused["error"]["code"]) == (None, "invalid_input")
    assert failed["error"]["node"] == "double"
    assert (single["total"], single["executions"][0]["output"]) == (1, {"double": 14})
    (worker,) = fleet.celery
    await worker.said("weft.execute[twice] succeeded", times=2)
    listed = (await fleet.api.get("/v1/executions?workflow=doubled"))["items"]
    started = {one["execution"] for one in (*many["executions"], *single["executions"], twice)} - {None}
    assert len(started) == 6
    assert {one["id"] for one in listed} == started
    await fleet.check(*(one for one in started if one != failed["execution"]))


async def test_a_process_that_is_killed_loses_its_lease_and_another_does_its_work(fleet: CeleryFleet) -> None:
    """Celery gives the message of the dead back at once; it is refused, and the lease decides."""
    calls = len(fleet.service.calls)
    fleet.service.hold()
    execution = await fleet.api.start(definition(fleet, TWO))
    pid = await fleet.running_in(execution, "a")
    await fleet.service.came(calls + 1)
    assert fleet.state_of(f"{execution}:a:1") == "STARTED"
    os.kill(pid, signal.SIGKILL)
    first, second = (await fleet.service.came(calls + 2))[calls:]
    fleet.service.release()
    (shown,) = await fleet.check(execution, graph=TWO, faults=1)
    assert first.key == second.key
    assert [node["attempt"] for node in shown["nodes"]] == [2, 1]
    assert shown["nodes"][0]["output"]["body"]["token"] == second.token
    assert (await fleet.events(execution)).count("node.lost") == 1
    (worker,) = fleet.celery
    await worker.said(f"[{execution}:a:1] succeeded")
    assert worker.count(f"[{execution}:a:1] received") == 2
    assert fleet.state_of(f"{execution}:a:2") == "SUCCESS"


async def test_a_worker_that_is_killed_with_all_its_processes_has_its_work_done_by_another(
    fleet: CeleryFleet,
) -> None:
    calls = len(fleet.service.calls)
    fleet.service.hold()
    execution = await fleet.api.start(definition(fleet, TWO))
    (mortal,) = fleet.celery
    assert mortal.has(await fleet.running_in(execution, "a"))
    await fleet.service.came(calls + 1)
    heir, _ = await asyncio.gather(fleet.work(pool="threads", **SHORT_LEASE), mortal.kill())
    await fleet.service.came(calls + 2)
    fleet.service.release()
    (shown,) = await fleet.check(execution, graph=TWO, faults=1)
    assert [node["attempt"] for node in shown["nodes"]] == [2, 1]
    assert {node["worker"].rsplit("-", 2)[1] for node in shown["nodes"]} == {str(heir.pid)}
