"""``call_external_service``: what goes out, what comes back, and what fails in which way."""

from __future__ import annotations

import asyncio
import gc
import gzip
import itertools
import subprocess
import sys
import zlib
from base64 import b64decode
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import TYPE_CHECKING, Any

import pytest
from tests.handlers.outside import caller, problems, run_node

from weft.clock import RealClock
from weft.core.payload import MAX_VALUES
from weft.handlers.contract import BadConfig
from weft.handlers.http.failure import (
    BadResponse,
    HttpStatus,
    NetworkError,
    ResponseTooLarge,
    read_retry_after,
)
from weft.testing.http_server import Answer, Behaviour, Pieces, Silence, json_answer
from weft.testing.recording_service import RecordingService

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator


MIB = 2**20
HTTP_CALL = "call_external_service"
AT_ONCE = {"retry": {"base_delay_seconds": 0.01, "max_delay_seconds": 0.01}}


@pytest.fixture
def service() -> Iterator[RecordingService]:
    with RecordingService() as service:
        yield service


def text_answer(body: bytes, content_type: str = "text/plain", **headers: str) -> Answer:
    return Answer(200, body, {"Content-Type": content_type, **headers})


# --- What goes out.


@pytest.mark.parametrize(
    ("config", "method", "body", "content_type"),
    [
        ({}, "GET", b"", None),
        ({"body": None}, "GET", b"", None),
        ({"method": "delete"}, "DELETE", b"", None),
        ({"body": {"a": [1, None]}}, "POST", b'{"a":[1,null]}', "application/json"),
        ({"body": False}, "POST", b"false", "application/json"),
        ({"body": "grüße"}, "POST", "grüße".encode(), "text/plain; charset=utf-8"),
        ({"body": "", "method": "PUT"}, "PUT", b"", "text/plain; charset=utf-8"),
        (
            {"body": {}, "headers": {"content-type": "application/ld+json"}},
            "POST",
            b"{}",
            "application/ld+json",
        ),
        ({"body": "<a/>", "method": "PROPFIND"}, "PROPFIND", b"<a/>", "text/plain; charset=utf-8"),
    ],
)
async def test_the_method_and_body_are_those_of_the_config(
    config: Any, method: str, body: bytes, content_type: str | None, service: RecordingService
) -> None:
    async with caller() as call:
        await call({"url": service.url, **config})
    sent = service.calls[0].request
    assert (sent.method, sent.body, sent.headers.get("content-type")) == (method, body, content_type)


async def test_the_headers_are_those_of_the_config_and_a_few_of_ours(service: RecordingService) -> None:
    async with caller() as call:
        await call({"url": service.url, "headers": {"X-Order": 7, "X-Live": True, "Accept": "text/csv"}})
    headers = service.calls[0].request.headers
    assert headers.pop("user-agent").startswith("weft/")
    assert headers == {
        "accept": "text/csv",
        "accept-encoding": "gzip, deflate",
        "host": f"127.0.0.1:{service.port}",
        "idempotency-key": "execution/node/1",
        "x-live": "true",
        "x-order": "7",
    }


@pytest.mark.parametrize("name", ["Idempotency-Key", "idempotency-key", "IDEMPOTENCY-KEY"])
async def test_a_key_of_the_configs_own_takes_the_place_of_ours(name: str, service: RecordingService) -> None:
    async with caller() as call:
        await call({"url": service.url, "headers": {name: "mine"}})
    assert service.calls[0].request.headers["idempotency-key"] == "mine"


