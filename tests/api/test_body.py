"""Bodies: bounded before they are in memory, strict, and never at the cost of the others."""

from __future__ import annotations

import asyncio
import io
import resource
import socket
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from weft.core.payload import MAX_DOCUMENT_VALUES, VALUE_BYTES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.api.conftest import Answer, Serve, Server

JSON = {"Content-Type": "application/json"}
YAML = {"Content-Type": "application/yaml"}
MIB = 2**20


async def validate(server: Server, body: Any, headers: dict[str, str]) -> Answer:
    return await server.post("/v1/workflows/validate", data=body, headers=headers)


class TestSyntax:
    @pytest.mark.parametrize(
        "text",
        [
            b"",
            b"{",
            b"[NaN]",
            b"[Infinity]",
            b"[-Infinity]",
            b"[1e999]",
            b'{"a": 1, "a": 2}',
            b'{"x": {"a": 1, "\\u0061": 2}}',
            b"[" * 100_000,
            b"[" * 101 + b"]" * 101,
            b"[" + b"9" * 5_000 + b"]",
            b'["\\ud800"]',
            b'["\xff"]',
            b"\xef\xbb\xbf{}",
            "{}".encode("utf-16"),
            b"{} x",
            b"{'a': 1}",
            b'["\x00"]',
        ],
        ids=range(18),
    )
    async def test_what_is_not_json_is_bad_syntax(self, server: Server, text: bytes) -> None:
        refused = await validate(server, text, JSON)
        assert (refused.status, refused.json["code"]) == (400, "bad_syntax")

    @pytest.mark.parametrize(
        "text",
        [
            b"!!python/object/apply:os.system [id]",
            b"a: &a [x, x]\nb: *b",
            b"a: &a [*a]",
            b"a: 1\na: 2",
            b"[" * 500 + b"]" * 500,
            b"a: 1\n---\nb: 2",
            b"a: .nan",
            b"? [1]\n: 2",
            b"1: x",
            b"\xff",
            b"a: [",
            b"\n".join(
                [b"a0: &a0 [x, x, x, x, x, x, x, x, x]"]
                + [b"a%d: &a%d [%s]" % (n, n, b", ".join([b"*a%d" % (n - 1)] * 9)) for n in range(1, 10)]
            ),
        ],
        ids=range(12),
    )
    async def test_what_is_not_yaml_is_bad_syntax(self, server: Server, text: bytes) -> None:
        refused = await validate(server, text, YAML)
        assert (refused.status, refused.json["code"]) == (400, "bad_syntax")

    async def test_yaml_is_typed_as_version_1_2(self, server: Server) -> None:
        text = b"name: flow\nnodes: [{id: a, handler: echo, config: {a: no, b: 012, c: 1:30, d: 2020-01-01}}]"
        await server.post("/v1/workflows", data=text, headers=YAML)
        config = (await server.get("/v1/workflows/flow")).json["definition"]["nodes"][0]["config"]
        assert config == {"a": "no", "b": 12, "c": "1:30", "d": "2020-01-01"}


class TestMediaTypes:
    @pytest.mark.parametrize(
        "name",
        [
            "application/json",
            "application/json; charset=utf-8",
            'application/json;charset="UTF-8"',
            "Application/JSON",
            "application/yaml",
            "text/yaml",
            "text/yaml; charset=utf-8",
        ],
    )
    async def test_these_are_read(self, server: Server, name: str) -> None:
        assert (await validate(server, b"{}", {"Content-Type": name})).status == 200

    @pytest.mark.parametrize(
        "headers",
        [
            {"Content-Type": "text/plain"},
            {"Content-Type": "application/x-www-form-urlencoded"},
            {"Content-Type": "multipart/form-data; boundary=x"},
            {"Content-Type": "application/json; charset=latin-1"},
            {"Content-Type": "application/jsonx"},
            {"Content-Type": "application/octet-stream"},
            {**JSON, "Content-Encoding": "gzip"},
        ],
    )
    async def test_others_are_refused(self, server: Server, headers: dict[str, str]) -> None:
        refused = await validate(server, b"{}", headers)
        assert (refused.status, refused.json["code"]) == (415, "unsupported_media_type")

    async def test_a_body_without_a_type_is_read_as_json(self, server: Server) -> None:
        answer = await raw(
            server,
            b"POST /v1/workflows/validate HTTP/1.1\r\nHost: localhost\r\n"
            b"Connection: close\r\nContent-Length: 2\r\n\r\n{}",
        )
        assert answer.startswith(b"HTTP/1.1 200 ")

    async def test_two_types_are_refused(self, server: Server) -> None:
        answer = await raw(
            server,
            b"POST /v1/workflows/validate HTTP/1.1\r\nHost: localhost\r\n"
            b"Connection: close\r\nContent-Type: application/json\r\n"
            b"Content-Type: text/yaml\r\nContent-Length: 2\r\n\r\n{}",
        )
        assert answer.startswith(b"HTTP/1.1 415 ")


