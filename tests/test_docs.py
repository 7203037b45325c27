"""The README and the pages of docs/ hold: what they show is run, and what they list is what the code has.

``page.py`` says how a block is marked.
"""

from __future__ import annotations

import ast
import json
import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.page import FENCE, ROOT, Block, Reader, blocks_of
from tests.support.simulation import invariants
from tests.support.simulation.profiles import PROFILES

from weft import run
from weft.api.problem import CODES
from weft.api.reference import rest_page
from weft.cli.reference import commands_page
from weft.core.state import Reason
from weft.definition.bounds import DEFAULT_BOUNDS
from weft.definition.document import read_yaml
from weft.definition.fields import DEFINITION_FIELDS, NODE_FIELDS
from weft.definition.model import Delivery, FailurePolicy, TriggerRule
from weft.definition.validation import check
from weft.expressions.compiler import EXECUTION_FIELDS, TESTS
from weft.expressions.filters import FILTERS
from weft.handlers.registry import Registry
from weft.testing.fake_llm import FakeLLM, failed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.core.payload import Json

DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *(ROOT / "examples").rglob("*.md")])
DEFINITION_PAGE = DOCS / "definition.md"
ERRORS_PAGE = DOCS / "errors.md"
SIMULATION_PAGE = DOCS / "proof.md"
SOURCE = ROOT / "src" / "weft"

LINK = re.compile(r"\[[^\]]*\]\((?P<target>[^)\s]+)\)")
HEADING = re.compile(r"^#+ (?P<title>.+)$", flags=re.MULTILINE)


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


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
    """Return the text under a heading, up to the next one."""
    _, found, rest = page.read_text(encoding="utf-8").partition(f"\n## {title}\n")
    assert found, f"{page.name} has no section {title!r}"
    return rest.partition("\n## ")[0]


