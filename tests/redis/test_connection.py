"""One connection for many callers, and what they see when it breaks."""

from __future__ import annotations

import asyncio
import random
import threading
from contextlib import suppress
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
import uvloop
from tests.redis.listener import listening
from tests.support.fault_proxy import Direction, FaultProxy
from tests.support.servers.redis import RedisServer

from weft.errors import StoreError
from weft.redis.batch import BatchConnection
from weft.redis.connection import Redis, ReplyError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    redis = Redis(redis_url, name=f"weft-{uuid4().hex}")
    yield redis
    await redis.close()


@pytest.fixture
def proxy(redis_url: str) -> Iterator[FaultProxy]:
    with FaultProxy(redis_url) as proxy:
        yield proxy


@pytest.fixture
async def through(proxy: FaultProxy) -> AsyncIterator[Redis]:
    """A Redis behind the proxy; half a second without an answer is too long."""
    redis = Redis(proxy.url, answer_seconds=0.5)
    yield redis
    await redis.close()


# -- many callers ----------------------------------------------------------------------------------


async def test_many_callers_share_a_connection_and_each_gets_his_own_replies(redis: Redis) -> None:
    async def caller(number: int) -> None:
        chance = random.Random(number)
        for turn in range(20):
            words = [f"{number}/{turn}/{place}" for place in range(chance.randrange(1, 9))]
            replies = await redis.run([("ECHO", word) for word in words])
            assert replies == [word.encode() for word in words]

    await asyncio.gather(*(caller(number) for number in range(200)))
    await clients_are(redis, 1)


async def test_what_is_in_no_hurry_goes_before_what_is_asked_for_next(redis: Redis) -> None:
    await redis.open()
    await redis.run_later([("SET", "a", 1), ("INCR", "a")])
    await redis.run_later([("INCR", "a"), ("NO-SUCH-COMMAND",)])
    assert await redis.call("GET", "a") == b"3"


async def test_what_is_in_no_hurry_goes_alone_where_nothing_follows(redis: Redis, redis_url: str) -> None:
    other = Redis(redis_url)
    await redis.run_later([("RPUSH", "done", "a")])
    assert await other.block("BLPOP", "done", 5, wait_seconds=5.0) == [b"done", b"a"]
    await other.close()


async def test_what_is_in_no_hurry_is_said_before_the_end(redis: Redis, redis_url: str) -> None:
    await redis.run_later([("RPUSH", "done", "a")])
    await redis.close()
    other = Redis(redis_url)
    assert await other.block("BLPOP", "done", 5, wait_seconds=5.0) == [b"done", b"a"]
    await other.close()


async def test_a_caller_who_is_cancelled_does_not_shift_the_replies_of_the_others(redis: Redis) -> None:
    chance = random.Random(7)

    async def caller(number: int) -> None:
        for turn in range(10):
            words = [f"{number}/{turn}/{place}" for place in range(3)]
            assert await redis.run([("ECHO", word) for word in words]) == [word.encode() for word in words]

    callers = [asyncio.create_task(caller(number)) for number in range(100)]
    for task in chance.sample(callers, 40):
        for _ in range(chance.randrange(5)):
            await asyncio.sleep(0)
        task.cancel()
    answers = await asyncio.gather(*callers, return_exceptions=True)
    assert {type(answer) for answer in answers} == {type(None), asyncio.CancelledError}
    assert await redis.call("ECHO", "and the next") == b"and the next"


async def test_what_cannot_be_sent_shifts_no_replies(redis: Redis) -> None:
    waiting = asyncio.create_task(redis.call("ECHO", "before"))
    with pytest.raises(TypeError):
        await redis.call("ECHO", None)  # type: ignore[arg-type]
    with pytest.raises(UnicodeEncodeError):
        await redis.run([("ECHO", "fine"), ("ECHO", "\ud800")])
    assert await waiting == b"before"
    assert await redis.call("ECHO", "after") == b"after"


