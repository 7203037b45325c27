"""A server of a test's own: started on loopback, stopped, killed, paused, and started again where it was.

No server outlives the process that started it, however that ends. An exit handler does not run after
``kill -9``, and what Linux offers for a parent's death means the death of its thread. So a shell waits at the
other end of a pipe: when the pipe closes, it ends what is still running and removes the folders.
"""

from __future__ import annotations

import atexit
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
from functools import cache
from pathlib import Path
from time import sleep
from typing import TYPE_CHECKING, Self

from weft.clock import RealClock
from weft.core.time import MICROSECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

    from tests.support.servers.account import Account

# Below the ports that the system gives to outgoing connections, so that none of those has taken a server's
# port when it is started again.
_PORTS = range(20_000, 32_000)
_START_SECONDS = 60.0
_STOP_SECONDS = 30.0
_POLL_SECONDS = 0.005

# $0 is the root. Each server has a folder there, with a file `pid` as long as it runs: a signal and a number.
_WATCH = """
cat >/dev/null
found=
for file in "$0"/*/pid; do
  read -r signal pid <"$file" || continue
  found=1
  kill -s "$signal" "$pid"
  kill -s CONT "$pid"
done
[ -z "$found" ] || sleep 0.5
for file in "$0"/*/pid; do
  read -r signal pid <"$file" && kill -s KILL "$pid"
done
rm -rf "$0"
"""


class NoServerError(Exception):
    """No server of that kind was found on this machine, or it did not start; the message says what to do."""


class ServerProcess:
    """The process of one server, on one port and in one folder through all its starts.

    ``command`` gives the arguments for a port and folder, ``is_ready`` says whether the server answers on
    its port, ``last_signal`` is how it is ended when nobody is left to ask it politely.
    """

    def __init__(
        self,
        name: str,
        command: Callable[[int, Path], Sequence[str | Path]],
        *,
        is_ready: Callable[[int], bool],
        last_signal: signal.Signals = signal.SIGKILL,
        account: Account | None = None,
    ) -> None:
        self.name = name
        self.folder = make_folder(name, account)
        self.port = 0
        self._command = command
        self._is_ready = is_ready
        self._last_signal = last_signal
        self._account = account
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        return self._running().pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start it, for the first time on any free port, and return when it answers."""
        assert not self.is_running, f"{self.name} is running"
        if self.port:
            self._start_on(self.port)
            return
        for _ in range(4):
            port = free_port()
            try:
                self._start_on(port)
            except NoServerError:
                # Another process may have taken the port since it was found free.
                if _is_free(port):
                    raise
            else:
                self.port = port
                return
        raise NoServerError(f"{self.name}: no free port was found")

    def end(self, number: signal.Signals, *, within_seconds: float = _STOP_SECONDS) -> None:
        """Send it a signal, and return when it has ended; it is killed if it takes too long."""
        process = self._running()
        process.send_signal(number)
        if number is not signal.SIGKILL:
            # One that is paused hears nothing else.
            process.send_signal(signal.SIGCONT)
        try:
            process.wait(within_seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self._forget()

    def pause(self) -> None:
        """Let it run no further, with its connections open, as on a machine that swaps."""
        self._running().send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._running().send_signal(signal.SIGCONT)

    def end_for_good(self) -> None:
        """End it if it runs, and remove its folder."""
        if self.is_running:
            self.end(self._last_signal)
        self._forget()
        shutil.rmtree(self.folder.parent, ignore_errors=True)

    def log(self) -> str:
        """Return what it has written, over all its starts."""
        try:
            return self.log_file.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return ""

    @property
    def log_file(self) -> Path:
        return self.folder.parent / "log"

    @property
    def _pid_file(self) -> Path:
        return self.folder.parent / "pid"

    def _running(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, f"{self.name} is not running"
        return self._process

    def _forget(self) -> None:
        self._pid_file.unlink(missing_ok=True)
        self._process = None

    def _start_on(self, port: int) -> None:
        deadline = RealClock().now() + int(_START_SECONDS * MICROSECONDS)
        self._launch(port)
        while RealClock().now() < deadline:
            if self.is_running:
                if self._is_ready(port) and self.is_running:
                    return
            elif "shared memory block" in self.log()[-1000:]:
                # The last children of a PostgreSQL that was killed hold its memory for a moment longer.
                self._launch(port)
            else:
                break
            sleep(_POLL_SECONDS)
        if self.is_running:
            self.end(signal.SIGKILL)
        self._forget()
        raise NoServerError(f"{self.name} did not start:\n{self.log()[-2000:].strip()}")

    def _launch(self, port: int) -> None:
        account = self._account
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                [str(part) for part in self._command(port, self.folder)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                # Ctrl-C is for the tests; they end their servers.
                start_new_session=True,
                **(account.as_user() if account else {}),
            )
        self._pid_file.write_text(f"{self._last_signal.name.removeprefix('SIG')} {self._process.pid}\n")


class PrivateServer:
    """What the private servers have in common: they start with their context, and end with it."""

    process: ServerProcess | None

    def __enter__(self) -> Self:
        if self.process is not None and not self.process.is_running:
            self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self.process is None:
            return
        self.process.end_for_good()

    @property
    def controlled(self) -> ServerProcess:
        """Its process; a server that was given by its URL has none that a test may touch."""
        assert self.process is not None, "a server that was given by its URL is not ours to start and stop"
        return self.process

    @property
    def port(self) -> int:
        return self.controlled.port

    @property
    def is_running(self) -> bool:
        return self.controlled.is_running

    def start(self) -> None:
        """Start it, again on the same port and folder, and return when it answers."""
        self.controlled.start()

    def kill(self) -> None:
        """End it with ``kill -9``."""
        self.controlled.end(signal.SIGKILL)


def make_folder(name: str, account: Account | None = None) -> Path:
    """Make a folder that is removed when this process ends, and that ``account`` may write to."""
    parent = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=_root()))
    parent.chmod(0o711)
    folder = parent / "data"
    folder.mkdir(mode=0o700)
    if account is not None:
        os.chown(folder, account.uid, account.gid)
    return folder


def free_port() -> int:
    """Find a port on which a server can be started, and started again later."""
    for _ in range(1000):
        port = secrets.choice(_PORTS)
        if _is_free(port):
            return port
    raise NoServerError(f"no port from {_PORTS.start} to {_PORTS.stop} is free")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


_root_lock = threading.Lock()


def _root() -> Path:
    with _root_lock:
        return _make_root()


@cache
def _make_root() -> Path:
    """Make this process's folder of servers, and the watch over it."""
    root = Path(tempfile.mkdtemp(prefix="weft-servers-", dir=_searchable_temporary()))
    root.chmod(0o711)
    watch = subprocess.Popen(
        ["/bin/sh", "-c", _WATCH, str(root)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        start_new_session=True,
    )
    atexit.register(watch.communicate)
    return root


def _searchable_temporary() -> Path:
    """Return the folder for temporary files, or another where another user may enter it too."""
    given = Path(tempfile.gettempdir()).resolve()
    return given if os.geteuid() != 0 or is_searchable(given) else Path("/tmp")


def is_searchable(folder: Path) -> bool:
    """True if every user may reach what lies in a folder."""
    return all(part.stat().st_mode & 0o001 for part in (folder, *folder.parents))
