"""A failing seed is made small, and can be read."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.simulation.__main__ import main
from tests.support.simulation.profiles import PROFILES
from tests.support.simulation.shrink import shrink
from tests.support.simulation.table import table
from tests.support.simulation.world import Cut, World

from weft.core.ledger import fence


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plant a bug: an execution whose last node completed is left open."""

    def forget(*_: Any) -> None:
        pass

    monkeypatch.setattr(fence, "finish", forget)


@pytest.mark.usefixtures("broken")
def test_a_failing_seed_is_made_small() -> None:
    seed = next(seed for seed in range(20) if World("all", seed).run().violation is not None)
    cut = shrink("all", seed)
    assert cut.without == frozenset(kind for kind, amount in World("all", seed).amounts.items() if amount)
    assert (cut.most_nodes, cut.most_executions, cut.most_controls) == (1, 1, 0)
    whole, small = World("all", seed).run(), World("all", seed, cut=cut).run()
    assert whole.violation is not None
    assert small.violation is not None
    assert small.violation.split()[0] == whole.violation.split()[0]
    assert small.steps < whole.steps


def test_a_cut_takes_away_what_it_says() -> None:
    cut = Cut(without=frozenset(PROFILES["all"].kinds), most_nodes=2, most_executions=1, most_controls=0)
    world = World("all", 11, cut=cut)
    outcome = world.run()
    assert not any(world.amounts.values())
    assert max(row.total for row in world.journal._executions.values()) <= 2
    assert not [name for name in outcome.hits if name.startswith(("crash", "freeze", "control"))]
    assert any(World("all", 11).amounts.values())


@pytest.mark.usefixtures("broken")
def test_a_failing_run_is_shown_as_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--profile", "calm", "--seeds", "2", "--processes", "1"]) == 1
    shown = capsys.readouterr().out
    assert "made small" in shown
    assert "what came of it" in shown
    assert "journal.record" in shown
    assert "all of it: ./dev sim --profile" in shown


def test_a_seed_is_shown_step_by_step(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--profile", "calm", "--seed", "0"]) == 0
    shown = capsys.readouterr().out
    assert "journal.submit" in shown
    assert "store.install" in shown
    assert "NodeCompleted" in shown
    assert shown.rstrip().endswith("no violation")


def test_a_table_may_show_the_last_steps_alone() -> None:
    trace = World("calm", 0, trace=True).run().trace
    shown = table(trace, last=3).splitlines()
    assert shown[2] == f"… {len(trace) - 3} steps before these"
    assert shown[3:] == [str(line) for line in trace[-3:]]


def test_a_run_of_seeds_ends_with_its_summary(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--profile", "calm", "--seeds", "3", "--processes", "2"]) == 0
    assert "seeds a minute, 0 violations" in capsys.readouterr().out