@pytest.mark.parametrize(
    ("path", "query", "target"),
    [
        ("", None, "/"),
        ("/a b/ü", None, "/a%20b/%C3%BC"),
        ("/a%2Fb?sig=x%2By%3D%3D&e=%7E", None, "/a%2Fb?sig=x%2By%3D%3D&e=%7E"),
        ("/p#fragment", None, "/p"),
        ("/p?a=1", {"b": 2}, "/p?a=1&b=2"),
        (
            "/p?a=1&c=%2F",
            {"a": "x&y=z", "d": ["1", 2], "e": None, "f": True},
            "/p?c=%2F&a=x%26y%3Dz&d=1&d=2&f=true",
        ),
        ("/p", {"q": "grüße\r\n"}, "/p?q=gr%C3%BC%C3%9Fe%0D%0A"),
    ],
)
async def test_the_url_goes_out_as_it_was_written_with_the_query_laid_over_it(
    path: str, query: Any, target: str, service: RecordingService
) -> None:
    async with caller() as call:
        output = await call({"url": service.url + path, **({"query": query} if query else {})})
    assert service.calls[0].request.target == target
    assert output["url"] == service.url + ("" if target == "/" else target)


@pytest.mark.parametrize(
    "config",
    [
        {"url": "{url}/\r\nX-Injected: 1"},
        {"url": "{url}/\0"},
        {"url": "{url}/\tx"},
        {"url": "{url}\n"},
        {"method": "GET / HTTP/1.1\r\nX-Injected: 1\r\n\r\nGET"},
        {"method": "GET\0"},
        {"method": "CONNECT"},
        {"headers": {"X-A\r\nX-Injected": "1"}},
        {"headers": {"X-A: 1\r\nX-Injected": "1"}},
        {"headers": {"": "1"}},
        {"headers": {"X A": "1"}},
        {"headers": {"X-Ä": "1"}},
        {"headers": {"X-A": "1\r\nX-Injected: 1"}},
        {"headers": {"X-A": "1\nX-Injected: 1"}},
        {"headers": {"X-A": "a\0b"}},
        {"headers": {"Host": "internal"}},
        {"headers": {"Content-Length": "0"}},
        {"headers": {"transfer-encoding": "chunked"}},
        {"headers": {"Connection": "upgrade"}},
    ],
)
async def test_what_would_break_a_line_or_the_framing_never_reaches_a_socket(
    config: Any, service: RecordingService
) -> None:
    filled = {"url": service.url, **config}
    filled["url"] = filled["url"].replace("{url}", service.url)
    async with caller() as call:
        with pytest.raises(BadConfig):
            await call(filled)
    assert service.calls == []


async def test_templates_cannot_bring_in_a_line_either(service: RecordingService) -> None:
    """F88, all the way through the engine."""
    evil = "x\r\nX-Injected: 1"
    for config in (
        {"url": service.url + "/{{ input.evil }}"},
        {"url": service.url, "method": "{{ input.evil }}"},
        {"url": service.url, "headers": {"{{ input.evil }}": "1"}},
        {"url": service.url, "headers": {"X-A": "{{ input.evil }}"}},
    ):
        node = await run_node(config, input={"evil": evil}, fields={"max_retries": 2})
        assert (node["state"], node["error"]["code"], node["attempt"]) == ("FAILED", "bad_config", 1)
    assert service.calls == []


# --- What comes back.


@pytest.mark.parametrize(
    ("content_type", "body", "value"),
    [
        ("application/json", b'{"a": [1, 2.5, null]}', {"a": [1, 2.5, None]}),
        ("application/json; charset=utf-8", b'"x"', "x"),
        ("application/problem+json", b"[]", []),
        ("APPLICATION/JSON", b"0", 0),
        ("application/json", b"{broken", "{broken"),
        ("application/json", b"NaN", "NaN"),
        ("application/json", b"", None),
        ("text/plain", b"", None),
        ("text/plain", "grüße".encode(), "grüße"),
        ("text/plain; charset=latin-1", "grüße".encode("latin-1"), "grüße"),
        ('text/html; charset="ISO-8859-1"', "ü".encode("latin-1"), "ü"),
        ("application/octet-stream", b"plain after all", "plain after all"),
        ("", b"no type", "no type"),
        ("text/json", b"[1]", "[1]"),
    ],
)
async def test_a_body_is_json_or_text_by_its_type(
    content_type: str, body: bytes, value: Any, service: RecordingService
) -> None:
    service.script(text_answer(body, content_type))
    async with caller() as call:
        output = await call({"url": service.url})
    assert output["body"] == value
    assert "body_encoding" not in output


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        ("image/png", b"\x89PNG\r\n\x1a\n\0\0"),
        ("text/plain", b"\xff\xfe"),
        ("text/plain", b"a\0b"),
        ("text/plain; charset=no-such", b"abc"),
        ("text/plain; charset=punycode", b"abc"),
        ("text/plain; charset=zlib", b"abc"),
    ],
)
async def test_what_is_not_text_comes_as_base64(
    content_type: str, body: bytes, service: RecordingService
) -> None:
    service.script(text_answer(body, content_type))
    async with caller() as call:
        output = await call({"url": service.url})
    assert (b64decode(output["body"]), output["body_encoding"]) == (body, "base64")


