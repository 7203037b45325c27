"""A long-running process: start, serve until a signal, drain."""

from __future__ import annotations

import asyncio
import atexit
import gc
import logging
import os
import signal
import sys
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from weft.api.connection_table import make_room
from weft.api.service import serve_engine
from weft.cli.local import loop_factory
from weft.cli.main import FAILED
from weft.cli.printing import say
from weft.errors import WeftError
from weft.settings import weak_secrets

if TYPE_CHECKING:
    import socket
    from collections.abc import Coroutine, Iterable, Iterator, Mapping
    from typing import Any

    from weft.api.service import Process, Service
    from weft.handlers.registry import Registry
    from weft.settings import Settings

log = logging.getLogger("weft.server")

# While a process waits for its servers, it looks this often whether there is something new to say.
_LOOK_SECONDS = 1.0
# While a large definition is checked in a thread, the loop waits so long after each of its system calls. By
# Python's own 5 ms a server that answers a hundred requests a second stands still. Where functions of users
# compute in threads, these would pay for it.
_SWITCH_SECONDS = 0.0001


@dataclass(frozen=True, slots=True, kw_only=True)
class Front:
    """The HTTP server of a process: its API, or its health and metrics."""

    # up, api, orchestrator or worker
    role: str
    # Where it listens, the first two with the API, the others with health and metrics; None: nowhere.
    bound: socket.socket | None
    # Whether it is one of a fleet.
    is_shared: bool
    # What else is said when it is ready.
    about: Mapping[str, str] = field(default_factory=dict)

    @property
    def has_api(self) -> bool:
        return self.role in ("up", "api")


def run_until_stopped(work: Coroutine[Any, Any, int]) -> int:
    """Run a process's work on an event loop, and give the exit code: 0 after SIGTERM."""
    try:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            number = runner.run(work)
    except WeftError:
        raise
    except Exception:
        # A fault of ours. It goes where the rest of the log goes, as one event.
        log.exception("server.failed")
        return FAILED
    return 0 if number == signal.SIGTERM else 128 + number


async def serve(
    process: Process,
    registry: Registry,
    front: Front,
    *,
    deploy: Coroutine[Any, Any, None] | None = None,
    beside: Iterable[Coroutine[Any, Any, None]] = (),
) -> int:
    """Serve until a signal comes, and give its number: all that was accepted is safe, what ran has ended.

    The API answers to the end of the drain: it shows what still runs, and turns new work away.
    ``deploy`` stores the workflows of the files that the process serves: it is ready only after that.
    ``beside`` is done while the process serves; an error of it ends the process in the same good order.
    """
    stop = Stop()
    make_room(process.settings)
    if front.role in ("api", "orchestrator"):
        sys.setswitchinterval(_SWITCH_SECONDS)
    async with process, AsyncExitStack() as listeners:
        service = serve_engine(
            process, registry, is_shared=front.is_shared, shows_fleet=front.has_api or not front.is_shared
        )
        url = await _listen(service, front, listeners)
        service.deploying = deploy is not None
        try:
            number = await _asked_to_stop(stop, (_open(process, service, front, url, deploy), *beside))
            log.info("server.draining", extra={"signal": signal.Signals(number).name})
        finally:
            service.stopping.set()
            await process.drain()
    log.info("server.stopped")
    return number


async def _listen(service: Service, front: Front, listeners: AsyncExitStack) -> str | None:
    """Answer requests from now on, in a fleet also while its servers are waited for; give the address."""
    if front.bound is None:
        return None
    from weft.api.app import create_app, create_health_app
    from weft.api.server import listening, url_of

    app = create_app(service) if front.has_api else create_health_app(service)
    # What is loaded by now stays. The collector need not look at it again, for 45 ms each time.
    gc.freeze()
    await listeners.enter_async_context(listening(app, front.bound))
    url = url_of(front.bound)
    if front.is_shared:
        log.info("server.listening", extra={"url": url, "role": front.role, "pid": os.getpid()})
    return url


