"""A RabbitMQ of a test's own, or the one that ``WEFT_TEST_RABBITMQ_URL`` names.

pip brings none. It has a name, a cookie and a folder of its own. Erlang would leave a daemon behind that
tells nodes of each other; it has one of its own too, which ends with it.
"""

from __future__ import annotations

import signal
import socket
from contextlib import suppress
from typing import TYPE_CHECKING

from tests.support.servers.binaries import find_epmd, find_rabbitmq
from tests.support.servers.process import PrivateServer, ServerProcess, free_port

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_CONFIGURATION = """\
listeners.tcp.default = 127.0.0.1:{port}
# Whatever the machine has left, the tests need little of it.
disk_free_limit.absolute = 1MB
vm_memory_high_watermark.absolute = 512MB
"""


class RabbitServer(PrivateServer):
    """A RabbitMQ server as a context manager; ``start()`` again after ``stop()`` or ``kill()``."""

    def __init__(self) -> None:
        self._binary = find_rabbitmq()
        self._given: str | None = None
        self.version = self._binary.version
        self.source = self._binary.source
        self._names = ServerProcess("epmd", self._names_command, is_ready=_listens)
        self._cluster_port = free_port()
        self.process: ServerProcess | None = ServerProcess("rabbitmq", self._command, is_ready=_speaks_amqp)

    @classmethod
    def at(cls, url: str) -> RabbitServer:
        """Use a server that runs already. It is not started or stopped; its virtual host is used as it is."""
        server = cls.__new__(cls)
        server._given = url
        server.process = None
        server.source = "WEFT_TEST_RABBITMQ_URL"
        server.version = ""
        return server

    @property
    def url(self) -> str:
        if self._given is not None:
            return self._given
        return f"amqp://guest:guest@127.0.0.1:{self.port}//"

    def start(self) -> None:
        if not self._names.is_running:
            self._names.start()
        super().start()

    def stop(self) -> None:
        """End it as an operator does."""
        self.controlled.end(signal.SIGTERM)

    def __exit__(self, *about: object) -> None:
        super().__exit__(*about)  # type: ignore[arg-type]
        if self.process is not None:
            self._names.end_for_good()

    def _names_command(self, port: int, _folder: Path) -> Sequence[str | Path]:
        return [find_epmd(), "-port", str(port), "-address", "127.0.0.1"]

    def _command(self, port: int, folder: Path) -> Sequence[str | Path]:
        (folder / "rabbitmq.conf").write_text(_CONFIGURATION.format(port=port))
        (folder / "plugins").write_text("[].\n")
        settings = {
            "HOME": folder,
            # The script then becomes the server, and does not wait beside it.
            "detached": "1",
            "ERL_EPMD_PORT": self._names.port,
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": f"weft{port}@localhost",
            "RABBITMQ_DIST_PORT": self._cluster_port,
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
            "RABBITMQ_CONFIG_FILE": folder / "rabbitmq.conf",
            "RABBITMQ_ENABLED_PLUGINS_FILE": folder / "plugins",
            "RABBITMQ_MNESIA_BASE": folder / "data",
            "RABBITMQ_LOG_BASE": folder / "log",
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_PID_FILE": folder / "pid",
        }
        return ["env", *(f"{name}={value}" for name, value in settings.items()), self._binary.path]


def _listens(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


def _speaks_amqp(port: int) -> bool:
    """True if the server on a port begins to speak when it is greeted: then it has started."""
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=2) as connection:
        connection.sendall(b"AMQP\x00\x00\x09\x01")
        return connection.recv(1) == b"\x01"
    return False