async def test_the_names_of_headers_come_in_lower_case_and_repeated_ones_joined(
    service: RecordingService,
) -> None:
    service.script(
        Pieces([b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX-One: a\r\nx-one: b\r\nX-Raw: \xff\r\n\r\n"])
    )
    async with caller() as call:
        output = await call({"url": service.url})
    assert output == {
        "status": 200,
        "headers": {"content-length": "0", "x-one": "a, b", "x-raw": "?"},
        "body": None,
        "url": service.url,
    }


@pytest.mark.parametrize(
    ("encoding", "packed"),
    [
        ("gzip", gzip.compress(b"hello", mtime=0)),
        ("x-gzip", gzip.compress(b"hel", mtime=0) + gzip.compress(b"lo", mtime=0)),
        ("deflate", zlib.compress(b"hello")),
        ("deflate", zlib.compress(b"hello")[2:-4]),
        ("identity", b"hello"),
    ],
)
async def test_a_compressed_body_is_unpacked(encoding: str, packed: bytes, service: RecordingService) -> None:
    service.script(text_answer(packed, **{"Content-Encoding": encoding}))
    async with caller() as call:
        assert (await call({"url": service.url}))["body"] == "hello"


async def test_a_cookie_is_not_kept_for_the_next_call(service: RecordingService) -> None:
    service.script(Answer(200, headers={"Set-Cookie": "session=1"}))
    async with caller() as call:
        await call({"url": service.url})
        await call({"url": service.url})
    assert "cookie" not in service.calls[1].request.headers


async def test_calls_share_a_connection(service: RecordingService) -> None:
    async with caller() as call:
        for _ in range(5):
            await call({"url": service.url})
        assert len(service._connections) == 1


# --- Statuses.


@pytest.mark.parametrize(
    ("status", "success_status", "completes"),
    [
        (200, None, True),
        (204, None, True),
        (404, None, False),
        (404, [404], True),
        (404, ["4xx"], True),
        (500, ["2xx", "5XX"], True),
        (201, [200], False),
        (304, ["3xx"], True),
        (302, [302], True),
    ],
)
async def test_success_is_what_the_config_says(
    status: int, success_status: Any, completes: bool, service: RecordingService
) -> None:
    service.script(Answer(status, headers={"Location": "/elsewhere"}))
    config = {"url": service.url, **({"success_status": success_status} if success_status else {})}
    async with caller() as call:
        if completes:
            assert (await call(config))["status"] == status
        else:
            with pytest.raises(HttpStatus):
                await call(config)


@pytest.mark.parametrize(
    ("status", "retryable"),
    [
        *((status, False) for status in (304, 400, 401, 404, 409, 422)),
        *((status, True) for status in (408, 429, 500, 502, 503, 599)),
    ],
)
async def test_a_status_retries_or_does_not(status: int, retryable: bool, service: RecordingService) -> None:
    service.script(json_answer({"reason": "no"}, status=status))
    node = await run_node({"url": service.url + "/p?token=s"}, fields={"max_retries": 1, **AT_ONCE})
    assert (node["state"], node["attempt"]) == (("COMPLETED", 2) if retryable else ("FAILED", 1))
    error = node["attempts"][0]["error"]
    assert (error["code"], error["retryable"]) == ("http_status", retryable)
    assert error["details"] == (
        {"status": status} if status == 304 else {"status": status, "body": '{"reason":"no"}'}
    )
    assert f"GET {service.url}/p answered {status}" in error["message"]
    assert "token" not in error["message"]


async def test_the_body_of_a_failure_is_told_in_part(service: RecordingService) -> None:
    service.script(
        text_answer(b"x" * MIB), Answer(500, gzip.compress(b"y" * MIB), {"Content-Encoding": "gzip"})
    )
    async with caller() as call:
        for letter, wanted in (("x", [404]), ("y", [200])):
            with pytest.raises(HttpStatus) as caught:
                await call({"url": service.url, "success_status": wanted})
            assert caught.value.details["body"] == letter * 2000 + "…"


@pytest.mark.parametrize("status", [408, 429, 500, 503])
async def test_retry_after_is_a_floor_for_the_next_attempt(status: int, service: RecordingService) -> None:
    service.script(Answer(status, headers={"Retry-After": "1"}))
    node = await run_node({"url": service.url}, fields={"max_retries": 1, **AT_ONCE})
    assert node["state"] == "COMPLETED"
    first, second = service.calls
    assert second.at - first.at >= 1_000_000


async def test_retry_after_may_be_a_date(service: RecordingService) -> None:
    until = datetime.fromtimestamp(RealClock().now() // 1_000_000 + 2, UTC)
    service.script(Answer(429, headers={"Retry-After": format_datetime(until, usegmt=True)}))
    node = await run_node({"url": service.url}, fields={"max_retries": 1, **AT_ONCE})
    assert node["state"] == "COMPLETED"
    assert service.calls[1].at >= until.timestamp() * 1_000_000


NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        (None, None),
        ("0", 0.0),
        (" 120 ", 120.0),
        ("1.5", 1.5),
        (format_datetime(NOON + timedelta(seconds=90), usegmt=True), 90.0),
        ("Sunday, 15-Nov-26 12:01:00 GMT", 60.0),
        ("Sun Nov 15 12:01:00 2026", 60.0),
        (format_datetime(NOON - timedelta(days=1), usegmt=True), 0.0),
        ("-1", None),
        ("soon", None),
        ("1" * 30, None),
        ("", None),
        ("Sun, 99 Nov 2026 99:99:99 GMT", None),
    ],
)
def test_retry_after_is_read_in_all_its_forms(text: str | None, seconds: float | None) -> None:
    assert read_retry_after(text, now=int(NOON.timestamp()) * 1_000_000) == seconds


async def test_a_failure_whose_body_never_ends_keeps_its_status_and_its_floor(
    service: RecordingService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weft.handlers.http.response._EXCERPT_SECONDS", 0.1)
    head = b"HTTP/1.1 503 Busy\r\nRetry-After: 7\r\nContent-Length: 100\r\n\r\nbu"
    service.script(Pieces([head, b"sy"], pause_seconds=60))
    async with caller() as call:
        with pytest.raises(HttpStatus) as caught:
            await call({"url": service.url})
    assert caught.value.retry_after_seconds == 7
    assert caught.value.details == {"status": 503, "retry_after_seconds": 7.0, "body": "bu"}


# --- Redirects.


def redirecting(*steps: tuple[int, str]) -> list[Behaviour]:
    return [Answer(status, headers={"Location": location}) for status, location in steps]


async def test_redirects_are_followed_and_the_last_url_is_told(service: RecordingService) -> None:
    service.script(
        *redirecting(
            (301, "/one"), (302, f"{service.url}/two"), (307, "?x=1"), (308, "../three"), (303, "/end#part")
        )
    )
    async with caller() as call:
        output = await call({"url": service.url + "/start"})
    targets = [recorded.request.target for recorded in service.calls]
    assert targets == ["/start", "/one", "/two", "/two?x=1", "/three", "/end"]
    assert output["url"] == service.url + "/end"


async def test_a_redirect_that_never_ends_fails_for_good_after_five(service: RecordingService) -> None:
    service.script(*redirecting(*[(302, "/again")] * 10))
    async with caller() as call:
        with pytest.raises(HttpStatus, match="more than 5 redirects") as caught:
            await call({"url": service.url})
    assert (caught.value.retryable, caught.value.details) == (False, {"status": 302})
    assert len(service.calls) == 6


@pytest.mark.parametrize("location", ["http://[broken/", "http://h:99999/", "http://a b/"])
async def test_a_redirect_to_no_url_fails_for_good(location: str, service: RecordingService) -> None:
    service.script(*redirecting((302, location)))
    async with caller() as call:
        with pytest.raises(HttpStatus, match="cannot be called") as caught:
            await call({"url": service.url})
    assert not caught.value.retryable


async def test_a_redirect_without_a_place_is_a_status_like_others(service: RecordingService) -> None:
    service.script(Answer(302))
    async with caller() as call:
        with pytest.raises(HttpStatus, match="302 Found"):
            await call({"url": service.url})


@pytest.mark.parametrize(
    ("status", "method", "then"),
    [
        (301, "POST", "GET"),
        (302, "POST", "GET"),
        (303, "POST", "GET"),
        (303, "PUT", "GET"),
        (303, "HEAD", "HEAD"),
        (301, "PUT", "PUT"),
        (307, "POST", "POST"),
        (308, "POST", "POST"),
    ],
)
async def test_the_method_after_a_redirect_is_that_of_rfc_9110(
    status: int, method: str, then: str, service: RecordingService
) -> None:
    service.script(*redirecting((status, "/next")))
    async with caller() as call:
        await call({"url": service.url, "method": method, "body": {"a": 1}})
    sent = service.calls[1].request
    assert sent.method == then
    assert sent.body == (b'{"a":1}' if then == method else b"")
    assert ("content-type" in sent.headers) == (then == method)


async def test_another_origin_is_not_told_what_may_be_a_credential(service: RecordingService) -> None:
    headers = {"Authorization": "Bearer s", "Cookie": "c=s", "X-Api-Key": "s", "Accept": "text/csv"}
    with RecordingService() as other:
        service.script(*redirecting((302, "/same"), (302, other.url)))
        async with caller() as call:
            await call({"url": service.url, "headers": headers})
        same = service.calls[1].request.headers
        assert headers.items() <= {name.title(): value for name, value in same.items()}.items()
        there = other.calls[0].request.headers
    assert sorted(there) == ["accept", "accept-encoding", "host", "idempotency-key", "user-agent"]
    assert "s" not in [there["accept"], there["idempotency-key"]]


# --- What breaks (F59, F60).


async def test_a_bomb_of_gzip_is_stopped_at_the_limit(service: RecordingService) -> None:
    bomb = gzip.compress(bytes(50 * MIB), 9)
    service.script(text_answer(bomb, **{"Content-Encoding": "gzip"}))
    async with caller(max_response_bytes=MIB) as call:
        with pytest.raises(ResponseTooLarge, match="1,048,576") as caught:
            await call({"url": service.url})
    assert not caught.value.retryable


GZIP = {"Content-Encoding": "gzip"}
DEFLATE = {"Content-Encoding": "deflate"}
JSON = {"Content-Type": "application/json"}


@asynccontextmanager
async def bystander() -> AsyncIterator[list[float]]:
    """Measure how long the loop keeps a bystander waiting, in seconds; the longest wait comes first."""
    gaps: list[float] = []
    # Thousands of tests have left objects in this process, which no worker has: not to be looked through now.
    gc.collect()
    gc.freeze()

    async def look() -> None:
        loop = asyncio.get_running_loop()
        before = loop.time()
        while True:
            await asyncio.sleep(0)
            now = loop.time()
            gaps.append(now - before)
            before = now

    looking = asyncio.create_task(look())
    try:
        yield gaps
    finally:
        looking.cancel()
        gc.unfreeze()
        gaps.sort(reverse=True)


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        pytest.param(gzip.compress(bytes(200 * MIB), 9), GZIP, id="gzip"),
        pytest.param(zlib.compress(bytes(200 * MIB), 9), DEFLATE, id="deflate"),
        pytest.param(zlib.compress(bytes(200 * MIB), 9)[2:-4], DEFLATE, id="raw deflate"),
        pytest.param(
            gzip.compress(b"[" + b"[%s0]," % (b"0," * 50) * 100_000 + b"0]", 9),
            GZIP | JSON,
            id="lists of JSON",
        ),
        pytest.param(gzip.compress(b"[" + b"0," * (5 * MIB) + b"0]", 9), GZIP | JSON, id="numbers of JSON"),
        pytest.param(b"\x03\x00" * 300_000, DEFLATE, id="empty parts"),
        pytest.param(gzip.compress(bytes(10 * MIB) + b"\xff", 1), GZIP, id="base64"),
    ],
)
async def test_a_bomb_holds_up_nobody(
    body: bytes, headers: dict[str, str], service: RecordingService
) -> None:
    service.script(Answer(200), Answer(200, body, headers))
    async with caller() as call:
        await call({"url": service.url})  # what a first call loads
    async with bystander() as gaps:
        # In the end the output is too large for a payload: making it is what may not hold up others.
        node = await run_node({"url": service.url}, max_response_bytes=100 * MIB, max_payload_bytes=MIB)
    assert node["error"]["code"] in ("response_too_large", "output_too_large", "bad_response")
    # The budget is 50 ms; a machine with other work to do takes longer by itself.
    assert gaps[0] < 0.25


