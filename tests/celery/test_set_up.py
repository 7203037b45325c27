"""Celery as the settings have it: what is refused, and what its workers are told."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from celery import Celery

from weft.celery import _configuration as configuration
from weft.celery import queues, run_attempt
from weft.celery.process import WorkerProcess
from weft.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Sequence

BIN = Path(sys.executable).parent
CELERY = {"WEFT_TRANSPORT": "celery"}
SERVERS = {
    "WEFT_REDIS_URL": "redis://:hunter2@localhost:1",
    "WEFT_DATABASE_URL": "postgresql://:hunter2@localhost:1",
}


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
        (["celery", "-A", "weft.celery", "worker"], {}, "set WEFT_REDIS_URL and WEFT_DATABASE_URL"),
    ],
)
def test_what_cannot_be_is_refused_with_what_to_set(
    command: list[str], settings: dict[str, str], said: str, tmp_path: Path
) -> None:
    ended = ran(command, tmp_path, {**CELERY, **settings})
    assert ended.returncode != 0
    assert said in ended.stdout + ended.stderr
    assert "hunter2" not in ended.stdout + ended.stderr


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
    assert {queue.name for queue in told["task_queues"]} >= {"weft.echo", "weft.python", "weft-batches"}


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
