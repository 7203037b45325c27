"""Connections: how many there may be, which one makes room, and the time that each phase of a request has."""

from __future__ import annotations

import asyncio
import json
import logging
import resource
from contextlib import AsyncExitStack, asynccontextmanager
from io import BytesIO
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.faults.raw import Connection, request

from weft.api import body as bodies
from weft.api import connection as times
from weft.api import connection_table
from weft.api.connection_table import connection_limit, make_room, reserved_files
from weft.logs import RateLimitedLog
from weft.open_files import file_limit, has_free_file
from weft.settings import Settings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from tests.api.conftest import Serve, Server

KEY = "a-key-that-is-long-enough-for-a-test"
BEARER = f"Authorization: Bearer {KEY}"


@pytest.fixture(autouse=True)
def _quick_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_table, "SWEEP_SECONDS", 0.02)


@asynccontextmanager
async def opened(
    server: Server, count: int, *, address: str = "127.0.0.1"
) -> AsyncIterator[list[Connection]]:
    """Have connections from an address on which nothing was sent."""
    parts = urlsplit(server.url)
    async with AsyncExitStack() as stack:
        connections = []
        for _ in range(count):
            reader, writer = await asyncio.open_connection(
                parts.hostname, parts.port, local_addr=(address, 0)
            )
            stack.callback(writer.close)
            connections.append(Connection(reader, writer))
        # The server has accepted them all when it has answered a call that came after them.
        async with Connection.open(server.url) as last:
            await last.ask(request("GET", "/healthz", b"", BEARER))
        yield connections


async def closed_count(connections: list[Connection]) -> int:
    """Count the connections that the server has closed."""

    async def is_closed(connection: Connection) -> bool:
        try:
            async with asyncio.timeout(0.2):
                await connection.closed()
        except TimeoutError:
            return False
        return True

    return sum(await asyncio.gather(*map(is_closed, connections)))


