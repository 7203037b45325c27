"""The OpenAPI document: whole, with examples, and the same as the one in docs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema_rs
import pytest
from fastapi.routing import APIRoute

from weft.api.app import create_app
from weft.api.problem import CODES
from weft.api.reference import openapi_document

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.api.conftest import Serve, Server

DOCUMENT = Path(__file__).parent.parent.parent / "docs" / "openapi.json"


@pytest.fixture(scope="module")
def document() -> Any:
    return json.loads(openapi_document())


def operations(document: Any) -> Iterator[tuple[str, Any]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield f"{method.upper()} {path}", operation


def contents(document: Any) -> Iterator[tuple[str, str, Any]]:
    """Every body of a request or an answer: where, its media type, and what is declared of it."""
    for where, operation in operations(document):
        for name, content in operation.get("requestBody", {}).get("content", {}).items():
            yield where, name, content
        for status, response in operation["responses"].items():
            for name, content in response.get("content", {}).items():
                yield f"{where} {status}", name, content


def test_the_document_in_docs_is_the_one_that_is_served() -> None:
    regenerate = "run: python -m weft.api.reference openapi.json > docs/openapi.json"
    assert DOCUMENT.read_text(encoding="utf-8") == openapi_document(), regenerate


async def test_it_is_served(server: Server, document: Any) -> None:
    served = await server.get("/openapi.json")
    assert served.headers["Content-Type"] == "application/json"
    assert served.json == document
    assert document["openapi"].startswith("3.1")


async def test_every_route_is_in_it(server: Server, document: Any) -> None:
    routes = [route for route in create_app(server.service).router.routes if isinstance(route, APIRoute)]
    assert {route.path for route in routes if route.include_in_schema} == document["paths"].keys()
    hidden = [route.path for route in routes if not route.include_in_schema]
    assert all(path.startswith("/docs/") for path in hidden), "only the files of the pages are left out"


async def test_the_key_that_it_declares_is_the_key_that_is_asked_for(serve: Serve, document: Any) -> None:
    scheme = document["components"]["securitySchemes"]["key"]
    assert (scheme["type"], scheme["scheme"]) == ("http", "bearer")
    assert document["security"] == [{"key": []}, {"session": []}, {}]
    async with serve(api_keys=("a-key-of-this-server-for-tests-01",)) as server:
        assert (await server.get("/v1/workflows")).status == 401
        headers = {"Authorization": "Bearer a-key-of-this-server-for-tests-01"}
        assert (await server.get("/v1/workflows", headers=headers)).status == 200


async def test_calls_from_the_page_send_the_key_that_was_entered(serve: Serve, document: Any) -> None:
    async with serve(api_keys=("a-key-of-this-server-for-tests-01",)) as server:
        script = (await server.get("/docs/docs.js")).body.decode()
    # Swagger UI sends the key of the scheme with this name, with each operation that declares the scheme.
    assert 'ui.preauthorizeApiKey("key", key)' in script
    open_to_all = (" /v1/session", " /v1/hooks/")
    for where, operation in operations(document):
        if (" /v1/" in where and not any(path in where for path in open_to_all)) or where == "GET /metrics":
            assert "security" not in operation, where


def test_every_operation_has_a_name_of_its_own_a_tag_and_a_text(document: Any) -> None:
    found = list(operations(document))
    names = [operation["operationId"] for _, operation in found]
    assert len(set(names)) == len(names)
    assert all(name[0].islower() and name.isalnum() for name in names)
    known = {tag["name"] for tag in document["tags"]}
    for where, operation in found:
        assert set(operation["tags"]) <= known, where
        assert operation["tags"], where
        assert operation["description"], where


def test_every_json_body_has_an_example_that_fits_its_schema(document: Any) -> None:
    for where, name, content in contents(document):
        if not name.endswith("json"):
            continue
        if where == "GET /openapi.json 200":
            continue
        examples = [content["example"]] if "example" in content else []
        examples += [example["value"] for example in content.get("examples", {}).values()]
        assert examples, f"{where} {name} has no example"
        schema = {**content["schema"], "components": document["components"]}
        for example in examples:
            jsonschema_rs.validate(schema, example)


def test_every_operation_declares_what_all_may_answer(document: Any) -> None:
    for where, operation in operations(document):
        statuses = operation["responses"].keys()
        if operation.get("security") == []:
            assert where in (
                "GET /",
                "GET /docs",
                "GET /healthz",
                "GET /openapi.json",
                "GET /readyz",
                "GET /v1/session",
                "POST /v1/session",
                "DELETE /v1/session",
                # Its signature stands for a key.
                "POST /v1/hooks/{name}",
            )
            assert {"403", "429", "500", "503"} <= statuses, where
        else:
            assert {"401", "403", "429", "500", "503"} <= statuses, where
        if "requestBody" in operation:
            assert {"400", "413", "415", "422"} <= statuses, where
        if any(parameter["in"] == "query" for parameter in operation.get("parameters", ())):
            assert "422" in statuses, where
        for status, response in operation["responses"].items():
            if int(status) >= 400 and where != "GET /readyz":
                assert list(response["content"]) == ["application/problem+json"], f"{where} {status}"


def test_every_code_of_a_problem_has_an_example(document: Any) -> None:
    shown = {
        code
        for _, name, content in contents(document)
        if name == "application/problem+json"
        for code in content["examples"]
    }
    # Which method a path does not take is not said of the methods that it takes.
    assert shown == CODES.keys() - {"method_not_allowed"}


def test_nothing_refers_to_what_is_not_there(document: Any) -> None:
    text = json.dumps(document)
    names = {part.split('"')[0] for part in text.split("#/components/schemas/")[1:]}
    assert names <= document["components"]["schemas"].keys()
    assert "HTTPValidationError" not in text
