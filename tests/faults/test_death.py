"""Section A of the fault catalogue: processes that stop or die. What else there is of it: docs/faults.md."""

from __future__ import annotations

import asyncio
import json
import signal
from collections import Counter
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

from tests.faults.raw import Answer, Connection, request
from tests.operation.serving import PATIENCE_SECONDS, Api, serving

if TYPE_CHECKING:
    from pathlib import Path


def nap(seconds: float, count: int = 1) -> dict[str, Any]:
    return {
        "nodes": [
            {"id": f"nap{number}", "handler": "hold", "config": {"seconds": seconds}}
            for number in range(count)
        ]
    }


SUBMIT = request(
    "POST",
    "/v1/executions",
    json.dumps({"definition": nap(0.01)}).encode(),
    "Content-Type: application/json",
)


class Client:
    """Submits without a pause on a connection that it keeps as long as it may, until nobody listens."""

    def __init__(self) -> None:
        self.answers: list[Answer] = []
        # Connections that ended under a request after they had answered another: those were cut off.
        self.cut = 0

    async def run(self, url: str) -> None:
        while True:
            is_used = False
            try:
                async with Connection.open(url) as connection:
                    while True:
                        answer = await connection.ask(SUBMIT)
                        self.answers.append(answer)
                        if answer.headers.get("connection") == "close":
                            break
                        is_used = True
            except ConnectionRefusedError:
                return
            except (ConnectionError, asyncio.IncompleteReadError) as error:
                # A new connection may still stand in the line of a socket that closes: nobody has read from
                # it. One that has answered before without a word of closing must answer again.
                self.cut += is_used or bool(getattr(error, "partial", b""))


async def test_a_stop_under_load_cuts_no_request_off_and_keeps_what_it_accepted(tmp_path: Path) -> None:
    """F10: every request that was taken is answered whole, and what was answered 202 is all there is."""
    async with serving(tmp_path / "data") as (server, api), AsyncExitStack() as opened:
        # It holds the drain open, so that there is one.
        held = await api.start(nap(1.5))
        await running(api, held, "nap0")
        half = len(SUBMIT) - 20
        slow = [await opened.enter_async_context(Connection.open(server.url)) for _ in range(8)]
        for connection in slow:
            await connection.send(SUBMIT[:half])
        idle = await opened.enter_async_context(Connection.open(server.url))
        first = await idle.ask(request("GET", "/v1/workflows"))
        assert "connection" not in first.headers
        clients = [Client() for _ in range(16)]
        submitting = asyncio.gather(*(client.run(server.url) for client in clients))
        async with asyncio.timeout(PATIENCE_SECONDS):
            while sum(len(client.answers) for client in clients) < 100:  # noqa: ASYNC110 - as simple as it is
                await asyncio.sleep(0.01)
        server.process.send_signal(signal.SIGTERM)
        await server.logged("server.draining")
        # What began before the signal ends with an answer, whole.
        for connection in slow:
            answer = await connection.ask(SUBMIT[half:])
            assert (answer.status, answer.json["code"]) == (503, "unavailable")
            assert int(answer.headers["retry-after"]) >= 1
            assert answer.headers["connection"] == "close"
            assert await connection.closed() == b""
        # Whoever kept a connection is told to let it go, instead of being cut off on it later.
        last = await idle.ask(request("GET", "/v1/workflows"))
        assert (last.status, last.headers["connection"]) == (200, "close")
        await submitting
        assert await server.ended() == 0
        assert [line for line in server.log if line["level"] != "info"] == []
    answers = [answer for client in clients for answer in client.answers]
    statuses = Counter(answer.status for answer in answers)
    assert set(statuses) == {202, 503}
    assert {answer.json["code"] for answer in answers if answer.status == 503} == {"unavailable"}
    assert sum(client.cut for client in clients) == 0
    accepted = {answer.json["id"] for answer in answers if answer.status == 202} | {held}
    async with serving(tmp_path / "data") as (_, api):
        ends = await asyncio.gather(*map(api.terminal, accepted))
        assert Counter(shown["state"] for shown in ends) == {"COMPLETED": len(accepted)}
        # Nothing was stored whose sender does not know of it.
        assert await all_ids(api) == accepted


