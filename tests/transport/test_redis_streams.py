"""What Redis streams make easy to get wrong, with a real server."""

from __future__ import annotations

import asyncio
import pickle
import random
import re
from typing import TYPE_CHECKING, Any

import pytest
from tests.store.refusing import REFUSALS
from tests.support.fault_proxy import FaultProxy
from tests.support.servers.redis_cluster import RedisCluster

from weft.core.task import PRIORITIES, Wake
from weft.envelope import VERSION, pack, pack_all
from weft.errors import StoreError
from weft.redis.connection import Redis, ReplyError
from weft.redis.keys import partition_of
from weft.redis.slots import slot_of
from weft.testing.transport_contract import a_result, a_task, fetch, numbers, turns
from weft.transport.redis import streams as redis_streams
from weft.transport.redis.streams import RedisStreams

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.support.servers.redis import RedisServer

    from weft.core.task import Task
    from weft.transport.contract import MessageDelivery

PATIENCE_SECONDS = 20.0
RESULTS = "weft:{p0}:results"
LANE = "weft:{p0}:tasks:q|echo|1"


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    redis = Redis(redis_url)
    yield redis
    await redis.close()


@pytest.fixture
async def other(redis_url: str) -> AsyncIterator[Redis]:
    """Another process's connection."""
    redis = Redis(redis_url)
    yield redis
    await redis.close()


@pytest.fixture
def transport(redis: Redis) -> RedisStreams:
    return RedisStreams(redis)


