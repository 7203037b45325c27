"""The sweep of children: tells parents of ends, and reaches children that a crash kept out of reach."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.journal.contract import StrayReason
from weft.orchestrator.advance import advance
from weft.orchestrator.children.follow import cancel_children, end_of, pause_child, resume_child

if TYPE_CHECKING:
    from weft.orchestrator.context import Context

# So many in one go: the next sweep has the others.
_AT_ONCE = 200


async def mend_children(context: Context) -> None:
    """Repair once what a crash has left between parents and children."""
    ports = context.ports
    untold = await ports.journal.untold_children(older_than_seconds=2 * ports.sweep_seconds, limit=_AT_ONCE)
    if untold:
        await advance([await end_of(row, ports) for row in untold], context)
        # Told, or nobody waits for them any more.
        await ports.journal.forget_children(untold)
    stray = await ports.journal.stray_children(limit=_AT_ONCE)
    cancelled = [one.execution for one in stray if one.reason is StrayReason.IDLE]
    if cancelled:
        await cancel_children(cancelled, ports)
    for one in stray:
        if one.reason is StrayReason.PARENT_PAUSED:
            await pause_child(one.execution, ports)
        elif one.reason is StrayReason.PARENT_RESUMED:
            await resume_child(one.execution, ports)
