"""What is told of nodes while an execution runs: what they print, and their retries."""

from __future__ import annotations

import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
from fcntl import ioctl
from typing import TYPE_CHECKING, Any

import pytest

from weft.cli.main import main
from weft.cli.notices import NodeNotices, attempts_of

if TYPE_CHECKING:
    from pathlib import Path

RETRYING: dict[str, Any] = {
    "type": "node.retrying",
    "generation": 1,
    "node": "fetch",
    "attempt": 1,
    "error": {"code": "handler_error", "message": "no", "details": {"type": "TimeoutError"}},
    "at": "2026-01-31T09:30:00.000000Z",
    "due_at": "2026-01-31T09:30:01.300000Z",
}
CHATTY = """\
import sys
import time

from weft import Workflow

flow = Workflow("chatty", defaults={"retry": {"base_delay_seconds": 0.05}})


@flow.node(max_retries=2)
def fetch(context):
    print("a long line of words, " * 5 + "and its end")
    print("to stderr", file=sys.stderr)
    if context.attempt == 1:
        raise TimeoutError("no answer")
    for number in range(5):
        print("step", number)
        time.sleep(0.15)


@flow.node(dependencies=[fetch], max_retries=0)
def parse(fetch):
    print("parsing", end="")
    return {}["price"]
"""


def test_a_retry_is_told_with_its_number_its_reason_and_its_wait() -> None:
    notices = NodeNotices({"fetch": 4})
    notices.retrying(RETRYING)
    notices.retrying({**RETRYING, "error": {"code": "timeout", "message": "no"}})
    notices.retrying({**RETRYING, "generation": 2, "node": "other", "due_at": None})
    assert [line.text for line in notices.take()] == [
        "RETRYING fetch 2/4: TimeoutError, next in 1.3 s",
        "RETRYING fetch 3/4: timeout, next in 1.3 s",
        "RETRYING other 2: TimeoutError",
    ]
    assert notices.take() == []


def test_a_line_is_told_with_its_node_and_without_what_a_terminal_obeys(
    capsys: pytest.CaptureFixture[str],
) -> None:
    line = {"node": "a", "stream": "stdout", "level": None, "logger": None, "message": "one\ntwo \x1b[2J"}
    notices = NodeNotices({})
    notices.printed(line)
    notices.printed({**line, "node": None, "stream": "log", "level": "INFO", "logger": "x", "message": "y"})
    assert [line.text for line in notices.take()] == ["a │ one", "a │ two \\u001b[2J", " │ INFO x: y"]
    notices.printed(line)
    assert capsys.readouterr().err == ""
    notices.stop_waiting()
    notices.printed(line)
    assert capsys.readouterr().err.count("a │ one\n") == 2


def test_a_definition_says_how_often_a_node_may_be_started() -> None:
    nodes = [{"id": "a"}, {"id": "b", "max_retries": 0}]
    assert attempts_of({"nodes": nodes}) == {"a": 4, "b": 1}
    assert attempts_of({"nodes": nodes, "defaults": {"max_retries": 1}}) == {"a": 2, "b": 1}


def test_without_a_terminal_lines_and_retries_are_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "chatty_lines.py").write_text(CHATTY)
    data = tmp_path / "data"
    assert main(["run", f"{tmp_path}/chatty_lines.py:flow", "--data", str(data)]) == 1
    lines = [re.sub(r"[\d.]+ m?s\b", "•", line) for line in capsys.readouterr().err.splitlines()]
    words = "fetch │ " + "a long line of words, " * 5 + "and its end"
    assert lines[:2] == [words, "fetch │ to stderr"]
    assert lines[2] == "RETRYING fetch 2/3: TimeoutError, next in •"
    assert lines[3:5] == [words, "fetch │ to stderr"]
    assert [line for line in lines if "step" in line] == [f"fetch │ step {number}" for number in range(5)]
    assert lines.index("fetch │ step 4") < lines.index("COMPLETED  fetch  •")
    assert "parse │ parsing" in lines
    assert re.fullmatch(
        rf"  retry: weft up {tmp_path}/chatty_lines.py --data {data}, then weft retry [0-9a-f-]{{36}}",
        lines[-1],
    )


def on_terminal(command: list[str], columns: int) -> tuple[int, str]:
    """Run a command on a terminal of its own, and give its exit code and all that it wrote there."""
    ours, theirs = pty.openpty()
    ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": str(columns), "NO_COLOR": "1"}
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=theirs, env=environment
    )
    os.close(theirs)
    written = b""
    while True:
        select.select([ours], [], [])
        try:
            data = os.read(ours, 65536)
        except OSError:  # on Linux, the end of a terminal
            break
        if not data:
            break
        written += data
    os.close(ours)
    return process.wait(), written.decode()


def screen(written: str, columns: int) -> list[str]:
    """Return the lines that a terminal shows in the end, all of its history included."""
    lines: list[list[str]] = [[]]
    row = column = 0

    def put(character: str) -> None:
        nonlocal row, column
        if column == columns:
            row, column = row + 1, 0
        while len(lines) <= row:
            lines.append([])
        line = lines[row]
        line += [" "] * (column - len(line) + 1)
        line[column] = character
        column += 1

    for found in re.finditer(r"\x1b\[(?P<numbers>[?\d;]*)(?P<verb>[A-Za-z])|(?P<other>[\s\S])", written):
        verb, number = found["verb"], int((found["numbers"] or "1").strip("?") or 1) if found["verb"] else 0
        match verb, found["other"]:
            case "A", _:
                row = max(0, row - number)
            case "K", _:
                if row < len(lines):
                    lines[row] = [] if found["numbers"] == "2" else lines[row][:column]
            case None, "\r":
                column = 0
            case None, "\n":
                row += 1
                while len(lines) <= row:
                    lines.append([])
            case None, character:
                put(character)
            case _:
                pass
    return ["".join(line).rstrip() for line in lines]


@pytest.mark.parametrize("columns", [40, 120])
def test_on_a_terminal_nothing_that_nodes_print_is_lost_or_erased(tmp_path: Path, columns: int) -> None:
    (tmp_path / "chatty_terminal.py").write_text(CHATTY)
    command = [sys.executable, "-m", "weft.cli.main", "run", f"{tmp_path}/chatty_terminal.py:flow"]
    code, written = on_terminal(command, columns)
    shown = screen(written, columns)
    assert code == 1, written
    # A terminal breaks lines wherever its edge is, also in a word.
    whole = re.sub(r"\s", "", "".join(line.ljust(columns) for line in shown))
    words = "fetch │ " + "a long line of words, " * 5 + "and its end"
    assert whole.count(re.sub(r"\s", "", words)) == 2
    for line in [f"fetch │ step {number}" for number in range(5)] + ["parse │ parsing"]:
        assert shown.count(line) == 1, shown
    assert any(line.startswith("RETRYING fetch 2/3: TimeoutError") for line in shown)
    assert sum(line.startswith("✓ fetch") for line in shown) == 1
    # The bar itself is gone.
    assert not any("━" in line for line in shown)
    assert "KeyError:'price'" in whole
