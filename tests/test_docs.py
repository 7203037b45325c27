"""The README and the pages of docs/ hold: what they show is run, and what they list is what the code has.

A fence says how it is meant by the words behind its language:

- ``python``: saved and run as a script. A ``text output`` block right behind it is what the script prints.
- ``yaml``: a whole definition that validates; with ``invalid`` one that does not, and with ``fragment`` a
  part of one, which only has to be YAML.
- ``console``: each line ``$ weft …`` (or ``$ ./dev run …``) is run and must end with code 0, or with the
  N of ``exit=N``. The lines under it are its output in any order, where ``…`` stands for lines left out.
- ``title="name"``: the block is also a file of that name, for the commands of the same page.

Times and ids differ from run to run and are not compared. Blocks of other languages are not run.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from weft.core.bounds import DEFAULT_BOUNDS
from weft.core.compiler import EXECUTION_FIELDS, TESTS
from weft.core.definition import Delivery, FailurePolicy, TriggerRule
from weft.core.document import read_yaml
from weft.core.fields import DEFINITION_FIELDS, NODE_FIELDS
from weft.core.filters import FILTERS
from weft.core.validation import check
from weft.handlers.registry import Registry
from weft.testing.simulation import invariants
from weft.testing.simulation.profiles import PROFILES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from weft.core.payload import Json

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
DEFINITION_PAGE = ROOT / "docs" / "definition.md"
SIMULATION_PAGE = ROOT / "docs" / "simulation.md"

# Nothing here takes a tenth of this; a page that hangs should say so, and not hang the suite.
SECONDS_BEFORE_GIVING_UP = 120

FENCE = re.compile(
    r"^```(?P<language>\w+)(?P<marks>[^\n]*)\n(?P<text>.*?)^```$", flags=re.MULTILINE | re.DOTALL
)
LINK = re.compile(r"\[[^\]]*\]\((?P<target>[^)\s]+)\)")
HEADING = re.compile(r"^#+ (?P<title>.+)$", flags=re.MULTILINE)
DIFFERS = re.compile(
    r"(?P<id>[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})|\d+(\.\d+)? m?s\b|\d{4}-\d\d-\d\dT[\d:.]+Z"
)
LEFT_OUT = "…"


@dataclass(frozen=True, slots=True)
class Block:
    page: Path
    line: int
    language: str
    marks: tuple[str, ...]
    text: str

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    def mark(self, name: str) -> str | None:
        """Give the value of ``name=value`` among the marks."""
        found = (mark.partition("=")[2].strip('"') for mark in self.marks if mark.startswith(f"{name}="))
        return next(found, None)


@dataclass(frozen=True, slots=True)
class Command:
    line: str
    shown: list[str]


def blocks_of(page: Path) -> list[Block]:
    source = page.read_text(encoding="utf-8")
    return [
        Block(
            page,
            source.count("\n", 0, match.start()) + 1,
            match["language"],
            tuple(match["marks"].split()),
            match["text"],
        )
        for match in FENCE.finditer(source)
    ]


def commands_of(block: Block) -> Iterator[Command]:
    command: Command | None = None
    for line in block.text.splitlines():
        if line.startswith("$ "):
            if command is not None:
                yield command
            command = Command(line.removeprefix("$ "), [])
        else:
            assert command is not None, f"{block.place}: output without a command: {line}"
            command.shown.append(line)
    if command is not None:
        yield command


def run_in(folder: Path, arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run a program as a reader would: ``weft`` is on the path, and no setting of ours is set."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("WEFT_")}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    return subprocess.run(
        arguments,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SECONDS_BEFORE_GIVING_UP,
    )


def comparable(lines: Sequence[str]) -> Counter[str]:
    return Counter(DIFFERS.sub("•", line.rstrip()) for line in lines)


def differences(shown: Sequence[str], printed: str) -> list[str]:
    """List the lines that are shown and were not printed; and where none are left out, the reverse."""
    expected, found = comparable(shown), comparable(printed.splitlines())
    leaves_out = expected.pop(LEFT_OUT, 0) > 0
    missing = [f"not printed: {line}" for line in (expected - found).elements()]
    return missing + ([] if leaves_out else [f"not shown: {line}" for line in (found - expected).elements()])


def run_console(block: Block, folder: Path) -> None:
    for command in commands_of(block):
        line = re.sub(r"^\./dev run$", "weft run examples/quickstart.yaml", command.line)
        line = re.sub(r"^\./dev run ", "weft ", line)
        if not line.startswith("weft "):
            continue
        ended = run_in(folder, ["sh", "-c", line])
        code = int(block.mark("exit") or 0)
        assert ended.returncode == code, f"{block.place}: {command.line}\n{ended.stdout}"
        if command.shown:
            assert not differences(command.shown, ended.stdout), f"{block.place}:\n{ended.stdout}"


def run_script(block: Block, folder: Path) -> str:
    script = folder / (block.mark("title") or f"block_{block.line}.py")
    script.write_text(block.text, encoding="utf-8")
    ended = run_in(folder, [sys.executable, script.name])
    assert ended.returncode == 0, f"{block.place}:\n{ended.stdout}"
    return ended.stdout


def read(block: Block) -> Json:
    bounds = DEFAULT_BOUNDS
    return read_yaml(block.text.encode(), max_bytes=bounds.max_body_bytes, max_depth=bounds.max_depth)


def slug(title: str) -> str:
    """Make a heading's anchor as GitHub does."""
    return re.sub(r"[^\w\- ]", "", title.strip().lower()).replace(" ", "-")


