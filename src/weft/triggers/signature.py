"""Checks the signature of a webhook: its sender knows the secret, and signed the body as it came.

Every comparison takes the same time whatever was sent, so that it tells nothing of the secret.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from typing import TYPE_CHECKING, assert_never

from weft.triggers.model import Scheme

if TYPE_CHECKING:
    from collections.abc import Mapping

# Headers that a token may come in, beside ``Authorization: Bearer``.
TOKEN_HEADERS = ("x-weft-token", "x-webhook-token", "x-gitlab-token")
GITHUB_HEADER = "x-hub-signature-256"
STRIPE_HEADER = "stripe-signature"
# What proves the sender is not shown to templates: it may be kept in an execution's input otherwise. GitHub
# sends a second signature, by SHA-1, which nothing here reads.
HIDDEN_HEADERS = frozenset(
    {
        *("authorization", "proxy-authorization", "cookie", "x-api-key", "x-hub-signature"),
        *TOKEN_HEADERS,
        GITHUB_HEADER,
        STRIPE_HEADER,
    }
)
# A signature with a time is good for so long before and after: nobody can send it again later.
TOLERANCE_SECONDS = 300
# Stripe sends two while a secret is being replaced.
_MAX_SIGNATURES = 10
_MAX_HEADER = 4_096
_GITHUB_FORM = re.compile(r"sha256=[0-9a-f]{64}")


def may_be_signed(scheme: Scheme, secret: str, headers: Mapping[str, str], *, now_seconds: int) -> bool:
    """False if a request is refused whatever its body is: then nobody reads the body.

    Names of ``headers`` are in lower case.
    """
    match scheme:
        case Scheme.TOKEN:
            return _has_token(secret, headers)
        case Scheme.GITHUB:
            return _GITHUB_FORM.fullmatch(headers.get(GITHUB_HEADER, "")) is not None
        case Scheme.STRIPE:
            return _stripe_signatures(headers, now_seconds) is not None
        case _:
            assert_never(scheme)


def is_signed(
    scheme: Scheme, secret: str, body: bytes, headers: Mapping[str, str], *, now_seconds: int
) -> bool:
    """True if a request proves that its sender knows the secret; names of ``headers`` are in lower case."""
    match scheme:
        case Scheme.TOKEN:
            return _has_token(secret, headers)
        case Scheme.GITHUB:
            return _is_signed_by_github(secret, body, headers)
        case Scheme.STRIPE:
            return _is_signed_by_stripe(secret, body, headers, now_seconds)
        case _:
            assert_never(scheme)


def _has_token(secret: str, headers: Mapping[str, str]) -> bool:
    given = [headers[name] for name in TOKEN_HEADERS if name in headers]
    word, _, bearer = headers.get("authorization", "").partition(" ")
    if word.lower() == "bearer":
        given.append(bearer.strip())
    matches = [_is_equal(token, secret) for token in given]
    return any(matches)


def _is_signed_by_github(secret: str, body: bytes, headers: Mapping[str, str]) -> bool:
    return _is_equal(headers.get(GITHUB_HEADER, ""), "sha256=" + _hmac(secret, body))


def _is_signed_by_stripe(secret: str, body: bytes, headers: Mapping[str, str], now_seconds: int) -> bool:
    found = _stripe_signatures(headers, now_seconds)
    if found is None:
        return False
    signed_at, signatures = found
    expected = _hmac(secret, signed_at.encode() + b"." + body)
    matches = [_is_equal(signature, expected) for signature in signatures]
    return any(matches)


def _stripe_signatures(headers: Mapping[str, str], now_seconds: int) -> tuple[str, list[str]] | None:
    """Return the time of a request and its signatures; None: it has none, or another time than now."""
    pairs = [
        part.strip().partition("=")[::2] for part in headers.get(STRIPE_HEADER, "")[:_MAX_HEADER].split(",")
    ]
    times = [value for key, value in pairs if key == "t"]
    signatures = [value for key, value in pairs if key == "v1"][:_MAX_SIGNATURES]
    if len(times) != 1 or not (times[0].isascii() and times[0].isdigit() and len(times[0]) <= 15):
        return None
    if not signatures or abs(now_seconds - int(times[0])) > TOLERANCE_SECONDS:
        return None
    return times[0], signatures


def _hmac(secret: str, message: bytes) -> str:
    return hmac.new(secret.encode(), message, hashlib.sha256).hexdigest()


def _is_equal(given: str, expected: str) -> bool:
    # As digests of the same length: the length of a secret is nobody's business either.
    one, other = (hashlib.sha256(text.encode("utf-8", "replace")).digest() for text in (given, expected))
    return hmac.compare_digest(one, other)
