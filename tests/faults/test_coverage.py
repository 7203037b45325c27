"""docs/faults.md says of every case of the catalogue which test shows it: that page must not lie."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
CASES = 110
STATUS = re.compile(r"covered|(partly|later): .+")


def rows() -> list[tuple[str, str, str, str]]:
    """Return each row of the page: case, promise, tests, status."""
    found = []
    for line in (ROOT / "docs" / "faults.md").read_text().splitlines():
        if line.startswith("| F"):
            _, case, promise, tests, status, _ = (part.strip() for part in line.split("|"))
            found.append((case, promise, tests, status))
    return found


def test_every_case_of_the_catalogue_is_on_the_page_once_and_in_order() -> None:
    assert [case for case, *_ in rows()] == [f"F{number:02}" for number in range(1, CASES + 1)]


def test_every_row_has_a_status_and_what_is_covered_has_a_test() -> None:
    for case, promise, tests, status in rows():
        assert promise, case
        assert STATUS.fullmatch(status), f"{case}: {status}"
        assert tests or status != "covered", f"{case} is covered by no test"
        assert re.fullmatch(r"(`[^`]+`( |$))*", tests), f"{case}: {tests}"


@cache
def names_in(file: str) -> frozenset[str]:
    """Return the tests of a file, and its classes, as pytest names them."""
    names = set()
    for item in ast.parse((ROOT / file).read_text()).body:
        if isinstance(item, ast.ClassDef):
            names.add(item.name)
            names |= {
                f"{item.name}::{part.name}"
                for part in item.body
                if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef)
            }
        elif isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(item.name)
    return frozenset(names)


@pytest.mark.parametrize("case", [case for case, *_ in rows()])
def test_every_test_that_is_named_exists(case: str) -> None:
    (tests,) = (tests for other, _, tests, _ in rows() if other == case)
    for named in re.findall(r"`([^`]+)`", tests):
        file, _, name = named.partition("::")
        assert (ROOT / file).is_file(), f"there is no {file}"
        assert not name or name in names_in(file), f"{file} has no {name}"


def test_every_test_of_this_folder_says_which_case_it_is_for() -> None:
    """The number is in the docstring, and the page names the test at that case."""
    named = {case: tests for case, _, tests, _ in rows()}
    for file in sorted((ROOT / "tests" / "faults").glob("test_*.py")):
        if file.name == Path(__file__).name:
            continue
        for item in ast.parse(file.read_text()).body:
            if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef) and item.name.startswith("test_"):
                cases = re.findall(r"\bF\d+\b", ast.get_docstring(item) or "")
                assert cases, f"{file.name}::{item.name} names no case"
                for case in cases:
                    reference = f"`tests/faults/{file.name}::{item.name}`"
                    assert reference in named[case], f"{case} does not name {reference}"
