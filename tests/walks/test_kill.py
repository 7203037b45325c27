"""``kill -9`` at random moments and at every step: nothing accepted is lost, nothing settled runs again."""

from __future__ import annotations

import random
import signal
import subprocess
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from tests.support.crash import CrashPoint
from tests.walks.killing import Walk, layers

from weft.core.state import ExecutionState, NodeState

if TYPE_CHECKING:
    from pathlib import Path

KILLS_PER_SEED = 5


@pytest.mark.parametrize("seed", [1, 2])
def test_weft_run_killed_at_random_moments_loses_nothing_and_repeats_nothing(
    seed: int, tmp_path: Path
) -> None:
    draw = random.Random(seed)
    kills = 0
    while kills < KILLS_PER_SEED:
        folder = tmp_path / f"after-{kills}"
        folder.mkdir()
        walk = Walk(folder, layers(6, 10))
        while kills < KILLS_PER_SEED and not walk.is_over:
            kills += kill(walk, draw)
        if not walk.is_over:
            assert walk.end(walk.run()) == 0
        check_end(walk)


def kill(walk: Walk, draw: random.Random) -> bool:
    """Start ``weft run`` and kill it at a random moment; False: it had ended by then."""
    process = walk.run()
    starts = draw.randrange(12)
    walk.wait_for_starts(process, starts)
    with suppress(subprocess.TimeoutExpired):
        # Without a start to wait for, the moment lies anywhere in its own start and recovery.
        process.wait(draw.uniform(0, 0.02 if starts else 0.8))
    process.kill()
    return walk.end(process) != 0


def check_end(walk: Walk) -> None:
    """Check that what was submitted once was run once, to the right end."""
    walk.check_end()
    (recorded,) = walk.seen.executions.values()
    assert recorded.row.state is ExecutionState.COMPLETED


STEPS = [
    ["journal.submit:before:1"],
    ["journal.submit:after:1"],
    ["store.install:before:1"],
    ["store.install:after:1"],
    ["store.queue:before:1"],
    ["store.queue:after:1"],
    ["transport.read:after:3"],
    ["journal.record:before:3"],
    ["journal.record:after:1"],
    ["journal.record:after:3"],
    ["store.apply:before:3"],
    ["store.apply:after:3"],
    ["store.queue:before:3"],
    ["store.queue:after:3"],
    ["transport.ack:before:3"],
    ["transport.ack:after:3"],
    ["store.start:before:3"],
    ["store.start:after:3"],
    ["transport.ack_tasks:before:3"],
    ["transport.ack_tasks:after:3"],
    ["store.report:before:3"],
    ["store.report:after:3"],
    # While it recovers from an earlier death.
    ["journal.record:after:4", "journal.rebuild:before:1"],
    ["journal.record:after:4", "journal.rebuild:after:1"],
    ["journal.record:after:4", "store.install:before:1", "store.install:after:1"],
    ["journal.record:after:4", "journal.record:after:1", "journal.record:after:2", "store.apply:before:2"],
]


@pytest.mark.parametrize("points", STEPS, ids=" ".join)
def test_a_process_that_dies_at_a_step_loses_nothing_and_repeats_nothing(
    points: list[str], tmp_path: Path
) -> None:
    walk = Walk(tmp_path, layers(3, 4))
    for point in points:
        assert walk.end(walk.drive(crash_point=point)) == -signal.SIGKILL, "it was not reached"

    assert walk.end(walk.drive()) == 0

    check_end(walk)


AT_MOST_ONCE = [
    *({"id": f"once_{i}", "parents": [], "delivery": "at_most_once"} for i in range(3)),
    {"id": "behind", "parents": ["once_0"], "delivery": "at_most_once"},
    {"id": "beside", "parents": []},
]


@pytest.mark.parametrize(
    "point",
    [
        "journal.record:before:2",
        "journal.record:after:2",
        "store.queue:before:1",
        "store.queue:after:1",
        "store.start:after:1",
        "store.report:before:1",
        "store.report:after:1",
        "journal.record:before:3",
        "journal.record:after:3",
    ],
)
def test_an_at_most_once_node_is_started_once_or_lost(point: str, tmp_path: Path) -> None:
    walk = Walk(tmp_path, AT_MOST_ONCE)
    assert walk.end(walk.drive(crash_point=point)) == -signal.SIGKILL, "it was not reached"

    assert walk.end(walk.drive()) == 0

    walk.check_end()
    (recorded,) = walk.seen.executions.values()
    for node_id in ("once_0", "once_1", "once_2", "behind"):
        row = recorded.nodes[node_id]
        starts = [start for start in walk.seen.starts if start.node_id == node_id]
        assert len(starts) <= 1
        if row.state is NodeState.FAILED:
            assert row.error is not None
            assert row.error["code"] == "lost"
        elif row.state is NodeState.COMPLETED:
            assert len(starts) == 1
        else:
            assert (row.state, row.cause) == (NodeState.SKIPPED, "once_0")


@pytest.mark.parametrize(
    "text", ["journal.record", "journal.record:during:1", "store.flush:after:1", "a:after:0"]
)
def test_a_crash_point_that_cannot_be_met_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no crash point"):
        CrashPoint.parse(text)
