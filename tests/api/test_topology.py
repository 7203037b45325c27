"""The graph of an execution or a workflow as columns, sent once for each definition."""

from __future__ import annotations

import asyncio
import gzip
import json
from typing import TYPE_CHECKING, Any

from tests.api.play import check_problem

from weft.api.schema_console import Topology
from weft.views.topology import topology_of

if TYPE_CHECKING:
    import pytest
    from tests.api.conftest import Server
    from tests.api.play import Play

    from weft.definition.plan import Plan

DIAMOND: list[Any] = [
    {"id": "a", "handler": "echo", "config": {}},
    {"id": "b", "handler": "output", "dependencies": ["a"], "config": {}},
    {"id": "c", "handler": "echo", "dependencies": ["a"], "config": {}},
    {"id": "d", "handler": "echo", "dependencies": ["c", "b"], "config": {}},
]


def edges(shown: dict[str, Any]) -> set[tuple[str, str]]:
    names = shown["nodes"]
    return {(names[i], names[j]) for i, j in zip(shown["from"], shown["to"], strict=True)}


async def test_an_execution_shows_its_graph_as_columns(play: Play) -> None:
    stored = await play.store(*DIAMOND)
    execution_id = await play.start()
    answer = await play.get(f"/v1/executions/{execution_id}/topology")
    assert answer.status == 200
    shown = answer.json
    Topology.model_validate(shown, strict=True)
    assert shown["version"] == stored["digest"]
    assert shown["nodes"] == ["a", "b", "c", "d"]
    assert [shown["handlers"][index] for index in shown["handler"]] == ["echo", "output", "echo", "echo"]
    assert edges(shown) == {("a", "b"), ("a", "c"), ("c", "d"), ("b", "d")}


async def test_a_workflow_shows_the_graph_of_each_version(play: Play) -> None:
    await play.store(*DIAMOND)
    await play.store(*DIAMOND[:1])
    latest = await play.get("/v1/workflows/flow/topology")
    first = await play.get("/v1/workflows/flow/topology?version=1")
    assert (latest.json["nodes"], len(first.json["nodes"])) == (["a"], 4)
    assert latest.headers["ETag"] != first.headers["ETag"]
    check_problem(await play.get("/v1/workflows/flow/topology?version=9"), 404, "not_found")
    check_problem(await play.get("/v1/workflows/nothing/topology"), 404, "not_found")
    check_problem(await play.get("/v1/executions/nothing/topology"), 404, "not_found")


async def test_a_client_that_has_the_graph_is_not_sent_it_again(server: Server) -> None:
    await server.post("/v1/workflows", json={"name": "flow", "nodes": DIAMOND})
    first = await server.get("/v1/workflows/flow/topology")
    # A browser keeps it, and asks each time.
    assert first.headers["Cache-Control"] == "private, no-cache"
    for given in (first.headers["ETag"], f'"x", {first.headers["ETag"]}', first.headers["ETag"][2:], "*"):
        again = await server.get("/v1/workflows/flow/topology", headers={"If-None-Match": given})
        assert (again.status, again.body, again.headers["ETag"]) == (304, b"", first.headers["ETag"])
    other = await server.get("/v1/workflows/flow/topology", headers={"If-None-Match": '"other"'})
    assert (other.status, other.json) == (200, first.json)


async def test_it_is_compressed_for_a_client_that_reads_gzip(server: Server) -> None:
    nodes = [{"id": f"n{i}", "handler": "echo", "config": {}} for i in range(2000)]
    await server.post("/v1/workflows", json={"name": "flow", "nodes": nodes})
    path = server.url + "/v1/workflows/flow/topology"
    for encoding, compressed in (("gzip, br", True), ("identity", False), ("gzip;q=0", False)):
        async with server.session.get(
            path, headers={"Accept-Encoding": encoding}, auto_decompress=False
        ) as response:
            body = await response.read()
        assert (response.headers.get("Content-Encoding") == "gzip") is compressed
        assert response.headers["Vary"] == "Accept-Encoding"
        assert len(json.loads(gzip.decompress(body) if compressed else body)["nodes"]) == 2000


async def test_many_who_ask_at_once_cost_one_encoding(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []

    def counted(plan: Plan) -> dict[str, Any]:
        made.append(plan.digest)
        return topology_of(plan)

    monkeypatch.setattr("weft.api.topology.topology_of", counted)
    nodes = [{"id": f"n{i}", "handler": "echo", "config": {}} for i in range(2000)]
    stored = await server.post("/v1/workflows", json={"name": "flow", "nodes": nodes})
    answers = await asyncio.gather(*(server.get("/v1/workflows/flow/topology") for _ in range(50)))
    assert {answer.status for answer in answers} == {200}
    assert made == [stored.json["digest"]]
