"""Section H of the fault catalogue: abuse of the API. What else there is of it: docs/faults.md."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING

import pytest
from tests.faults.raw import Connection, request
from tests.operation.serving import serving
from tests.operation.usage import memory

from weft.api import connection as bounds

if TYPE_CHECKING:
    from pathlib import Path

    from tests.api.conftest import Server

LIMIT = bounds.MAX_HEAD_BYTES


def with_head(size: int, path: str = "/healthz") -> bytes:
    """Write a request whose path and headers are together so long."""
    rest = len(path) + len("HostlocalhostContent-Length0X-Pad")
    return request("GET", path, b"", f"X-Pad: {'x' * (size - rest)}")


@pytest.mark.parametrize(("size", "status"), [(LIMIT - 1, 200), (LIMIT, 200), (LIMIT + 1, 431)])
async def test_the_head_of_a_request_has_an_exact_limit(server: Server, size: int, status: int) -> None:
    """F65: headers at one byte below, at, and above their limit."""
    async with Connection.open(server.url) as connection:
        answer = await connection.ask(with_head(size))
        assert answer.status == status
        if status == 431:
            assert answer.json["code"] == "too_large"
            assert answer.headers["content-type"] == "application/problem+json"
            assert await connection.closed() == b""
    assert (await server.get("/healthz")).status == 200


@pytest.mark.parametrize(
    "endless",
    [
        (b"GET /", b"x" * 65536),
        (b"GET / HTTP/1.1\r\nX-Pad: ", b"x" * 65536),
        (b"GET / HTTP/1.1\r\n", b"X-Pad: x\r\n" * 6000),
        # Behind the last piece of a body, of a request that nobody asked a key for yet.
        (b"POST /v1/workflows HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", b"X-Pad: x\r\n" * 6000),
        (b"POST /v1/workflows HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX-Pad: ", b"x" * 65536),
    ],
    ids=["path", "header", "headers", "trailers", "trailer"],
)
async def test_a_head_without_an_end_is_cut_and_held_nowhere(
    endless: tuple[bytes, bytes], tmp_path: Path
) -> None:
    """F77 before the body: whatever comes without an end is cut off at a bound, and memory stays flat."""
    begin, more = endless
    async with serving(tmp_path / "data") as (server, api):
        await api.get("/healthz")
        before = memory(server.process.pid)
        sent = 0
        async with Connection.open(server.url) as connection:
            await connection.send(begin)
            with suppress(ConnectionError):
                while sent < 64 * 2**20:
                    await connection.send(more)
                    sent += len(more)
        # What the sockets of both sides hold was sent, too.
        assert sent < 32 * 2**20
        assert memory(server.process.pid) < before + 8 * 2**20
        assert (await api.get("/healthz"))["alive"] is True


async def test_those_who_send_slowly_are_hung_up_on_and_hold_up_nobody(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F78: heads that never end and connections on which nothing comes; others are served meanwhile."""
    monkeypatch.setattr(bounds, "HEAD_SECONDS", 2.0)
    alone = await latency(server)
    async with AsyncExitStack() as opened:
        began = time.monotonic()
        slow = [await opened.enter_async_context(Connection.open(server.url)) for _ in range(300)]
        for number, connection in enumerate(slow):
            if number % 3:  # of the others not a byte comes
                await connection.send(b"GET /v1/workflows HTTP/1.1\r\nHost: localhost\r\n")
        assert await latency(server) < 2 * alone + 0.5

        async def drip(connection: Connection) -> None:
            """Send a byte now and then: that is no reason to wait longer."""
            while True:
                await connection.send(b"X")
                await asyncio.sleep(0.1)

        dripping = [asyncio.create_task(drip(connection)) for connection in slow[1::3]]
        ends = await asyncio.gather(*(connection.closed() for connection in slow))
        assert set(ends) == {b""}
        assert time.monotonic() - began < 10
        for task in dripping:
            task.cancel()
        await asyncio.gather(*dripping, return_exceptions=True)
    assert (await server.get("/healthz")).status == 200


async def test_a_connection_that_was_kept_has_the_same_time_for_its_next_head(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F78: the second request of a connection is as bounded as the first."""
    monkeypatch.setattr(bounds, "HEAD_SECONDS", 0.3)
    async with Connection.open(server.url) as connection:
        for _ in range(2):
            assert (await connection.ask(request("GET", "/healthz"))).status == 200
        # With nothing under way it may rest for longer than that.
        await asyncio.sleep(0.5)
        assert (await connection.ask(request("GET", "/healthz"))).status == 200
        await connection.send(b"GET /healthz HTTP/1.1\r\n")
        assert await connection.closed() == b""


async def latency(server: Server) -> float:
    """Return how long a normal call takes at the worst of some."""
    worst = 0.0
    for _ in range(30):
        began = time.monotonic()
        assert (await server.get("/v1/workflows")).status == 200
        worst = max(worst, time.monotonic() - began)
    return worst
