"""Modules are imported from sources that were kept, in a process of its own: the hook stays in it."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = """\
import inspect, json, pkgutil, sys
from pathlib import Path
from weft.handlers.kept_sources import KeptSources

sys.dont_write_bytecode = False
folder = Path(sys.argv[1])
kept = {str(path): path.read_bytes() for path in folder.rglob("*.py")}
for path in kept:
    Path(path).unlink()
(folder / "words.py").write_text("WORD = 'new'")
(folder / "other.py").write_text("WORD = 'on disk'")
sources = KeptSources(kept)
sources.install()
sys.path.insert(0, str(folder))
import other, pack.inner, words
print(json.dumps({
    "read": sorted(Path(path).name for path in sources.read),
    "words": words.WORD,
    "inner": pack.inner.WORD,
    "other": other.WORD,
    "file": words.__file__,
    "source": inspect.getsource(words),
    "listed": sorted(module.name for module in pkgutil.iter_modules([str(folder)])),
    "bytecode": sorted(path.name.partition(".")[0] for path in folder.rglob("*.pyc")),
}))
"""


def test_kept_sources_are_imported_in_place_of_the_files_and_others_from_the_disk(tmp_path: Path) -> None:
    (tmp_path / "words.py").write_text("WORD = 'kept'")
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "__init__.py").write_text("from words import WORD")
    (tmp_path / "pack" / "inner.py").write_text("from pack import WORD")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == {
        "read": ["__init__.py", "inner.py", "words.py"],
        "words": "kept",
        "inner": "kept",
        "other": "on disk",
        "file": str(tmp_path / "words.py"),
        "source": "WORD = 'kept'",
        "listed": ["other", "words"],
        # Bytecode of another source under the file's name would be taken for its own.
        "bytecode": ["other"],
    }
