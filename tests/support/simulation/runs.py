"""Many seeds, in one process or several, and what they covered."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from multiprocessing import get_context
from typing import TYPE_CHECKING, NamedTuple

from tests.support.simulation.world import World

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# One seed in so many is run twice: it must be the same run.
TWICE_EVERY = 50
_SEEDS_AT_ONCE = 50
NOT_THE_SAME = "one seed is not one run: its steps differ"


class Failure(NamedTuple):
    profile: str
    seed: int
    violation: str


@dataclass(slots=True)
class Summary:
    """What seeds came to."""

    seeds: int = 0
    steps: int = 0
    failures: list[Failure] = field(default_factory=list)
    hits: Counter[str] = field(default_factory=Counter)

    def add(self, other: Summary) -> None:
        self.seeds += other.seeds
        self.steps += other.steps
        self.failures += other.failures
        self.hits.update(other.hits)


def run_seeds(profile: str, seeds: Iterable[int]) -> Summary:
    """Run seeds of one profile here."""
    summary = Summary()
    for seed in seeds:
        twice = seed % TWICE_EVERY == 0
        outcome = World(profile, seed, trace=twice).run()
        summary.seeds += 1
        summary.steps += outcome.steps
        summary.hits.update(outcome.hits)
        if outcome.violation is not None:
            summary.failures.append(Failure(profile, seed, outcome.violation))
        elif twice and World(profile, seed, trace=True).run().trace_hash != outcome.trace_hash:
            summary.failures.append(Failure(profile, seed, NOT_THE_SAME))
    return summary


def run_all(profiles: list[str], first: int, count: int, *, processes: int) -> Iterator[tuple[str, Summary]]:
    """Run seeds of many profiles; give each part as it is done."""
    parts = [
        (profile, range(start, min(start + _SEEDS_AT_ONCE, first + count)))
        for start in range(first, first + count, _SEEDS_AT_ONCE)
        for profile in profiles
    ]
    if processes == 1:
        for profile, seeds in parts:
            yield profile, run_seeds(profile, seeds)
        return
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        # A bounded number at once: of a million seeds nobody holds all the parts.
        queue = iter(parts)
        running = {
            pool.submit(run_seeds, *part): part[0]
            for _, part in zip(range(2 * processes), queue, strict=False)
        }
        while running:
            done = next(as_completed(running))
            profile = running.pop(done)
            part = next(queue, None)
            if part is not None:
                running[pool.submit(run_seeds, *part)] = part[0]
            yield profile, done.result()
