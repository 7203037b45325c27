"""A whole server in the test's own loop: the engine, the API, and uvicorn on a free port."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from tests.api.play import QUICK, Play
from tests.walks.stage import Stage

from weft.api.app import create_app
from weft.api.server import bind, listening, url_of
from weft.api.service import Service, serve_engine
from weft.engine import Engine
from weft.handlers.registry import Registry
from weft.settings import Settings
from weft.telemetry import Metrics

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    headers: Any
    body: bytes
    json: Any


@dataclass(frozen=True)
class Server:
    url: str
    session: aiohttp.ClientSession
    engine: Engine
    service: Service

    async def call(self, method: str, path: str, **kwargs: Any) -> Answer:
        """Send one request; ``json`` in the answer is None where it is not JSON."""
        async with self.session.request(method, self.url + path, **kwargs) as response:
            body = await response.read()
            is_json = response.content_type.endswith("json") and body
            return Answer(
                response.status,
                response.headers,
                body,
                await response.json(content_type=None) if is_json else None,
            )

    async def get(self, path: str, **kwargs: Any) -> Answer:
        return await self.call("GET", path, **kwargs)

    async def post(self, path: str, **kwargs: Any) -> Answer:
        return await self.call("POST", path, **kwargs)


Serve = Callable[..., AbstractAsyncContextManager[Server]]


@pytest.fixture
def registry() -> Registry:
    """The handlers of the server; a test adds its own before the server starts."""
    return Registry()


@pytest.fixture
def serve(tmp_path: Path, registry: Registry) -> Serve:
    """Open a server: ``async with serve(max_nodes=5) as server``, with settings by their names."""

    @asynccontextmanager
    async def open_server(*, data: Path | None = tmp_path / "data", **settings: Any) -> AsyncIterator[Server]:
        async with Engine(
            registry=registry, settings=Settings(**settings), data=data, metrics=Metrics()
        ) as engine:
            service = serve_engine(engine, registry)
            bound = bind("127.0.0.1", 0)
            url = url_of(bound)
            async with (
                listening(create_app(service), bound),
                aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=30)) as session,
            ):
                yield Server(url, session, engine, service)
                # Streams and calls that wait end with it.
                service.stopping.set()

    return open_server


@pytest.fixture
async def server(serve: Serve) -> AsyncIterator[Server]:
    """One server with the settings as they are, on a data folder of its own."""
    async with serve() as server:
        yield server


@pytest.fixture
def stage(registry: Registry) -> Stage:
    """What the ``held`` nodes of the server wait on."""
    return Stage(None, registry)


@pytest.fixture(params=["memory", "sqlite"])
async def play(
    serve: Serve, stage: Stage, tmp_path: Path, request: pytest.FixtureRequest
) -> AsyncIterator[Play]:
    """A server whose nodes do what the test says, on each journal."""
    data = tmp_path / "data" if request.param == "sqlite" else None
    async with serve(data=data, **QUICK) as server:
        yield Play(server, stage)
