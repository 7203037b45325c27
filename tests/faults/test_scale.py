"""Section F of the fault catalogue: scale, shape and limits, over REST. The rest of it: docs/faults.md."""

from __future__ import annotations

import asyncio
import json
import os
import time
from io import BytesIO
from statistics import median
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from tests.operation.serving import serving
from tests.operation.usage import descriptors, memory, peak_memory, threads

from weft.handlers.contract import Handler, HandlerContext, HandlerKind

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.api.conftest import Answer, Serve, Server
    from tests.operation.serving import Api

    from weft.handlers.registry import Registry


def node(node_id: str, *parents: str, config: Any = None) -> dict[str, Any]:
    return {"id": node_id, "handler": "echo", "dependencies": list(parents), "config": config}


def chain(count: int) -> list[dict[str, Any]]:
    """Each node adds one to what the node before it gave."""
    first = node("n0", config=1)
    return [
        first,
        *(node(f"n{n}", f"n{n - 1}", config=f"{{{{ n{n - 1}.output + 1 }}}}") for n in range(1, count)),
    ]


def fan(count: int) -> list[dict[str, Any]]:
    middle = [node(f"m{n}", "first", config=n) for n in range(count)]
    last = node("last", *(one["id"] for one in middle), config="{{ m0.output + m9999.output }}")
    return [node("first"), *middle, last]


@pytest.mark.parametrize(
    ("nodes", "total", "last", "output"),
    [(chain(10_000), 10_000, "n9999", 10_000), (fan(10_000), 10_002, "last", 9999)],
    ids=["chain", "fan"],
)
async def test_ten_thousand_nodes_complete_and_are_shown_within_a_second(
    nodes: list[dict[str, Any]], total: int, last: str, output: int, tmp_path: Path
) -> None:
    """F61, F62: a chain, and a fan out and in; asked for all the time, and in bounded memory."""
    async with serving(tmp_path / "data") as (server, api):
        execution_id = await api.start({"nodes": nodes})
        took = [await seconds_of(api, f"/v1/executions/{execution_id}?nodes=brief")]
        shown = await api.get(f"/v1/executions/{execution_id}?nodes=none")
        while shown["state"] not in ("COMPLETED", "FAILED"):
            assert sum(shown["counts"].values()) == total
            took.append(await seconds_of(api, f"/v1/executions/{execution_id}?nodes=none"))
            shown = await api.get(f"/v1/executions/{execution_id}?nodes=none&wait=1")
        assert (shown["state"], shown["counts"]["COMPLETED"]) == ("COMPLETED", total)
        assert (await api.get(f"/v1/executions/{execution_id}/nodes/{last}"))["output"] == output
        parts = ("", f"/nodes/{last}", f"/nodes/{last}/explain", "/nodes?limit=500", "/events?limit=500")
        assert median(took) < 1.0
        for part in parts:
            # The best of a few: a machine with much else to do may hold up any one of them.
            path = f"/v1/executions/{execution_id}{part}"
            assert min([await seconds_of(api, path) for _ in range(3)]) < 1.0, part
        assert peak_memory(server.process.pid) < 10**9
        assert [stall for stall in server.events("loop.stalled") if stall["seconds"] > 3] == []


async def seconds_of(api: Api, path: str) -> float:
    began = time.monotonic()
    await api.get(path)
    return time.monotonic() - began


async def test_a_million_edges_are_refused_quickly_with_the_limit(server: Server) -> None:
    """F63: a hundred layers of a hundred nodes, each behind all of the layer before."""
    layers = [[f"n{layer}_{n}" for n in range(100)] for layer in range(100)]
    nodes = [
        node(name, *(layers[number - 1] if number else ()))
        for number, layer in enumerate(layers)
        for name in layer
    ]
    body = json.dumps({"name": "dense", "nodes": nodes}).encode()
    headers = {"Content-Type": "application/json"}
    began = time.monotonic()
    posting = asyncio.create_task(server.post("/v1/workflows", data=BytesIO(body), headers=headers))
    slowest = 0.0
    while not posting.done():
        asked = time.monotonic()
        assert (await server.get("/healthz")).status == 200
        slowest = max(slowest, time.monotonic() - asked)
    answer = await posting
    check_problem(answer, 422, "invalid_definition", "/nodes", "500,000")
    elapsed = time.monotonic() - began
    assert elapsed < 20
    # In proportion: on a busy machine everything takes longer, but nobody is held up for most of it.
    assert slowest < max(0.5, elapsed / 3)


