"""The Celery task for one attempt.

Celery is asked to acknowledge late and to redeliver the tasks of a lost process. weft does not rely on
either: the store alone decides which attempt may start, and the lease shows whether its worker is alive.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from celery import shared_task
from celery.exceptions import Reject, SoftTimeLimitExceeded

from weft.celery.process import worker_process
from weft.envelope import unpack_json
from weft.errors import StoreError
from weft.transport.celery import RUN

if TYPE_CHECKING:
    from weft.core.task import Task
    from weft.fleet import Fleet

log = logging.getLogger("weft.celery")

# How long what cannot be run here and now is kept from others, who could not either.
_PAUSE_SECONDS = 1.0

# What Celery keeps as the result of an attempt. How its handler ended is not for Celery to know.
REPORTED, REFUSED, GARBAGE = "reported", "refused", "garbage"


@shared_task(  # type: ignore[untyped-decorator]
    name=RUN,
    serializer="json",
    acks_late=True,
    reject_on_worker_lost=True,
    track_started=True,
    ignore_result=False,
    max_retries=0,
)
def run_attempt(text: str) -> str:
    """Run one attempt to its end, if it is there to be run."""
    try:
        task = unpack_json(text)
    except ValueError as error:
        # Anybody may have written it: put aside, and never raised again.
        log.warning("message.quarantined", extra={"why": str(error)})
        return GARBAGE
    work = worker_process().do(lambda fleet: _carry(task, fleet))
    try:
        return work.result()
    except SoftTimeLimitExceeded:
        log.warning("attempt.overdue", extra={"execution": task.execution_id, "node": task.node_id})
        work.give_up()
        # Where the loop itself is stuck this does not return, and Celery's hard limit ends the process.
        work.exception()
        raise Reject("it was overdue", requeue=True) from None
    except (StoreError, asyncio.CancelledError) as error:
        raise Reject(f"it was not run: {error}", requeue=True) from error


async def _carry(task: Task, fleet: Fleet) -> str:
    assert fleet.worker is not None
    if not fleet.worker.can_run(task):
        log.warning("handler.unknown", extra={"handler": task.handler, "queue": task.queue})
        await asyncio.sleep(_PAUSE_SECONDS)
        raise asyncio.CancelledError
    try:
        return REPORTED if await fleet.worker.carry(task) else REFUSED
    except StoreError:
        await asyncio.sleep(_PAUSE_SECONDS)
        raise
