"""Maps keys to the servers of a Redis Cluster."""

from __future__ import annotations

from binascii import crc_hqx
from typing import Any

from weft.redis.address import Address

_SLOTS = 16384


def slot_of(tag: str) -> int:
    """Return the cluster slot of all keys with this hash tag."""
    return crc_hqx(tag.encode(), 0) % _SLOTS


def slot_of_key(key: str) -> int:
    """Return the cluster slot of a key: of its hash tag, the text in its first braces, or of all of it."""
    _, brace, rest = key.partition("{")
    tag, closing, _ = rest.partition("}")
    return slot_of(tag if brace and closing and tag else key)


def read_slots(reply: Any, asked: Address) -> list[tuple[int, int, Address]]:
    """Read the answer to CLUSTER SLOTS: (first slot, last slot, server); ``asked`` gave it."""
    found = []
    for first, last, server, *_ in reply:
        host = server[0].decode() if server[0] else asked.host
        found.append((int(first), int(last), Address(host, int(server[1]))))
    return found
