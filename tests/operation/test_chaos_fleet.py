"""A fleet under load and under faults of all kinds at random moments; ``./dev chaos --fleet`` for longer."""

from __future__ import annotations

import pytest
from tests.fleet.chaos import run_chaos
from tests.fleet.chaos_checks import Reckoning, Strike
from tests.fleet.chaos_faults import EVERYBODY, MEMBERS, POSTGRES, REDIS, Fault, Kind, draw_faults

from weft.core.rows import History
from weft.core.time import MICROSECONDS


async def test_a_fleet_under_random_faults_loses_nothing_and_does_nothing_twice_without_a_cause() -> None:
    # A seed that kills members of every role, and the workers while they have work.
    reckoning = await run_chaos(seed=2115, seconds=20, executions=50)
    assert reckoning.wrong == []
    assert reckoning.executions == 50
    assert {strike.fault.kind for strike in reckoning.strikes} == set(Kind)
    # Otherwise the faults struck nobody at work, and this test has shown nothing.
    assert reckoning.lost + reckoning.orphaned > 0


def test_a_seed_draws_its_faults_and_no_others() -> None:
    assert draw_faults(7, 60) == draw_faults(7, 60) != draw_faults(8, 60)


@pytest.mark.parametrize("seed", range(20))
def test_in_five_minutes_every_member_and_server_is_struck_and_nobody_twice_at_once(seed: int) -> None:
    faults = draw_faults(seed, 300)
    assert len(faults) > 100
    assert {fault.kind for fault in faults} == set(Kind)
    assert {fault.whom for fault in faults} > set(MEMBERS)
    over_at: dict[str, float] = {}
    for fault in faults:
        assert fault.at_seconds + fault.lasts_seconds <= 300
        if fault.kind in (Kind.KILL, Kind.FREEZE):
            assert over_at.get(fault.whom, 0) <= fault.at_seconds
            over_at[fault.whom] = fault.at_seconds + fault.lasts_seconds


def at_seconds(fault: Fault) -> Strike:
    begin = int(fault.at_seconds * MICROSECONDS)
    return Strike(fault, begin, begin + int(fault.lasts_seconds * MICROSECONDS))


KILLED = at_seconds(Fault(10, Kind.KILL, "worker 1", lasts_seconds=2))
FLUSHED = at_seconds(Fault(20, Kind.FLUSH, REDIS))
SILENT = at_seconds(Fault(30, Kind.SILENCE, EVERYBODY, server=POSTGRES, lasts_seconds=2))


@pytest.mark.parametrize(
    ("pid", "started", "lost", "explained"),
    [
        # In the hands of a worker: what struck that worker, or all of them, in that time.
        (1, 9, 15, {KILLED}),
        (2, 9, 15, set()),
        (1, 5, 9, set()),
        (2, 19, 25, {FLUSHED}),
        (2, 29, 35, set()),
        # In nobody's: the loss of Redis, or what struck when it was submitted.
        (None, 13, 18, set()),
        (None, 19, 25, {FLUSHED}),
        (None, 22, 27, {FLUSHED}),
        (None, 31, 35, {SILENT}),
    ],
)
def test_an_attempt_in_vain_is_explained_by_what_struck_its_worker_then_and_by_nothing_else(
    pid: int | None, started: int, lost: int, explained: set[Strike]
) -> None:
    reckoning = Reckoning([KILLED, FLUSHED, SILENT], {1: "worker 1", 2: "worker 2"})
    event = History(
        seq=3,
        at=lost * MICROSECONDS,
        type="node.lost",
        execution="x",
        generation=1,
        node="a",
        attempt=1,
        worker=None if pid is None else f"host-{pid}-abc",
        started_at=started * MICROSECONDS,
    )
    times = {"ready_at": started * MICROSECONDS, "submitted_at": started * MICROSECONDS}
    assert reckoning.causes(event, **times) == explained
