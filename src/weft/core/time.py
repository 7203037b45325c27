"""Times are whole microseconds since 1970 in UTC inside the engine, RFC 3339 text outside."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

MICROSECONDS = 1_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def micros(seconds: float) -> int:
    return round(seconds * MICROSECONDS)


def rfc3339(at: int) -> str:
    moment = _EPOCH + timedelta(microseconds=at)
    return moment.isoformat(timespec="microseconds").removesuffix("+00:00") + "Z"
