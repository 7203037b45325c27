"""The commands that stay: ``weft up``, a server in one process."""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
from pathlib import Path  # noqa: TC003 - the parser reads the annotations
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from weft.cli.local import load_registry, loop_factory
from weft.cli.main import FAILED
from weft.cli.printing import say
from weft.errors import SettingsError, WeftError

if TYPE_CHECKING:
    import socket

    from weft.embedded import Engine
    from weft.handlers.registry import Registry
    from weft.settings import Settings

log = logging.getLogger("weft.server")

HOST, PORT = "127.0.0.1", 8700


def up(
    *,
    host: Annotated[str, Parameter(metavar="ADDRESS", help="where to listen (127.0.0.1)")] = HOST,
    port: Annotated[int, Parameter(metavar="N", help="the port to listen on (8700)")] = PORT,
    data: Annotated[Path | None, Parameter(metavar="DIR", help="the data folder (.weft)")] = None,
    concurrency: Annotated[int | None, Parameter(metavar="N", help="tasks in hand at once (64)")] = None,
) -> int:
    """Serve workflows from this process: API, orchestrator and worker, on a data folder."""
    import asyncio

    from weft.api.auth import check_bind
    from weft.api.server import bind
    from weft.settings import read_settings

    settings, warnings = read_settings(flags={"data": data, "worker_concurrency": concurrency})
    _check_set_up(settings)
    check_bind(host, settings)
    _set_up_logs(settings, warnings)
    registry = load_registry(settings)
    bound = bind(host, port)
    try:
        with bound, asyncio.Runner(loop_factory=loop_factory()) as runner:
            number = runner.run(serve(open_engine(settings, registry), registry, bound))
    except WeftError:
        raise
    except Exception:
        # A fault of ours. It goes where the rest of the log goes, as one event.
        log.exception("server.failed")
        return FAILED
    return 0 if number == signal.SIGTERM else 128 + number


def open_engine(settings: Settings, registry: Registry) -> Engine:
    """Make a server's engine: it takes up what an earlier process left, and runs users' code in children."""
    from weft.embedded import Engine
    from weft.handlers.usercode import UserCode
    from weft.telemetry import Metrics

    return Engine(
        settings=settings,
        registry=registry,
        data=settings.data,
        isolate=True,
        code=UserCode(modules=settings.imports, allow=settings.python_allow),
        recovers=True,
        metrics=Metrics(),
    )


async def serve(engine: Engine, registry: Registry, bound: socket.socket) -> int:
    """Serve until a signal comes, and give its number: all that was accepted is safe, what ran has ended.

    The API answers to the end of the drain: it shows what still runs, and turns new work away.
    """
    from weft.api.app import create_app
    from weft.api.server import listening, url_of
    from weft.api.service import serve_engine

    stop = _Stop()
    async with engine:
        await engine.worker.announce()
        service = serve_engine(engine, registry)
        # What is loaded by now stays. The collector need not look at it again, for 45 ms each time.
        gc.freeze()
        async with listening(create_app(service), bound):
            url, data = url_of(bound), str(engine.settings.data)
            if sys.stderr.isatty():
                sys.stderr.write(f"weft is ready at {url} (data: {data})\n")
            else:
                log.info("server.ready", extra={"url": url, "data": data, "pid": os.getpid()})
            if engine.ports.outbound is not None:
                engine.ports.outbound.preload()
            number = await stop.wait()
            service.stopping.set()
            log.info("server.draining", extra={"signal": signal.Signals(number).name})
            await engine.drain()
    log.info("server.stopped")
    return number


class _Stop:
    """What SIGTERM and Ctrl-C do: the first asks to stop, the second ends the process at once."""

    def __init__(self) -> None:
        import asyncio

        self._asked: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, self._ask, number)

    async def wait(self) -> int:
        return await self._asked

    def _ask(self, number: int) -> None:
        if self._asked.done():
            # Not sys.exit: a handler that ignores its cancellation would hold up the interpreter.
            os._exit(128 + number)
        self._asked.set_result(number)
        if sys.stderr.isatty():
            say("stopping; what runs may end first. Press Ctrl-C again to stop at once")


def _check_set_up(settings: Settings) -> None:
    """Refuse what this release cannot be: it serves from one process and one data folder."""
    if settings.transport != "auto":
        raise SettingsError(
            f"WEFT_TRANSPORT is {settings.transport}, which comes with a later release; unset it"
        )
    if settings.redis_url is None and settings.database_url is None:
        return
    if settings.database_url is None:
        raise SettingsError(
            "WEFT_REDIS_URL is set and WEFT_DATABASE_URL is not: a fleet needs both; unset it for one process"
        )
    raise SettingsError(
        "WEFT_DATABASE_URL is set: servers on PostgreSQL and Redis come with a later release; "
        "unset it to keep everything in the data folder"
    )


def _set_up_logs(settings: Settings, warnings: list[str]) -> None:
    from weft.handlers.secrets import known
    from weft.logs import set_up_logs

    set_up_logs(secrets=[*known(), *settings.secrets()], debug=bool(os.environ.get("WEFT_DEBUG")))
    for warning in warnings:
        log.warning("settings.unknown", extra={"problem": warning})