async def test_a_response_of_too_many_values_is_too_large(service: RecordingService) -> None:
    service.script(Answer(200, b"[" + b'"a,b",' * MAX_VALUES + b"0]", JSON))
    async with caller() as call:
        with pytest.raises(ResponseTooLarge, match="1,000,001 values; the limit is 1,000,000"):
            await call({"url": service.url})


async def test_a_bomb_ends_with_the_timeout_of_its_node(service: RecordingService) -> None:
    bomb = gzip.compress(bytes(1000 * MIB), 9)
    service.script(Answer(200, bomb, GZIP))
    node = await run_node(
        {"url": service.url}, fields={"timeout_seconds": 0.1}, max_response_bytes=10_000 * MIB
    )
    assert node["error"]["code"] == "timeout"


async def test_layers_of_compression_that_nobody_asked_for_stay_on(service: RecordingService) -> None:
    layered = gzip.compress(gzip.compress(bytes(MIB)))
    for encoding in ("gzip, gzip", "deflate, gzip", ", ".join(["gzip"] * 1000), "br"):
        service.script(text_answer(layered, **{"Content-Encoding": encoding}))
        async with caller() as call:
            answer = await call({"url": service.url})
        assert b64decode(answer["body"]) == layered
        assert answer["body_encoding"] == "base64"


