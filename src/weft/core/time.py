"""Times are whole microseconds since 1970 in UTC inside the engine, RFC 3339 text outside."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

MICROSECONDS = 1_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def micros(seconds: float) -> int:
    return round(seconds * MICROSECONDS)


def parse_rfc3339(text: str) -> int:
    """Read a time as people write it; raises ValueError where it is none, or has no offset."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None or "T" not in text.upper():
        raise ValueError("must be a time as in 2026-01-31T09:30:00Z")
    return (moment - _EPOCH) // timedelta(microseconds=1)


def rfc3339(at: int) -> str:
    moment = _EPOCH + timedelta(microseconds=at)
    return moment.isoformat(timespec="microseconds").removesuffix("+00:00") + "Z"
