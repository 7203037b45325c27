"""What an execution has in hand when a failure may stop it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from weft.core.event import Event, NodeFailed, NodeSkipped, Running
from weft.definition.model import FailurePolicy
from weft.errors import StoreError

if TYPE_CHECKING:
    from weft.definition.plan import Plan
    from weft.ports import Ports


async def with_running(event: Event, plan: Plan, ports: Ports) -> Event:
    """Add to a failure that may stop its execution what is in hand now, for the history."""
    if not isinstance(event, NodeFailed | NodeSkipped):
        return event
    if plan.definition.failure_policy is not FailurePolicy.FAIL_FAST:
        return event
    return replace(event, running=await running_now(event.execution_id, ports))


async def running_now(execution_id: str, ports: Ports) -> dict[str, Running]:
    """Return the running attempts of an execution, for the history; empty if the store cannot be asked."""
    try:
        return await ports.store.running(execution_id)
    except StoreError:
        return {}
