"""What an orchestrator does on another incarnation of the database, which has lost commits.

The hot state is dropped and rebuilt (``core.incarnation``). Two things are left that rest on the lost
commits: decisions in hand, and results of attempts that were started before. A step of an orchestrator
therefore writes to the incarnation that it began on, or not at all. And an old result counts only if its
attempt was orphaned and then adopted: then the journal has all that the attempt was started on.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING

from weft.core.task import Result
from weft.errors import JournalError
from weft.orchestrator.recover import rebuild

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.ports import Ports
    from weft.store.contract import NodeStatus
    from weft.transport.contract import MessageDelivery

# The incarnation that the current step of an orchestrator began on; None: it began outside of one.
_step: ContextVar[str | None] = ContextVar("incarnation", default=None)


def begin_step(ports: Ports) -> None:
    """Note that what follows in this task belongs to the incarnation of now."""
    assert ports.incarnation is not None
    _step.set(ports.incarnation())


def check_step(ports: Ports) -> None:
    """Raise JournalError if the database lost commits since the step began."""
    assert ports.incarnation is not None
    begun_on = _step.get()
    if begun_on is not None and begun_on != ports.incarnation():
        raise JournalError("the database has lost commits since this was decided; it is decided anew")


async def without_orphans(deliveries: Sequence[MessageDelivery], ports: Ports) -> Sequence[MessageDelivery]:
    """Leave out the results of attempts that rest on commits which the database has lost."""
    began_at = ports.incarnation_began()
    old: dict[str, list[Result]] = {}
    for delivery in deliveries:
        message = delivery.message
        if isinstance(message, Result) and message.started_at < began_at:
            old.setdefault(message.execution_id, []).append(message)
    if not old:
        return deliveries
    orphans: set[int] = set()
    for execution_id, results in old.items():
        names = [result.node_id for result in results]
        status = await ports.store.inspect(execution_id, names=names)
        if status is None:
            await rebuild(execution_id, ports)
            status = await ports.store.inspect(execution_id, names=names)
        nodes = {} if status is None else status.nodes
        blobs = await ports.journal.blobs([result.blob for result in results if result.blob is not None])
        orphans |= {
            id(result)
            for result in results
            if not _is_adopted(result, nodes.get(result.node_id))
            or (result.blob is not None and result.blob not in blobs)
        }
    return [delivery for delivery in deliveries if id(delivery.message) not in orphans]


def _is_adopted(result: Result, node: NodeStatus | None) -> bool:
    """True if the attempt was orphaned on this incarnation: its parents are settled in the journal."""
    if node is None or node.attempt != result.attempt:
        return False
    if node.phase == "orphaned":
        return True
    start = (node.worker, node.started_at)
    return node.phase == "running" and start == (result.worker, result.started_at)