async def test_too_many_parts_are_refused(service: RecordingService) -> None:
    service.script(
        Answer(200, gzip.compress(b"a") * 10_000, GZIP), Answer(200, b"\x03\x00" * 10_001, DEFLATE)
    )
    async with caller() as call:
        assert (await call({"url": service.url}))["body"] == "a" * 10_000
        with pytest.raises(BadResponse, match="more than 10,000 compressed parts"):
            await call({"url": service.url})


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": 1, "a": 2}', {"a": 2}),
        ("[1.5, -7, 123456789012345678901234567890]", [1.5, -7, 123456789012345678901234567890]),
        ('["\\ud83d\\ude00"]', ["\N{GRINNING FACE}"]),
        ("[NaN]", "[NaN]"),
        ("[1e999]", "[1e999]"),
        ('["\\ud83d"]', '["\\ud83d"]'),
        ("[" * 3000 + "]" * 3000, "[" * 3000 + "]" * 3000),
    ],
)
async def test_a_large_body_is_read_as_a_small_one(text: str, value: Any, service: RecordingService) -> None:
    large = text + " " * 200_000
    service.script(*(text_answer(body.encode(), "application/json") for body in (text, large)))
    async with caller() as call:
        answers = [await call({"url": service.url}) for _ in range(2)]
    small, long = (answer["body"] for answer in answers)
    assert small == value
    assert (long.strip() if isinstance(long, str) else long) == value