async def is_waiting(redis: Redis, count: int = 1) -> None:
    """Return when so many clients of the server are waiting for something."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while f"blocked_clients:{count}\r\n".encode() not in await redis.call("INFO", "clients"):  # noqa: ASYNC110
            await asyncio.sleep(0.002)


async def read(transport: RedisStreams, consumer: str = "o", **more: Any) -> list[MessageDelivery]:
    async with asyncio.timeout(PATIENCE_SECONDS):
        return list(await transport.read(consumer, **{"limit": 1000, "wait_seconds": 0, **more}))


def entry_of(delivery: MessageDelivery) -> bytes:
    """Return the id of an entry in its stream."""
    assert isinstance(delivery.id, tuple)
    return delivery.id[2]


async def pending(redis: Redis, stream: str, group: str) -> int:
    count: int = (await redis.call("XPENDING", stream, group))[0]
    return count


# -- what a stream holds ---------------------------------------------------------------------------


async def test_a_stream_holds_what_is_undelivered_or_in_hand_and_nothing_else(
    transport: RedisStreams, redis: Redis
) -> None:
    await transport.send([a_task(number) for number in range(10)])
    await transport.publish([a_result(number) for number in range(10)])
    taken = await fetch(transport, limit=4)
    done = await read(transport, limit=4)
    assert await redis.call("XLEN", LANE) == await redis.call("XLEN", RESULTS) == 10
    await transport.ack_tasks("w", [one.id for one in taken])
    await transport.ack("o", [one.id for one in done])
    assert await redis.call("XLEN", LANE) == await redis.call("XLEN", RESULTS) == 6
    assert await pending(redis, LANE, "workers") == await pending(redis, RESULTS, "orchestrators") == 0


async def test_a_task_was_queued_when_the_server_says(transport: RedisStreams, redis: Redis) -> None:
    await transport.send([a_task(0)])
    await redis.call("XADD", LANE, "*", "m", pack(a_task(1)), "q", "1800000000000000")
    assert [one.task for one in await fetch(transport)] == [
        a_task(0),
        a_task(1, queued_at=1_800_000_000_000_000),
    ]


# -- claiming --------------------------------------------------------------------------------------


async def test_one_that_is_stale_is_found_behind_thousands_that_are_not(
    transport: RedisStreams, redis: Redis
) -> None:
    await transport.publish([a_result(number) for number in range(5001)])
    taken = [one for _ in range(6) for one in await read(transport, "busy")]
    assert len(taken) == 5001
    last = entry_of(taken[-1])
    await redis.call("XCLAIM", RESULTS, "orchestrators", "busy", 0, last, "IDLE", 60_000, "JUSTID")
    messages, _ = await transport.claim("lives", idle_seconds=30, limit=10)
    assert [one.message for one in messages] == [a_result(5000)]


async def test_what_was_deleted_in_somebodys_hand_is_forgotten(transport: RedisStreams, redis: Redis) -> None:
    await transport.publish([a_result(number) for number in range(5)])
    taken = await read(transport, "dies")
    await redis.call("XDEL", RESULTS, *(entry_of(one) for one in taken[:4]))
    messages, _ = await transport.claim("lives", idle_seconds=0, limit=2)
    assert [one.message for one in messages] == [a_result(4)]
    assert await pending(redis, RESULTS, "orchestrators") == 1


async def test_a_claim_looks_through_every_lane(transport: RedisStreams) -> None:
    tasks = [a_task(number, queue=f"q{number % 7}", priority=number % 3) for number in range(42)]
    await transport.send(tasks)
    assert len(await fetch(transport, "dies")) == 42
    seen: list[int] = []
    while claimed := (await transport.claim("lives", idle_seconds=0, limit=5))[1]:
        assert len(claimed) <= 5
        await transport.ack_tasks("lives", [one.id for one in claimed])
        seen += numbers(claimed)
    assert sorted(seen) == list(range(42))


# -- a flush, a deletion, a restart ----------------------------------------------------------------


@pytest.mark.parametrize("command", [("FLUSHALL",), ("DEL", LANE, RESULTS)], ids=["flush", "deletion"])
async def test_whoever_waits_outlives(
    command: tuple[str, ...], transport: RedisStreams, redis: Redis, other: Redis
) -> None:
    await transport.send([a_task(0)])
    await transport.ack_tasks("w", [one.id for one in await fetch(transport)])
    worker = asyncio.create_task(fetch(transport, wait_seconds=PATIENCE_SECONDS))
    orchestrator = asyncio.create_task(read(transport, wait_seconds=PATIENCE_SECONDS))
    await is_waiting(redis, 2)
    await other.call("CONFIG", "RESETSTAT")
    await other.call(*command)
    await is_waiting(redis, 2)
    # No hot loop: it asked anew a few times, and waits.
    calls = [
        line
        for line in (await redis.call("INFO", "commandstats")).decode().splitlines()
        if line.startswith("cmdstat_xreadgroup:")
    ]
    assert not calls or int(calls[0].split("calls=")[1].split(",")[0]) < 50
    sender = RedisStreams(other)
    await sender.send([a_task(1)])
    await sender.publish([a_result(1)])
    async with asyncio.timeout(PATIENCE_SECONDS):
        assert numbers(await worker) == [1]
        assert [one.message for one in await orchestrator] == [a_result(1)]


async def test_nothing_is_lost_where_the_scripts_and_groups_are(
    transport: RedisStreams, redis: Redis
) -> None:
    await transport.send([a_task(0)])
    await transport.publish([a_result(0)])
    await redis.call("SCRIPT", "FLUSH")
    assert numbers(await fetch(transport)) == [0]
    assert len(await read(transport)) == 1
    await redis.call("FLUSHALL")
    await redis.call("SCRIPT", "FLUSH")
    assert await fetch(transport) == []
    assert await transport.claim("o", idle_seconds=0, limit=10) == ([], [])
    assert list(await transport.queues()) == []
    await transport.send([a_task(1)])
    assert numbers(await fetch(transport)) == [1]


async def test_a_server_that_restarts_is_used_again(private_redis: RedisServer) -> None:
    redis = Redis(private_redis.url)
    transport = RedisStreams(redis)
    await transport.send([a_task(0), a_task(1)])
    (first,) = await fetch(transport, limit=1)
    waiting = asyncio.create_task(read(transport, wait_seconds=PATIENCE_SECONDS))
    await is_waiting(redis)
    private_redis.stop()
    with pytest.raises(StoreError):
        await waiting
    with pytest.raises(StoreError):
        await fetch(transport)
    private_redis.start()
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            try:
                # The first is in hand here, and is not given twice.
                assert numbers(await fetch(transport)) == [1]
                break
            except StoreError:
                await asyncio.sleep(0.05)
    await transport.ack_tasks("w", [first.id])
    await redis.close()


# -- what is one's own -----------------------------------------------------------------------------


async def test_a_consumer_that_comes_back_first_asks_for_what_is_its_own(
    transport: RedisStreams, other: Redis
) -> None:
    await transport.send([a_task(number) for number in range(3)])
    await transport.publish([a_result(number) for number in range(3)])
    former = RedisStreams(other)
    assert numbers(await fetch(former, limit=2)) == [0, 1]
    assert len(await read(former, limit=2)) == 2
    assert numbers(await fetch(transport, limit=1)) == [0]
    assert numbers(await fetch(transport, limit=1)) == [1]
    assert numbers(await fetch(transport)) == [2]
    assert [one.message for one in await read(transport, limit=2)] == [a_result(0), a_result(1)]
    assert [one.message for one in await read(transport)] == [a_result(2)]
    assert (await fetch(transport), await read(transport)) == ([], [])


async def test_what_was_delivered_and_did_not_come_is_asked_for_after_an_error(
    transport: RedisStreams, redis: Redis, other: Redis
) -> None:
    await transport.send([a_task(0)])
    await transport.publish([a_result(0)])
    in_hand = (await fetch(transport), await read(transport))
    assert all(in_hand)
    worker = asyncio.create_task(fetch(transport, wait_seconds=PATIENCE_SECONDS))
    orchestrator = asyncio.create_task(read(transport, wait_seconds=PATIENCE_SECONDS))
    await is_waiting(redis, 2)
    # The server gives them to this consumer, and the answers are lost with the connections.
    task, result = pack(a_task(1)), pack(a_result(1))
    given = ("XREADGROUP", "GROUP")
    replies = await other.run(
        [
            ("MULTI",),
            ("XADD", LANE, "*", "m", task, "q", a_task(1).queued_at),
            (*given, "workers", "w", "STREAMS", LANE, ">"),
            ("XADD", RESULTS, "*", "m", result),
            (*given, "orchestrators", "o", "STREAMS", RESULTS, ">"),
            ("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"),
            ("EXEC",),
        ]
    )
    assert replies[-1][-1] >= 2
    for waiting in (worker, orchestrator):
        with pytest.raises(StoreError):
            await waiting
    # What is in hand is not given again, and what did not come is.
    assert numbers(await fetch(transport)) == [1]
    assert [one.message for one in await read(transport)] == [a_result(1)]
    assert (await fetch(transport), await read(transport)) == ([], [])


async def test_what_was_read_and_not_acknowledged_is_given_again(transport: RedisStreams) -> None:
    await transport.publish([a_result(number) for number in range(4)])
    taken = await read(transport)
    await transport.ack("o", [taken[1].id])
    assert list(await transport.unacknowledged("o", limit=2)) == [taken[0], taken[2]]
    assert list(await transport.unacknowledged("o", limit=10)) == [taken[0], taken[2], taken[3]]
    assert list(await transport.unacknowledged("another", limit=10)) == []


@pytest.mark.parametrize("refusal", ["MISCONF", "READONLY"])
async def test_what_was_acknowledged_while_redis_refused_writes_is_given_again(
    private_redis: RedisServer, refusal: str
) -> None:
    redis = Redis(private_redis.url)
    transport = RedisStreams(redis)
    await transport.send([a_task(0)])
    await transport.publish([a_result(0)])
    tasks, results = await fetch(transport), await read(transport)
    begin, end = REFUSALS[refusal]
    begin(private_redis)
    await transport.ack_tasks("w", [one.id for one in tasks])
    await transport.ack("o", [one.id for one in results])
    # The answer to this comes behind those to the acknowledgements.
    await redis.call("TIME")
    end(private_redis)
    assert await fetch(transport) == tasks
    assert await read(transport) == results
    await transport.ack_tasks("w", [one.id for one in tasks])
    await transport.ack("o", [one.id for one in results])
    assert (await fetch(transport), await read(transport)) == ([], [])
    assert await pending(redis, LANE, "workers") == await pending(redis, RESULTS, "orchestrators") == 0
    await redis.close()


async def test_an_acknowledgement_that_redis_does_not_hear_is_no_error_and_its_task_comes_again(
    redis_url: str,
) -> None:
    """Whoever acknowledges has started what it was given, and must not forget it for that."""
    with FaultProxy(redis_url) as proxy:
        redis = Redis(proxy.url)
        transport = RedisStreams(redis)
        await transport.send([a_task(0)])
        taken = await fetch(transport)
        proxy.refuse()
        proxy.reset()
        with pytest.raises(StoreError):
            await redis.call("PING")
        await transport.ack_tasks("w", [one.id for one in taken])
        proxy.heal()
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not await is_there(redis):  # noqa: ASYNC110 - it is looked for twice a second at most
                await asyncio.sleep(0.05)
        assert await fetch(transport) == taken
        await redis.close()


async def is_there(redis: Redis) -> bool:
    try:
        await redis.call("PING")
    except StoreError:
        return False
    return True


# -- giving up and leaving -------------------------------------------------------------------------


async def test_a_fetch_that_is_given_up_in_the_midst_of_things_leaves_nothing_in_hand(
    transport: RedisStreams, redis: Redis, other: Redis
) -> None:
    sender = RedisStreams(other)
    got: list[int] = []
    for number in range(60):
        fetching = asyncio.create_task(
            fetch(transport, limit=2, handlers=["q", "echo"], wait_seconds=PATIENCE_SECONDS)
        )
        sending = asyncio.create_task(sender.send([a_task(number)]))
        for _ in range(number % 20):
            await asyncio.sleep(0)
        fetching.cancel()
        try:
            taken = await fetching
            got += numbers(taken)
            await transport.ack_tasks("w", [one.id for one in taken])
        except asyncio.CancelledError:
            pass
        await sending
        (queue,) = await transport.queues()
        assert queue.in_flight == 0
    got += numbers(await fetch(transport, "another"))
    assert sorted(got) == list(range(60))


async def test_who_leaves_gives_its_tasks_back_and_is_forgotten(
    transport: RedisStreams, redis: Redis
) -> None:
    await transport.send([a_task(0), a_task(1, queue="other")])
    await transport.publish([a_result(0)])
    assert len(await fetch(transport, "stops", handlers=["echo", "never_used"])) == 2
    await read(transport, "stops")
    await transport.leave("stops")
    assert sorted(numbers(await fetch(transport, "stays"))) == [0, 1]
    never_used = "weft:{p0}:tasks:never_used|never_used|1"
    for stream in (LANE, "weft:{p0}:tasks:other|echo|1"):
        consumers = await redis.call("XINFO", "CONSUMERS", stream, "workers")
        assert [one[1] for one in consumers] == [b"stays"]
    assert not await redis.call("EXISTS", never_used)
    # A message is not given back: it may have been taken half the way.
    (consumer,) = await redis.call("XINFO", "CONSUMERS", RESULTS, "orchestrators")
    assert consumer[1] == b"stops"
    messages, _ = await transport.claim("stays", idle_seconds=0, limit=10)
    await transport.ack("stays", [one.id for one in messages])
    await transport.leave("stops")
    await transport.leave("stays")
    assert await redis.call("XINFO", "CONSUMERS", RESULTS, "orchestrators") == []


async def test_consumers_that_are_gone_are_removed_and_none_that_holds_something(
    redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_streams, "TIDY_SECONDS", 0.0)
    transport = RedisStreams(redis, gone_seconds=0.0)
    await transport.send([a_task(number) for number in range(3)])
    await transport.publish([a_result(number) for number in range(3)])
    holders = [await fetch(transport, f"holds{n}", limit=1) for n in range(3)]
    readers = [await read(transport, f"holds{n}", limit=1) for n in range(3)]
    for number in range(200):
        await fetch(transport, f"once{number}")
        await read(transport, f"once{number}")
    assert await transport.claim("o", idle_seconds=3600, limit=10) == ([], [])
    for stream, group in ((LANE, "workers"), (RESULTS, "orchestrators")):
        consumers = await redis.call("XINFO", "CONSUMERS", stream, group)
        assert {one[1] for one in consumers} <= {b"holds0", b"holds1", b"holds2", b"o"}
        assert await pending(redis, stream, group) == 3
    # What they hold is still to be had.
    messages, tasks = await transport.claim("o", idle_seconds=0, limit=10)
    assert (len(messages), len(tasks)) == (3, 3)
    del holders, readers


# -- garbage ---------------------------------------------------------------------------------------


class Canary:
    """Bytes that would leave a trace if anybody made objects of them."""

    hatched = False

    def __reduce__(self) -> tuple[Any, ...]:
        return setattr, (Canary, "hatched", True)


GARBAGE: list[tuple[bytes | str, ...]] = [
    ("m", b""),
    ("m", b"\xff\xfe"),
    ("m", b"!!python/object/apply:os.system [true]"),
    ("m", pickle.dumps(Canary())),
    ("m", b'{"execution_id":"x1"}'),
    ("m", pack(Wake("x1", 1, "d"))[:-1]),
    ("m", b"\x93" + bytes([VERSION + 1]) + pack(Wake("x1", 1, "d"))[2:]),
    ("m", b"\x91" * 5000),
    ("m", b"\xdd\xff\xff\xff\xff"),
    ("m", b"x" * 1_000_000),
    ("n", b"no message"),
    ("n", b"1", "m", b"\xc1"),
]


async def test_garbage_is_put_aside_and_the_reader_goes_on(
    transport: RedisStreams, redis: Redis, caplog: pytest.LogCaptureFixture
) -> None:
    await transport.send([a_task(0)])
    await transport.publish([a_result(0)])
    strange_tasks: list[tuple[bytes | str | int, ...]] = [
        ("m", pack(a_task(8))),
        ("m", pack(a_task(8)), "q", "soon"),
        ("m", pack(a_task(8)), "q", "-1"),
        ("m", pack(a_task(8)), "q", "9" * 30),
        ("m", pack(a_task(8)), "q", "9" * 5000),
        ("m", pack(a_task(8, handler="other")), "q", "1"),
        ("m", pack(a_task(8, queue="other")), "q", "1"),
        ("m", pack(a_task(8, priority=2)), "q", "1"),
        ("m", pack(a_result(8)), "q", "1"),
    ]
    strange_results: list[tuple[bytes | str | int, ...]] = [("m", pack(a_task(8)))]
    for fields in (*GARBAGE, *strange_tasks):
        await redis.call("XADD", LANE, "*", *fields)
    for fields in (*GARBAGE, *strange_results):
        await redis.call("XADD", RESULTS, "*", *fields)
    await transport.send([a_task(1)])
    await transport.publish([a_result(1)])
    assert numbers(await fetch(transport, limit=100)) == [0, 1]
    assert [one.message for one in await read(transport)] == [a_result(0), a_result(1)]
    assert await redis.call("XLEN", LANE) == await redis.call("XLEN", RESULTS) == 2
    put_aside = await redis.call("XRANGE", "weft:{p0}:quarantine", "-", "+")
    assert len(put_aside) == 2 * len(GARBAGE) + len(strange_tasks) + len(strange_results)
    assert max(len(fields[-1]) for _, fields in put_aside) == 64 * 1024
    said = [record for record in caplog.records if record.message == "message.quarantined"]
    assert len(said) == len(put_aside)
    assert not Canary.hatched


async def test_garbage_alone_does_not_end_a_wait(transport: RedisStreams, redis: Redis, other: Redis) -> None:
    await transport.send([a_task(0)])
    await transport.ack_tasks("w", [one.id for one in await fetch(transport)])
    waiting = asyncio.create_task(fetch(transport, limit=1, wait_seconds=PATIENCE_SECONDS))
    await is_waiting(redis)
    await other.call("XADD", LANE, "*", "m", b"garbage")
    await is_waiting(redis)
    await RedisStreams(other).send([a_task(1)])
    assert numbers(await waiting) == [1]


async def test_garbage_in_somebodys_hand_is_put_aside_by_who_claims_it(
    transport: RedisStreams, redis: Redis
) -> None:
    await transport.publish([a_result(0)])
    for fields in GARBAGE:
        await redis.call("XADD", RESULTS, "*", *fields)
    await redis.call("XGROUP", "CREATE", RESULTS, "orchestrators", "0")
    await redis.call("XREADGROUP", "GROUP", "orchestrators", "dies", "STREAMS", RESULTS, ">")
    messages, _ = await transport.claim("lives", idle_seconds=0, limit=100)
    assert [one.message for one in messages] == [a_result(0)]
    assert await pending(redis, RESULTS, "orchestrators") == 1
    assert await redis.call("XLEN", "weft:{p0}:quarantine") == len(GARBAGE)


# -- several results in one entry ------------------------------------------------------------------


async def report(redis: Redis, *messages: bytes) -> None:
    """Append one entry with several messages, as a worker's report does."""
    await redis.call("XADD", RESULTS, "*", "m", pack_all(messages))


