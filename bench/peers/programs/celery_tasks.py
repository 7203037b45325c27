"""The tasks that Celery's workers run."""

from __future__ import annotations

import os
import time

from celery import Celery

from bench.peers.programs.contract import Stamps, folder

_URL = os.environ["PEER_REDIS_URL"]

app = Celery("peer", broker=f"{_URL}/0", backend=f"{_URL}/1")
app.conf.task_acks_late = True
app.conf.broker_connection_retry_on_startup = True
stamps = Stamps(str(folder() / "stamps"))


@app.task
def link(number: int) -> int:
    start = time.monotonic()
    stamps.add(start, time.monotonic())
    return number


@app.task
def echo(number: int) -> int:
    return number


@app.task
def join(numbers: list[int]) -> int:
    return numbers[0]


@app.task
def sleep(seconds: float) -> None:
    time.sleep(seconds)
