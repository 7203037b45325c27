"""Failures of a call to a service, each with whether another attempt may help."""

from __future__ import annotations

import re
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

from weft.core.time import MICROSECONDS
from weft.errors import HandlerError

if TYPE_CHECKING:
    from weft.core.payload import Json

# Besides all of 5xx.
_RETRYABLE_STATUSES = frozenset({408, 429})
_SECONDS = re.compile(r"[0-9]{1,12}(\.[0-9]{1,9})?\Z")


class NetworkError(HandlerError):
    """No whole response came: no connection, or one that broke."""

    code = "network_error"


class BadResponse(HandlerError):  # noqa: N818 - named like its code
    """A response came, and it is not what was asked for."""

    code = "bad_response"

    def __init__(self, message: str, *, details: Json = None) -> None:
        self.details = details
        super().__init__(message)


class ResponseTooLarge(HandlerError):  # noqa: N818 - as above
    """The body is over MAX_RESPONSE_BYTES. No retry: the same call would give as much again."""

    code = "response_too_large"
    retryable = False


class HttpStatus(HandlerError):  # noqa: N818 - as above
    """The service answered with a status that is no success."""

    code = "http_status"

    def __init__(
        self,
        message: str,
        *,
        status: int,
        retryable: bool,
        retry_after_seconds: float | None = None,
        body: str | None = None,
    ) -> None:
        self.status = status
        self.retryable = retryable
        self.retry_after_seconds = retry_after_seconds
        details: dict[str, Json] = {"status": status}
        if retry_after_seconds is not None:
            # Shown as the service sent it; the wait itself has a ceiling.
            details["retry_after_seconds"] = retry_after_seconds
        if body is not None:
            details["body"] = body
        self.details: Json = details
        super().__init__(message)


def is_retryable(status: int) -> bool:
    """True if a request that got this status may succeed on another attempt."""
    return status in _RETRYABLE_STATUSES or 500 <= status <= 599


def read_retry_after(text: str | None, *, now: int) -> float | None:
    """Return the seconds that a ``Retry-After`` asks to wait, written as seconds or as a date.

    What cannot be read asks for nothing.
    """
    if text is None:
        return None
    text = text.strip()
    if _SECONDS.match(text):
        return float(text)
    try:
        date = parsedate_to_datetime(text)
        until = (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None
    return max(0.0, until - now / MICROSECONDS)