# -- Limits (F65) ----------------------------------------------------------------------------------------


def wide(count: int) -> dict[str, Any]:
    return {"nodes": [node(f"n{n}") for n in range(count)]}


def with_edges(count: int) -> dict[str, Any]:
    parents = [f"n{n}" for n in range(count)]
    return {"nodes": [*(node(parent) for parent in parents), node("last", *parents)]}


def nested(depth: int) -> dict[str, Any]:
    """A definition that is nested so deep: three levels lie around the config."""
    config: Any = 1
    for _ in range(depth - 3):
        config = [config]
    return {"nodes": [node("a", config=config)]}


def padded(size: int) -> dict[str, Any]:
    """A definition that is so long as a body of JSON."""
    document: dict[str, Any] = {"name": "limit", "nodes": [node("a")], "description": ""}
    return {**document, "description": "x" * (size - len(json.dumps(document)))}


def templated(size: int) -> dict[str, Any]:
    return {"nodes": [node("a", config="{{ " + "1" + " " * (size - 7) + " }}")]}


DEFINITIONS: list[tuple[str, int, Callable[[int], dict[str, Any]], tuple[int, str, str]]] = [
    ("max_nodes", 5, wide, (422, "invalid_definition", "/nodes")),
    ("max_edges", 5, with_edges, (422, "invalid_definition", "/nodes")),
    ("max_depth", 12, nested, (400, "bad_syntax", "")),
    ("max_body_bytes", 3000, padded, (413, "too_large", "")),
    ("max_template_bytes", 100, templated, (422, "invalid_definition", "/nodes/0/config")),
    ("", 128, lambda n: {"nodes": [node("x" * n)]}, (422, "invalid_definition", "/nodes/0/id")),
    ("", 128, lambda n: {"nodes": [node("a")], "name": "x" * n}, (422, "invalid_definition", "/name")),
    (
        "",
        100,
        lambda n: {"nodes": [{**node("a"), "max_retries": n}]},
        (422, "invalid_definition", "/nodes/0/max_retries"),
    ),
    (
        "",
        604_800,
        lambda n: {"nodes": [{**node("a"), "timeout_seconds": n}]},
        (422, "invalid_definition", "/nodes/0/timeout_seconds"),
    ),
]


@pytest.mark.parametrize(
    ("setting", "limit", "make", "problem"),
    DEFINITIONS,
    ids=["nodes", "edges", "depth", "body", "template", "id", "name", "retries", "timeout"],
)
async def test_a_limit_of_a_definition_holds_exactly(
    setting: str, limit: int, make: Callable[[int], Any], problem: tuple[int, str, str], serve: Serve
) -> None:
    """F65: one below, at, and one above each limit."""
    settings = {setting: limit} if setting else {}
    async with serve(data=None, **settings) as server:
        for size in (limit - 1, limit, limit + 1):
            document = {"name": "limit", **make(size)}
            answer = await server.post(
                "/v1/workflows",
                data=json.dumps(document).encode(),
                headers={"Content-Type": "application/json"},
            )
            if size <= limit:
                assert answer.status == 201, (size, answer.json)
            else:
                check_problem(answer, *problem, f"{limit:,}")
        listed = await server.get("/v1/workflows/limit/versions")
        # Nothing of what was refused is there. (The greatest name is another workflow's.)
        assert listed.status == 404 or len(listed.json["items"]) == 2


PAYLOAD = 1000


