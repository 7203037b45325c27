"""Spans of a real server, as a collector receives them by OTLP over the wire."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from opentelemetry.trace import NonRecordingSpan, TraceFlags, use_span
from opentelemetry.trace import SpanContext as OtelSpanContext
from tests.operation.serving import serving
from tests.support.otlp import Collector

from weft import AsyncClient, Client
from weft.testing.fake_llm import FakeLLM, failed, reply
from weft.testing.http_server import Answer
from weft.testing.recording_service import RecordingService
from weft.tracing.context import attempt_span_id, execution_span_id, own_trace_id

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.operation.serving import Api, Server

TRACE_ID, CALLER_ID = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
CALLER = f"00-{TRACE_ID}-{CALLER_ID}-01"
UNSAMPLED = f"00-{'1' * 32}-{'2' * 16}-00"
# The numbers of OTLP.
INTERNAL, CLIENT, CONSUMER = 1, 3, 5
UNSET, ERROR = 0, 2

FUNCTIONS = """
import os


def shown(context):
    return context.traceparent


def dies():
    os._exit(1)
"""


@asynccontextmanager
async def traced(folder: Path, **settings: str) -> AsyncIterator[tuple[Server, Api, Collector]]:
    (folder / "shop.py").write_text(FUNCTIONS, encoding="utf-8")
    async with Collector() as collector:
        settings = {
            **collector.environment,
            "WEFT_HTTP_ALLOW": "127.0.0.1",
            "WEFT_PYTHON_ALLOW": "shop:*",
            "WEFT_IMPORTS": "shop",
            **settings,
        }
        async with serving(folder / "data", settings=settings) as (server, api):
            yield server, api, collector


async def start(api: Api, definition: Any, *, traceparent: str | None = CALLER, wait: int = 30) -> Any:
    headers = {} if traceparent is None else {"traceparent": traceparent}
    async with aiohttp.ClientSession(api.url, headers=headers) as session:
        url = f"/v1/executions?wait={wait}"
        async with session.post(url, json={"definition": definition}) as answer:
            assert answer.status in (200, 202), await answer.text()
            return await answer.json()


async def test_an_execution_its_attempts_and_calls_are_spans_of_the_callers_trace(tmp_path: Path) -> None:
    llm = FakeLLM()
    llm.script(failed(500), reply("four"))
    with RecordingService() as service, llm:
        definition = {
            "name": "order",
            "nodes": [
                {
                    "id": "fetch",
                    "handler": "call_external_service",
                    "config": {"url": f"{service.url}/orders?key=hidden"},
                },
                {
                    "id": "ask",
                    "handler": "llm_service",
                    "config": {"prompt": "2 + 2?", "model": "small", "temperature": 0.5},
                    "retry": {"base_delay_seconds": 0.01, "jitter": 0},
                },
                {"id": "show", "handler": "python", "config": {"function": "shop:shown"}},
            ],
        }
        settings = {"WEFT_LLM_BASE_URL": llm.base_url, "OTEL_SERVICE_NAME": "shop"}
        async with traced(tmp_path, **settings) as (_, api, collector):
            execution = await start(api, definition)
            assert (execution["state"], execution["trace_id"]) == ("COMPLETED", TRACE_ID)
            spans = await collector.of(execution["id"], count=5)
            (fetched,) = await collector.calls_of(spans["node fetch"], count=1)
            (refused,) = await collector.calls_of(spans["node ask"], count=1)
            (chat,) = await collector.calls_of(spans["node ask 2"], count=1)

    whole = spans["execution order"]
    assert {span.trace_id for span in collector.spans} == {TRACE_ID}
    assert (whole.parent_id, whole.kind, whole.status) == (CALLER_ID, INTERNAL, UNSET)
    assert whole.span_id == execution_span_id(execution["id"], 1)
    assert whole.attributes["weft.workflow.name"] == "order"
    assert whole.attributes["weft.execution.state"] == "COMPLETED"
    assert whole.resource["service.name"] == "shop"
    for name in ("node fetch", "node ask", "node ask 2", "node show"):
        assert (spans[name].parent_id, spans[name].kind) == (whole.span_id, CONSUMER)
        assert whole.start <= spans[name].start <= spans[name].end <= whole.end
    # What was called can go on from the span of the call, and a function from that of its attempt.
    assert service.calls[0].request.headers["traceparent"] == fetched.traceparent
    assert execution["nodes"][2]["output"] == spans["node show"].traceparent
    assert (fetched.name, fetched.kind, fetched.status) == ("GET", CLIENT, UNSET)
    assert fetched.attributes["url.full"] == f"{service.url}/orders"
    assert fetched.attributes["http.response.status_code"] == 200
    assert (refused.status, refused.attributes["error.type"]) == (ERROR, "500")
    assert (spans["node ask"].status, spans["node ask"].attributes["error.type"]) == (ERROR, "http_status")
    said = {name: value for name, value in chat.attributes.items() if name.startswith("gen_ai.")}
    tokens = execution["nodes"][1]["output"]["usage"]
    assert (chat.name, said) == (
        "chat small",
        {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": "openai",
            "gen_ai.request.model": "small",
            "gen_ai.request.temperature": 0.5,
            "gen_ai.response.model": "small",
            "gen_ai.response.finish_reasons": ["stop"],
            "gen_ai.usage.input_tokens": tokens["input_tokens"],
            "gen_ai.usage.output_tokens": tokens["output_tokens"],
        },
    )


async def test_a_failure_is_an_error_in_its_spans_and_a_retry_is_a_span_of_its_own(tmp_path: Path) -> None:
    definition = {"nodes": [{"id": "a", "handler": "echo", "config": "{{ input.no }}", "max_retries": 0}]}
    with RecordingService() as service:
        service.script(Answer(404))
        called = {"id": "b", "handler": "call_external_service", "config": {"url": service.url}}
        async with traced(tmp_path) as (server, api, collector):
            first = await start(api, {"nodes": [called]}, traceparent=None)
            assert first["state"] == "FAILED"
            spans = await collector.of(first["id"], count=2)
            assert spans["execution"].trace_id == own_trace_id(first["id"]) == first["trace_id"]
            assert (spans["execution"].parent_id, spans["execution"].status) == ("", ERROR)
            assert spans["execution"].attributes["error.type"] == "node_failed"
            assert (await server.logged("execution.failed"))["trace_id"] == first["trace_id"]
            await api.call("POST", f"/v1/executions/{first['id']}/retry")
            await api.terminal(first["id"])
            two = await collector.find(
                lambda it: [s for s in it.spans if s.span_id == execution_span_id(first["id"], 2)], count=1
            )
            assert (two[0].trace_id, two[0].status) == (first["trace_id"], UNSET)
            # It failed before any attempt: there is none to make a span of.
            await collector.of((await start(api, definition))["id"], count=1)


async def test_a_parked_node_and_what_was_cancelled_have_spans(tmp_path: Path) -> None:
    with RecordingService() as service:
        service.script(Answer(200, delay_seconds=60))
        held = {"handler": "call_external_service", "config": {"url": service.url}}
        nodes = [
            {"id": "nap", "handler": "sleep", "config": {"seconds": 0.05}},
            {"id": "hold", "dependencies": ["nap"], **held},
        ]
        async with traced(tmp_path) as (_, api, collector):
            execution = await start(api, {"nodes": nodes}, wait=0)
            await service.came(1)
            await api.call("POST", f"/v1/executions/{execution['id']}/cancel")
            spans = await collector.of(execution["id"], count=3)
            (call,) = await collector.calls_of(spans["node hold"], count=1)
    assert spans["node nap"].end - spans["node nap"].start >= 50_000_000
    assert spans["execution"].attributes["weft.execution.state"] == "CANCELLED"
    assert (spans["execution"].status, spans["node nap"].status) == (UNSET, UNSET)
    assert spans["node hold"].attributes["error.type"] == "cancelled"
    assert (call.status, call.attributes["error.type"]) == (ERROR, "CancelledError")


async def test_attempts_that_were_lost_with_their_process_have_spans(tmp_path: Path) -> None:
    nodes = [{"id": "a", "handler": "python", "config": {"function": "shop:dies"}}]
    async with traced(tmp_path, WEFT_MAX_DELIVERIES="2") as (_, api, collector):
        execution = await start(api, {"nodes": nodes})
        assert execution["state"] == "FAILED"
        spans = await collector.of(execution["id"], count=3)
    for lost in (spans["node a"], spans["node a 2"]):
        assert (lost.parent_id, lost.attributes["error.type"]) == (spans["execution"].span_id, "lost")
        assert lost.attributes["weft.worker.id"] == execution["nodes"][0]["worker"]


async def test_an_execution_of_a_batch_has_a_trace_of_its_own_that_links_to_the_caller(
    tmp_path: Path,
) -> None:
    async with traced(tmp_path) as (_, api, collector):
        await api.call("POST", "/v1/workflows", {"name": "one", "nodes": [{"id": "a", "handler": "echo"}]})
        headers = {"traceparent": CALLER}
        body = {"workflow": "one", "inputs": [{}, {}]}
        async with (
            aiohttp.ClientSession(api.url, headers=headers) as session,
            session.post("/v1/batches", json=body) as answer,
        ):
            batch = await answer.json()
        listed = (await api.get(f"/v1/executions?batch={batch['id']}"))["items"]
        assert len(listed) == 2
        for execution in listed:
            spans = await collector.of(execution["id"], count=2)
            whole = spans["execution one"]
            assert (whole.parent_id, whole.links) == ("", ((TRACE_ID, CALLER_ID),))
            assert whole.trace_id == own_trace_id(execution["id"]) == execution["trace_id"]
            assert whole.attributes["weft.batch.id"] == batch["id"]
            assert spans["node a"].trace_id == whole.trace_id


async def test_what_the_caller_does_not_sample_is_not_exported_and_passed_on_so(tmp_path: Path) -> None:
    nodes = [{"id": "show", "handler": "python", "config": {"function": "shop:shown"}}]
    async with traced(tmp_path) as (_, api, collector):
        unsampled = await start(api, {"nodes": nodes}, traceparent=UNSAMPLED)
        shown = unsampled["nodes"][0]["output"]
        attempt = attempt_span_id(unsampled["id"], 1, "show", 1)
        assert shown == f"00-{'1' * 32}-{attempt}-00"
        await collector.of((await start(api, {"nodes": nodes}))["id"], count=2)
        assert {span.trace_id for span in collector.spans} == {TRACE_ID}


async def test_a_server_stops_though_its_collector_is_away_and_sends_the_rest_where_it_is_there(
    tmp_path: Path,
) -> None:
    (tmp_path / "away").mkdir()
    away = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}
    async with traced(tmp_path / "away", **away) as (server, api, _):
        assert (await start(api, {"nodes": [{"id": "a", "handler": "echo"}]}))["state"] == "COMPLETED"
        assert await server.stop() == 0
    # With an interval that never comes: what is left is sent at the end.
    async with traced(tmp_path, OTEL_BSP_SCHEDULE_DELAY="3600000") as (server, api, collector):
        execution = await start(api, {"nodes": [{"id": "a", "handler": "echo"}]})
        assert collector.spans == []
        assert await server.stop() == 0
        assert set(await collector.of(execution["id"], count=2)) == {"execution", "node a"}


async def test_without_an_endpoint_there_is_no_trace_but_the_callers(tmp_path: Path) -> None:
    nodes = [{"id": "show", "handler": "python", "config": {"function": "shop:shown"}}]
    async with traced(tmp_path, OTEL_EXPORTER_OTLP_ENDPOINT="") as (_, api, _):
        alone = await start(api, {"nodes": nodes}, traceparent=None)
        assert (alone["trace_id"], alone["nodes"][0]["output"]) == (None, None)
        called = await start(api, {"nodes": nodes})
        assert (called["trace_id"], called["nodes"][0]["output"]) == (TRACE_ID, CALLER)


async def test_clients_send_the_current_span_of_a_program_that_uses_opentelemetry(tmp_path: Path) -> None:
    span = OtelSpanContext(int(TRACE_ID, 16), int(CALLER_ID, 16), False, TraceFlags(1))
    async with traced(tmp_path) as (_, api, collector):
        await api.call("POST", "/v1/workflows", {"name": "one", "nodes": [{"id": "a", "handler": "echo"}]})

        def start_blocking() -> str:
            with Client(api.url) as client, use_span(NonRecordingSpan(span)):
                return client.start("one").id

        async with AsyncClient(api.url) as client:
            alone = await client.start("one")
            with use_span(NonRecordingSpan(span)):
                called = await client.start("one")
        for id_ in (called.id, await asyncio.to_thread(start_blocking)):
            whole = (await collector.of(id_, count=2))["execution one"]
            assert (whole.trace_id, whole.parent_id) == (TRACE_ID, CALLER_ID)
        assert (await collector.of(alone.id, count=2))["execution one"].parent_id == ""


@pytest.mark.parametrize("handler", ["call_external_service", "llm_service"])
async def test_services_are_sent_the_callers_traceparent_where_no_spans_are_exported(
    tmp_path: Path, handler: str
) -> None:
    llm = FakeLLM()
    with RecordingService() as service, llm:
        configs = {
            "call_external_service": {"url": service.url},
            "llm_service": {"prompt": "?", "model": "m", "base_url": llm.base_url},
        }
        nodes = [{"id": "a", "handler": handler, "config": configs[handler]}]
        async with traced(tmp_path, OTEL_SDK_DISABLED="true") as (_, api, _):
            assert (await start(api, {"nodes": nodes}))["state"] == "COMPLETED"
        asked = service.calls[0].request if service.calls else llm.requests[0]
        assert asked.headers["traceparent"] == CALLER
