"""Section D of the fault catalogue: time, races and load. What else there is of it: docs/faults.md."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import datetime
from typing import TYPE_CHECKING, Any

import aiohttp
from tests.operation.serving import PATIENCE_SECONDS, serving
from tests.operation.usage import memory

from weft.errors import RetryAfter
from weft.handlers.contract import Handler, HandlerContext, HandlerKind

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.api.conftest import Serve

    from weft.core.payload import Json
    from weft.handlers.registry import Registry

# -- F49 -------------------------------------------------------------------------------------------------

# Two at a time, 50 ms each: so many a second.
CAPACITY = 40
FLOOD_SECONDS = 10
MAX_BACKLOG = 100
FLOODERS = 10
NAP = {"definition": {"nodes": [{"id": "nap", "handler": "hold", "config": {"seconds": 0.05}}]}}
FLOODING, POLITE = "a-key-of-the-one-who-floods", "a-key-of-the-one-who-waits"


class Submitter:
    """Submits in the name of one key, and keeps what it was answered."""

    def __init__(self, session: aiohttp.ClientSession, key: str) -> None:
        self._session = session
        self._headers = {"Authorization": f"Bearer {key}"}
        self.answers: Counter[int] = Counter()
        self.accepted: list[str] = []

    async def submit(self) -> float | None:
        """Submit once; give after how many seconds to come again, None where it was accepted."""
        async with self._session.post("/v1/executions", json=NAP, headers=self._headers) as response:
            body = await response.json(content_type=None)
            self.answers[response.status] += 1
            if response.status == 202:
                self.accepted.append(body["id"])
                return None
            assert (response.status, body["code"]) == (503, "overloaded"), body
            seconds = int(response.headers["Retry-After"])
            assert seconds >= 1
            return seconds

    async def get(self, path: str) -> Any:
        async with self._session.get(path, headers=self._headers) as response:
            assert response.status == 200, path
            return await response.json()


async def test_a_flood_is_turned_away_and_another_key_is_let_in_all_the_same(tmp_path: Path) -> None:
    """F49: five times what it can do for ten seconds; bounded, flat, and fair between keys."""
    settings = {"WEFT_MAX_BACKLOG": str(MAX_BACKLOG), "WEFT_API_KEYS": f"{FLOODING},{POLITE}"}
    loop = asyncio.get_running_loop()
    async with (
        serving(tmp_path / "data", "--concurrency", "2", settings=settings) as (server, _),
        aiohttp.ClientSession(server.url, connector=aiohttp.TCPConnector(limit=0)) as session,
    ):
        flooder, polite = Submitter(session, FLOODING), Submitter(session, POLITE)
        until = loop.time() + FLOOD_SECONDS

        async def flood() -> None:
            while loop.time() < until:
                await flooder.submit()

        flooding = asyncio.gather(*(flood() for _ in range(FLOODERS)))
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not flooder.answers[503]:  # noqa: ASYNC110 - as simple as it is
                await asyncio.sleep(0.01)
        early = memory(server.process.pid)
        waits = []
        while loop.time() < until - 3:
            began = loop.time()
            # As a well-behaved client does: it comes again when it was told to.
            while (pause := await polite.submit()) is not None:  # noqa: ASYNC110
                await asyncio.sleep(pause)
            waits.append(loop.time() - began)
            (queue,) = (await polite.get("/v1/queues"))["items"]
            assert queue["depth"] + queue["in_flight"] <= MAX_BACKLOG
            assert (await polite.get("/readyz"))["ready"] is True
        await flooding
        assert memory(server.process.pid) < early + 16 * 2**20
        assert flooder.answers.total() > 5 * CAPACITY * FLOOD_SECONDS
        # Whoever has waited is next, however often another asks. Twice: when it was told to, and once more.
        assert max(waits) < 5, waits
        assert len(waits) >= 3
        # Nor is the one who asks so often kept out for that.
        assert flooder.answers[202] > CAPACITY * FLOOD_SECONDS / 2
        for accepted in (flooder.accepted, polite.accepted):
            for execution_id in accepted:
                shown = await polite.get(f"/v1/executions/{execution_id}?nodes=none&wait=30")
                assert shown["state"] == "COMPLETED"


# -- F50 -------------------------------------------------------------------------------------------------

STUMBLERS = 500
BASE_SECONDS, JITTER, FLOOR_SECONDS = 1.0, 0.5, 2.0
# Times are written in microseconds, and read as binary fractions.
MOMENT_SECONDS = 1e-5


async def test_a_thousand_nodes_that_fail_at_one_instant_come_back_one_by_one(
    serve: Serve, registry: Registry
) -> None:
    """F50: retries are spread over the whole window of the jitter, and Retry-After is a floor."""
    here: set[str] = set()
    all_here = asyncio.Event()

    async def stumble(config: Json, context: HandlerContext) -> str:
        if context.attempt > 1:
            return "done"
        here.add(context.node_id)
        if len(here) == 2 * STUMBLERS:
            all_here.set()
        await all_here.wait()
        raise RetryAfter(FLOOR_SECONDS) if config == "floor" else RuntimeError("at once with all others")

    registry.add(Handler("stumble", HandlerKind.USER, stumble))
    retry = {"base_delay_seconds": BASE_SECONDS, "jitter": JITTER}
    nodes = [
        {"id": f"{kind}{number}", "handler": "stumble", "config": kind, "retry": retry}
        for kind in ("plain", "floor")
        for number in range(STUMBLERS)
    ]
    async with serve(worker_concurrency=2 * STUMBLERS, execution_window=2 * STUMBLERS) as server:
        answer = await server.post("/v1/executions?wait=30", json={"definition": {"nodes": nodes}})
        assert (answer.status, answer.json["state"]) == (200, "COMPLETED")
        events: list[Mapping[str, Any]] = []
        while True:
            path = f"/v1/executions/{answer.json['id']}/events?limit=500&after={len(events)}"
            page = (await server.get(path)).json
            events += page["items"]
            if page["next_cursor"] is None:
                break
    failures = [event for event in events if event["type"] == "node.retrying"]
    assert len(failures) == 2 * STUMBLERS
    instants = [at(event, "finished_at") for event in failures]
    assert max(instants) - min(instants) < 5, "they did not fail together"
    delays: dict[str, list[float]] = {"plain": [], "floor": []}
    for event in failures:
        # Counted from the commit, which comes a moment after the end of the attempt.
        delays[event["node"].rstrip("0123456789")].append(at(event, "due_at") - at(event, "at"))
    # Each tenth of the window has its share: 50 of 500, give or take.
    window = BASE_SECONDS * JITTER
    shares = Counter(int((delay - BASE_SECONDS) / window * 10) for delay in delays["plain"])
    assert all(shares[tenth] > 15 for tenth in range(10)), shares
    assert min(delays["plain"]) >= BASE_SECONDS - MOMENT_SECONDS
    assert max(delays["plain"]) <= BASE_SECONDS + window + MOMENT_SECONDS
    assert min(delays["floor"]) >= FLOOR_SECONDS - MOMENT_SECONDS
    due = {event["node"]: at(event, "due_at") for event in failures}
    late = [at(node, "started_at") - due[node["id"]] for node in answer.json["nodes"]]
    assert min(late) >= 0
    assert max(late) < 5
    assert {node["attempt"] for node in answer.json["nodes"]} == {2}


def at(shown: Mapping[str, Any], name: str) -> float:
    return datetime.fromisoformat(shown[name]).timestamp()
