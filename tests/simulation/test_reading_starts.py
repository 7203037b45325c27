"""Why a start asks the store: the experiment in which to read a task is to start it (docs/decisions.md)."""

from __future__ import annotations

import pytest
from tests.simulation.reading_starts import Wipes, reading_starts
from tests.support.simulation.world import World

SEEDS = 60


def broken(profile: str, seeds: range) -> list[str]:
    """Return the violations of these seeds."""
    outcomes = [World(profile, seed).run() for seed in seeds]
    return [f"seed {one.seed}: {one.violation}" for one in outcomes if one.violation is not None]


@pytest.mark.parametrize(
    "profile",
    [
        "calm_control",
        "worker_crash",
        "frozen_worker",
        "sweeper_crash",
        "api_crash",
        "flush_control",
        "rollback_control",
        "mistaken_rebuild",
        "at_most_once",
        "port_errors",
    ],
)
def test_it_holds_as_long_as_the_store_forgets_all_or_nothing(profile: str) -> None:
    with reading_starts():
        assert broken(profile, range(SEEDS)) == []


def test_an_entry_outlives_the_hash_that_knows_its_id_and_starts_after_the_cancel() -> None:
    with reading_starts():
        found = broken("forgotten_control", range(100))
    assert any("was started after the cancel was answered" in violation for violation in found)


def test_it_does_not_help_to_delete_the_unread_entries_with_the_rebuild() -> None:
    """A cancel of an execution that the store has lost is followed by no rebuild."""
    with reading_starts(Wipes.INSTALL):
        found = broken("forgotten_control", range(100))
    assert any("was started after the cancel was answered" in violation for violation in found)


def test_it_takes_a_search_of_the_streams_by_rebuild_and_close() -> None:
    with reading_starts(Wipes.INSTALL_AND_CLOSE):
        assert broken("forgotten_control", range(100)) == []


def test_a_start_that_asks_the_store_holds() -> None:
    assert broken("forgotten_control", range(100)) == []
