"""A failing seed made small: fewer kinds of faults, for a shorter time, fewer calls, executions and nodes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tests.support.simulation.profiles import PROFILES
from tests.support.simulation.world import NO_CUT, Cut, World

if TYPE_CHECKING:
    from collections.abc import Iterator

# The end of the faults is found to this precision.
_PRECISION_SECONDS = 0.5


def shrink(profile: str, seed: int) -> Cut:
    """Find a cut under which the seed still breaks the invariant that it broke, and which cannot be cut more.

    What is cut away changes what follows, so a smaller run is another run: only the invariant is the same.
    """
    broken = _broken(profile, seed, NO_CUT)
    assert broken is not None, f"seed {seed} of {profile} breaks nothing"
    cut = NO_CUT
    goes_on = True
    while goes_on:
        goes_on = False
        for smaller in _smaller(profile, seed, cut):
            if _broken(profile, seed, smaller) == broken:
                cut, goes_on = smaller, True
                break
    return cut


def _smaller(profile: str, seed: int, cut: Cut) -> Iterator[Cut]:
    world = World(profile, seed, cut=cut)
    for kind in PROFILES[profile].kinds:
        if world.amounts[kind]:
            yield replace(cut, without=cut.without | {kind})
    for count in range(1, cut.most_executions or 3):
        yield replace(cut, most_executions=count)
    for count in range(cut.most_controls if cut.most_controls is not None else PROFILES[profile].controls):
        yield replace(cut, most_controls=count)
    end = world.faults_end_seconds
    for part in (0.25, 0.5, 0.75):
        if end * (1 - part) >= _PRECISION_SECONDS:
            yield replace(cut, faults_end_seconds=end * part)
    for count in range(1, cut.most_nodes or 14):
        yield replace(cut, most_nodes=count)


def _broken(profile: str, seed: int, cut: Cut) -> str | None:
    """Name the invariant that does not hold."""
    violation = World(profile, seed, cut=cut).run().violation
    return None if violation is None else violation.split()[0]