def filter_table() -> str:
    rows = [f"| `{found.signature}` | {found.doc} |" for _, found in sorted(FILTERS.items())]
    return "\n".join(["| filter | gives |", "|---|---|", *rows])


def section(page: Path, title: str) -> str:
    """Give the text under a heading, up to the next one."""
    _, found, rest = page.read_text(encoding="utf-8").partition(f"\n## {title}\n")
    assert found, f"{page.name} has no section {title!r}"
    return rest.partition("\n## ")[0]


def first_column(text: str) -> set[str]:
    return {
        name
        for row in re.findall(r"^\| ([^|]+) \|", text, re.MULTILINE)
        for name in re.findall(r"`([^`]+)`", row)
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_a_page_shows_can_be_run(page: Path, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    blocks = blocks_of(page)
    for block in blocks:
        title = block.mark("title")
        if title is not None:
            (tmp_path / title).write_text(block.text, encoding="utf-8")
    printed = ""
    for block in blocks:
        match block.language:
            case "python":
                printed = run_script(block, tmp_path)
            case "text" if "output" in block.marks:
                assert not differences(block.text.splitlines(), printed), f"{block.place}:\n{printed}"
            case "console":
                run_console(block, tmp_path)
            case _:
                pass


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_definitions_of_a_page_are_as_good_as_it_says(page: Path) -> None:
    for block in blocks_of(page):
        if block.language != "yaml":
            continue
        document = read(block)
        if "fragment" in block.marks:
            continue
        problems = check(document, handlers=Registry(), named=True).problems
        assert bool(problems) == ("invalid" in block.marks), f"{block.place}: {problems}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    for match in LINK.finditer(text):
        target, _, anchor = match["target"].partition("#")
        if re.match(r"[a-z]+:", target):
            continue
        path = (page.parent / target).resolve() if target else page
        assert path.exists(), f"{page.name} links to {match['target']}"
        if anchor:
            headings = FENCE.sub("", path.read_text(encoding="utf-8"))
            slugs = {slug(found["title"]) for found in HEADING.finditer(headings)}
            assert anchor in slugs, f"{page.name} links to {match['target']}; {path.name} has {sorted(slugs)}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_source_file_a_page_names_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    named = {name for name in re.findall(r"\b\w+(?:/\w+)+\.py\b", text) if not name.startswith("examples/")}
    assert not {name for name in named if not any((top / name).exists() for top in (ROOT, ROOT / "src/weft"))}


def test_every_page_is_in_the_index() -> None:
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    listed = {match["target"] for match in LINK.finditer(index)}
    assert {page.name for page in (ROOT / "docs").glob("*.md")} - {"index.md"} <= listed


def test_the_workflow_of_the_readme_has_ten_lines() -> None:
    first = next(block for block in blocks_of(ROOT / "README.md") if block.language == "yaml")
    assert len(first.text.splitlines()) == 10


def test_the_table_of_filters_is_the_one_of_the_code() -> None:
    page = DEFINITION_PAGE.read_text(encoding="utf-8")
    assert filter_table() in page, f"docs/definition.md should hold this table:\n\n{filter_table()}\n"


@pytest.mark.parametrize(
    ("title", "names"),
    [
        ("The definition", DEFINITION_FIELDS),
        ("A node", NODE_FIELDS),
        ("Trigger rules", TriggerRule),
        ("Handlers", Registry().names()),
    ],
)
def test_a_table_of_the_definition_page_lists_what_the_code_knows(title: str, names: Sequence[str]) -> None:
    assert first_column(section(DEFINITION_PAGE, title)) == set(map(str, names))


@pytest.mark.parametrize("name", [*FailurePolicy, *Delivery, *EXECUTION_FIELDS, *TESTS])
def test_the_definition_page_names_every_word_of_the_format(name: str) -> None:
    assert f"`{name}`" in DEFINITION_PAGE.read_text(encoding="utf-8")


def test_the_simulation_page_lists_every_profile() -> None:
    assert first_column(section(SIMULATION_PAGE, "Profiles")) == set(PROFILES)


def test_the_simulation_page_lists_every_invariant() -> None:
    assert invariants.__file__ is not None
    source = Path(invariants.__file__).read_text(encoding="utf-8")
    listed = re.findall(r"^\| (I\d+) \|", section(SIMULATION_PAGE, "Invariants"), re.MULTILINE)
    assert listed == sorted(set(re.findall(r'"(I\d+) ', source)), key=lambda name: int(name[1:]))


if __name__ == "__main__":
    print(filter_table())
