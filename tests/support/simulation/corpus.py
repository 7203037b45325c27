"""Seeds that once broke an invariant: they run first.

A seed means a run only as long as nothing that is drawn changes. Where the drawing changes, a seed that shows
the same is looked for with the bug planted again, and takes the place of the old one.
"""

from __future__ import annotations

from typing import NamedTuple


class Past(NamedTuple):
    profile: str
    seed: int
    # What was wrong.
    bug: str


CORPUS: tuple[Past, ...] = (
    Past("sweeper_crash", 0, "a released node whose sweeper died was in no wait queue, and waited for ever"),
    Past("api_crash", 194, "a resume whose process died after its commit was never told to the store"),
    Past("api_crash", 230, "the same, of a larger workflow"),
    Past("swarm", 230, "the same, of an execution that was paused before it was taken up"),
    Past("skew", 3, "a retry's delay counted from the clock of the orchestrator that judged the failure"),
    Past("calm_control", 101296, "a stale result between a retry's commit and its install began a rebuild"),
    Past("swarm", 6960, "an orchestrator that slept over a resume ran nodes before the start was recorded"),
    Past("collectors", 35, "of two batches the second replaced the large outputs that the first was reading"),
    Past("set_back_crash", 1001417, "an orchestrator ended the lease of an orphan by a commit that was lost"),
    Past(
        "unknown_commits",
        2000259,
        "a node was throttled after the limits had released it, and was in no wait queue",
    ),
    Past(
        "set_back_crash", 6003696, "an at_most_once attempt had started, its issue was lost, and it ran again"
    ),
    Past(
        "sweeper_crash",
        7003936,
        "a node was settled in the journal, and a refused issue did not tell the store",
    ),
    Past(
        "memory",
        9,
        "a node that waited for its execution's memory was in no wait queue when others had taken it",
    ),
    Past(
        "memory",
        45,
        "a node that was woken for memory went to the wait queue of its tag, and woke no other node",
    ),
    Past(
        "sleeps_set_back",
        30002091,
        "a result counted that had seen the first end of a sleep, which the database lost and recorded again",
    ),
    Past(
        "waits_crash",
        5,
        "an orchestrator that ended a wait by its time died before it told the store",
    ),
    Past(
        "waits_set_back",
        1013,
        "an attempt that saw the first end of a wait, which the database lost, was lost with its old start",
    ),
    Past(
        "waits",
        3,
        "two orchestrators that ended one wait rebuilt its execution one behind the other, and lost what ran",
    ),
    Past(
        "calls_set_back",
        29,
        "a parent was told of the end of a cancelled child, and the database had lost that end",
    ),
    Past(
        "calls_crash",
        90,
        "a cancel was answered while a child of a child ran, whose parent a dead process had cancelled",
    ),
)