async def test_idle_connections_without_a_key_make_room_for_others(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    async with serve(max_connections=32, api_keys=(KEY,)) as server:
        async with Connection.open(server.url) as known:
            assert (await known.ask(request("GET", "/v1/workflows", b"", BEARER))).status == 200
            async with opened(server, 100) as idle:
                # A new caller, and the one that was there before.
                assert (await server.get("/healthz")).status == 200
                assert (await known.ask(request("GET", "/v1/workflows", b"", BEARER))).status == 200
                # One address has a quarter of all connections, and the newest of them.
                assert len(server.service.connections) <= 32 // 4 + 2
                assert await closed_count(idle[:90]) == 90
                assert await closed_count(idle[-4:]) == 0
        assert reason_count(server, "evicted") >= 90
    lines = [record for record in caplog.records if record.getMessage() == "connection.closed"]
    assert len(lines) == 1, "one line in ten seconds"


async def test_another_address_has_a_share_of_its_own(serve: Serve) -> None:
    async with (
        serve(max_connections=32, api_keys=(KEY,)) as server,
        opened(server, 7, address="127.0.0.2") as theirs,
    ):
        async with opened(server, 40, address="127.0.0.3"):
            assert await closed_count(theirs) == 0
        # All addresses together have half of all, and the oldest go first.
        async with opened(server, 6, address="127.0.0.4"), opened(server, 6, address="127.0.0.5"):
            assert server.service.connections.anonymous <= 16
            assert await closed_count(theirs[:2]) == 2


async def test_the_caller_with_the_most_connections_makes_room(serve: Serve) -> None:
    other_key = "another-key-that-is-long-enough"
    async with (
        serve(max_connections=16, api_keys=(KEY, other_key)) as server,
        Connection.open(server.url) as known,
        AsyncExitStack() as stack,
    ):
        assert (await known.ask(request("GET", "/v1/workflows", b"", BEARER))).status == 200
        theirs = []
        for _ in range(30):
            theirs.append(await stack.enter_async_context(Connection.open(server.url)))
            head = request("GET", "/v1/workflows", b"", f"Authorization: Bearer {other_key}")
            assert (await theirs[-1].ask(head)).status == 200
        assert await closed_count(theirs[:14]) == 14
        assert (await known.ask(request("GET", "/v1/workflows", b"", BEARER))).status == 200


async def test_a_connection_that_has_just_come_makes_no_room_for_a_caller_with_many(serve: Serve) -> None:
    """Until its first request is read it is anonymous, and may be the only such connection."""
    other_key = "another-key-that-is-long-enough"
    async with serve(max_connections=16, api_keys=(KEY, other_key)) as server, AsyncExitStack() as stack:

        async def come() -> None:
            another = await stack.enter_async_context(Connection.open(server.url))
            head = request("GET", "/v1/workflows", b"", f"Authorization: Bearer {other_key}")
            assert (await another.ask(head)).status == 200

        for _ in range(16):
            await come()
        async with opened(server, 1) as (fresh,):
            for _ in range(3):
                await come()
            assert (await fresh.ask(request("GET", "/v1/workflows", b"", BEARER))).status == 200


async def test_without_keys_idle_connections_make_room_too(serve: Serve) -> None:
    async with serve(max_connections=16) as server, opened(server, 40) as idle:
        assert len(server.service.connections) <= 16
        assert await closed_count(idle[:20]) == 20
        assert (await server.get("/v1/workflows")).status == 200


async def test_a_connection_is_refused_where_all_are_in_use(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    async with serve(max_connections=16) as server, AsyncExitStack() as stack:
        # As many as no server has: streams leave room for others.
        load = server.service.load
        load.streams.limit = load.waiting.limit = load.requests.limit = 100
        for number in range(16):
            busy = await stack.enter_async_context(Connection.open(server.url))
            await busy.send(request("GET", "/v1/events"))
            async with asyncio.timeout(10):
                while server.service.load.streams.in_use <= number:  # noqa: ASYNC110 - there is no event for it
                    await asyncio.sleep(0.001)
        async with Connection.open(server.url) as refused:
            answer = await refused.answer()
            assert await refused.closed() == b""
        assert answer.status == 503
        assert answer.headers["retry-after"] == "1"
        assert answer.json["code"] == "overloaded"
        server.service.stopping.set()
    assert "connection.refused" in [record.getMessage() for record in caplog.records]


# --- The time of each phase.


async def test_the_rest_of_a_body_that_nobody_wants_may_not_drip(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(times, "LEFTOVER_SECONDS", 0.3)
    async with serve(api_keys=(KEY,)) as server, Connection.open(server.url) as connection:
        answer = await connection.ask(
            b"POST /v1/executions HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n"
        )
        assert answer.status == 401

        async def drip() -> None:
            while True:
                await connection.send(b"x")
                await asyncio.sleep(0.01)

        dripping = asyncio.create_task(drip())
        assert await connection.closed() == b""
        dripping.cancel()
        await asyncio.gather(dripping, return_exceptions=True)
        assert reason_count(server, "leftover") == 1


async def test_a_body_that_ends_after_its_answer_leaves_the_connection_open(serve: Serve) -> None:
    async with serve(api_keys=(KEY,)) as server, Connection.open(server.url) as connection:
        answer = await connection.ask(b"POST /v1/executions HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\n")
        assert answer.status == 401
        await connection.send(b"null")
        assert (await connection.ask(request("GET", "/v1/workflows", b"", BEARER))).status == 200


async def test_a_body_that_drips_is_given_up(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "FIRST_SECONDS", 0.3)
    async with serve() as server, Connection.open(server.url) as connection:
        await connection.send(
            b"POST /v1/executions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9999\r\n\r\n"
        )

        async def drip() -> None:
            while True:
                await connection.send(b" ")
                await asyncio.sleep(0.01)

        dripping = asyncio.create_task(drip())
        answer = await connection.answer()
        dripping.cancel()
        await asyncio.gather(dripping, return_exceptions=True)
        assert answer.status == 400
        assert "did not arrive in time" in answer.json["detail"]


async def test_a_body_that_comes_steadily_has_more_time(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bodies, "FIRST_SECONDS", 0.5)
    monkeypatch.setattr(bodies, "BYTES_PER_SECOND", 100)
    async with serve() as server, Connection.open(server.url) as connection:
        await connection.send(
            b"POST /v1/executions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 502\r\n\r\n"
        )
        await connection.send(b" " * 500)
        await asyncio.sleep(0.7)
        await connection.send(b"{}")
        assert (await connection.answer()).status == 422


async def test_a_stray_byte_does_not_keep_an_idle_connection(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(times, "IDLE_SECONDS", 0.3)
    async with serve() as server, Connection.open(server.url) as connection:
        assert (await connection.ask(request("GET", "/healthz"))).status == 200
        await connection.send(b"\r\n")
        assert await connection.closed() == b""
        assert reason_count(server, "idle") == 1


async def test_a_connection_without_a_key_may_rest_for_less(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(times, "ANONYMOUS_IDLE_SECONDS", 0.1)
    async with (
        serve(api_keys=(KEY,)) as server,
        Connection.open(server.url) as known,
        Connection.open(server.url) as anonymous,
    ):
        assert (await known.ask(request("GET", "/v1/workflows", b"", BEARER))).status == 200
        assert (await anonymous.ask(request("GET", "/healthz"))).status == 200
        assert await anonymous.closed() == b""
        assert (await known.ask(request("GET", "/healthz"))).status == 200


async def large_node(server: Server) -> str:
    """Return the path of a node whose output has 12 MiB."""
    large = {"nodes": [{"id": "a", "handler": "echo", "config": "x" * 12 * 2**20}]}
    body = BytesIO(json.dumps({"definition": large}).encode())
    headers = {"Content-Type": "application/json"}
    execution = (await server.post("/v1/executions?wait=20", data=body, headers=headers)).json
    return f"/v1/executions/{execution['id']}/nodes/a"


async def test_an_answer_that_is_not_read_is_given_up(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(times, "UNREAD_SECONDS", 0.3)
    async with serve() as server, Connection.open(server.url) as connection:
        await connection.send(request("GET", await large_node(server)))
        async with asyncio.timeout(20):
            while not reason_count(server, "unread"):  # noqa: ASYNC110 - there is no event for it
                await asyncio.sleep(0.01)
            while server.service.load.requests.in_use:  # noqa: ASYNC110 - as above
                await asyncio.sleep(0.01)
        assert server.service.load.held_bytes.in_use == 0


async def test_answers_that_are_not_read_take_up_a_share_of_their_caller(serve: Serve) -> None:
    async with serve() as server, AsyncExitStack() as stack:
        path = await large_node(server)
        whole = (await server.get(path)).body
        assert len(whole) > 12 * 2**20
        # Two are there for one caller, and as many for others.
        server.service.load.held_bytes.limit = 4 * len(whole)
        for count in (1, 2):
            slow = await stack.enter_async_context(Connection.open(server.url))
            await slow.send(request("GET", path))
            async with asyncio.timeout(20):
                while server.service.load.held_bytes.in_use < count * len(whole):  # noqa: ASYNC110 - as above
                    await asyncio.sleep(0.01)
        refused = await server.get(path)
        assert (refused.status, refused.json["code"]) == (503, "overloaded")
        # Whoever reads after all has the whole answer, and makes room.
        assert (await slow.answer()).body == whole
        assert (await server.get(path)).body == whole


def reason_count(server: Server, reason: str) -> float:
    """Count the connections that the server has closed for a reason."""
    families = text_string_to_metric_families(server.service.metrics.render().decode())
    samples = [
        one for family in families if family.name == "weft_connections_closed" for one in family.samples
    ]
    return sum(sample.value for sample in samples if sample.labels["reason"] == reason)


# --- The files of the process.


@pytest.fixture
def _file_limit() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.usefixtures("_file_limit")
def test_the_limit_on_files_is_raised_and_shared_with_the_engine() -> None:
    settings = Settings(worker_concurrency=10, worker_processes=1)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1000, hard))
    reserve = reserved_files(settings)
    assert connection_limit(settings) == 1000 - reserve
    assert connection_limit(Settings(max_connections=100)) == 100
    make_room(settings)
    raised = file_limit()
    assert raised is not None
    assert raised > 1000
    assert connection_limit(settings) == min(10_000, raised - reserve)
    # A reserve that is larger than the limit leaves callers a part.
    resource.setrlimit(resource.RLIMIT_NOFILE, (400, hard))
    assert connection_limit(Settings(worker_concurrency=1000)) == 100
    assert has_free_file()


def test_a_line_that_callers_cause_is_written_once_in_ten_seconds(caplog: pytest.LogCaptureFixture) -> None:
    now = 0
    log = RateLimitedLog(logging.getLogger("weft.test"), now=lambda: now)
    for _ in range(3):
        log.warning("thing.refused", reason="one")
    log.warning("thing.refused", reason="other")
    now = 10_000_000
    log.warning("thing.refused", reason="one")
    said = [(vars(record)["reason"], vars(record).get("repeated")) for record in caplog.records]
    assert said == [("one", None), ("other", None), ("one", 2)]