async def test_a_refused_command_is_an_error_in_its_place(redis: Redis) -> None:
    replies = await redis.run([("SET", "a", "x"), ("INCR", "a"), ("NONSENSE",), ("GET", "a")])
    assert (replies[0], replies[3]) == (b"OK", b"x")
    assert isinstance(replies[1], ReplyError)
    assert isinstance(replies[2], ReplyError)
    with pytest.raises(ReplyError, match="not an integer"):
        await redis.call("INCR", "a")
    assert await redis.run([]) == []


async def test_ten_megabytes_go_out_and_come_back_between_small_calls(redis: Redis) -> None:
    large = [bytes([65 + number]) * 10_000_000 for number in range(4)]
    small = [asyncio.create_task(redis.call("ECHO", f"{number}")) for number in range(20)]
    await asyncio.gather(*(redis.call("SET", f"k{number}", text) for number, text in enumerate(large)))
    more = [asyncio.create_task(redis.call("ECHO", f"{number}")) for number in range(20)]
    assert await asyncio.gather(*(redis.call("GET", f"k{number}") for number in range(4))) == large
    assert await asyncio.gather(*small, *more) == [f"{number}".encode() for number in range(20)] * 2


async def test_a_reply_of_a_hundred_thousand_parts(redis: Redis) -> None:
    for first in range(0, 100_000, 10_000):
        await redis.call("RPUSH", "list", *range(first, first + 10_000))
    assert await redis.call("LRANGE", "list", 0, -1) == [b"%d" % number for number in range(100_000)]


async def test_who_writes_faster_than_the_server_reads_is_held_back(
    proxy: FaultProxy, through: Redis
) -> None:
    patient = Redis(proxy.url)
    await patient.open()
    proxy.blackhole(Direction.TO_SERVER)
    (connection,) = patient._all
    written = [asyncio.create_task(patient.call("SET", "k", b"x" * 5_000_000)) for _ in range(40)]
    # The proxy takes some and the kernel takes some; then they wait, and hold what they have packed.
    await until(lambda: not connection.writable.is_set())
    assert connection._transport is not None
    for _ in range(100):
        await asyncio.sleep(0)
    assert connection._transport.get_write_buffer_size() < 11_000_000
    proxy.heal()
    assert await asyncio.gather(*written) == [b"OK"] * 40
    await patient.close()


# -- when it breaks --------------------------------------------------------------------------------


async def test_a_reset_is_told_to_all_who_wait_and_the_next_call_connects_anew(
    proxy: FaultProxy, through: Redis
) -> None:
    await through.open()
    proxy.blackhole(Direction.TO_CLIENT)
    waiting = [asyncio.create_task(through.call("ECHO", f"{number}")) for number in range(30)]
    await asyncio.sleep(0)
    proxy.reset()
    proxy.heal()
    for answer in await asyncio.gather(*waiting, return_exceptions=True):
        assert isinstance(answer, StoreError)
        assert "the store cannot be reached" in str(answer)
    assert await through.call("ECHO", "again") == b"again"
    assert len(proxy.attempts) == 2


async def test_each_who_waits_gets_an_error_of_his_own(proxy: FaultProxy, through: Redis) -> None:
    await through.open()
    proxy.blackhole()
    waiting = [asyncio.create_task(through.call("PING")) for _ in range(2)]
    await asyncio.sleep(0)
    proxy.reset()
    one, two = await asyncio.gather(*waiting, return_exceptions=True)
    # A shared one would gather the traces of all of them.
    assert one is not two


async def test_a_reset_in_the_middle_of_a_reply_gives_no_part_of_it(
    proxy: FaultProxy, through: Redis
) -> None:
    await through.call("SET", "large", b"x" * 1_000_000)
    for count in (1, 5, 60_000, 999_999):
        happened = proxy.reset_after(count, Direction.TO_CLIENT)
        with pytest.raises(StoreError):
            await through.run([("GET", "large"), ("PING",)])
        assert happened.is_set()
        # Greeting it is answered at length, and must not be cut in turn.
        assert await through.call("STRLEN", "large") == 1_000_000


