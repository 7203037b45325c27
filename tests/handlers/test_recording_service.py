"""The service that ships for tests: every call is written down, and answered as it was told."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import pytest

from weft.clock import RealClock
from weft.testing.http_server import Answer, Pieces, Silence
from weft.testing.recording_service import RecordingService


async def get(session: aiohttp.ClientSession, url: str, key: str | None = None) -> tuple[int, Any]:
    headers = {} if key is None else {"Idempotency-Key": key}
    async with session.get(url, headers=headers) as response:
        return response.status, await response.json(content_type=None)


async def test_a_call_is_written_down_by_its_key() -> None:
    before = RealClock().now()
    async with RecordingService() as service, aiohttp.ClientSession() as session:
        answers = [
            await get(session, service.url + "/x?y=1", key) for key in ("e/pay/2", "e/pay/2", "e/ship/1")
        ]
    first, second, third = service.calls
    assert (first.execution, first.node, first.generation, first.number) == ("e", "pay", 2, 1)
    assert (second.node, second.number, third.node, third.number) == ("pay", 2, "ship", 1)
    assert [body["token"] for _, body in answers] == [call.token for call in service.calls]
    assert len({call.token for call in service.calls}) == 3
    assert (first.request.method, first.request.target, first.request.body) == ("GET", "/x?y=1", b"")
    assert before <= first.at <= second.at <= third.at <= RealClock().now()


@pytest.mark.parametrize("key", [None, "mine", "a/b", "a/b/c/d", "e/n/x"])
async def test_a_key_that_is_not_wefts_is_written_down_all_the_same(key: str | None) -> None:
    async with RecordingService() as service, aiohttp.ClientSession() as session:
        await get(session, service.url, key)
    assert (service.calls[0].key, service.calls[0].generation) == (key or "", 0)


async def test_a_script_goes_first_and_a_function_may_answer_the_rest() -> None:
    service = RecordingService(lambda request: Answer(200, request.target.encode()))
    async with service, aiohttp.ClientSession() as session:
        service.script(Answer(503), Answer(404))
        statuses = [(await get(session, service.url))[0] for _ in range(2)]
        async with session.get(service.url + "/me") as response:
            assert await response.read() == b"/me"
    assert statuses == [503, 404]


async def test_calls_are_held_until_they_are_released() -> None:
    async with RecordingService() as service, aiohttp.ClientSession() as session:
        service.hold()
        waiting = [asyncio.create_task(get(session, service.url)) for _ in range(3)]
        assert len(await service.came(3)) == 3
        assert not any(task.done() for task in waiting)
        service.release()
        assert [status for status, _ in await asyncio.gather(*waiting)] == [200] * 3
        assert (await get(session, service.url))[0] == 200


async def test_answers_wait_as_long_as_they_are_told() -> None:
    async with RecordingService() as service, aiohttp.ClientSession() as session:
        service.delay_seconds = 0.05
        started = RealClock().now()
        await get(session, service.url)
        assert RealClock().now() - started >= 50_000
        service.delay_seconds = 0
        service.script(Answer(200, delay_seconds=0.05))
        started = RealClock().now()
        await get(session, service.url)
        assert RealClock().now() - started >= 50_000


async def test_who_waits_for_a_call_that_does_not_come_is_told() -> None:
    async with RecordingService() as service:
        with pytest.raises(TimeoutError, match="0 calls came, not 1"):
            service.wait_for(1, timeout_seconds=0.01)


async def test_it_ends_although_somebody_still_waits_for_an_answer() -> None:
    service = RecordingService().start()
    async with aiohttp.ClientSession() as session:
        service.script(Silence(), Pieces(iter(lambda: b"x", b""), pause_seconds=0.01))
        waiting = [asyncio.create_task(get(session, service.url)) for _ in range(2)]
        await service.came(2)
        await asyncio.to_thread(service.stop)
        ended = await asyncio.gather(*waiting, return_exceptions=True)
    assert all(isinstance(error, aiohttp.ClientError) for error in ended)
    service.stop()


async def test_what_is_not_http_is_answered_with_400() -> None:
    async with RecordingService() as service:
        reader, writer = await asyncio.open_connection("127.0.0.1", service.port)
        writer.write(b"\x16\x03\x01\0\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 400 ")
        writer.close()
        await writer.wait_closed()
    assert service.calls == []
