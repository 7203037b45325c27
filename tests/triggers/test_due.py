"""Due times: which start now, which were missed, and who has to agree on them."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from weft.core.time import MICROSECONDS, micros
from weft.triggers.due import changed_row, due_between, due_times, fire_time, upcoming_times
from weft.triggers.model import CatchUp, Overlap, Schedule, Trigger, TriggerRow
from weft.triggers.overlap import MAX_QUEUED, Step, decide

START = 1_790_000_000 * MICROSECONDS
MINUTE = 60 * MICROSECONDS


def row_of(**schedule: Any) -> TriggerRow:
    trigger = Trigger(name="t", workflow="w", schedule=Schedule(**{"every_seconds": 60, **schedule}))
    return changed_row(None, trigger, namespace="default", now=START)


def test_seconds_count_from_the_last_change() -> None:
    row = row_of()
    assert (row.next_at, row.revision, row.changed_at) == (START + MINUTE, 1, START)
    later = changed_row(row, row.trigger, namespace="default", now=START + 5)
    assert (later.next_at, later.revision, later.created_at) == (START + 5 + MINUTE, 2, START)
    off = changed_row(row, replace(row.trigger, enabled=False), namespace="default", now=START)
    assert (off.next_at, off.fire_at) == (None, None)


def test_nothing_is_due_too_early() -> None:
    due = due_times(row_of(), now=START + MINUTE - 1, grace_seconds=60)
    assert (due.starts, due.next_at) == ([], START + MINUTE)
    due = due_times(row_of(), now=START + MINUTE, grace_seconds=60)
    assert (due.starts, due.next_at) == ([START + MINUTE], START + 2 * MINUTE)


@pytest.mark.parametrize("catch_up", CatchUp)
def test_what_is_late_within_the_grace_always_starts(catch_up: CatchUp) -> None:
    row = row_of(every_seconds=20, catch_up=catch_up)
    first = START + micros(20)
    due = due_times(row, now=first + micros(60), grace_seconds=60)
    assert due.starts == [first, first + micros(20), first + micros(40), first + micros(60)]


@pytest.mark.parametrize(
    ("catch_up", "missed"), [(CatchUp.NONE, []), (CatchUp.LATEST, [9]), (CatchUp.ALL, list(range(1, 10)))]
)
def test_an_outage_leaves_what_catch_up_says(catch_up: CatchUp, missed: list[int]) -> None:
    now = START + 10 * MINUTE + micros(30)
    due = due_times(row_of(catch_up=catch_up), now=now, grace_seconds=60)
    assert due.starts == [START + n * MINUTE for n in [*missed, 10]]
    assert due.next_at == START + 11 * MINUTE


@pytest.mark.parametrize("schedule", [{"every_seconds": 1}, {"every_seconds": None, "cron": "* * * * * *"}])
def test_no_more_than_a_thousand_are_caught_up_and_they_are_the_newest(schedule: dict[str, Any]) -> None:
    now = START + micros(366 * 86_400)
    due = due_times(row_of(**schedule, catch_up=CatchUp.ALL), now=now, grace_seconds=0)
    # With what is due at this very moment.
    assert len(due.starts) == 1_001
    assert due.starts[-1] == now
    assert due.starts[0] == now - micros(1_000)


def test_a_rare_schedule_is_caught_up_over_years() -> None:
    row = row_of(every_seconds=None, cron="0 0 1 1 *", catch_up=CatchUp.ALL)
    due = due_times(row, now=START + micros(5 * 365 * 86_400), grace_seconds=60)
    assert len(due.starts) == 5


def test_jitter_is_the_same_in_every_process_and_within_its_bound() -> None:
    schedule = Schedule(every_seconds=60, jitter_seconds=30)
    fires = [fire_time("t", schedule, START + n * MINUTE) for n in range(200)]
    late = [at - (START + n * MINUTE) for n, at in enumerate(fires)]
    assert fires == [fire_time("t", schedule, START + n * MINUTE) for n in range(200)]
    assert 0 <= min(late) < micros(5)
    assert micros(25) < max(late) < micros(30)
    assert fire_time("other", schedule, START) != fires[0]


def test_a_due_time_keeps_its_nominal_time() -> None:
    row = row_of(jitter_seconds=30)
    assert row.next_at == START + MINUTE
    assert row.fire_at is not None
    assert START + MINUTE < row.fire_at < START + MINUTE + micros(30)
    assert due_times(row, now=row.fire_at - 1, grace_seconds=60).starts == []
    assert due_times(row, now=row.fire_at, grace_seconds=60).starts == [START + MINUTE]


def test_the_due_times_of_a_span_may_lie_before_the_change() -> None:
    schedule = Schedule(every_seconds=60)
    start, end = START - 5 * MINUTE, START - 2 * MINUTE
    found = due_between(schedule, anchor=START, start=start, end=end, most=99)
    assert found == [START - 5 * MINUTE, START - 4 * MINUTE, START - 3 * MINUTE]
    cron = Schedule(cron="0 0 * * *")
    found = due_between(cron, anchor=START, start=START - micros(3 * 86_400), end=START, most=2)
    assert len(found) == 2


def test_overlap_decides_on_what_runs_and_what_waits() -> None:
    for overlap in Overlap:
        assert decide(overlap, running=0, queued=0) is Step.START
    assert decide(Overlap.ALLOW, running=5, queued=0) is Step.START
    assert decide(Overlap.SKIP, running=1, queued=0) is Step.SKIP
    assert decide(Overlap.CANCEL_RUNNING, running=1, queued=0) is Step.CANCEL
    assert decide(Overlap.QUEUE, running=0, queued=1) is Step.QUEUE
    assert decide(Overlap.QUEUE, running=1, queued=MAX_QUEUED - 1) is Step.QUEUE
    assert decide(Overlap.QUEUE, running=1, queued=MAX_QUEUED) is Step.SKIP


def test_the_upcoming_due_times_begin_with_the_next_one() -> None:
    row = row_of()
    assert upcoming_times(row, most=3) == [START + MINUTE, START + 2 * MINUTE, START + 3 * MINUTE]
    assert upcoming_times(replace(row, next_at=None), most=3) == []
