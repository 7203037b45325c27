"""Section A of the fault catalogue on a fleet: members that die or stop. The rest of it: docs/faults.md."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
import pytest_asyncio
from tests.faults.test_death import Client
from tests.fleet.harness import (
    CLAIM_SECONDS,
    GRACE_SECONDS,
    LEASE_SECONDS,
    SHORT_LEASE,
    STALE_SECONDS,
    SWEEP_SECONDS,
    RunningFleet,
    timed_in,
)
from tests.operation.calling import calling, layered
from tests.operation.serving import PATIENCE_SECONDS
from tests.tracecheck import DrawnNode

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from tests.fleet.conftest import Fleets

pytestmark = pytest.mark.asyncio(loop_scope="module")

KILLED = -signal.SIGKILL
# For a machine that has much else to do.
SLACK_SECONDS = 4.0

# The workers that stay serve these queues; one that is to die has a queue to itself.
ORDINARY = ("--queues", "call_external_service,echo,hold")
MORTAL = ("--queues", "mortal")

MIXED = layered(6, 8)
ONE = [DrawnNode("a", ())]
TWO = [DrawnNode("a", ()), DrawnNode("b", ("a",))]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fleet(fleets: Fleets) -> AsyncIterator[RunningFleet]:
    """One API, one orchestrator and one worker that stay, for those who die beside them."""
    async with fleets() as running:
        await running.start(*ORDINARY)
        yield running


def definition(fleet: RunningFleet, graph: Sequence[DrawnNode], **fields: Any) -> dict[str, Any]:
    return {"nodes": calling(graph, fleet.service.url, **fields)}


def now() -> float:
    return asyncio.get_running_loop().time()


# -- orchestrators ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "crash",
    [
        "journal.record:after:3",  # F01: the children are not freed yet
        "store.apply:after:3",  # F01: they are, and not sent
        "transport.ack:before:3",  # F02
        "transport.read:after:3",  # F03
    ],
)
async def test_what_an_orchestrator_leaves_when_it_dies_is_done_once_by_its_peer(
    crash: str, fleet: RunningFleet
) -> None:
    """F01, F02, F03: nothing is called twice, every node completes in its first attempt."""
    mortal = await fleet.add("orchestrator", crash=crash)
    executions = [await fleet.api.start(definition(fleet, MIXED)) for _ in range(3)]
    assert await mortal.ended() == KILLED
    died = now()
    await fleet.settle(*executions)
    assert now() - died < STALE_SECONDS + CLAIM_SECONDS + SLACK_SECONDS
    await fleet.check(*executions, graph=MIXED)


async def test_a_result_that_comes_again_is_known_and_changes_nothing(fleet: RunningFleet) -> None:
    """F02: dead between dispatch and acknowledgement; the history is the same after the redelivery."""
    for peer in fleet.having("orchestrator"):
        assert await peer.stop() == 0
    # The first message is the result: the API has queued the task itself.
    mortal = await fleet.add("orchestrator", crash="transport.ack:before:1")
    execution = await fleet.api.start(definition(fleet, ONE))
    assert await mortal.ended() == KILLED
    (before,) = await fleet.settle(execution)
    history = await fleet.api.history(execution)
    (group,) = fleet.redis.xinfo_groups("weft:{p0}:results")
    assert group["pending"] == 1
    await fleet.add("orchestrator")
    (after,) = await fleet.check(execution, graph=ONE)
    assert after == before
    assert await fleet.api.history(execution) == history


# -- APIs ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("crash", "is_stored", "attempt"),
    [
        ("journal.submit:before:1", False, 1),
        # It is started, and Redis knows nothing of it: as after a loss of Redis, its roots may be in a call.
        ("journal.submit:after:1", True, 2),
        ("store.install:after:1", True, 1),
    ],
)
async def test_a_submit_without_an_answer_is_repeated_at_another_api_and_made_once(
    crash: str, is_stored: bool, attempt: int, fleet: RunningFleet
) -> None:
    """F04, F05: what was committed is there and runs; what was not is not there at all."""
    calls, known = len(fleet.service.calls), await all_ids(fleet)
    mortal = await fleet.add("api", crash=crash)
    with pytest.raises(aiohttp.ClientError):
        await fleet.api_of(mortal).start(definition(fleet, TWO), key=crash)
    assert await mortal.ended() == KILLED
    left = await all_ids(fleet) - known
    assert len(left) == is_stored
    execution = await fleet.api.start(definition(fleet, TWO), key=crash)
    assert await fleet.api.start(definition(fleet, TWO), key=crash) == execution
    (shown,) = await fleet.check(execution, graph=TWO, faults=attempt - 1)
    assert [node["attempt"] for node in shown["nodes"]] == [attempt, 1]
    assert len(fleet.service.calls) == calls + len(TWO)
    assert await all_ids(fleet) - known == {execution}
    assert left <= {execution}


# -- workers ---------------------------------------------------------------------------------------------


async def test_what_a_worker_was_doing_when_it_was_killed_is_done_by_another(fleet: RunningFleet) -> None:
    """F06: another attempt within lease and sweep, under the same key; the second answer counts."""
    calls = len(fleet.service.calls)
    mortal = await fleet.add("worker", *MORTAL, **SHORT_LEASE)
    fleet.service.hold()
    execution = await fleet.api.start(definition(fleet, TWO, queue="mortal"))
    assert await fleet.running_on(execution, "a") is mortal
    await fleet.service.came(calls + 1)
    heir = await fleet.add("worker", *MORTAL)
    await mortal.kill()
    killed = now()
    first, second = (await fleet.service.came(calls + 2))[calls:]
    assert now() - killed < LEASE_SECONDS + SWEEP_SECONDS + SLACK_SECONDS
    fleet.service.release()
    (shown,) = await fleet.check(execution, graph=TWO, faults=1)
    assert first.key == second.key
    assert [node["attempt"] for node in shown["nodes"]] == [2, 1]
    assert shown["nodes"][0]["output"]["body"]["token"] == second.token
    assert (await fleet.events(execution)).count("node.lost") == 1
    assert await heir.stop() == 0


@pytest.mark.parametrize(
    ("crash", "attempt", "calls"),
    [
        # F07: the effect has happened, and nobody knows: it happens twice, and says so by its key.
        ("store.report:before:1", 2, 2),
        # F08: its result is known: it is not done again.
        ("store.report:after:1", 1, 1),
        # F08: the task is still there, and refused when it comes again; the lease runs out.
        ("transport.ack_tasks:before:1", 2, 1),
    ],
)
async def test_a_worker_that_dies_around_its_result_has_it_counted_once(
    crash: str, attempt: int, calls: int, fleet: RunningFleet
) -> None:
    """F07, F08."""
    before = len(fleet.service.calls)
    mortal = await fleet.add("worker", *MORTAL, crash=crash, **SHORT_LEASE)
    execution = await fleet.api.start(definition(fleet, ONE, queue="mortal"))
    assert await mortal.ended() == KILLED
    heir = await fleet.add("worker", *MORTAL)
    (shown,) = await fleet.check(execution, graph=ONE, faults=attempt - 1)
    assert shown["nodes"][0]["attempt"] == attempt
    made = fleet.service.calls[before:]
    assert len(made) == calls
    assert len({call.key for call in made}) == 1
    assert shown["nodes"][0]["output"]["body"]["token"] == made[-1].token
    assert await heir.stop() == 0


async def test_a_worker_that_is_asked_to_stop_ends_what_is_short_and_hands_back_the_rest(
    fleet: RunningFleet,
) -> None:
    """F09: nothing more is taken, and what is handed back is not waited for as long as a lease."""
    patient = {"WEFT_WORKER_HEARTBEAT_TIMEOUT": "60"}
    before = len(fleet.service.calls)
    leaving = await fleet.add("worker", *MORTAL, "--concurrency", "2", **patient)
    short = {"id": "short", "handler": "hold", "queue": "mortal", "config": {"seconds": 1}}
    (long, late) = calling(
        [DrawnNode("long", ()), DrawnNode("late", ("short",))], fleet.service.url, queue="mortal"
    )
    late["config"]["body"] = {"parents": []}
    fleet.service.hold()
    execution = await fleet.api.start({"nodes": [short, long, late]})
    for node_id in ("short", "long"):
        assert await fleet.running_on(execution, node_id) is leaving
    await fleet.service.came(before + 1)
    stopped = now()
    stopping = asyncio.create_task(leaving.stop())
    await leaving.logged("server.draining")
    heir = await fleet.add("worker", *MORTAL)
    there = now()
    calls = (await fleet.service.came(before + 3))[before:]
    assert now() < max(there, stopped + GRACE_SECONDS) + SLACK_SECONDS
    assert await stopping == 0
    fleet.service.release()
    (shown,) = await fleet.check(execution, faults=1)
    nodes = {node["id"]: node for node in shown["nodes"]}
    assert {name: node["attempt"] for name, node in nodes.items()} == {"short": 1, "long": 2, "late": 1}
    assert fleet.holding(nodes["short"]["worker"]) is leaving
    assert {fleet.holding(nodes[name]["worker"]) for name in ("long", "late")} == {heir}
    assert Counter(call.node for call in calls) == {"long": 2, "late": 1}
    assert await heir.stop() == 0


# -- all of them -----------------------------------------------------------------------------------------


async def test_a_stop_under_load_leaves_nothing_in_hand_and_breaks_no_promise(fleet: RunningFleet) -> None:
    """F10: an orchestrator that stops has acknowledged all it read; an API cuts no request off."""
    api, orchestrator = await fleet.add("api"), await fleet.add("orchestrator")
    clients = [Client() for _ in range(8)]
    submitting = asyncio.gather(*(client.run(api.url) for client in clients))
    async with asyncio.timeout(PATIENCE_SECONDS):
        while sum(len(client.answers) for client in clients) < 100:  # noqa: ASYNC110 - as simple as it is
            await asyncio.sleep(0.01)
    assert await orchestrator.stop() == 0
    consumers = fleet.redis.xinfo_consumers("weft:{p0}:results", "orchestrators")
    in_hand = {one["name"].decode(): one["pending"] for one in consumers}
    assert {name: count for name, count in in_hand.items() if f"-{orchestrator.pid}-" in name and count} == {}
    assert await api.stop() == 0
    await submitting
    answers = [answer for client in clients for answer in client.answers]
    assert {answer.status for answer in answers} <= {202, 503}
    assert {answer.json["code"] for answer in answers if answer.status == 503} <= {"unavailable"}
    assert sum(client.cut for client in clients) == 0
    accepted = {answer.json["id"] for answer in answers if answer.status == 202}
    shown = await fleet.check(*accepted)
    assert {execution["state"] for execution in shown} == {"COMPLETED"}


async def test_two_hundred_executions_in_flight_survive_a_kill_of_every_member(fleets: Fleets) -> None:
    """F11: after a cold start all of them end, and nothing that had settled runs again."""
    graph = layered(1, 2)
    async with fleets() as fleet:
        await fleet.start("--concurrency", "200", orchestrators=2, workers=2, **SHORT_LEASE)
        fleet.service.hold()
        executions = await asyncio.gather(*(fleet.api.start(definition(fleet, graph)) for _ in range(200)))
        # Each of them has its first call under way, and no answer.
        await fleet.service.came(200)
        for member in fleet.members:
            member.process.kill()
        assert {await member.ended() for member in fleet.members} == {KILLED}
        fleet.service.release()
        await fleet.start(orchestrators=2, workers=2)
        shown = await fleet.check(*executions, graph=graph, faults=1)
        assert Counter(execution["state"] for execution in shown) == {"COMPLETED": 200}
        # Otherwise they were not at work when they died.
        assert len(fleet.service.calls) > 200 * len(graph)


@pytest.mark.parametrize("crash", ["journal.record:before:1", "journal.record:after:1"])
async def test_a_thousand_expired_leases_are_one_attempt_more_each_whoever_sweeps(
    crash: str, fleets: Fleets
) -> None:
    """F13: one sweep dies midway, before or after its commit; then two sweep the same leases at once."""
    wide = {"nodes": [{"id": f"n{number}", "handler": "echo", "config": number} for number in range(1000)]}
    async with fleets() as fleet:
        await fleet.start(workers=0)
        execution = await fleet.api.start(wide)
        await queued(fleet, 1000)
        for peer in fleet.having("orchestrator"):
            assert await peer.stop() == 0
        holder = await fleet.launch(
            "worker", "--concurrency", "1000", crash="store.start:after:1", **SHORT_LEASE
        )
        assert await holder.ended() == KILLED
        held = len(timed_in(fleet.redis, "weft:{p0}:leases"))
        assert held > 500
        mortal = await fleet.launch("orchestrator", crash=crash)
        assert await mortal.ended() == KILLED
        await fleet.start(apis=0, orchestrators=2)
        (shown,) = await fleet.check(execution, faults=1)
        attempts = Counter(node["attempt"] for node in shown["nodes"])
        assert (attempts[2], attempts[1]) == (held, 1000 - held)
        assert (await fleet.events(execution)).count("node.lost") == held


async def queued(fleet: RunningFleet, count: int) -> None:
    """Return once so many tasks wait for a worker."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while sum(queue["depth"] for queue in (await fleet.api.get("/v1/queues"))["items"]) < count:  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def all_ids(fleet: RunningFleet) -> set[str]:
    """Return the ids of the newest executions."""
    return {shown["id"] for shown in (await fleet.api.get("/v1/executions?limit=500"))["items"]}
