"""A PostgreSQL of a test's own, or the one that ``WEFT_TEST_POSTGRES_URL`` names."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import threading
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from tests.support.servers.account import unprivileged
from tests.support.servers.binaries import Binary, find_postgres
from tests.support.servers.process import NoServerError, PrivateServer, ServerProcess, make_folder

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# A commit is still handed to the system before it is answered: once answered, it survives any end of the
# server. Only the end of the machine would lose it.
_QUICK = {"fsync": "off", "full_page_writes": "off"}


class PostgresServer(PrivateServer):
    """A PostgreSQL server as a context manager; ``start()`` again after ``stop()`` or ``kill()``.

    ``durable`` makes it wait for the disk at every commit, as a server in production does: for benchmarks.
    ``options`` are settings of its configuration.
    """

    def __init__(self, *, durable: bool = False, options: Mapping[str, str] | None = None) -> None:
        self._binary = find_postgres()
        self._options = {
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "max_connections": "200",
            **({} if durable else _QUICK),
            **(options or {}),
        }
        self._given: str | None = None
        self._made = False
        self.version = self._binary.version
        self.source = self._binary.source
        self.process: ServerProcess | None = ServerProcess(
            "postgres",
            self._command,
            is_ready=self._is_ready,
            last_signal=signal.SIGQUIT,
            account=unprivileged(),
        )

    @classmethod
    def at(cls, url: str) -> PostgresServer:
        """Use a server that runs already. It is not started or stopped; databases are made on it."""
        server = cls.__new__(cls)
        server._given = url
        server.process = None
        server.source = "WEFT_TEST_POSTGRES_URL"
        server.version = str(server.execute("SHOW server_version")).split()[0]
        return server

    @property
    def url(self) -> str:
        """The URL of the database that every server has."""
        return self.url_of("postgres") if self._given is None else self._given

    def url_of(self, database: str) -> str:
        if self._given is None:
            return f"postgresql://weft@127.0.0.1:{self.port}/{database}"
        return urlsplit(self._given)._replace(path=f"/{database}").geturl()

    def create_database(self, name: str, *, template: str = "template0") -> str:
        """Make a database like another one, and give its URL; ``template0`` is an empty one."""
        copied = f'CREATE DATABASE "{name}" TEMPLATE "{template}"'
        # A copy of files is the quicker way where no checkpoint has to reach the disk.
        quick = int(self.version.split(".")[0]) >= 15
        self.execute(copied + (" STRATEGY FILE_COPY" if quick else ""))
        return self.url_of(name)

    def drop_database(self, name: str) -> None:
        """Remove a database, also one that still has connections."""
        self.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')

    def execute(self, statement: str, *, url: str | None = None) -> Any:
        """Run one statement on a connection of its own, and give its first value.

        May be called in a coroutine too: it runs on a loop and thread of its own.
        """
        return _in_a_thread(url or self.url, statement)

    def stop(self, *, immediate: bool = False) -> None:
        """End it, and roll back what runs. ``immediate``: as in a crash, so that its start is a recovery."""
        self.controlled.end(signal.SIGQUIT if immediate else signal.SIGINT)

    def start(self) -> None:
        if not self._made:
            _copy(_pristine(self._binary), self.controlled.folder)
            self._made = True
        super().start()

    def copy(self) -> Path:
        """Copy the data folder of the server, which is stopped."""
        copy = make_folder("postgres-copy", unprivileged())
        _copy(self.controlled.folder, copy)
        return copy

    def snapshot(self) -> Path:
        """Copy the data folder of the running server, as a snapshot of the file system has it."""
        pids = _family(self.controlled.pid)
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            return self.copy()
        finally:
            for pid in reversed(pids):
                os.kill(pid, signal.SIGCONT)

    def restore(self, copy: Path, *, promoted: bool = False) -> None:
        """Put a copy in the place of the data folder of the server, which is stopped.

        ``promoted``: it comes up as a standby does that is made the primary, on a timeline of its own.
        """
        folder = self.controlled.folder
        _run(["find", folder, "-mindepth", "1", "-delete"])
        _copy(copy, folder)
        # The process that it names is another one by now.
        _run(["rm", "-f", folder / "postmaster.pid"])
        if promoted:
            _run(["touch", folder / "recovery.signal"])
            self._options["restore_command"] = "false"

    def _command(self, port: int, folder: Path) -> Sequence[str | Path]:
        options = [part for name, value in self._options.items() for part in ("-c", f"{name}={value}")]
        return [self._binary.path, "-D", folder, "-p", str(port), *options]

    def _is_ready(self, _port: int) -> bool:
        # The eighth line of this file is "ready" once connections are accepted. A server that was killed has
        # left its own file behind.
        with suppress(OSError):
            lines = (self.controlled.folder / "postmaster.pid").read_text().splitlines()
            return len(lines) > 7 and lines[0] == str(self.controlled.pid) and lines[7].strip() == "ready"
        return False


@cache
def _pristine(binary: Binary) -> Path:
    """Make the data folder of a server that nobody has used; each server starts on a copy of it."""
    account = unprivileged()
    folder = make_folder("postgres-pristine", account)
    flags = ["--no-sync", "--no-locale", "--encoding=UTF8", "--auth=trust", "--username=weft"]
    _run([binary.path.with_name("initdb"), *flags, "-D", folder])
    return folder


def _family(pid: int) -> list[int]:
    """List a process and its children."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *map(int, children)]


def _copy(source: Path, target: Path) -> None:
    _run(["cp", "-R", f"{source}/.", target])


def _run(command: Sequence[str | Path]) -> None:
    account = unprivileged()
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
        **(account.as_user() if account else {}),
    )
    if done.returncode != 0:
        raise NoServerError(f"{command[0]} failed:\n{done.stdout}{done.stderr}".strip())


def _in_a_thread(url: str, statement: str) -> Any:
    answers: list[Any] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            answers.append(asyncio.run(_execute(url, statement)))
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, name="weft-postgres-statement")
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return answers[0]


async def _execute(url: str, statement: str) -> Any:
    import asyncpg

    connection = await asyncpg.connect(url, timeout=30)
    try:
        return await connection.fetchval(statement)
    finally:
        await connection.close(timeout=10)