async def test_one_who_gives_up_while_it_connects_takes_nothing_from_the_others(
    proxy: FaultProxy, through: Redis
) -> None:
    proxy.delay(0.05)
    first = asyncio.create_task(through.call("ECHO", "first"))
    others = [asyncio.create_task(through.call("ECHO", f"{number}")) for number in range(10)]
    await until(lambda: len(proxy.attempts) == 1)
    first.cancel()
    assert await asyncio.gather(*others) == [f"{number}".encode() for number in range(10)]
    assert first.cancelled()
    assert len(proxy.attempts) == 1


async def test_a_server_that_is_away_fails_fast_and_is_asked_twice_a_second(
    proxy: FaultProxy, through: Redis
) -> None:
    proxy.refuse()
    loop = asyncio.get_running_loop()
    begun, failures = loop.time(), 0

    async def caller(*, blocking: bool) -> None:
        nonlocal failures
        while loop.time() < begun + 1.6:
            call = through.block("BLPOP", "k", 1, wait_seconds=1) if blocking else through.call("PING")
            with pytest.raises(StoreError, match="the store cannot be reached"):
                await call
            failures += 1
            await asyncio.sleep(0.01)

    await asyncio.gather(*(caller(blocking=number % 2 == 0) for number in range(20)))
    assert failures > 500, "nobody was kept waiting"
    assert proxy.most_in_a_second <= 2
    assert len(proxy.attempts) >= 3
    proxy.heal()
    await asyncio.sleep(0.5)
    assert await through.call("PING") == b"PONG"


async def test_a_server_that_accepts_and_never_answers_is_given_up_in_time() -> None:
    async def nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        pass

    async with listening(nothing) as url:
        redis = Redis(url, answer_seconds=0.2)
        with pytest.raises(StoreError, match="did not answer in time"):
            async with asyncio.timeout(2):
                await redis.open()
        await redis.close()


async def test_a_server_that_falls_silent_is_given_up_and_so_are_all_who_wait(
    proxy: FaultProxy, through: Redis
) -> None:
    await through.open()
    proxy.blackhole()
    loop = asyncio.get_running_loop()
    begun = loop.time()
    answers = await asyncio.gather(*(through.call("PING") for _ in range(10)), return_exceptions=True)
    assert all(isinstance(answer, StoreError) and "no answer for 0.5 s" in str(answer) for answer in answers)
    assert 0.4 < loop.time() - begun < 2
    proxy.heal()
    assert await through.call("PING") == b"PONG"


async def test_a_writer_who_is_held_back_by_a_silent_server_is_not_held_for_ever(
    proxy: FaultProxy, through: Redis
) -> None:
    await through.open()
    proxy.blackhole(Direction.TO_SERVER)
    answers = await asyncio.gather(
        *(through.call("SET", "k", b"x" * 8_000_000) for _ in range(6)), return_exceptions=True
    )
    assert {type(answer) for answer in answers} == {StoreError}


async def test_a_long_reply_on_a_slow_line_is_no_silence() -> None:
    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for chunk in (b"$12\r\n", *[b"x"] * 12, b"\r\n"):
            writer.write(chunk)
            await asyncio.sleep(0.05)

    async with listening(slow) as url:
        loop, port = asyncio.get_running_loop(), int(url.rpartition(":")[2])
        _, connection = await loop.create_connection(lambda: BatchConnection(0.2), "127.0.0.1", port)
        assert await connection.run([("GET", "k")]) == [b"x" * 12]
        connection.close()