async def test_an_entry_is_acknowledged_with_the_last_of_its_results(
    transport: RedisStreams, redis: Redis
) -> None:
    await report(redis, *[pack(a_result(number)) for number in range(3)])
    await report(redis, pack(a_result(3)))
    taken = await read(transport)
    assert [one.message for one in taken] == [a_result(number) for number in range(4)]
    assert len({one.id for one in taken}) == 4
    await transport.ack("o", [taken[0].id, taken[2].id])
    assert await pending(redis, RESULTS, "orchestrators") == 2
    await transport.ack("o", [taken[0].id, taken[3].id])
    assert await pending(redis, RESULTS, "orchestrators") == 1
    await transport.ack("o", [taken[1].id])
    assert await pending(redis, RESULTS, "orchestrators") == await redis.call("XLEN", RESULTS) == 0


async def test_one_bad_result_of_an_entry_is_put_aside_alone(transport: RedisStreams, redis: Redis) -> None:
    await report(redis, pack(a_result(0)), b"garbage", pack(a_task(1)), pack(a_result(2)))
    taken = await read(transport)
    assert [one.message for one in taken] == [a_result(0), a_result(2)]
    put_aside = await redis.call("XRANGE", "weft:{p0}:quarantine", "-", "+")
    assert [fields[-1] for _, fields in put_aside] == [b"garbage", pack(a_task(1))]
    assert await pending(redis, RESULTS, "orchestrators") == 1
    await transport.ack("o", [one.id for one in taken])
    assert await pending(redis, RESULTS, "orchestrators") == await redis.call("XLEN", RESULTS) == 0


