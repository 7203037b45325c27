"""uvicorn inside our own loop: it listens once the engine is ready, and leaves after it has drained."""

from __future__ import annotations

import asyncio
import errno
import socket
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, cast

import uvicorn

from weft.api.connection import IDLE_SECONDS, ClientConnection
from weft.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from fastapi import FastAPI

# What is under way when the process is asked to stop may take so long to answer.
_LAST_ANSWERS_SECONDS = 5
_LAST_PORT = 65535


def bind(host: str, port: int, *, chosen_by: str = "--port") -> socket.socket:
    """Take an address, without listening yet; raises SettingsError where that cannot be.

    It comes before anything else: a start that cannot succeed should touch nothing. ``chosen_by``: what
    people choose the port with.
    """
    if not 0 <= port <= _LAST_PORT:
        # The resolver would take the last 16 bits of it for a port.
        raise SettingsError(f"{chosen_by} needs a number from 0 to {_LAST_PORT}, not {port}")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except socket.gaierror as error:
        raise SettingsError(f"--host {host}: this is no address of this machine: {error.strerror}") from error
    bound = socket.socket(family, kind, protocol)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except OSError as error:
        bound.close()
        raise _refused(host, port, error, chosen_by) from error
    return bound


def url_of(bound: socket.socket) -> str:
    """Return the URL at which a bound socket is reached."""
    host, port = bound.getsockname()[:2]
    return f"http://[{host}]:{port}" if bound.family is socket.AF_INET6 else f"http://{host}:{port}"


@asynccontextmanager
async def listening(app: FastAPI, bound: socket.socket) -> AsyncIterator[None]:
    """Answer requests while the block runs; at its end, those under way are answered first."""
    table = app.state.service.connections
    config = uvicorn.Config(
        app,
        # uvicorn only calls it, as it would the class.
        http=cast("type[asyncio.Protocol]", partial(ClientConnection, table=table)),
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        # The caller is the peer of the socket; headers of proxies are not trusted.
        proxy_headers=False,
        server_header=False,
        # The sweep of the connections is there first; uvicorn's own timer does not outlive a stray byte.
        timeout_keep_alive=2 * round(IDLE_SECONDS),
        timeout_graceful_shutdown=_LAST_ANSWERS_SECONDS,
    )
    config.load()
    server = uvicorn.Server(config)
    server.lifespan = config.lifespan_class(config)
    # Its steps one by one, because its own way through them takes the signals of the process.
    try:
        await server.startup([bound])
    except OSError as error:
        host, port = bound.getsockname()[:2]
        raise _refused(host, port, error) from error
    ticking = asyncio.create_task(server.main_loop())
    sweeping = asyncio.create_task(table.sweep(), name="sweep_connections")
    try:
        yield
    finally:
        server.should_exit = True
        await ticking
        await server.shutdown([bound])
        sweeping.cancel()


def _refused(host: str, port: int, error: OSError, chosen_by: str = "--port") -> SettingsError:
    if error.errno == errno.EADDRINUSE:
        return SettingsError(
            f"port {port} of {host} is taken by another process; choose one with {chosen_by}"
        )
    if error.errno == errno.EACCES:
        return SettingsError(
            f"port {port} needs rights this user lacks; choose one above 1023 with {chosen_by}"
        )
    return SettingsError(f"cannot listen on {host} port {port}: {error.strerror}")
