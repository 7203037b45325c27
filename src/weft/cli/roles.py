"""The long-running commands: ``weft up``, a server in one process, and the roles of a fleet."""

from __future__ import annotations

import logging
import os
import sys
from contextlib import suppress
from dataclasses import replace
from enum import Enum
from pathlib import Path  # noqa: TC003 - the parser reads the annotations
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from weft.errors import JournalError, SettingsError, StoreError, UnreachableError

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Collection, Mapping, Sequence

    from weft.cli.served_files import ServedFiles
    from weft.core.ledger.changes import RecordedEvent
    from weft.engine import Engine
    from weft.handlers.registry import Registry
    from weft.handlers.usercode import UserCode
    from weft.journal.contract import JournalAdapter
    from weft.settings import Settings

log = logging.getLogger("weft.server")

HOST, PORT = "127.0.0.1", 8700
ALL_ADDRESSES = "0.0.0.0"  # noqa: S104 - health and metrics, and only where keys are set

# While a server of the fleet is away, it is tried this often.
_RETRY_SECONDS = 1.0

Host = Annotated[str, Parameter(metavar="ADDRESS", help="where to listen (127.0.0.1)")]
Port = Annotated[int, Parameter(metavar="N", help="the port to listen on (8700)")]
Concurrency = Annotated[int | None, Parameter(metavar="N", help="tasks in hand at once (64)")]


class SetUp(Enum):
    """The set-up that the settings ask for."""

    FOLDER = "one process on a data folder"
    DATABASE = "one process on PostgreSQL"
    FLEET = "any number of processes on Redis and PostgreSQL"


def up(
    *files: Annotated[Path, Parameter(help="Python files whose workflows and functions are served")],
    host: Host = HOST,
    port: Port = PORT,
    data: Annotated[Path | None, Parameter(metavar="DIR", help="the data folder (.weft)")] = None,
    concurrency: Concurrency = None,
) -> int:
    """Serve workflows from this process: API, orchestrator and worker.

    On a data folder; or on Redis and PostgreSQL, where WEFT_REDIS_URL and WEFT_DATABASE_URL are set. The
    workflows of files are deployed, and this process runs their functions.
    """
    from weft.api.auth import check_bind
    from weft.api.server import bind
    from weft.cli.local import load_registry
    from weft.cli.serving import logs_of_server, run_until_stopped
    from weft.settings import read_settings

    settings, warnings = read_settings(flags={"data": data, "worker_concurrency": concurrency})
    kind = set_up_of(settings)
    check_bind(host, settings)
    served = None
    if files:
        from weft.cli.served_files import ServedFiles

        if settings.transport == "celery":
            raise SettingsError(
                "`weft up FILE.py` runs the functions of files in this process, and WEFT_TRANSPORT is "
                "celery: deploy the files with `weft deploy`, and name their modules in WEFT_IMPORTS of "
                "Celery's workers"
            )
        served = ServedFiles(files, watches=False)
    with logs_of_server(settings, warnings):
        registry = load_registry(settings)
        with bind(host, port) as bound:
            settings = _with_public_url(settings, bound)
            if kind is SetUp.FLEET:
                every = ["api", "orchestrator"]
                if settings.transport != "celery":
                    every.append("worker")
                work = _serve_fleet(
                    "up", settings, registry, bound=bound, roles=every, served=served, migrates=True
                )
            else:
                work = _serve_alone(settings, registry, bound, served=served)
            return run_until_stopped(work)


def dev(
    *files: Annotated[
        Path, Parameter(help="Python files that declare workflows, or folders with such files (this folder)")
    ],
    host: Host = HOST,
    port: Port = PORT,
    data: Annotated[Path | None, Parameter(metavar="DIR", help="the data folder (.weft)")] = None,
) -> int:
    """Serve the workflows of Python files, and take up changes when a file is saved."""
    from weft.api.auth import check_bind
    from weft.api.server import bind
    from weft.cli.local import load_registry
    from weft.cli.served_files import ServedFiles
    from weft.cli.serving import logs_of_server, run_until_stopped
    from weft.settings import read_settings

    settings, warnings = read_settings(flags={"data": data})
    # Always one process on a data folder, whatever server the settings name for production.
    settings = settings.with_defaults("redis_url", "database_url", "transport")
    served = ServedFiles(files, watches=True)
    check_bind(host, settings)
    with logs_of_server(settings, warnings):
        registry = load_registry(settings)
        with bind(host, port) as bound:
            settings = _with_public_url(settings, bound)
            return run_until_stopped(_serve_alone(settings, registry, bound, served=served, is_dev=True))


def api(*, host: Host = HOST, port: Port = PORT) -> int:
    """Serve the API of a fleet: any number of them share Redis and PostgreSQL."""
    from weft.api.auth import check_bind
    from weft.api.server import bind
    from weft.cli.local import load_registry
    from weft.cli.serving import logs_of_server, run_until_stopped
    from weft.settings import read_settings

    settings, warnings = read_settings()
    _require_fleet(settings, "api")
    check_bind(host, settings)
    with logs_of_server(settings, warnings):
        registry = load_registry(settings)
        with bind(host, port) as bound:
            return run_until_stopped(_serve_fleet("api", settings, registry, bound=bound))


