"""The language model that ships for tests: what it says, what it writes down, how it is started."""

from __future__ import annotations

import asyncio
import signal
import sys
from typing import Any

import aiohttp
import jsonschema_rs
import pytest

from weft.testing.fake_llm import ChatRequest, FakeLLM, cut, example_of, failed, reply

ASK = {"model": "m", "messages": [{"role": "user", "content": "Hello there"}]}


async def ask(session: aiohttp.ClientSession, llm: FakeLLM, body: Any = ASK) -> Any:
    async with session.post(f"{llm.base_url}/chat/completions", json=body) as response:
        return response.status, await response.json()


async def test_it_repeats_the_prompt_unless_it_has_a_script() -> None:
    async with FakeLLM() as llm, aiohttp.ClientSession() as session:
        llm.script(reply("first"), failed(500))
        answers = [await ask(session, llm) for _ in range(3)]
    texts = [
        body["choices"][0]["message"]["content"] if status == 200 else status for status, body in answers
    ]
    assert texts == ["first", 500, "You said: Hello there"]
    assert [request.prompt for request in llm.requests] == ["Hello there"] * 3


async def test_it_behaves_as_a_whole_as_it_was_made_to() -> None:
    async with FakeLLM(failed(503)) as llm, aiohttp.ClientSession() as session:
        assert [(await ask(session, llm))[0] for _ in range(2)] == [503, 503]


async def test_it_breaks_a_reply_off_in_the_middle() -> None:
    async with FakeLLM(cut()) as llm, aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.ClientPayloadError):
            await ask(session, llm)


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/v1/models", b"", 200),
        ("GET", "/v1/chat/completions", b"", 404),
        ("POST", "/v1/embeddings", b"{}", 404),
        ("POST", "/v1/chat/completions", b"[]", 400),
        ("POST", "/v1/chat/completions", b"{", 400),
    ],
)
async def test_it_answers_what_it_does_not_know_with_an_error(
    method: str, path: str, body: bytes, status: int
) -> None:
    async with (
        FakeLLM() as llm,
        aiohttp.ClientSession() as session,
        session.request(method, llm.url + path, data=body) as response,
    ):
        assert response.status == status
        assert ("error" in await response.json()) == (status != 200)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"a": {"type": "string", "minLength": 9}, "b": {"type": "boolean"}}},
        {"type": "array", "items": {"type": "integer", "minimum": 5}, "minItems": 3},
        {"enum": ["x", "y"]},
        {"const": 7},
        {"anyOf": [{"type": "null"}, {"type": "string"}]},
        {"type": ["string", "null"], "maxLength": 2},
        {"type": "number", "maximum": -3},
        {"properties": {"deep": {"type": "array", "items": {"type": "object"}}}, "required": ["deep"]},
    ],
)
def test_its_values_fit_their_schema(schema: Any) -> None:
    assert jsonschema_rs.is_valid(schema, example_of(schema))


def test_it_tells_how_many_came_within_a_second() -> None:
    llm = FakeLLM()
    llm.requests = [ChatRequest(at, {}, {}) for at in (0, 100_000, 999_999, 1_000_000, 1_000_001, 5_000_000)]
    assert llm.most_within(1.0) == 4
    assert llm.most_within(0.1) == 3
    assert FakeLLM().most_within() == 0


async def test_three_hundred_callers_at_once_are_all_heard() -> None:
    connector = aiohttp.TCPConnector(limit=300)
    async with FakeLLM() as llm, aiohttp.ClientSession(connector=connector) as session:
        answers = await asyncio.gather(*(ask(session, llm) for _ in range(300)))
    assert {status for status, _ in answers} == {200}
    assert llm.most_within(60) == 300


def test_a_port_that_is_taken_is_told() -> None:
    with FakeLLM() as llm, pytest.raises(OSError, match="in use"), FakeLLM(port=llm.port):
        pass


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize(("module", "path"), [("fake_llm", "/v1/models"), ("recording_service", "/")])
async def test_it_runs_on_its_own_until_it_is_told_to_stop(number: int, module: str, path: str) -> None:
    command = (sys.executable, "-m", f"weft.testing.{module}")
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    url = (await process.stdout.readline()).decode().strip()
    async with aiohttp.ClientSession() as session, session.get(url.removesuffix("/v1") + path) as response:
        assert response.status == 200
    process.send_signal(number)
    async with asyncio.timeout(20):
        assert await process.wait() == 0
