"""Looking at a folder of somebody else runs nothing of it."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import pytest

from weft.cli.main import main

if TYPE_CHECKING:
    from pathlib import Path

TRAP = "import pathlib\npathlib.Path(__file__).with_name('sprung').touch()\ndef run(): ...\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a definition, and traps in all the places that weft could import."""
    for name in ("trap", "other_trap"):
        (tmp_path / f"{name}.py").write_text(TRAP)
    (tmp_path / "weft.toml").write_text('imports = ["trap"]\npython_allow = ["other_trap:run"]\n')
    node = {"id": "a", "handler": "python", "config": {"function": "other_trap:run"}}
    (tmp_path / "flow.json").write_text(json.dumps({"name": "flow", "nodes": [node]}))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in ("trap", "other_trap"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


@pytest.mark.parametrize(
    "command",
    [["validate", "flow.json"], ["validate", "--json", "flow.json"], ["graph", "flow.json"], ["doctor"]],
)
def test_nothing_that_the_folder_names_is_imported(
    folder: Path, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command) == 0
    assert not (folder / "sprung").exists()
    assert {"trap", "other_trap"}.isdisjoint(sys.modules)
    # The module of a definition's folder cannot stand in for one that weft itself would import later.
    assert str(folder) not in sys.path
    written = capsys.readouterr()
    said = written.err + written.out
    assert "names code, which was not imported: imports = ['trap']; python_allow = ['other_trap:run']" in said
    assert "--trust" in said


@pytest.mark.parametrize(
    "command",
    [["validate", "flow.json", "--trust"], ["graph", "flow.json", "--trust"], ["doctor", "--trust"]],
)
def test_a_folder_that_is_trusted_is_imported(
    folder: Path, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command) == 0
    assert (folder / "sprung").exists()
    assert "not imported" not in "".join(capsys.readouterr())


@pytest.mark.parametrize("named_by", ["WEFT_IMPORTS", "WEFT_CONFIG"])
def test_what_the_user_names_is_imported(
    folder: Path, named_by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if named_by == "WEFT_CONFIG":
        monkeypatch.setenv("WEFT_CONFIG", str(folder / "weft.toml"))
    else:
        (folder / "weft.toml").unlink()
        monkeypatch.setenv("WEFT_IMPORTS", "trap")
    assert main(["validate", "flow.json"]) == 0
    assert (folder / "sprung").exists()


def test_other_settings_of_the_folder_hold(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "weft.toml").write_text('max_nodes = 1\nimports = ["trap"]\n')
    nodes = [{"id": name, "handler": "echo"} for name in "ab"]
    (folder / "flow.json").write_text(json.dumps({"name": "flow", "nodes": nodes}))
    assert main(["validate", "flow.json"]) == 2
    assert "2 nodes" in capsys.readouterr().err
