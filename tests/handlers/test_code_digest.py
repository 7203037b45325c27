"""Digests of the code behind a function, each in a process of its own: modules are imported once."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = """\
import sys
sys.path.insert(0, sys.argv[1])
import tasks
from weft.handlers.code_digest import CodeDigests
digests = CodeDigests()
digests.note_imported()
for file, text in zip(sys.argv[2::2], sys.argv[3::2]):
    open(file, "w").write(text)
print(digests.of("tasks.run"))
"""
FILES = {
    "tasks/__init__.py": "import tasks.run\n",
    "tasks/run.py": "from . import words\nfrom helper import HELP\ndef run():\n    import late\n",
    "tasks/words.py": "WORD = 1\n",
    "tasks/aside.py": "ASIDE = 1\n",
    "helper.py": "from deeper import DEEP as HELP\n",
    "deeper.py": "DEEP = 1\n",
    "late.py": "LATE = 1\n",
}


def digest(folder: Path, *changed_after_import: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(folder), *changed_after_import],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tasks").mkdir()
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def test_a_digest_changes_with_the_modules_that_the_module_imports_and_with_no_others(folder: Path) -> None:
    first = digest(folder)
    assert len(first) == 16
    for name in ("tasks/aside.py", "late.py"):
        (folder / name).write_text("OTHER = 2\n")
    assert digest(folder) == first
    found = {first}
    for name in ("tasks/run.py", "tasks/words.py", "helper.py", "deeper.py"):
        (folder / name).write_text(FILES[name] + "\nCHANGED = 1\n")
        found.add(digest(folder))
    assert len(found) == 5


def test_a_digest_is_of_the_source_that_was_imported(folder: Path) -> None:
    first = digest(folder)
    assert digest(folder, str(folder / "deeper.py"), "DEEP = 2\n") == first
    assert digest(folder) != first