async def test_an_entry_of_nothing_but_garbage_is_gone(transport: RedisStreams, redis: Redis) -> None:
    await report(redis, b"garbage", b"more")
    await redis.call("XADD", RESULTS, "*", "m", pack_all([b"", b""])[:-2])
    assert await read(transport) == []
    assert await pending(redis, RESULTS, "orchestrators") == await redis.call("XLEN", RESULTS) == 0
    assert await redis.call("XLEN", "weft:{p0}:quarantine") == 3


async def test_an_entry_that_came_twice_is_acknowledged_for_each_of_its_results(
    transport: RedisStreams, redis: Redis
) -> None:
    """Claimed by who has it already: two acknowledgements of one result are none of the other."""
    await report(redis, pack(a_result(0)), pack(a_result(1)))
    first, second = await read(transport)
    await transport.ack("o", [first.id])
    again, _ = await transport.claim("o", idle_seconds=0, limit=10)
    assert [one.message for one in again] == [a_result(0), a_result(1)]
    await transport.ack("o", [first.id, again[0].id])
    assert await pending(redis, RESULTS, "orchestrators") == 1
    await transport.ack("o", [second.id, again[1].id])
    assert await pending(redis, RESULTS, "orchestrators") == 0


async def test_a_reader_of_full_entries_asks_for_fewer_of_them(transport: RedisStreams, redis: Redis) -> None:
    wires = [pack(a_result(number)) for number in range(50)]
    for _ in range(20):
        await report(redis, *wires)
    # It cannot know before it has read some that they are full.
    assert len(await read(transport, limit=1)) == 50
    taken = await read(transport, limit=100)
    assert len(taken) == 100
    await transport.ack("o", [one.id for one in taken])
    assert len(await read(transport, limit=10)) == 50


