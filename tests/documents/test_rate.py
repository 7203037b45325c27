"""The limit of the model, as the model sees it: ten calls a second, however many workers there are."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from tests.documents.conftest import server_settings
from tests.documents.test_batch import deploy, ended, start_batch
from tests.operation.serving import Api, Server

from weft.fleet import Fleet
from weft.handlers.registry import Registry
from weft.settings import read_settings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.documents.conftest import Place

    from weft.testing.fake_llm import FakeLLM

QUEUE = "llm_service"
PER_SECOND = 10
# Calls leave 0.1 s apart. On the way one may be held up and come together with the next.
JITTER = 1
DOCUMENTS = 20
WORKERS = 8


async def test_one_two_and_eight_workers_call_the_model_ten_times_a_second(
    place: Place, llm: FakeLLM, redis_url: str, journal_url: str
) -> None:
    settings = server_settings(llm, WEFT_REDIS_URL=redis_url, WEFT_DATABASE_URL=journal_url)
    given, _ = read_settings(environ=settings)
    async with AsyncExitStack() as ends, AsyncExitStack() as more:

        async def launch(*command: str) -> Server:
            server = await Server.launch(*command, settings=settings, folder=place.folder)
            ends.push_async_callback(server.kill)
            await server.ready()
            return server

        async def have(roles: set[str], queues: set[str] | None, until: AsyncExitStack) -> None:
            # In this process: to start so many takes longer than all calls.
            fleet = Fleet(given, registry=Registry(), roles=roles, queues=queues)
            await (await until.enter_async_context(fleet)).started()

        # Each worker has a queue of its own beside that of the calls; the first does all the rest, too.
        served = [f"{QUEUE},{own(number)}" for number in range(WORKERS)]
        front, _, second, *_ = await asyncio.gather(
            launch("api", "--port", "0"),
            launch("worker", "--queues", f"python,{served[0]}"),
            launch("worker", "--queues", served[1]),
            have({"orchestrator"}, None, ends),
            *(have({"worker"}, set(names.split(",")), more) for names in served[2:]),
        )
        assert front is not None
        assert second is not None
        api = await ends.enter_async_context(Api(front.url))
        await deploy(api)
        # Whoever makes its first call has much to load, and sends it late: that one is not counted.
        assert len(await called_once_each(api)) == WORKERS

        for workers, at_least in ((8, 3), (2, 1), (1, 1)):
            if workers == 2:
                await more.aclose()
            elif workers == 1:
                assert await second.stop() == 0
            llm.requests.clear()
            batch_id = await start_batch(api, place.fill(DOCUMENTS, first=1000 * workers + 1, review_below=0))
            assert (await ended(api, batch_id))["counts"]["COMPLETED"] == DOCUMENTS
            calls = [request.at / 1e6 for request in llm.requests]
            apart = [round(later - sooner, 3) for sooner, later in pairwise(calls)]
            assert len(calls) == DOCUMENTS
            assert llm.most_within(1.0) <= PER_SECOND + JITTER, apart
            # It is the limit that holds them back, and nothing else.
            least = (DOCUMENTS - 1 - JITTER) / PER_SECOND
            assert least <= calls[-1] - calls[0] < 1.5 * DOCUMENTS / PER_SECOND, apart
            page = await api.get(f"/v1/executions?batch={batch_id}&limit=500")
            called = await workers_of(api, [(item["id"], "extract") for item in page["items"]])
            assert at_least <= len(called) <= workers


def own(number: int) -> str:
    return f"of-{number}"


async def called_once_each(api: Api) -> set[str]:
    """Let every worker call the model, and name them."""
    nodes: list[dict[str, Any]] = [
        {"id": f"n{number}", "handler": QUEUE, "queue": own(number), "config": {"prompt": "Hello?"}}
        for number in range(WORKERS)
    ]
    execution = await api.start({"nodes": nodes})
    await api.terminal(execution)
    return await workers_of(api, [(execution, node["id"]) for node in nodes])


async def workers_of(api: Api, nodes: Sequence[tuple[str, str]]) -> set[str]:
    """Name the workers that ran these nodes."""
    found = await asyncio.gather(
        *(api.get(f"/v1/executions/{execution}/nodes/{node_id}") for execution, node_id in nodes)
    )
    return {node["worker"] for node in found}
