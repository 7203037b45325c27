"""Reads a Redis URL: the server that the URL names, and the credentials of the client.

redis-py reads such URLs too, but importing it costs a process 23 MB and 0.3 s, and with ``ssl_ca_certs`` it
also trusts the authorities of the system. The options have the names that redis-py gives them.
"""

from __future__ import annotations

import re
import ssl
from dataclasses import dataclass, field
from urllib.parse import parse_qs, unquote, urlsplit

from weft.errors import StoreError

SENTINEL_SCHEMES = ("redis+sentinel", "rediss+sentinel")
_SCHEMES = ("redis", "rediss", "unix", *SENTINEL_SCHEMES)


@dataclass(frozen=True, slots=True)
class Address:
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}" if self.port else self.host


@dataclass(frozen=True, slots=True)
class Sentinels:
    """The sentinels that know which server is the master now, and the credentials for them."""

    addresses: tuple[Address, ...]
    username: str | None
    password: str | None = field(repr=False)


@dataclass(frozen=True, slots=True)
class Target:
    """A parsed URL: the address of the server, and the credentials.

    Where ``sentinels`` know where it is, its address is the name they have for it, without a port.
    """

    address: Address
    username: str | None
    password: str | None = field(repr=False)
    database: int
    tls: ssl.SSLContext | None
    path: str | None = None
    sentinels: Sentinels | None = None


def read_url(url: str) -> Target:
    """Read a URL of one of these forms.

    - ``redis://user:password@host:port/database``, and ``rediss://`` with TLS;
    - ``redis+sentinel://user:password@host:port,host:port/master/database``, and ``rediss+sentinel://``: the
      hosts are Sentinels, the user is one of the master's;
    - ``unix:///path``.

    Options of redis-py that are read: ``db``, and those of ``_tls_of``. Sentinels let in who has
    ``sentinel_username`` and ``sentinel_password``.
    """
    scheme, _, rest = url.partition("://")
    authority = re.split("[/?#]", rest, maxsplit=1)[0]
    account, at, hosts = authority.rpartition("@")
    is_sentinel = scheme in SENTINEL_SCHEMES
    try:
        # Each with all the rest: as one, several hosts are no URL.
        servers = [urlsplit(f"//{account}{at}{host}{rest[len(authority) :]}") for host in hosts.split(",")]
        port = 26379 if is_sentinel else 6379
        addresses = [Address(one.hostname or "127.0.0.1", one.port or port) for one in servers]
    except ValueError:
        raise _unreadable("its host or port cannot be read") from None
    if scheme not in _SCHEMES:
        raise _unreadable(f"it begins with none of {', '.join(f'{one}://' for one in _SCHEMES)}")
    if len(addresses) > 1 and not is_sentinel:
        raise _unreadable("it names several hosts, and does not begin with redis+sentinel://")
    parts = servers[0]
    options = {key: values[-1] for key, values in parse_qs(parts.query).items()}
    path, service, number = None, "", parts.path.strip("/")
    if scheme == "unix":
        path, number = unquote(parts.path), ""
        if not path:
            raise _unreadable("it names no socket")
    if is_sentinel:
        service, _, number = number.partition("/")
        if not service:
            raise _unreadable("it does not name the master, as redis+sentinel://host:26379/mymaster does")
    number = options.get("db") or number or "0"
    if not re.fullmatch("[0-9]{1,9}", number):
        raise _unreadable("what stands for the database is not a number")
    return Target(
        Address(unquote(service), 0) if is_sentinel else addresses[0],
        unquote(parts.username) if parts.username else None,
        unquote(parts.password) if parts.password else None,
        int(number),
        _tls_of(options) if scheme.startswith("rediss") else None,
        path,
        Sentinels(tuple(addresses), options.get("sentinel_username"), options.get("sentinel_password"))
        if is_sentinel
        else None,
    )


def _tls_of(options: dict[str, str]) -> ssl.SSLContext:
    """Return how to speak TLS: whom to trust, and the certificate that the client shows if it has one."""
    try:
        tls = ssl.create_default_context(
            cafile=options.get("ssl_ca_certs"), capath=options.get("ssl_ca_path")
        )
        if "ssl_certfile" in options:
            tls.load_cert_chain(
                options["ssl_certfile"],
                options.get("ssl_keyfile"),
                # Without one, OpenSSL would ask for it on the terminal.
                options.get("ssl_password", ""),
            )
    except OSError as error:
        names = ("ssl_ca_certs", "ssl_ca_path", "ssl_certfile", "ssl_keyfile")
        files = ", ".join(f"{name}={options[name]}" for name in names if name in options)
        raise StoreError(f"the Redis URL cannot be used: one of {files} cannot be: {error}") from error
    if options.get("ssl_check_hostname", "").lower() in ("0", "f", "false", "n", "no"):
        tls.check_hostname = False
    if options.get("ssl_cert_reqs") == "none":
        tls.check_hostname = False
        tls.verify_mode = ssl.CERT_NONE
    return tls


def _unreadable(why: str) -> StoreError:
    # No part of it is shown: in a URL that cannot be read, a password may stand anywhere.
    advice = "in a password, a character such as / or @ is written as %2F or %40"
    return StoreError(f"the Redis URL cannot be used: {why} ({advice})")
