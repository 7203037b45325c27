"""What the routes are given: the ports, and what belongs to this process."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from weft.api.admission import Load
from weft.telemetry import Metrics

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from starlette.requests import HTTPConnection

    from weft.embedded import Engine
    from weft.feed.contract import Feed
    from weft.handlers.registry import Registry
    from weft.ports import Ports
    from weft.settings import Settings

# Large documents that are read and checked at once. Python runs one of them at a time, and lets the event
# loop in between; several threads are there so that a slow document does not hold up the quick ones.
_THREADS = 4

_P = ParamSpec("_P")
_T = TypeVar("_T")


def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_THREADS, thread_name_prefix="weft-api")


@dataclass(slots=True, kw_only=True)
class Service:
    """One API. The routes find it at ``request.app.state.service``."""

    settings: Settings
    ports: Ports
    registry: Registry
    feed: Feed
    # Set when the process is asked to stop: streams and waits end, and new work is refused.
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    # How much the requests have in hand now.
    load: Load = field(default_factory=Load)
    metrics: Metrics = field(default_factory=Metrics)
    # What else runs in this process, by name: each says what keeps it from its work, None where nothing does.
    checks: Mapping[str, Callable[[], str | None]] = field(default_factory=dict)
    _threads: ThreadPoolExecutor = field(default_factory=_threads, repr=False)

    async def aside(self, function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Call a function that may take long in a thread of a small pool, while the event loop goes on."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, lambda: function(*args, **kwargs))


def serve_engine(engine: Engine, registry: Registry) -> Service:
    """Make the API of an engine in this process."""
    assert engine.ports.feed is not None
    return Service(
        settings=engine.settings,
        ports=engine.ports,
        registry=registry,
        feed=engine.ports.feed,
        metrics=engine.metrics or Metrics(),
        checks={"orchestrator": engine.orchestrator.fault, "worker": engine.worker.fault},
    )


def service_of(request: HTTPConnection) -> Service:
    """Give the service that a request was sent to."""
    service: Service = request.app.state.service
    return service
