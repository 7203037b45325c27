from __future__ import annotations

import io
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from weft.definition.bounds import Bounds
from weft.errors import DocumentError
from weft.handlers.registry import Registry
from weft.sdk.loading import load, read_value

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def _forget_modules(tmp_path: Path) -> Iterator[None]:
    """Forget what a test imported from its folder: the next one may use the same names."""
    path = list(sys.path)
    yield
    sys.path[:] = path
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None)).startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.fixture
def registry() -> Registry:
    return Registry()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("flow.json", '{"name": "a", "nodes": []}'),
        ("flow.yaml", "name: a\nnodes: []\n"),
        ("flow.yml", "{name: a, nodes: []}"),
        ("flow", "name: a\nnodes: []\n"),
        ("flow", ' \n{"name": "a", "nodes": []}'),
        ("flow", "{name: a, nodes: []}"),
    ],
)
def test_a_file_is_json_or_yaml_by_its_name_or_else_by_its_content(
    tmp_path: Path, registry: Registry, name: str, text: str
) -> None:
    path = tmp_path / name
    path.write_text(text)
    assert load(str(path), registry).document == {"name": "a", "nodes": []}


def test_a_json_file_is_held_to_json(tmp_path: Path, registry: Registry) -> None:
    path = tmp_path / "flow.json"
    path.write_text("name: a")
    with pytest.raises(DocumentError, match=r"flow\.json: line 1"):
        load(str(path), registry)


def test_a_minus_is_stdin(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"name: piped")))
    assert load("-", registry).document == {"name": "piped"}


def test_text_that_begins_like_json_and_is_nothing_is_blamed_as_json(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b'{"name": "a",,}')))
    with pytest.raises(DocumentError, match="stdin: line 1, column 14"):
        load("-", registry)


def test_what_cannot_be_read_is_named(tmp_path: Path, registry: Registry) -> None:
    with pytest.raises(DocumentError, match=r"none\.yaml: no such file"):
        load("none.yaml", registry)
    with pytest.raises(DocumentError, match="directory"):
        load(str(tmp_path), registry)
    with pytest.raises(DocumentError, match=r"none\.py:flow: no such file"):
        load("none.py:flow", registry)


def test_a_file_over_the_limit_is_refused_without_being_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "flow.yaml"
    path.write_text("a: " + "x" * 1000)
    with pytest.raises(DocumentError, match="the limit is 100"):
        read_value(str(path), bounds=Bounds(max_body_bytes=100))


def test_a_variable_of_a_python_file_gives_its_definition(tmp_path: Path, registry: Registry) -> None:
    (tmp_path / "built_flow.py").write_text(
        "class Flow:\n"
        "    def definition(self):\n"
        "        return {'name': 'built'}\n"
        "flow = Flow()\n"
        "plain = {'name': 'plain'}\n"
        "number = 3\n"
    )
    path = str(tmp_path / "built_flow.py")
    loaded = load(f"{path}:flow", registry)
    assert loaded.document == {"name": "built"}
    assert type(loaded.workflow).__name__ == "Flow"
    assert load(f"{path}:plain", registry).document == {"name": "plain"}
    for wrong in ("number", "missing", "flow.missing", "Flow"):
        with pytest.raises(DocumentError, match=f"no workflow '{wrong}'; it has: flow"):
            load(f"{path}:{wrong}", registry)
    assert load(path, registry).document == {"name": "built"}


def test_a_python_file_with_several_workflows_needs_the_name_of_one(
    tmp_path: Path, registry: Registry
) -> None:
    (tmp_path / "two_flows.py").write_text(
        "class Flow:\n    def definition(self):\n        return {}\none = same = Flow()\ntwo = Flow()\n"
    )
    with pytest.raises(DocumentError, match=r"name the workflow in it: two_flows\.py:one"):
        load(str(tmp_path / "two_flows.py"), registry)


def test_a_python_file_that_fails_is_blamed_in_one_sentence(tmp_path: Path, registry: Registry) -> None:
    (tmp_path / "broken_flow.py").write_text("raise ValueError('no key')\n")
    with pytest.raises(DocumentError, match="ValueError: no key"):
        load(f"{tmp_path / 'broken_flow.py'}:flow", registry)


def test_functions_beside_a_definition_may_be_called_and_others_not(
    tmp_path: Path, registry: Registry
) -> None:
    (tmp_path / "flow.yaml").write_text("name: a")
    (tmp_path / "beside_flow.py").write_text("def double(n):\n    return 2 * n\n")
    load(str(tmp_path / "flow.yaml"), registry)
    assert registry.resolve("beside_flow:double").function(4) == 8
    with pytest.raises(Exception, match="may not call"):
        registry.resolve("subprocess:run")
