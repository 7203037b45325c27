"""Type checkers on a program that uses the whole SDK, and on ten mistakes.

Each mistake is found by mypy, by basedpyright, or where weft is told of it.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import pytest

import weft

if TYPE_CHECKING:
    from collections.abc import Sequence

SAMPLE = Path(__file__).parent / "sample_project" / "shop.py"
DESK = SAMPLE.with_name("desk.py")
Lines: TypeAlias = set[int]
# File names with lines, and all that the type checker said.
Found: TypeAlias = tuple[set[tuple[str, int]], str]

# What a mistake is, and the lines of a program that makes it.
MISTAKES = {
    "a field that a workflow does not have": 'Workflow("a", max_concurency=3)',
    "an option that a node does not have": 'flow.node(id="a", handler="echo", retries=3)',
    "a policy that does not exist": 'Workflow("a", failure_policy="stop")',
    "an unknown attribute of a result": "run(flow).outputs",
    "an error used as if it were always there": "run(flow).error.code",
    "an output that does not fit a parameter": "@flow.node\ndef label(count: str) -> str: return count",
    "a parameter that nothing fills": "@flow.node\ndef lost(cuont: int) -> int: return cuont",
    "a parent that is a data frame": "@flow.node\ndef rows(count: polars.DataFrame) -> int: return 1",
    "a generator as a node": "@flow.node\ndef lines() -> Iterator[int]: yield 1",
    "a name that no workflow may have": 'Workflow("Order Report")',
    "an argument that a client does not take": 'weft.Client().start("a", lables={})',
    "a call that is not awaited": 'weft.AsyncClient().start("a").id',
}
PREAMBLE = """\
from collections.abc import Iterator
import polars
import weft
from weft import Workflow, run
flow = Workflow("planted")
@flow.node
def count() -> int: return 1
"""
# Of those, what the interpreter would not notice before a server or an execution is asked.
FOUND_AT_DECLARATION = re.compile(r"(Definition|Type)Error")


def check(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *command], capture_output=True, text=True, check=False, cwd=SAMPLE.parent
    )


def mypy(files: Sequence[Path], cache: Path) -> Found:
    flags = ("--strict", "--no-incremental", "--no-error-summary", "--cache-dir", str(cache))
    ended = check("mypy", *flags, *map(str, files))
    errors = re.findall(r"^(.+):(\d+): error", ended.stdout, re.MULTILINE)
    return {(Path(name).name, int(line)) for name, line in errors}, ended.stdout


def basedpyright(files: Sequence[Path], folder: Path) -> Found:
    config = folder / "pyrightconfig.json"
    config.write_text(
        json.dumps({"typeCheckingMode": "standard", "include": [*map(str, files)], "pythonVersion": "3.11"})
    )
    ended = check("basedpyright", "--project", str(config), "--outputjson", "--pythonpath", sys.executable)
    found = json.loads(ended.stdout)["generalDiagnostics"]
    errors = [each for each in found if each["severity"] == "error"]
    lines = {(Path(each["file"]).name, each["range"]["start"]["line"] + 1) for each in errors}
    return lines, json.dumps(errors, indent=1)


def test_the_whole_sdk_has_no_type_errors_and_every_planted_mistake_is_found(tmp_path: Path) -> None:
    """Both programs in one run of each type checker, which reads the package once."""
    program = PREAMBLE
    places: dict[str, range] = {}
    for name, code in MISTAKES.items():
        first = program.count("\n") + 1
        program += code + "\n"
        places[name] = range(first, program.count("\n") + 1)
    planted = tmp_path / "planted.py"
    planted.write_text(program)
    found: Lines = set()
    files = [SAMPLE, DESK, planted]
    for lines, text in (mypy(files, tmp_path), basedpyright(files, tmp_path)):
        assert not [line for name, line in lines if name != planted.name], text
        found |= {line for name, line in lines if name == planted.name}
    unfound = [
        name
        for name, lines in places.items()
        if not found.intersection(lines) and not _is_refused(MISTAKES[name])
    ]
    assert unfound == []


def test_the_programs_use_every_public_name_and_every_call_of_the_client() -> None:
    program = SAMPLE.read_text(encoding="utf-8") + DESK.read_text(encoding="utf-8")
    calls = {f"client.{name}(" for name in dir(weft.Client) if not name.startswith("_")}
    missing = [call for call in sorted(calls) if call not in program]
    assert missing == [], f"a new call has its place in {DESK.name}"
    names = {name for name in weft.__all__ if not name.startswith("_")}
    assert names - set(re.findall(r"\w+", program)) == set()


def test_the_program_runs() -> None:
    ended = subprocess.run([sys.executable, str(SAMPLE)], capture_output=True, text=True, check=False)
    assert ended.stdout.splitlines()[-1] == "7.75 COMPLETED", ended.stderr


def _is_refused(code: str) -> bool:
    ended = subprocess.run(
        [sys.executable, "-c", PREAMBLE + code], capture_output=True, text=True, check=False
    )
    return FOUND_AT_DECLARATION.search(ended.stderr) is not None


@pytest.mark.parametrize("name", [name for name in MISTAKES if "node" in name or "parameter" in name])
def test_a_mistake_in_a_declaration_is_refused_at_once(name: str) -> None:
    assert _is_refused(MISTAKES[name])
