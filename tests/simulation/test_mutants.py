"""The simulation would notice: every bug that is planted into the real code is found."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from tests.simulation.mutants import MUTANTS, Mutant, planted
from tests.support.simulation.profiles import PROFILES
from tests.support.simulation.world import World

from weft.orchestrator import collect

ROOT = Path(__file__).parents[2]
# A planted bug or a profile, as the column "without it" names them.
NAME = re.compile(r"`([a-z][a-z0-9_]+)`")


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_planted_bug_is_found(mutant: Mutant) -> None:
    with planted(mutant):
        found = any(breaks(mutant.profile, seed) for seed in range(mutant.seeds))
    assert found, f"{mutant.name} survived {mutant.seeds} seeds of {mutant.profile}"


def breaks(profile: str, seed: int) -> bool:
    try:
        return World(profile, seed).run().violation is not None
    except (AssertionError, LookupError):  # the engine itself noticed that something cannot be
        return True


def test_there_are_many_bugs_and_each_is_another() -> None:
    assert len(MUTANTS) >= 50
    assert [name for name, count in Counter(mutant.name for mutant in MUTANTS).items() if count > 1] == []
    changes = Counter((mutant.function, mutant.old, mutant.new) for mutant in MUTANTS)
    assert [change for change, count in changes.items() if count > 1] == []
    assert {mutant.profile for mutant in MUTANTS} <= PROFILES.keys()


def test_the_page_of_the_protocol_names_every_planted_bug_and_no_other() -> None:
    lines = (ROOT / "docs/protocol.md").read_text(encoding="utf-8").splitlines()
    columns = [line.rsplit("|", 2)[1] for line in lines if line.startswith("| ")]
    named = {name for column in columns for name in NAME.findall(column)}
    bugs = {mutant.name for mutant in MUTANTS}
    assert bugs - named == set(), "a rule of docs/protocol.md names each"
    assert named - bugs - PROFILES.keys() == set()


def test_a_bug_is_gone_when_it_is_no_longer_planted() -> None:
    right = collect.take.__code__
    mutant = next(mutant for mutant in MUTANTS if mutant.name == "ack_before_commit")
    with planted(mutant):
        assert collect.take.__code__ is not right
    assert collect.take.__code__ is right


def test_a_bug_whose_line_is_no_longer_there_is_an_error() -> None:
    mutant = replace(MUTANTS[0], old="a line that was changed")
    with pytest.raises(LookupError, match="0 times, not once"), planted(mutant):
        pass
