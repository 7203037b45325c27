"""Heartbeats from a thread of their own: a busy loop must not cost a worker its leases."""

from __future__ import annotations

import asyncio
import logging
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from weft.errors import StoreError
from weft.store.contract import Answer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from weft.store.contract import Lease, StateStore, WorkerStatus

log = logging.getLogger("weft.worker")


async def renew(leases: Sequence[Lease], store: StateStore) -> list[Lease]:
    """Renew the leases on what a worker holds; give back what it has to stop."""
    if not leases:
        return []
    answers = await store.renew(leases)
    # UNKNOWN is no reason to stop: the store was lost, and adopts the attempt when it is rebuilt.
    return [item for item, answer in zip(leases, answers, strict=True) if answer is Answer.REFUSED]


class HeartbeatThread:
    """Renews leases and says that its worker is there, every ``interval_seconds`` and when it is asked to."""

    def __init__(
        self,
        store: StateStore,
        *,
        interval_seconds: float,
        leases: Callable[[], Sequence[Lease]],
        status: Callable[[], WorkerStatus],
        stop: Callable[[Sequence[Lease]], None],
    ) -> None:
        self._store = store
        self._interval_seconds = interval_seconds
        self._leases = leases
        self._status = status
        self._stop = stop
        self._ended = False
        self._asked = threading.Event()
        self._thread = threading.Thread(target=self._beating, name="weft-heart", daemon=True)
        # Of the thread: the heartbeat under way.
        self._under_way: asyncio.Task[list[Lease]] | None = None

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        # The thread's loop needs open files. Without a free one the start fails here, where its caller sees
        # it: in the thread it would leave a worker that takes tasks and renews no lease.
        self._own_loop = asyncio.new_event_loop()
        self._thread.start()

    def beat(self) -> None:
        """Beat now: something may have to be stopped."""
        self._asked.set()

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def end(self) -> None:
        """End the thread, without waiting for a store that does not answer a heartbeat."""
        self._ended = True
        self._asked.set()
        # The thread may have ended, and closed its loop.
        with suppress(RuntimeError):
            self._own_loop.call_soon_threadsafe(self._give_up)
        self._thread.join()

    def _give_up(self) -> None:
        if self._under_way is not None:
            self._under_way.cancel()

    async def _beat_here(self) -> list[Lease]:
        self._under_way = asyncio.current_task()
        # After the line above: an end that comes now cancels this, and one that came before is seen here.
        return [] if self._ended else await self._beat()

    async def _beat(self) -> list[Lease]:
        # The leases first: nothing but a page of the console waits for the rest.
        lost = await renew(self._leases(), self._store)
        await self._store.announce_worker(self._status())
        return lost

    def _beating(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._own_loop) as runner:
            while True:
                self._asked.wait(self._interval_seconds)
                self._asked.clear()
                if self._ended:
                    return
                try:
                    lost = runner.run(self._beat_here())
                except asyncio.CancelledError:
                    return
                except StoreError as error:
                    log.warning("heartbeat.failed", extra={"error": str(error)})
                    continue
                except Exception:
                    log.exception("heartbeat.failed")
                    continue
                if lost:
                    self._loop.call_soon_threadsafe(self._stop, lost)


class LoopHeartbeat(HeartbeatThread):
    """The same on the worker's own loop, for a clock that does not pass beside it.

    Where time jumps from one timer to the next, the beats of a thread would come hours too late.
    """

    def start(self) -> None:
        self._wanted = asyncio.Event()
        self._task = asyncio.create_task(self._beating_here())

    def beat(self) -> None:
        self._wanted.set()

    @property
    def is_alive(self) -> bool:
        return not self._task.done()

    def end(self) -> None:
        self._task.cancel()

    async def _beating_here(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._interval_seconds):
                    await self._wanted.wait()
            self._wanted.clear()
            try:
                self._stop(await self._beat())
            except Exception:
                log.exception("heartbeat.failed")
