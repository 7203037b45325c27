"""The fleet: the workers, and the queues they serve."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request, Response

from weft.api import schema
from weft.api.answer import page
from weft.api.service import service_of
from weft.core.time import MICROSECONDS, rfc3339
from weft.views.describe import serves

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.store.contract import WorkerStatus
    from weft.transport.contract import QueueStatus

router = APIRouter(tags=["fleet"])


@router.get("/v1/workers", operation_id="listWorkers", responses=schema.answers(200, schema.Workers))
async def list_workers(request: Request) -> Response:
    """List the workers, with those that were lost lately."""
    ports = service_of(request).ports
    queues = [queue.name for queue in await ports.transport.queues()]
    workers = await ports.store.workers()
    now = ports.clock.now()
    return page([_worker(worker, queues, now) for worker in workers], next_cursor=None)


def _worker(worker: WorkerStatus, queues: Sequence[str], now: int) -> dict[str, Any]:
    # A worker that was not given any queues serves whatever there is, and what its handlers would bring.
    served = {*worker.handlers, *queues} if worker.queues is None else worker.queues
    return {
        "id": worker.id,
        "host": worker.host,
        "pid": worker.pid,
        "version": worker.version,
        "state": worker.state,
        "queues": sorted(served),
        "handlers": sorted(worker.handlers),
        "concurrency": worker.concurrency,
        "running": worker.running,
        "started_at": rfc3339(worker.started_at),
        "heartbeat_age_seconds": _age_seconds(worker.heartbeat_at, now),
    }


@router.get("/v1/queues", operation_id="listQueues", responses=schema.answers(200, schema.Queues))
async def list_queues(request: Request) -> Response:
    """List the queues that tasks have come to, and those that workers wait at."""
    ports = service_of(request).ports
    workers = await ports.store.workers()
    queues = {queue.name: queue for queue in await ports.transport.queues()}
    # A task has done its part when the attempt starts; from then on the store knows of it.
    running = await ports.store.running_by_queue()
    waited_at = {name for worker in workers if worker.queues for name in worker.queues}
    now = ports.clock.now()
    items = [
        _queue(name, queues.get(name), running.get(name, 0), workers, now)
        for name in sorted({*queues, *running, *waited_at})
    ]
    return page(items, next_cursor=None)


def _queue(
    name: str, queue: QueueStatus | None, running: int, workers: Sequence[WorkerStatus], now: int
) -> dict[str, Any]:
    oldest_at = None if queue is None else queue.oldest_at
    return {
        "name": name,
        "depth": 0 if queue is None else queue.depth,
        "oldest_age_seconds": None if oldest_at is None else _age_seconds(oldest_at, now),
        "in_flight": running,
        "workers": sum(serves(worker, name) for worker in workers),
    }


def _age_seconds(since: int, now: int) -> float:
    return max(0, now - since) / MICROSECONDS