@pytest.mark.parametrize("size", [PAYLOAD - 1, PAYLOAD, PAYLOAD + 1])
async def test_the_limit_of_payloads_holds_exactly(size: int, serve: Serve, registry: Registry) -> None:
    """F64, F65: input, resolved config and output of a node, each one below, at, and above the limit."""

    async def give(config: Any, context: HandlerContext) -> str:
        return "x" * int(config)

    registry.add(Handler("give", HandlerKind.USER, give))
    text = "x" * (size - 2)  # as JSON it has its quotes
    async with serve(max_payload_bytes=PAYLOAD) as server:
        definition = {
            "nodes": [
                {"id": "output", "handler": "give", "config": size - 2, "max_retries": 0},
                {"id": "small", "handler": "echo", "config": "x" * (PAYLOAD // 2 - 2)},
                {
                    "id": "config",
                    "handler": "echo",
                    "dependencies": ["small"],
                    "config": "{{ small.output }}" + "x" * (size - PAYLOAD // 2),
                },
            ],
            "failure_policy": "continue",
        }
        answer = await server.post("/v1/executions?wait=20", json={"definition": definition})
        ended = {one["id"]: one for one in answer.json["nodes"]}
        fits = size <= PAYLOAD
        if fits:
            assert ended["output"]["output"] == text
            assert len(ended["config"]["output"]) == size - 2
        else:
            assert (ended["output"]["error"]["code"], ended["output"]["attempt"]) == ("output_too_large", 1)
            assert ended["config"]["error"]["code"] == "template_error"
            assert f"{PAYLOAD:,}" in ended["config"]["error"]["message"]
        given = {"k": "x" * (size - len('{"k":""}'))}
        started = await server.post(
            "/v1/executions", json={"definition": {"nodes": [node("a")]}, "input": given}
        )
        if fits:
            assert started.status == 202
        else:
            check_problem(started, 422, "invalid_input", "/input", f"{PAYLOAD:,}")


@pytest.mark.parametrize("count", [4, 5, 6])
async def test_the_limit_of_a_batch_holds_exactly(count: int, serve: Serve) -> None:
    """F65: the inputs of a batch."""
    async with serve(data=None, max_batch=5) as server:
        await server.post("/v1/workflows", json={"name": "flow", "nodes": [node("a")]})
        answer = await server.post("/v1/batches", json={"workflow": "flow", "inputs": [{}] * count})
        if count <= 5:
            assert answer.status == 202
        else:
            check_problem(answer, 422, "invalid_request", "/inputs", "5")


def check_problem(answer: Answer, status: int, code: str, pointer: str, words: str) -> None:
    assert (answer.status, answer.json["code"]) == (status, code), answer.json
    if status == 422:
        found = [(one["pointer"], one["message"]) for one in answer.json["problems"]]
        assert any(place == pointer and words in message for place, message in found), found
    else:
        assert words in answer.json["detail"]


# -- F66 -------------------------------------------------------------------------------------------------

# More of them for a longer soak: the bounds stay as they are.
SOAK = int(os.environ.get("WEFT_TEST_SOAK", "2000"))
# After so many, what a server remembers of the last ends and of its journal has reached its full size.
WARM = 20_000 if SOAK >= 40_000 else 500


async def test_thousands_of_executions_leave_a_server_as_it_was(tmp_path: Path) -> None:
    """F66: memory, files and threads are flat, and so is the write-ahead log of the journal."""
    definition = {
        "name": "flow",
        "nodes": [
            node("a", config={"n": "{{ input.n }}"}),
            {"id": "b", "handler": "sleep", "dependencies": ["a"], "config": {"seconds": 0}},
            node("c", "a", config="{{ a.n }}"),
            node("d", "b", "c", config=["{{ b.seconds }}", "{{ c.output }}"]),
        ],
    }
    async with serving(tmp_path / "data") as (server, api):
        pid = server.process.pid
        assert (await api.call("POST", "/v1/workflows", definition))[0] == 201
        done = 0

        async def client() -> None:
            nonlocal done
            while done < goal:
                done += 1
                status, shown, _ = await api.call(
                    "POST", "/v1/workflows/flow/executions?wait=30", {"input": {"n": done}}
                )
                assert (status, shown["state"]) == (200, "COMPLETED")

        goal = WARM
        await asyncio.gather(*(client() for _ in range(20)))
        early = memory(pid), descriptors(pid), threads(pid)
        goal = SOAK
        await asyncio.gather(*(client() for _ in range(20)))
        assert memory(pid) < early[0] + 24 * 2**20
        assert descriptors(pid) <= early[1] + 4
        assert threads(pid) <= early[2] + 2
        log = tmp_path / "data" / "weft.db-wal"
        assert log.stat().st_size < 64 * 2**20
        async with aiohttp.request("GET", f"{server.url}/metrics") as response:
            lines = (await response.text()).splitlines()
        assert "weft_nodes_unsettled 0.0" in lines
        assert "weft_event_streams_open 0.0" in lines
