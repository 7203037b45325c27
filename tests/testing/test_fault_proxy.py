"""The proxy misbehaves as it was told, in front of a plain echo server and of the real servers."""

from __future__ import annotations

import asyncio
import socket
import socketserver
import threading
import time
from typing import TYPE_CHECKING

import asyncpg
import pytest
from redis import Redis
from redis.exceptions import ConnectionError as RedisConnectionError
from tests.support.fault_proxy import Direction, FaultProxy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.servers.postgres import PostgresServer
    from tests.support.servers.redis import RedisServer


class Echo(socketserver.ThreadingTCPServer):
    """Sends back what it gets; ``heard`` is all of it."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self) -> None:
        self.heard = bytearray()
        super().__init__(("127.0.0.1", 0), EchoConnection)


class EchoConnection(socketserver.BaseRequestHandler):
    server: Echo

    def handle(self) -> None:
        try:
            while piece := self.request.recv(65536):
                self.server.heard += piece
                self.request.sendall(piece)
        except OSError:
            return


@pytest.fixture
def echo() -> Iterator[Echo]:
    with Echo() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def proxy(echo: Echo) -> Iterator[FaultProxy]:
    with FaultProxy(f"http://127.0.0.1:{echo.server_address[1]}") as proxy:
        yield proxy


@pytest.fixture
def client(proxy: FaultProxy) -> Iterator[socket.socket]:
    with connect(proxy) as client:
        # The first answer says that the connection stands all the way.
        assert exchange(client, b"hello") == b"hello"
        yield client


def connect(proxy: FaultProxy) -> socket.socket:
    return socket.create_connection(("127.0.0.1", proxy.port), timeout=5)


def exchange(client: socket.socket, sent: bytes) -> bytes:
    client.sendall(sent)
    return receive(client, len(sent))


def receive(client: socket.socket, count: int) -> bytes:
    """Receive so many bytes, or fewer if the connection ends."""
    received = b""
    while len(received) < count and (piece := client.recv(65536)):
        received += piece
    return received


def is_turned_away(proxy: FaultProxy) -> bool:
    # The reset may come before the system has told us of the connection, or after we have written.
    try:
        with connect(proxy) as client:
            return exchange(client, b"hello") == b""
    except ConnectionError:
        return True


def wait_until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 5
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def test_it_passes_on_both_directions_and_the_end(proxy: FaultProxy, client: socket.socket) -> None:
    large = bytes(range(256)) * 4096
    received: list[bytes] = []
    reading = threading.Thread(target=lambda: received.append(receive(client, len(large))))
    reading.start()
    client.sendall(large)
    reading.join()
    assert received == [large]
    client.shutdown(socket.SHUT_WR)
    assert client.recv(1) == b""
    wait_until(lambda: proxy.connections == 0)


def test_latency_delays_every_piece_and_keeps_the_order(proxy: FaultProxy, client: socket.socket) -> None:
    proxy.delay(0.1)
    began = time.monotonic()
    for number in range(5):
        client.sendall(b"%d" % number)
    assert receive(client, 5) == b"01234"
    assert 0.2 <= time.monotonic() - began < 2
    proxy.heal()
    began = time.monotonic()
    exchange(client, b"quick")
    assert time.monotonic() - began < 0.1


@pytest.mark.parametrize("direction", Direction)
def test_a_blackhole_holds_one_direction_until_it_is_healed(
    proxy: FaultProxy, client: socket.socket, echo: Echo, direction: Direction
) -> None:
    proxy.blackhole(direction)
    client.settimeout(0.1)
    with pytest.raises(TimeoutError):
        exchange(client, b"lost?")
    assert (b"lost?" in echo.heard) == (direction is Direction.TO_CLIENT)
    client.settimeout(5)
    proxy.heal()
    assert receive(client, 5) == b"lost?"


def test_reset_ends_every_connection_there_is_and_no_later_one(
    proxy: FaultProxy, client: socket.socket
) -> None:
    proxy.reset()
    with pytest.raises(ConnectionResetError):
        client.recv(1)
    with connect(proxy) as another:
        assert exchange(another, b"again") == b"again"


def test_refused_connections_are_reset_and_counted(proxy: FaultProxy, client: socket.socket) -> None:
    proxy.refuse()
    assert [is_turned_away(proxy) for _ in range(3)] == [True] * 3
    assert exchange(client, b"still here") == b"still here"
    wait_until(lambda: len(proxy.attempts) == 4)
    assert proxy.most_in_a_second == 4
    assert proxy.connections == 1
    proxy.heal()
    with connect(proxy) as again:
        assert exchange(again, b"hello") == b"hello"


def test_the_most_connections_in_a_second_are_counted_over_any_second(proxy: FaultProxy) -> None:
    assert proxy.most_in_a_second == 0
    proxy.attempts.extend([0, 900_000, 1_100_000, 1_899_999, 1_900_000, 5_000_000])
    assert proxy.most_in_a_second == 3


def test_a_reset_after_so_many_bytes_lets_exactly_those_arrive(
    proxy: FaultProxy, client: socket.socket, echo: Echo
) -> None:
    happened = proxy.reset_after(10, Direction.TO_SERVER)
    assert exchange(client, b"12345") == b"12345"
    assert not happened.is_set()
    client.sendall(b"6789abcdef")
    assert happened.wait(5)
    with pytest.raises(ConnectionResetError):
        receive(client, 10)
    wait_until(lambda: bytes(echo.heard) == b"hello123456789a")


@pytest.mark.parametrize("delivered", [True, False])
def test_a_reset_on_a_pattern_happens_before_or_after_it_arrives(
    proxy: FaultProxy, client: socket.socket, echo: Echo, delivered: bool
) -> None:
    happened = proxy.reset_on(b"COMMIT", delivered=delivered)
    assert exchange(client, b"BEGIN; ") == b"BEGIN; "
    client.sendall(b"INSERT; COMMIT; SELECT")
    assert happened.wait(5)
    with pytest.raises(ConnectionResetError):
        receive(client, 100)
    heard = b"helloBEGIN; INSERT; " + (b"COMMIT; SELECT" if delivered else b"")
    wait_until(lambda: bytes(echo.heard) == heard)
    # Once: the next connection is left alone.
    with connect(proxy) as another:
        assert exchange(another, b"COMMIT") == b"COMMIT"


def test_a_pattern_is_seen_where_it_comes_in_pieces(proxy: FaultProxy, client: socket.socket) -> None:
    happened = proxy.reset_on(b"COMMIT", delivered=False)
    assert exchange(client, b"COM") == b"COM"
    assert not happened.is_set()
    client.sendall(b"MIT")
    assert happened.wait(5)


def test_a_pattern_in_an_answer_can_be_what_is_lost(proxy: FaultProxy, client: socket.socket) -> None:
    happened = proxy.reset_on(b"done", Direction.TO_CLIENT, delivered=False)
    client.sendall(b"is it done?")
    assert happened.wait(5)
    assert receive(client, 11) == b"is it "


def test_where_no_server_listens_a_connection_is_reset() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        with FaultProxy(f"http://127.0.0.1:{closed.getsockname()[1]}") as proxy:
            assert is_turned_away(proxy)
            assert len(proxy.attempts) == 1


def test_a_redis_command_is_done_though_its_answer_is_lost(redis_url: str, redis_server: RedisServer) -> None:
    with FaultProxy(redis_url) as proxy, Redis.from_url(proxy.url, retry=None) as client:
        client.set("count", 1)
        happened = proxy.reset_on(b"INCR", delivered=False)
        with pytest.raises(RedisConnectionError):
            client.incr("count")
        assert happened.is_set()
        assert redis_server.execute("GET", "count", url=redis_url) == b"1"
        proxy.reset_on(b"INCR", delivered=True)
        with pytest.raises(RedisConnectionError):
            client.incr("count")
        wait_until(lambda: redis_server.execute("GET", "count", url=redis_url) == b"2")


async def test_a_commit_of_postgres_is_done_though_its_answer_is_lost(
    postgres_url: str, postgres_server: PostgresServer
) -> None:
    with FaultProxy(postgres_url) as proxy:
        connection = await asyncpg.connect(proxy.url)
        await connection.execute("CREATE TABLE work (id int)")
        await connection.execute("BEGIN; INSERT INTO work VALUES (1)")
        proxy.reset_on(b"COMMIT;\0", delivered=True)
        with pytest.raises((asyncpg.PostgresConnectionError, asyncpg.InterfaceError, OSError)):
            await connection.execute("COMMIT;")
        connection.terminate()
    count = "SELECT count(*) FROM work"
    await asyncio.to_thread(wait_until, lambda: postgres_server.execute(count, url=postgres_url) == 1)
