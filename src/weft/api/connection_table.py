"""All connections to one API: how many there may be, and which one is closed when there are too many.

A connection is *anonymous* until a request with a valid API key has come on it; without keys, to its end. It
is *idle* while the server works on no request of it: it waits for a request, or drops the rest of a body.

The server refuses nobody while there is an idle connection that it may close. So a full table closes one for
each connection that comes: the oldest idle anonymous one, else the oldest idle one of the caller that has the
most. Anonymous connections have half of the table, and those of an address half of that; beyond its share an
address makes room by its own connections. A caller that sends a request with its key at once is anonymous for
a few milliseconds. It may be the only one, and so the oldest: an anonymous connection that became idle less
than a second ago makes room only where no caller has an idle one.

If the process runs out of files all the same, the limit is lowered below what was open, and grows again by
one connection a second: the engine needs some files at once, and nobody knows how many there are for callers.

One timer for all connections checks their times every second. A timer for each phase of each request would be
set and cancelled several times a request.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, OrderedDict
from typing import TYPE_CHECKING, Protocol

from weft.logs import RateLimitedLog
from weft.open_files import file_limit, has_free_file, raise_file_limit
from weft.telemetry import CONNECTIONS_CLOSED, CONNECTIONS_REFUSED

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from weft.settings import Settings
    from weft.telemetry import Metrics

# The soft limit on open files is raised to this, where the hard limit allows it. With a limit of a billion,
# as some container runtimes set it, programs that close every possible file at their start take minutes.
_ENOUGH_FILES = 65_536
# The journal, Redis, the log, the event loop, listening sockets, lookups of names in threads.
_OWN_FILES = 128
# A worker slot has a connection in use and one kept for the next call, in each of the two HTTP sessions.
_FILES_PER_SLOT = 4
# A channel and a pipe, and twice that while the child process is started.
_FILES_PER_CHILD = 4
# Where the limit is smaller than the reserve, callers still get this part of it.
_LEAST_PART = 4

SWEEP_SECONDS = 1.0
# Connections by which the limit is lowered when the process has no free file: enough for the engine's work of
# the next seconds, and few enough that most callers do not notice.
_SHED = 64
# Callers have so many connections in any case.
_LEAST = 16
# A caller sends its first request with its connection; a busy loop reads it this much later at most.
_FRESH_MICROSECONDS = 1_000_000

log = logging.getLogger("weft.api")


class TrackedConnection(Protocol):
    """A connection, as the table needs it."""

    # The address of the caller, and its name; None: no valid key has come on the connection yet.
    address: str
    caller: str | None

    def check(self, now: float) -> None:
        """Close the connection if its time is over."""

    def abort(self) -> None:
        """Close the connection now."""


def reserved_files(settings: Settings) -> int:
    """Return how many open files the engine's own work may need."""
    # Plain functions and coroutines may have WORKER_PROCESSES children each.
    children = 2 * settings.worker_processes
    return _OWN_FILES + _FILES_PER_SLOT * settings.worker_concurrency + _FILES_PER_CHILD * children


def make_room(settings: Settings) -> None:
    """Raise this process's limit on open files, for the connections of callers and the engine's own work."""
    raise_file_limit(max(_ENOUGH_FILES, settings.max_connections + reserved_files(settings)))


