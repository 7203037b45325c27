"""Starts schedules at their due times.

One loop sleeps until the next due time of all triggers, and is woken when a trigger changes here. Any number
of processes may run it: each decides which due times start, and the commit of a start compares the trigger
with what was decided on, so one of them counts. A process that dies between two commits leaves a trigger that
is due, and any other, or its own restart, goes on from there.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from weft.core.time import MICROSECONDS, micros
from weft.errors import JournalError, StoreError, TriggerChangedError
from weft.journal.contract import Firing
from weft.logs import RateLimitedLog
from weft.orchestrator.triggers.fire import LargeInputError, Progress, fire, make_firing
from weft.triggers.due import due_times, fire_time
from weft.triggers.filling import Occasion
from weft.triggers.overlap import Step

if TYPE_CHECKING:
    from weft.ports import Ports
    from weft.triggers.model import TriggerRow

log = logging.getLogger("weft.orchestrator")

# Triggers that are started beside each other: they share commits.
_AT_ONCE = 100
# A trigger that another process has changed is known here after this time: one read of an index by each.
# Where sweeps are rare, as in virtual time, so are these looks.
_LOOK_SECONDS = 1.0
_LOOKS_PER_SWEEP = 5
_SHORTEST_SECONDS = 0.001
# Inputs that are made beside each other; larger ones come one behind the other.
_SMALL_BYTES = 64 * 1024
_LATE = 10 * MICROSECONDS


class Scheduler:
    """Starts what is due, in a loop of its orchestrator."""

    def __init__(self, ports: Ports, *, grace_seconds: float) -> None:
        """``grace_seconds``: a due time that is late by no more than this always starts."""
        self._ports = ports
        self._grace_seconds = grace_seconds
        self._nudged = asyncio.Event()
        # One large input at a time: a hundred triggers may be due together.
        self._large = asyncio.Lock()
        self._log = RateLimitedLog(log, now=ports.clock.monotonic)

    def nudge(self) -> None:
        """Wake up: a trigger may be due earlier than was known."""
        self._nudged.set()

    async def wait(self, next_at: int | None) -> None:
        """Return when something is due, or may be."""
        seconds = max(_LOOK_SECONDS, self._ports.sweep_seconds / _LOOKS_PER_SWEEP)
        if next_at is not None:
            until = (next_at - self._ports.clock.now()) / MICROSECONDS
            seconds = min(seconds, max(until, _SHORTEST_SECONDS))
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._nudged.wait()

    async def fire_due(self) -> int | None:
        """Start everything that is due; return when to look again at the latest. Raises JournalError."""
        self._nudged.clear()
        journal = self._ports.journal
        while True:
            now = self._ports.clock.now()
            due = await journal.due_triggers(now=now, limit=_AT_ONCE)
            if not due:
                return await journal.next_fire_at()
            if await self._is_full():
                # They stay due. What is late beyond the grace when there is room was missed.
                self._log.warning("trigger.delayed", trigger=due[0].name, backlog=self._ports.max_backlog)
                return now + micros(_LOOK_SECONDS)
            done = await asyncio.gather(*(self.fire_one(row, now) for row in due), return_exceptions=True)
            # All have ended: none of them is left behind without anybody to await it.
            for error in done:
                if isinstance(error, BaseException):
                    raise error
            if not any(done):
                # Broken ones alone: they are looked at again with the next turn of the loop.
                return now + micros(_LOOK_SECONDS)

    async def _is_full(self) -> bool:
        """True if nothing more is let in: what comes by a schedule is refused as a submit is."""
        try:
            return await self._ports.store.backlog() >= self._ports.max_backlog
        except StoreError:
            # Executions are accepted without it, too.
            return False

    async def fire_one(self, row: TriggerRow, now: int) -> bool:
        """Start the due times of one trigger; False: something is wrong, and it is due as before."""
        try:
            await self._start(row, now)
        except TriggerChangedError:
            # Another process has started it, or the trigger was changed.
            pass
        except JournalError:
            raise
        except Exception:
            # Our own bug, most likely: it must not keep the others from their due times.
            log.exception("trigger.broken", extra={"trigger": row.name})
            return False
        return True

    async def _start(self, row: TriggerRow, now: int) -> None:
        # Behind an outage, thousands of due times are walked.
        is_late = row.next_at is not None and row.next_at < now - _LATE
        find = partial(due_times, row, now=now, grace_seconds=self._grace_seconds)
        due = await asyncio.to_thread(find) if is_late else find()
        if not due.starts:
            await self._move(row, due.next_at)
        for at, next_at in zip(due.starts, [*due.starts[1:], due.next_at], strict=True):
            make = partial(
                make_firing, row, Occasion(due_at=at), self._ports, progress=self._progress(row, next_at)
            )
            try:
                await self._commit(await make(small_bytes=_SMALL_BYTES))
            except LargeInputError:
                async with self._large:
                    await self._commit(await make())
            row = replace(row, next_at=next_at)

    async def _commit(self, firing: Firing | None) -> None:
        assert firing is not None
        answer = await fire([firing], self._ports)
        (one,) = answer.fired
        if one.step is Step.SKIP:
            log.info("trigger.skipped", extra={"trigger": firing.trigger})

    async def _move(self, row: TriggerRow, next_at: int | None) -> None:
        """Commit that a trigger has come past due times that start nothing."""
        progress = self._progress(row, next_at)
        firing = Firing(
            namespace=row.namespace,
            trigger=row.name,
            revision=row.revision,
            overlap=row.trigger.overlap,
            due_at=progress.due_at,
            next_at=progress.next_at,
            fire_at=progress.fire_at,
        )
        await fire([firing], self._ports)

    @staticmethod
    def _progress(row: TriggerRow, next_at: int | None) -> Progress:
        schedule = row.trigger.schedule
        assert schedule is not None
        assert row.next_at is not None
        fire_at = None if next_at is None else fire_time(row.name, schedule, next_at)
        return Progress(row.next_at, next_at, fire_at)