async def test_a_body_without_end_is_stopped_at_the_limit(service: RecordingService) -> None:
    chunk = b"10000\r\n" + bytes(0x10000) + b"\r\n"
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    service.script(Pieces(itertools.chain([head], itertools.repeat(chunk))))
    async with caller(max_response_bytes=MIB) as call:
        with pytest.raises(ResponseTooLarge):
            await call({"url": service.url})


async def test_a_compressed_body_that_holds_nothing_is_stopped_as_well(service: RecordingService) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n"
    service.script(Pieces(itertools.chain([head], itertools.repeat(gzip.compress(b"") * 100))))
    async with caller(max_response_bytes=64 * 1024) as call:
        with pytest.raises(ResponseTooLarge):
            await call({"url": service.url})


@pytest.mark.parametrize("size", [1000, 1001])
async def test_the_limit_is_exact(size: int, service: RecordingService) -> None:
    service.script(
        text_answer(b"x" * size), text_answer(gzip.compress(b"x" * size), **{"Content-Encoding": "gzip"})
    )
    async with caller(max_response_bytes=1000) as call:
        for _ in range(2):
            if size <= 1000:
                assert len((await call({"url": service.url}))["body"]) == size
            else:
                with pytest.raises(ResponseTooLarge):
                    await call({"url": service.url})


