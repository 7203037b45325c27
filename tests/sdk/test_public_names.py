from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import weft

ROOT = Path(__file__).parents[2]


def test_the_public_names_are_sorted_and_each_can_be_had() -> None:
    assert weft.__all__ == sorted(weft.__all__)
    for name in weft.__all__:
        assert getattr(weft, name) is not None
    assert set(weft.__all__) <= set(dir(weft))


def test_type_checkers_and_the_interpreter_find_the_same_names() -> None:
    tree = ast.parse(Path(weft.__file__).read_text())
    for_checkers = {
        alias.name: node.module
        for block in tree.body
        if isinstance(block, ast.If)
        for node in block.body
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("weft.")
        for alias in node.names
    }
    assert for_checkers == weft._MODULES
    assert {*for_checkers, "__version__"} == set(weft.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'weft' has no attribute 'Wrokflow'"):
        weft.Wrokflow  # noqa: B018 - the access is what is tested


def test_importing_weft_loads_nothing_else_of_it() -> None:
    code = "import sys, weft; print([name for name in sys.modules if name.startswith('weft.')])"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"


def test_declaring_a_workflow_loads_no_engine() -> None:
    code = "import sys, weft; weft.Workflow; print('weft.engine' in sys.modules, 'jinja2' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "False False"


def test_weft_tells_type_checkers_that_it_has_types() -> None:
    assert (Path(weft.__file__).parent / "py.typed").is_file()


DOCUMENTED = sorted(
    {
        name
        for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]
        for text in [page.read_text(encoding="utf-8")]
        for name in [
            *re.findall(r"\bweft\.([A-Z]\w+)", text),
            *(
                name.strip()
                for names in re.findall(r"^ *from weft import (.+)$", text, flags=re.MULTILINE)
                for name in names.split(",")
            ),
        ]
    }
)


@pytest.mark.parametrize("name", DOCUMENTED)
def test_every_name_that_the_docs_use_is_public(name: str) -> None:
    assert name in weft.__all__
