"""The connections of a worker to services: one aiohttp session, whose resolver asks the guard.

aiohttp looks a name up once for a connection and connects to what the resolver gave; the resolver gives only
addresses that the guard has seen. So there is no second lookup that could give another answer, and the name
itself stays in ``Host`` and in TLS.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from aiohttp import ClientSession, ClientTimeout, DummyCookieJar, TCPConnector
from aiohttp.abc import AbstractResolver, ResolveResult

from weft.handlers.http.address import Guard, read_addresses

if TYPE_CHECKING:
    from aiohttp.client_proto import ResponseHandler
    from aiohttp.client_reqrep import ConnectionKey

# The addresses of a name, as text.
Lookup: TypeAlias = Callable[[str], Awaitable[Sequence[str]]]

# An address that answers nothing at all is found out long before a node's timeout is over.
_CONNECT_SECONDS = 30.0


def open_session(
    *, guard: Guard | None, limit: int, lookup: Lookup | None = None, keep_alive: bool = True
) -> ClientSession:
    """Open a session on the running loop. Without a guard it may go anywhere: to what an operator named."""
    session = ClientSession(
        connector=_Connector(
            limit=limit, resolver=_Resolver(guard, lookup or look_up), force_close=not keep_alive
        ),
        # The time of a call is its node's timeout.
        timeout=ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS),
        # A call knows nothing of the calls before it.
        cookie_jar=DummyCookieJar(),
        trust_env=False,
        # We decompress within a bound; see response.py.
        auto_decompress=False,
    )
    # An attempt is one call. aiohttp would send some requests again by itself, past the engine's
    # retries and rates; its own test client turns that off in the same way.
    session._retry_connection = False
    return session


class _Connector(TCPConnector):
    """aiohttp's, with a bound on the connections that it keeps for later: as many as may be in use.

    aiohttp's own limit is on those in use. Calls to thousands of hosts would keep thousands of files open.
    """

    def _release(self, key: ConnectionKey, protocol: ResponseHandler, *, should_close: bool = False) -> None:
        kept = sum(map(len, self._conns.values()))
        super()._release(key, protocol, should_close=should_close or kept >= self.limit)


async def look_up(name: str) -> list[str]:
    """Ask the system for the addresses of a name."""
    found = await asyncio.get_running_loop().getaddrinfo(name, None, type=socket.SOCK_STREAM)
    return [str(address[0]) for *_, address in found]


class _Resolver(AbstractResolver):
    def __init__(self, guard: Guard | None, lookup: Lookup) -> None:
        self._guard = guard
        self._lookup = lookup

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        addresses = list(dict.fromkeys(read_addresses(await self._lookup(host))))
        if self._guard is not None:
            addresses = self._guard.choose(host.removesuffix("."), addresses, port)
        if not addresses:
            raise OSError(None, f"{host} has no address")
        return [
            ResolveResult(
                hostname=host,
                host=str(address),
                port=port,
                family=socket.AF_INET if address.version == 4 else socket.AF_INET6,
                proto=0,
                flags=socket.AI_NUMERICHOST,
            )
            for address in addresses
        ]

    async def close(self) -> None:
        """Nothing is kept open."""
