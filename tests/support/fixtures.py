"""The fixtures of the project's own tests: real servers, private to a run.

The servers are started when the first test asks for one, once in each process of pytest-xdist, and end with
that process. Where no server is found a test fails, and says what to do; it is not skipped. What pip cannot
bring (RabbitMQ) a contributor need not have: there such a test is reported as not run, with the remedy. Under
``CI`` it fails.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING

import pytest
from tests.support.servers.postgres import PostgresServer
from tests.support.servers.process import NoServerError
from tests.support.servers.rabbitmq import RabbitServer
from tests.support.servers.redis import RedisServer

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

_NUMBERS = count(1)

_NOT_RUN = "not run: "


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what was not run, and the remedy: a quiet run shows no reasons."""
    skipped = [report.longrepr for report in terminalreporter.stats.get("skipped", ())]
    reasons = [str(about[2]).removeprefix("Skipped: ") for about in skipped if isinstance(about, tuple)]
    for reason in sorted({reason for reason in reasons if reason.startswith(_NOT_RUN)}):
        terminalreporter.write_line(f"tests {reason} ({reasons.count(reason)} of them)", yellow=True)


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    """A Redis that all tests of this process share; ``redis_url`` is an empty database of it."""
    with _or_fail():
        given = os.environ.get("WEFT_TEST_REDIS_URL")
        server = (RedisServer.at(given) if given else RedisServer()).__enter__()
    with server:
        yield server


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A PostgreSQL that all tests of this process share; ``postgres_url`` is an empty database of it."""
    with _or_fail():
        given = os.environ.get("WEFT_TEST_POSTGRES_URL")
        server = (PostgresServer.at(given) if given else PostgresServer()).__enter__()
    with server:
        yield server


@pytest.fixture(scope="session")
def rabbitmq_server() -> Iterator[RabbitServer]:
    """A RabbitMQ that all tests of this process share."""
    with or_not_run():
        given = os.environ.get("WEFT_TEST_RABBITMQ_URL")
        server = (RabbitServer.at(given) if given else RabbitServer()).__enter__()
    with server:
        yield server


@pytest.fixture
def redis_url(redis_server: RedisServer, worker_id_or_main: str) -> str:
    """Return the URL of an empty Redis database, for this test alone."""
    # A server that was given is shared with the other processes of this run.
    url = redis_server.url_of(int(worker_id_or_main.removeprefix("gw") or 0))
    redis_server.execute("FLUSHDB", url=url)
    return url


@pytest.fixture
def postgres_url(postgres_server: PostgresServer, worker_id_or_main: str) -> Iterator[str]:
    """The URL of an empty PostgreSQL database, for this test alone."""
    name = f"weft_test_{os.getpid()}_{worker_id_or_main}_{next(_NUMBERS)}"
    yield postgres_server.create_database(name)
    postgres_server.drop_database(name)


@pytest.fixture
def private_redis() -> Iterator[RedisServer]:
    """A Redis for this test alone, that it may kill, pause and start again; its data survive that."""
    with _or_fail():
        server = RedisServer(appendonly=True).__enter__()
    with server:
        yield server


@pytest.fixture
def private_postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL for this test alone, that it may kill and start again; its data survive that."""
    with _or_fail():
        server = PostgresServer().__enter__()
    with server:
        yield server


@pytest.fixture(scope="session")
def worker_id_or_main() -> str:
    """Return the name of this process of the run: ``gw0``, ``gw1``, … of pytest-xdist, or nothing."""
    return os.environ.get("PYTEST_XDIST_WORKER", "")


@contextmanager
def _or_fail() -> Iterator[None]:
    """Fail with the remedy where there is no server."""
    problem = yield from _absent()
    if problem is not None:
        pytest.fail(problem, pytrace=False)


@contextmanager
def or_not_run() -> Iterator[None]:
    """Report as not run, with the remedy, where there is none of what pip cannot bring; under CI, fail."""
    problem = yield from _absent()
    if problem is not None and os.environ.get("CI"):
        pytest.fail(problem, pytrace=False)
    if problem is not None:
        pytest.skip(f"{_NOT_RUN}{problem}")


def _absent() -> Generator[None, None, str | None]:
    try:
        yield
    except NoServerError as error:
        # Nothing is raised where it was caught: pytest would print both.
        return str(error)
    return None