async def test_what_is_put_aside_does_not_grow_without_end(transport: RedisStreams, redis: Redis) -> None:
    for _ in range(30):
        await redis.run([("XADD", RESULTS, "*", "m", b"?")] * 100)
        assert await read(transport) == []
    assert 1000 <= await redis.call("XLEN", "weft:{p0}:quarantine") < 1500


async def test_lanes_that_are_none_are_passed_over(transport: RedisStreams, redis: Redis) -> None:
    await transport.send([a_task(0)])
    strange = ("", "q", "q|echo", "q|echo|9", "q|echo|x", "a|b|c|1", b"\xff|\xff|1", "q|no_stream|1")
    await redis.call("SADD", "weft:{p0}:lanes", *strange)
    await redis.call("SET", "weft:{p0}:tasks:q|no_stream|1", "a string")
    assert numbers(await fetch(transport, wait_seconds=1)) == [0]
    assert await fetch(transport, wait_seconds=0.05) == []
    assert sum(one.in_flight for one in await transport.queues()) == 1
    assert await transport.claim("o", idle_seconds=3600, limit=10) == ([], [])


async def test_a_result_stream_that_is_none_is_said(transport: RedisStreams, redis: Redis) -> None:
    await redis.call("SET", RESULTS, "a string")
    with pytest.raises(StoreError, match="WRONGTYPE"):
        await transport.read("o", limit=1, wait_seconds=0)
    with pytest.raises(StoreError, match="WRONGTYPE"):
        await transport.publish([a_result(0)])
    await redis.call("DEL", RESULTS)
    await transport.publish([a_result(0)])
    assert len(await transport.read("o", limit=1, wait_seconds=1)) == 1