def first_column(text: str) -> set[str]:
    return {
        name
        for row in re.findall(r"^\| ([^|]+) \|", text, re.MULTILINE)
        for name in re.findall(r"`([^`]+)`", row)
    }


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_what_a_page_shows_can_be_run(page: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    # Most pages need none: a server is started for the first that does.
    Reader(tmp_path, database_url=lambda: str(request.getfixturevalue("postgres_url"))).read(page)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_no_block_of_a_page_is_passed_over_for_its_language(page: Path) -> None:
    run_or_read = {"console", "json", "python", "sh", "toml", "yaml"}
    only_shown = {"ini", "mermaid", "nginx", "sql", "text"}
    assert {block.language for block in blocks_of(page)} <= run_or_read | only_shown


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_the_definitions_of_a_page_are_as_good_as_it_says(page: Path) -> None:
    for block in blocks_of(page):
        if block.language != "yaml":
            continue
        document = read(block)
        if "fragment" in block.marks:
            continue
        problems = check(document, handlers=Registry(), named=True).problems
        assert bool(problems) == ("invalid" in block.marks), f"{block.place}: {problems}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_the_data_of_a_page_can_be_read(page: Path) -> None:
    for block in blocks_of(page):
        if block.language == "json":
            # A file of lines has a document on each.
            lines = (
                block.text.splitlines() if (block.mark("title") or "").endswith(".jsonl") else [block.text]
            )
            for line in lines:
                json.loads(line)
        elif block.language == "toml":
            tomllib.loads(block.text)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
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


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_source_file_a_page_names_exists(page: Path) -> None:
    # Not the files of a reader that a traceback names.
    text = re.sub(r'File "[^"]*"', "", page.read_text(encoding="utf-8"))
    named = {name for name in re.findall(r"\b\w+(?:/\w+)+\.py\b", text) if not name.startswith("examples/")}
    assert not {name for name in named if not any((top / name).exists() for top in (ROOT, ROOT / "src/weft"))}


def test_every_command_of_dev_that_a_page_names_is_one() -> None:
    """The script is for a clone, so no page is done with it: its commands have tests of their own."""
    known = set(re.findall(r"^  ([a-z-]+)\)", (ROOT / "dev").read_text(encoding="utf-8"), re.MULTILINE))
    assert "bench" in known
    for page in PAGES:
        named = set(
            re.findall(r"(?:^|[`$ ])\./dev ([a-z-]+)", page.read_text(encoding="utf-8"), re.MULTILINE)
        )
        assert named <= known, page


def test_the_six_questions_name_what_the_tree_has() -> None:
    named = re.findall(
        r"`([\w/]+\.(?:py|lua))(?::([\w.]+))?`", section(ROOT / "CONTRIBUTING.md", "Six questions")
    )
    assert len(named) > 20
    for path, name in named:
        assert (SOURCE / path).is_file(), f"there is no {path}"
        source = (SOURCE / path).read_text(encoding="utf-8")
        assert not name or name in names_in(path, source), f"{path} has no {name}"


def names_in(path: str, source: str) -> set[str]:
    """Return the functions of a source file; methods with the name of their class."""
    if path.endswith(".lua"):
        return set(re.findall(r"^local function (\w+)\(", source, re.MULTILINE))
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    names = set()
    for item in ast.parse(source).body:
        if isinstance(item, functions):
            names.add(item.name)
        elif isinstance(item, ast.ClassDef):
            names |= {f"{item.name}.{part.name}" for part in item.body if isinstance(part, functions)}
    return names


def test_every_page_is_in_the_index() -> None:
    index = (DOCS / "index.md").read_text(encoding="utf-8")
    listed = {match["target"] for match in LINK.finditer(index)}
    assert {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")} - {"index.md"} <= listed


def test_the_workflow_of_the_readme_has_ten_lines() -> None:
    first = next(block for block in blocks_of(ROOT / "README.md") if block.language == "yaml")
    assert len(first.text.splitlines()) == 10


def test_the_readme_shows_the_example_of_twelve_lines_as_it_is() -> None:
    example = (ROOT / "examples" / "triage.py").read_text(encoding="utf-8")
    shown = next(block for block in blocks_of(ROOT / "README.md") if block.language == "python")
    assert shown.text == example
    assert len([line for line in example.splitlines() if line]) == 12


def test_the_example_of_the_readme_retries_a_model_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with FakeLLM() as llm:
        llm.script(failed(503))
        monkeypatch.setenv("WEFT_LLM_BASE_URL", llm.base_url)
        result = run(
            ROOT / "examples" / "triage.py:flow", input={"text": "I was charged twice."}, data=tmp_path
        )
    assert (result.output, result.nodes["classify"].attempt) == ("billing: I was charged twice.", 2)


def test_the_page_of_commands_is_the_one_of_the_parser() -> None:
    page = (DOCS / "commands.md").read_text(encoding="utf-8")
    assert page == commands_page(), "run: python -m weft.cli.reference > docs/commands.md"


def test_the_page_of_the_api_is_the_one_of_its_routes() -> None:
    page = (DOCS / "rest.md").read_text(encoding="utf-8")
    assert page == rest_page(), "run: python -m weft.api.reference rest.md > docs/rest.md"


def test_the_errors_page_lists_every_code_of_nodes_and_executions() -> None:
    listed = first_column(section(ERRORS_PAGE, "Nodes")) | first_column(section(ERRORS_PAGE, "Executions"))
    folders = ("core", "definition", "expressions", "handlers", "orchestrator/children")
    files = [SOURCE / "errors.py", *(path for folder in folders for path in (SOURCE / folder).rglob("*.py"))]
    source = "\n".join(path.read_text(encoding="utf-8") for path in files)
    given = set(
        re.findall(r"""(?:^    code = |"code": |_failed\(|_fail\(view, )"(\w+)\"""", source, re.MULTILINE)
    )
    assert given <= listed
    # Some are chosen where they are given, so the page may have more of them; not what no code says.
    assert not {code for code in listed if f'"{code}"' not in source}


def test_the_errors_page_lists_every_reason() -> None:
    assert first_column(section(ERRORS_PAGE, "Reasons")) == set(Reason)


def test_the_errors_page_lists_every_problem_with_its_status() -> None:
    rows = re.findall(r"^\| (\d+) \| `(\w+)` \|", section(ERRORS_PAGE, "Problems"), re.MULTILINE)
    assert {code: int(status) for status, code in rows} == {
        code: status for code, (status, _) in CODES.items()
    }


def test_the_errors_page_lists_every_answer_of_explain() -> None:
    source = (SOURCE / "views" / "explain.py").read_text(encoding="utf-8")
    assert first_column(section(ERRORS_PAGE, "Explain")) == set(re.findall(r'Why\("(\w+)"', source))


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


def requirement_rows() -> list[list[str]]:
    """Return each row of the page of requirements: ids, requirement, weft, tests."""
    lines = (DOCS / "requirements.md").read_text(encoding="utf-8").splitlines()
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line.startswith("| R")]


def test_every_requirement_has_a_test_that_exists_or_says_that_it_has_none() -> None:
    rows = requirement_rows()
    assert len(rows) > 40
    for ids, requirement, weft, tests in rows:
        assert re.fullmatch(r"R\d+\.\d+([ –]R\d+\.\d+)*", ids), ids
        assert requirement, ids
        assert weft, ids
        named = re.findall(r"\[(test_\w+)\]\(([^)]+)\)", tests)
        assert named or "no test" in tests, f"{ids} has neither a test nor the word that it has none"
        for name, path in named:
            source = (DOCS / path).read_text(encoding="utf-8")
            assert re.search(rf"^ *(async )?def {name}\(", source, re.MULTILINE), (
                f"{ids}: {path} has no {name}"
            )


def test_the_simulation_page_lists_every_profile() -> None:
    assert first_column(section(SIMULATION_PAGE, "Profiles")) == set(PROFILES)


def test_the_simulation_page_lists_every_invariant() -> None:
    modules = sorted(Path(invariants.__file__ or "").parent.glob("*.py"))
    source = "".join(module.read_text(encoding="utf-8") for module in modules)
    listed = re.findall(r"^\| (I\d+) \|", section(SIMULATION_PAGE, "Invariants"), re.MULTILINE)
    assert listed == sorted(set(re.findall(r'"(I\d+) ', source)), key=lambda name: int(name[1:]))


if __name__ == "__main__":
    print(filter_table())
