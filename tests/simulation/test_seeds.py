"""The engine holds in every profile, and the seeds reach what there is to reach."""

from __future__ import annotations

import pytest
from tests.support.simulation.corpus import CORPUS, Past
from tests.support.simulation.coverage import COMMON, CRASH_POINTS
from tests.support.simulation.profiles import KINDS, PROFILES
from tests.support.simulation.runs import Summary, run_seeds

# The first seeds of each profile are those that coverage is counted over; the rest are run by profile. More
# seeds are run by ``./dev sim``.
SEEDS = 120
COVERING = 60
COVERING_MORE = 450
MUCH = {
    "orchestrator_crash",
    "sweeper_crash",
    "worker_crash",
    "api_crash",
    "flush_crash",
    "port_errors",
    "all",
}
# Seeds of these profiles in turn, for what the first seeds have not hit.
FIRST_FURTHER = 100_000
FURTHER = 600
FURTHER_PROFILES = ("waits_crash", "sweeper_crash", "orchestrator_crash", "api_crash", "all")


def covering(profile: str) -> int:
    return COVERING_MORE if profile in MUCH else COVERING


def broken(summary: Summary) -> str:
    return "\n".join(
        f"./dev sim --profile {failure.profile} --seed {failure.seed}: {failure.violation}"
        for failure in summary.failures
    )


@pytest.mark.parametrize("past", CORPUS, ids=lambda past: f"{past.profile}-{past.seed}")
def test_a_seed_that_once_failed_holds(past: Past) -> None:
    summary = run_seeds(past.profile, [past.seed])
    assert not summary.failures, broken(summary)


@pytest.mark.parametrize("profile", [profile for profile in PROFILES if profile not in MUCH])
def test_no_seed_breaks_an_invariant(profile: str) -> None:
    summary = run_seeds(profile, range(COVERING, SEEDS))
    assert not summary.failures, broken(summary)


def test_every_crash_point_discard_reason_and_reclaim_path_is_hit() -> None:
    everything = Summary()
    for profile in PROFILES:
        everything.add(run_seeds(profile, range(covering(profile))))
    # A change to any step draws other seeds for the rarest points: they have more, until they are hit.
    for first in range(FIRST_FURTHER, FIRST_FURTHER + FURTHER, COVERING):
        for profile in FURTHER_PROFILES:
            if COMMON - everything.hits.keys():
                everything.add(run_seeds(profile, range(first, first + COVERING)))
    assert not everything.failures, broken(everything)
    missing = sorted(COMMON - everything.hits.keys())
    assert not missing, f"no seed has hit {missing}"


def test_no_crash_point_is_missing_in_the_list() -> None:
    """A port's method that is called in a new place is a new crash point: it has to be listed."""
    hits = run_seeds("all", range(COVERING)).hits
    points = {name for name in hits if name.startswith("crash ")}
    assert points <= CRASH_POINTS


def test_every_kind_of_fault_is_injected_by_a_profile_of_few_kinds() -> None:
    few = {kind for profile in PROFILES.values() if not profile.is_swarm for kind in profile.kinds}
    assert few == set(KINDS)
