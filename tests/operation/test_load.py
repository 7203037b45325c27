"""A server with more to do than it can, one stopped in the middle of it, and one with nothing to do."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
from tests.operation.serving import PATIENCE_SECONDS, Api, serving

from weft.testing.recording_service import RecordingService

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def nap(seconds: float) -> dict[str, Any]:
    return {"nodes": [{"id": "nap", "handler": "sleep", "config": {"seconds": seconds}}]}


async def test_a_stop_under_load_answers_every_request_and_keeps_what_it_accepted(tmp_path: Path) -> None:
    answers: Counter[int] = Counter()
    accepted: list[str] = []

    async def client(api: Api) -> None:
        while True:
            try:
                status, body, headers = await api.call("POST", "/v1/executions", {"definition": nap(0.01)})
            except aiohttp.ClientConnectionError:
                return  # it listens no more
            answers[status] += 1
            if status == 202:
                accepted.append(body["id"])
            else:
                assert (status, body["code"]) == (503, "unavailable")
                assert int(headers["Retry-After"]) >= 1

    async with serving(tmp_path / "data") as (server, api):
        clients = [asyncio.create_task(client(api)) for _ in range(16)]
        while len(accepted) < 100:  # noqa: ASYNC110 - as simple as it is
            await asyncio.sleep(0.01)
        server.process.send_signal(signal.SIGTERM)
        await asyncio.gather(*clients)
        assert await server.ended() == 0
        assert [line for line in server.log if line["level"] not in ("info",)] == []
    assert answers[503] > 0
    async with serving(tmp_path / "data") as (_, api):
        ends = await asyncio.gather(*map(api.terminal, accepted))
        assert Counter(shown["state"] for shown in ends) == {"COMPLETED": len(accepted)}
        census = await api.get("/v1/executions?limit=500&state=RUNNING")
        assert census["items"] == []


async def test_five_times_the_work_it_can_do_is_turned_away_and_memory_stays_flat(tmp_path: Path) -> None:
    # Two at a time, 50 ms each: 40 a second. Clients that never pause offer more than five times that.
    settings = {"WEFT_MAX_BACKLOG": "100"}
    answers: Counter[int] = Counter()
    accepted: list[str] = []
    is_full, is_over = asyncio.Event(), asyncio.Event()
    async with serving(tmp_path / "data", "--concurrency", "2", settings=settings) as (server, api):

        async def client() -> None:
            while not is_over.is_set():
                status, body, headers = await api.call("POST", "/v1/executions", {"definition": nap(0.05)})
                answers[status] += 1
                if status == 202:
                    accepted.append(body["id"])
                    continue
                assert (status, body["code"]) == (503, "overloaded")
                assert int(headers["Retry-After"]) >= 1
                is_full.set()
                if answers[503] > 5 * answers[202] and answers[202] > 150:
                    is_over.set()

        clients = asyncio.gather(*(client() for _ in range(10)))
        async with asyncio.timeout(PATIENCE_SECONDS):
            await is_full.wait()
            early = memory(server.process.pid)
            (queue,) = (await api.get("/v1/queues"))["items"]
            # Calls side by side may pass the bound together, each by its own node.
            assert queue["depth"] + queue["in_flight"] <= 100 + 10
            assert (await api.call("GET", "/readyz"))[0] == 200
            await clients
        assert memory(server.process.pid) < early + 16 * 2**20
        # What was turned away left room for what was taken: none of it waits for ever.
        ends = await asyncio.gather(*map(api.terminal, accepted))
        assert Counter(shown["state"] for shown in ends) == {"COMPLETED": len(accepted)}


async def test_a_cancel_in_the_middle_of_a_wide_fan_out_lets_nothing_start_after_its_answer(
    tmp_path: Path,
) -> None:
    settings = {
        "WEFT_HTTP_ALLOW": "127.0.0.1",
        "WEFT_WORKER_GRACE": "1s",
        "WEFT_WORKER_HEARTBEAT_INTERVAL": "200ms",
    }
    async with RecordingService() as service:
        call = {"handler": "call_external_service", "config": {"url": service.url}, "dependencies": ["root"]}
        definition = {
            "nodes": [
                {"id": "root", "handler": "echo"},
                *({"id": f"call{i}", **call} for i in range(1000)),
            ]
        }
        service.delay_seconds = 0.2
        async with serving(tmp_path / "data", settings=settings) as (_, api):
            execution_id = await api.start(definition)
            await service.came(150)
            await until(partial(is_busy, api))
            status, _, _ = await api.call("POST", f"/v1/executions/{execution_id}/cancel")
            answered = asyncio.get_running_loop().time()
            started_by_then = len(service.calls)
            assert status == 202
            shown = await api.terminal(execution_id)
            assert shown["state"] == "CANCELLED"
            assert shown["counts"]["CANCELLED"] >= 1000 - 150 - 64
            # The slots are free within the grace time and a heartbeat.
            await until(partial(is_busy, api), expected=False)
            assert asyncio.get_running_loop().time() - answered < 1.2 + 2
            # A call that was on the wire may have come in since; no later attempt has begun.
            finished = datetime.fromisoformat(shown["finished_at"])
            starts = [node["started_at"] for node in shown["nodes"] if node["started_at"] is not None]
            assert all(datetime.fromisoformat(at) <= finished for at in starts)
            assert len(service.calls) - started_by_then <= 64
            before = len(service.calls)
            await asyncio.sleep(0.5)
            assert len(service.calls) == before


async def test_an_idle_server_is_small_asks_for_little_and_writes_nothing(tmp_path: Path) -> None:
    async with serving(tmp_path / "data") as (server, api):
        await api.terminal(await api.start(nap(0)))
        pid = server.process.pid
        # The first seconds belong to what has just been done.
        await asyncio.sleep(1)
        cpu, written = cpu_seconds(pid), written_bytes(pid)
        await asyncio.sleep(6)
        assert written_bytes(pid) == written
        assert cpu_seconds(pid) - cpu < 0.06
        assert memory(pid) < 120 * 2**20


async def is_busy(api: Api) -> bool:
    """Say whether the worker had something in hand at its last heartbeat."""
    return bool((await api.get("/v1/workers"))["items"][0]["running"])


async def until(ask: Callable[[], Awaitable[bool]], *, expected: bool = True) -> None:
    """Return once the server says so: nothing else tells."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while await ask() is not expected:  # noqa: ASYNC110
            await asyncio.sleep(0.02)


def memory(pid: int) -> int:
    """Give the resident memory of a process in bytes."""
    return int(_numbers(Path(f"/proc/{pid}/status"))["VmRSS"]) * 1024


def written_bytes(pid: int) -> int:
    return int(_numbers(Path(f"/proc/{pid}/io"))["write_bytes"])


def cpu_seconds(pid: int) -> float:
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / TICKS_PER_SECOND


def _numbers(file: Path) -> Mapping[str, str]:
    lines = (line.split() for line in file.read_text().splitlines())
    return {words[0].rstrip(":"): words[1] for words in lines if len(words) > 1}
