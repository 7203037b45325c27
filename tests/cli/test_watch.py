from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from tests.background import serving
from tests.cli.engine import execution, node

from weft import Client
from weft.cli.watch import Tracker
from weft.core.state import NodeState
from weft.sdk.progress import _pace_words

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Shell


# --- the command


def test_an_execution_that_has_ended_is_told_from_its_beginning(shell: Shell) -> None:
    execution_id = shell.client.start("order", {"number": 7}).id
    shell.client.wait(execution_id)
    ended = shell.weft("watch", execution_id)
    assert (ended.code, ended.json) == (0, {"label": "parcel 7"})
    lines = ended.err.splitlines()
    assert [line.split()[:2] for line in lines[:2]] == [["COMPLETED", "order"], ["COMPLETED", "label"]]
    assert lines[2].startswith("COMPLETED after")


def test_as_json_each_event_is_a_line(shell: Shell, fresh: str) -> None:
    execution_id = shell.failed(fresh)
    ended = shell.weft("watch", execution_id, "--json", "--quiet")
    assert ended.code == 1
    assert [event["seq"] for event in ended.lines] == list(range(1, len(ended.lines) + 1))
    assert ended.lines[-1]["type"] == "execution.failed"


def test_a_cancelled_execution_is_exit_code_1(shell: Shell, fresh: str) -> None:
    execution_id = shell.client.start("held", {"gate": fresh}).id
    shell.client.cancel(execution_id)
    ended = shell.weft("watch", execution_id)
    assert (ended.code, ended.out) == (1, "")
    assert "cancelled (cancelled): gate, after" in ended.err


def test_only_the_latest_generation_is_told(shell: Shell, fresh: str) -> None:
    execution_id = shell.failed(fresh)
    shell.server.open(fresh)
    shell.client.retry(execution_id)
    ended = shell.weft("watch", execution_id)
    assert ended.code == 0
    assert "FAILED" not in ended.err
    assert "COMPLETED  crack" in ended.err


def test_many_nodes_are_not_told_one_by_one(shell: Shell) -> None:
    number = 200
    nodes = [{"id": f"n{index}", "handler": "echo"} for index in range(number)]
    execution_id = shell.client.start_definition({"nodes": nodes, "output": "done"}).id
    ended = shell.weft("watch", execution_id)
    assert (ended.code, ended.json) == (0, "done")
    assert len(ended.err.splitlines()) == 1
    assert f"{number} completed" in ended.err


