"""Somebody's own Celery app, with tasks of its own, whose workers run weft's tasks too.

Its broker gives back what was not acknowledged within a second, and looks for that every second.
"""

from __future__ import annotations

import os

from celery import Celery
from kombu import Queue

from weft.celery import queues

app = Celery(
    "shop",
    broker=os.environ["WEFT_CELERY_BROKER_URL"],
    backend=os.environ["WEFT_REDIS_URL"],
    include=["weft.celery"],
)
app.conf.update(
    task_default_queue="shop",
    task_queues=[Queue("shop"), *queues(), *queues("slow")],
    worker_prefetch_multiplier=1,
    broker_connection_retry_on_startup=True,
    broker_transport_options={
        "visibility_timeout": 1,
        "unacked_restore_interval": 1,
        "unacked_restore_throttle": 1,
    },
)


@app.task(name="shop.add")  # type: ignore[untyped-decorator]
def add(one: int, other: int) -> int:
    return one + other
