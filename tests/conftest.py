"""Puts temporary files into memory; prints which servers a run is on, as a failure may be of one version."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support.servers.binaries import find_postgres, find_redis
from tests.support.servers.process import NoServerError
from tests.support.servers.redis_cluster import RedisCluster

from weft.journal.postgres.schema import migrate
from weft.journal.sqlite import schema as sqlite_schema

pytest_plugins = ["tests.support.fixtures"]

# A check that fails there says what it saw.
pytest.register_assert_rewrite("tests.fleet.harness", "tests.operation.calling")

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.servers.postgres import PostgresServer

_NUMBERS = count(1)
# A file system in memory, and what has to be free there: the folders of a run take a gigabyte or two.
_MEMORY, _ENOUGH_BYTES = Path("/dev/shm"), 6 * 2**30


def pytest_configure(config: pytest.Config) -> None:
    """Let temporary files be in memory where there is room, unless ``TMPDIR`` says where they are.

    Files in memory outlive the processes that wrote them, and no test ends the machine. On a disk a run waits
    for some ten thousand commits, and copies a database for every other test.
    """
    if "TMPDIR" in os.environ or not _MEMORY.is_dir():
        return
    if shutil.disk_usage(_MEMORY).free < _ENOUGH_BYTES:
        return
    for left in _MEMORY.glob("weft-[0-9]*"):
        if not Path("/proc", left.name.removeprefix("weft-")).exists():
            shutil.rmtree(left, ignore_errors=True)
    # A short name: the path of a socket has at most 107 characters.
    folder = _MEMORY / f"weft-{os.getpid()}"
    # The account of PostgreSQL has to get to its folder.
    folder.mkdir(mode=0o711)
    os.environ["TMPDIR"] = tempfile.tempdir = str(folder)
    config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))


@pytest.fixture(scope="session", autouse=True)
def _logs_that_grow_as_they_are_written() -> Iterator[None]:
    """Let no SQLite journal of this process write 16 MiB of zeros when it is opened.

    The zeros save a server time later. The contract of the journal opens a journal for every call.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sqlite_schema, "_GROWN_LOG_BYTES", 0)
        yield


@pytest.fixture(scope="session")
def migrated_database(postgres_server: PostgresServer, worker_id_or_main: str) -> Iterator[str]:
    """Return the name of a database with an empty journal: copies of it are made in no time."""
    name = f"weft_journal_{os.getpid()}_{worker_id_or_main}"
    asyncio.run(migrate(postgres_server.create_database(name)))
    yield name
    postgres_server.drop_database(name)


@pytest.fixture
def journal_url(postgres_server: PostgresServer, migrated_database: str) -> Iterator[str]:
    """Return the URL of a database with an empty journal, for this test alone."""
    name = f"{migrated_database}_{next(_NUMBERS)}"
    yield postgres_server.create_database(name, template=migrated_database)
    postgres_server.drop_database(name)


@pytest.fixture(scope="session")
def redis_cluster() -> Iterator[RedisCluster]:
    """Return a cluster of three servers, shared by the tests of this process that leave it whole."""
    with RedisCluster() as cluster:
        yield cluster


@pytest.fixture
def cluster_url(redis_cluster: RedisCluster) -> str:
    """Return the URL of an empty cluster, for this test alone."""
    redis_cluster.flush()
    return redis_cluster.url


def pytest_report_header() -> str:
    return f"servers: {_described('Redis')}, {_described('PostgreSQL')}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    # A quiet run, which ours are, has no header.
    if not terminalreporter.showheader:
        terminalreporter.write_line(pytest_report_header())


def _described(name: str) -> str:
    variable, find = {
        "Redis": ("WEFT_TEST_REDIS_URL", find_redis),
        "PostgreSQL": ("WEFT_TEST_POSTGRES_URL", find_postgres),
    }[name]
    if os.environ.get(variable):
        return f"{name} of {variable}"
    try:
        found = find()
    except NoServerError:
        return f"no {name}"
    return f"{name} {found.version} ({found.source})"
