"""The routes for probes and Prometheus: ``/healthz``, ``/readyz`` and ``/metrics``."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, TypeVar

from fastapi import APIRouter, Request
from starlette.responses import Response

from weft import telemetry
from weft.api.answer import answer
from weft.api.auth import open_to_all
from weft.api.schema import Readiness, answers
from weft.api.service import CheckedParts, service_of
from weft.core.state import TERMINAL, ExecutionState
from weft.core.time import MICROSECONDS
from weft.errors import StoreKeyError, WeftError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping, Sequence

    from weft.api.service import Service
    from weft.ports import Ports
    from weft.store.contract import WorkerStatus
    from weft.telemetry import Metrics
    from weft.transport.contract import QueueStatus

log = logging.getLogger("weft.api")

router = APIRouter(tags=["health"])

# A probe gives up after a few seconds, and would not learn the reason.
LONGEST_SECONDS = 2.0

_T = TypeVar("_T")


@router.get(
    "/healthz",
    operation_id="checkHealth",
    responses={
        200: {
            "description": "the process is alive",
            "content": {"application/json": {"example": {"alive": True}}},
        }
    },
)
@open_to_all
async def check_health() -> Response:
    """Answer that the process is alive. No other service is asked, so none can make this fail."""
    return answer({"alive": True})


@router.get(
    "/readyz",
    operation_id="checkReadiness",
    responses={
        **answers(200, Readiness, "it can do its work"),
        503: {
            "description": "it cannot; the checks say why",
            "content": {
                "application/json": {
                    "schema": {"$ref": "#/components/schemas/Readiness"},
                    "example": {
                        "ready": False,
                        "checks": {"journal": {"ok": False, "message": "it did not answer within 2 s"}},
                    },
                }
            },
        },
    },
)
@open_to_all
async def check_readiness(request: Request) -> Response:
    """Check whether this server can do its work now, and if not, why.

    Anybody may ask, so a message names no path and no address; the log has the details.
    """
    service = service_of(request)
    # Calls at the same time share one check: nobody may keep more than that under way.
    if service.checking is None or service.checking.done():
        service.checking = asyncio.create_task(_check(service))
    checked = await asyncio.shield(service.checking)
    faults = dict(checked.faults)
    if service.deploying:
        faults["workflows"] = "the workflows of its files are not stored yet"
    faults["stopping"] = "it is stopping, and takes no new work" if service.stopping.is_set() else None
    ready = not any(faults.values())
    checks = {
        name: {"ok": fault is None, "message": fault or ("no" if name == "stopping" else "ready")}
        for name, fault in faults.items()
    }
    if checked.workers is not None:
        # Work is accepted without a worker and waits for one, so this is said and makes nothing unready.
        checks["workers"] = {"ok": True, "message": _living(checked.workers)}
    return answer({"ready": ready, "checks": checks}, status=200 if ready else 503)


async def _check(service: Service) -> CheckedParts:
    """Ask the journal and the store whether they can be used now."""
    known = service.faults()
    # What is known to be away is not asked, and what is there is asked now.
    faults = {"journal": known.get("journal") or await _journal_fault(service)}
    if "store" in known:
        faults["store"] = known["store"] or await _store_fault(service)
    faults |= {name: fault for name, fault in known.items() if name not in faults}
    workers = None
    if service.shows_fleet and "worker" not in known and faults.get("store") is None:
        workers = await _in_time(service.ports.store.workers())
    return CheckedParts(faults, workers)


def _living(workers: Sequence[WorkerStatus]) -> str:
    living = sum(worker.state == "alive" for worker in workers)
    return f"{living or 'no'} living worker{'s' if living > 1 else ''}"


async def _journal_fault(service: Service) -> str | None:
    try:
        async with asyncio.timeout(LONGEST_SECONDS):
            await service.ports.catalog.check()
    except TimeoutError:
        return f"it did not answer within {LONGEST_SECONDS:g} s"
    except WeftError as error:
        log.warning("journal.unavailable", extra={"error": str(error)})
        return "it cannot be read or written now; the log says why"
    return None


async def _store_fault(service: Service) -> str | None:
    try:
        async with asyncio.timeout(LONGEST_SECONDS):
            await service.ports.store.check()
    except TimeoutError:
        return f"it did not answer within {LONGEST_SECONDS:g} s"
    except StoreKeyError as error:
        log.warning("store.unavailable", extra={"error": str(error)})
        return str(error)
    except WeftError as error:
        log.warning("store.unavailable", extra={"error": str(error)})
        return "it cannot be read or written now, and work waits for it; the log says why"
    return None


@router.get(
    "/metrics",
    operation_id="readMetrics",
    responses={
        200: {
            "description": "what this process counts, for Prometheus",
            "content": {
                "text/plain": {
                    "schema": {"type": "string"},
                    "example": 'weft_nodes_settled_total{handler="echo",state="COMPLETED"} 7.0\n',
                }
            },
        }
    },
    response_class=Response,
)
async def read_metrics(request: Request) -> Response:
    """Return the metrics of this process, for Prometheus."""
    service = service_of(request)
    _show_connections(service)
    if service.shows_fleet:
        await _look_around(service)
    return Response(service.metrics.render(), media_type=telemetry.CONTENT_TYPE)


def _show_connections(service: Service) -> None:
    table = service.connections
    anonymous = table.anonymous
    service.metrics.show(
        telemetry.CONNECTIONS_OPEN, {("anonymous",): anonymous, ("known",): len(table) - anonymous}
    )


async def _look_around(service: Service) -> None:
    """Set what is not counted but looked up. What cannot be looked up now is missing from the answer."""
    metrics, ports = service.metrics, service.ports
    stats = await _in_time(ports.catalog.stats())
    metrics.show(telemetry.JOURNAL_UP, {(): stats is not None})
    active = {} if stats is None else stats.executions
    metrics.show(
        telemetry.EXECUTIONS_ACTIVE,
        {(state,): active.get(state, 0) for state in ExecutionState if stats and state not in TERMINAL},
    )
    metrics.show(telemetry.DEAD_LETTERS_OPEN, {(): stats.open_letters} if stats else {})
    metrics.show(telemetry.STREAMS_OPEN, {(): service.load.streams.in_use})
    fleet = await _in_time(_look(ports))
    metrics.show(telemetry.STORE_UP, {(): fleet is not None})
    backlog, queues, running, workers = fleet or (None, (), {}, None)
    metrics.show(telemetry.NODES_UNSETTLED, {} if backlog is None else {(): backlog})
    now = ports.clock.now()
    metrics.show(telemetry.QUEUE_DEPTH, {(queue.name,): queue.depth for queue in queues})
    metrics.show(telemetry.QUEUE_IN_FLIGHT, {(name,): count for name, count in running.items()})
    metrics.show(
        telemetry.QUEUE_OLDEST,
        {
            (queue.name,): 0.0 if queue.oldest_at is None else (now - queue.oldest_at) / MICROSECONDS
            for queue in queues
        },
    )
    _show_workers(metrics, workers)


async def _look(
    ports: Ports,
) -> tuple[int, Sequence[QueueStatus], Mapping[str, int], Sequence[WorkerStatus]]:
    return (
        await ports.store.backlog(),
        await ports.transport.queues(),
        await ports.store.running_by_queue(),
        await ports.store.workers(),
    )


def _show_workers(metrics: Metrics, workers: Sequence[WorkerStatus] | None) -> None:
    states = () if workers is None else ("alive", "draining", "lost")
    workers = workers or ()
    metrics.show(
        telemetry.WORKERS, {(state,): sum(worker.state == state for worker in workers) for state in states}
    )
    alive = [worker for worker in workers if worker.state == "alive"]
    busy = sum(worker.running for worker in alive)
    free = sum(worker.concurrency for worker in alive) - busy
    metrics.show(telemetry.WORKER_SLOTS, {("busy",): busy, ("free",): free} if states else {})


async def _in_time(asked: Awaitable[_T]) -> _T | None:
    try:
        async with asyncio.timeout(LONGEST_SECONDS):
            return await asked
    except (TimeoutError, WeftError):
        return None
