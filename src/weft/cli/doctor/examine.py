"""Runs the checks of ``weft doctor``: faults that keep a server from starting or working, with remedies."""

from __future__ import annotations

import os
import shutil
import socket
import sqlite3
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from weft.cli.doctor.finding import START_A_WORKER, Finding, Health
from weft.cli.local import see_current_folder
from weft.errors import DataFolderError, WeftError
from weft.settings import TRUST_IT, weak_secrets

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from weft.settings import Settings

_ANSWER_SECONDS = 5.0
# Below the first a busy server may be full within the hour; below the second it cannot even start its log.
_LITTLE_DISK_BYTES = 1024 * 2**20
_NO_DISK_BYTES = 64 * 2**20


def examine(settings: Settings, warnings: Sequence[str], *, url: str) -> Iterator[Finding]:
    """Yield the findings of all checks, in the order of a start; at ``url`` a server may be running."""
    yield from _python()
    yield from _settings(settings, warnings)
    if settings.database_url is None:
        yield from _sqlite()
        yield from _data_folder(settings.data)
    if settings.database_url is not None or settings.redis_url is not None:
        from weft.cli.doctor.servers import examine_servers

        yield from examine_servers(settings)
    yield from _code(settings)
    yield from _secrets(settings)
    yield from _llm(settings)
    yield from _server(settings, url)


def _python() -> Iterator[Finding]:
    version = ".".join(map(str, sys.version_info[:3]))
    if find_spec("uvloop") is None:
        advice = "install uvloop: the event loop is several times as fast with it"
        yield Finding("python", Health.WARN, f"Python {version} without uvloop", advice)
    else:
        yield Finding("python", Health.OK, f"Python {version} with uvloop")


def _settings(settings: Settings, warnings: Sequence[str]) -> Iterator[Finding]:
    for warning in warnings:
        advice = TRUST_IT if warning.endswith(TRUST_IT) else "correct the name, or remove it"
        yield Finding("settings", Health.WARN, warning, advice)
    if settings.redis_url is not None and settings.database_url is None:
        yield Finding(
            "settings",
            Health.FAIL,
            "WEFT_REDIS_URL is set and WEFT_DATABASE_URL is not",
            "set both for a fleet, or neither for one process on a data folder",
        )
    if settings.transport == "celery":
        yield from _celery(settings)
    for problem in weak_secrets(settings):
        message, _, advice = problem.rpartition(": ")
        yield Finding("settings", Health.WARN, message, advice)
    if not warnings:
        yield Finding("settings", Health.OK, "every value can be used, and every name is known")


def _celery(settings: Settings) -> Iterator[Finding]:
    names = ("redis_url", "database_url", "celery_broker_url")
    missing = [f"WEFT_{name.upper()}" for name in names if getattr(settings, name) is None]
    if missing:
        message = f"WEFT_TRANSPORT is celery, and {' and '.join(missing)} is not set"
        yield Finding("settings", Health.FAIL, message, "set it")
    if find_spec("celery") is None:
        message = "WEFT_TRANSPORT is celery, which is not installed"
        yield Finding("settings", Health.FAIL, message, "install weft[celery]")


def _sqlite() -> Iterator[Finding]:
    from weft.journal.sqlite.schema import OLDEST_SQLITE

    version = sqlite3.sqlite_version
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        needed = ".".join(map(str, OLDEST_SQLITE))
        yield Finding(
            "sqlite", Health.FAIL, f"SQLite {version}", f"use a Python with SQLite {needed} or newer"
        )
    else:
        yield Finding("sqlite", Health.OK, f"SQLite {version}")


def _data_folder(path: Path) -> Iterator[Finding]:
    present = next(folder for folder in (path.absolute(), *path.absolute().parents) if folder.exists())
    if not (present.is_dir() and os.access(present, os.W_OK | os.X_OK)):
        yield Finding(
            "data",
            Health.FAIL,
            f"{present} cannot be written",
            "change its rights, or set WEFT_DATA elsewhere",
        )
        return
    if present != path.absolute():
        yield Finding("data", Health.OK, f"{path} is not there yet and can be made")
    else:
        yield _journal(path)
    free = shutil.disk_usage(present).free
    message = f"{free / 2**30:,.1f} GiB are free on the disk of {path}"
    if free < _NO_DISK_BYTES:
        yield Finding("disk", Health.FAIL, message, "free some space: nothing can be accepted without it")
    elif free < _LITTLE_DISK_BYTES:
        yield Finding(
            "disk", Health.WARN, message, "free some space, or set WEFT_RETENTION to let history go"
        )
    else:
        yield Finding("disk", Health.OK, message)


def _journal(path: Path) -> Finding:
    from weft.journal.data_folder import holder
    from weft.journal.sqlite.journal import FILE_NAME
    from weft.journal.sqlite.schema import pending

    try:
        process = holder(path)
        missing = pending(path / FILE_NAME)
    except DataFolderError as error:
        return Finding("data", Health.FAIL, str(error), "set WEFT_DATA to another folder, or put that right")
    if process is not None:
        return Finding("data", Health.OK, f"{path} is in use by process {process}")
    if missing:
        advice = "`weft up` brings it up to date by itself; `weft migrate` does only that"
        message = f"the schema of {path} lacks {', '.join(missing)}"
        return Finding("data", Health.WARN, message, advice)
    return Finding("data", Health.OK, f"{path} can be used, and its schema is up to date")