async def test_a_lane_whose_key_was_no_stream_is_served_again_once_the_key_is_deleted(
    transport: RedisStreams, redis: Redis
) -> None:
    await redis.call("SET", LANE, "a string")
    await redis.call("SADD", "weft:{p0}:lanes", "q|echo|1")
    assert await fetch(transport, wait_seconds=0.05) == []
    await redis.call("DEL", LANE)
    await transport.send([a_task(0)])
    assert numbers(await fetch(transport, wait_seconds=PATIENCE_SECONDS)) == [0]


# -- lanes, limits and turns -----------------------------------------------------------------------


async def test_no_more_are_in_hand_than_were_asked_for_whatever_comes_at_once(
    transport: RedisStreams, redis: Redis, other: Redis
) -> None:
    lanes = [(f"q{number}", priority) for number in range(5) for priority in PRIORITIES.values()]
    await transport.send([a_task(0, queue=queue, priority=priority) for queue, priority in lanes])
    await transport.ack_tasks("w", [one.id for one in await fetch(transport)])
    sender = RedisStreams(other)
    for round_ in range(5):
        waiting = asyncio.create_task(fetch(transport, limit=2, wait_seconds=PATIENCE_SECONDS))
        await turns() if round_ % 2 else await is_waiting(redis)
        await sender.send([a_task(0, queue=queue, priority=priority) for queue, priority in lanes])
        taken = await waiting
        assert 1 <= len(taken) <= 2
        assert sum(one.in_flight for one in await transport.queues()) == len(taken)
        rest = await fetch(transport)
        assert len(taken) + len(rest) == len(lanes)
        await transport.ack_tasks("w", [one.id for one in (*taken, *rest)])


async def test_the_first_task_of_a_handlers_own_queue_does_not_wait_for_a_look_at_the_lanes(
    transport: RedisStreams, redis: Redis, other: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_streams, "LOOK_SECONDS", 10 * PATIENCE_SECONDS)
    waiting = asyncio.create_task(
        fetch(transport, handlers=["sleep", "echo"], wait_seconds=10 * PATIENCE_SECONDS)
    )
    await is_waiting(redis)
    await RedisStreams(other).send([a_task(0, queue="echo")])
    async with asyncio.timeout(PATIENCE_SECONDS):
        assert numbers(await waiting) == [0]


async def test_the_first_task_of_any_other_lane_waits_for_the_next_look(
    transport: RedisStreams, redis: Redis, other: Redis
) -> None:
    waiting = asyncio.create_task(fetch(transport, handlers=["echo"], wait_seconds=PATIENCE_SECONDS))
    await is_waiting(redis)
    await RedisStreams(other).send([a_task(0, queue="own", priority=PRIORITIES["high"])])
    assert numbers(await waiting) == [0]


async def test_one_who_waits_for_single_tasks_asks_once_for_each(
    transport: RedisStreams, redis: Redis, other: Redis
) -> None:
    sender, handlers = RedisStreams(other), ["echo"]

    async def scripts() -> int:
        found = re.search(rb"cmdstat_evalsha:calls=(\d+)", await other.call("INFO", "commandstats"))
        return int(found[1]) if found else 0

    looks = []
    for number in range(4):
        waiting = asyncio.create_task(fetch(transport, handlers=handlers, wait_seconds=PATIENCE_SECONDS))
        await is_waiting(other)
        looks.append(await scripts())
        await sender.send([a_task(number, queue="echo")])
        assert numbers(await waiting) == [number]
    assert looks[3] == looks[0]


async def test_a_new_lane_is_found_by_one_who_is_given_a_task_at_a_time_without_end(
    transport: RedisStreams, other: Redis
) -> None:
    sender, handlers = RedisStreams(other), ["echo"]
    is_over = asyncio.Event()

    async def feed() -> None:
        while not is_over.is_set():
            await is_waiting(other)
            await sender.send([a_task(0, queue="echo")])

    feeding = asyncio.create_task(feed())
    await fetch(transport, handlers=handlers, wait_seconds=PATIENCE_SECONDS)
    await sender.send([a_task(7, queue="own")])
    async with asyncio.timeout(PATIENCE_SECONDS):
        while 7 not in numbers(await fetch(transport, handlers=handlers, wait_seconds=PATIENCE_SECONDS)):
            pass
    is_over.set()
    await transport.close()
    feeding.cancel()