async def raw(server: Server, request: bytes) -> bytes:
    url = urlsplit(server.url)
    reader, writer = await asyncio.open_connection(url.hostname, url.port)
    writer.write(request)
    try:
        return await asyncio.wait_for(reader.read(), 10)
    finally:
        writer.close()


class TestSize:
    async def test_the_limit_itself_is_allowed(self, serve: Serve) -> None:
        async with serve(max_body_bytes=1000) as server:
            assert (await validate(server, b'"' + b"x" * 998 + b'"', JSON)).status == 200
            assert (await validate(server, b'"' + b"x" * 999 + b'"', JSON)).status == 413

    async def test_a_body_of_too_many_values_is_refused_before_they_are_made(self, server: Server) -> None:
        for body, header, detail in (
            (
                b"[" + b"[]," * (MAX_DOCUMENT_VALUES // 2) + b"0]",
                JSON,
                "3,000,001 values; the limit is 3,000,000",
            ),
            (
                b"[" + b'"ab",' * MAX_DOCUMENT_VALUES + b'"ab"]',
                JSON,
                "3,000,001 values; the limit is 3,000,000",
            ),
        ):
            answer = await validate(server, io.BytesIO(body), header)
            assert (answer.status, answer.json["code"]) == (413, "too_large")
            assert answer.json["detail"] == f"the body has {detail}"

    async def test_what_is_made_of_large_bodies_is_bounded_and_small_ones_pass(self, server: Server) -> None:
        count = 200_000
        text = b"[" + b"0," * count + b"0]"
        held = server.service.load.value_bytes
        held.force("another", held.limit - count)
        answer = await validate(server, text, JSON)
        assert (answer.status, answer.json["code"]) == (503, "overloaded")
        assert (await validate(server, b"[0]", JSON)).status == 200
        held.give_back("another", count * VALUE_BYTES)
        assert (await validate(server, text, JSON)).status == 200
        held.give_back("another", held.in_use)
        # The first of all is let in whatever its size, and leaves nothing behind.
        held.limit = 1
        assert (await validate(server, text, JSON)).status == 200
        assert held.in_use == 0

    async def test_a_declared_length_over_the_limit_is_refused_before_anything_is_sent(
        self, serve: Serve
    ) -> None:
        async with serve(max_body_bytes=1000) as server:
            head = (
                b"POST /v1/workflows HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                b"Content-Length: 10000000000\r\n\r\n"
            )
            answer = await raw(server, head)
        assert answer.startswith(b"HTTP/1.1 413 ")
        assert b'"code":"too_large"' in answer

    async def test_a_gigabyte_in_pieces_is_refused_at_the_limit_and_held_nowhere(
        self, server: Server
    ) -> None:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        url = urlsplit(server.url)
        reader, writer = await asyncio.open_connection(url.hostname, url.port)
        writer.write(
            b"POST /v1/workflows HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n"
            b"Content-Type: application/json\r\n\r\n"
        )
        piece = b"%x\r\n%s\r\n" % (MIB, b"x" * MIB)
        answered = asyncio.create_task(reader.readuntil(b"\r\n\r\n"))
        for number in range(1024):
            writer.write(piece)
            await writer.drain()
            if number == 64:
                # Long before the end: what comes after it is dropped.
                assert (await asyncio.wait_for(answered, 20)).startswith(b"HTTP/1.1 413 ")
        writer.transport.abort()
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        # Kilobytes: a body up to the limit, twice while it grows, and no more.
        assert grown < 100 * 1024

    async def test_a_small_body_in_pieces_is_read(self, server: Server) -> None:
        async def pieces() -> AsyncIterator[bytes]:
            for piece in (b'{"na', b'me": "flow", "nodes": [{"id": "a", "handler"', b': "echo"}]}'):
                yield piece

        assert (await validate(server, pieces(), JSON)).json["valid"]


async def test_a_caller_that_leaves_while_it_sends_harms_nobody(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    url = urlsplit(server.url)
    _, writer = await asyncio.open_connection(url.hostname, url.port)
    writer.write(b"POST /v1/workflows HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
    await writer.drain()
    sock = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    writer.transport.abort()
    assert (await server.get("/healthz")).status == 200
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []


async def test_while_a_long_document_is_read_others_are_served(server: Server) -> None:
    # The reader of the standard library would hold the interpreter for a second.
    body = b"[" + b"1.5e3," * (MAX_DOCUMENT_VALUES - 2) + b"1]"
    longest, done = 0.0, asyncio.Event()

    async def tick() -> None:
        nonlocal longest
        loop = asyncio.get_running_loop()
        while not done.is_set():
            before = loop.time()
            await asyncio.sleep(0.005)
            longest = max(longest, loop.time() - before)

    ticking = asyncio.create_task(tick())
    began = asyncio.get_running_loop().time()
    verdict = await validate(server, io.BytesIO(body), JSON)
    elapsed = asyncio.get_running_loop().time() - began
    done.set()
    await ticking
    assert (verdict.status, verdict.json["valid"]) == (200, False)
    # In proportion: on a busy machine everything takes longer, but nobody is held up for most of it.
    assert longest < max(0.5, elapsed / 3)
