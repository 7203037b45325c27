from __future__ import annotations

import os
import signal
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest
from tests.cli.engine import ScriptedEngine, execution, node

from weft.cli.follow import CancelRequest, follow
from weft.core.state import NodeState

if TYPE_CHECKING:
    from weft.sdk.progress import ProgressSnapshot


@dataclass(slots=True)
class Notes:
    """A view that keeps what it is shown."""

    snapshots: list[ProgressSnapshot] = field(default_factory=list)
    closed: int = 0

    def show(self, snapshot: ProgressSnapshot) -> None:
        self.snapshots.append(snapshot)

    def close(self) -> None:
        self.closed += 1

    @property
    def settled(self) -> list[str]:
        return [settled.id for snapshot in self.snapshots for settled in snapshot.settled]


async def test_every_settled_node_is_told_once_in_the_order_it_finished() -> None:
    done = {"started_at": "2026-01-01T00:00:00.000000Z", "finished_at": "2026-01-01T00:00:00.500000Z"}
    later = {"started_at": "2026-01-01T00:00:00.000000Z", "finished_at": "2026-01-01T00:00:02.000000Z"}
    engine = ScriptedEngine(
        [
            execution("RUNNING", node("a", "RUNNING"), node("b", "RUNNING"), node("c")),
            execution("RUNNING", node("a", "RUNNING"), node("b", "COMPLETED", **done), node("c")),
            execution(
                "COMPLETED",
                node("a", "COMPLETED", attempt=3, **later),
                node("b", "COMPLETED", **done),
                node("c", "SKIPPED", reason="condition"),
            ),
        ]
    )
    notes = Notes()
    followed = await follow(engine, "x", total=3, progress=notes)
    assert notes.settled == ["b", "a", "c"]
    assert [s.seconds for snapshot in notes.snapshots for s in snapshot.settled] == [0.5, 2.0, None]
    assert notes.snapshots[0].running == ["a", "b"]
    assert notes.snapshots[-1].retried == 2
    assert followed.execution["state"] == "COMPLETED"
    assert followed.signal is None
    assert notes.closed == 1


async def test_of_a_large_execution_only_the_new_failures_are_told() -> None:
    error = {"code": "handler_error", "message": "no", "retryable": False}
    rest = [node(f"n{index}", "COMPLETED") for index in range(50)]
    engine = ScriptedEngine(
        [
            execution("RUNNING", *rest, node("a", "FAILED", error=error), node("b", "RUNNING")),
            execution("RUNNING", *rest, node("a", "FAILED", error=error), node("b", "RUNNING")),
            execution("FAILED", *rest, node("a", "FAILED", error=error), node("b", "FAILED", error=error)),
        ]
    )
    notes = Notes()
    await follow(engine, "x", total=52, progress=notes)
    assert notes.settled == ["a", "b"]
    assert notes.snapshots[0].counts[NodeState.COMPLETED] == 50


async def test_without_a_view_it_only_waits() -> None:
    engine = ScriptedEngine([execution("COMPLETED", node("a", "COMPLETED"), output=3)])
    engine.ended.set()
    followed = await follow(engine, "x", total=1, progress=None)
    assert followed.execution["output"] == 3


async def test_a_signal_cancels_the_execution_and_its_end_is_awaited(
    capsys: pytest.CaptureFixture[str],
) -> None:
    engine = ScriptedEngine([execution("RUNNING", node("a", "COMPLETED"), node("b", "RUNNING"))])

    class Interrupting(Notes):
        def show(self, snapshot: ProgressSnapshot) -> None:
            super().show(snapshot)
            if len(self.snapshots) == 1:
                os.kill(os.getpid(), signal.SIGINT)

    notes = Interrupting()
    followed = await follow(engine, "x", total=2, progress=notes)
    assert engine.cancelled == 1
    assert followed.signal == signal.SIGINT
    assert followed.execution["state"] == "CANCELLED"
    assert notes.settled == ["a", "b"]
    assert "press Ctrl-C again" in capsys.readouterr().err


def test_the_second_signal_ends_the_process_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def leave(code: int) -> None:
        raise SystemExit(code)

    monkeypatch.setattr(os, "_exit", leave)
    notes = Notes()
    request = CancelRequest(notes)
    request.on_signal(signal.SIGINT)
    assert (request.requested.is_set(), notes.closed) == (True, 0)
    with pytest.raises(SystemExit) as left:
        request.on_signal(signal.SIGINT)
    assert left.value.code == 130
    assert notes.closed == 1
