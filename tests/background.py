"""A whole server in a thread of its own, for tests that block: of the commands, of the blocking client."""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from weft.api.app import create_app
from weft.api.server import bind, listening, url_of
from weft.api.service import serve_engine
from weft.engine import Engine
from weft.errors import NonRetryable
from weft.handlers.contract import Handler, HandlerContext, HandlerKind
from weft.handlers.registry import Registry
from weft.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from weft.core.payload import Json
    from weft.feed.contract import Feed

PATIENCE_SECONDS = 30.0

# A diamond whose nodes need no help; `flaky` needs an input to complete.
ORDER: dict[str, Any] = {
    "name": "order",
    "nodes": [
        {"id": "order", "handler": "echo", "config": {"number": "{{ input.number }}"}},
        {"id": "label", "handler": "echo", "dependencies": ["order"], "config": "parcel {{ order.number }}"},
    ],
}
# One node that waits until the test opens its gate, and one behind it.
HELD: dict[str, Any] = {
    "name": "held",
    "nodes": [
        {"id": "gate", "handler": "gate", "config": "{{ input.gate }}"},
        {"id": "after", "handler": "echo", "dependencies": ["gate"], "config": 1},
    ],
}
# Fails for good, unless the test has opened the gate that its input names.
FRAGILE: dict[str, Any] = {
    "name": "fragile",
    "nodes": [
        {"id": "first", "handler": "echo", "config": 1},
        {"id": "crack", "handler": "crack", "dependencies": ["first"], "config": "{{ input.gate }}"},
        {"id": "last", "handler": "echo", "dependencies": ["crack"], "config": 2},
    ],
}


class BackgroundServer:
    """One server on loopback. Until a test opens a gate, its handler ``gate`` waits and ``crack`` fails.

    ``told_gate`` waits too, and tells of its progress.
    """

    def __init__(self, data: Path | None, port: int, settings: dict[str, Any]) -> None:
        self.url = ""
        self._data = data
        self._port = port
        self._settings = settings
        self._gates: dict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._ready = threading.Event()
        self._feed: Feed | None = None
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="server", daemon=True)

    def start(self) -> None:
        self._thread.start()
        assert self._ready.wait(PATIENCE_SECONDS)
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(PATIENCE_SECONDS)
        assert not self._thread.is_alive()

    def open(self, gate: str) -> None:
        """Let through whoever waits at a gate, or comes to it later."""
        self._loop.call_soon_threadsafe(lambda: self._gates[gate].set())

    def is_watched(self, execution_id: str) -> bool:
        """True if anybody listens to the events of an execution."""
        return self._feed is not None and self._feed.has_subscriber(execution_id)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            try:
                runner.run(self._serve())
            except BaseException as error:
                self._failure = error
            finally:
                self._ready.set()

    async def _serve(self) -> None:
        registry = Registry()
        registry.add(Handler("gate", HandlerKind.USER, self._gate))
        registry.add(Handler("told_gate", HandlerKind.USER, self._told_gate))
        registry.add(Handler("speaks", HandlerKind.USER, self._speaks))
        registry.add(Handler("crack", HandlerKind.USER, self._crack))
        settings = Settings(worker_grace_seconds=0.05, **self._settings)
        async with Engine(registry=registry, settings=settings, data=self._data) as engine:
            service = serve_engine(engine, registry)
            self._feed = service.feed
            bound = bind("127.0.0.1", self._port)
            async with listening(create_app(service), bound):
                self.url = url_of(bound)
                self._ready.set()
                await self._stop.wait()
                service.stopping.set()

    async def _gate(self, config: Json, context: HandlerContext) -> Json:
        await self._gates[config].wait()
        return config

    async def _told_gate(self, config: Json, context: HandlerContext) -> Json:
        context.progress(1, 2, f"waits for {config}")
        return await self._gate(config, context)

    async def _speaks(self, config: Json, context: HandlerContext) -> Json:
        """Print and log; fail in the first attempt, and wait at the gate in the second."""
        print("printed in", context.attempt)
        context.logger.warning("logged in %d", context.attempt)
        if context.attempt == 1:
            raise RuntimeError("once")
        return await self._gate(config, context)

    async def _crack(self, config: Json, context: HandlerContext) -> Json:
        if not self._gates[config].is_set():
            raise NonRetryable(f"it cracked at {config}")
        return config


@contextmanager
def serving(data: Path | None = None, *, port: int = 0, **settings: Any) -> Iterator[BackgroundServer]:
    """Have a server until the block ends; without ``data`` nothing is kept."""
    server = BackgroundServer(data, port, settings)
    server.start()
    try:
        yield server
    finally:
        server.stop()
