"""The limit of the model, as the model sees it: ten calls a second, however many workers there are."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from itertools import pairwise
from typing import TYPE_CHECKING

from tests.documents.conftest import server_settings
from tests.documents.test_batch import deploy, ended, start_batch
from tests.operation.serving import Api, Server

from weft.fleet import Fleet
from weft.handlers.registry import Registry
from weft.settings import read_settings

if TYPE_CHECKING:
    from tests.documents.conftest import Place

    from weft.testing.fake_llm import FakeLLM

QUEUE = "llm_service"
PER_SECOND = 10
# Calls leave 0.1 s apart. On the way one may be held up and come together with the next.
JITTER = 1
DOCUMENTS = 30
WARM = 8


async def test_one_two_and_eight_workers_call_the_model_ten_times_a_second(
    place: Place, llm: FakeLLM, redis_url: str, journal_url: str
) -> None:
    settings = server_settings(
        llm,
        WEFT_REDIS_URL=redis_url,
        WEFT_DATABASE_URL=journal_url,
    )
    async with AsyncExitStack() as ends:

        async def launch(*command: str) -> str:
            server = await Server.launch(*command, settings=settings, folder=place.folder)
            ends.push_async_callback(server.kill)
            return await server.ready()

        # It has a worker for everything; the others do nothing but call.
        api = await ends.enter_async_context(Api(await launch("up", "--port", "0")))
        await deploy(api)
        for workers in (1, 2, 8):
            if workers == 2:
                await launch("worker", "--queues", QUEUE)
            elif workers == 8:
                # In this process: to start six more takes longer than all calls.
                given, _ = read_settings(environ=settings)
                for _ in range(6):
                    fleet = Fleet(given, registry=Registry(), roles={"worker"}, queues={QUEUE})
                    await (await ends.enter_async_context(fleet)).started()

            llm.requests.clear()
            batch_id = await start_batch(api, place.fill(DOCUMENTS, first=1000 * workers + 1))
            assert (await ended(api, batch_id))["counts"]["COMPLETED"] == DOCUMENTS
            calls = [request.at for request in llm.requests]
            assert len(calls) == DOCUMENTS - 1  # one of them is a letter
            # A process that makes its first call has much to load, and sends it late.
            del llm.requests[:WARM]
            assert llm.most_within(1.0) <= PER_SECOND + JITTER, [b - a for a, b in pairwise(calls)]
            # It is the limit that holds them back, and nothing else.
            assert (calls[-1] - calls[WARM]) / 1e6 < 1.5 * (len(calls) - WARM) / PER_SECOND
            assert len(await workers_of(api, batch_id)) >= (1 if workers < 8 else 3)


async def workers_of(api: Api, batch_id: str) -> set[str]:
    """Name the workers that made the calls of a batch."""
    page = await api.get(f"/v1/executions?batch={batch_id}&limit=500")
    found = await asyncio.gather(
        *(api.get(f"/v1/executions/{item['id']}/nodes/extract") for item in page["items"])
    )
    return {node["worker"] for node in found if node["worker"] is not None}
