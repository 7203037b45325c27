"""Celery as the settings have it: what is refused, and what its workers are told."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from celery import Celery
from celery.concurrency.prefork import TaskPool as Prefork

from weft.celery import _configuration as configuration
from weft.celery import process, queues, run_attempt
from weft.celery.process import WorkerProcess
from weft.definition.model import MAX_TIMEOUT_SECONDS
from weft.errors import SettingsError
from weft.settings import Settings
from weft.transport.celery import limits

if TYPE_CHECKING:
    from collections.abc import Sequence

BIN = Path(sys.executable).parent
CELERY = {"WEFT_TRANSPORT": "celery"}
SERVERS = {
    "WEFT_REDIS_URL": "redis://:hunter2@localhost:1",
    "WEFT_DATABASE_URL": "postgresql://:hunter2@localhost:1",
}
SENTINELS = {**SERVERS, "WEFT_REDIS_URL": "redis+sentinel://:hunter2@localhost:1/mymaster"}


def ran(command: Sequence[str], folder: Path, settings: dict[str, str]) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("WEFT_")}
    return subprocess.run(
        [str(BIN / command[0]), *command[1:]],
        env={**environment, **settings},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    ("command", "settings", "said"),
    [
        (["weft", "up", "--port", "0"], SERVERS, "set WEFT_CELERY_BROKER_URL too"),
        (["weft", "worker"], SERVERS, "celery -A weft.celery worker"),
        (["celery", "-A", "weft.celery", "worker"], SERVERS, "WEFT_CELERY_BROKER_URL is not set"),
        (["weft", "up", "--port", "0"], SENTINELS, "it cannot read a URL of Sentinels"),
        (["celery", "-A", "weft.celery", "worker"], SENTINELS, "it cannot read a URL of Sentinels"),
    ],
)
def test_what_cannot_be_is_refused_with_what_to_set(
    command: list[str], settings: dict[str, str], said: str, tmp_path: Path
) -> None:
    ended = ran(command, tmp_path, {**CELERY, **settings})
    assert ended.returncode != 0
    assert said in ended.stdout + ended.stderr
    assert "hunter2" not in ended.stdout + ended.stderr


def test_celery_needs_the_servers_of_a_fleet(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in SERVERS:
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(SettingsError, match="set WEFT_REDIS_URL and WEFT_DATABASE_URL"):
        configuration()


def test_doctor_says_that_the_broker_cannot_be_reached(tmp_path: Path) -> None:
    settings = {**CELERY, **SERVERS, "WEFT_CELERY_BROKER_URL": "amqp://guest:hunter2@localhost:1//"}
    ended = ran(["weft", "doctor"], tmp_path, settings)
    assert "the broker cannot be reached" in ended.stdout
    assert "hunter2" not in ended.stdout + ended.stderr


def test_workers_acknowledge_late_prefetch_one_and_read_json_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {**SERVERS, "WEFT_CELERY_BROKER_URL": "redis://localhost:1"}.items():
        monkeypatch.setenv(name, value)
    told = configuration()
    assert (told["accept_content"], told["task_serializer"], told["result_serializer"]) == (
        ["json"],
        "json",
        "json",
    )
    assert told["worker_prefetch_multiplier"] == 1
    # A batch is not forgotten while one of its members takes as long as a node may.
    assert told["result_chord_expires"] > MAX_TIMEOUT_SECONDS
    assert (told["task_acks_late"], told["task_reject_on_worker_lost"], told["task_track_started"]) == (
        True,
        True,
        True,
    )
    assert {queue.name for queue in told["task_queues"]} >= {"weft.echo", "weft.python", "weft-batches"}


def test_a_pool_that_asyncio_cannot_run_in_is_refused(tmp_path: Path) -> None:
    """As gevent's and eventlet's are, which Celery knows by name; this one needs neither."""
    settings = {**CELERY, **SERVERS, "WEFT_CELERY_BROKER_URL": "redis://localhost:1"}
    settings |= {"CELERY_CUSTOM_WORKER_POOL": "celery.concurrency.base:BasePool"}
    ended = ran(["celery", "-A", "weft.celery", "worker", "--pool", "custom"], tmp_path, settings)
    assert ended.returncode == 1
    assert "prefork, threads and solo alone: start the worker with --pool=prefork" in ended.stderr


def test_a_worker_that_takes_more_than_it_runs_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """In an app of somebody's own, whose setting it is."""
    monkeypatch.setattr(process, "_served", lambda: {"echo"})
    for multiplier in (1, 4):
        process._begin_here(SimpleNamespace(prefetch_multiplier=multiplier, pool=object.__new__(Prefork)))
    (warned,) = caplog.records
    assert (warned.message, vars(warned)["multiplier"]) == ("prefetch.high", 4)


@pytest.mark.parametrize(
    ("timeout_seconds", "grace_seconds", "soft_and_hard"),
    [(7.0, 10.0, (27.0, 37.0)), (300.0, 10.0, (320.0, 330.0)), (7.0, 0.2, (9.0, 10.0))],
)
def test_celerys_limits_follow_from_the_timeout_and_the_grace_time(
    timeout_seconds: float, grace_seconds: float, soft_and_hard: tuple[float, float]
) -> None:
    assert limits(timeout_seconds, grace_seconds) == soft_and_hard
    # The handler is asked to stop after the timeout, and killed after the grace time: that is over by then.
    assert timeout_seconds + grace_seconds < soft_and_hard[0]


def test_the_task_itself_says_what_it_needs_in_an_app_of_anybody() -> None:
    task = Celery("anybody", set_as_current=False).tasks[run_attempt.name]
    assert (task.acks_late, task.reject_on_worker_lost, task.track_started) == (True, True, True)
    assert (task.serializer, task.max_retries, task.ignore_result) == ("json", 0, False)


def test_a_worker_that_cannot_start_says_so_and_keeps_nobody_waiting() -> None:
    with pytest.raises(RuntimeError, match="could not be started") as raised:
        WorkerProcess(Settings(imports=("no_such_module_of_ours",)), queues=None)
    assert "no_such_module_of_ours" in str(raised.value.__cause__)


def test_the_queue_of_a_node_is_named_with_a_prefix() -> None:
    assert [queue.name for queue in queues("gpu")] == ["weft.gpu", "weft-batches"]
