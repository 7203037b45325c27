"""The due times of a schedule: which come next, and which of those that were missed still start."""

from __future__ import annotations

import hashlib
from collections import deque
from itertools import islice, takewhile
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from weft.core.time import MICROSECONDS, micros
from weft.triggers.cron import read_cron
from weft.triggers.model import CatchUp, TriggerRow

if TYPE_CHECKING:
    from collections.abc import Iterator

    from weft.triggers.model import Schedule, Trigger

# Of what an outage has left, no more than this starts: the newest.
MAX_CAUGHT_UP = 1_000
# The spans in which the last due times before a moment are looked for, one after the other.
_LOOK_BACK_SECONDS = (3_600, 86_400, 32 * 86_400, 366 * 86_400, 10 * 366 * 86_400)


class DueTimes(msgspec.Struct, frozen=True):
    """The due times that start now, in order, and the next one; None: none will come."""

    starts: list[int]
    next_at: int | None


def moments(schedule: Schedule, *, anchor: int, after: int) -> Iterator[int]:
    """Yield the due times of a schedule behind ``after``; ``anchor``: the last change of its trigger."""
    if schedule.cron is not None:
        yield from read_cron(schedule.cron, schedule.timezone).moments(after)
        return
    assert schedule.every_seconds is not None
    every = micros(schedule.every_seconds)
    at = anchor + max(1, (after - anchor) // every + 1) * every
    while True:
        yield at
        at += every


def first_after(schedule: Schedule, *, anchor: int, after: int) -> int | None:
    """Return the first due time behind ``after``."""
    return next(moments(schedule, anchor=anchor, after=after), None)


def upcoming_times(row: TriggerRow, *, most: int) -> list[int]:
    """Return the next due times of a trigger; none, where it has no schedule or is disabled."""
    schedule = row.trigger.schedule
    if schedule is None or row.next_at is None:
        return []
    return list(islice(moments(schedule, anchor=row.changed_at, after=row.next_at - 1), most))


def fire_time(name: str, schedule: Schedule, due_at: int) -> int:
    """Return when a due time fires: with a jitter that is the same in every process."""
    jitter = micros(schedule.jitter_seconds)
    if jitter <= 0:
        return due_at
    digest = hashlib.blake2b(f"{name}\n{due_at}".encode(), digest_size=8).digest()
    return due_at + int.from_bytes(digest) * jitter // 2**64


def changed_row(stored: TriggerRow | None, trigger: Trigger, *, namespace: str, now: int) -> TriggerRow:
    """Return the row of a trigger that is stored, or changed, now: its due times count from here."""
    row = TriggerRow(
        namespace=namespace,
        trigger=trigger,
        revision=1 if stored is None else stored.revision + 1,
        created_at=now if stored is None else stored.created_at,
        changed_at=now,
        skipped=0 if stored is None else stored.skipped,
        skipped_at=None if stored is None else stored.skipped_at,
    )
    schedule = trigger.schedule
    next_at = None
    if schedule is not None and trigger.enabled:
        next_at = first_after(schedule, anchor=now, after=now)
    if schedule is None or next_at is None:
        return row
    return replace(row, next_at=next_at, fire_at=fire_time(trigger.name, schedule, next_at))


def due_times(row: TriggerRow, *, now: int, grace_seconds: float) -> DueTimes:
    """Return the due times of an enabled schedule that start now.

    A due time that is late by no more than the grace always starts. What lies further back was missed, and
    ``catch_up`` says which of that start.
    """
    schedule = row.trigger.schedule
    assert schedule is not None
    assert row.next_at is not None
    name = row.trigger.name
    late = now - micros(grace_seconds)
    missed_until = late - micros(schedule.jitter_seconds)
    starts: list[int] = []
    first = row.next_at
    if first < missed_until:
        starts = _caught_up(schedule, row.changed_at, first, missed_until)
        first = missed_until
    for at in moments(schedule, anchor=row.changed_at, after=first - 1):
        fire_at = fire_time(name, schedule, at)
        if fire_at > now:
            return DueTimes(starts, at)
        if fire_at < late:
            # Missed as well, by its own jitter.
            starts = _caught(schedule.catch_up, starts, at)
        else:
            starts.append(at)
    return DueTimes(starts, None)


def _caught(catch_up: CatchUp, starts: list[int], at: int) -> list[int]:
    match catch_up:
        case CatchUp.NONE:
            return []
        case CatchUp.LATEST:
            return [at]
        case CatchUp.ALL:
            return [*starts, at][-MAX_CAUGHT_UP:]


def _caught_up(schedule: Schedule, anchor: int, first: int, until: int) -> list[int]:
    """Return those of the due times from ``first`` on and before ``until`` that start all the same."""
    most = {CatchUp.NONE: 0, CatchUp.LATEST: 1, CatchUp.ALL: MAX_CAUGHT_UP}[schedule.catch_up]
    return last_moments(schedule, anchor=anchor, first=first, until=until, most=most) if most else []


def last_moments(schedule: Schedule, *, anchor: int, first: int, until: int, most: int) -> list[int]:
    """Return the last due times from ``first`` on and before ``until``, no more than ``most``."""
    if schedule.every_seconds is not None:
        # Of a second over a year there are too many to be walked.
        first = max(first, until - (most + 1) * micros(schedule.every_seconds))
    for seconds in (*_LOOK_BACK_SECONDS, None):
        start = first if seconds is None else max(first, until - seconds * MICROSECONDS)
        found = deque(
            takewhile(lambda at: at < until, moments(schedule, anchor=anchor, after=start - 1)), maxlen=most
        )
        if len(found) == most or start == first:
            break
    return list(found)


def due_between(schedule: Schedule, *, anchor: int, start: int, end: int, most: int) -> list[int]:
    """Return the due times from ``start`` on and before ``end``: the first ones, at most ``most``."""
    found: list[int] = []
    if schedule.every_seconds is not None:
        # A span may lie before the last change: then the same rhythm goes on backwards.
        every = micros(schedule.every_seconds)
        anchor -= max(0, (anchor - start) // every + 2) * every
    for at in moments(schedule, anchor=anchor, after=start - 1):
        if at >= end or len(found) == most:
            break
        found.append(at)
    return found