async def test_handlers_of_one_queue_share_it(transport: RedisStreams) -> None:
    tasks = [a_task(number, handler="much") for number in range(50)]
    await transport.send([*tasks, a_task(100, handler="little")])
    assert 100 in numbers(await fetch(transport, limit=4))


async def test_partitions_share_what_is_taken_and_all_of_it_is_delivered(redis_url: str) -> None:
    redis = Redis(redis_url, partitions=4)
    transport = RedisStreams(redis)
    tasks: list[Task] = [a_task(number, execution_id=f"x{number % 40}") for number in range(400)]
    await transport.send(tasks)
    await transport.publish([a_result(number, execution_id=f"x{number % 40}") for number in range(400)])
    first = await fetch(transport, limit=8)
    assert {partition_of(one.task.execution_id, 4) for one in first} == {0, 1, 2, 3}
    got = first
    messages: list[MessageDelivery] = []
    while len(got) < 400:
        got += await fetch(transport, limit=17)
    while len(messages) < 400:
        messages += await read(transport, limit=17)
    assert sorted(numbers(got)) == list(range(400))
    (queue,) = await transport.queues()
    assert (queue.depth, queue.in_flight, queue.oldest_at) == (0, 400, None)
    await transport.ack_tasks("w", [one.id for one in got])
    await transport.ack("o", [one.id for one in messages])
    assert await transport.claim("o", idle_seconds=0, limit=10) == ([], [])
    for number in range(4):
        waiting = asyncio.create_task(read(transport, limit=1, wait_seconds=PATIENCE_SECONDS))
        await is_waiting(redis, 4)
        execution = next(f"x{n}" for n in range(40) if partition_of(f"x{n}", 4) == number)
        await transport.publish([a_result(number, execution_id=execution)])
        assert [one.message.execution_id for one in await waiting] == [execution]
    await is_waiting(redis, 0)
    await redis.close()