def orchestrator() -> int:
    """Move the executions of a fleet forward: any number of them share the work."""
    from weft.settings import read_settings

    settings, warnings = read_settings()
    return _serve_inside("orchestrator", settings, warnings)


def worker(
    *,
    queues: Annotated[
        str | None,
        Parameter(metavar="A,B", help="the queues to serve (every queue it has handlers for)"),
    ] = None,
    concurrency: Concurrency = None,
) -> int:
    """Run tasks of a fleet: any number of workers, with all handlers or some, for all queues or some."""
    from weft.settings import read_settings

    settings, warnings = read_settings(flags={"worker_concurrency": concurrency})
    if settings.transport == "celery":
        raise SettingsError(
            "WEFT_TRANSPORT is celery: the workers are Celery's; run `celery -A weft.celery worker`"
        )
    named = None
    if queues is not None:
        named = frozenset(name for part in queues.split(",") if (name := part.strip()))
        if not named:
            raise SettingsError(
                "--queues needs names, separated by commas; leave it out to serve every queue"
            )
    return _serve_inside("worker", settings, warnings, queues=named)


def _serve_inside(
    role: str, settings: Settings, warnings: list[str], *, queues: Collection[str] | None = None
) -> int:
    """Serve in a role without the API; where METRICS_PORT says so, health and metrics are shown beside it."""
    from weft.api.server import bind
    from weft.cli.local import load_registry
    from weft.cli.serving import logs_of_server, run_until_stopped

    _require_fleet(settings, role)
    with logs_of_server(settings, warnings):
        registry = load_registry(settings)
        if settings.metrics_port is None:
            return run_until_stopped(_serve_fleet(role, settings, registry, queues=queues))
        # Probes of a container come from outside of it. Without keys weft listens on loopback alone.
        host = ALL_ADDRESSES if settings.api_keys else HOST
        with bind(host, settings.metrics_port, chosen_by="WEFT_METRICS_PORT") as bound:
            return run_until_stopped(_serve_fleet(role, settings, registry, bound=bound, queues=queues))


# --- What is served.


def open_engine(
    settings: Settings,
    registry: Registry,
    *,
    code: UserCode | None = None,
    environment: Mapping[str, str] | None = None,
    listen: Callable[[Sequence[RecordedEvent]], None] | None = None,
) -> Engine:
    """Make a server's engine: it takes up what an earlier process left, and runs users' code in children.

    ``code``: what the children load, where that is more than the settings name. ``environment``: that of the
    children; by default this process's without its secrets. ``listen``: hears what is recorded.
    """
    from weft.clock import new_id
    from weft.engine import Engine, EngineParts
    from weft.handlers.usercode import UserCode
    from weft.settings import child_environment
    from weft.telemetry import Metrics
    from weft.tracing.opening import open_tracing

    def open_journal(lost_commits: Callable[[], None]) -> JournalAdapter:
        from weft.journal.postgres.incarnation import Watch
        from weft.journal.postgres.journal import PostgresJournal

        assert settings.database_url is not None
        return PostgresJournal(
            settings.database_url,
            new_id=new_id,
            bounds=settings.bounds(),
            exclusive=True,
            relaxed=settings.durability == "relaxed",
            watch=Watch(None, new_id=new_id, changed=lost_commits),
            notify=settings.notify_targets(),
        )

    return Engine(
        settings=settings,
        registry=registry,
        data=settings.data,
        code=code or UserCode(modules=settings.imports, allow=settings.python_allow),
        listen=listen,
        recovers=True,
        metrics=Metrics(),
        parts=EngineParts(
            journal=None if settings.database_url is None else open_journal,
            environment=child_environment(os.environ) if environment is None else environment,
            notifies=True,
            tracing=open_tracing,
        ),
    )


def _with_public_url(settings: Settings, bound: socket.socket) -> Settings:
    """Return settings whose links in notifications lead to this process, unless they name another address."""
    from weft.api.server import url_of

    return settings if settings.public_url is not None else replace(settings, public_url=url_of(bound))


async def _serve_alone(
    settings: Settings,
    registry: Registry,
    bound: socket.socket,
    *,
    served: ServedFiles | None = None,
    is_dev: bool = False,
) -> int:
    """Serve from this process alone, on a data folder or a database that no other process may have."""
    from weft.cli.failure_reports import FailureReports
    from weft.cli.serving import Front, serve

    code = None if served is None else await served.load(settings, registry)
    reports = FailureReports() if is_dev and sys.stderr.isatty() else None
    engine = open_engine(
        settings,
        registry,
        code=code,
        # The children see all that this process sees: a developer's own code on a developer's machine.
        environment=dict(os.environ) if is_dev else None,
        listen=None if reports is None else reports.receive,
    )
    deploy, beside = None, []
    if served is not None:
        deploy = served.deploy(engine, registry)
        beside.append(served.watch(engine, registry, engine.replace_code))
    if reports is not None:
        # The reports have all that its lines would say.
        logging.getLogger("weft.executions").setLevel(logging.ERROR)
        beside.append(reports.print_all(engine))
    about = {"data": str(settings.data)} if settings.database_url is None else {}
    front = Front(role="up", bound=bound, is_shared=False, about=about)
    if settings.database_url is None:
        return await serve(engine, registry, front, deploy=deploy, beside=beside)
    beside.append(_note_position(engine))
    try:
        return await serve(engine, registry, front, deploy=deploy, beside=beside)
    except JournalError as error:
        raise UnreachableError(f"WEFT_DATABASE_URL: {error}") from error


