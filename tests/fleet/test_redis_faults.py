"""Section B of the fault catalogue on a fleet: a Redis that dies, forgets, is late, is written to.

The rest of the catalogue: docs/faults.md.
"""

from __future__ import annotations

import asyncio
import os
import pickle
from itertools import permutations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio
from tests.fleet.proxied import proxied_fleet
from tests.operation.calling import calling, layered
from tests.operation.serving import PATIENCE_SECONDS
from tests.operation.usage import cpu_seconds
from tests.store.refusing import REFUSALS
from tests.support.fault_proxy import Direction
from tests.support.servers.redis import RedisServer
from tests.tracecheck import DrawnNode

from weft.core.task import Result, Task, Wake
from weft.core.time import MICROSECONDS
from weft.envelope import make_signer, pack, unpack_all, unpack_task

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from tests.fleet.proxied import ProxiedFleet
    from tests.support.servers.postgres import PostgresServer

pytestmark = pytest.mark.asyncio(loop_scope="module")

# Short enough to be waited for when Redis is lost, long enough for a machine that has much else to do.
LEASE_SECONDS = 3.0
# What a peer has taken is not looked for: whoever loses a message has to ask for it again itself.
SETTINGS = {
    "WEFT_WORKER_HEARTBEAT_TIMEOUT": str(LEASE_SECONDS),
    "WEFT_ORCHESTRATOR_STALE_RESULT_TIMEOUT": "600",
}
SLOTS = 16
ORDINARY = ("--queues", "call_external_service,echo,hold", "--concurrency", str(SLOTS))
RESULTS = "weft:{p0}:results"
TASKS = "weft:{p0}:tasks:call_external_service|call_external_service|1"
QUARANTINE = "weft:{p0}:quarantine"

