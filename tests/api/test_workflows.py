"""Workflows over HTTP: store, validate, list, look, name versions, delete."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from yarl import URL

from weft.settings import ResourceLimit
from weft.store.contract import WorkerState, WorkerStatus

if TYPE_CHECKING:
    from tests.api.conftest import Serve, Server

    from weft.handlers.registry import Registry


def definition(name: str = "flow", **changes: Any) -> dict[str, Any]:
    return {"name": name, "nodes": [{"id": "a", "handler": "echo", "config": {"x": 1}}], **changes}


def worker_named(worker_id: str, *handlers: str) -> WorkerStatus:
    return WorkerStatus(
        id=worker_id,
        host="h",
        pid=1,
        version="0",
        state=WorkerState.ALIVE,
        queues=None,
        handlers=handlers,
        concurrency=1,
        running=0,
        started_at=0,
    )


class TestStoring:
    async def test_a_new_definition_is_version_1_and_its_change_version_2(self, server: Server) -> None:
        first = await server.post("/v1/workflows", json=definition())
        second = await server.post("/v1/workflows", json=definition(description="changed"))
        assert (first.status, second.status) == (201, 201)
        assert first.json.keys() == {"name", "version", "digest"}
        assert (first.json["name"], first.json["version"]) == ("flow", 1)
        assert second.json["version"] == 2
        assert first.json["digest"] != second.json["digest"]

    async def test_content_that_is_stored_already_is_its_old_version_and_the_latest_again(
        self, server: Server
    ) -> None:
        first = await server.post("/v1/workflows", json=definition())
        await server.post("/v1/workflows", json=definition(description="changed"))
        again = await server.post("/v1/workflows", json=definition())
        assert again.status == 200
        assert again.json == first.json
        latest = await server.get("/v1/workflows/flow")
        assert latest.json["version"] == 1

    async def test_yaml_and_json_of_the_same_content_are_the_same_version(self, server: Server) -> None:
        text = b"name: flow\nnodes:\n  - id: a\n    handler: echo\n    config: {x: 1}\n"
        stored = await server.post("/v1/workflows", data=text, headers={"Content-Type": "application/yaml"})
        again = await server.post("/v1/workflows", json=definition())
        assert (stored.status, again.status) == (201, 200)
        assert stored.json == again.json

    async def test_a_bad_definition_is_refused_with_every_problem_and_nothing_is_stored(
        self, server: Server
    ) -> None:
        nodes = [
            {"id": "a", "handler": "ecko"},
            {"id": "b", "handler": "echo", "dependencies": ["c"]},
            {"id": "c", "handler": "echo", "dependencies": ["b"], "max_retries": "3"},
        ]
        refused = await server.post("/v1/workflows", json=definition(nodes=nodes))
        assert refused.status == 422
        assert refused.json["code"] == "invalid_definition"
        pointers = {problem["pointer"] for problem in refused.json["problems"]}
        assert {"/nodes/0/handler", "/nodes/2/max_retries"} <= pointers
        assert any("b -> c -> b" in problem["message"] for problem in refused.json["problems"])
        assert (await server.get("/v1/workflows/flow")).status == 404

    async def test_a_definition_without_a_name_is_refused(self, server: Server) -> None:
        nameless = {"nodes": [{"id": "a", "handler": "echo"}]}
        assert (await server.post("/v1/workflows", json=nameless)).status == 422

    async def test_a_stored_definition_comes_back_as_it_was_written(self, server: Server) -> None:
        written = definition(output={"z": 1, "a": [1.5, None, "ü"]})
        await server.post("/v1/workflows", json=written)
        shown = (await server.get("/v1/workflows/flow")).json
        assert shown["definition"] == written
        assert list(shown["definition"]["output"]) == ["z", "a"]
        assert shown.keys() == {"name", "version", "digest", "created_at", "aliases", "definition"}


class TestValidating:
    async def test_a_valid_definition_has_layers_and_is_not_stored(self, server: Server) -> None:
        nodes = [
            {"id": "a", "handler": "echo"},
            {"id": "b", "handler": "echo", "dependencies": ["a"]},
            {"id": "c", "handler": "echo"},
        ]
        verdict = await server.post("/v1/workflows/validate", json=definition(nodes=nodes))
        assert verdict.status == 200
        assert verdict.json == {"valid": True, "problems": [], "warnings": [], "layers": [["a", "c"], ["b"]]}
        assert (await server.get("/v1/workflows")).json["items"] == []

    async def test_an_invalid_definition_is_an_answer_not_an_error(self, server: Server) -> None:
        verdict = await server.post("/v1/workflows/validate", json=definition(nodes=[]))
        assert verdict.status == 200
        assert verdict.json["valid"] is False
        assert verdict.json["layers"] == []
        assert verdict.json["problems"][0].keys() == {"pointer", "message"}

    @pytest.mark.parametrize("text", [b"null", b"3", b'"text"', b"[]", b"{}"])
    async def test_whatever_is_not_a_definition_has_problems(self, server: Server, text: bytes) -> None:
        verdict = await server.post(
            "/v1/workflows/validate", data=text, headers={"Content-Type": "application/json"}
        )
        assert verdict.status == 200
        assert verdict.json["problems"]

    async def test_what_is_not_a_document_is_bad_syntax(self, server: Server) -> None:
        refused = await server.post(
            "/v1/workflows/validate", data=b"{", headers={"Content-Type": "application/json"}
        )
        assert (refused.status, refused.json["code"]) == (400, "bad_syntax")

    async def test_a_resource_tag_without_a_limit_is_a_warning(self, serve: Serve) -> None:
        async with serve(resource_limits={"known": ResourceLimit(10.0)}) as server:
            nodes = [{"id": tag, "handler": "echo", "resource_tag": tag} for tag in ("known", "unknown")]
            verdict = await server.post("/v1/workflows/validate", json=definition(nodes=nodes))
        assert verdict.json["valid"] is True
        assert [warning["pointer"] for warning in verdict.json["warnings"]] == ["/nodes/1/resource_tag"]

    async def test_a_function_that_no_living_worker_may_call_is_a_warning(
        self, server: Server, registry: Registry
    ) -> None:
        registry.allow(["shop:*", "tools:clean"])
        registry.add_function("here:run", lambda: None)
        named = ["shop:any", "tools:clean", "tools:other", "here:run", "{{ input.f }}", "tools:other", "x:y"]
        nodes = [
            {"id": f"n{index}", "handler": "python", "config": {"function": function}}
            for index, function in enumerate(named)
        ]
        body = definition(nodes=[*nodes, {"id": "e", "handler": "echo", "config": {"function": "x:z"}}])
        await server.engine.worker.announce()
        warnings = (await server.post("/v1/workflows/validate", json=body)).json["warnings"]
        assert [warning["pointer"] for warning in warnings] == [
            "/nodes/2/config/function",
            "/nodes/6/config/function",
        ]
        assert warnings[0]["message"].startswith(
            "no living worker may call 'tools:other' (2 nodes name it): "
        )
        assert "WEFT_PYTHON_ALLOW" in warnings[0]["message"]
        # A worker of an earlier release does not say what it may call: then nothing is known.
        await server.engine.ports.store.announce_worker(worker_named("w"))
        assert (await server.post("/v1/workflows/validate", json=body)).json["warnings"] == []

    async def test_a_handler_that_a_living_worker_announced_is_known(self, server: Server) -> None:
        body = definition(nodes=[{"id": "a", "handler": "elsewhere", "config": {"x": 1}}])
        assert not (await server.post("/v1/workflows/validate", json=body)).json["valid"]
        await server.engine.ports.store.announce_worker(worker_named("w", "elsewhere"))
        assert (await server.post("/v1/workflows/validate", json=body)).json["valid"]


class TestLooking:
    async def test_a_list_is_given_in_pages_by_name(self, server: Server) -> None:
        for name in ("c", "a", "b"):
            await server.post("/v1/workflows", json=definition(name))
        seen, path = [], "/v1/workflows?limit=2"
        while path:
            page = (await server.get(path)).json
            seen.append([item["name"] for item in page["items"]])
            path = f"/v1/workflows?limit=2&cursor={page['next_cursor']}" if page["next_cursor"] else ""
        assert seen == [["a", "b"], ["c"]]

    async def test_versions_are_listed_newest_first_in_pages(self, server: Server) -> None:
        for number in range(3):
            await server.post("/v1/workflows", json=definition(description=str(number)))
        first = (await server.get("/v1/workflows/flow/versions?limit=2")).json
        rest = (await server.get(f"/v1/workflows/flow/versions?limit=2&cursor={first['next_cursor']}")).json
        assert [item["version"] for item in first["items"]] == [3, 2]
        assert [item["version"] for item in rest["items"]] == [1]
        assert rest["next_cursor"] is None

    async def test_a_version_is_found_by_number_by_alias_and_as_the_latest(self, server: Server) -> None:
        for number in range(2):
            await server.post("/v1/workflows", json=definition(description=str(number)))
        await server.call("PUT", "/v1/workflows/flow/aliases/stable", json={"version": 1})
        found = [
            (await server.get(f"/v1/workflows/flow{query}")).json["version"]
            for query in ("", "?version=latest", "?version=1", "?version=stable", "?version=2")
        ]
        assert found == [2, 2, 1, 1, 2]

    @pytest.mark.parametrize("version", ["9", "0", "nosuch", "-1", "1.0", "%00", "9" * 400, "a b", ""])
    async def test_a_version_that_is_not_there_is_not_found(self, server: Server, version: str) -> None:
        await server.post("/v1/workflows", json=definition())
        missing = await server.get(f"/v1/workflows/flow?version={version}")
        assert (missing.status, missing.json["code"]) == (404, "not_found")

    @pytest.mark.parametrize(
        "name",
        [
            "nosuch",
            "UPPER",
            "..",
            "%00",
            "a%2Fb",
            "%F0%9F%98%80",
            "__proto__",
            "x" * 129,
            "%ff",
            "'or%201=1--",
        ],
    )
    async def test_a_name_that_is_not_there_or_cannot_be_is_not_found(
        self, server: Server, name: str
    ) -> None:
        for path in (f"/v1/workflows/{name}", f"/v1/workflows/{name}/versions"):
            async with server.session.get(URL(server.url + path, encoded=True)) as missing:
                assert missing.status == 404
                assert (await missing.json(content_type=None))["code"] == "not_found"

    @pytest.mark.parametrize(
        ("query", "pointer"),
        [
            ("limit=0", "/limit"),
            ("limit=501", "/limit"),
            ("limit=x", "/limit"),
            ("limit=", "/limit"),
            ("cursor=x", "/cursor"),
            ("cursor=WyJhIl0.", "/cursor"),
            ("cursor=" + "A" * 600, "/cursor"),
            ("limmit=3", "/limmit"),
        ],
    )
    async def test_a_bad_query_is_named_by_its_parameter(
        self, server: Server, query: str, pointer: str
    ) -> None:
        refused = await server.get(f"/v1/workflows?{query}")
        assert (refused.status, refused.json["code"]) == (422, "invalid_request")
        assert [problem["pointer"] for problem in refused.json["problems"]] == [pointer]

    async def test_a_cursor_of_another_list_is_refused(self, server: Server) -> None:
        for number in range(2):
            await server.post("/v1/workflows", json=definition(description=str(number)))
        cursor = (await server.get("/v1/workflows/flow/versions?limit=1")).json["next_cursor"]
        assert (await server.get(f"/v1/workflows?cursor={cursor}")).status == 422


class TestAliases:
    async def test_an_alias_moves_and_goes(self, server: Server) -> None:
        for number in range(2):
            await server.post("/v1/workflows", json=definition(description=str(number)))
        path = "/v1/workflows/flow/aliases/production"
        put = await server.call("PUT", path, json={"version": 1})
        assert (put.status, put.json) == (200, {"name": "flow", "alias": "production", "version": 1})
        await server.call("PUT", path, json={"version": 2})
        assert (await server.get("/v1/workflows/flow")).json["aliases"] == {"production": 2}
        gone = await server.call("DELETE", path)
        assert (gone.status, gone.body) == (204, b"")
        assert (await server.call("DELETE", path)).status == 404
        assert (await server.get("/v1/workflows/flow")).json["aliases"] == {}

    @pytest.mark.parametrize("alias", ["latest", "1", "007", "Upper", "-x", "a b", "x" * 129, "%C3%BC"])
    async def test_what_is_no_alias_is_refused(self, server: Server, alias: str) -> None:
        await server.post("/v1/workflows", json=definition())
        refused = await server.call("PUT", f"/v1/workflows/flow/aliases/{alias}", json={"version": 1})
        assert (refused.status, refused.json["problems"][0]["pointer"]) == (422, "/alias")
        assert (await server.call("DELETE", f"/v1/workflows/flow/aliases/{alias}")).status == 404

    @pytest.mark.parametrize(
        ("body", "pointer"),
        [
            ({}, ""),
            ({"version": "1"}, "/version"),
            ({"version": True}, "/version"),
            ({"version": 1.0}, "/version"),
            ({"version": 0}, "/version"),
            ({"version": 2**70}, "/version"),
            ({"version": 1, "x": 1}, "/x"),
            ([], ""),
        ],
    )
    async def test_a_bad_body_is_named_by_its_field(self, server: Server, body: object, pointer: str) -> None:
        await server.post("/v1/workflows", json=definition())
        refused = await server.call("PUT", "/v1/workflows/flow/aliases/stable", json=body)
        assert (refused.status, refused.json["code"]) == (422, "invalid_request")
        assert [problem["pointer"] for problem in refused.json["problems"]] == [pointer]

    async def test_an_alias_of_a_version_or_workflow_that_is_not_there_is_not_found(
        self, server: Server
    ) -> None:
        await server.post("/v1/workflows", json=definition())
        for name, version in (("flow", 2), ("nosuch", 1)):
            missing = await server.call("PUT", f"/v1/workflows/{name}/aliases/x", json={"version": version})
            assert missing.status == 404


class TestDeleting:
    async def test_a_deleted_workflow_is_gone_and_its_numbering_goes_on(self, server: Server) -> None:
        await server.post("/v1/workflows", json=definition())
        await server.call("PUT", "/v1/workflows/flow/aliases/stable", json={"version": 1})
        gone = await server.call("DELETE", "/v1/workflows/flow")
        assert (gone.status, gone.body) == (204, b"")
        assert (await server.get("/v1/workflows/flow")).status == 404
        assert (await server.get("/v1/workflows/flow/versions")).status == 404
        assert (await server.get("/v1/workflows")).json["items"] == []
        assert (await server.call("DELETE", "/v1/workflows/flow")).status == 404
        again = await server.post("/v1/workflows", json=definition(description="new"))
        assert (again.status, again.json["version"]) == (201, 2)
        assert (await server.get("/v1/workflows/flow")).json["aliases"] == {}
