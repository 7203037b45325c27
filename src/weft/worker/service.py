"""The fetch loop of a worker, its slots, and its graceful stop."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec.structs import replace

from weft.clock import RealClock, ServerClock
from weft.core.task import Result, Task, Wake
from weft.errors import StoreError
from weft.feed.contract import node_started
from weft.store.contract import Answer, Lease, StartRequest, WorkerState, WorkerStatus
from weft.transport.contract import TaskDelivery
from weft.worker.lease import HeartbeatThread, LoopHeartbeat

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from weft.ports import Ports
    from weft.worker.run import Runner

log = logging.getLogger("weft.worker")

_FETCH_SECONDS = 60.0
_PAUSE_AFTER_ERROR_SECONDS = 1.0
# What the large configs in hand may take of the memory: fit for a container of 512 MiB.
DEFAULT_MAX_BYTES = 64 * 2**20
# At a stop the store has at least this long to answer, however short the grace time is.
_STORE_SECONDS = 2.0
# Each heartbeat names the functions that may be called. Who has more says nothing of them.
_MAX_ANNOUNCED = 1000


def worker_name(new_id: Callable[[], str]) -> str:
    """Name a worker so that people know where it runs: host, process, and a part of a new id."""
    return f"{socket.gethostname()}-{os.getpid()}-{new_id()[-4:]}"


class Worker:
    """Takes tasks as it has free slots, starts them, and reports how they end."""

    def __init__(
        self,
        ports: Ports,
        runner: Runner,
        *,
        name: str,
        concurrency: int,
        queues: Collection[str] | None = None,
        heartbeat_seconds: float = 5.0,
        grace_seconds: float = 10.0,
        max_bytes: int = DEFAULT_MAX_BYTES,
    ) -> None:
        """``max_bytes``: what the large configs of the attempts in hand may take of the memory together."""
        self.name = name
        self.queues = queues
        self.concurrency = concurrency
        self._ports = ports
        self._runner = runner
        self._grace_seconds = grace_seconds
        # By nonce: what is in hand, and what runs it.
        self._leases: dict[str, Lease] = {}
        self._running: dict[str, asyncio.Task[bool]] = {}
        # By nonce: the futures that wait for the end of an attempt.
        self._waiting: dict[str, asyncio.Future[None]] = {}
        self._finished: list[tuple[Result, str]] = []
        # What large configs in hand take, by nonce and together; tasks that were fetched and wait for memory,
        # and whoever carries one that does.
        self._max_bytes = max_bytes
        self._weights: dict[str, int] = {}
        self._bytes = 0
        self._deferred: deque[TaskDelivery] = deque()
        self._memory_freed = asyncio.Event()
        self._slot_freed = asyncio.Event()
        self._ended = asyncio.Event()
        self._loops: list[asyncio.Task[None]] = []
        # Between a fetch and the starts it led to there is no good place to stop.
        self._is_fetching = False
        self._state = WorkerState.ALIVE
        self._started_at = 0
        self._about: WorkerStatus | None = None
        self._heartbeat = (
            HeartbeatThread if isinstance(ports.clock, RealClock | ServerClock) else LoopHeartbeat
        )(
            ports.store,
            interval_seconds=heartbeat_seconds,
            leases=lambda: list(self._leases.values()),
            status=self._status,
            stop=self._stop_attempts,
        )

    @property
    def free_slots(self) -> int:
        return self.concurrency - len(self._leases)

    def _is_draining(self) -> bool:
        return self._state is WorkerState.DRAINING

    def fault(self) -> str | None:
        """Return what keeps the worker from its work; None: nothing does."""
        if not self._loops or self._is_draining():
            return "it is not running"
        if any(loop.done() for loop in self._loops):
            return "one of its loops has ended"
        if not self._heartbeat.is_alive:
            return "its heartbeat has ended"
        return None

    async def announce(self) -> None:
        """Announce this worker to the store now; later each of its heartbeats announces it again."""
        await self._ports.store.announce_worker(self._status())

    def _status(self) -> WorkerStatus:
        if self._about is None:
            # Only for a server: finding all installed handlers takes longer than a small run.
            from importlib.metadata import version

            self._about = WorkerStatus(
                id=self.name,
                host=socket.gethostname(),
                pid=os.getpid(),
                version=version("weft"),
                state=self._state,
                queues=None if self.queues is None else tuple(sorted(self.queues)),
                handlers=tuple(self._runner.handlers()),
                concurrency=self.concurrency,
                running=0,
                started_at=self._started_at,
            )
        functions = self._runner.functions()
        return replace(
            self._about,
            state=self._state,
            running=len(self._leases),
            functions=tuple(functions) if len(functions) <= _MAX_ANNOUNCED else None,
        )

    @property
    def is_started(self) -> bool:
        return bool(self._loops)

    async def start(self) -> None:
        """Start the heartbeat and the loops. Where this raises, none was started."""
        assert not self._loops, "a worker is started once"
        self._started_at = self._ports.clock.now()
        self._heartbeat.start()
        loops = (self._fetching(), self._reporting(), self._taking_deferred())
        self._loops = [asyncio.create_task(loop) for loop in loops]

    async def stop(self) -> None:
        """Take no more tasks; let what runs end within the grace time, and hand back the rest at once.

        A store that refuses writes or does not answer is given up at the end of the grace time. The leases of
        what it was not told then run out by themselves.
        """
        loop = asyncio.get_running_loop()
        grace_ends_at = loop.time() + self._grace_seconds
        # What is left of the grace time then is for the last report.
        given_up_at = max(grace_ends_at - _STORE_SECONDS, loop.time() + _STORE_SECONDS)
        fetching, reporting, taking_deferred = self._loops
        self._state = WorkerState.DRAINING
        self._slot_freed.set()
        if self._is_fetching:
            fetching.cancel()
        await asyncio.wait((fetching,), timeout=given_up_at - loop.time())
        # A second cancel does not wait for what the store may just have handed out, nor for a start.
        for taking in (fetching, taking_deferred):
            taking.cancel()
            with suppress(asyncio.CancelledError):
                await taking
        with suppress(StoreError, TimeoutError):
            async with asyncio.timeout_at(given_up_at):
                await self._ports.transport.leave(self.name)
                if self._about is not None:
                    await self.announce()
        with suppress(TimeoutError):
            async with asyncio.timeout_at(grace_ends_at):
                # Until all of it has ended and is reported: a store that was away may be back in time.
                while self._leases:
                    self._slot_freed.clear()
                    await self._slot_freed.wait()
        stopped = [(task, self._leases[nonce]) for nonce, task in self._running.items()]
        for task, _ in stopped:
            task.cancel()
        if stopped:
            await asyncio.wait([task for task, _ in stopped], timeout=self._grace_seconds)
        reporting.cancel()
        with suppress(asyncio.CancelledError):
            await reporting
        try:
            async with asyncio.timeout_at(max(grace_ends_at, loop.time() + _STORE_SECONDS)):
                await self._report()
                # Only what has not ended: a handler may return in spite of its cancellation, and what is
                # handed back is run again.
                left = [lease for task, lease in stopped if not _has_result(task)]
                await self._ports.store.abandon(left)
                await self._ports.store.remove_worker(self.name)
        except (StoreError, TimeoutError) as error:
            log.warning("store.unavailable", extra={"error": str(error) or "no answer in time"})
        self._heartbeat.end()

    def drop_deferred(self) -> None:
        """Drop the tasks that wait for memory: they may rest on results that the database has lost."""
        self._deferred.clear()
        self._slot_freed.set()

    def beat(self) -> None:
        """Ask the store now what is still ours: an execution was stopped."""
        self._heartbeat.beat()

    # -- taking ------------------------------------------------------------------------------------

    async def _fetching(self) -> None:
        while not self._is_draining():
            if (free_slots := self.free_slots) <= 0 or len(self._deferred) >= self.concurrency:
                self._slot_freed.clear()
                await self._slot_freed.wait()
                continue
            try:
                self._is_fetching = True
                try:
                    deliveries = await self._ports.transport.fetch(
                        self.name,
                        queues=self.queues,
                        limit=free_slots,
                        wait_seconds=_FETCH_SECONDS,
                        handlers=self._runner,
                    )
                finally:
                    self._is_fetching = False
                await self._take(deliveries)
            except asyncio.CancelledError:
                if self._is_draining():
                    return
                raise
            except StoreError as error:
                log.warning("store.unavailable", extra={"error": str(error)})
                await asyncio.sleep(_PAUSE_AFTER_ERROR_SECONDS)
            except Exception:
                # Our own bug, or a port's. What was fetched and not started is delivered again.
                log.exception("worker.broken")
                await asyncio.sleep(_PAUSE_AFTER_ERROR_SECONDS)
            # Ports in memory never make us wait: let the others have a turn.
            await asyncio.sleep(0)

    async def _taking_deferred(self) -> None:
        """Start the tasks that wait for memory as soon as there is some."""
        while True:
            await self._memory_freed.wait()
            self._memory_freed.clear()
            while self._deferred and self.free_slots > 0 and self._has_memory(self._deferred[0].task):
                try:
                    await self._take([self._deferred.popleft()])
                except StoreError as error:
                    log.warning("store.unavailable", extra={"error": str(error)})
                except Exception:
                    log.exception("worker.broken")
            self._slot_freed.set()

    def _weight(self, task: Task) -> int:
        return self._runner.weight(task) if task.config_weight else 0

    def _has_memory(self, task: Task) -> bool:
        """True if a task's config fits into memory; what is larger than that fits where it is alone."""
        weight = self._weight(task)
        return not weight or not self._bytes or self._bytes + weight <= self._max_bytes

    async def _begin(self, deliveries: Sequence[TaskDelivery]) -> list[tuple[Task, Lease, int]]:
        """Start attempts, each with memory for its config as long as it is in hand."""
        total = sum([self._weight(delivery.task) for delivery in deliveries if delivery.task.config_weight])
        if not total:
            return await begin(deliveries, self._ports, worker=self.name)
        # Taken first: while the store is asked, others are.
        self._bytes += total
        started: list[tuple[Task, Lease, int]] = []
        try:
            started = await begin(deliveries, self._ports, worker=self.name)
        finally:
            own = {lease.nonce: self._weight(task) for task, lease, _ in started}
            self._weights |= own
            self._give_back(total - sum(own.values()))
        return started

    def _give_back(self, weight: int) -> None:
        if weight:
            self._bytes -= weight
            self._memory_freed.set()

    def _fitting(self, deliveries: Sequence[TaskDelivery]) -> Sequence[TaskDelivery]:
        """Return the tasks that may start now; the others are deferred until there is memory."""
        fitting: list[TaskDelivery] = []
        for delivery in deliveries:
            # One with a large config is taken alone: the next may not fit beside it.
            if self._weight(delivery.task) and (fitting or not self._has_memory(delivery.task)):
                self._deferred.append(delivery)
            else:
                fitting.append(delivery)
        return fitting

    async def _take(self, deliveries: Sequence[TaskDelivery]) -> None:
        """Start what may start. A refused task is acknowledged and forgotten: its attempt is not ours."""
        fitting = deliveries
        if [delivery for delivery in deliveries if delivery.task.config_weight]:
            fitting = self._fitting(deliveries)
        if self._deferred:
            self._memory_freed.set()
        instant: list[Result] = []
        unreported: dict[str, Lease] = {}
        tracing = self._ports.tracing
        for task, lease, began_at in await self._begin(fitting):
            if self._runner.is_immediate(task):
                instant.append(self._runner.run_instant(task, lease.started_at))
                if tracing is not None:
                    tracing.attempt_ended(task, instant[-1])
                unreported[lease.nonce] = lease
            else:
                self._leases[lease.nonce] = lease
                self._running[lease.nonce] = asyncio.create_task(self._run(task, lease, began_at))
        if not instant:
            return
        try:
            await self._ports.store.report(instant)
        except BaseException:
            # Their leases are renewed like all others until the loop that reports has reported them.
            self._leases.update(unreported)
            self._finished += zip(instant, unreported, strict=True)
            self._ended.set()
            raise

    def can_run(self, task: Task) -> bool:
        """True if the worker has the task's handler."""
        return task.handler in self._runner

    async def carry(self, task: Task) -> bool:
        """Run a task that came by another way than ``fetch``, and return when how it ended is on its way.

        False: its attempt is not ours. Cancelling this asks the handler to stop, and lets the lease run out.
        """
        while not self._has_memory(task):
            self._memory_freed.clear()
            await self._memory_freed.wait()
        started = await self._begin([TaskDelivery(0, task)])
        if not started:
            return False
        ((task, lease, began_at),) = started
        gone = self._waiting[lease.nonce] = asyncio.get_running_loop().create_future()
        self._leases[lease.nonce] = lease
        running = self._running[lease.nonce] = asyncio.create_task(self._run(task, lease, began_at))
        try:
            await asyncio.shield(gone)
        except asyncio.CancelledError:
            running.cancel()
            await gone
            raise
        return True

    async def _run(self, task: Task, lease: Lease, began_at: int) -> bool:
        """Run an attempt to its end, and return True if there is a result to report.

        ``began_at``: its start, by this machine's monotonic clock.
        """
        clock, tracing = self._ports.clock, self._ports.tracing
        try:
            whole = await self._runner.whole(task)
            if self._runner.instant(whole):
                result = self._runner.run_instant(whole, lease.started_at)
            else:
                result = await self._runner.run(whole, lease.started_at)
            # Its start is by the store's clock; what passed since then, by ours.
            result = replace(result, finished_at=lease.started_at + clock.monotonic() - began_at)
            await self._runner.settle_logs(task)
            result = await self._runner.small(result)
            await self._runner.drop_config(task)
        except asyncio.CancelledError:
            if tracing is not None:
                stopped_at = lease.started_at + clock.monotonic() - began_at
                tracing.attempt_stopped(
                    task, worker=self.name, started_at=lease.started_at, finished_at=stopped_at
                )
            self._runner.end_logs(task)
            self._let_go(lease)
            raise
        except Exception:
            # Not the handler's: its exceptions are outcomes. The lease runs out, and the attempt is lost.
            log.exception("attempt.broken", extra={"execution": task.execution_id, "node": task.node_id})
            self._runner.end_logs(task)
            self._let_go(lease)
            return False
        if tracing is not None:
            tracing.attempt_ended(task, result)
        self._running.pop(lease.nonce, None)
        self._finished.append((result, lease.nonce))
        self._ended.set()
        return True

    def _let_go(self, lease: Lease) -> None:
        self._running.pop(lease.nonce, None)
        self._free(lease.nonce)

    def _free(self, nonce: str) -> None:
        self._leases.pop(nonce, None)
        if self._weights:
            self._give_back(self._weights.pop(nonce, 0))
        self._slot_freed.set()
        gone = self._waiting.pop(nonce, None)
        if gone is not None and not gone.done():
            gone.set_result(None)

    def _stop_attempts(self, lost: Sequence[Lease]) -> None:
        for lease in lost:
            task = self._running.get(lease.nonce)
            if task is not None:
                task.cancel()

    # -- reporting ---------------------------------------------------------------------------------

    async def _reporting(self) -> None:
        while True:
            await self._ended.wait()
            self._ended.clear()
            try:
                await self._report()
            except StoreError as error:
                log.warning("store.unavailable", extra={"error": str(error)})
                await asyncio.sleep(_PAUSE_AFTER_ERROR_SECONDS)
                self._ended.set()
            except Exception:
                log.exception("worker.broken")
                await asyncio.sleep(_PAUSE_AFTER_ERROR_SECONDS)
                self._ended.set()

    async def _report(self) -> None:
        """Publish what has ended, all in one step."""
        finished = list(self._finished)
        if not finished:
            return
        await self._ports.store.report([result for result, _ in finished])
        del self._finished[: len(finished)]
        for _, nonce in finished:
            self._free(nonce)


