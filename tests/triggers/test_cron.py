"""Cron expressions in zones: the moments they name, over changes of clocks too."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise

import pytest
from cronsim import CronSim
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.core.time import MICROSECONDS
from weft.triggers.cron import CronError, read_cron, read_zone

BERLIN, NEW_YORK, LORD_HOWE = "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"


def named(expression: str, zone: str, start: str, count: int) -> list[str]:
    """List the first moments behind a local time, as local times with their offsets."""
    tz = read_zone(zone)
    after = datetime.fromisoformat(start).replace(tzinfo=tz)
    moments = read_cron(expression, zone).moments(round(after.timestamp()) * MICROSECONDS)
    return [
        datetime.fromtimestamp(at / MICROSECONDS, UTC).astimezone(tz).strftime("%d %H:%M:%S %z")
        for at in islice(moments, count)
    ]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("*/15 9-10 * * MON", ["05 09:00:00", "05 09:15:00"]),
        ("*/20 30 12 * * *", ["01 12:30:00", "01 12:30:20"]),
        ("0 3 L * *", ["31 03:00:00", "30 03:00:00"]),
        ("0 3 LW * *", ["30 03:00:00", "30 03:00:00"]),
        ("0 3 * * MON#1", ["05 03:00:00", "02 03:00:00"]),
        ("0 3 * * 5L", ["30 03:00:00", "27 03:00:00"]),
        ("0 0 1 JAN,JUL *", ["01 00:00:00", "01 00:00:00"]),
        ("0 0 29 2 *", ["29 00:00:00", "29 00:00:00"]),
    ],
)
def test_fields_names_and_the_last_days(expression: str, expected: list[str]) -> None:
    found = named(expression, "UTC", "2026-10-01T00:00:00", 2)
    assert [text.removesuffix(" +0000") for text in found] == expected


@pytest.mark.parametrize(
    ("zone", "start", "expression", "expected"),
    [
        # A local time that is skipped stands for the first moment after the gap.
        (BERLIN, "2026-03-28T12:00", "30 2 * * *", ["29 03:00:00 +0200", "30 02:30:00 +0200"]),
        (NEW_YORK, "2026-03-07T12:00", "30 2 * * *", ["08 03:00:00 -0400", "09 02:30:00 -0400"]),
        (LORD_HOWE, "2026-10-03T12:00", "15 2 * * *", ["04 02:30:00 +1100", "05 02:15:00 +1100"]),
        # All skipped times of a day are one moment, and one that is due then anyhow is the same.
        (BERLIN, "2026-03-28T12:00", "*/15 2 * * *", ["29 03:00:00 +0200", "30 02:00:00 +0200"]),
        (BERLIN, "2026-03-28T12:00", "0 2,3 * * *", ["29 03:00:00 +0200", "30 02:00:00 +0200"]),
        # One that comes twice is due the first time.
        (BERLIN, "2026-10-24T12:00", "30 2 * * *", ["25 02:30:00 +0200", "26 02:30:00 +0100"]),
        (NEW_YORK, "2026-10-31T12:00", "30 1 * * *", ["01 01:30:00 -0400", "02 01:30:00 -0500"]),
        (LORD_HOWE, "2026-04-04T12:00", "45 1 * * *", ["05 01:45:00 +1100", "06 01:45:00 +1030"]),
    ],
)
def test_fixed_hours_run_once_on_a_day_of_change(
    zone: str, start: str, expression: str, expected: list[str]
) -> None:
    assert named(expression, zone, start, len(expected)) == expected


@pytest.mark.parametrize(
    ("zone", "start", "expression", "expected"),
    [
        (BERLIN, "2026-03-29T01:20", "30 * * * *", ["29 01:30:00 +0100", "29 03:30:00 +0200"]),
        (
            BERLIN,
            "2026-10-25T01:40",
            "*/30 * * * *",
            ["25 02:00:00 +0200", "25 02:30:00 +0200", "25 02:00:00 +0100", "25 02:30:00 +0100"],
        ),
        (NEW_YORK, "2026-11-01T00:59", "0 */1 * * *", ["01 01:00:00 -0400", "01 01:00:00 -0500"]),
        (
            LORD_HOWE,
            "2026-04-05T01:35",
            "*/20 * * * *",
            ["05 01:40:00 +1100", "05 01:40:00 +1030", "05 02:00:00 +1030"],
        ),
        (LORD_HOWE, "2026-10-04T01:45", "*/20 * * * *", ["04 02:40:00 +1100", "04 03:00:00 +1100"]),
    ],
)
def test_every_hour_goes_by_elapsed_time(zone: str, start: str, expression: str, expected: list[str]) -> None:
    assert named(expression, zone, start, len(expected)) == expected


_SECONDS = st.integers(1_600_000_000, 1_900_000_000)
_EXPRESSIONS = st.sampled_from(
    [
        "*/7 * * * *",
        "30 * * * *",
        "0 */3 * * *",
        "30 2 * * *",
        "15,45 1-3 * * *",
        "5 0 1 * *",
        "*/13 2 * * SUN",
    ]
)


@settings(deadline=None)
@given(_EXPRESSIONS, st.sampled_from([BERLIN, NEW_YORK, LORD_HOWE, "UTC", "Asia/Kolkata"]), _SECONDS)
def test_moments_are_in_order_and_the_same_from_wherever_they_are_looked_for(
    expression: str, zone: str, second: int
) -> None:
    cron = read_cron(expression, zone)
    found = list(islice(cron.moments(second * MICROSECONDS), 12))
    assert found[0] > second * MICROSECONDS
    for before, behind in pairwise(found):
        assert before < behind
        assert cron.after(before) == cron.after(behind - 1) == behind


@settings(deadline=None)
@given(_EXPRESSIONS, st.sampled_from([BERLIN, NEW_YORK, LORD_HOWE]), _SECONDS)
def test_every_moment_shows_a_local_time_that_is_named_or_ends_a_gap(
    expression: str, zone: str, second: int
) -> None:
    tz = read_zone(zone)
    for at in islice(read_cron(expression, zone).moments(second * MICROSECONDS), 20):
        moment = datetime.fromtimestamp(at // MICROSECONDS, UTC)
        local = moment.astimezone(tz)
        plain = local.replace(tzinfo=None)
        if next(CronSim(expression, plain - timedelta(seconds=1))) == plain:
            continue
        before = (moment - timedelta(seconds=1)).astimezone(tz)
        assert local.utcoffset() != before.utcoffset()


@pytest.mark.parametrize(
    ("expression", "named_part"),
    [
        ("0 3 * *", "4 fields"),
        ("0 0 3 * * * *", "7 fields"),
        ("", "0 fields"),
        ("61 * * * *", "minute"),
        ("0 24 * * *", "hour"),
        ("0 3 0 * *", "day of month"),
        ("0 3 * 13 *", "month"),
        ("0 3 * * MOO", "day of week"),
        ("0 3 * * MON#6", "day of week"),
        ("0 0 30 2 *", "day of month"),
        ("0 0 1 1 *" * 50, "characters"),
    ],
)
def test_what_cannot_be_read_is_named(expression: str, named_part: str) -> None:
    with pytest.raises(CronError, match=named_part):
        read_cron(expression, "UTC")


@pytest.mark.parametrize("zone", ["Mars/Base", "", "../etc/passwd", "/etc/passwd", "x" * 300, "a\0b"])
def test_an_unknown_zone_is_named(zone: str) -> None:
    with pytest.raises(CronError, match="there is no time zone"):
        read_zone(zone)
