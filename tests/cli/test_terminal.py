"""No command sends a terminal what it would obey: text of users and of services is shown escaped."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import weft.cli
from weft.cli.main import main
from weft.cli.printing import print_json, print_text, say
from weft.cli.table import facts, table
from weft.core.state import NodeState
from weft.drawing.escaping import escaped
from weft.sdk.progress import shorten
from weft.sdk.report import report, traceback_lines

if TYPE_CHECKING:
    from collections.abc import Iterator

C0 = [chr(code) for code in range(0x20) if chr(code) not in "\t\n"]
C1 = [chr(code) for code in range(0x80, 0xA0)]
OTHERS = ["\x7f", "\u2028", "\u202e", "\u2066", "\u200f", "\ufeff", "\ud800"]
OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\u200f\ufeff\ud800-\udfff]")


@pytest.mark.parametrize("character", [*C0, *C1, *OTHERS])
def test_each_character_is_shown_as_json_writes_it(
    character: str, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = f"\\u{ord(character):04x}"
    assert escaped(f"a{character}b") == f"a{shown}b"
    print_text(f"a{character}b\n")
    say(f"a{character}b")
    print_json({"a": f"{character}b"})
    written = capsys.readouterr()
    assert not OBEYED.search(written.out + written.err)
    assert written.err == f"weft: a{shown}b\n"
    text, _, document = written.out.partition("\n")
    assert text == f"a{shown}b"
    assert json.loads(document) == {"a": f"{character}b"}


def test_words_and_emoji_stay_as_they_are() -> None:
    text = "grüße\tمی‌خواهم 👩‍👩‍👧\n"
    assert escaped(text) == text


def test_tables_reports_and_tracebacks_are_escaped_too() -> None:
    evil = "x\x9b2J\x85y"
    error = {"code": "handler_error", "message": evil, "details": {"traceback": f"line\n{evil}"}}
    execution = {
        "id": "e",
        "state": "FAILED",
        "counts": dict.fromkeys(NodeState, 1),
        "error": {**error, "node": "a"},
        "nodes": [
            {"id": "a", "state": "FAILED", "attempt": 1, "reason": None, "cause": None, "error": error}
        ],
    }
    shown = [
        shorten(evil),
        table(["A"], [[evil]]),
        facts({"a": evil}),
        report(execution, elapsed_seconds=1.0),
        *traceback_lines(error),
    ]
    for text in shown:
        assert not OBEYED.search(text), text
    assert "x\\u009b2J\\u0085y" in "".join(shown)


def test_a_definition_cannot_write_to_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "evil.json"
    node = {"id": "a\x9b2J", "handler": "\x9dno\x1b]0;title\x07", "\x9b2J": 1}
    file.write_text(json.dumps({"name": "\x85", "nodes": [node]}))
    for arguments in (["validate", str(file)], ["validate", "--json", str(file)], ["run", str(file)]):
        assert main(arguments) == 2
        written = capsys.readouterr()
        assert not OBEYED.search(written.out + written.err)
        assert "u009b" in written.out + written.err


def test_what_a_function_gives_is_escaped_on_stdout(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "echo.json"
    file.write_text(json.dumps({"nodes": [{"id": "a", "handler": "echo", "config": "\x9b2J\u202e"}]}))
    assert main(["run", str(file), "--quiet"]) == 0
    out = capsys.readouterr().out
    assert not OBEYED.search(out)
    assert json.loads(out) == {"a": "\x9b2J\u202e"}


def direct_writes() -> Iterator[str]:
    """Find the lines of commands that write to a terminal past ``printing``."""
    folder = Path(weft.cli.__file__).parent
    for file in folder.rglob("*.py"):
        if file.name == "printing.py":
            continue
        for line in file.read_text(encoding="utf-8").splitlines():
            if (
                re.search(r"\bprint\(|std(out|err)(\.buffer)?\.write\(", line)
                and "_console.print" not in line
            ):
                yield f"{file.relative_to(folder)}: {line.strip()}"


def test_every_command_prints_by_the_functions_that_escape() -> None:
    # These write words of weft's own alone.
    assert sorted(direct_writes()) == [
        'follow.py: sys.stderr.write("weft: cancelling; press Ctrl-C again to stop at once\\n")',
        "main.py: sys.stdout.write(_overview())",
        'main.py: sys.stdout.write(f"weft {_version()}\\n")',
        "reference.py: sys.stdout.write(commands_page())",
        'serving.py: sys.stderr.write(f"{name} is ready{at}{also}\\n")',
    ]
