"""A Redis of a test's own, or the one that ``WEFT_TEST_REDIS_URL`` names."""

from __future__ import annotations

import signal
import socket
from typing import TYPE_CHECKING, Any

from tests.support.servers.binaries import find_redis
from tests.support.servers.process import PrivateServer, ServerProcess

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path


class RedisServer(PrivateServer):
    """A Redis server as a context manager; ``start()`` again after ``stop()`` or ``kill()``.

    ``appendonly`` makes it keep its data over a restart, with a write to disk every second. ``options`` are
    lines of its configuration.
    """

    def __init__(self, *, appendonly: bool = False, options: Mapping[str, str] | None = None) -> None:
        self._binary = find_redis()
        self._options = {
            "bind": "127.0.0.1",
            "save": "",
            "appendonly": "yes" if appendonly else "no",
            "appendfsync": "everysec",
            "maxmemory-policy": "noeviction",
            **(options or {}),
        }
        self._given: str | None = None
        self.version = self._binary.version
        self.source = self._binary.source
        self.process: ServerProcess | None = ServerProcess("redis", self._command, is_ready=_answers)

    @classmethod
    def at(cls, url: str) -> RedisServer:
        """Use a server that runs already. It is not started, stopped or paused."""
        server = cls.__new__(cls)
        server._given = url
        server.process = None
        server.source = "WEFT_TEST_REDIS_URL"
        told = server.execute("INFO", "server")
        # Valkey also tells, by the older name, the version of Redis that it is compatible with.
        server.version = str(told.get("valkey_version") or told["redis_version"])
        return server

    @property
    def url(self) -> str:
        return self.url_of(0) if self._given is None else self._given

    def url_of(self, database: int) -> str:
        """Return the URL of one of its numbered databases."""
        if self._given is None:
            return f"redis://127.0.0.1:{self.port}/{database}"
        from urllib.parse import urlsplit

        return urlsplit(self._given)._replace(path=f"/{database}").geturl()

    def execute(self, *command: str | int, url: str | None = None) -> Any:
        """Run one command on a connection of its own: ``execute("FLUSHALL")``."""
        from redis import Redis

        with Redis.from_url(url or self.url, socket_timeout=10) as client:
            return client.execute_command(*command)

    def stop(self) -> None:
        """End it as an operator does; with ``appendonly``, after its last write to disk."""
        self.controlled.end(signal.SIGTERM)

    def pause(self) -> None:
        """Let it run no further, with its connections open."""
        self.controlled.pause()

    def resume(self) -> None:
        self.controlled.resume()

    def _command(self, port: int, folder: Path) -> Sequence[str | Path]:
        options = [part for name, value in self._options.items() for part in (f"--{name}", value)]
        return [self._binary.path, "--port", str(port), "--dir", folder, *options]


def _answers(port: int) -> bool:
    """True if the server on a port has read its data: before that, it answers ``-LOADING``."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
            connection.sendall(b"PING\r\n")
            return connection.recv(16).startswith(b"+PONG")
    except OSError:
        return False
