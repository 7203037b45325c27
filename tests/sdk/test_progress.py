from __future__ import annotations

import io
import re
from dataclasses import replace

from rich.console import Console

from weft.core.state import NodeState
from weft.sdk.progress import (
    LiveProgress,
    NodeLine,
    PlainProgress,
    ProgressSnapshot,
    SettledNode,
    open_progress,
    seconds_text,
    shorten,
)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def snapshot(elapsed: float, *settled: SettledNode, retried: int = 0, **counts: int) -> ProgressSnapshot:
    return ProgressSnapshot(
        elapsed,
        {NodeState(state): count for state, count in counts.items()},
        running=[f"node_{index}" for index in range(counts.get("RUNNING", 0))][:6],
        settled=settled,
        retried=retried,
    )


def failed(name: str, message: str = "handler_error: no") -> SettledNode:
    return SettledNode(name, NodeState.FAILED, 0.25, message)


# --- Without a terminal


def test_of_a_few_nodes_each_gets_one_line_when_it_settles() -> None:
    stream = io.StringIO()
    progress = PlainProgress(3, stream)
    progress.show(snapshot(0.0, RUNNING=1, PENDING=2))
    progress.show(
        snapshot(
            0.4,
            SettledNode("fetch", NodeState.COMPLETED, 0.41),
            failed("parse"),
            COMPLETED=1,
            FAILED=1,
            SKIPPED=1,
        )
    )
    progress.show(
        snapshot(0.5, SettledNode("store", NodeState.SKIPPED, None, "upstream_failed, parse"), SKIPPED=1)
    )
    assert stream.getvalue().splitlines() == [
        "COMPLETED  fetch  0.4 s",
        "FAILED     parse  0.2 s  handler_error: no",
        "SKIPPED    store  upstream_failed, parse",
    ]


def test_a_node_settles_behind_its_own_lines_and_before_those_of_what_it_freed() -> None:
    stream = io.StringIO()
    lines = [NodeLine("a", "a │ 1"), NodeLine("b", "b │ 1"), NodeLine("a", "a │ 2"), NodeLine("c", "c │ 1")]
    settled = [SettledNode("a", NodeState.COMPLETED), SettledNode("quiet", NodeState.COMPLETED)]
    PlainProgress(4, stream).show(ProgressSnapshot(1.0, {}, settled=settled, lines=lines))
    written = ["a │ 1", "b │ 1", "a │ 2", "COMPLETED  a", "COMPLETED  quiet", "c │ 1"]
    assert stream.getvalue().splitlines() == written


def test_of_many_nodes_a_line_comes_every_five_seconds_and_no_more() -> None:
    stream = io.StringIO()
    progress = PlainProgress(10_000, stream)
    for tick in range(101):
        progress.show(snapshot(tick / 10, COMPLETED=tick * 50, RUNNING=64, PENDING=10_000 - 64 - tick * 50))
    assert stream.getvalue().splitlines() == [
        "2,500 of 10,000 nodes settled, 64 running, 5.0 s, 500/s, about 15 s left",
        "5,000 of 10,000 nodes settled, 64 running, 10 s, 500/s, about 10 s left",
    ]


def test_of_many_failures_the_first_are_shown_as_they_happen_and_the_rest_counted() -> None:
    stream = io.StringIO()
    progress = PlainProgress(10_000, stream)
    progress.show(snapshot(1, *(failed(f"a{index}") for index in range(15)), FAILED=15))
    progress.show(snapshot(2, *(failed(f"b{index}") for index in range(500)), FAILED=515))
    progress.show(snapshot(6, FAILED=515, RUNNING=2, retried=7))
    lines = stream.getvalue().splitlines()
    assert len(lines) == 21
    assert lines[19].startswith("FAILED     b4")
    assert "515 failed, 7 retried, 2 running" in lines[20]


def test_quiet_shows_nothing_and_a_pipe_gets_plain_lines() -> None:
    assert open_progress(3, stream=io.StringIO(), quiet=True, environ={}) is None
    assert isinstance(open_progress(3, stream=io.StringIO(), quiet=False, environ={}), PlainProgress)
    assert isinstance(
        open_progress(3, stream=Terminal(), quiet=False, environ={"TERM": "dumb"}), PlainProgress
    )