def connection_limit(settings: Settings) -> int:
    """Return how many connections callers may have at once: MAX_CONNECTIONS, or fewer if files are few."""
    files = file_limit()
    if files is None:
        return settings.max_connections
    return min(settings.max_connections, max(files - reserved_files(settings), files // _LEAST_PART))


class ConnectionTable:
    """The connections of one server. ``has_keys``: whether callers have to show an API key."""

    def __init__(self, *, limit: int, has_keys: bool, metrics: Metrics, now: Callable[[], int]) -> None:
        self.limit = self._full_limit = limit
        self.has_keys = has_keys
        self._metrics = metrics
        self._now = now
        self._log = RateLimitedLog(log, now=now)
        self._open: set[TrackedConnection] = set()
        self.anonymous = 0
        # Anonymous connections by address, those of known callers by their names.
        self._anonymous_of: Counter[str] = Counter()
        self._known_of: Counter[str] = Counter()
        # Idle connections, the oldest first: anonymous ones by address and together, others by caller. Of the
        # anonymous ones since when each is idle.
        self._idle_of: dict[str, OrderedDict[TrackedConnection, None]] = {}
        self._idle_anonymous: OrderedDict[TrackedConnection, int] = OrderedDict()
        self._idle_known_of: dict[str, OrderedDict[TrackedConnection, None]] = {}

    @property
    def anonymous_limit(self) -> int:
        # Without keys every caller is anonymous, and on this machine.
        return max(1, self.limit // 2) if self.has_keys else self.limit

    @property
    def address_limit(self) -> int:
        return max(1, self.limit // 4) if self.has_keys else self.limit

    def __len__(self) -> int:
        return len(self._open)

    def admit(self, connection: TrackedConnection) -> bool:
        """Add a connection that was just accepted, idle and anonymous; False: the caller is refused."""
        address = connection.address
        if self._anonymous_of[address] >= self.address_limit:
            return self._add(connection) if self._evict_of(address) else self._refuse(address, "address")
        if self.anonymous >= self.anonymous_limit and not self._evict(self._idle_anonymous):
            return self._refuse(address, "anonymous")
        if len(self._open) >= self.limit and not self._evict_any():
            return self._refuse(address, "full")
        return self._add(connection)

    def remove(self, connection: TrackedConnection) -> None:
        """Forget a connection that is closed, or about to be."""
        if connection not in self._open:
            return
        self._open.discard(connection)
        self.busy(connection)
        if connection.caller is None:
            self.anonymous -= 1
            _count_down(self._anonymous_of, connection.address)
        else:
            _count_down(self._known_of, connection.caller)

    def identify(self, connection: TrackedConnection, caller: str) -> None:
        """Count a connection as that of a known caller: a request with a valid key has come on it."""
        if connection.caller is None and connection in self._open:
            connection.caller = caller
            self.anonymous -= 1
            _count_down(self._anonymous_of, connection.address)
            self._known_of[caller] += 1

    def busy(self, connection: TrackedConnection) -> None:
        """Take a connection out of the idle ones: a request of it is worked on."""
        if connection.caller is not None:
            _discard(self._idle_known_of, connection.caller, connection)
        elif connection in self._idle_anonymous:
            del self._idle_anonymous[connection]
            _discard(self._idle_of, connection.address, connection)

    def idle(self, connection: TrackedConnection) -> None:
        """Append a connection to the idle ones: its request has been answered."""
        if connection not in self._open:
            return
        if connection.caller is None:
            self._idle_anonymous[connection] = self._now()
            self._idle_of.setdefault(connection.address, OrderedDict())[connection] = None
        else:
            self._idle_known_of.setdefault(connection.caller, OrderedDict())[connection] = None

    def closed(self, reason: str) -> None:
        """Count a connection that the server closes by itself."""
        self._metrics.count(CONNECTIONS_CLOSED, reason)
        if reason != "idle":  # as every client's ends
            self._log.warning("connection.closed", reason=reason)

    async def sweep(self) -> None:
        """Close every second the connections whose time is over; runs until it is cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            now = loop.time()
            for connection in list(self._open):
                connection.check(now)
            if not has_free_file():
                self._shed()
            elif self.limit < self._full_limit:
                self.limit += 1

    def _shed(self) -> None:
        """Close idle connections because the engine has no file left for its own work."""
        self._metrics.out_of_files("server")
        self._log.warning(
            "files.exhausted",
            problem="no file can be opened: idle connections are closed; raise the limit on open files "
            "(LimitNOFILE=, ulimit -n) or lower WEFT_MAX_CONNECTIONS",
        )
        self.limit = max(_LEAST, min(self.limit, len(self._open) - _SHED))
        while len(self._open) > self.limit:
            if not self._evict_any():
                return

    # -- inside ------------------------------------------------------------------------------------

    def _add(self, connection: TrackedConnection) -> bool:
        self._open.add(connection)
        self.anonymous += 1
        self._anonymous_of[connection.address] += 1
        self.idle(connection)
        return True

    def _evict_of(self, address: str) -> bool:
        idle = self._idle_of.get(address)
        return idle is not None and self._evict(idle)

    def _evict_any(self) -> bool:
        """Close the idle connection that is wanted least; False: there is none."""
        oldest_at = next(iter(self._idle_anonymous.values()), None)
        if oldest_at is not None and oldest_at <= self._now() - _FRESH_MICROSECONDS:
            return self._evict(self._idle_anonymous)
        return self._evict_known() or self._evict(self._idle_anonymous)

    def _evict_known(self) -> bool:
        """Close the oldest idle connection of the caller that has the most; False: there is none."""
        if not self._idle_known_of:
            return False
        return self._evict(self._idle_known_of[max(self._idle_known_of, key=self._known_of.__getitem__)])

    def _evict(self, idle: Mapping[TrackedConnection, object]) -> bool:
        """Close the oldest of some idle connections; False: there is none."""
        if not idle:
            return False
        connection = next(iter(idle))
        self.remove(connection)
        self.closed("evicted")
        connection.abort()
        return True

    def _refuse(self, address: str, reason: str) -> bool:
        self._metrics.count(CONNECTIONS_REFUSED, reason)
        self._log.warning("connection.refused", reason=reason, address=address, open=len(self._open))
        return False


def _count_down(counts: Counter[str], name: str) -> None:
    counts[name] -= 1
    if not counts[name]:
        del counts[name]


def _discard(
    groups: dict[str, OrderedDict[TrackedConnection, None]], name: str, connection: TrackedConnection
) -> None:
    group = groups.get(name)
    if group is not None and connection in group:
        del group[connection]
        if not group:
            del groups[name]