async def _note_position(engine: Engine) -> None:
    """Keep how far the database's log has come: a copy restored later is known by an earlier position."""
    import asyncio

    from weft.journal.postgres.journal import PostgresJournal

    assert isinstance(engine.ports.journal, PostgresJournal)
    while True:
        await asyncio.sleep(engine.settings.orchestrator_sweep_interval_seconds)
        with suppress(JournalError):
            await engine.ports.journal.note_position()


async def _serve_fleet(
    role: str,
    settings: Settings,
    registry: Registry,
    *,
    bound: socket.socket | None = None,
    roles: Collection[str] | None = None,
    queues: Collection[str] | None = None,
    served: ServedFiles | None = None,
    migrates: bool = False,
) -> int:
    """Serve in a fleet. Its servers may come later: until then the process is there, and not ready."""
    from weft.cli.serving import Front, serve
    from weft.fleet import Fleet
    from weft.handlers.usercode import UserCode
    from weft.telemetry import Metrics

    is_checked = await _check_redis(settings)
    code = UserCode(modules=settings.imports, allow=settings.python_allow)
    if served is not None:
        code = await served.load(settings, registry)
    fleet = Fleet(
        settings,
        registry=registry,
        roles=roles or {role},
        queues=queues,
        code=code,
        metrics=Metrics(),
    )
    deploy, beside = None, []
    if served is not None:
        deploy = served.deploy(fleet, registry)
        beside.append(served.watch(fleet, registry, fleet.replace_code))
    if not is_checked:
        beside.append(_check_redis_later(settings))
    if migrates:
        beside.append(_migrate(settings))
    front = Front(role=role, bound=bound, is_shared=True)
    return await serve(fleet, registry, front, deploy=deploy, beside=beside)


async def _check_redis(settings: Settings) -> bool:
    """Refuse a Redis that may lose keys by itself; False: it cannot be reached now."""
    from weft.redis.connection import Redis
    from weft.redis.health import check_server

    assert settings.redis_url is not None
    redis = Redis(settings.redis_url, partitions=settings.partitions)
    try:
        await check_server(redis)
    except StoreError:
        return False
    finally:
        await redis.close()
    return True


async def _check_redis_later(settings: Settings) -> None:
    import asyncio

    while True:
        await asyncio.sleep(_RETRY_SECONDS)
        if await _check_redis(settings):
            return


async def _migrate(settings: Settings) -> None:
    """Bring the schema up to date as soon as the database is there; the fleet waits for that."""
    import asyncio

    from weft.journal.postgres.schema import migrate

    assert settings.database_url is not None
    told = ""
    while True:
        try:
            made = await migrate(settings.database_url)
        except JournalError as error:
            if told != str(error):
                log.warning("journal.unavailable", extra={"error": str(error)})
            told = str(error)
            await asyncio.sleep(_RETRY_SECONDS)
            continue
        if made:
            log.info("schema.migrated", extra={"migrations": made})
        return


# --- Set-ups.


def set_up_of(settings: Settings) -> SetUp:
    """Return the set-up that the settings describe, or raise SettingsError if they contradict each other."""
    if settings.transport == "celery":
        _require_celery(settings)
    if settings.redis_url is None:
        return SetUp.FOLDER if settings.database_url is None else SetUp.DATABASE
    if settings.database_url is None:
        raise SettingsError(
            "WEFT_REDIS_URL is set and WEFT_DATABASE_URL is not: set both for a fleet, or neither for one "
            "process on a data folder"
        )
    return SetUp.FLEET


def _require_celery(settings: Settings) -> None:
    names = ("redis_url", "database_url", "celery_broker_url")
    missing = [f"WEFT_{name.upper()}" for name in names if getattr(settings, name) is None]
    if missing:
        raise SettingsError(f"WEFT_TRANSPORT is celery: set {' and '.join(missing)} too")
    from importlib.util import find_spec

    if find_spec("celery") is None:
        raise SettingsError("WEFT_TRANSPORT is celery, which is not installed: install weft[celery]")


def _require_fleet(settings: Settings, role: str) -> None:
    if settings.redis_url is None and settings.database_url is None:
        raise SettingsError(
            f"`weft {role}` is one role of a fleet: set WEFT_REDIS_URL and WEFT_DATABASE_URL; for everything "
            "in one process, run `weft up`"
        )
    if set_up_of(settings) is not SetUp.FLEET:
        raise SettingsError(
            f"`weft {role}` is one role of a fleet, and WEFT_REDIS_URL is not set: set it; for one process "
            "on PostgreSQL, run `weft up`"
        )
