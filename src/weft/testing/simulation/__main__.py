"""``./dev sim``: run seeds, and show the first that breaks an invariant."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

from weft.testing.simulation.profiles import PROFILES
from weft.testing.simulation.world import World


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="./dev sim", description=__doc__)
    parser.add_argument("--seeds", type=int, default=100, help="seeds per profile (default 100)")
    parser.add_argument("--seed", type=int, help="run this one seed and print its steps")
    parser.add_argument("--first", type=int, default=0, help="the first seed (default 0)")
    parser.add_argument("--profile", choices=sorted(PROFILES), help="only this profile")
    options = parser.parse_args(arguments)
    profiles = [options.profile] if options.profile else list(PROFILES)
    if options.seed is not None:
        return _show(profiles[0], options.seed)
    return _run(profiles, options.first, options.seeds)


def _run(profiles: list[str], first: int, seeds: int) -> int:
    begun = time.perf_counter()
    hits: Counter[str] = Counter()
    steps = broken = 0
    for profile in profiles:
        failed = []
        for seed in range(first, first + seeds):
            outcome = World(profile, seed).run()
            hits.update(outcome.hits)
            steps += outcome.steps
            if outcome.violation is not None:
                failed.append((seed, outcome.violation))
        broken += len(failed)
        print(f"{profile:<22} {seeds:>7} seeds  {len(failed):>5} violations")  # noqa: T201
        for seed, violation in failed[:3]:
            print(f"    seed {seed}: {violation}")  # noqa: T201
    seconds = time.perf_counter() - begun
    total = len(profiles) * seeds
    print(  # noqa: T201
        f"{total} seeds, {steps:,} steps, {seconds:.1f} s, {total / seconds * 60:,.0f} seeds a minute, "
        f"{broken} violations"
    )
    return 1 if broken else 0


def _show(profile: str, seed: int) -> int:
    outcome = World(profile, seed, trace=True).run()
    print("\n".join(outcome.trace))  # noqa: T201
    print(f"profile {profile}, seed {seed}: {outcome.violation or 'no violation'}")  # noqa: T201
    return 1 if outcome.violation else 0


if __name__ == "__main__":
    sys.exit(main())
