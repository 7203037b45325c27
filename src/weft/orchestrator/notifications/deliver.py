"""Sends the notifications that commits have left behind, each until it is delivered or given up.

A notification is taken by a lease, so that no two orchestrators send it at once, and sent outside of any
transaction. What a crash leaves:

========================  ===============================  ==========================================
a crash after             leaves                           repaired by
========================  ===============================  ==========================================
the commit of a fact      a notification that is due       any orchestrator, within a sweep interval
claim                     one that is leased               the same, when the lease has ended
send                      one that was delivered, leased   the same: it is sent again, under the same id
record                    nothing
========================  ===============================  ==========================================
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING

from weft.core.event import NodeFailed, NotificationEnded, WaitDue, WaitStarted
from weft.errors import HandlerError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from weft.core.ledger.changes import RecordedEvent
    from weft.core.rows import Notification
    from weft.ports import Ports

log = logging.getLogger("weft.orchestrator")

# So many are sent at once.
AT_ONCE = 32
# A receiver has so long to answer; it can do longer work after the answer.
SEND_SECONDS = 10.0
# Longer than a send and its commit can take.
LEASE_SECONDS = 30.0
# Delays of 1, 2, 4 … seconds, up to four hours: the twentieth attempt is about a day after the first.
MAX_ATTEMPTS = 20
_MAX_DELAY_SECONDS = 4 * 3600.0
# Events that may be told of though their execution goes on.
_TELLING = (NodeFailed, WaitDue, WaitStarted)


class Notifier:
    """Sends the notifications that are due, at once where this process has recorded what they tell of."""

    def __init__(self, ports: Ports, send: Callable[[Notification], Awaitable[None]]) -> None:
        """``send`` raises HandlerError where a notification was not delivered."""
        self._ports = ports
        self._send = send
        self._nudged = asyncio.Event()
        # The shortest delay of those that failed in the last round.
        self._again_seconds = _MAX_DELAY_SECONDS

    def look(self, recorded_events: Sequence[RecordedEvent]) -> None:
        """Wake up if one of these events may have left a notification."""
        for recorded_event in recorded_events:
            plan, execution = recorded_event.plan, recorded_event.execution
            if (
                plan is not None
                and (plan.definition.notify or self._ports.notifies_of_all)
                and execution is not None
                and (execution.unsettled == 0 or isinstance(recorded_event.event, _TELLING))
            ):
                self._nudged.set()
                return

    async def wait(self, seconds: float) -> None:
        """Return when something may be due, at the latest after so long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(min(seconds, self._again_seconds)):
                await self._nudged.wait()

    async def deliver_due(self) -> None:
        """Send everything that is due, some at a time; raises JournalError."""
        self._nudged.clear()
        self._again_seconds = _MAX_DELAY_SECONDS
        journal = self._ports.journal
        while taken := await journal.claim_notifications(limit=AT_ONCE, lease_seconds=LEASE_SECONDS):
            done = await asyncio.gather(*map(self._deliver, taken), return_exceptions=True)
            # All have ended: none of them is left behind without anybody to await it.
            for error in done:
                if error is not None:
                    raise error

    async def _deliver(self, one: Notification) -> None:
        failure = await self._try(one)
        fields = {
            "notification": one.id,
            "execution": one.execution_id,
            "on": one.on,
            "attempts": one.attempts,
        }
        if failure is None:
            await self._end(one, None)
            log.info("notification.delivered", extra=fields)
        elif failure.retryable and one.attempts < MAX_ATTEMPTS:
            seconds = delay_seconds(one.attempts, draw=self._ports.draw(), asked=failure.retry_after_seconds)
            await self._ports.journal.put_off_notification(
                one.id, attempts=one.attempts, seconds=seconds, error=str(failure)
            )
            self._again_seconds = min(self._again_seconds, seconds)
            log.info("notification.retrying", extra={**fields, "error": str(failure), "seconds": seconds})
        else:
            await self._end(one, str(failure))
            log.warning("notification.failed", extra={**fields, "error": str(failure)})

    async def _try(self, one: Notification) -> HandlerError | None:
        """Send a notification, and return why it was not delivered; None: it was."""
        try:
            async with asyncio.timeout(SEND_SECONDS):
                await self._send(one)
        except HandlerError as error:
            return error
        except TimeoutError:
            return HandlerError(f"no answer within {SEND_SECONDS:g} s")
        except Exception as error:
            # Our own bug, most likely: it must not keep the others from being sent.
            log.exception("notification.broken", extra={"notification": one.id})
            return HandlerError(f"it could not be sent: {type(error).__name__}")
        return None

    async def _end(self, one: Notification, error: str | None) -> None:
        recorded_events = await self._ports.journal.record(
            [
                NotificationEnded(
                    execution_id=one.execution_id,
                    generation=one.generation,
                    notification_id=one.id,
                    on=one.on,
                    attempts=one.attempts,
                    error=error,
                )
            ]
        )
        self._ports.announce(recorded_events)


def delay_seconds(attempts: int, *, draw: float, asked: float | None = None) -> float:
    """Return the delay after so many attempts: doubled each time, with jitter, and no less than ``asked``."""
    delay = min(2.0 ** (attempts - 1), _MAX_DELAY_SECONDS) * (0.75 + draw / 2)
    return min(max(delay, asked or 0.0), _MAX_DELAY_SECONDS)
