"""The console's own tests, which Node runs: there is no build, so they load the modules as a browser does."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from weft.api.minify import minify_js
from weft.cli.main import COMMANDS

UNIT = Path(__file__).parent / "unit"
CONSOLE = Path(__file__).parents[2] / "src/weft/console"
MOST_LINES = 500
TYPESCRIPT = "5.9.3"


def test_the_consoles_unit_tests_pass_on_what_is_served(tmp_path: Path) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("not run: the console's unit tests need node on the PATH (apt-get install nodejs)")
    console = tmp_path / "src/weft/console"
    shutil.copytree(CONSOLE, console)
    shutil.copytree(UNIT, tmp_path / "tests/console/unit")
    for module in console.rglob("*.js"):
        if "vendor" not in module.relative_to(console).parts:
            module.write_text(minify_js(module.read_text(encoding="utf-8")), encoding="utf-8")
    files = sorted(str(path) for path in (tmp_path / "tests/console/unit").glob("*.test.mjs"))
    assert files
    run = subprocess.run([node, "--test", *files], capture_output=True, text=True, timeout=120, check=False)
    assert run.returncode == 0, run.stdout + run.stderr


def test_the_types_in_the_consoles_comments_hold() -> None:
    """Of the modules as they are written: what is served has no types."""
    run = subprocess.run(
        [*tsc(), "--project", str(CONSOLE / "jsconfig.json")],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr


def tsc() -> list[str]:
    """Return the command that starts the compiler of TypeScript: one on the PATH, else npm's."""
    if found := os.environ.get("WEFT_TEST_TSC") or shutil.which("tsc"):
        return [found]
    if npm := shutil.which("npm"):
        # npm keeps it for the next time.
        command = [npm, "exec", "--yes", f"--package=typescript@{TYPESCRIPT}", "--", "tsc"]
        fetched = subprocess.run([*command, "--version"], capture_output=True, timeout=120, check=False)
        if fetched.returncode == 0:
            return command
    pytest.skip("not run: the console's types need tsc on the PATH (npm install --global typescript)")


def test_no_file_of_the_console_is_long() -> None:
    own = [
        path for path in CONSOLE.rglob("*") if path.suffix in {".js", ".css"} and "vendor" not in path.parts
    ]
    long = {path.name: lines for path in own if (lines := len(path.read_text().splitlines())) > MOST_LINES}
    assert long == {}


def test_nothing_in_the_console_needs_what_its_content_security_policy_refuses() -> None:
    page = (CONSOLE / "index.html").read_text()
    assert "style=" not in page
    assert "<script>" not in page
    own = [path for path in CONSOLE.rglob("*.js") if "vendor" not in path.parts]
    for path in own:
        text = path.read_text()
        for refused in ("innerHTML", "dangerouslySetInnerHTML", "eval(", "new Function", "://cdn", 'style="'):
            assert refused not in text.replace('style="…"', ""), f"{path.name}: {refused}"


def test_every_command_that_the_console_names_exists() -> None:
    """A visitor copies them into a shell; also those that lead to the documentation."""
    files = [file for file in CONSOLE.rglob("*.js") if "vendor" not in file.relative_to(CONSOLE).parts]
    source = "\n".join(file.read_text(encoding="utf-8") for file in files)
    named = set(re.findall(r"(?:<code>|`|^|\\n)weft ([a-z]+)", source, re.MULTILINE))
    assert {"deploy", "docs", "start"} <= named
    assert named <= {command.name.split()[0] for command in COMMANDS}