def _code(settings: Settings) -> Iterator[Finding]:
    from weft.handlers import usercode
    from weft.handlers.registry import default_registry

    registry = default_registry()
    if settings.imports or settings.python_allow:
        see_current_folder()
    try:
        code = usercode.UserCode(modules=settings.imports, allow=settings.python_allow)
        problems = usercode.load(code, registry)
    except WeftError as error:
        problems = [f"WEFT_PYTHON_ALLOW: {error}"]
    for problem in problems:
        yield Finding("imports", Health.FAIL, problem, "install it, or correct WEFT_IMPORTS")
    for reference in settings.python_allow:
        if not reference.endswith(":*"):
            try:
                registry.resolve(reference)
            except Exception as error:
                advice = "correct WEFT_PYTHON_ALLOW; nodes that call it will fail"
                yield Finding("imports", Health.WARN, f"{reference}: {error}", advice)
    for name in registry.names():
        try:
            registry.get(name)
        except WeftError as error:
            yield Finding("handlers", Health.WARN, str(error), "mend or uninstall that distribution")
    if not problems:
        yield Finding("handlers", Health.OK, f"handlers: {', '.join(registry.names())}")


def _secrets(settings: Settings) -> Iterator[Finding]:
    from weft.handlers.secrets import PREFIX, lookup, short_ones

    for variable in sorted(os.environ):
        if variable.startswith(PREFIX):
            try:
                lookup(variable.removeprefix(PREFIX).removesuffix("_FILE"))
            except WeftError as error:
                yield Finding("secrets", Health.FAIL, str(error), "nodes that need it will fail; correct it")
    for problem in short_ones():
        message, _, advice = problem.partition("; ")
        yield Finding("secrets", Health.WARN, message, advice)


def _llm(settings: Settings) -> Iterator[Finding]:
    base = urlsplit(settings.llm_base_url)
    if (
        settings.llm_api_key
        and base.scheme == "http"
        and base.hostname not in ("localhost", "127.0.0.1", "::1")
    ):
        yield Finding(
            "llm",
            Health.WARN,
            f"WEFT_LLM_API_KEY is sent to {base.hostname} without encryption",
            "give WEFT_LLM_BASE_URL as https://",
        )
    elif settings.llm_api_key is None and base.hostname == "api.openai.com":
        message = "no WEFT_LLM_API_KEY: nodes of llm_service need an api_key or a base_url of their own"
        yield Finding("llm", Health.OK, message)
    else:
        model = settings.llm_model or "named by each node"
        yield Finding("llm", Health.OK, f"{base.hostname}, model: {model}")


def _server(settings: Settings, url: str) -> Iterator[Finding]:
    is_given = bool(os.environ.get("WEFT_URL"))
    if "@" in url:
        message = "WEFT_URL holds a user or a password, which the API does not take"
        yield Finding("server", Health.FAIL, message, "take them out, and send a key (WEFT_API_KEY)")
        return
    address = urlsplit(url)
    host, port = address.hostname or "", address.port or (443 if address.scheme == "https" else 80)
    try:
        socket.create_connection((host, port), timeout=_ANSWER_SECONDS).close()
    except OSError as error:
        if is_given:
            message = f"WEFT_URL: {url} cannot be reached: {error.strerror or error}"
            yield Finding("server", Health.FAIL, message, "start it with `weft up`, or correct WEFT_URL")
        else:
            yield Finding("server", Health.OK, f"no server at {url}; the port is free for `weft up`")
        return
    yield _answer(url)


def _answer(url: str) -> Finding:
    import json
    from http.client import HTTPException
    from urllib.error import HTTPError
    from urllib.request import urlopen

    try:
        try:
            with urlopen(f"{url.rstrip('/')}/readyz", timeout=_ANSWER_SECONDS) as response:  # noqa: S310
                body = json.load(response)
        except HTTPError as error:
            body = json.load(error)
        checks = body.get("checks", {})
        wrong = "; ".join(f"{name}: {check['message']}" for name, check in checks.items() if not check["ok"])
        workers = checks.get("workers", {}).get("message", "")
        if not body["ready"]:
            return Finding("server", Health.FAIL, f"{url} is not ready: {wrong}", "look at its log")
        if workers.startswith("no "):
            message = f"{url} is ready, with {workers}: what it accepts waits for one"
            return Finding("server", Health.WARN, message, START_A_WORKER)
        return Finding("server", Health.OK, f"{url} is ready")
    except (OSError, HTTPException, ValueError, LookupError, TypeError):
        message = f"whatever listens at {url} does not answer as weft does"
        return Finding("server", Health.WARN, message, "choose another port: `weft up --port N`")
