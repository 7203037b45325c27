"""One seed is one run, whoever runs it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from tests.support.simulation.profiles import PROFILES
from tests.support.simulation.world import World

SCRIPT = """
import sys
from tests.support.simulation.profiles import PROFILES
from tests.support.simulation.world import World
for profile in PROFILES:
    print(profile, [World(profile, seed, trace=True).run().trace_hash for seed in range(4)])
"""


@pytest.mark.parametrize("profile", PROFILES)
def test_one_seed_is_one_run(profile: str) -> None:
    first, second = (World(profile, 7, trace=True).run() for _ in range(2))
    assert first.trace == second.trace
    assert first.trace_hash == second.trace_hash
    assert first.steps == second.steps


def test_a_trace_changes_nothing() -> None:
    watched, unwatched = World("all", 7, trace=True).run(), World("all", 7).run()
    assert (watched.steps, watched.hits) == (unwatched.steps, unwatched.hits)
    assert watched.trace
    assert not unwatched.trace


def test_another_seed_is_another_run() -> None:
    assert len({World("all", seed, trace=True).run().trace_hash for seed in range(10)}) == 10


def test_the_order_of_sets_and_hashes_is_of_no_consequence() -> None:
    hashes = [
        subprocess.run(
            [sys.executable, "-c", SCRIPT],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        ).stdout
        for hash_seed in ("0", "1")
    ]
    assert hashes[0].count("\n") == len(PROFILES)
    assert hashes[0] == hashes[1]
