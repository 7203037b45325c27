"""Section D of the fault catalogue on a fleet: time, races, load. The rest of it: docs/faults.md."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import datetime
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
import pytest_asyncio
from tests.faults.test_races import (
    BASE_SECONDS,
    FLOODING,
    FLOOR_SECONDS,
    JITTER,
    MOMENT_SECONDS,
    POLITE,
    Submitter,
    at,
)
from tests.fleet.harness import LEASE_SECONDS, SHORT_LEASE, RunningFleet
from tests.operation.calling import calling, layered
from tests.operation.serving import PATIENCE_SECONDS
from tests.operation.usage import memory
from tests.tracecheck import DrawnNode

from weft.testing.http_server import Answer
from weft.testing.recording_service import RecordingService

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from tests.fleet.conftest import Fleets
    from tests.operation.serving import Api

    from weft.testing.http_server import Behaviour, ReceivedRequest

pytestmark = pytest.mark.asyncio(loop_scope="module")

ORDINARY = ("--queues", "call_external_service,echo,hold")
ONE = [DrawnNode("a", ())]
TWO = [DrawnNode("a", ()), DrawnNode("b", ("a",))]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fleet(fleets: Fleets) -> AsyncIterator[RunningFleet]:
    """Two of each role, and an orchestrator more; each of those reads one message at a time.

    So what lies side by side in the stream is taken by different orchestrators, and handled together.
    """
    async with fleets() as running:
        orchestrators = [await running.launch("orchestrator", batch=1, has_metrics=True) for _ in range(3)]
        await running.start(*ORDINARY, apis=2, orchestrators=0, workers=2)
        await asyncio.gather(*(member.ready() for member in orchestrators))
        yield running


def definition(fleet: RunningFleet, graph: Sequence[DrawnNode], **fields: Any) -> dict[str, Any]:
    return {"nodes": calling(graph, fleet.service.url, **fields)}


def apis(fleet: RunningFleet) -> list[Api]:
    return [fleet.api_of(member) for member in fleet.having("api")]


# -- F41 -------------------------------------------------------------------------------------------------


async def test_the_result_of_a_worker_that_stood_still_too_long_is_discarded(fleet: RunningFleet) -> None:
    """F41: it comes back with an answer, and the answer that another was given meanwhile stands."""
    before = len(fleet.service.calls)
    zombie = await fleet.add("worker", "--queues", "zombie", pause="store.report:before:1", **SHORT_LEASE)
    a, b = calling(TWO, fleet.service.url)
    execution = await fleet.api.start({"nodes": [{**a, "queue": "zombie"}, b]})
    await zombie.frozen()
    heir = await fleet.add("worker", "--queues", "zombie")
    (shown,) = await fleet.settle(execution)
    first, second, child = fleet.service.calls[before:]
    assert (first.node, second.node, child.node) == ("a", "a", "b")
    zombie.thaw()
    await recorded(fleet, execution, "result.discarded")
    (after,) = await fleet.check(execution, graph=TWO, faults=1)
    assert after == shown
    assert shown["nodes"][0]["output"]["body"]["token"] == second.token
    assert child.request.json() == {"parents": [second.token]}
    (discarded,) = [
        event for event in await fleet.api.history(execution) if event["type"] == "result.discarded"
    ]
    assert (discarded["node"], discarded["attempt"]) == ("a", 1)
    # It is a worker like any other again.
    assert await heir.stop() == 0
    again = await fleet.api.start(definition(fleet, ONE, queue="zombie"))
    (shown,) = await fleet.check(again, graph=ONE)
    assert fleet.holding(shown["nodes"][0]["worker"]) is zombie
    assert await zombie.stop() == 0


async def test_a_worker_that_stood_still_in_a_call_changes_nothing_when_it_goes_on(
    fleet: RunningFleet,
) -> None:
    """F41: whether it is told to stop or has an answer first, its attempt counts no more."""
    before = len(fleet.service.calls)
    zombie = await fleet.add("worker", "--queues", "zombie", **SHORT_LEASE)
    fleet.service.hold()
    a, b = calling(TWO, fleet.service.url)
    execution = await fleet.api.start({"nodes": [{**a, "queue": "zombie"}, b]})
    await fleet.service.came(before + 1)
    zombie.freeze()
    heir = await fleet.add("worker", "--queues", "zombie")
    _, second = (await fleet.service.came(before + 2))[before:]
    fleet.service.release()
    (shown,) = await fleet.settle(execution)
    zombie.thaw()
    (after,) = await fleet.check(execution, graph=TWO, faults=1)
    assert after == shown
    assert shown["nodes"][0]["output"]["body"]["token"] == second.token
    assert await zombie.stop() == 0
    assert await heir.stop() == 0


async def recorded(fleet: RunningFleet, execution: str, event: str) -> None:
    """Return once an execution has an event of a type."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while event not in await fleet.events(execution):  # noqa: ASYNC110 - as simple as it is
            await asyncio.sleep(0.02)