MIXED = layered(6, 8)
# More than there are slots: some are in a call, the others wait for a worker.
_MANY = [DrawnNode(f"n{number}", ()) for number in range(40)]
WIDE = [*_MANY, DrawnNode("join", tuple(node.id for node in _MANY))]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fleet(
    postgres_server: PostgresServer, migrated: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[ProxiedFleet]:
    """One of each role on a Redis that keeps its data, each behind a proxy."""
    folder = tmp_path_factory.mktemp("proxied")
    with RedisServer(appendonly=True) as server:
        async with proxied_fleet(server, postgres_server, migrated, folder, **SETTINGS) as running:
            await running.start(*ORDINARY)
            yield running


def definition(fleet: ProxiedFleet, graph: Sequence[DrawnNode], **fields: Any) -> dict[str, Any]:
    return {"nodes": calling(graph, fleet.service.url, **fields)}


async def until(is_true: Callable[[], bool]) -> None:
    """Return once something is true that nobody tells of."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not is_true():  # noqa: ASYNC110 - it is Redis that is looked at, and nobody tells
            await asyncio.sleep(0.01)


async def has(fleet: ProxiedFleet, stream: str, count: int) -> None:
    """Return once so many messages are in a stream: the results of one report are one entry."""
    await until(lambda: sum(len(unpack_all(fields[b"m"])) for _, fields in fleet.entries(stream)) == count)


# -- F14, F15, F16: all of it is lost --------------------------------------------------------------------


def flush(fleet: ProxiedFleet) -> None:
    fleet.redis.flushall()


def kill(fleet: ProxiedFleet) -> None:
    fleet.server.kill()
    fleet.server.start()


def kill_and_empty(fleet: ProxiedFleet) -> None:
    fleet.server.kill()
    fleet.lose_data()
    fleet.server.start()


@pytest.mark.parametrize("lose", [flush, kill, kill_and_empty])
async def test_what_runs_when_redis_is_lost_goes_on_and_the_rest_is_sent_again(
    lose: Callable[[ProxiedFleet], None], fleet: ProxiedFleet
) -> None:
    """F14, F15, F16: what is in a call is adopted, also where its lease would be over by then."""
    before = len(fleet.service.calls)
    fleet.service.hold()
    execution = await fleet.api.start(definition(fleet, WIDE))
    running = {call.node for call in (await fleet.service.came(before + SLOTS))[before:]}
    await has(fleet, TASKS, len(WIDE) - 1 - SLOTS)
    await asyncio.to_thread(lose, fleet)
    await until(lambda: fleet.redis.zcard("weft:{p0}:leases") > SLOTS)
    await asyncio.sleep(1.5 * LEASE_SECONDS)
    assert len(fleet.service.calls) == before + SLOTS
    fleet.service.release()
    (shown,) = await fleet.check(execution, graph=WIDE, faults=1)
    # Nothing is done twice, and only what nobody had begun has another number.
    assert len(fleet.service.calls) == before + len(WIDE)
    attempts = {node["id"]: node["attempt"] for node in shown["nodes"]}
    assert attempts == {node.id: 1 if node.id in {*running, "join"} else 2 for node in WIDE}
    assert shown["state"] == "COMPLETED"


async def test_a_flush_before_a_run_costs_it_nothing(fleet: ProxiedFleet) -> None:
    """F14: groups and scripts are made again for whoever waits on them."""
    fleet.redis.flushall()
    execution = await fleet.api.start(definition(fleet, MIXED))
    await fleet.check(execution, graph=MIXED)


async def test_a_flush_before_anybody_has_taken_up_a_run_only_delays_it(fleet: ProxiedFleet) -> None:
    """F14: the hint that it is there is lost with the rest, and each node is called once."""
    fleet.orchestrator.freeze()
    before = len(fleet.service.calls)
    execution = await fleet.api.start(definition(fleet, MIXED))
    fleet.redis.flushall()
    fleet.orchestrator.thaw()
    await fleet.check(execution, graph=MIXED, faults=1)
    assert len(fleet.service.calls) == before + len(MIXED)


async def test_results_that_wait_when_redis_is_lost_are_had_again(fleet: ProxiedFleet) -> None:
    """F14: no more is done again than was under way, and what was accepted stays."""
    before = len(fleet.service.calls)
    fleet.service.hold()
    execution = await fleet.api.start(definition(fleet, WIDE))
    await fleet.service.came(before + SLOTS)
    fleet.orchestrator.freeze()
    fleet.service.release()
    await has(fleet, RESULTS, len(WIDE) - 1)
    fleet.redis.flushall()
    fleet.orchestrator.thaw()
    await fleet.check(execution, graph=WIDE, faults=1)
    again = len(fleet.service.calls) - before - len(WIDE)
    assert 0 < again < len(WIDE)


# -- F17: it is away -------------------------------------------------------------------------------------

AWAY_SECONDS = 6.0


async def test_without_redis_work_waits_and_the_api_does_what_it_can(fleet: ProxiedFleet) -> None:
    """F17: submits and reads go on, a cancel is recorded and said to be no more than that."""
    graph = WIDE[:4]
    before = len(fleet.service.calls)
    fleet.service.hold()
    running, cancelled = [await fleet.api.start(definition(fleet, graph)) for _ in range(2)]
    await fleet.service.came(before + 2 * len(graph))
    loop = asyncio.get_running_loop()
    await asyncio.to_thread(fleet.server.stop)
    down_at = loop.time()
    # The connections are found to be gone, and the first attempts have failed.
    await asyncio.sleep(0.5)
    used = {member: cpu_seconds(member.pid) for member in working(fleet)}
    asked = {role: len(proxy.attempts) for role, proxy in fleet.proxies.items()}
    began_at = loop.time()

    submitted = await fleet.api.start(definition(fleet, MIXED))
    for execution in (running, submitted):
        shown = await fleet.api.get(f"/v1/executions/{execution}")
        assert (shown["live"], shown["id"]) == (False, execution)
    assert (await fleet.api.get("/v1/executions"))["items"][0]["id"] == submitted
    status, problem, headers = await fleet.api.call("POST", f"/v1/executions/{cancelled}/cancel")
    assert (status, problem["code"]) == (503, "unavailable")
    assert "recorded" in problem["detail"]
    assert int(headers["Retry-After"]) > 0
    assert (await fleet.api.get(f"/v1/executions/{cancelled}"))["state"] == "CANCELLED"
    status, readiness, _ = await fleet.api.call("GET", "/readyz")
    assert (status, readiness["checks"]["store"]["ok"]) == (503, False)
    assert readiness["checks"]["journal"]["ok"]
    # What was running ends meanwhile, and its worker keeps what it has to say.
    fleet.service.release()

    await asyncio.sleep(AWAY_SECONDS - (loop.time() - down_at))
    away_seconds = loop.time() - began_at
    for role, proxy in fleet.proxies.items():
        assert len(proxy.attempts) - asked[role] <= 2 * away_seconds + 1, role
    for member, seconds in used.items():
        assert cpu_seconds(member.pid) - seconds < 0.3 * away_seconds, member.role
    await asyncio.to_thread(fleet.server.start)

    # It is looked for twice a second at most, so it may be a moment before the call can be done.
    async with asyncio.timeout(PATIENCE_SECONDS):
        while (await fleet.api.call("POST", f"/v1/executions/{cancelled}/cancel"))[0] != 202:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    (shown,) = await fleet.check(running, graph=graph)
    assert shown["state"] == "COMPLETED"
    await fleet.check(submitted, graph=MIXED)
    await fleet.check(cancelled)
    assert len(fleet.service.calls) == before + 2 * len(graph) + len(MIXED)


def working(fleet: ProxiedFleet) -> list[Any]:
    return [member for role in fleet.proxies for member in fleet.having(role)]


@pytest.mark.parametrize("refusal", REFUSALS)
async def test_what_runs_while_redis_refuses_writes_is_called_once(fleet: ProxiedFleet, refusal: str) -> None:
    """F17: for longer than a lease no worker can renew one, and all of them live."""
    graph = WIDE[:4]
    before = len(fleet.service.calls)
    fleet.service.hold()
    execution = await fleet.api.start(definition(fleet, graph))
    await fleet.service.came(before + len(graph))
    begin, end = REFUSALS[refusal]
    await asyncio.to_thread(begin, fleet.server)
    await asyncio.sleep(2 * LEASE_SECONDS)
    status, readiness, _ = await fleet.api.call("GET", "/readyz")
    assert (status, readiness["checks"]["store"]["ok"]) == (503, False)
    await asyncio.to_thread(end, fleet.server)
    # Long enough for a sweep to find what expired meanwhile.
    await asyncio.sleep(LEASE_SECONDS / 2)
    fleet.service.release()
    (shown,) = await fleet.check(execution, graph=graph)
    assert {node["attempt"] for node in shown["nodes"]} == {1}
    assert len(fleet.service.calls) == before + len(graph)


async def test_a_member_that_is_told_to_stop_does_not_wait_for_a_redis_that_is_silent(
    fleet: ProxiedFleet,
) -> None:
    """F09, F10 without Redis: each ends with its grace time, and what the worker ran is run by another."""
    execution = await fleet.api.start(
        {"nodes": [{"id": "long", "handler": "hold", "config": {"seconds": 6}}]}
    )
    await fleet.running_on(execution, "long")
    leaving = [fleet.worker, fleet.orchestrator]
    for role in ("worker", "orchestrator"):
        fleet.proxies[role].blackhole()
    loop = asyncio.get_running_loop()
    asked_at = loop.time()
    assert await asyncio.gather(*(member.stop() for member in leaving)) == [0, 0]
    # Redis is taken to be away after ten seconds without an answer.
    assert loop.time() - asked_at < 10
    for role in ("worker", "orchestrator"):
        fleet.proxies[role].heal()
    await fleet.start(*ORDINARY, apis=0)
    await fleet.check(execution, faults=1)


# -- F19 -------------------------------------------------------------------------------------------------


async def test_scripts_that_are_forgotten_again_and_again_are_told_again(fleet: ProxiedFleet) -> None:
    """F19: in the middle of pipelines, too; nothing is done twice for it."""
    flushes = 0

    async def forget() -> None:
        nonlocal flushes
        while True:
            fleet.redis.script_flush()
            flushes += 1
            await asyncio.sleep(0.001)

    forgetting = asyncio.create_task(forget())
    executions: list[str] = []
    # A busy machine forgets its scripts less often during an execution: then it takes more executions.
    while flushes <= 100:
        started = [await fleet.api.start(definition(fleet, MIXED)) for _ in range(3)]
        await fleet.settle(*started)
        executions += started
    forgetting.cancel()
    await fleet.check(*executions, graph=MIXED)


# -- F20: everything twice -------------------------------------------------------------------------------


async def test_every_task_and_every_result_that_comes_twice_counts_once(fleet: ProxiedFleet) -> None:
    """F20: whoever is to read a stream is stopped until each of its entries is there a second time."""
    graph = layered(2, 4)
    layers = [1, 4, 4, 1]
    before = len(fleet.service.calls)
    worker, orchestrator = fleet.worker, fleet.orchestrator
    worker.freeze()
    execution = await fleet.api.start(definition(fleet, graph))
    for number, count in enumerate(layers):
        await has(fleet, TASKS, count)
        # What led to them is acknowledged last.
        await has(fleet, RESULTS, 0)
        add_again(fleet, TASKS)
        orchestrator.freeze()
        worker.thaw()
        # The second of each is refused, whether it comes while the first runs or after that.
        await has(fleet, RESULTS, count)
        await has(fleet, TASKS, 0)
        if number < len(layers) - 1:
            worker.freeze()
        add_again(fleet, RESULTS)
        orchestrator.thaw()
    await fleet.check(execution, graph=graph)
    assert len(fleet.service.calls) == before + len(graph)
    assert "result.discarded" not in await fleet.events(execution)


def add_again(fleet: ProxiedFleet, stream: str) -> None:
    for _, fields in fleet.entries(stream):
        fleet.redis.xadd(stream, dict(fields))  # type: ignore[arg-type]


# -- F21: out of order -----------------------------------------------------------------------------------

# Tasks on this queue are taken by the tests.
BY_HAND = "by-hand"
LANE = f"weft:{{p0}}:tasks:{BY_HAND}|echo|1"


async def task_of(fleet: ProxiedFleet, execution: str, node_id: str, attempt: int = 1) -> Task:
    """Take the task of an attempt, as a worker does, once it is there."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            for entry, fields in fleet.entries(LANE):
                task = unpack_task(fields[b"m"])
                if (task.execution_id, task.node_id, task.attempt) == (execution, node_id, attempt):
                    fleet.redis.xdel(LANE, entry)
                    return task
            await asyncio.sleep(0.01)


def result_of(fleet: ProxiedFleet, task: Task, **fields: Any) -> Result:
    """Make the result that a worker would give, with its output or error."""
    seconds, microseconds = fleet.redis.time()
    now = seconds * MICROSECONDS + microseconds
    about = {
        name: getattr(task, name)
        for name in ("execution_id", "generation", "node_id", "attempt", "digest", "failures", "losses")
    }
    times = {"queued_at": task.queued_at, "started_at": now, "finished_at": now}
    return Result(**{**about, **times, "worker": BY_HAND, "signature": task.signature, **fields})


def publish(fleet: ProxiedFleet, *results: Result | Wake) -> None:
    """Put results into the stream in this order, so that they are read together."""
    with fleet.redis.pipeline(transaction=True) as pipeline:
        for result in results:
            pipeline.xadd(RESULTS, {"m": pack(result)})
        pipeline.execute()


FAILURE = {"code": "handler_error", "message": "not this time", "retryable": True}


async def test_results_in_any_order_leave_the_one_of_the_current_attempt(fleet: ProxiedFleet) -> None:
    """F21: an older attempt after the newer one, a parent once more after its child."""
    nodes: list[dict[str, Any]] = [
        {"id": "a", "retry": {"base_delay_seconds": 0}},
        {"id": "b", "dependencies": ["a"], "config": "{{ a }}"},
        {"id": "c", "dependencies": ["a", "b"], "config": "{{ b }}"},
    ]
    document = {"nodes": [{"handler": "echo", "queue": BY_HAND, "config": 0, **node} for node in nodes]}

    async def play(order: Sequence[int]) -> str:
        execution = await fleet.api.start(document)
        first = await task_of(fleet, execution, "a")
        publish(fleet, result_of(fleet, first, error=FAILURE))
        second = await task_of(fleet, execution, "a", attempt=2)
        late = [
            result_of(fleet, second, output=b"2"),
            result_of(fleet, first, output=b"1"),
            result_of(fleet, first, error=FAILURE),
        ]
        publish(fleet, *(late[number] for number in order))
        child = await task_of(fleet, execution, "b")
        assert child.config == b"2"
        publish(fleet, result_of(fleet, child, output=b"3"), *late)
        last = await task_of(fleet, execution, "c")
        assert last.config == b"3"
        publish(fleet, *late, result_of(fleet, last, output=b"4"), result_of(fleet, child, output=b"5"))
        return execution

    executions = await asyncio.gather(*(play(order) for order in permutations(range(3))))
    for shown in await fleet.check(*executions, faults=1):
        assert [(node["attempt"], node["output"]) for node in shown["nodes"]] == [(2, 2), (1, 3), (1, 4)]
        assert fleet.redis.xlen(LANE) == 0


# -- F23 -------------------------------------------------------------------------------------------------

RESULTS_IN_ALL, AT_ONCE, NODES = int(os.environ.get("WEFT_TEST_RESULTS", "20000")), 4, 500


async def test_streams_hold_what_is_under_way_and_no_more(fleet: ProxiedFleet) -> None:
    """F23: thousands of results, and nothing that was not acknowledged is ever cut off."""
    document = {"nodes": [{"id": f"n{number}", "handler": "echo", "config": 0} for number in range(NODES)]}
    lengths = []

    async def sample() -> None:
        lane = "weft:{p0}:tasks:echo|echo|1"
        while True:
            lengths.append(fleet.redis.xlen(RESULTS) + fleet.redis.xlen(lane))
            await asyncio.sleep(0.01)

    places = asyncio.Semaphore(AT_ONCE)

    async def one() -> str:
        async with places:
            execution = await fleet.api.start(document)
            (shown,) = await fleet.settle(execution)
            assert {node["attempt"] for node in shown["nodes"]} == {1}
            return execution

    sampling = asyncio.create_task(sample())
    executions = await asyncio.gather(*(one() for _ in range(RESULTS_IN_ALL // NODES)))
    sampling.cancel()
    # A task, its result, and a hint for each execution; not each at the same time.
    assert max(lengths) <= AT_ONCE * (NODES + 1) + SLOTS
    assert max(lengths) > NODES / 2
    await fleet.quiet()
    assert fleet.redis.xlen(RESULTS) == 0
    await fleet.check(*executions[-AT_ONCE:])


# -- F26 -------------------------------------------------------------------------------------------------

# To a beat belong two calls, one after the other: in all, less than a lease goes by between two of them.
LATE = {
    "WEFT_WORKER_HEARTBEAT_INTERVAL": "0.5",
    "WEFT_WORKER_HEARTBEAT_TIMEOUT": "7",
    "WEFT_ORCHESTRATOR_STALE_RESULT_TIMEOUT": "12",
    "WEFT_ORCHESTRATOR_STALE_CLAIM_INTERVAL": "1",
}


async def test_a_redis_that_answers_late_costs_no_lease_and_nothing_is_done_twice(
    postgres_server: PostgresServer, migrated: str, tmp_path: Path
) -> None:
    """F26: two seconds late, for longer than a lease, with calls under way and results to come."""
    with RedisServer() as server:
        async with proxied_fleet(server, postgres_server, migrated, tmp_path, **LATE) as fleet:
            await fleet.start(*ORDINARY)
            fleet.service.hold()
            executions = [await fleet.api.start(definition(fleet, layered(1, 8))) for _ in range(SLOTS)]
            await fleet.service.came(SLOTS)
            for proxy in fleet.proxies.values():
                proxy.delay(1.0)
            await asyncio.sleep(1.2 * float(LATE["WEFT_WORKER_HEARTBEAT_TIMEOUT"]))
            fleet.service.release()
            # Results come, and an orchestrator takes them.
            await until(lambda: in_hand(fleet) > 0)
            for proxy in fleet.proxies.values():
                proxy.heal()
            await fleet.check(*executions, graph=layered(1, 8))


def in_hand(fleet: ProxiedFleet) -> int:
    """Return how many results an orchestrator has taken and not acknowledged."""
    (group,) = fleet.redis.xinfo_groups(RESULTS)
    return int(group["pending"])


# -- F27 -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("role", ["worker", "orchestrator"])
async def test_what_was_being_delivered_when_a_connection_broke_is_asked_for_again(
    role: str, fleet: ProxiedFleet
) -> None:
    """F27: it is not waited for until it is stale, and not done twice."""
    graph = layered(2, 4)
    proxy = fleet.proxies[role]
    before = len(fleet.service.calls)
    fleet.service.hold()
    execution = await fleet.api.start(definition(fleet, graph))
    await fleet.service.came(before + 1)
    # What names it next is a message about it, and it breaks off there.
    cuts = []
    fleet.service.release()
    for _ in range(4):
        cut = proxy.reset_on(execution.encode(), Direction.TO_CLIENT, delivered=False)
        cuts.append(cut)
        if not await asyncio.to_thread(cut.wait, 3.0):
            break
    assert cuts[0].is_set()
    proxy.heal()
    await fleet.check(execution, graph=graph)


# -- F28 -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("deny", "allow", "said"),
    [
        (("CONFIG", "SET", "requirepass", "other"), ("CONFIG", "SET", "requirepass", ""), "NOAUTH"),
        (("ACL", "SETUSER", "default", "-evalsha"), ("ACL", "SETUSER", "default", "+evalsha"), "NOPERM"),
        (("REPLICAOF", "127.0.0.1", "1"), ("REPLICAOF", "NO", "ONE"), "READONLY"),
    ],
)
async def test_a_redis_that_refuses_is_said_to_and_is_used_again_when_it_no_longer_does(
    deny: Sequence[str], allow: Sequence[str], said: str, fleet: ProxiedFleet
) -> None:
    """F28: not ready for a reason, asked twice a second at most, and nothing is lost."""
    graph = layered(1, 4)
    before = len(fleet.service.calls)
    fleet.service.hold()
    execution = await fleet.api.start(definition(fleet, graph))
    await fleet.service.came(before + 1)
    fleet.redis.execute_command(*deny)  # type: ignore[no-untyped-call]
    try:
        for proxy in fleet.proxies.values():
            proxy.reset()
        async with asyncio.timeout(PATIENCE_SECONDS):
            while (await fleet.api.call("GET", "/readyz"))[0] != 503:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        began_at = asyncio.get_running_loop().time()
        asked = {role: len(proxy.attempts) for role, proxy in fleet.proxies.items()}
        submitted = await fleet.api.start(definition(fleet, graph))
        await until(lambda: all(any(said in str(line) for line in member.log) for member in working(fleet)))
        await asyncio.sleep(1)
        seconds = asyncio.get_running_loop().time() - began_at
        for role, proxy in fleet.proxies.items():
            # And once for each connection that it had, where only some commands are refused.
            assert len(proxy.attempts) - asked[role] <= 2 * seconds + 5, role
    finally:
        fleet.redis.execute_command(*allow)  # type: ignore[no-untyped-call]
    fleet.service.release()
    await fleet.check(execution, graph=graph, faults=1)
    await fleet.check(submitted, graph=graph)


# -- F94, F95: what others put there ---------------------------------------------------------------------


class Canary:
    """Makes a file if anybody unpickles it."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> Any:
        return (Path.touch, (self._path,))


async def test_what_others_put_into_the_streams_is_put_aside_and_changes_nothing(
    fleet: ProxiedFleet, tmp_path: Path
) -> None:
    """F94, F95: garbage, code, and results without the signature of their attempt."""
    canary = tmp_path / "canary"
    execution = await fleet.api.start(
        {
            "nodes": [
                {"id": "a", "handler": "echo", "queue": BY_HAND, "config": 1},
                {"id": "b", "handler": "echo", "dependencies": ["a"], "config": "{{ a }}"},
            ]
        }
    )
    task = await task_of(fleet, execution, "a")
    garbage = [
        pickle.dumps(Canary(canary)),
        b"!!python/object/apply:pathlib.Path.touch [canary]",
        b'{"class": "os.system", "args": ["touch canary"]}',
        b"",
        b"\xc1" * 100,
        b"\x91" * 100_000,
        bytes(8 * 2**20),
        pack(result_of(fleet, task, output=b"1"))[:-3],
        b"\x93\x63" + pack(result_of(fleet, task, output=b"1"))[2:],
    ]
    wrong = {"output": b'"forged"', "signature": b""}
    other = make_signer(b"guessed")(execution, 1, "a", 1)
    forged = [
        result_of(fleet, task, **wrong),
        result_of(fleet, task, **{**wrong, "signature": other}),
        # Sealed for another attempt, generation, node, execution.
        *(
            result_of(fleet, task, **{"output": b'"forged"', **fields})
            for fields in (
                {"attempt": 2},
                {"generation": 2},
                {"node_id": "b"},
                {"node_id": "nobody"},
                {"execution_id": "0" * 32},
                {"digest": "0" * 64},
                {"attempt": 2, "error": {"code": "handler_error", "message": "", "retryable": False}},
                {"attempt": 2, "lost": True},
            )
        ),
    ]
    warned = len(fleet.orchestrator.events("result.quarantined"))
    for raw in garbage:
        for stream in (RESULTS, TASKS):
            fleet.redis.xadd(stream, {"m": raw})
    fleet.redis.xadd(RESULTS, {"other": "field"})
    fleet.redis.xadd(TASKS, {"m": pack(task), "q": "0"})
    fleet.redis.xadd(RESULTS, {"m": pack(task)})
    publish(fleet, *forged, Wake("0" * 32, 1, task.digest), Wake(execution, 7, task.digest))
    # And one that has the fleet's own key, for what there is not.
    signature = make_signer(await fleet.journal.signing_key())
    unknown = ("0" * 32, 1, "a", 1)
    publish(fleet, result_of(fleet, task, execution_id="0" * 32, output=b"1", signature=signature(*unknown)))
    await until(lambda: fleet.redis.xlen(RESULTS) == 0 and fleet.redis.xlen(TASKS) == 0)
    assert not canary.exists()
    assert await fleet.events(execution) == ["execution.created", "execution.started"]
    aside = [fields[b"stream"].decode() for _, fields in fleet.entries(QUARANTINE)]
    assert sorted(aside) == [RESULTS] * (len(garbage) + 2) + [TASKS] * (len(garbage) + 1)
    assert len(fleet.orchestrator.events("result.quarantined")) == warned + len(forged)
    # Whoever reads goes on.
    publish(fleet, result_of(fleet, task, output=b'"true"'))
    fleet.redis.delete(QUARANTINE)
    (shown,) = await fleet.check(execution)
    assert [(node["attempt"], node["output"]) for node in shown["nodes"]] == [(1, "true"), (1, "true")]
