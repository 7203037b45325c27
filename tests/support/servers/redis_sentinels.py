"""A Redis master, its replica and the Sentinels that watch them, on loopback, for tests of a failover."""

from __future__ import annotations

from contextlib import ExitStack
from time import sleep
from typing import TYPE_CHECKING, Any, Self, cast

from redis import Redis
from tests.support.servers.redis import RedisServer

from weft.clock import RealClock
from weft.core.time import MICROSECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path
    from types import TracebackType

MASTER_NAME = "mymaster"
_SENTINELS = 3
_AGREE_SECONDS = 60
_LOOK_SECONDS = 0.02
# A replica that comes does not wait for others that may come too.
_OPTIONS = {"repl-diskless-sync-delay": "0", "repl-ping-replica-period": "1"}


class RedisSentinel(RedisServer):
    """One Sentinel: a Redis server that watches another."""

    def __init__(self, watched_port: int) -> None:
        super().__init__()
        self._options = {
            "bind": "127.0.0.1",
            "sentinel monitor": f"{MASTER_NAME} 127.0.0.1 {watched_port} 2",
            # One that does not answer for so long is dead, and its replica takes over.
            "sentinel down-after-milliseconds": f"{MASTER_NAME} 1000",
            "sentinel failover-timeout": f"{MASTER_NAME} 5000",
        }

    def _command(self, port: int, folder: Path) -> Sequence[str | Path]:
        # It writes down there what it knows, for its next start.
        known = folder / "sentinel.conf"
        if not known.exists():
            lines = {"port": str(port), "dir": str(folder), **self._options}
            known.write_text("".join(f"{name} {value}\n" for name, value in lines.items()))
        return [self._binary.path, known, "--sentinel"]


class RedisSentinels:
    """The servers as a context manager; each is killed and started again as any other."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self.servers: list[RedisServer] = []
        self.sentinels: list[RedisSentinel] = []

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self.servers = [stack.enter_context(RedisServer(options=_OPTIONS)) for _ in range(2)]
            first, replica = self.servers
            replica.execute("REPLICAOF", "127.0.0.1", first.port)
            self.sentinels = [stack.enter_context(RedisSentinel(first.port)) for _ in range(_SENTINELS)]
            self.wait_until_all_know()
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stack.close()

    @property
    def url(self) -> str:
        hosts = ",".join(f"127.0.0.1:{sentinel.port}" for sentinel in self.sentinels)
        return f"redis+sentinel://{hosts}/{MASTER_NAME}"

    @property
    def master(self) -> RedisServer:
        """The server that a majority of the Sentinels names."""
        named = [self._named(sentinel) for sentinel in self.sentinels if sentinel.is_running]
        return max(self.servers, key=lambda server: named.count(server.port))

    def wait_until_all_know(self) -> None:
        """Return when every Sentinel knows the others, and a replica that has all that the master has."""
        self._wait(
            lambda: all(
                _state(sentinel)["num-other-sentinels"] == _SENTINELS - 1
                and any(replica["master-link-status"] == "ok" for replica in _replicas(sentinel))
                for sentinel in self.sentinels
            )
        )

    def wait_until_taken_over(self, server: RedisServer) -> None:
        """Return when every Sentinel that runs names this server, and it takes writes."""
        running = [sentinel for sentinel in self.sentinels if sentinel.is_running]
        self._wait(
            lambda: (
                all(self._named(sentinel) == server.port for sentinel in running)
                and server.execute("ROLE")[0] == b"master"
            )
        )

    def _named(self, sentinel: RedisServer) -> int:
        return int(sentinel.execute("SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER_NAME)[1])

    def _wait(self, is_so: Callable[[], bool]) -> None:
        deadline = RealClock().now() + _AGREE_SECONDS * MICROSECONDS
        while not is_so():
            assert RealClock().now() < deadline, "the Sentinels did not come to an agreement"
            sleep(_LOOK_SECONDS)


def _state(sentinel: RedisServer) -> dict[str, Any]:
    with Redis.from_url(sentinel.url, socket_timeout=10) as client:
        return cast("dict[str, Any]", client.sentinel_master(MASTER_NAME))


def _replicas(sentinel: RedisServer) -> list[dict[str, Any]]:
    with Redis.from_url(sentinel.url, socket_timeout=10) as client:
        return cast("list[dict[str, Any]]", client.sentinel_slaves(MASTER_NAME))
