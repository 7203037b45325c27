"""The worker of a fleet inside a process of Celery: on a thread and loop of its own.

It is the same worker as that of ``weft worker``: it asks the store for each attempt, its heartbeats come from
a thread, and users' code runs in its child processes. Only its tasks come from Celery. A forked process of
Celery starts its own worker after the fork; the threads of a pool share one.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from concurrent.futures import Future
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from celery import current_app
from celery.concurrency import get_implementation
from celery.concurrency.prefork import TaskPool as Prefork
from celery.concurrency.solo import TaskPool as Solo
from celery.concurrency.thread import TaskPool as Threads
from celery.signals import (
    worker_init,
    worker_process_init,
    worker_process_shutdown,
    worker_ready,
    worker_shutdown,
)

from weft.cli.local import load_registry, loop_factory
from weft.errors import SettingsError
from weft.fleet import Fleet
from weft.handlers.secrets import short_ones
from weft.handlers.usercode import UserCode
from weft.settings import read_settings
from weft.transport.celery import own_queue

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from weft.settings import Settings

log = logging.getLogger("weft.celery")

T = TypeVar("T")


def read_fleet_settings() -> Settings:
    """Read the settings of this process: those of a fleet."""
    settings, _ = read_settings(flags={"transport": "celery"})
    if settings.redis_url is None or settings.database_url is None:
        raise SettingsError("Celery runs the tasks of a fleet: set WEFT_REDIS_URL and WEFT_DATABASE_URL")
    return settings


class Work(Future[T]):
    """Something under way on the worker's loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._loop = loop
        self._task: asyncio.Task[T] | None = None

    def begin(self, work: Awaitable[T]) -> None:
        self._task = asyncio.ensure_future(work)
        self._task.add_done_callback(self._end)

    def _end(self, task: asyncio.Task[T]) -> None:
        if task.cancelled():
            self.set_exception(asyncio.CancelledError())
        elif error := task.exception():
            self.set_exception(error)
        else:
            self.set_result(task.result())

    def give_up(self) -> None:
        """Ask it to stop; it is over when it has."""
        self._loop.call_soon_threadsafe(lambda: self._task and self._task.cancel())


class WorkerProcess:
    """A worker that was started, and ends with ``stop``."""

    def __init__(self, settings: Settings, *, queues: frozenset[str] | None) -> None:
        self._settings = settings
        self._queues = queues
        self._fleet: Fleet | None = None
        self._is_up = threading.Event()
        self._failed: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="weft-celery-worker", daemon=True)
        self._thread.start()
        self._is_up.wait()
        if self._fleet is None:
            raise RuntimeError("the worker could not be started") from self._failed

    def do(self, work: Callable[[Fleet], Awaitable[T]]) -> Work[T]:
        """Run a coroutine on the worker's loop, as soon as the servers can be reached."""
        done: Work[T] = Work(self._loop)

        async def once_started() -> T:
            assert self._fleet is not None
            await self._fleet.started()
            return await work(self._fleet)

        self._loop.call_soon_threadsafe(lambda: done.begin(once_started()))
        return done

    def stop(self) -> None:
        """Let what runs end within the grace time, and end."""
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=loop_factory()) as runner:
                runner.run(self._serve())
        except BaseException as error:
            log.critical("worker.broken", exc_info=True)
            self._failed = error
        finally:
            self._is_up.set()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        settings = self._settings
        code = UserCode(modules=settings.imports, allow=settings.python_allow)
        registry = load_registry(settings)
        for problem in short_ones():
            log.warning("secret.short: %s", problem)
        async with Fleet(
            settings, registry=registry, roles={"worker"}, queues=self._queues, code=code
        ) as fleet:
            self._fleet = fleet
            self._is_up.set()
            await self._stopping.wait()


_lock = threading.Lock()
_process: WorkerProcess | None = None


def worker_process(*, is_forked: bool = False) -> WorkerProcess:
    """Return the worker of this process; the first call starts the worker."""
    global _process
    with _lock:
        if _process is None:
            settings = read_fleet_settings()
            if is_forked:
                # The others have their own.
                settings = replace(settings, worker_concurrency=1, worker_processes=1)
            _process = WorkerProcess(settings, queues=_served())
        return _process


def _served() -> frozenset[str]:
    """Name the queues of nodes that this process's app takes tasks from."""
    names = (own_queue(name) for name in current_app.amqp.queues.consume_from)
    return frozenset(name for name in names if name is not None)


def _refuse_pool(sender: Any, **_: Any) -> None:
    # gevent and eventlet put a loop of their own under everything that waits: asyncio would stand still.
    if _served() and not issubclass(get_implementation(sender.pool_cls), Prefork | Threads | Solo):
        # Any other exception of a signal's receiver is logged, and the worker starts all the same.
        raise SystemExit(
            "the tasks of weft run in the pools prefork, threads and solo alone:"
            " start the worker with --pool=prefork, or with -Q and without the queues of weft"
        )


def _begin_forked(**_: Any) -> None:
    # Another app may have workers that have nothing to do with weft.
    if _served():
        worker_process(is_forked=True)


def _begin_here(sender: Any, **_: Any) -> None:
    if not _served():
        return
    if sender.prefetch_multiplier != 1:
        log.warning("prefetch.high", extra={"multiplier": sender.prefetch_multiplier})
    if not isinstance(sender.pool, Prefork):
        worker_process()


def _end(**_: Any) -> None:
    global _process
    ending, _process = _process, None
    if ending is not None:
        ending.stop()


worker_init.connect(_refuse_pool, weak=False)
worker_process_init.connect(_begin_forked, weak=False)
worker_process_shutdown.connect(_end, weak=False)
worker_ready.connect(_begin_here, weak=False)
worker_shutdown.connect(_end, weak=False)
