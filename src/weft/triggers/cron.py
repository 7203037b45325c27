"""Cron expressions in a time zone: which moments they name, over changes of clocks too.

cronsim reads the expression and walks local times, which know no zone; this module finds the moments that the
local times stand for. cronsim's own rule for zones treats only expressions of five fields whose minutes begin
with no star as fixed. Here the field of hours alone decides, as ``docs/howto/schedules.md`` says:

- fixed hours run once on a day on which clocks change: a local time that is skipped stands for the first
  moment after the gap, and of a time that comes twice the first counts;
- ``*`` or ``*/n`` in the hours goes by elapsed time: what a gap leaves out is left out, and what comes twice
  runs twice.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

from weft.core.time import MICROSECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator

# Longer ones name nothing that a shorter one does not.
MAX_CHARACTERS = 200
# Local times: they have no zone.
_EPOCH = datetime(1970, 1, 1)
_START = datetime(2026, 1, 1)
_MICROSECOND = timedelta(microseconds=1)
_SECOND = timedelta(seconds=1)
# No zone has changed its clocks twice within a day, nor by more than a day.
_PROBE = timedelta(days=1)
_FIELDS = 6


class CronError(ValueError):
    """A cron expression or the name of a time zone that cannot be used."""


def read_zone(name: str) -> ZoneInfo:
    """Return a time zone by its IANA name; raises CronError."""
    try:
        # What the database of time zones is asked for is a path in it.
        if not name or len(name) > MAX_CHARACTERS or name.startswith("/") or ".." in name:
            raise ValueError
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise CronError(f"there is no time zone {name[:80]!r}; use a name as Europe/Berlin, or UTC") from None


class Cron:
    """A cron expression of five fields, or of six that begin with the seconds, in a time zone."""

    def __init__(self, expression: str, zone: ZoneInfo) -> None:
        """Raises CronError where the expression cannot be read, or names no moment at all."""
        self._expression = expression
        self._zone = zone
        if len(expression) > MAX_CHARACTERS:
            raise CronError(f"{len(expression):,} characters; the limit is {MAX_CHARACTERS}")
        try:
            fields = CronSim(expression, _START).parts
            next(CronSim(expression, _START))
        except CronSimError as error:
            raise CronError(_explained(expression, str(error))) from None
        except StopIteration:
            raise CronError(f"{expression!r} names no day that ever comes") from None
        self._goes_by_elapsed_time = fields[_FIELDS - 4].startswith("*")

    def after(self, at: int) -> int | None:
        """Return the first moment behind ``at``, both in microseconds since 1970; None: none will come."""
        return next(self.moments(at), None)

    def moments(self, after: int) -> Iterator[int]:
        """Yield the moments behind ``after``, in order and each once."""
        moments = self._elapsed(after) if self._goes_by_elapsed_time else self._fixed(after)
        for moment in moments:
            if moment > after:
                yield moment
                after = moment

    def _elapsed(self, after: int) -> Iterator[int]:
        at = _EPOCH + after * _MICROSECOND
        offset = self._offset(at)
        local_times = CronSim(self._expression, at + offset)
        while (local := next(local_times, None)) is not None:
            moment = local - offset
            changed_at = self._change(at, moment)
            if changed_at is None or moment < changed_at:
                yield _micros(moment)
                at = moment
                continue
            # Local times go on from the first moment of the other offset, which may be one that is named.
            at, offset = changed_at, self._offset(changed_at)
            local_times = CronSim(self._expression, at + offset - _SECOND)

    def _fixed(self, after: int) -> Iterator[int]:
        at = _EPOCH + after * _MICROSECOND
        # No earlier local time stands for a later moment. What clocks that went back show again is behind
        # ``after`` and stands for an earlier one: ``moments`` leaves that out.
        for local in CronSim(self._expression, at + self._offset(at)):
            yield _micros(self._moment(local))

    def _moment(self, local: datetime) -> datetime:
        """Return the moment in UTC that a local time stands for."""
        first = local.replace(tzinfo=self._zone, fold=0)
        offset, later_offset = first.utcoffset(), first.replace(fold=1).utcoffset()
        assert offset is not None
        assert later_offset is not None
        if later_offset <= offset:
            # It comes once; or twice, and this is the first.
            return local - offset
        # A gap: clocks went forward between these two moments.
        changed_at = self._change(local - later_offset, local - offset)
        assert changed_at is not None
        return changed_at

    def _offset(self, moment: datetime) -> timedelta:
        """Return by how much the zone's clocks are ahead of UTC."""
        offset = moment.replace(tzinfo=UTC).astimezone(self._zone).utcoffset()
        assert offset is not None
        return offset

    def _change(self, start: datetime, end: datetime) -> datetime | None:
        """Return the first moment behind ``start``, up to ``end``, at which the clocks change."""
        offset = self._offset(start)
        while start < end:
            probe = min(start + _PROBE, end)
            if self._offset(probe) != offset:
                return self._bisect(start, probe, offset)
            start = probe
        return None

    def _bisect(self, before: datetime, behind: datetime, offset: timedelta) -> datetime:
        # Clocks change at whole seconds.
        before, behind = before.replace(microsecond=0), behind.replace(microsecond=0) + _SECOND
        while behind - before > _SECOND:
            middle = before + timedelta(seconds=(behind - before) // _SECOND // 2)
            if self._offset(middle) == offset:
                before = middle
            else:
                behind = middle
        return behind


@lru_cache(maxsize=1_024)
def read_cron(expression: str, timezone: str) -> Cron:
    """Return a cron expression in a zone; raises CronError."""
    return Cron(expression, read_zone(timezone))


def _micros(moment: datetime) -> int:
    since = moment - _EPOCH
    return (since.days * 86_400 + since.seconds) * MICROSECONDS + since.microseconds


def _explained(expression: str, message: str) -> str:
    """Return what is wrong with an expression; cronsim names the field."""
    if "fields" in message:
        return (
            f"{expression!r} has {len(expression.split())} fields; use five, as in 0 3 * * *, or six that "
            "begin with the seconds"
        )
    field = message.removeprefix("Bad ").replace("-", " ")
    return f"{expression!r} has a bad field, the {field}"
