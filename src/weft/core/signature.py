"""A signature on each task, which its result brings back: anybody may have written what a stream holds."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable

# (execution id, generation, node id, attempt) → the signature of that attempt
Signer = Callable[[str, int, str, int], bytes]

_SIGNATURE_BYTES = 16


def make_signer(key: bytes) -> Signer:
    """Return the signer of a fleet whose processes share a key."""

    def sign(execution_id: str, generation: int, node_id: str, attempt: int) -> bytes:
        # Neither an id nor a node's name can hold a line break.
        about = f"{execution_id}\n{generation}\n{node_id}\n{attempt}".encode()
        return hashlib.blake2b(about, key=key, digest_size=_SIGNATURE_BYTES).digest()

    return sign


def verify(signature: bytes, expected: bytes) -> bool:
    """True if a signature is the expected one; compared in a time that says nothing about them."""
    return hmac.compare_digest(signature, expected)
