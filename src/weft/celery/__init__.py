"""Celery's workers as the workers of a fleet, with ``WEFT_TRANSPORT=celery``.

``celery -A weft.celery worker`` serves the queues of all handlers it has. An app of your own does the same
when it has ``include=["weft.celery"]`` and, among its ``task_queues``, those of ``queues()``. ``batch()``
starts a workflow for many inputs as a group of Celery tasks, and aggregates how they end.
"""

from __future__ import annotations

from typing import Any

from celery import Celery

from weft.celery.attempt import run_attempt
from weft.celery.batch import BATCHES, aggregate, batch, execute
from weft.celery.process import read_fleet_settings
from weft.cli.local import load_registry
from weft.definition.model import MAX_TIMEOUT_SECONDS
from weft.errors import SettingsError
from weft.settings import read_settings
from weft.transport.celery import celery_queue

__all__ = ["aggregate", "app", "batch", "execute", "queues", "run_attempt"]

# Celery's monitors find the state of an attempt in Redis for so long.
_RESULT_SECONDS = 3600
# Of a batch, what it waits for: longer than one of its nodes may take. Celery forgets a group otherwise.
_GROUP_SECONDS = MAX_TIMEOUT_SECONDS + 24 * 3600


def queues(*names: str) -> list[Any]:
    """Return the Celery queues of the named node queues (default: of all handlers) and the queue of batches.

    To be used in ``task_queues``. The queue of a node is the name of its handler unless the node names one.
    All handlers are those of weft, of installed packages and of the modules in ``WEFT_IMPORTS``.
    """
    if not names:
        settings, _ = read_settings()
        names = tuple(load_registry(settings).names())
    return [*map(celery_queue, names), BATCHES]


def _configuration() -> dict[str, Any]:
    """Configure the app when it is first used, not when another app imports this module."""
    settings = read_fleet_settings()
    if settings.celery_broker_url is None:
        raise SettingsError("WEFT_CELERY_BROKER_URL is not set: `celery -A weft.celery` needs a broker")
    assert settings.redis_url is not None
    return {
        "broker_url": settings.celery_broker_url,
        "broker_connection_retry_on_startup": True,
        "result_backend": _backend(settings.redis_url),
        "result_expires": _RESULT_SECONDS,
        "result_chord_expires": _GROUP_SECONDS,
        "accept_content": ["json"],
        "task_serializer": "json",
        "result_serializer": "json",
        "task_acks_late": True,
        "task_reject_on_worker_lost": True,
        "task_track_started": True,
        # As many in hand as run: behind a long attempt nothing waits that another worker could begin.
        "worker_prefetch_multiplier": 1,
        "task_queues": queues(),
        "task_default_queue": BATCHES.name,
        # For a queue that is named by -Q alone.
        "task_queue_max_priority": BATCHES.max_priority,
    }


def _backend(redis_url: str) -> str:
    if redis_url.startswith("rediss://") and "ssl_cert_reqs" not in redis_url:
        # Celery insists on being told.
        return f"{redis_url}{'&' if '?' in redis_url else '?'}ssl_cert_reqs=required"
    return redis_url


# Not the current app: that is for who imports this to say.
app = Celery("weft", set_as_current=False)
app.add_defaults(_configuration)
