"""The search for costly inputs: it finds what is planted, and the same seed draws the same inputs."""

from __future__ import annotations

import time
from random import Random
from typing import TYPE_CHECKING

from tests.support.cost_fuzz import __main__ as fuzz
from tests.support.cost_fuzz.drawing import Drawing

if TYPE_CHECKING:
    import pytest


def test_a_short_run_finds_nothing_that_is_held_for_long(capsys: pytest.CaptureFixture[str]) -> None:
    assert fuzz.main(["--cost", "--minutes", "0.05", "--seed", "7"]) == 0
    printed = capsys.readouterr().out
    for kind in fuzz.KINDS:
        assert f"{kind}: " in printed
    assert "µs a byte" in printed


def test_the_same_seed_draws_the_same() -> None:
    first, second = Drawing(Random(5)), Drawing(Random(5))
    for _ in range(20):
        assert first.whole_schema() == second.whole_schema()
        assert first.value() == second.value()
        assert first.expression() == second.expression()
        assert first.yaml() == second.yaml()


def test_a_check_that_holds_everybody_up_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(*_: object) -> list[object]:
        begun = time.thread_time()
        while time.thread_time() - begun < 2 * fuzz.HELD_SECONDS:
            pass
        return []

    monkeypatch.setattr(fuzz, "quick_problems", slow)
    tally = fuzz.run("schemas", 1, 3.0)
    assert tally.broken
    assert tally.costliest is not None
