"""The service that every route is given: the ports, and the parts of this process."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, Self, TypeVar

from weft.api.auth import ApiKeys
from weft.api.connection_table import ConnectionTable, connection_limit
from weft.api.load import Load, current_caller
from weft.api.shared_result import SharedResults
from weft.api.threads import FairThreads
from weft.logs import RateLimitedLog
from weft.telemetry import REQUESTS_REFUSED, Metrics

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from starlette.requests import HTTPConnection

    from weft.feed.contract import Feed
    from weft.handlers.registry import Registry
    from weft.ports import ApiPorts
    from weft.settings import Settings
    from weft.store.contract import WorkerStatus
    from weft.views.prediction import NodeDurations

log = logging.getLogger("weft.api")

# In a fleet the feed brings hints, which may be lost: a request that waits asks the journal so often, and all
# who wait together not more often than so many times a second.
_LOOK_SECONDS = 1.0
_LOOKS_A_SECOND = 200

# Encoded and compressed graphs of definitions: about forty of 50,000 nodes.
_TOPOLOGY_BYTES = 16 * 2**20
# Of 40 namespaces for a day; and the overviews of the last moments.
_HOURS = 1_000
_OVERVIEWS = 16
# The same of timelines: those of 50,000 nodes take a megabyte.
_TIMELINE_BYTES = 8 * 2**20
# Nodes whose durations are kept: 200 bytes each.
_DURATIONS = 100_000

_P = ParamSpec("_P")
_T = TypeVar("_T")


def _no_faults() -> Mapping[str, str | None]:
    return {}


class Process(Protocol):
    """The part that serves in this process: a whole engine, or a share of a fleet."""

    @property
    def settings(self) -> Settings: ...

    @property
    def ports(self) -> ApiPorts: ...

    @property
    def metrics(self) -> Metrics | None: ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *_: object) -> None: ...

    async def started(self) -> None:
        """Return once it is open and at work."""

    async def drain(self) -> None:
        """Stop in good order; the journal may still be read afterwards."""

    def faults(self) -> Mapping[str, str | None]:
        """Return for each part of the process the fault that keeps that part from its work, or None."""


@dataclass(frozen=True, slots=True)
class CheckedParts:
    """The result of a readiness check: faults of the parts by name, and the workers if they were asked."""

    faults: Mapping[str, str | None]
    workers: Sequence[WorkerStatus] | None


@dataclass(slots=True, kw_only=True)
class Service:
    """One API. The routes find it at ``request.app.state.service``."""

    settings: Settings
    ports: ApiPorts
    registry: Registry
    feed: Feed
    # Set when the process is asked to stop: streams and waits end, and new work is refused.
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    # True until the workflows of the files that the process serves are stored.
    deploying: bool = False
    keys: ApiKeys = field(init=False)
    # Microseconds since 1970.
    started_at: int = field(init=False)
    # For what callers can cause.
    rate_limited_log: RateLimitedLog = field(init=False, repr=False)
    # How much the requests have in hand now.
    load: Load = field(init=False)
    metrics: Metrics = field(default_factory=Metrics)
    # The connections that requests come on.
    connections: ConnectionTable = field(init=False)
    # What keeps the parts of this process from their work, by name; None: nothing does.
    faults: Callable[[], Mapping[str, str | None]] = _no_faults
    # Whether others have a share in the work: then not all that happens is heard here.
    is_shared: bool = False
    # Whether its metrics show the whole fleet. One kind of process says that; the others tell of themselves.
    shows_fleet: bool = True
    # Handlers of living workers, when the store was last asked.
    announced: frozenset[str] = frozenset()
    # The check of readiness that is under way.
    checking: asyncio.Task[CheckedParts] | None = None
    # By the digest of the definition.
    topologies: SharedResults[bytes] = field(
        default_factory=lambda: SharedResults(_TOPOLOGY_BYTES, len), repr=False
    )
    # Counts of the hours that are over, and overviews, by the namespace and a time.
    hours: SharedResults[dict[str, Any]] = field(default_factory=lambda: SharedResults(_HOURS), repr=False)
    overviews: SharedResults[dict[str, Any]] = field(
        default_factory=lambda: SharedResults(_OVERVIEWS), repr=False
    )
    # Encoded and compressed timelines of executions, by what they were made of.
    timelines: SharedResults[bytes] = field(
        default_factory=lambda: SharedResults(_TIMELINE_BYTES, len), repr=False
    )
    # What nodes took in earlier executions, by the workflow and the definition.
    durations: SharedResults[NodeDurations] = field(
        default_factory=lambda: SharedResults(_DURATIONS, lambda kept: 1 + len(kept.of_node)), repr=False
    )
    # The executions that have live viewers, by id: each a ``LiveHub``, which knows this module.
    live: dict[str, Any] = field(default_factory=dict, repr=False)
    _threads: FairThreads = field(default_factory=FairThreads, repr=False)

    def __post_init__(self) -> None:
        now = self.ports.clock.monotonic
        limit = connection_limit(self.settings)
        self.connections = ConnectionTable(
            limit=limit, has_keys=bool(self.settings.api_keys), metrics=self.metrics, now=now
        )
        self.started_at = self.ports.clock.now()
        self.keys = ApiKeys(self.settings.api_keys)
        self.rate_limited_log = RateLimitedLog(log, now=now)

        def refused(reason: str) -> None:
            self.metrics.count(REQUESTS_REFUSED, reason)
            self.rate_limited_log.warning("request.refused", reason=reason)

        self.load = Load(connections=limit, refused=refused)

    async def run_in_thread(self, function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Call a function that may take long in a thread of a small pool, while the event loop goes on.

        Callers have the threads in turn, and none has more than half of them.
        """
        return await self._threads.run(current_caller.get(), function, *args, **kwargs)

    def look_seconds(self, at_most: float) -> float:
        """Return the seconds that a waiting request relies on the feed alone before it reads the journal."""
        if not self.is_shared:
            return at_most
        return min(at_most, max(_LOOK_SECONDS, self.load.waiting.in_use / _LOOKS_A_SECOND))


def serve_engine(
    engine: Process, registry: Registry, *, is_shared: bool = False, shows_fleet: bool = True
) -> Service:
    """Make the API of an engine in this process, or of this process's share of a fleet."""
    assert engine.ports.feed is not None
    return Service(
        settings=engine.settings,
        ports=engine.ports,
        registry=registry,
        feed=engine.ports.feed,
        metrics=engine.metrics or Metrics(),
        faults=engine.faults,
        is_shared=is_shared,
        shows_fleet=shows_fleet,
    )


def service_of(request: HTTPConnection) -> Service:
    """Return the service that a request was sent to."""
    service: Service = request.app.state.service
    return service
