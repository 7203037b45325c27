from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from weft.handlers.registry import Registry
from weft.handlers.usercode import UserCode, beside, load

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def clean_imports() -> Iterator[None]:
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        del sys.modules[name]


def test_modules_beside_a_definition_may_be_called_but_never_the_standard_library(tmp_path: Path) -> None:
    (tmp_path / "usercode_helper.py").write_text("def answer(): return 42")
    (tmp_path / "os.py").write_text("")
    code = beside(tmp_path / "flow.yaml")
    assert code.allow == ("usercode_helper:*",)
    registry = Registry()
    assert load(code, registry) == []
    assert registry.resolve("usercode_helper:answer").function() == 42


def test_a_file_is_loaded_once_under_its_stem(tmp_path: Path) -> None:
    (tmp_path / "usercode_flow.py").write_text("def answer(): return 42")
    code = beside(tmp_path / "usercode_flow.py")
    registry = Registry()
    assert load(code, registry) == []
    module = sys.modules["usercode_flow"]
    assert load(code, registry) == []
    assert sys.modules["usercode_flow"] is module
    assert registry.resolve("usercode_flow:answer").function() == 42


def test_what_cannot_be_imported_is_said_and_the_rest_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "usercode_broken.py").write_text("import not_there")
    (tmp_path / "usercode_exits.py").write_text("raise SystemExit(1)")
    (tmp_path / "usercode_good.py").write_text("")
    (tmp_path / "json.py").write_text("")
    code = UserCode(
        modules=("usercode_broken", "usercode_exits", "usercode_good"),
        folders=(str(tmp_path),),
        files=(str(tmp_path / "json.py"), str(tmp_path / "usercode_absent.py")),
    )
    problems = load(code, Registry())
    assert [
        word in problem
        for word, problem in zip(
            ("not_there", "usercode_exits", "standard library", "usercode_absent"), problems, strict=True
        )
    ] == [True] * 4
    assert "usercode_good" in sys.modules
    # Where it is: the user's own line.
    assert problems[0].endswith("ModuleNotFoundError: No module named 'not_there'")
    assert 'usercode_broken.py", line 1, in <module>\n    import not_there\n' in problems[0]
