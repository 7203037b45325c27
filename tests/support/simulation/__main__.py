"""``./dev sim``: run seeds, and show the first that breaks an invariant."""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import fields

from tests.support.simulation.corpus import CORPUS
from tests.support.simulation.coverage import coverage_table, never_hit
from tests.support.simulation.profiles import PROFILES
from tests.support.simulation.runs import NOT_THE_SAME, Failure, Summary, run_all, run_seeds
from tests.support.simulation.shrink import shrink
from tests.support.simulation.table import table
from tests.support.simulation.world import NO_CUT, Cut, World

# Of a failing seed so many steps are shown: what led to it is mostly among the last.
_LAST_STEPS = 120


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="./dev sim", description=__doc__)
    parser.add_argument("--seeds", type=int, default=100, help="seeds per profile (default 100)")
    parser.add_argument("--first", type=int, default=0, help="the first seed (default 0)")
    parser.add_argument("--seed", type=int, help="run this one seed and print its steps")
    parser.add_argument("--profile", choices=sorted(PROFILES), help="only this profile")
    parser.add_argument("--processes", type=int, default=2, help="so many at once (default 2)")
    options = parser.parse_args(arguments)
    profiles = [options.profile] if options.profile else list(PROFILES)
    if options.seed is not None:
        return _show_seed(options.profile or "all", options.seed)
    return _run(profiles, options.first, options.seeds, options.processes)


def _run(profiles: list[str], first: int, seeds: int, processes: int) -> int:
    begun = time.perf_counter()
    summaries = {profile: Summary() for profile in profiles}
    everything = Summary()
    for past in CORPUS:
        everything.add(run_seeds(past.profile, [past.seed]))
    for profile, summary in run_all(profiles, first, seeds, processes=processes):
        summaries[profile].add(summary)
        everything.add(summary)
        for failure in summary.failures:
            # At once: a long run need not come to its end before somebody looks at it.
            print(f"{profile} seed {failure.seed}: {failure.violation}", file=sys.stderr, flush=True)
        _progress(everything, summary.seeds, len(profiles) * seeds, time.perf_counter() - begun)
    seconds = time.perf_counter() - begun
    print(file=sys.stderr)
    for profile, summary in summaries.items():
        print(f"{profile:<22} {summary.seeds:>9,} seeds  {len(summary.failures):>5} violations")
        for failure in summary.failures[:3]:
            print(f"    seed {failure.seed}: {failure.violation}")
    missing = never_hit(everything.hits, seeds=everything.seeds) if len(profiles) == len(PROFILES) else []
    print(f"\n{coverage_table(everything.hits)}\n")
    print(
        f"{everything.seeds:,} seeds, {everything.steps:,} steps, {seconds:.1f} s, "
        f"{everything.seeds / seconds * 60:,.0f} seeds a minute, {len(everything.failures)} violations"
    )
    if everything.failures:
        _explain(everything.failures[0])
        return 1
    if missing:
        print(f"never hit: {', '.join(missing)}")
        return 1
    return 0


def _progress(summary: Summary, added: int, total: int, seconds: float) -> None:
    """Return how far it is: all the time on a terminal, at every tenth in a log."""
    is_log = not sys.stderr.isatty()
    if is_log and summary.seeds * 10 // total == (summary.seeds - added) * 10 // total:
        return
    rate = summary.seeds / seconds * 60
    text = f"{summary.seeds:,} of {total:,} seeds, {rate:,.0f} a minute, {len(summary.failures)} violations"
    print(text if is_log else f"\r{text}", end="\n" if is_log else "", file=sys.stderr, flush=True)


def _explain(failure: Failure) -> None:
    """Show a failing seed, as small as it can be made."""
    if failure.violation == NOT_THE_SAME:
        return  # there is no run to show, but two
    cut = shrink(failure.profile, failure.seed)
    outcome = World(failure.profile, failure.seed, trace=True, cut=cut).run()
    print(f"\nthe first of them, made small ({_text_of(cut)}):\n{outcome.about}\n")
    print(table(outcome.trace, last=_LAST_STEPS))
    print(f"\n{outcome.violation}\nall of it: ./dev sim --profile {failure.profile} --seed {failure.seed}")


def _text_of(cut: Cut) -> str:
    parts = []
    for each in fields(cut):
        value = getattr(cut, each.name)
        if value != getattr(NO_CUT, each.name):
            shown = ", ".join(sorted(value)) if isinstance(value, frozenset) else f"{value:g}"
            parts.append(f"{each.name} {shown}")
    return "; ".join(parts) or "nothing could be cut"


def _show_seed(profile: str, seed: int) -> int:
    outcome = World(profile, seed, trace=True).run()
    print(f"{outcome.about}\n\n{table(outcome.trace)}")
    print(f"\nprofile {profile}, seed {seed}: {outcome.violation or 'no violation'}")
    return 1 if outcome.violation else 0


if __name__ == "__main__":
    sys.exit(main())
