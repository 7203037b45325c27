"""Makes the frames of one execution once, for all viewers in this process.

A hub begins with the first viewer and ends with the last. It follows the feed, and makes a frame of what has
changed at most ten times a second: each viewer is sent the same bytes. The feed is a hint, so the hub looks
at the journal and the store every few seconds, and at once where the feed says that events were missed.

A slow viewer delays nobody. The hub keeps the last frames; a viewer that is further behind gets a snapshot
instead, with the number of frames that it has missed.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

import msgspec

from weft.api.stream import LOOK_SECONDS, pace_seconds
from weft.core.time import MICROSECONDS, micros, rfc3339
from weft.errors import JournalError, NotFoundError, StoreError
from weft.views.live_states import LiveStates

if TYPE_CHECKING:
    from weft.api.service import Service
    from weft.core.rows import ExecutionRow, History
    from weft.feed.contract import Subscription

log = logging.getLogger("weft.api")

# Between two frames. All viewers of a process together are written to as often as all streams are.
FRAME_SECONDS = 0.1
# A viewer hears something this often: a browser that heard nothing for twice as long says so.
PING_SECONDS = 5.0
PING = b": ping\n\n"
# The feed holds a thousand events for a subscriber: so often they are taken, 20,000 a second fit.
_DRAIN_SECONDS = 0.04
# Looks take at most this share of the time, and follow each other no sooner than that.
_LOOK_SHARE = 0.05
_LEAST_LOOK_SECONDS = 0.2
# With more missing events than this, and than a quarter of the nodes, reading all rows costs less.
_READ_EVENTS = 2000
_PAGE_EVENTS = 500
# So many nodes are asked of the store at once: others have a turn on the loop in between.
_LOOK_NODES = 2000
# Frames that a viewer may be behind: two seconds.
_HELD_FRAMES = 20
# A change takes ten bytes of a frame, and a letter of a snapshot one.
_SNAPSHOT_SHARE = 8
# More are built in a thread: they take a microsecond each.
_BUILT_ON_LOOP = 5000


class LiveHub:
    """The live frames of one execution."""

    def __init__(self, service: Service, execution_id: str) -> None:
        self._service = service
        self._catalog = service.ports.catalog
        self._clock = service.ports.clock
        self._id = execution_id
        self.viewers = 0
        # Set by the first load; while another one is under way, what is heard counts for that too.
        self._states: LiveStates
        self._heard_in_load: list[History] | None = None
        # Whether the store could be asked when it was last looked at.
        self._is_live = True
        self.number = 0
        self.has_ended = False
        self._frames: deque[bytes] = deque(maxlen=_HELD_FRAMES)
        self._snapshot: tuple[int, bytes] = (-1, b"")
        self._shown: tuple[str, int, bool] | None = None
        self._framed_at = 0
        self._told = asyncio.Event()
        self._look_now = asyncio.Event()
        self._work = asyncio.create_task(self._run())

    async def stop(self) -> None:
        self._work.cancel()
        await asyncio.wait([self._work])
        if not self._work.cancelled():
            # The viewers were told of the error: mark it as retrieved.
            self._work.exception()

    # -- for viewers -------------------------------------------------------------------------------

    async def frames_after(self, number: int) -> tuple[bytes, int]:
        """Return what has come behind a frame, once there is something, and the number of the last of it.

        ``number`` 0: a snapshot. Raises what the hub has failed with.
        """
        while self.number <= number and not self.has_ended:
            await self._told.wait()
        if self._work.done() and not self._work.cancelled() and (error := self._work.exception()):
            raise error
        behind = self.number - number
        if number and behind <= len(self._frames):
            return b"".join(list(self._frames)[len(self._frames) - behind :]), self.number
        if not self.number:
            return b"", 0  # the execution was removed before it was seen
        ending = _event("end", {}) if self.has_ended else b""
        return self.snapshot(dropped=behind if number else 0) + ending, self.number

    def snapshot(self, *, dropped: int = 0) -> bytes:
        """Return the frame that a viewer begins with; viewers that come between two frames share one."""
        if dropped:
            return self._make_snapshot(dropped=dropped)
        if self._snapshot[0] != self.number:
            self._snapshot = (self.number, self._make_snapshot())
        return self._snapshot[1]

    def _make_snapshot(self, **further: int) -> bytes:
        states = self._states
        return _event(
            "snapshot",
            {
                "generation": states.generation,
                "states": states.letters.decode("ascii"),
                **self._common(),
                **further,
            },
        )

    def _common(self) -> dict[str, Any]:
        return {**self._states.shown(), "at": rfc3339(self._clock.now()), "live": self._is_live}

    # -- frames ------------------------------------------------------------------------------------

    def _publish(self, frame: bytes) -> None:
        self._frames.append(frame)
        self.number += 1
        self._framed_at = self._clock.now()
        told, self._told = self._told, asyncio.Event()
        told.set()

    def _frame(self) -> None:
        """Publish what has changed since the last frame, if anything has."""
        if not self._has_news():
            return
        states = self._states
        is_over = states.is_over
        is_next = self._shown is not None and self._shown[1] == states.generation
        self._shown = self._facts()
        changed = states.take_changed()
        frame = b""
        if not is_next or len(changed) * _SNAPSHOT_SHARE > len(states.letters):
            frame, changed = self._make_snapshot(), ()
        if is_next and (changed or not frame or is_over):
            letters = states.letters
            changes = [[index, chr(letters[index])] for index in sorted(changed)]
            frame += _event("changes", {"changes": changes, **self._common()})
        if is_over:
            self.has_ended = True
            frame += _event("end", {})
        self._publish(frame)

    def _facts(self) -> tuple[str, int, bool]:
        return self._states.state.value, self._states.generation, self._is_live

    def _has_news(self) -> bool:
        return self._states.has_changed or self._states.is_over or self._facts() != self._shown

    def _frame_seconds(self) -> float:
        return max(FRAME_SECONDS, pace_seconds(self._service.load.streams.in_use))

    # -- work --------------------------------------------------------------------------------------

    async def _run(self) -> None:
        try:
            async with self._service.feed.subscribe(execution_id=self._id) as subscription:
                await self._load()
                await self._look_at_store()
                self._frame()
                looking = asyncio.create_task(self._look_often())
                try:
                    await self._follow(subscription)
                finally:
                    looking.cancel()
                    with suppress(asyncio.CancelledError):
                        await looking
        finally:
            self.has_ended = True
            # A viewer that comes from now on begins anew: a retry may have reopened the execution.
            if self._service.live.get(self._id) is self:
                del self._service.live[self._id]
            self._told.set()

    async def _follow(self, subscription: Subscription) -> None:
        while not self.has_ended:
            heard = await subscription.receive(wait_seconds=self._wait_seconds())
            now = self._clock.now()
            for event in heard:
                self._states.apply(event, now=now)
            if self._heard_in_load is not None:
                self._heard_in_load.extend(heard)
            self._states.fire_due(now)
            if subscription.missed or self._states.is_outdated or self._states.misses_the_end:
                self._look_now.set()
            if now >= self._framed_at + micros(self._frame_seconds()) and not self._states.is_outdated:
                self._frame()
            if now >= self._framed_at + micros(PING_SECONDS):
                self._publish(PING)
            if heard and not self.has_ended:
                await self._clock.sleep(_DRAIN_SECONDS)

    def _wait_seconds(self) -> float:
        """Return how long there is nothing to do but to listen."""
        states, now = self._states, self._clock.now()
        due = self._framed_at + micros(PING_SECONDS)
        if states.next_due is not None:
            due = min(due, states.next_due)
        if self._has_news() and not states.is_outdated:
            due = min(due, self._framed_at + micros(self._frame_seconds()))
        return max(0.001, (due - now) / MICROSECONDS)

    async def _look_often(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._service.look_seconds(LOOK_SECONDS)):
                    await self._look_now.wait()
            self._look_now.clear()
            began = self._clock.monotonic()
            try:
                await self._look()
            except JournalError as error:
                # What the feed says is shown meanwhile.
                log.warning("live.look_failed", extra={"execution_id": self._id, "error": str(error)})
            except NotFoundError:
                self._work.cancel()
                return
            took_seconds = (self._clock.monotonic() - began) / MICROSECONDS
            due = self._framed_at + micros(self._frame_seconds())
            await self._clock.sleep(max(0.0, (due - self._clock.now()) / MICROSECONDS))
            if not self._states.is_outdated:
                self._frame()
            await self._clock.sleep(max(_LEAST_LOOK_SECONDS, took_seconds / _LOOK_SHARE))

    async def _look(self) -> None:
        """Make good what the feed did not say."""
        row = await self._catalog.execution(self._id)
        if row is None:
            raise NotFoundError(f"there is no execution {self._id}")
        if self._must_load(row):
            await self._load()
        else:
            await self._read_missing(row)
        if not row.is_terminal:
            await self._look_at_store()

    def _must_load(self, row: ExecutionRow) -> bool:
        states = self._states
        # A database that was restored may have fewer events than were shown.
        is_other = row.generation != states.generation or row.seq < states.seq
        missing = row.seq - states.seq
        return states.is_outdated or is_other or missing > max(_READ_EVENTS, len(states.letters) // 4)

    async def _read_missing(self, row: ExecutionRow) -> None:
        states = self._states
        while states.seq < row.seq and not states.is_outdated:
            async with self._service.load.history_turn:
                found = await self._catalog.events(self._id, after=states.seq, limit=_PAGE_EVENTS)
                now = self._clock.now()
                for event in found:
                    states.apply(event, now=now)
            if not found:
                return

    async def _load(self) -> None:
        """Begin with the rows of the journal."""
        self._heard_in_load = []
        try:
            while True:
                row = await self._catalog.execution(self._id)
                plan = None if row is None else await self._catalog.plan(row.digest)
                if row is None or plan is None:
                    raise NotFoundError(f"there is no execution {self._id}")
                # Journals in memory change the row that they have given.
                row = msgspec.structs.replace(row, input=b"", output=None)
                rows = await self._catalog.node_states(self._id)
                again = await self._catalog.execution(self._id)
                if again is not None and again.generation == row.generation:
                    break
            now = self._clock.now()
            if len(rows) > _BUILT_ON_LOOP:
                states = await self._service.run_in_thread(LiveStates, plan, row, rows, now=now)
            else:
                states = LiveStates(plan, row, rows, now=now)
            for event in self._heard_in_load:
                states.apply(event, now=now)
        finally:
            self._heard_in_load = None
        self._states = states
        # All of it may be news.
        self._shown = None

    async def _look_at_store(self) -> None:
        """Take over where the store has the open nodes, if its counts say that something differs."""
        states, store = self._states, self._service.ports.store
        if states.is_over:
            return
        try:
            (counted,) = await store.in_flight([self._id])
            self._is_live = True
            if counted is None:
                if states.has_phases:
                    # What it had is lost with it; recovery brings the execution back.
                    await self._load()
                return
            if counted == states.in_flight():
                return
            names = states.begin_look()
            for start in range(0, len(names), _LOOK_NODES):
                status = await store.inspect(self._id, names=names[start : start + _LOOK_NODES])
                if status is None or states is not self._states:
                    return
                states.set_phases(status.nodes, now=self._clock.now())
        except StoreError:
            # The journal's states are known; of the others, the last that were seen are shown.
            self._is_live = False


class LiveViewer:
    """A viewer of an execution, in this block: the hub is there while one is."""

    def __init__(self, service: Service, execution_id: str) -> None:
        self._service = service
        self._id = execution_id

    async def __aenter__(self) -> Self:
        hub: LiveHub | None = self._service.live.get(self._id)
        if hub is None or hub.has_ended:
            hub = self._service.live[self._id] = LiveHub(self._service, self._id)
        hub.viewers += 1
        self.hub = hub
        return self

    async def __aexit__(self, *_: object) -> None:
        self.hub.viewers -= 1
        if not self.hub.viewers:
            await self.hub.stop()


def _event(name: str, data: dict[str, Any]) -> bytes:
    return f"event: {name}\ndata: ".encode() + msgspec.json.encode(data) + b"\n\n"