@pytest.mark.parametrize("arguments", [["watch"], ["start", "held", "--wait", "--input"]])
def test_ctrl_c_leaves_the_execution_running_and_says_so(
    arguments: list[str], shell: Shell, fresh: str
) -> None:
    if arguments == ["watch"]:
        execution_id = shell.client.start("held", {"gate": fresh}).id
        arguments = [*arguments, execution_id]
    else:
        arguments = [*arguments, f'gate="{fresh}"']
    process = subprocess.Popen(
        [sys.executable, "-m", "weft.cli.main", *arguments],
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stderr is not None
        if arguments[0] == "start":
            execution_id = process.stderr.readline().split()[-1]
        else:
            while not shell.server.is_watched(execution_id):
                assert process.poll() is None
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (130, "")
    assert f"execution {execution_id} goes on" in err
    assert "Traceback" not in err
    assert shell.client.execution(execution_id).state == "RUNNING"
    shell.server.open(fresh)
    assert shell.client.wait(execution_id).state == "COMPLETED"


# --- the tracker


def event(kind: str, node_id: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"type": kind, "node": node_id, "generation": 1, "execution": "x", **fields}


def counts(tracker: Tracker) -> dict[str, int]:
    return {state.value: count for state, count in tracker.look(0).counts.items() if count}


def tracker(*nodes: dict[str, Any], generation: int = 1) -> Tracker:
    made = Tracker()
    made.begin(execution("RUNNING", *nodes, generation=generation))
    return made


def test_events_move_nodes_from_state_to_state() -> None:
    tracked = tracker(node("a"), node("b"))
    tracked.take(event("node.queued", "a", attempt=1))
    tracked.take(event("node.started", "a", attempt=1))
    assert counts(tracked) == {"RUNNING": 1, "PENDING": 1}
    assert tracked.look(0).running == ["a"]
    tracked.take(event("node.retrying", "a", attempt=1))
    assert (counts(tracked), tracked.look(0).retried) == ({"QUEUED": 1, "PENDING": 1}, 1)
    tracked.take(event("node.started", "a", attempt=2))
    tracked.take(event("node.failed", "a", attempt=2, error={"code": "timeout", "message": "late"}))
    tracked.take(event("node.skipped", "b", reason="upstream_failed", cause="a"))
    shown = tracked.look(0)
    assert [(one.id, one.state, one.message) for one in shown.settled] == [
        ("a", NodeState.FAILED, "timeout: late"),
        ("b", NodeState.SKIPPED, "upstream_failed, a"),
    ]
    assert shown.running == []
    assert counts(tracked) == {"FAILED": 1, "SKIPPED": 1}
    assert tracked.look(0).settled == []


def test_a_node_that_waits_is_counted_until_it_settles_wherever_the_answer_began() -> None:
    for tracked in (tracker(node("a"), node("b")), tracker(node("a", "WAITING", attempt=1), node("b"))):
        tracked.take(event("node.waiting", "a", attempt=1))
        assert (counts(tracked), tracked.is_waiting("a")) == ({"WAITING": 1, "PENDING": 1}, True)
        assert tracked.look(0).running == []
        tracked.take(event("node.completed", "a", attempt=1))
        assert (counts(tracked), tracked.is_waiting("a")) == ({"COMPLETED": 1, "PENDING": 1}, False)


def test_a_node_that_polls_waits_between_its_looks() -> None:
    tracked = tracker(node("a"))
    for attempt in (1, 2):
        tracked.take(event("node.started", "a", attempt=attempt))
        assert counts(tracked) == {"RUNNING": 1}
        tracked.take(event("node.polled", "a", attempt=attempt))
        assert counts(tracked) == {"WAITING": 1}
    tracked.take(event("node.completed", "a", attempt=3))
    assert counts(tracked) == {"COMPLETED": 1}


def test_events_older_than_the_answer_change_nothing_and_are_told_all_the_same() -> None:
    tracked = tracker(node("a", "RUNNING", attempt=2), node("b", "COMPLETED"))
    for old in (
        event("node.started", "a", attempt=1),
        event("node.retrying", "a", attempt=1),
        event("node.queued", "a", attempt=2),
        event("node.completed", "b", attempt=1),
        event("node.started", "b", attempt=1),
    ):
        tracked.take(old)
    assert tracked.look(0).running == ["a"]
    assert counts(tracked) == {"RUNNING": 1, "COMPLETED": 1}


def test_a_retry_asks_for_the_states_once_more() -> None:
    tracked = tracker(node("a", "FAILED"), generation=2)
    assert not tracked.take(event("execution.retried", generation=2))
    assert not tracked.take(event("node.failed", "a", attempt=1, generation=1))
    assert tracked.look(0).settled == []
    assert tracked.take(event("execution.retried", generation=3))


def test_lines_and_events_are_shown_in_the_order_of_their_times_whichever_stream_was_faster() -> None:
    def at(second: int) -> str:
        return f"2026-01-31T09:30:0{second}.000000Z"

    def printed(node_id: str, message: str, second: int) -> dict[str, Any]:
        return {"node": node_id, "stream": "stdout", "message": message, "at": at(second)}

    tracked = tracker(node("a", "RUNNING", attempt=1), node("b"))
    tracked.take({**event("node.retrying", "a", attempt=1), "at": at(2)})
    tracked.take({**event("node.completed", "a", attempt=2), "finished_at": at(4)})
    tracked.notices.printed(printed("b", "3", 5))
    early = tracked.look(1.0, holds=True)
    assert (early.lines, early.settled) == ([], [])
    for message, second in (("1", 1), ("2", 3)):
        tracked.notices.printed(printed("a", message, second))
    late = tracked.look(1.1, holds=True)
    assert (late.lines, late.settled) == ([], [])
    shown = tracked.look(1.5, holds=True)
    assert [line.text.partition(": ")[0] for line in shown.lines] == [
        "a │ 1",
        "RETRYING a 2",
        "a │ 2",
        "b │ 3",
    ]
    assert [settled.id for settled in shown.settled] == ["a"]
    tracked.notices.printed(printed("b", "at the end", 6))
    assert [line.text for line in tracked.look(1.6).lines] == ["b │ at the end"]


def test_events_of_nothing_known_are_passed_over() -> None:
    tracked = tracker(node("a"))
    for strange in (event("node.invented", "a"), event("node.started", "zz"), event("result.discarded", "a")):
        assert not tracked.take(strange)
    assert counts(tracked) == {"PENDING": 1}


def progress(done: float, total: float | None = None, message: str | None = None) -> dict[str, Any]:
    return {"done": done, "total": total, "message": message, "at": "2026-01-31T09:30:00.000000Z"}


def test_the_progress_of_what_runs_is_shown_until_its_attempt_ends() -> None:
    tracked = tracker(
        node("a", "RUNNING", progress=progress(1, 4)), node("b", "COMPLETED", progress=progress(9))
    )
    assert tracked.look(0).told == {"a": "1/4"}
    tracked.take(event("node.progress", "a", attempt=1, progress=progress(0.25, 1, "half\nway")))
    assert tracked.look(0).told == {"a": "0.25/1 half way"}
    tracked.take(event("node.retrying", "a", attempt=1))
    tracked.take(event("node.progress", "a", attempt=1, progress=progress(3)))
    assert tracked.look(0).told == {}
    tracked.take(event("node.started", "a", attempt=2))
    tracked.take(event("node.progress", "a", attempt=1, progress=progress(3)))
    assert tracked.look(0).told == {}
    tracked.take(event("node.progress", "a", attempt=2, progress=progress(12_000)))
    assert tracked.look(0).told == {"a": "12,000"}
    tracked.take(event("node.progress", "zz", attempt=2, progress=progress(1)))
    assert counts(tracked) == {"RUNNING": 1, "COMPLETED": 1}


def test_progress_is_shown_by_watch_and_show(
    shell: Shell, fresh: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(tmp_path / "data") as server, Client(server.url) as client:
        monkeypatch.setenv("WEFT_URL", server.url)
        nodes = [{"id": "gate", "handler": "told_gate", "config": fresh}]
        execution_id = client.start_definition({"nodes": nodes}).id
        watching = subprocess.Popen(
            [sys.executable, "-m", "weft", "watch", execution_id],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        with watching:
            assert watching.stderr is not None
            line = watching.stderr.readline()
            assert line == f"RUNNING    gate  1/2 waits for {fresh}\n"
            assert f"1/2 waits for {fresh}" in shell.weft("show", execution_id).out
            assert f"1/2 waits for {fresh}\n" in shell.weft("show", execution_id, "gate").out
            shown = client.node(execution_id, "gate").progress
            assert shown is not None
            assert (shown.done, shown.total, shown.message) == (1, 2, f"waits for {fresh}")
            server.open(fresh)
            watching.communicate(timeout=30)
        assert watching.returncode == 0


def test_a_retry_of_a_definition_that_is_not_stored_says_how_often_its_node_may_be_started(
    shell: Shell, fresh: str
) -> None:
    node = {"id": "says", "handler": "speaks", "config": fresh, "max_retries": 2}
    started = {**node, "retry": {"base_delay_seconds": 0}}
    execution_id = shell.client.start_definition({"nodes": [started]}).id
    shell.server.open(fresh)
    assert "RETRYING says 2/3: RuntimeError, next in " in shell.weft("watch", execution_id).err
    detail = shell.client.node(execution_id, "says")
    assert (detail.max_retries, detail.attempt) == (2, 2)


# --- the expected end


def test_a_running_execution_shows_when_it_is_expected_to_end(shell: Shell, fresh: str) -> None:
    first = shell.client.start("held", {"gate": fresh}).id
    shell.server.open(fresh)
    shell.client.wait(first)
    second = shell.client.start("held", {"gate": f"{fresh}-again"}).id
    shown = next(line for line in shell.weft("show", second).out.splitlines() if "expected" in line)
    assert ", in about " in shown
    assert "decided by gate" in shown
    shell.client.cancel(second)
    assert "expected" not in shell.weft("show", second).out


def test_the_time_left_is_as_predicted_or_as_the_pace_has_it() -> None:
    tracker = Tracker()
    tracker.begin(execution("RUNNING", node("a"), node("b"), generation=1))
    assert _pace_words(tracker.look(1.0), 0.0, 2) == ["1.0 s"]
    assert _pace_words(tracker.look(1.0, 90.0), 0.0, 2) == ["1.0 s", "about 1 min 30 s left"]
    assert _pace_words(tracker.look(1.0, 90.0), 5.0, 200)[2] == "about 1 min 30 s left"
    assert _pace_words(tracker.look(1.0), 5.0, 200)[2] == "about 40 s left"
