"""The state of everything at a glance, and the figures of a workflow.

The cost of an overview does not grow with the history. What is under way, and what ended in an hour, is
counted in an index, up to a bound; an hour that is over is counted once; callers within two seconds share an
answer.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from pydantic import Field

from weft.api.answer import answer
from weft.api.auth import caller_of
from weft.api.letter_groups import describe_groups
from weft.api.schema import Request as QueryModel
from weft.api.schema import answers, problems
from weft.api.schema_console import Overview, Statistics
from weft.api.service import service_of
from weft.api.workflows import find_workflow, no_version, read_version
from weft.core.state import TERMINAL, ExecutionState
from weft.core.time import MICROSECONDS, rfc3339
from weft.errors import StoreError
from weft.journal.contract import ExecutionQuery
from weft.store.contract import WorkerState
from weft.views.statistics import totals, workflow_statistics
from weft.views.summary import time_of

if TYPE_CHECKING:
    from weft.api.service import Service
    from weft.ports import ApiPorts


class StatisticsQuery(QueryModel):
    version: Annotated[str | None, Field(description="a number or an alias; missing: all versions")] = None


router = APIRouter()

_HOUR = 3600 * MICROSECONDS
_HOURS = 24
# A commit may be on its way when its hour is over, and the clocks of two machines differ.
_SETTLED = 120 * MICROSECONDS
_SHARED = 2 * MICROSECONDS
_GROUPS = 10
_COMING = 5
_RECENT = 50
_ENDS = [state for state in ExecutionState if state in TERMINAL]


@router.get("/v1/overview", operation_id="getOverview", tags=["fleet"], responses=answers(200, Overview))
async def overview(request: Request) -> Response:
    """Show what runs, how the last 24 hours went, what failed last, and the workers and queues."""
    service, namespace = service_of(request), caller_of(request).namespace
    now = service.ports.clock.now()
    key = f"{namespace}/{now // _SHARED}"
    return answer(await service.overviews.get(key, partial(_overview, service, namespace, now)))


async def _overview(service: Service, namespace: str, now: int) -> dict[str, Any]:
    ports = service.ports
    counts = await ports.catalog.namespace_counts(namespace=namespace)
    first = now // _HOUR - _HOURS + 1
    hours = [await _hour(service, namespace, first + number, now) for number in range(_HOURS)]
    coming = await ports.catalog.coming_triggers(namespace=namespace, limit=_COMING)
    groups = await ports.catalog.newest_letter_groups(namespace=namespace, limit=_GROUPS)
    return {
        "executions": counts.executions | totals(hours, _ENDS),
        "hours": hours,
        "failures": await describe_groups(groups, ports),
        "dead_letters": counts.open_letters,
        "waits": counts.open_waits,
        "due_next": [
            {"trigger": row.name, "workflow": row.trigger.workflow, "at": time_of(row.next_at)}
            for row in coming
        ],
        **await _fleet(ports),
    }


async def _hour(service: Service, namespace: str, hour: int, now: int) -> dict[str, Any]:
    count = partial(_count, service.ports, namespace, hour)
    if (hour + 1) * _HOUR + _SETTLED > now:
        return await count()
    return await service.hours.get(f"{namespace}/{hour}", count)


async def _count(ports: ApiPorts, namespace: str, hour: int) -> dict[str, Any]:
    since = hour * _HOUR
    found = await ports.catalog.period_counts(namespace=namespace, since=since, until=since + _HOUR)
    return {
        "from": rfc3339(since),
        "started": found.created,
        **{state: found.ended[state] for state in _ENDS},
    }


async def _fleet(ports: ApiPorts) -> dict[str, Any]:
    """Return workers and queues; null while the store cannot be asked."""
    try:
        workers = [one for one in await ports.store.workers() if one.state is WorkerState.ALIVE]
        queues = await ports.transport.queues()
    except StoreError:
        return {"workers": None, "queues": None}
    now = ports.clock.now()
    return {
        "workers": {
            "alive": len(workers),
            "slots": sum(worker.concurrency for worker in workers),
            "running": sum(worker.running for worker in workers),
        },
        "queues": [
            {
                "name": queue.name,
                "depth": queue.depth,
                "oldest_age_seconds": None
                if queue.oldest_at is None
                else max(0, now - queue.oldest_at) / MICROSECONDS,
            }
            for queue in sorted(queues, key=lambda queue: queue.name)
        ],
    }


@router.get(
    "/v1/workflows/{name}/statistics",
    operation_id="getWorkflowStatistics",
    tags=["workflows"],
    responses={**answers(200, Statistics), **problems(404, 422)},
)
async def statistics(name: str, request: Request, query: Annotated[StatisticsQuery, Query()]) -> Response:
    """Show the last 50 executions of a workflow, how long they took, and how often nodes of theirs failed."""
    await find_workflow(name, request)
    ports, namespace = service_of(request).ports, caller_of(request).namespace
    number = None
    if query.version is not None:
        wanted = read_version(name, query.version)
        version = await ports.catalog.version(name, wanted, namespace=namespace)
        if version is None:
            raise no_version(name, query.version)
        number = version.version
    found = await ports.catalog.search(
        ExecutionQuery(workflow=name, version=number), namespace=namespace, limit=_RECENT
    )
    return answer(await workflow_statistics(found.rows, ports))
