"""The loops of an orchestrator, their start and stop."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from weft.core.time import MICROSECONDS
from weft.errors import JournalError, StoreError
from weft.orchestrator.children.mend import mend_children
from weft.orchestrator.collect import drain, finish, next_batch, take_or_keep, take_waiting
from weft.orchestrator.context import Context, begin_step
from weft.orchestrator.notifications.deliver import Notifier
from weft.orchestrator.recover import observe_stop, recover
from weft.orchestrator.retention import BLOB_LOOK_SECONDS, look_seconds, purge, purge_events, sweep_blobs
from weft.orchestrator.sweep import reclaim, sweep
from weft.orchestrator.triggers.lanes import release_stalled
from weft.orchestrator.triggers.schedule import Scheduler
from weft.orchestrator.waits.answers import tell_untold
from weft.orchestrator.waits.evict import evict

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from weft.ports import Ports

log = logging.getLogger("weft.orchestrator")

# So many messages are read at once: enough to share a commit, few enough to keep it short.
BATCH = 256
# While one batch commits, another is decided and dispatched.
COLLECTORS = 2
# A reader that nothing wakes looks again after this time.
_READ_SECONDS = 60.0
_SHORTEST_SWEEP_SECONDS = 0.001
_PAUSE_AFTER_ERROR_SECONDS = 1.0
# A sweep that takes so much longer than its interval does not come back by itself.
_STUCK_SECONDS = 30.0


class Orchestrator:
    """Moves executions forward. Any number of them may share the ports."""

    def __init__(
        self,
        ports: Ports,
        *,
        name: str,
        recovers: bool = True,
        grace_seconds: float = 0.0,
        claim_seconds: float | None = None,
        retention_seconds: float | None = None,
        trigger_grace_seconds: float = 60.0,
        event_retention_seconds: float | None = None,
    ) -> None:
        """``recovers``: whether it takes up executions that others have left, or only what it is given.

        ``grace_seconds``: beside peers, an execution that changed so lately may be on its way into the store
        when this one starts. ``claim_seconds``: how often messages are looked for that a peer took and did
        not finish; None: with every sweep. ``retention_seconds``: how long history is kept; None: for ever.
        ``trigger_grace_seconds``: a due time of a trigger that is late by no more than this always starts.
        ``event_retention_seconds``: how long inbound events are kept; None: for ever.
        """
        self.ports = ports
        notifier = None if ports.send_notification is None else Notifier(ports, ports.send_notification)
        self.context = Context(ports, name, notifier=notifier)
        self._recovers = recovers
        self._grace_seconds = grace_seconds
        self._claim_seconds = claim_seconds or ports.sweep_seconds
        self._retention_seconds = retention_seconds
        self._event_retention_seconds = event_retention_seconds
        self._scheduler = Scheduler(ports, grace_seconds=trigger_grace_seconds)
        self._nudged = asyncio.Event()
        self._loops: list[asyncio.Task[None]] = []
        self._swept_at = 0
        # The collectors that may be stopped: those without a batch in hand.
        self._readings: set[asyncio.Task[Any]] = set()
        self._finishing = False

    def nudge(self) -> None:
        """Start the next sweep of the timers now: a timer may be earlier than was known."""
        self._nudged.set()

    def trigger_changed(self) -> None:
        """Look at the triggers now: one may be due earlier than was known."""
        self._scheduler.nudge()

    def forget(self) -> None:
        """Drop what is remembered of the journal's rows: the database has lost commits."""
        self.context.cascades.forget()
        self.nudge()

    def fault(self) -> str | None:
        """Return what keeps the orchestrator from its work; None: nothing does."""
        if not self._loops:
            return "it is not running"
        if any(loop.done() for loop in self._loops):
            return "one of its loops has ended"
        still_seconds = (self.ports.clock.now() - self._swept_at) / MICROSECONDS
        if still_seconds > self.ports.sweep_seconds + _STUCK_SECONDS:
            return f"it has stood still for {still_seconds:.0f} s"
        return None

    @property
    def is_started(self) -> bool:
        return bool(self._loops)

    async def start(self) -> None:
        """Recover what an earlier process left, then start all loops. Where this raises, none was started."""
        assert not self._loops, "an orchestrator is started once"
        if self._recovers:
            await self.take_over()
        self._swept_at = self.ports.clock.now()
        loops = [self._collecting() for _ in range(COLLECTORS)]
        loops += [self._sweeping(), self._reclaiming(), self._looking_back(), self._sweeping_blobs()]
        if self._retention_seconds is not None:
            loops.append(self._purging(self._retention_seconds))
        if self._event_retention_seconds is not None:
            loops.append(self._purging_events(self._event_retention_seconds))
        if self.context.notifier is not None:
            loops.append(self._notifying(self.context.notifier))
        if self._recovers:
            loops.append(self._scheduling())
        self._loops = [asyncio.create_task(loop) for loop in loops]

    async def take_over(self) -> None:
        """Take up what earlier processes left. Repeating it after an error is harmless.

        The waiting results go first: what has finished is recorded before anything is rebuilt or swept. So no
        lease expires, and no attempt is made again, while its result waits in the stream.
        """
        await take_waiting(self.context, limit=BATCH)
        await recover(self.ports, grace_seconds=self._grace_seconds)

    async def stop(self) -> None:
        """Stop between two batches; what was read and not acknowledged comes again."""
        for loop in self._loops:
            loop.cancel()
        for loop in self._loops:
            with suppress(asyncio.CancelledError):
                await loop
        self._loops = []

    async def finish(self, *, within_seconds: float) -> None:
        """Stop beside peers that go on: what was read is taken all the way, and nothing more is read.

        A port that does not answer within ``within_seconds`` is given up. What was not acknowledged then goes
        to a peer.
        """
        given_up_at = asyncio.get_running_loop().time() + within_seconds
        self._finishing = True
        for reading in self._readings:
            reading.cancel()
        for loop in self._loops[COLLECTORS:]:
            loop.cancel()
        if self._loops:
            await asyncio.wait(self._loops, timeout=within_seconds)
        await self.stop()
        with suppress(JournalError, StoreError, TimeoutError):
            async with asyncio.timeout_at(given_up_at):
                await finish(self.context, limit=BATCH)
                await self.ports.transport.leave(self.context.name)

    async def drain(self) -> None:
        """After stop: record what workers have reported since, so that it is not done again."""
        await self._guarded(lambda: drain(self.context, limit=BATCH))

    async def observe_stop(self) -> None:
        """When no worker is left: record what is in hand, so that a restart takes nothing else for lost."""
        await self._guarded(lambda: observe_stop(self.ports))

    async def _collecting(self) -> None:
        while not self._finishing:
            await self._guarded(self._collect)
            # Ports in memory never make us wait: let the others have a turn.
            await asyncio.sleep(0)

    async def _collect(self) -> None:
        collector = asyncio.current_task()
        assert collector is not None
        self._readings.add(collector)
        try:
            deliveries = await next_batch(self.context, limit=BATCH, wait_seconds=_READ_SECONDS)
        finally:
            self._readings.discard(collector)
        if deliveries:
            await take_or_keep(deliveries, self.context)

    async def _sweeping(self) -> None:
        while True:
            self._nudged.clear()
            self._swept_at = self.ports.clock.now()
            next_at = await self._guarded(lambda: sweep(self.context))
            wait_seconds = self.ports.sweep_seconds
            if next_at is not None:
                until = (next_at - self.ports.clock.now()) / MICROSECONDS
                wait_seconds = min(wait_seconds, max(until, _SHORTEST_SWEEP_SECONDS))
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_seconds):
                    await self._nudged.wait()

    async def _reclaiming(self) -> None:
        """Reclaim, at intervals, messages that a consumer took and did not finish."""
        while True:
            await asyncio.sleep(self._claim_seconds)
            await self._guarded(lambda: reclaim(self.context))

    async def _looking_back(self) -> None:
        """Recover, at intervals, executions that the store does not have."""
        while True:
            await asyncio.sleep(self.ports.sweep_seconds)
            if self._recovers:
                await self._guarded(lambda: recover(self.ports, grace_seconds=2 * self.ports.sweep_seconds))
                await self._guarded(lambda: tell_untold(self.ports))
                await self._guarded(lambda: mend_children(self.context))
                await self._guarded(lambda: evict(self.ports, idle_seconds=2 * self.ports.sweep_seconds))
                await self._guarded(lambda: release_stalled(self.ports))

    async def _purging(self, retention_seconds: float) -> None:
        while True:
            await self._guarded(lambda: purge(self.ports, retention_seconds=retention_seconds))
            await asyncio.sleep(look_seconds(retention_seconds))

    async def _purging_events(self, retention_seconds: float) -> None:
        while True:
            await self._guarded(lambda: purge_events(self.ports, retention_seconds=retention_seconds))
            await asyncio.sleep(look_seconds(retention_seconds))

    async def _sweeping_blobs(self) -> None:
        while True:
            await asyncio.sleep(BLOB_LOOK_SECONDS)
            await self._guarded(lambda: sweep_blobs(self.ports))

    async def _notifying(self, notifier: Notifier) -> None:
        while True:
            await self._guarded(notifier.deliver_due)
            await notifier.wait(self.ports.sweep_seconds)

    async def _scheduling(self) -> None:
        while True:
            next_at = await self._guarded(self._scheduler.fire_due)
            await self._scheduler.wait(next_at)

    async def _guarded(self, step: Callable[[], Awaitable[int | None]]) -> int | None:
        """Outlive a port that is away: nothing was acknowledged, so nothing is lost by waiting."""
        begin_step(self.ports)
        try:
            return await step()
        except JournalError as error:
            log.warning("journal.unavailable", extra={"error": str(error)})
        except StoreError as error:
            log.warning("store.unavailable", extra={"error": str(error)})
        except Exception:
            # Our own bug, or a port's: said loudly, and no reason to let every other execution stand still.
            log.exception("orchestrator.broken")
        await asyncio.sleep(_PAUSE_AFTER_ERROR_SECONDS)
        return None