@pytest.mark.parametrize(
    ("behaviour", "error"),
    [
        (Pieces([]), NetworkError),
        (Pieces([b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort"]), NetworkError),
        (Pieces([b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel"]), NetworkError),
        (Pieces([b"HTTP/1.1 200 OK\r\nContent-Le"]), NetworkError),
        (Pieces([b"SSH-2.0-OpenSSH_9.7\r\n"]), BadResponse),
        (Pieces([b"HTTP/1.1 200 OK\r\nX-Long: " + b"x" * 100_000 + b"\r\n\r\n"]), BadResponse),
        (text_answer(b"not gzip", **{"Content-Encoding": "gzip"}), BadResponse),
        (text_answer(gzip.compress(b"hello")[:-9], **{"Content-Encoding": "gzip"}), NetworkError),
    ],
)
async def test_a_connection_or_response_that_breaks_retries(
    behaviour: Behaviour, error: type[NetworkError | BadResponse], service: RecordingService
) -> None:
    service.script(behaviour)
    async with caller() as call:
        with pytest.raises(error) as caught:
            await call({"url": service.url + "/p?secret=1"})
        assert caught.value.retryable
        assert "secret" not in str(caught.value)
        # It was sent once: to send it again is for the engine to decide.
        assert len(service.calls) == 1
        assert (await call({"url": service.url}))["status"] == 200


async def test_nobody_at_the_address_is_a_network_error() -> None:
    with RecordingService() as gone:
        pass
    node = await run_node({"url": gone.url})
    assert node["error"] == {
        "code": "network_error",
        "message": f"GET {gone.url}: no connection: Connect call failed ('127.0.0.1', {gone.port})",
        "retryable": True,
        "details": {},
    }


async def test_a_name_without_address_is_a_network_error() -> None:
    async def lookup(name: str) -> list[str]:
        return []

    async with caller(lookup=lookup) as call:
        with pytest.raises(NetworkError, match=r"nowhere\.example cannot be resolved"):
            await call({"url": "http://nowhere.example/"})


@pytest.mark.parametrize(
    "behaviour",
    [
        Silence(),
        Pieces((bytes([byte]) for byte in b"HTTP/1.1 200 OK\r\n\r\nslow" * 100), pause_seconds=0.02),
    ],
)
async def test_the_nodes_timeout_is_for_the_whole_call(
    behaviour: Behaviour, service: RecordingService
) -> None:
    service.script(behaviour)
    node = await run_node({"url": service.url}, fields={"timeout_seconds": 0.3})
    assert (node["error"]["code"], node["error"]["retryable"]) == ("timeout", True)


async def test_the_key_is_the_same_for_every_attempt(service: RecordingService) -> None:
    service.script(Answer(500), Answer(503))
    node = await run_node({"url": service.url}, fields={"max_retries": 2, **AT_ONCE})
    assert node["output"]["body"] == {"token": "token-3", "number": 3}
    assert len({recorded.key for recorded in service.calls}) == 1
    assert (service.calls[0].node, service.calls[0].generation) == ("node", 1)


async def test_two_hundred_calls_at_once_all_come_through(service: RecordingService) -> None:
    service.hold()
    async with caller(worker_concurrency=200) as call:
        waiting = [asyncio.create_task(call({"url": service.url})) for _ in range(200)]
        await service.came(200)
        service.release()
        outputs = await asyncio.gather(*waiting)
    assert len({output["body"]["token"] for output in outputs}) == 200


# --- Validation.


@pytest.mark.parametrize(
    ("config", "pointers"),
    [
        ({}, {""}),
        ({"url": ""}, {"/url"}),
        ({"url": 7, "metod": "GET"}, {"/url", ""}),
        ({"url": "http://x", "method": "GE T"}, {"/method"}),
        ({"url": "http://x", "headers": {"a b": "x"}}, {"/headers"}),
        ({"url": "http://x", "headers": {"a": None}}, {"/headers/a"}),
        ({"url": "http://x", "query": {"a": {}}}, {"/query/a"}),
        ({"url": "http://x", "query": {"a": [[]]}}, {"/query/a/0"}),
        ({"url": "http://x", "success_status": []}, {"/success_status"}),
        ({"url": "http://x", "success_status": [99, "20x", 2.5]}, {f"/success_status/{n}" for n in range(3)}),
        ({"url": "http://x", "success_status": "2xx"}, {"/success_status"}),
        ("http://x", {""}),
    ],
)
def test_a_config_that_does_not_fit_is_named_by_its_fields(config: Any, pointers: set[str]) -> None:
    assert set(problems(HTTP_CALL, config)) == pointers


@pytest.mark.parametrize(
    "config",
    [
        {"url": "{{ input.url }}"},
        {"url": "http://x", "method": "{{ input.method }}", "success_status": "{{ input.codes }}"},
        {"url": "http://x", "headers": {"{{ input.name }}": "{{ input.value }}"}},
        {"url": "http://x", "headers": "{{ input.headers }}", "query": "{{ input.query }}"},
        {"url": "http://x", "body": ["{{ input.body }}"], "success_status": [200, "{{ input.code }}"]},
    ],
)
def test_templates_pass_wherever_they_stand(config: Any) -> None:
    assert problems(HTTP_CALL, config) == {}


def test_preloading_loads_aiohttp_beside_the_caller() -> None:
    program = """
import sys, threading
from weft.handlers.http.outbound import Outbound
assert "aiohttp" not in sys.modules, "it is loaded without need"
Outbound.preload()
(thread,) = [thread for thread in threading.enumerate() if thread.name == "weft-preload"]
thread.join(60)
assert "aiohttp" in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


def test_a_process_that_ends_while_it_preloads_waits_for_that() -> None:
    """Otherwise it may crash: extensions are half loaded then."""
    program = """
import atexit, threading
from weft.handlers.http.outbound import Outbound
atexit.register(lambda: print([thread.name for thread in threading.enumerate()]))
Outbound.preload()
"""
    ended = subprocess.run([sys.executable, "-c", program], check=True, timeout=120, capture_output=True)
    assert ended.stdout.strip() == b"['MainThread']"
