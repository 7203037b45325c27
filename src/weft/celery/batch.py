"""A workflow for many inputs as a group of Celery tasks, whose ends are aggregated.

Each member of the group starts one execution and returns how it ended. A member holds no worker slot while
its execution runs: the member returns to its queue and looks again later. The id of the member is the
idempotency key of its execution, so a member that is delivered twice starts one execution. A member whose
input is refused starts none, and the group still returns how the others ended.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from typing import TYPE_CHECKING, Any

from celery import chord, shared_task

from weft.celery.process import worker_process
from weft.core.payload import canonical
from weft.core.state import ExecutionState
from weft.errors import ClaimedError, InputError, JournalError, NotFoundError, StoreError
from weft.journal.contract import LATEST, Claim
from weft.orchestrator.submit import SubmitOptions, find_source, make_submission, read_input, submit
from weft.transport.celery import broker_queue
from weft.views.summary import result_fields

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from weft.core.payload import Json
    from weft.fleet import Fleet

# The queue that batches travel on. No node can name it.
BATCHES = broker_queue("weft-batches")

# How soon a member looks again, and how much later each time.
# The actor in the history of an execution that a Celery task started.
_ACTOR = "celery"
_LOOK_SECONDS = 0.25
_LOOK_FACTOR = 1.5
_LONGEST_LOOK_SECONDS = 15.0


def batch(
    workflow: str,
    inputs: Iterable[Json],
    *,
    version: int | str = LATEST,
    labels: Mapping[str, str] | None = None,
    priority: str = "normal",
) -> Any:
    """Return the Celery signature that runs a stored workflow once for each input and aggregates the results.

    ``batch("order-report", [{"order": 1}, {"order": 2}]).apply_async().get()`` gives what ``aggregate`` does.
    """
    options = {"version": version, "labels": dict(labels or {}), "priority": priority}
    members = [execute.s(workflow, given, **options).set(queue=BATCHES) for given in inputs]
    if not members:
        raise ValueError("a batch needs at least one input")
    # By its name: messages hold this task, and the member that ends last sends it.
    return chord(members, aggregate.s().set(queue=BATCHES.name))


@shared_task(  # type: ignore[untyped-decorator]
    bind=True,
    name="weft.execute",
    serializer="json",
    acks_late=True,
    reject_on_worker_lost=True,
    ignore_result=False,
    max_retries=None,
)
def execute(
    self: Any, workflow: str, given: Json, *, execution_id: str | None = None, **options: Any
) -> dict[str, Any]:
    """Start an execution and give how it ended: its id, state, output and error.

    One that was refused for its input has no id, and is FAILED.
    """
    task_id = self.request.id

    async def look(fleet: Fleet) -> tuple[str, dict[str, Any] | None]:
        started = execution_id or await _start(fleet, task_id, workflow, given, **options)
        return started, await _ended(fleet, started)

    later = min(_LOOK_SECONDS * _LOOK_FACTOR**self.request.retries, _LONGEST_LOOK_SECONDS)
    try:
        started, ended = worker_process().do(look).result()
    except InputError as error:
        return _refused(error)
    except (JournalError, StoreError) as error:
        raise self.retry(exc=error, countdown=later, queue=BATCHES, throw=False) from error
    if ended is not None:
        return ended
    looked = {**options, "execution_id": started}
    raise self.retry(args=(workflow, given), kwargs=looked, countdown=later, queue=BATCHES, throw=False)


@shared_task(  # type: ignore[untyped-decorator]
    name="weft.aggregate", serializer="json", ignore_result=False
)
def aggregate(ended: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Count how the executions of a batch ended, and list them in the order of the inputs."""
    executions = [{**one, "index": index} for index, one in enumerate(ended)]
    return {
        "total": len(executions),
        "counts": dict(Counter(one["state"] for one in executions)),
        "executions": executions,
    }


async def _start(
    fleet: Fleet,
    task_id: str,
    workflow: str,
    given: Json,
    *,
    version: int | str = LATEST,
    labels: Mapping[str, str] | None = None,
    priority: str = "normal",
) -> str:
    """Start an execution, or find the one that was started by an earlier delivery."""
    ports = fleet.ports
    source = await find_source(workflow, version, ports)
    payload = await read_input({} if given is None else given, source.plan, ports.bounds)
    execution_id = ports.new_id()
    digest = hashlib.sha256(canonical([workflow, given])).hexdigest()
    claim = Claim(key=f"celery:{task_id}", request_digest=digest, resource=f"execution/{execution_id}")
    options = SubmitOptions(labels=dict(labels or {}), priority=priority, actor=_ACTOR)
    try:
        await submit([make_submission(execution_id, source, payload, options)], ports, claim=claim)
    except ClaimedError as claimed:
        return claimed.resource.removeprefix("execution/")
    return execution_id


def _refused(error: InputError) -> dict[str, Any]:
    """Return the result of an execution that was never started because its input was refused."""
    about = {"code": "invalid_input", "message": str(error), "retryable": False, "details": {}}
    return {"index": 0, "execution": None, "state": ExecutionState.FAILED, "output": None, "error": about}


async def _ended(fleet: Fleet, execution_id: str) -> dict[str, Any] | None:
    """Return the result of an execution, or None if the execution is not terminal."""
    row = await fleet.ports.journal.execution(execution_id)
    if row is None:
        raise NotFoundError(f"there is no execution {execution_id}")
    return result_fields(0, row) if row.is_terminal else None
