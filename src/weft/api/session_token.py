"""Signed tokens of sessions: what a browser's cookie holds instead of an API key.

A token names its API key by the fingerprint, says until when it is good, and is signed with a secret that is
derived from the hash of that key. So no process stores sessions, every API process with the same key accepts
the token, and a key that is taken out of WEFT_API_KEYS takes all its sessions with it.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from base64 import urlsafe_b64encode
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from weft.api.caller import ApiCaller

# A working day, and what comes before and after it.
SESSION_SECONDS = 12 * 3600
# A token has about 100 characters.
_MAX_TOKEN = 256


@dataclass(frozen=True, slots=True)
class ConsoleSession:
    """A session of a browser: its caller, and what the page sends back to show that it is our page."""

    caller: ApiCaller
    csrf: str


class SessionTokens:
    """Signs and reads the tokens of sessions."""

    def __init__(self, callers: Iterable[tuple[bytes, ApiCaller]]) -> None:
        """``callers``: the hash of each API key, with the caller whose key it is."""
        # One secret for each use, so that no signature of one stands for another.
        self._secrets = [(_mac(digest, b"weft session"), caller) for digest, caller in callers]

    def sign(self, caller: ApiCaller, *, now_seconds: int) -> tuple[str, ConsoleSession]:
        """Return a new token for the caller with an API key, and the session that it stands for."""
        secret = next(secret for secret, one in self._secrets if one == caller)
        payload = f"{now_seconds + SESSION_SECONDS}.{secrets.token_urlsafe(12)}.{caller.name}"
        token = f"{payload}.{_text(_mac(secret, payload.encode()))}"
        return token, ConsoleSession(caller, _csrf(secret, token))

    def read(self, token: str, *, now_seconds: int) -> ConsoleSession | None:
        """Return the session of a token; None: not signed by a key of this server, or it is over."""
        if len(token) > _MAX_TOKEN or not token.isascii():
            return None
        payload, _, signature = token.rpartition(".")
        found = None
        # All keys are tried, and compared in constant time, as API keys are.
        for secret, caller in self._secrets:
            if hmac.compare_digest(_text(_mac(secret, payload.encode())), signature):
                found = ConsoleSession(caller, _csrf(secret, token))
        # Only we sign, so the payload is as we wrote it.
        return found if found is not None and now_seconds < int(payload.partition(".")[0]) else None


def _csrf(secret: bytes, token: str) -> str:
    return _text(_mac(_mac(secret, b"csrf"), token.encode()))


def _mac(key: bytes, message: bytes) -> bytes:
    return hmac.digest(key, message, hashlib.sha256)


def _text(value: bytes) -> str:
    return urlsafe_b64encode(value).decode().rstrip("=")