def _has_result(task: asyncio.Task[bool]) -> bool:
    """True if an attempt has ended with a result, which was reported or is to be."""
    return task.done() and not task.cancelled() and task.result()


async def begin(
    deliveries: Sequence[TaskDelivery], ports: Ports, *, worker: str
) -> list[tuple[Task, Lease, int]]:
    """Ask the store for each attempt; return those that are ours to run now.

    Each with its start by this machine's monotonic clock: with this clock its duration is measured.
    """
    if not deliveries:
        return []
    tasks: list[Task] = []
    requests: list[StartRequest] = []
    nonce = ports.new_id()  # with a number behind it, one that nobody else has
    for number, delivery in enumerate(deliveries):
        task = delivery.task
        if task.resource_tag is None or await _has_token(task, ports):
            attempt = task.execution_id, task.generation, task.node_id, task.attempt
            tasks.append(task)
            requests.append(StartRequest(*attempt, f"{nonce}/{number}", worker))
    asked_at = ports.clock.monotonic()
    while True:
        try:
            started = await ports.store.start(requests)
            break
        except StoreError as error:
            # Until there is an answer: a start whose answer was lost is ours, and the same request says so.
            log.warning("store.unavailable", extra={"error": str(error)})
            await asyncio.sleep(_PAUSE_AFTER_ERROR_SECONDS)
    answered_at = ports.clock.monotonic()
    # By how much the server's clock is ahead of the monotonic one.
    ahead = ports.clock.now() - answered_at
    await ports.transport.ack_tasks(worker, [delivery.id for delivery in deliveries])
    feed = ports.feed if ports.feed is not None and ports.feed.has_listeners else None
    ours = []
    wakes: list[Wake] = []
    for task, request, start in zip(tasks, requests, started, strict=True):
        if start.answer is Answer.YES:
            if task.queued_at != start.queued_at:
                task = replace(task, queued_at=start.queued_at)
            lease = Lease(
                task.execution_id,
                task.generation,
                task.node_id,
                task.attempt,
                request.nonce,
                worker,
                task.queued_at,
                start.at,
            )
            # Between the question and its answer, however far off the clock is.
            ours.append((task, lease, min(max(start.at - ahead, asked_at), answered_at)))
            if feed is not None and feed.has_subscriber(task.execution_id):
                feed.publish([node_started(task, worker=worker, at=start.at)], namespace=task.namespace)
        elif start.answer is Answer.UNKNOWN:
            wakes.append(Wake(task.execution_id, task.generation, task.digest))
    if wakes:
        # The store has lost these executions: ask for a rebuild. Unasked the sweep does it, and the attempts
        # that were started are ours in any case.
        with suppress(StoreError):
            await ports.transport.publish(wakes)
    return ours


async def _has_token(task: Task, ports: Ports) -> bool:
    """Spend a token for a start that happens now. Token first: a crash wastes one and never overspends."""
    assert task.resource_tag is not None
    ticket = task.ref
    has_token = await ports.limits.spend(task.resource_tag, ticket)
    ports.timers_changed()
    if has_token:
        return True
    await ports.limits.join(task.resource_tag, ticket)
    await ports.store.throttle(
        task.execution_id,
        generation=task.generation,
        node_id=task.node_id,
        attempt=task.attempt,
        was_queued=True,
    )
    # Its concurrency slot is free for another node of its execution.
    await ports.transport.publish([Wake(task.execution_id, task.generation, task.digest)])
    return False