# --- On a terminal


def test_a_terminal_gets_a_bar_with_counts_pace_and_some_of_what_runs() -> None:
    stream = Terminal()
    progress = LiveProgress(10_000, Console(file=stream, force_terminal=True, width=110, no_color=True))
    progress.show(snapshot(2.0, COMPLETED=900, FAILED=3, RUNNING=64, PENDING=9033, retried=7))
    progress.close()
    drawn = stream.getvalue()
    assert "903/10,000, 2.0 s, 452/s, about 20 s left" in drawn
    running = "node_0, node_1, node_2, node_3, node_4, node_5 and 58 more"
    assert f"3 failed, 7 retried, 64 running: {running}" in drawn
    assert "node_6" not in drawn


def test_on_a_terminal_of_80_columns_the_bar_stays_two_lines_whatever_there_is_to_count() -> None:
    stream = Terminal()
    progress = LiveProgress(100_000, Console(file=stream, force_terminal=True, width=80, no_color=True))
    some = dict.fromkeys(("FAILED", "SKIPPED", "CANCELLED", "COMPLETED", "QUEUED"), 12_345)
    progress.show(snapshot(4000.0, **some, RUNNING=64, retried=12_345))
    bar, below = re.sub(r"\x1b\[[0-9?;]*[A-Za-z]", "", stream.getvalue()).strip().splitlines()
    progress.close()
    assert bar.endswith("49,380/100,000, 1 h 6 min, 12/s, about 1 h 8 min left")
    assert below.startswith("12,345 failed, 12,345 skipped, 12,345 cancelled, ")
    assert max(len(bar), len(below)) <= 80


def test_on_a_terminal_a_settled_node_stays_above_the_bar() -> None:
    stream = Terminal()
    progress = LiveProgress(3, Console(file=stream, force_terminal=True, width=80, no_color=True))
    progress.show(snapshot(0.2, SettledNode("fetch", NodeState.COMPLETED, 0.2), failed("parse"), COMPLETED=1))
    progress.close()
    assert "✓ fetch  0.2 s" in stream.getvalue()
    assert "✗ parse  0.2 s  handler_error: no" in stream.getvalue()


def test_a_terminal_is_left_with_its_cursor() -> None:
    stream = Terminal()
    progress = open_progress(3, stream=stream, quiet=False, environ={"TERM": "xterm"})
    assert isinstance(progress, LiveProgress)
    progress.close()
    hidden, shown = stream.getvalue().rfind("\x1b[?25l"), stream.getvalue().rfind("\x1b[?25h")
    assert shown >= hidden


# --- Words


def test_stretches_of_time_read_naturally() -> None:
    said = [seconds_text(seconds) for seconds in (0.004, 0.25, 9.94, 42.4, 75, 7265)]
    assert said == ["4 ms", "0.2 s", "9.9 s", "42 s", "1 min 15 s", "2 h 1 min"]


def test_a_message_of_many_lines_and_escapes_becomes_one_harmless_line() -> None:
    assert shorten("a\nb\x1b[31mc") == r"a b\u001b[31mc"
    assert len(shorten("x" * 5000)) == 300


# --- What nodes say of their progress


def test_without_a_terminal_progress_is_a_line_every_five_seconds_where_it_is_new() -> None:
    stream = io.StringIO()
    shown = PlainProgress(2, stream)
    for tick in range(120):
        told = {"node_0": f"{tick}/120 pages"} | ({"node_1": "1"} if tick else {})
        shown.show(replace(snapshot(tick / 10, RUNNING=2), told=told))
    assert stream.getvalue().splitlines() == [
        "RUNNING    node_0  0/120 pages",
        "RUNNING    node_0  50/120 pages",
        "RUNNING    node_1  1",
        "RUNNING    node_0  100/120 pages",
    ]


def test_the_bar_names_what_runs_with_its_progress() -> None:
    console = Console(file=Terminal(), width=80, force_terminal=True)
    shown = LiveProgress(2, console)
    shown.show(replace(snapshot(1, RUNNING=2), told={"node_1": "40/100 page 4"}))
    shown.close()
    assert "2 running: node_0, node_1 40/100 page 4" in console.file.getvalue()  # type: ignore[attr-defined]
