"""The header ``traceparent`` of a request, where nobody exports spans: it is kept, passed on, and told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from weft.handlers.contract import Handler, HandlerContext, HandlerKind

if TYPE_CHECKING:
    from tests.api.conftest import Serve, Server

    from weft.handlers.registry import Registry

TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
TRACEPARENT = f"00-{TRACE_ID}-b7ad6b7169203331-01"
OTHER = f"00-{'1' * 32}-{'2' * 16}-00"


def shows_traceparent(config: Any, context: HandlerContext) -> Any:
    return context.traceparent


@pytest.fixture
def registry(registry: Registry) -> Registry:
    registry.add(Handler("show_trace", HandlerKind.USER, shows_traceparent))
    return registry


DEFINITION = {"name": "traced", "nodes": [{"id": "a", "handler": "show_trace"}], "output": "{{ a.output }}"}


async def output_of(server: Server, path: str, traceparent: str | None, **body: Any) -> Any:
    headers = {} if traceparent is None else {"traceparent": traceparent}
    started = await server.post(path, json=body, headers=headers)
    assert started.status == 202, started.json
    return await ended(server, started.json["id"])


async def ended(server: Server, execution_id: str) -> Any:
    answer = await server.get(f"/v1/executions/{execution_id}?wait=20")
    assert answer.json["state"] == "COMPLETED", answer.json
    return answer.json


class TestExecutions:
    async def test_a_function_is_given_what_the_caller_sent(self, serve: Serve) -> None:
        async with serve() as server:
            shown = await output_of(server, "/v1/executions", TRACEPARENT, definition=DEFINITION)
            assert shown["output"] == TRACEPARENT
            for none in (None, "00-zz-b7ad6b7169203331-01", f"ff{TRACEPARENT[2:]}"):
                assert (await output_of(server, "/v1/executions", none, definition=DEFINITION))[
                    "output"
                ] is None

    async def test_a_stored_workflow_a_fork_and_a_batch_keep_it_too(self, serve: Serve) -> None:
        async with serve() as server:
            assert (await server.post("/v1/workflows", json=DEFINITION)).status == 201
            first = await output_of(server, "/v1/workflows/traced/executions", TRACEPARENT)
            assert first["output"] == TRACEPARENT
            # A fork is the work of whoever asked for it.
            path = f"/v1/executions/{first['id']}/fork"
            assert (await output_of(server, path, OTHER))["output"] == OTHER
            assert (await output_of(server, path, None))["output"] is None
            body = {"workflow": "traced", "inputs": [{}, {}]}
            batch = await server.post("/v1/batches", json=body, headers={"traceparent": TRACEPARENT})
            listed = (await server.get(f"/v1/executions?batch={batch.json['id']}")).json["items"]
            outputs = [(await ended(server, one["id"]))["output"] for one in listed]
            assert outputs == [TRACEPARENT, TRACEPARENT]

    async def test_a_retry_runs_under_the_same(self, serve: Serve, registry: Registry) -> None:
        seen: list[str | None] = []

        def fails_once(config: Any, context: HandlerContext) -> None:
            seen.append(context.traceparent)
            if len(seen) == 1:
                raise ValueError("not yet")

        registry.add(Handler("fails_once", HandlerKind.USER, fails_once))
        definition = {"nodes": [{"id": "a", "handler": "fails_once", "max_retries": 0}]}
        async with serve() as server:
            body = {"definition": definition}
            headers = {"traceparent": TRACEPARENT}
            started = await server.post("/v1/executions?wait=20", json=body, headers=headers)
            assert started.json["state"] == "FAILED"
            path = f"/v1/executions/{started.json['id']}"
            assert (await server.post(f"{path}/retry", headers={"traceparent": OTHER})).status == 202
            await ended(server, started.json["id"])
        assert seen == [TRACEPARENT, TRACEPARENT]


class TestProblems:
    async def test_a_problem_is_found_by_the_callers_trace_id(self, serve: Serve) -> None:
        async with serve() as server:
            missing = await server.get("/v1/executions/none", headers={"traceparent": TRACEPARENT})
            assert (missing.status, missing.json["trace_id"]) == (404, TRACE_ID)

    async def test_a_malformed_header_changes_nothing(self, serve: Serve) -> None:
        async with serve() as server:
            missing = await server.get("/v1/executions/none", headers={"traceparent": f"{TRACEPARENT}-x"})
            assert len(missing.json["trace_id"]) == 32
            assert missing.json["trace_id"] != TRACE_ID
            twice = [("traceparent", TRACEPARENT), ("traceparent", OTHER)]
            missing = await server.get("/v1/executions/none", headers=twice)
            assert missing.json["trace_id"] not in (TRACE_ID, "1" * 32)