async def test_a_caller_who_never_ends_his_request_does_not_keep_the_server_from_ending(
    tmp_path: Path,
) -> None:
    """F10: the last answers have their time, and no more than that."""
    async with serving(tmp_path / "data") as (server, _), Connection.open(server.url) as stuck:
        await stuck.send(SUBMIT[:-20])
        loop = asyncio.get_running_loop()
        asked = loop.time()
        assert await server.stop() == 0
        assert loop.time() - asked < 15


async def test_a_stopping_worker_takes_nothing_more_from_its_queue(tmp_path: Path) -> None:
    """F09: what runs may end; what waits is left to the next, which starts it at once."""
    async with serving(tmp_path / "data", "--concurrency", "1") as (server, api):
        execution_id = await api.start(nap(0.5, count=4))
        await running(api, execution_id, "nap0")
        assert await server.stop() == 0
    began = asyncio.get_running_loop().time()
    async with serving(tmp_path / "data") as (server, api):
        shown = await api.terminal(execution_id)
        # Four naps at once, and no lease that somebody waits for.
        assert asyncio.get_running_loop().time() - began < 10
        (worker,) = (await api.get("/v1/workers"))["items"]
        assert shown["state"] == "COMPLETED"
        first, *others = shown["nodes"]
        assert (first["attempt"], first["worker"] != worker["id"]) == (1, True)
        assert {node["worker"] for node in others} == {worker["id"]}
        history = await api.history(execution_id)
        # They were never started, so nothing was lost.
        assert [event for event in history if event["type"] == "node.lost" and event.get("started_at")] == []


async def running(api: Api, execution_id: str, node_id: str) -> None:
    """Return once a node runs."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        path = f"/v1/executions/{execution_id}/nodes/{node_id}"
        while (await api.get(path))["state"] != "RUNNING":  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def all_ids(api: Api) -> set[str]:
    """Return the ids of all executions of a server."""
    found: set[str] = set()
    cursor = ""
    while True:
        page = await api.get(f"/v1/executions?limit=500{cursor}")
        found |= {shown["id"] for shown in page["items"]}
        if page["next_cursor"] is None:
            return found
        cursor = f"&cursor={page['next_cursor']}"


async def test_a_stop_fails_no_at_most_once_node_that_nobody_had_started(tmp_path: Path) -> None:
    """F09: what waited in the queue was marked as handed out; the engine that stops knows it never was."""
    once = {"handler": "hold", "delivery": "at_most_once"}
    definition = {
        "failure_policy": "continue",
        "nodes": [
            {"id": "held", **once, "config": {"seconds": 60}},
            *({"id": f"n{number}", **once, "config": {"seconds": 0}} for number in range(3)),
        ],
    }
    settings = {"WEFT_WORKER_GRACE": "100ms"}
    async with serving(tmp_path / "data", "--concurrency", "1", settings=settings) as (server, api):
        execution_id = await api.start(definition)
        await running(api, execution_id, "held")
        assert {node["state"] for node in (await api.get(f"/v1/executions/{execution_id}"))["nodes"][1:]} == {
            "QUEUED"
        }
        assert await server.stop() == 0
    async with serving(tmp_path / "data") as (_, api):
        held, *others = (await api.terminal(execution_id))["nodes"]
        # This one may have done what it does.
        assert (held["state"], held["error"]["code"]) == ("FAILED", "lost")
        assert [node["state"] for node in others] == ["COMPLETED"] * 3
        starts = Counter(
            event["node"]
            for event in await api.history(execution_id)
            if event.get("started_at") and event.get("node", "held") != "held"
        )
        assert starts == {"n0": 1, "n1": 1, "n2": 1}
