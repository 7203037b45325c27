"""Starts triggers at inbound events and webhooks: one commit for all that an event does."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec.structs import replace

from weft.core.ledger.changes import Verdict
from weft.core.ledger.waits import wait_output
from weft.core.payload import encode
from weft.errors import JournalError, Problem, RequestError, StoreError, TriggerChangedError
from weft.orchestrator.triggers.fire import fire, make_firing
from weft.orchestrator.waits.answers import tell
from weft.triggers.filling import Occasion

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractAsyncContextManager
    from typing import Any, TypeAlias

    from weft.core.ledger.changes import RecordedEvent
    from weft.journal.contract import FireAnswer, Firing
    from weft.ports import Ports
    from weft.triggers.cloudevent import InboundEvent
    from weft.triggers.model import TriggerRow

    # Lets so many nodes in, or raises.
    Admit: TypeAlias = Callable[[int], AbstractAsyncContextManager[Any]]

# A trigger that is changed again and again while an event comes is tried so often.
_TRIES = 20
# Triggers in memory at once; each may be 64 KiB of JSON.
_READ_AT_ONCE = 100


async def receive(event: InboundEvent, ports: Ports, *, admit: Admit) -> FireAnswer:
    """Start every trigger that an event fits and answer every wait, or find what it did before."""
    event = await _with_output(event, ports)
    for _ in range(_TRIES):
        firings = await _firings(event, ports)
        try:
            async with admit(_nodes(firings)):
                answer = await fire(firings, ports, event=event)
            await _tell(answer.answered, ports)
            return answer
        except TriggerChangedError:
            continue
    raise JournalError("the triggers of the event are changed again and again; nothing was written")


async def _firings(event: InboundEvent, ports: Ports) -> list[Firing]:
    """Return the starts of all triggers that an event fits; raises RequestError where that is too much."""
    bounds = ports.bounds
    occasion = Occasion(due_at=ports.clock.now(), event=event.body)
    firings: list[Firing] = []
    size, name = 0, ""
    while rows := await ports.journal.event_triggers(
        event.type, namespace=event.namespace, after=name, limit=_READ_AT_ONCE
    ):
        for row in rows:
            name = row.name
            firing = await make_firing(row, occasion, ports)
            if firing is None:
                continue
            firings.append(firing)
            size += 0 if firing.submission is None else len(firing.submission.input)
            if size > bounds.max_body_bytes or len(firings) > bounds.max_batch:
                # One commit has them all, as that of a batch.
                message = (
                    f"the event would start over {bounds.max_batch:,} executions (WEFT_MAX_BATCH), or give "
                    f"them inputs of over {bounds.max_body_bytes:,} bytes together (WEFT_MAX_BODY_BYTES); "
                    "nothing was started"
                )
                raise RequestError([Problem("", message)])
    return firings


async def _with_output(event: InboundEvent, ports: Ports) -> InboundEvent:
    """Return the event with the output of a node that waits for it."""
    value = encode(event.body.get("data"), max_bytes=ports.bounds.max_payload_bytes)
    output = wait_output(value, by=event.source, at=ports.clock.now())
    if len(output) <= ports.inline_bytes:
        return replace(event, output=output, output_bytes=len(output))
    return replace(event, blob=await ports.journal.put_blob(output), output_bytes=len(output))


async def _tell(recorded_events: Sequence[RecordedEvent], ports: Ports) -> None:
    """Tell the store of the waits that an event has ended; the sweep does where the store is away."""
    accepted = [one for one in recorded_events if one.verdict is Verdict.ACCEPTED]
    ports.announce(accepted)
    with suppress(StoreError):
        await tell(accepted, ports)


async def fire_webhook(
    row: TriggerRow, request: dict[str, Any], ports: Ports, *, admit: Admit
) -> FireAnswer | None:
    """Start the trigger of a webhook; None: it was changed meanwhile, and is to be read again."""
    firing = await make_firing(row, Occasion(due_at=ports.clock.now(), request=request), ports)
    assert firing is not None
    try:
        async with admit(_nodes([firing])):
            return await fire([firing], ports)
    except TriggerChangedError:
        return None


def _nodes(firings: Sequence[Firing]) -> int:
    return sum(len(one.submission.plan.nodes) for one in firings if one.submission is not None)
