"""Which addresses a workflow may reach: public ones, and those that the operator has named.

A workflow's URL is data from whoever may write or start one, and the worker stands inside the operator's
network. So a URL is judged by the addresses that are connected to, never by how it is spelled: every address
a name resolves to is looked up in the networks below, and the connection goes to an address that was.
"""

from __future__ import annotations

import re
import socket
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import TYPE_CHECKING, TypeAlias

from weft.errors import HandlerError, SettingsError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Address: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network

# The special-purpose registries of IANA, written out: what Python calls global has changed between its
# releases. An IPv6 address is public only inside 2000::/3, so most of that registry need not be listed.
_NOT_PUBLIC_4 = tuple(
    IPv4Network(network)
    for network in (
        "0.0.0.0/8",  # this network; 0.0.0.0 reaches this machine
        "10.0.0.0/8",  # private
        "100.64.0.0/10",  # shared by the customers of a provider; some clouds keep metadata here
        "127.0.0.0/8",  # this machine
        "168.63.129.16/32",  # the host of a virtual machine on Azure
        "169.254.0.0/16",  # link-local; the metadata of most clouds
        "172.16.0.0/12",  # private
        "192.0.0.0/24",  # protocol assignments
        "192.0.2.0/24",  # documentation
        "192.88.99.0/24",  # relays of 6to4
        "192.168.0.0/16",  # private
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, and broadcast
    )
)
_PUBLIC_6 = IPv6Network("2000::/3")
_NOT_PUBLIC_6 = tuple(
    IPv6Network(network)
    for network in (
        "2001::/23",  # protocol assignments, Teredo among them, which wraps an IPv4 address
        "2001:db8::/32",  # documentation
        "2002::/16",  # 6to4, which wraps an IPv4 address
        "3fff::/20",  # documentation
    )
)
# On a network without IPv4, DNS wraps public IPv4 addresses in this prefix; what is inside decides.
_NAT64 = IPv6Network("64:ff9b::/96")

_NAME = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,62})(\.[a-z0-9_]([a-z0-9_-]{0,62}))*\Z")
_MAX_NAME_CHARACTERS = 253
# What the C library takes for an IPv4 address: 2130706433, 0x7f000001, 0177.0.0.1, 127.1.
_NUMERIC = re.compile(r"([0-9]+|0x[0-9a-f]*)(\.([0-9]+|0x[0-9a-f]*))*\Z")
_ENTRY = re.compile(r"(?P<host>\[[^\]]*\]|[^:\[\]]*)(:(?P<port>[0-9]{1,5}))?\Z")


class BlockedAddress(HandlerError):  # noqa: N818 - named like its code
    """The address is one that a workflow may not reach. The same call would be refused again."""

    code = "blocked_address"
    retryable = False


def is_public(address: Address) -> bool:
    """True if an address belongs to the public internet."""
    if isinstance(address, IPv6Address):
        inner = _wrapped(address)
        if inner is None:
            return address in _PUBLIC_6 and not any(address in network for network in _NOT_PUBLIC_6)
        address = inner
    return not any(address in network for network in _NOT_PUBLIC_4)


@lru_cache(maxsize=1024)
def read_host(host: str) -> Address | str:
    """Return the IP address that a URL's host spells out in any notation, or else the host name.

    ``host`` is as a URL has it, encoded to ASCII. Raises ValueError where it is neither.
    """
    host = host.lower().removesuffix(".")
    if ":" in host:
        address = IPv6Address(host)
        if address.scope_id is not None:
            raise ValueError("an address with a zone is one of this machine's own links")
        return address
    if _NUMERIC.match(host):
        try:
            return IPv4Address(socket.inet_aton(host))
        except OSError:
            raise ValueError("it is neither a name nor an IPv4 address") from None
    if len(host) > _MAX_NAME_CHARACTERS or not _NAME.match(host):
        raise ValueError("it is neither a name nor an address")
    return host


@dataclass(frozen=True, slots=True)
class _Entry:
    """One of HTTP_ALLOW: a name or a network, on one port or on all of them."""

    what: str | Network
    port: int | None = None


class Guard:
    """Decides which addresses an HTTP request may connect to, by WEFT_HTTP_ALLOW."""

    def __init__(self, allow: Iterable[str] = ()) -> None:
        """Read the entries: names, addresses, each perhaps with a port; networks; ``*`` for all."""
        entries = [text.strip() for text in allow]
        self._allows_all = "*" in entries
        self._entries = [_read_entry(text) for text in entries if text != "*"]

    def check_address(self, address: Address, port: int) -> None:
        """Raise BlockedAddress unless an address that a URL spells out may be reached."""
        if not (self._is_named(address, port) or is_public(address)):
            raise BlockedAddress(f"{_shown(address, port)} is not a public address; {_WAY_OUT}")

    def choose(self, name: str, addresses: Sequence[Address], port: int) -> list[Address]:
        """Return the addresses of a name that may be connected to, or raise BlockedAddress.

        Where HTTP_ALLOW has some of them, it is those. Otherwise all must be public: a name with one
        address outside and one inside is a trap, or a mistake.
        """
        if self._allows_all or any(
            entry.what == name and entry.port in (None, port) for entry in self._entries
        ):
            return list(addresses)
        named = [address for address in addresses if self._is_named(address, port)]
        if named:
            return named
        for address in addresses:
            if not is_public(address):
                raise BlockedAddress(
                    f"{name} resolves to {_shown(address, port)}, which is not a public address; {_WAY_OUT}"
                )
        return list(addresses)

    def _is_named(self, address: Address, port: int) -> bool:
        if self._allows_all:
            return True
        plain = (_mapped(address) or address) if isinstance(address, IPv6Address) else address
        return any(
            not isinstance(entry.what, str) and plain in entry.what and entry.port in (None, port)
            for entry in self._entries
        )


_WAY_OUT = "the operator may allow it by WEFT_HTTP_ALLOW"


def _read_entry(text: str) -> _Entry:
    """Read one entry of HTTP_ALLOW."""
    try:
        return _Entry(ip_network(text))
    except ValueError:
        pass
    match = _ENTRY.match(text)
    try:
        if match is None or not match["host"]:
            raise ValueError("it is empty, or has two colons without brackets")
        port = None if match["port"] is None else int(match["port"])
        if port is not None and not 0 < port < 65536:
            raise ValueError("a port is from 1 to 65535")
        host = match["host"].encode("idna").decode() if not match["host"].isascii() else match["host"]
        found = read_host(host.strip("[]"))
    except ValueError as error:
        raise SettingsError(
            f"WEFT_HTTP_ALLOW needs hosts, host:port, addresses, networks or *, not {text!r}: {error}"
        ) from None
    return _Entry(found if isinstance(found, str) else ip_network(found), port)


def _wrapped(address: IPv6Address) -> IPv4Address | None:
    """Return the IPv4 address that is reached through an IPv6 address, or None if there is none."""
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFF_FFFF)
    return _mapped(address)


def _mapped(address: IPv6Address) -> IPv4Address | None:
    return address.ipv4_mapped


def _shown(address: Address, port: int) -> str:
    return f"[{address}]:{port}" if isinstance(address, IPv6Address) else f"{address}:{port}"


def read_addresses(texts: Iterable[str]) -> list[Address]:
    """Read what a lookup gave. A zone is left out: what is on a link is not public anyway."""
    return [ip_address(text.partition("%")[0]) for text in texts]