async def test_what_answers_and_is_not_redis_is_said_to_be_so() -> None:
    async def other(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    async with listening(other) as url:
        redis = Redis(url)
        with pytest.raises(StoreError, match="what answers is not Redis"):
            await redis.open()
        await redis.close()


async def test_whoever_calls_after_the_close_gets_an_error_and_opens_nothing(proxy: FaultProxy) -> None:
    redis = Redis(proxy.url)
    await redis.open()
    waiting = asyncio.create_task(redis.block("BLPOP", "nothing", 10, wait_seconds=10))
    await until(lambda: len(proxy.attempts) == 2)
    await redis.close()
    with pytest.raises(StoreError):
        await waiting
    with pytest.raises(StoreError, match="closed"):
        await redis.call("PING")
    assert len(proxy.attempts) == 2


@pytest.mark.parametrize(
    ("refusal", "told"),
    [
        ("LOADING Redis is loading the dataset in memory", "cannot be used now: LOADING"),
        ("READONLY You can't write against a read only replica.", "cannot be reached: READONLY"),
        ("OOM command not allowed when used memory > 'maxmemory'.", "cannot be used now: OOM"),
        ("MISCONF Errors writing to the AOF file", "cannot be used now: MISCONF"),
        ("NOPERM this user has no permissions to run the 'get' command", "cannot be used now: NOPERM"),
    ],
)
async def test_a_server_that_cannot_be_used_now_is_a_store_error(
    redis: Redis, refusal: str, told: str
) -> None:
    with pytest.raises(StoreError, match=told):
        await redis.run([("PING",), ("EVAL", "return redis.error_reply(ARGV[1])", 0, refusal)])
    assert await redis.call("PING") == b"PONG"


async def test_a_full_server_is_a_store_error_also_from_inside_a_script() -> None:
    with RedisServer(options={"maxmemory": "1"}) as server:
        redis = Redis(server.url)
        for command in (("SET", "a", 1), ("EVAL", "return redis.call('SET', KEYS[1], 1)", 1, "a")):
            with pytest.raises(StoreError, match=r"cannot be used now: .*OOM"):
                await redis.run([command])
        await redis.close()


async def test_a_server_that_became_a_replica_is_left_for_whoever_is_at_its_address_now(
    private_redis: RedisServer,
) -> None:
    redis = Redis(private_redis.url)
    await redis.call("SET", "a", 1)
    private_redis.execute("REPLICAOF", "127.0.0.1", 1)
    script = "return redis.call('SET', KEYS[1], 1)"
    for command in (("SET", "a", 1), ("EVAL", script, 1, "a")):
        private_redis.execute("REPLICAOF", "NO", "ONE")
        await redis.call("PING")
        private_redis.execute("REPLICAOF", "127.0.0.1", 1)
        with pytest.raises(StoreError, match="READONLY"):
            await redis.run([command])
        assert not any(connection.is_open for connection in redis._all)
    private_redis.execute("REPLICAOF", "NO", "ONE")
    assert await redis.call("GET", "a") == b"1"
    await redis.close()


# -- other loops -----------------------------------------------------------------------------------


async def test_a_second_thread_has_a_loop_and_a_connection_of_its_own(redis: Redis) -> None:
    stop = threading.Event()
    beats: list[bytes] = []

    async def beat() -> None:
        while not stop.is_set():
            beats.append(await redis.call("ECHO", f"beat {len(beats)}"))

    thread = threading.Thread(target=lambda: asyncio.run(beat()))
    thread.start()
    for number in range(300):
        assert await redis.call("ECHO", number) == b"%d" % number
    await until(lambda: len(beats) >= 100)
    await clients_are(redis, 2)
    stop.set()
    thread.join()
    assert beats == [b"beat %d" % number for number in range(len(beats))]


async def test_a_close_reaches_a_call_on_another_thread(redis: Redis) -> None:
    failed: list[str] = []

    async def wait() -> None:
        try:
            await redis.block("BLPOP", "nothing", 30, wait_seconds=30)
        except StoreError as error:
            failed.append(str(error))

    thread = threading.Thread(target=lambda: asyncio.run(wait()))
    thread.start()
    await one_blocks(redis)
    await redis.close()
    await asyncio.to_thread(thread.join)
    assert failed == ["the store cannot be reached: the connection was closed"]


def test_it_runs_on_uvloop(redis_url: str) -> None:
    async def walk() -> bytes:
        redis = Redis(redis_url)
        assert await redis.call("SET", "k", b"x" * 10_000_000) == b"OK"
        with suppress(TimeoutError):
            async with asyncio.timeout(0.05):
                await redis.block("BLPOP", "nothing", 1, wait_seconds=1)
        reply: bytes = await redis.call("GET", "k")
        await redis.close()
        return reply

    assert len(uvloop.run(walk())) == 10_000_000


# -- blocking calls --------------------------------------------------------------------------------


async def test_a_blocking_call_holds_nobody_up_and_its_connection_is_used_again(redis: Redis) -> None:
    for number in range(5):
        waiting = asyncio.create_task(redis.block("BLPOP", "list", 5, wait_seconds=5))
        await one_blocks(redis)
        await redis.call("RPUSH", "list", number)
        assert await waiting == [b"list", b"%d" % number]
    await clients_are(redis, 2)


async def test_a_blocking_call_that_is_cancelled_closes_its_connection(redis: Redis) -> None:
    for number in range(10):
        waiting = asyncio.create_task(redis.block("BLPOP", "list", 5, wait_seconds=5))
        await one_blocks(redis)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await clients_are(redis, 1)
        # Nobody is there to take it, and it goes to nobody who asked for something else.
        await redis.call("RPUSH", "list", number)
        assert await redis.block("BLPOP", "list", 5, wait_seconds=5) == [b"list", b"%d" % number]
        assert await redis.block("BLPOP", "other", 0.01, wait_seconds=1) is None


async def test_many_blocking_calls_each_get_their_own(redis: Redis) -> None:
    waiting = [
        asyncio.create_task(redis.block("BLPOP", f"list{number}", 5, wait_seconds=5)) for number in range(30)
    ]
    for number in reversed(range(30)):
        await redis.call("RPUSH", f"list{number}", number)
    assert await asyncio.gather(*waiting) == [
        [f"list{number}".encode(), b"%d" % number] for number in range(30)
    ]
    # A few are kept for the next; the others are closed.
    await clients_are(redis, 9)


async def test_a_refused_blocking_call_leaves_its_connection_fit_for_use(redis: Redis) -> None:
    await redis.call("SET", "text", "x")
    for _ in range(3):
        with pytest.raises(ReplyError, match="WRONGTYPE"):
            await redis.block("BLPOP", "text", 1, wait_seconds=1)
    await clients_are(redis, 2)


async def test_a_server_may_take_its_time_over_a_blocking_call_and_no_longer(
    proxy: FaultProxy, through: Redis
) -> None:
    assert await through.block("BLPOP", "nothing", 0.8, wait_seconds=0.8) is None
    proxy.blackhole()
    with pytest.raises(StoreError, match=r"no answer for 0\.6 s"):
        await through.block("BLPOP", "nothing", 0.1, wait_seconds=0.1)


async def until(is_true: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not is_true():  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0)


async def one_blocks(redis: Redis) -> None:
    """Return when the server has begun to wait."""
    async with asyncio.timeout(10):
        while not any(b"cmd=blpop" in line for line in await clients(redis)):
            pass


async def clients_are(redis: Redis, number: int) -> None:
    """Return when the server has so many clients of this name; it takes a moment to see that one has gone."""
    async with asyncio.timeout(10):
        while len(await clients(redis)) != number:
            pass


async def clients(redis: Redis) -> list[bytes]:
    listed: bytes = await redis.call("CLIENT", "LIST")
    return [line for line in listed.splitlines() if redis._name.encode() in line]
