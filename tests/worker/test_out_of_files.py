"""A worker without a free file keeps its attempts until there is one: no node fails, no attempt counts."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.handlers.outside import caller
from tests.support.open_files import no_free_file
from tests.worker.test_isolate import LETHAL

from weft.core.state import ExecutionState
from weft.definition.plan import compile_plan
from weft.engine import Engine
from weft.handlers.http import exchange
from weft.handlers.registry import Registry
from weft.settings import Settings
from weft.telemetry import Metrics
from weft.testing.http_server import Answer
from weft.testing.recording_service import RecordingService
from weft.worker import run

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

PATIENCE_SECONDS = 30.0
HTTP_CALL = "call_external_service"
ALLOWED = ("127.0.0.0/8", "localhost")

assert exchange, "loaded now: without a file no module is found"


@pytest.fixture(autouse=True)
def _short_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "_PAUSE_AFTER_ERROR_SECONDS", 0.02)


@pytest.fixture
def service() -> Iterator[RecordingService]:
    with RecordingService() as service:
        yield service


@asynccontextmanager
async def engine_on(folder: Path) -> AsyncIterator[Engine]:
    settings = Settings(http_allow=ALLOWED, python_allow=LETHAL.allow, worker_grace_seconds=0.05)
    async with (
        asyncio.timeout(PATIENCE_SECONDS),
        Engine(
            registry=Registry(), settings=settings, data=folder / "data", code=LETHAL, metrics=Metrics()
        ) as engine,
    ):
        await engine.started()
        yield engine


async def submit(engine: Engine, **node: Any) -> str:
    """Start an execution of one node, which may not be retried."""
    document = {"name": "one", "nodes": [{"id": "a", "max_retries": 0, **node}]}
    return await engine.submit(compile_plan(document), document=document)


async def starved(engine: Engine, where: str) -> None:
    """Return when attempts have found no free file, again and again."""
    while count(engine, where) < 3:  # noqa: ASYNC110 - there is no event for it
        await asyncio.sleep(0.005)


def count(engine: Engine, where: str) -> float:
    assert engine.metrics is not None
    families = text_string_to_metric_families(engine.metrics.render().decode())
    samples = [one for family in families if family.name == "weft_out_of_files" for one in family.samples]
    return sum(sample.value for sample in samples if sample.labels["where"] == where)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_a_call_waits_for_a_file(host: str, service: RecordingService, tmp_path: Path) -> None:
    url = service.url.replace("127.0.0.1", host)
    async with engine_on(tmp_path) as engine:
        with no_free_file():
            # Not even one that may be started once only, and whose time would be over.
            execution_id = await submit(
                engine,
                handler=HTTP_CALL,
                config={"url": url},
                delivery="at_most_once",
                timeout_seconds=5,
            )
            await starved(engine, "call")
        assert (await engine.wait(execution_id)).state is ExecutionState.COMPLETED
        node = await engine.describe_node(execution_id, "a")
    assert [attempt["outcome"] for attempt in node["attempts"]] == ["completed"]
    assert len(service.calls) == 1


async def test_a_function_waits_for_a_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with engine_on(tmp_path) as engine:
        with no_free_file():
            execution_id = await submit(
                engine,
                handler="python",
                config={"function": "lethal:add", "args": {"a": 1, "b": 2}},
                delivery="at_most_once",
            )
            await starved(engine, "child")
        assert (await engine.wait(execution_id)).state is ExecutionState.COMPLETED
        node = await engine.describe_node(execution_id, "a")
    assert [attempt["outcome"] for attempt in node["attempts"]] == ["completed"]
    said = [record for record in caplog.records if record.getMessage() == "files.exhausted"]
    assert len(said) == 1, "one line in ten seconds"
    assert "ulimit" in vars(said[0])["problem"]


async def test_a_call_that_has_had_an_effect_is_lost_and_not_counted(
    service: RecordingService, tmp_path: Path
) -> None:
    """The first service has answered, and there is no file for the one that it redirects to."""
    with RecordingService() as other:
        service.script(Answer(200), *[Answer(307, b"", {"Location": other.url})] * 1000)
        async with engine_on(tmp_path) as engine:
            # The connection that this leaves open serves the next call, too.
            await engine.wait(await submit(engine, handler=HTTP_CALL, config={"url": service.url}))
            with no_free_file():
                execution_id = await submit(engine, handler=HTTP_CALL, config={"url": service.url})
                await starved(engine, "call")
            assert (await engine.wait(execution_id)).state is ExecutionState.COMPLETED
            node = await engine.describe_node(execution_id, "a")
    states = [attempt["outcome"] for attempt in node["attempts"]]
    assert states[-1] == "completed"
    assert len(states) > 3, "more than MAX_DELIVERIES of them were lost"


async def test_connections_to_many_hosts_are_not_all_kept() -> None:
    everywhere = "0.0.0.0"
    with RecordingService(host=everywhere) as service:
        async with caller(worker_concurrency=2) as call:
            for number in range(1, 9):
                await call({"url": service.url.replace(everywhere, f"127.0.0.{number}")})
            connector = call.outbound.guarded().connector
            assert connector is not None
            assert sum(map(len, connector._conns.values())) == 2
