"""What the journal must not be told of an execution before the store was asked.

Of an execution that is committed at checkpoints the store has completions that the journal has not, and
attempts may have been started on them. So whatever else is recorded of it goes by the store first: it tells
what it has, which is recorded in front, and holds the nodes concerned, so that it settles none of them
meanwhile. The ledger turns away what comes without that: no process has to know which executions are such.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from weft.core.definition import FailurePolicy
from weft.core.event import CancelRequested, DeadlinePassed, Event, NodeFailed, NodeSkipped
from weft.core.ledger import Standing, Verdict
from weft.core.outcome import completion
from weft.errors import JournalError
from weft.orchestrator.recover import rebuild
from weft.store.contract import Answer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from weft.core.ledger import NodeEvent
    from weft.ports import Ports

# A store that is behind the journal is rebuilt and asked again; not for ever: somebody may be at it just now.
_TRIES = 4
# So many events are committed at once: others wait for the commit. Any beginning of what the store tells has
# no child without its parents, so it may be cut anywhere.
EVENTS_AT_ONCE = 1000


def are_unasked(standings: Sequence[Standing]) -> bool:
    """Say whether any of these was turned away because the store was not asked."""
    return any(standing.verdict is Verdict.UNASKED for standing in standings)


async def ask_first(
    standings: Sequence[Standing],
    ports: Ports,
    commit: Callable[[Sequence[Event]], Awaitable[Sequence[Standing]]],
) -> list[Standing]:
    """Record once more what was turned away, and in front of it what the store has told.

    Gives the standings in their order, and after them those of what was in front.
    """
    answered = list(standings)
    before: list[Standing] = []
    for _ in range(_TRIES):
        turned_away: dict[str, list[int]] = {}
        for index, standing in enumerate(answered):
            if standing.verdict is Verdict.UNASKED:
                turned_away.setdefault(standing.event.execution_id, []).append(index)
        if not turned_away:
            return answered + before
        front: list[Event] = []
        own: list[Event] = []
        for execution_id, indexes in turned_away.items():
            waiting = [answered[index] for index in indexes]
            epoch, told = await _ask(execution_id, waiting, ports)
            front += told
            own += [replace(standing.event, asked=epoch) for standing in waiting]
        recorded: list[Standing] = []
        for start in range(0, len(front) + len(own), EVENTS_AT_ONCE):
            recorded += await commit([*front, *own][start : start + EVENTS_AT_ONCE])
        before += recorded[: len(front)]
        indexes = [index for those in turned_away.values() for index in those]
        for index, standing in zip(indexes, recorded[len(front) :], strict=True):
            answered[index] = standing
    if are_unasked(answered):
        raise JournalError("nothing was written: the hot state of an execution is being rebuilt")
    return answered + before


async def _ask(execution_id: str, waiting: Sequence[Standing], ports: Ports) -> tuple[int, list[Event]]:
    """Ask the store about an execution, holding what these events are about; give its epoch, what it has."""
    found = await ports.store.outcomes(execution_id, hold=_concerned(waiting))
    known = max(standing.execution.epoch for standing in waiting if standing.execution is not None)
    if found.answer is Answer.UNKNOWN or (found.answer is Answer.YES and found.epoch < known):
        # Before anything is recorded: what was started on what is lost with the store must not count.
        await rebuild(execution_id, ports)
        return 0, []
    return found.epoch, [completion(execution_id, row, asked=found.epoch) for row in found.rows]


def _concerned(waiting: Sequence[Standing]) -> set[str] | None:
    """Name the nodes that these events are about; None: any."""
    nodes: set[str] = set()
    for standing in waiting:
        event: Event = standing.event
        if isinstance(event, CancelRequested | DeadlinePassed):
            return None
        assert standing.plan is not None
        is_fail_fast = standing.plan.definition.failure_policy is FailurePolicy.FAIL_FAST
        if is_fail_fast and isinstance(event, NodeFailed | NodeSkipped):
            return None
        of_node: NodeEvent = event  # type: ignore[assignment]  # the ledger turns away no other
        nodes.add(of_node.node_id)
    return nodes


async def outcomes_of(execution_ids: Sequence[str], ports: Ports) -> list[Event]:
    """Give what the store has of these executions and the journal has not, as events to be recorded."""
    told = await ports.together(ports.store.outcomes(execution_id) for execution_id in execution_ids)
    return [
        completion(execution_id, row, asked=found.epoch)
        for execution_id, found in zip(execution_ids, told, strict=True)
        for row in found.rows
    ]