async def _open(
    process: Process,
    service: Service,
    front: Front,
    url: str | None,
    deploy: Coroutine[Any, Any, None] | None,
) -> None:
    await _started(process)
    if deploy is not None:
        await deploy
        service.deploying = False
    if sys.stderr.isatty():
        name = "weft" if front.role == "up" else f"weft {front.role}"
        at = f" at {url}" if url is not None and front.has_api else ""
        also = "".join(f" ({key}: {value})" for key, value in front.about.items())
        sys.stderr.write(f"{name} is ready{at}{also}\n")
    else:
        fields: dict[str, Any] = {} if url is None else {"url": url}
        fields |= front.about
        if front.is_shared:
            fields["role"] = front.role
        log.info("server.ready", extra={**fields, "pid": os.getpid()})
    if process.ports.outbound is not None:
        process.ports.outbound.preload()


async def _started(process: Process) -> None:
    """Return once the process is at work; until then say what it waits for, whenever that changes."""
    starting = asyncio.create_task(process.started())
    told: dict[str, str] = {}
    try:
        while not (await asyncio.wait((starting,), timeout=_LOOK_SECONDS))[0]:
            faults = {name: fault for name, fault in process.faults().items() if fault is not None}
            if faults != told:
                log.warning("server.waiting", extra=faults)
            told = faults
        await starting
    finally:
        starting.cancel()


async def _asked_to_stop(stop: Stop, beside: Iterable[Coroutine[Any, Any, None]]) -> int:
    """Return the signal that asks to stop; ``beside`` runs until then, and its errors raise."""
    asked = asyncio.create_task(stop.wait())
    others = {asyncio.create_task(one) for one in beside}
    try:
        while not asked.done():
            done, _ = await asyncio.wait((asked, *others), return_when=asyncio.FIRST_COMPLETED)
            for task in done - {asked}:
                others.discard(task)
                await task
        return await asked
    finally:
        for task in (asked, *others):
            task.cancel()
        await asyncio.gather(asked, *others, return_exceptions=True)


class Stop:
    """Handles SIGTERM and Ctrl-C: the first asks to stop, the second ends the process at once."""

    def __init__(self) -> None:
        self._asked: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, self._ask, number)

    async def wait(self) -> int:
        return await asyncio.shield(self._asked)

    def _ask(self, number: int) -> None:
        if self._asked.done():
            # Not sys.exit: a handler that ignores its cancellation would hold up the interpreter.
            os._exit(128 + number)
        self._asked.set_result(number)
        if sys.stderr.isatty():
            say("stopping; what runs may end first. Press Ctrl-C again to stop at once")


@contextmanager
def logs_of_server(settings: Settings, warnings: Iterable[str]) -> Iterator[None]:
    """Log as a server does here, and print nothing, without the values of any secret.

    A module of WEFT_IMPORTS may print while it is imported, and later. On a terminal that is shown as it is;
    where the server logs JSON, it becomes an event. What a command says at its end is for people again.
    """
    from weft import logs
    from weft.handlers.secrets import known, process_mask, short_ones

    mask = process_mask(settings.secrets())
    logs.set_up_logs(secrets=[*known(), *settings.secrets()], debug=bool(os.environ.get("WEFT_DEBUG")))
    masked = [logs.MaskedStream(stream, mask) for stream in (sys.stdout, sys.stderr)]
    printed = [logs.PrintedStream(stream, log, mask) for stream in (sys.stdout, sys.stderr)]
    for stream in masked:
        atexit.register(stream.finish)
    for warning in warnings:
        log.warning("settings.unknown", extra={"problem": warning})
    for problem in short_ones():
        log.warning("secret.short", extra={"problem": problem})
    for problem in weak_secrets(settings):
        log.warning("settings.exposed", extra={"problem": problem})
    sys.stdout, sys.stderr = printed if logs.are_json() else masked
    try:
        yield
    finally:
        for output in printed:
            output.finish()
        sys.stdout, sys.stderr = masked