# -- F42 -------------------------------------------------------------------------------------------------

PAIRS = 10


async def test_of_the_last_two_parents_that_end_together_one_sends_the_child(fleet: RunningFleet) -> None:
    """F42: a thousand pairs, over orchestrators that take a result each: every child is called once."""
    parents = [{"id": f"{side}{n}", "handler": "echo", "config": n} for n in range(PAIRS) for side in "ab"]
    joins = [DrawnNode(f"c{n}", ()) for n in range(PAIRS)]
    children = [
        {**node, "dependencies": [f"a{n}", f"b{n}"]}
        for n, node in enumerate(calling(joins, fleet.service.url))
    ]
    before, settled = len(fleet.service.calls), await each_settled(fleet)
    executions = await asyncio.gather(
        *(fleet.api.start({"nodes": [*parents, *children]}) for _ in range(1000 // PAIRS))
    )
    shown = await fleet.check(*executions)
    assert {execution["state"] for execution in shown} == {"COMPLETED"}
    made = Counter(call.key for call in fleet.service.calls[before:])
    assert (len(made), set(made.values())) == (1000, {1})
    # Otherwise no two of them have met.
    shares = [now - then for now, then in zip(await each_settled(fleet), settled, strict=True)]
    assert sum(shares) == 3000
    assert min(shares) > 300


async def test_an_execution_is_moved_forward_by_three_orchestrators_at_once(fleet: RunningFleet) -> None:
    """All three handle results of it, and it goes as it is drawn."""
    graph = layered(6, 8)
    settled = await each_settled(fleet)
    execution = await fleet.api.start(definition(fleet, graph))
    await fleet.check(execution, graph=graph)
    shares = [now - then for now, then in zip(await each_settled(fleet), settled, strict=True)]
    assert sum(shares) == len(graph)
    assert all(shares), shares


async def each_settled(fleet: RunningFleet) -> list[float]:
    """Return how many nodes each orchestrator has settled."""
    return [await member.metric("weft_nodes_settled_total") for member in fleet.having("orchestrator")]


# -- F43 -------------------------------------------------------------------------------------------------

PARALLEL = 50


async def control(fleet: RunningFleet, execution: str, *verbs: str) -> list[tuple[int, Any]]:
    """Make calls side by side, at one API and the other in turn."""
    doors = apis(fleet)
    answers = await asyncio.gather(
        *(
            doors[number % len(doors)].call("POST", f"/v1/executions/{execution}/{verb}")
            for number, verb in enumerate(verbs)
        )
    )
    return [(status, body) for status, body, _ in answers]


async def in_a_call(fleet: RunningFleet) -> str:
    """Return an execution whose one node waits for the answer to its call."""
    before = len(fleet.service.calls)
    fleet.service.hold()
    execution = await fleet.api.start(definition(fleet, ONE, max_retries=0))
    await fleet.service.came(before + 1)
    return execution


async def test_of_many_cancels_each_is_done_and_one_is_recorded(fleet: RunningFleet) -> None:
    """F43: cancel beside cancel."""
    execution = await in_a_call(fleet)
    answers = await control(fleet, execution, *["cancel"] * PARALLEL)
    assert {(status, body["state"]) for status, body in answers} == {(202, "CANCELLED")}
    fleet.service.release()
    await fleet.check(execution)
    assert (await fleet.events(execution)).count("execution.cancelled") == 1


async def test_of_many_retries_one_opens_a_generation(fleet: RunningFleet) -> None:
    """F43: retry beside retry."""
    execution = await in_a_call(fleet)
    fleet.service.script(Answer(400))
    fleet.service.release()
    await fleet.settle(execution)
    before = len(fleet.service.calls)
    fleet.service.hold()
    answers = await control(fleet, execution, *["retry"] * PARALLEL)
    assert Counter(status for status, _ in answers) == {202: 1, 409: PARALLEL - 1}
    refused = {(body["code"], body["state"]) for status, body in answers if status == 409}
    assert refused == {("not_allowed", "RUNNING")}
    await fleet.service.came(before + 1)
    fleet.service.release()
    (shown,) = await fleet.check(execution, faults=1)
    assert (shown["state"], shown["generation"]) == ("COMPLETED", 2)
    assert [call.generation for call in fleet.service.calls[before:]] == [2]


async def test_cancels_and_retries_end_in_a_state_that_one_of_them_left(fleet: RunningFleet) -> None:
    """F43: cancel beside retry."""
    execution = await in_a_call(fleet)
    await control(fleet, execution, "cancel")
    verbs = ["cancel", "retry"] * (PARALLEL // 2)
    answers = await control(fleet, execution, *verbs)
    assert {status for status, _ in answers} <= {202, 409}
    retried = sum(status == 202 for verb, (status, _) in zip(verbs, answers, strict=True) if verb == "retry")
    shown = await fleet.api.get(f"/v1/executions/{execution}")
    assert shown["generation"] == 1 + retried
    assert shown["state"] in ("RUNNING", "CANCELLED")
    # Whatever it was, it can be ended.
    ((status, body),) = await control(fleet, execution, "cancel")
    assert (status, body["state"]) == (202, "CANCELLED")
    fleet.service.release()
    await fleet.check(execution, faults=retried)


# -- Cancel against result -------------------------------------------------------------------------------

ROUNDS, SIDE_BY_SIDE, ANSWER_SECONDS = 50, 10, 0.05


async def test_a_cancel_and_a_result_that_meet_leave_one_outcome(fleet: RunningFleet) -> None:
    """Fifty times, at another moment each: done or cancelled, and nothing starts after the answer."""
    fleet.service.delay_seconds = ANSWER_SECONDS
    outcomes: Counter[str] = Counter()
    executions = []
    places = asyncio.Semaphore(SIDE_BY_SIDE)

    async def one(number: int) -> None:
        async with places:
            execution = await fleet.api.start(definition(fleet, TWO))
            executions.append(execution)
            while not any(call.execution == execution for call in fleet.service.calls):  # noqa: ASYNC110
                await asyncio.sleep(0.002)
            # From the first answer to well after the second.
            await asyncio.sleep(4 * ANSWER_SECONDS * number / ROUNDS)
            ((status, body),) = await control(fleet, execution, "cancel")
            outcomes[body["state"]] += 1
            assert (status, body["state"]) in ((202, "CANCELLED"), (409, "COMPLETED")), body

    await asyncio.gather(*map(one, range(ROUNDS)))
    fleet.service.delay_seconds = 0
    shown = await fleet.check(*executions)
    assert Counter(execution["state"] for execution in shown) == outcomes
    assert outcomes.keys() == {"CANCELLED", "COMPLETED"}
    for execution in shown:
        if execution["state"] == "CANCELLED":
            finished = datetime.fromisoformat(execution["finished_at"])
            starts = [node["started_at"] for node in execution["nodes"] if node["started_at"]]
            assert all(datetime.fromisoformat(start) <= finished for start in starts)


# -- A backlog longer than a lease -----------------------------------------------------------------------


async def test_a_backlog_longer_than_a_lease_is_worked_off_without_doing_anything_twice(
    fleet: RunningFleet,
) -> None:
    """What waits for its one slot, and what waits for its orchestrators, is not taken for lost."""
    graph = [DrawnNode(f"n{number}", ()) for number in range(20)]
    narrow = await fleet.add("worker", "--queues", "narrow", "--concurrency", "1", **SHORT_LEASE)
    before = len(fleet.service.calls)
    fleet.service.delay_seconds = 3 * LEASE_SECONDS / len(graph)
    execution = await fleet.api.start(definition(fleet, graph, queue="narrow"))
    await fleet.service.came(before + len(graph) // 2)
    orchestrators = fleet.having("orchestrator")
    for member in orchestrators:
        member.freeze()
    # The rest is done meanwhile: more than a lease, with nobody to take the results.
    await fleet.service.came(before + len(graph))
    await asyncio.sleep(1.5 * LEASE_SECONDS)
    for member in orchestrators:
        member.thaw()
    fleet.service.delay_seconds = 0
    await fleet.check(execution, graph=graph)
    assert await narrow.stop() == 0


# -- F47 -------------------------------------------------------------------------------------------------

HOUR = 3600.0


async def test_clocks_that_are_an_hour_wrong_change_neither_leases_nor_delays(fleets: Fleets) -> None:
    """F47: each process has another one, and all that is written down is in order, by the servers' time."""
    graph = [DrawnNode("long", ()), DrawnNode("again", ()), DrawnNode("end", ("long", "again"))]
    policy = {"base_delay_seconds": 1, "jitter": 0}
    async with fleets() as fleet:
        offsets = {"api": HOUR, "orchestrator": -HOUR, "worker": HOUR}
        members = [
            await fleet.launch(role, clock_offset=sign * offset, **SHORT_LEASE)
            for role, offset in offsets.items()
            for sign in (1, -1)
        ]
        await fleet.at_work(*members)
        fleet.service.script(Answer(503), Answer(503))
        began = datetime.now().astimezone()
        execution = await fleet.api.start(definition(fleet, graph, retry=policy))
        await fleet.service.came(2)
        fleet.service.hold()
        await fleet.service.came(4)
        # Longer than a lease: it is renewed, whatever the time is.
        await asyncio.sleep(1.5 * LEASE_SECONDS)
        fleet.service.release()
        (shown,) = await fleet.check(execution, graph=graph, faults=1)
        assert [node["attempt"] for node in shown["nodes"]] == [2, 2, 1]
        took = (datetime.now().astimezone() - began).total_seconds()
        for event in await fleet.api.history(execution):
            for name in ("at", "queued_at", "started_at", "finished_at", "due_at"):
                if event.get(name):
                    age = (datetime.fromisoformat(event[name]) - began).total_seconds()
                    assert -1 < age < took + 1, (event["type"], name)


# -- F49 -------------------------------------------------------------------------------------------------

# One at a time, 50 ms each: so many a second.
CAPACITY = 20
FLOOD_SECONDS = 6
MAX_BACKLOG = 50
FLOODERS = 20


async def test_a_flood_is_turned_away_and_another_key_is_let_in_all_the_same(fleets: Fleets) -> None:
    """F49: five times what it can do; bounded in Redis, flat in memory, and fair between keys."""
    keys = {"WEFT_API_KEYS": f"{FLOODING},{POLITE}", "WEFT_MAX_BACKLOG": str(MAX_BACKLOG)}
    loop = asyncio.get_running_loop()
    async with fleets(**keys) as fleet:
        await fleet.start("--concurrency", "1")
        (member,) = fleet.having("api")
        async with aiohttp.ClientSession(member.url, connector=aiohttp.TCPConnector(limit=0)) as session:
            flooder, polite = Submitter(session, FLOODING), Submitter(session, POLITE)
            until = loop.time() + FLOOD_SECONDS

            async def flood() -> None:
                while loop.time() < until:
                    await flooder.submit()

            flooding = asyncio.gather(*(flood() for _ in range(FLOODERS)))
            async with asyncio.timeout(PATIENCE_SECONDS):
                while not flooder.answers[503]:  # noqa: ASYNC110 - as simple as it is
                    await asyncio.sleep(0.01)
            early = {one: memory(one.pid) for one in fleet.members}
            waits = []
            while loop.time() < until - 2:
                began = loop.time()
                while (pause := await polite.submit()) is not None:  # noqa: ASYNC110
                    await asyncio.sleep(pause)
                waits.append(loop.time() - began)
                assert int(fleet.redis.get("weft:{p0}:unsettled") or 0) <= MAX_BACKLOG
                assert fleet.redis.xlen("weft:{p0}:tasks:hold|hold|1") <= MAX_BACKLOG
            await flooding
            assert all(memory(one.pid) < size + 16 * 2**20 for one, size in early.items())
            assert flooder.answers.total() > 5 * CAPACITY * FLOOD_SECONDS
            assert waits
            assert max(waits) < 5, waits
            assert flooder.answers[202] > CAPACITY * FLOOD_SECONDS / 4
            for execution in (*flooder.accepted, *polite.accepted):
                shown = await polite.get(f"/v1/executions/{execution}?nodes=none&wait=30")
                assert shown["state"] == "COMPLETED"
        await fleet.quiet()


# -- F50 -------------------------------------------------------------------------------------------------

STUMBLERS = 500


async def test_a_thousand_nodes_that_fail_at_one_instant_come_back_one_by_one(fleets: Fleets) -> None:
    """F50: over two workers and two orchestrators; spread over the jitter, Retry-After as a floor."""
    seen: set[str] = set()

    def stumble(request: ReceivedRequest) -> Behaviour:
        if request.target in seen:
            return Answer(200)
        seen.add(request.target)
        floor = {"Retry-After": str(int(FLOOR_SECONDS))} if "floor" in request.target else {}
        return Answer(503, headers=floor)

    async with fleets() as fleet, RecordingService(stumble) as service:
        await fleet.start("--concurrency", str(STUMBLERS), orchestrators=2, workers=2)
        nodes = [
            DrawnNode(f"{kind}{number}", ()) for kind in ("plain", "floor") for number in range(STUMBLERS)
        ]
        service.hold()
        policy = {"base_delay_seconds": BASE_SECONDS, "jitter": JITTER}
        execution = await fleet.api.start({"nodes": calling(nodes, service.url, retry=policy)})
        await service.came(2 * STUMBLERS)
        service.release()
        (shown,) = await fleet.check(execution, faults=1)
        assert {node["attempt"] for node in shown["nodes"]} == {2}
        failures = [event for event in await fleet.api.history(execution) if event["type"] == "node.retrying"]
    assert len(failures) == 2 * STUMBLERS
    delays: dict[str, list[float]] = {"plain": [], "floor": []}
    for event in failures:
        # Counted from the commit, which comes a moment after the end of the attempt.
        delays[event["node"].rstrip("0123456789")].append(at(event, "due_at") - at(event, "at"))
    # Each tenth of the window has its share: 50 of 500, give or take.
    window = BASE_SECONDS * JITTER
    shares = Counter(int((delay - BASE_SECONDS) / window * 10) for delay in delays["plain"])
    assert all(shares[tenth] > 15 for tenth in range(10)), shares
    assert min(delays["plain"]) >= BASE_SECONDS - MOMENT_SECONDS
    assert max(delays["plain"]) <= BASE_SECONDS + window + MOMENT_SECONDS
    assert min(delays["floor"]) >= FLOOR_SECONDS - MOMENT_SECONDS
    due = {event["node"]: at(event, "due_at") for event in failures}
    late = [at(node, "started_at") - due[node["id"]] for node in shown["nodes"]]
    assert min(late) >= 0
    assert max(late) < 5


# -- Two builders at once --------------------------------------------------------------------------------


async def test_two_builders_at_once_build_one_life_and_what_runs_goes_on(fleets: Fleets) -> None:
    """Redis loses all in the middle, and two orchestrators are about to commit the same rebuild."""
    graph = layered(1, 10)
    async with fleets() as fleet:
        await fleet.start(orchestrators=0)
        builders = [await fleet.add("orchestrator", pause="journal.rebuild:before:1") for _ in range(2)]
        execution = await lose_redis(fleet, graph, is_known=True)
        for builder in builders:
            await builder.frozen()
        for builder in builders:
            builder.thaw()
        await rebuilt(fleet, execution)
        fleet.service.release()
        await fleet.check(execution, graph=graph)
        assert await epoch_of(fleet, execution) == 2


@pytest.mark.parametrize("is_known", [True, False])
async def test_a_builder_that_is_late_is_refused_and_what_runs_goes_on(
    is_known: bool, fleets: Fleets
) -> None:
    """A builder committed its rebuild and stood still; a peer has built a later epoch meanwhile.

    In a Redis that is known both read the same incarnation id, and the epoch alone refuses the late builder.
    Otherwise the peer begins another incarnation there.
    """
    graph = layered(1, 10)
    async with fleets() as fleet:
        await fleet.start(orchestrators=0)
        late = await fleet.add("orchestrator", pause="store.install:before:1,store.install:after:1")
        execution = await lose_redis(fleet, graph, is_known=is_known)
        await late.frozen()
        await fleet.add("orchestrator")
        await rebuilt(fleet, execution)
        late.thaw()
        await late.frozen()
        fleet.service.release()
        await fleet.check(execution, graph=graph)
        # Had it been let in, its old life would have had to be rebuilt once more.
        assert await epoch_of(fleet, execution) == 3
        late.thaw()
        assert await late.stop() == 0


async def lose_redis(fleet: RunningFleet, graph: Sequence[DrawnNode], *, is_known: bool) -> str:
    """Return an execution that is in its second layer when all of Redis is lost.

    ``is_known``: somebody has connected since, and written down which server it is.
    """
    width = len(graph) - 2
    execution = await fleet.api.start(definition(fleet, graph))
    await fleet.service.came(1)
    fleet.service.hold()
    await fleet.service.came(1 + width)
    with fleet.redis.pipeline(transaction=True) as losing:
        server = fleet.redis.get("weft:{p0}:server")
        losing.flushall()
        if is_known:
            assert server is not None
            losing.set("weft:{p0}:server", server)
        losing.execute()
    return execution


async def rebuilt(fleet: RunningFleet, execution: str) -> None:
    """Return once Redis has an execution again."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not fleet.redis.hexists(f"weft:{{p0}}:x:{execution}", "x"):  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def epoch_of(fleet: RunningFleet, execution: str) -> int:
    row = await fleet.journal.execution(execution)
    assert row is not None
    return row.epoch


# -- A rate, with busy workers ---------------------------------------------------------------------------

TAG, RATE = "api", 10
SLOTS = 10
TAGGED = 20


async def test_a_rate_holds_for_starts_when_busy_workers_come_free(fleets: Fleets) -> None:
    """Tokens are not saved up for tasks that wait for a slot: not with one worker, and not with two."""
    limits = f'{{"{TAG}": {{"rate_per_second": {RATE}, "burst": 1}}}}'
    graph = [DrawnNode(f"n{number}", ()) for number in range(TAGGED)]
    async with fleets(WEFT_RESOURCE_LIMITS=limits) as fleet:
        await fleet.start("--concurrency", str(SLOTS), orchestrators=2, workers=1)
        for workers in (1, 2):
            if workers == 2:
                await fleet.add("worker", "--concurrency", str(SLOTS))
            before = len(fleet.service.calls)
            naps = [
                {"id": f"nap{number}", "handler": "hold", "config": {"seconds": 1.5}}
                for number in range(workers * SLOTS)
            ]
            busy = await fleet.api.start({"nodes": naps})
            for number in range(len(naps)):
                await fleet.running_on(busy, f"nap{number}")
            execution = await fleet.api.start(definition(fleet, graph, resource_tag=TAG))
            (shown,) = await fleet.check(execution, graph=graph)
            await fleet.check(busy)
            calls = sorted(call.at / 1e6 for call in fleet.service.calls[before:])
            starts = sorted(at(node, "started_at") for node in shown["nodes"])
            for what in (calls, starts):
                check_rate(what)
            # And nobody is kept from what the rate allows.
            assert starts[-1] - starts[0] < 1.5 * TAGGED / RATE


def check_rate(times: Sequence[float]) -> None:
    """A call may be under way for a moment longer than the next: one more than the rate allows."""
    for seconds in (0.25, 0.5, 1.0):
        most = max(sum(first <= other < first + seconds for other in times) for first in times)
        assert most <= seconds * RATE + 2, f"{most} in {seconds} s"
