"""Text that no journal can store, in every parameter of every route, on every journal."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from tests.api.conftest import Server
from tests.api.test_security import all_there_is, filled, parameters, something_of_everything

from weft.api.app import create_app
from weft.api.server import bind, listening, url_of
from weft.api.service import serve_engine
from weft.clock import new_id
from weft.engine import Engine, EngineParts
from weft.handlers.registry import Registry
from weft.journal.postgres.journal import PostgresJournal
from weft.journal.postgres.schema import migrate

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

UNSTORABLE = ("\0", "one\0", "\0one", "0199\0-a", "a\0/b")


@pytest.fixture(params=["memory", "sqlite", "postgres"])
async def any_server(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Server]:
    """A server on each journal."""
    parts, data = EngineParts(), None
    if request.param == "sqlite":
        data = tmp_path / "data"
    if request.param == "postgres":
        url = request.getfixturevalue("postgres_url")
        await migrate(url)
        parts = EngineParts(journal=lambda _: PostgresJournal(url, new_id=new_id, exclusive=True))
    async with serving(data, parts) as server:
        yield server


@asynccontextmanager
async def serving(data: Path | None, parts: EngineParts) -> AsyncIterator[Server]:
    registry = Registry()
    async with Engine(registry=registry, data=data, parts=parts) as engine:
        service = serve_engine(engine, registry)
        bound = bind("127.0.0.1", 0)
        url = url_of(bound)
        async with listening(create_app(service), bound), aiohttp.ClientSession() as session:
            yield Server(url, session, engine, service)
            service.stopping.set()


async def test_nul_in_a_path_is_not_found_on_every_route(any_server: Server) -> None:
    known = await something_of_everything(any_server)
    before = await all_there_is(any_server)
    asked = parameters("path")
    assert len(asked) > 20
    for method, path, name in asked:
        body: Any = {"version": 1} if method == "PUT" else None
        for text in UNSTORABLE:
            answer = await any_server.call(method, filled(path, known, name, text), json=body)
            assert (answer.status, answer.json["code"]) == (404, "not_found"), (method, path, text)
    assert await all_there_is(any_server) == before


async def test_nul_in_a_query_finds_nothing_or_is_refused_on_every_route(any_server: Server) -> None:
    known = await something_of_everything(any_server)
    for method, path, name in parameters("query"):
        for text in ("a%00b", "note:a%00"):
            answer = await any_server.call(method, f"{filled(path, known, '', '')}?{name}={text}")
            if answer.status == 200:
                assert answer.json["items"] == [], (method, path, name)
            else:
                assert answer.status in (404, 422), (method, path, name, answer.body)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/workflows/one/executions", {"version": "\0"}),
        ("/v1/workflows/one/executions", {"labels": {"\0": "note"}}),
        ("/v1/batches", {"workflow": "\0", "inputs": [{}]}),
        ("/v1/batches", {"workflow": "one", "version": "\0", "inputs": [{}]}),
        ("/v1/executions/{execution_id}/retry", {"nodes": ["\0"]}),
    ],
)
async def test_nul_in_a_body_is_refused_on_every_journal(any_server: Server, path: str, body: Any) -> None:
    known = await something_of_everything(any_server)
    answer = await any_server.post(filled(path, known, "", ""), json=body)
    assert answer.status in (404, 422), answer.body


async def test_bytes_that_are_not_text_are_not_found(any_server: Server) -> None:
    for path in ("/v1/executions/%ff%fe", "/v1/workflows/%80", "/v1/dead-letters/%ed%a0%80"):
        assert (await any_server.get(path)).status == 404
