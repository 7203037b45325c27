"""What a Redis URL says: which server it names, and how a client is let in.

redis-py reads such URLs too, but importing it costs a process 23 MB and 0.3 s, and with ``ssl_ca_certs`` it
also trusts the authorities of the system. The options have the names that redis-py gives them.
"""

from __future__ import annotations

import re
import ssl
from dataclasses import dataclass, field
from urllib.parse import parse_qs, unquote, urlsplit

from weft.errors import StoreError

_SCHEMES = ("redis", "rediss", "unix")


@dataclass(frozen=True, slots=True)
class Address:
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Target:
    """What a URL says: where the server is and how to be let in."""

    address: Address
    username: str | None
    password: str | None = field(repr=False)
    database: int
    tls: ssl.SSLContext | None
    path: str | None = None


def read_url(url: str) -> Target:
    """Read ``redis://user:password@host:port/database``, ``rediss://`` or ``unix:///path``.

    Of the options that redis-py knows, ``db`` and those of ``_tls_of`` are read.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "127.0.0.1", parts.port or 6379
    except ValueError:
        raise _unreadable("its host or port cannot be read") from None
    if parts.scheme not in _SCHEMES:
        raise _unreadable(f"it begins with none of {', '.join(f'{one}://' for one in _SCHEMES)}")
    options = {key: values[-1] for key, values in parse_qs(parts.query).items()}
    path = unquote(parts.path) if parts.scheme == "unix" else None
    number = options.get("db") or ("" if path else parts.path.strip("/")) or "0"
    if not re.fullmatch("[0-9]{1,9}", number):
        raise _unreadable("what stands for the database is not a number")
    if path == "":
        raise _unreadable("it names no socket")
    return Target(
        Address(host, port),
        unquote(parts.username) if parts.username else None,
        unquote(parts.password) if parts.password else None,
        int(number),
        _tls_of(options) if parts.scheme == "rediss" else None,
        path,
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
