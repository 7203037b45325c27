"""A seal on each task, which its result brings back: what is read from a stream anybody may have written."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable

# (execution id, generation, node id, attempt) → the seal of that attempt
Seal = Callable[[str, int, str, int], bytes]

_SEAL_BYTES = 16


def sealer(key: bytes) -> Seal:
    """Make the seals of a fleet that shares a key."""

    def seal(execution_id: str, generation: int, node_id: str, attempt: int) -> bytes:
        # Neither an id nor a node's name can hold a line break.
        about = f"{execution_id}\n{generation}\n{node_id}\n{attempt}".encode()
        return hashlib.blake2b(about, key=key, digest_size=_SEAL_BYTES).digest()

    return seal


def fits(seal: bytes, expected: bytes) -> bool:
    """Compare two seals in a time that says nothing about them."""
    return hmac.compare_digest(seal, expected)
