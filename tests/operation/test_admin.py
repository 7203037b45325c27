"""``weft doctor``, ``migrate`` and ``bench``: what they find, and what they leave alone."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import socket
import sqlite3
import subprocess
from contextlib import closing
from typing import TYPE_CHECKING, Any

import asyncpg
from tests.history.record import FOLDER, restore
from tests.operation.serving import PATIENCE_SECONDS, WEFT, serving

from weft.journal.sqlite.journal import FILE_NAME

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.servers.postgres import PostgresServer

HISTORY = FOLDER / "0.1"


def weft(folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("WEFT_")}
    return subprocess.run(
        [*WEFT, *arguments],
        cwd=folder,
        env={**environment, **variables},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )


def examined(folder: Path, **variables: str) -> tuple[int, list[dict[str, Any]]]:
    """Return the exit code of ``weft doctor`` and what it found."""
    ended = weft(folder, "doctor", "--json", **variables)
    report = json.loads(ended.stdout)
    assert report["ok"] is (ended.returncode == 0)
    return ended.returncode, report["checks"]


def of(checks: list[dict[str, Any]], name: str) -> dict[str, Any]:
    """Return the worst of what a check found."""
    found = [one for one in checks if one["check"] == name]
    return max(found, key=lambda one: ["ok", "warn", "fail"].index(one["state"]))


# -- doctor ----------------------------------------------------------------------------------------------


def test_a_sound_set_up_is_all_ok_and_nothing_is_made_by_looking(tmp_path: Path) -> None:
    ended = weft(tmp_path, "doctor", WEFT_DATA="not-yet")
    assert ended.returncode == 0
    assert {line.split()[0] for line in ended.stdout.splitlines() if line.strip()} <= {"ok", "warn", "→"}
    assert "not-yet is not there yet and can be made" in ended.stdout
    assert "call_external_service" in ended.stdout
    assert list(tmp_path.iterdir()) == []


def test_everything_that_is_wrong_is_found_at_once_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file, no folder")
    code, checks = examined(
        tmp_path,
        WEFT_DATA="data",
        WEFT_WORKER_CONCURENCY="4",
        WEFT_IMPORTS="no_such_module",
        WEFT_PYTHON_ALLOW="json:no_such_function",
        WEFT_SECRET_TOKEN_FILE="/nowhere",
        WEFT_LLM_BASE_URL="http://llm.example",
        WEFT_LLM_API_KEY="hunter2hunter2",
        WEFT_API_KEYS="short",
        WEFT_REDIS_URL="redis://:hunter2@127.0.0.1:1",
        WEFT_URL="http://127.0.0.1:1",
    )
    assert code == 1
    bad = {one["check"]: one for one in checks if one["state"] != "ok"}
    assert set(bad) == {"settings", "data", "redis", "imports", "secrets", "llm", "server"}
    assert all(one["advice"] for one in bad.values())
    messages = " ".join(one["message"] for one in checks)
    for part in (
        "did you mean WEFT_WORKER_CONCURRENCY",
        "no_such_module",
        "json:no_such_function",
        "WEFT_SECRET_TOKEN_FILE",
        "without encryption",
        "fewer than 16 characters",
        "WEFT_URL",
    ):
        assert part in messages
    assert "hunter2" not in messages


def test_a_secret_that_is_too_short_to_be_masked_is_named(tmp_path: Path) -> None:
    code, checks = examined(tmp_path, WEFT_SECRET_PIN="123", WEFT_SECRET_TOKEN="long enough")
    assert code == 0
    (found,) = [one for one in checks if one["check"] == "secrets"]
    assert found["state"] == "warn"
    assert found["message"].startswith("the secret PIN has under 4 characters")
    assert "123" not in json.dumps(found)


def test_a_bad_value_is_exit_2_as_everywhere(tmp_path: Path) -> None:
    ended = weft(tmp_path, "doctor", WEFT_WORKER_GRACE="soon")
    assert ended.returncode == 2
    assert "WEFT_WORKER_GRACE" in ended.stderr


async def test_a_running_server_is_asked_for_its_health(tmp_path: Path) -> None:
    async with serving(tmp_path / "data") as (server, _):
        code, checks = await asyncio.to_thread(
            lambda: examined(tmp_path, WEFT_URL=server.url, WEFT_DATA="data")
        )
        assert code == 0
        assert of(checks, "server")["message"] == f"{server.url} is ready"
        assert of(checks, "data")["message"] == f"data is in use by process {server.process.pid}"


def test_a_stranger_on_the_port_is_not_taken_for_a_server(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        stranger.settimeout(PATIENCE_SECONDS)
        port = stranger.getsockname()[1]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("WEFT_")}
        with subprocess.Popen(
            [*WEFT, "doctor", "--json"],
            cwd=tmp_path,
            env={**environment, "WEFT_URL": f"http://127.0.0.1:{port}"},
            stdout=subprocess.PIPE,
        ) as asking:
            stranger.accept()[0].close()  # is somebody there?
            caller, _ = stranger.accept()
            with caller:
                caller.recv(65536)
                caller.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")
            output, _ = asking.communicate(timeout=PATIENCE_SECONDS)
    assert of(json.loads(output)["checks"], "server")["state"] == "warn"


def test_a_folder_of_something_else_or_of_the_future_is_found(tmp_path: Path) -> None:
    for folder, statement in (("future", "PRAGMA user_version = 999"), ("foreign", "CREATE TABLE t (x)")):
        (tmp_path / folder).mkdir()
        if folder == "future":
            assert weft(tmp_path, "migrate", "--data", folder).returncode == 0
        with closing(sqlite3.connect(tmp_path / folder / "weft.db")) as journal:
            journal.execute(statement)
        code, checks = examined(tmp_path, WEFT_DATA=folder)
        assert code == 1
        assert of(checks, "data")["state"] == "fail"


# -- migrate ---------------------------------------------------------------------------------------------


def test_a_check_changes_nothing_and_says_by_its_code_what_is_to_be_done(tmp_path: Path) -> None:
    checked = weft(tmp_path, "migrate", "--check", "--data", "data")
    assert checked.returncode == 1
    assert "run `weft migrate`" in checked.stdout
    assert list(tmp_path.iterdir()) == []
    assert weft(tmp_path, "migrate", "--data", "data").returncode == 0
    again = weft(tmp_path, "migrate", "--check", "--data", "data")
    assert (again.returncode, again.stdout) == (0, "data: up to date\n")


async def run_script(sql: bytes, url: str) -> None:
    connection = await asyncpg.connect(url)
    await connection.execute(sql.decode())
    await connection.close()


def test_a_check_names_the_executions_that_are_not_terminal(tmp_path: Path, postgres_url: str) -> None:
    asyncio.run(run_script(gzip.decompress((HISTORY / "postgres.sql.gz").read_bytes()), postgres_url))
    checked = weft(tmp_path, "migrate", "--check", WEFT_DATABASE_URL=postgres_url)
    assert checked.returncode == 1
    first, *lines = checked.stdout.splitlines()
    assert first.startswith("the database: still to be made; run `weft migrate`: 0003_")
    assert lines == [
        "stop every process of the fleet before you migrate: the older release cannot go on",
        "not terminal: 5 executions; they go on after the migration",
        "  running  RUNNING  report",
        "  again  RUNNING  -",
        "  wide  RUNNING  -",
        "  new  PENDING  -",
        "  paused  PAUSED   -",
    ]
    assert weft(tmp_path, "migrate", WEFT_DATABASE_URL=postgres_url).returncode == 0
    again = weft(tmp_path, "migrate", "--check", WEFT_DATABASE_URL=postgres_url)
    assert (again.returncode, again.stdout.splitlines()) == (
        0,
        ["the database: up to date", "not terminal: 5 executions", *lines[2:]],
    )
    as_json = weft(tmp_path, "migrate", "--check", "--json", WEFT_DATABASE_URL=postgres_url)
    shown = json.loads(as_json.stdout)
    assert (as_json.returncode, shown["migrations"], shown["made"]) == (0, [], False)
    assert shown["unfinished"][0] == {"execution": "running", "workflow": "report", "state": "RUNNING"}
    assert len(shown["unfinished"]) == 5


def test_a_check_names_some_executions_and_counts_the_others(tmp_path: Path) -> None:
    restore(gzip.decompress((HISTORY / "journal.sql.gz").read_bytes()), tmp_path / "data")
    with closing(sqlite3.connect(tmp_path / "data" / FILE_NAME)) as connection, connection:
        total = connection.execute("UPDATE progress SET state = 'RUNNING'").rowcount
    checked = weft(tmp_path, "migrate", "--check", "--data", "data")
    assert checked.returncode == 1
    _, counted, *named, last = checked.stdout.splitlines()
    assert counted == f"not terminal: {total} executions; they go on after the migration"
    assert (len(named), last) == (20, f"  and {total - 20} more")
    as_json = weft(tmp_path, "migrate", "--check", "--json", "--data", "data")
    shown = json.loads(as_json.stdout)
    assert (as_json.returncode, shown["made"], len(shown["unfinished"])) == (1, False, total)
    assert f"still to be made; run `weft migrate`: {', '.join(shown['migrations'])}" in checked.stdout


def test_a_schema_that_is_too_new_is_refused(
    tmp_path: Path, journal_url: str, postgres_server: PostgresServer
) -> None:
    postgres_server.execute(
        "INSERT INTO weft.migrations (name, incompatible) VALUES ('9999_later', true)", url=journal_url
    )
    for flags in ((), ("--check",)):
        ended = weft(tmp_path, "migrate", *flags, WEFT_DATABASE_URL=journal_url)
        assert ended.returncode == 1
        assert "migrated by a newer release of weft (9999_later)" in ended.stderr


# -- bench -----------------------------------------------------------------------------------------------


def test_a_benchmark_gives_figures_that_fit_together(tmp_path: Path) -> None:
    ended = weft(tmp_path, "bench", "--json")
    assert ended.returncode == 0
    figures = json.loads(ended.stdout)
    assert figures["executions"] == 500
    assert figures["nodes_per_second"] >= 4 * figures["executions_per_second"] > 0
    assert list(tmp_path.iterdir()) == []