async def test_all_partitions_are_asked_at_once(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One after the other, each would add a round trip to every look."""
    redis = Redis(redis_url, partitions=8)
    transport = RedisStreams(redis)
    await transport.publish([a_result(number, execution_id=f"x{number}") for number in range(40)])
    everybody = asyncio.Event()
    asked: list[int] = []
    take = transport._take_results

    async def waits_for_all(consumer: str, results: Any, limit: int) -> Any:
        asked.append(results.partition)
        if len(asked) == 8:
            everybody.set()
        await asyncio.wait_for(everybody.wait(), PATIENCE_SECONDS)
        return await take(consumer, results, limit)

    monkeypatch.setattr(transport, "_take_results", waits_for_all)
    assert len(await read(transport, limit=400)) == 40
    await redis.close()


async def test_who_wants_fewer_than_there_are_partitions_finds_what_is_in_any_of_them(redis_url: str) -> None:
    redis = Redis(redis_url, partitions=8)
    transport = RedisStreams(redis)
    executions = [
        next(f"x{n}" for n in range(80) if partition_of(f"x{n}", 8) == number) for number in range(8)
    ]
    await transport.send([a_task(0, execution_id=one) for one in executions])
    # From now on the lanes of all partitions are known.
    assert len(await fetch(transport, limit=8)) == 8
    for number, execution in enumerate(executions):
        await transport.send([a_task(number, execution_id=execution)])
        await transport.publish([a_result(number, execution_id=execution)])
        # Without waiting: that would find it in another way.
        assert numbers(await fetch(transport, limit=1)) == [number]
        assert len(await read(transport, limit=3)) == 1
    await redis.close()


async def test_what_one_partition_gave_is_not_lost_by_the_failure_of_another(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    redis = Redis(redis_url, partitions=2)
    transport = RedisStreams(redis)
    await transport.publish([a_result(number, execution_id=f"x{number}") for number in range(40)])
    take = transport._take_results

    async def fails_in_one(consumer: str, results: Any, limit: int) -> Any:
        if results.partition == 0:
            raise ReplyError("WRONGTYPE of somebody's making")
        return await take(consumer, results, limit)

    monkeypatch.setattr(transport, "_take_results", fails_in_one)
    got = await read(transport, limit=400)
    assert {partition_of(one.message.execution_id, 2) for one in got} == {1}
    with pytest.raises(ReplyError):
        await read(transport, limit=400)
    await redis.close()


async def test_no_priority_is_starved_where_many_are_taken_at_once(transport: RedisStreams) -> None:
    await transport.send([a_task(1000 + number, priority=PRIORITIES["low"]) for number in range(3)])
    got: list[int] = []
    for round_ in range(20):
        tasks = [a_task(16 * round_ + number, priority=PRIORITIES["high"]) for number in range(16)]
        await transport.send(tasks)
        taken = await fetch(transport, limit=8)
        assert len([one for one in taken if one.task.priority == PRIORITIES["high"]]) >= 7
        got += numbers(taken)
    assert {1000, 1001, 1002} <= set(got)


async def test_a_cluster_has_the_streams_of_its_partitions_on_its_servers() -> None:
    with RedisCluster(servers=3) as cluster:
        redis, other = (Redis(cluster.servers[0].url, partitions=6) for _ in range(2))
        transport, sender = RedisStreams(redis), RedisStreams(other)
        executions = [f"x{number}" for number in range(60)]
        waiting = asyncio.create_task(fetch(transport, handlers=["q", "echo"], wait_seconds=PATIENCE_SECONDS))
        await turns()
        await sender.send([a_task(n, execution_id=name) for n, name in enumerate(executions)])
        await sender.publish([a_result(n, execution_id=name) for n, name in enumerate(executions)])
        got = await waiting
        while len(got) < 60:
            got += await fetch(transport, limit=7)
        messages: list[MessageDelivery] = []
        while len(messages) < 60:
            messages += await read(transport, limit=7)
        assert sorted(numbers(got)) == list(range(60))
        await transport.ack_tasks("w", [one.id for one in got])
        await transport.ack("o", [one.id for one in messages])
        assert await transport.claim("o", idle_seconds=0, limit=10) == ([], [])
        assert [(one.depth, one.in_flight) for one in await transport.queues()] == [(0, 0)]
        await transport.leave("w")
        await redis.close()
        await other.close()


async def test_what_is_on_the_other_servers_is_taken_while_one_is_away() -> None:
    """And nothing stays in the hands of one who was told of an error instead."""
    with RedisCluster(servers=3) as cluster:
        redis, other = (Redis(cluster.url, partitions=8) for _ in range(2))
        transport, sender = RedisStreams(redis), RedisStreams(other)
        assert await fetch(transport) == []
        assert await read(transport) == []
        names = [next(f"x{n}" for n in range(99) if partition_of(f"x{n}", 8) == p) for p in range(8)]
        gone = cluster.owner_of(slot_of("p2"))
        away = [number for number in range(8) if cluster.owner_of(slot_of(f"p{number}")) is gone]
        there = sorted(set(range(8)) - set(away))
        gone.kill()
        for _ in range(3):
            waiting = asyncio.create_task(fetch(transport, wait_seconds=PATIENCE_SECONDS))
            reading = asyncio.create_task(read(transport, wait_seconds=PATIENCE_SECONDS))
            await turns()
            await sender.send([a_task(number, execution_id=names[number]) for number in there])
            await sender.publish([a_result(number, execution_id=names[number]) for number in there])
            got, messages = await waiting, await reading
            while len(got) < len(there):
                got += await fetch(transport, wait_seconds=PATIENCE_SECONDS)
            while len(messages) < len(there):
                messages += await read(transport, wait_seconds=PATIENCE_SECONDS)
            assert sorted(numbers(got)) == there
            await transport.ack_tasks("w", [one.id for one in got])
            await transport.ack("o", [one.id for one in messages])
        await sender.publish([a_result(number, execution_id=names[number]) for number in there])
        assert len(await read(transport, "dead")) == len(there)
        claimed, _ = await transport.claim("o", idle_seconds=0, limit=99)
        assert len(claimed) == len(there)
        await transport.ack("o", [one.id for one in claimed])
        # All is looked for again when it is back.
        waiting = asyncio.create_task(fetch(transport, wait_seconds=PATIENCE_SECONDS))
        gone.start()
        cluster.wait_until_all_agree()
        await _sent(sender, a_task(7, execution_id=names[2]))
        assert numbers(await waiting) == [7]
        await redis.close()
        await other.close()


async def _sent(sender: RedisStreams, task: Task) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            try:
                await sender.send([task])
            except StoreError:
                await asyncio.sleep(0.1)
            else:
                return


async def test_nothing_is_lost_between_workers_that_come_and_go_and_connections_that_break(
    redis_url: str, other: Redis
) -> None:
    """Several consumers, cancelled and cut off at any moment: whatever was sent is done in the end."""
    total, done = 400, set[int]()
    sender = RedisStreams(other)

    async def work(name: str, seed: int) -> None:
        redis = Redis(redis_url)
        transport = RedisStreams(redis)
        draw = random.Random(seed)
        while len(done) < total:
            asking = asyncio.create_task(fetch(transport, name, limit=draw.randint(1, 9), wait_seconds=0.2))
            if draw.random() < 0.3:
                await asyncio.sleep(draw.random() * 0.005)
                asking.cancel()
            try:
                taken = await asking
                done.update(numbers(taken))
                await transport.ack_tasks(name, [one.id for one in taken])
            except asyncio.CancelledError:
                pass
            except StoreError:
                await asyncio.sleep(0.01)
        await redis.close()

    async def disturb() -> None:
        draw = random.Random(1)
        while len(done) < total:
            await asyncio.sleep(draw.random() * 0.05)
            await other.call("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            _, stale = await sender.claim("sweeper", idle_seconds=0.1, limit=50)
            await sender.send([one.task for one in stale])
            await sender.ack_tasks("sweeper", [one.id for one in stale])

    async def send() -> None:
        for start in range(0, total, 10):
            tasks = [
                a_task(number, queue=f"q{number % 3}", priority=number % 2)
                for number in range(start, start + 10)
            ]
            await sender.send(tasks)
            await asyncio.sleep(0.005)

    async with asyncio.timeout(PATIENCE_SECONDS):
        await asyncio.gather(send(), disturb(), *(work(f"w{n}", n) for n in range(3)))
    assert done == set(range(total))
