"""The wheel, as users install it: in an empty environment and an empty folder, without the source tree."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from zipfile import ZipFile

import aiohttp
import pytest
from tests.operation.serving import ROOT, Server

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SOURCE = ROOT / "src"
# Without uv, pip builds and installs: that takes a minute on a machine with much else to do.
SECONDS_BEFORE_GIVING_UP = 600

DEFINITION = "{name: greet, nodes: [{id: hello, handler: echo, config: 'hello {{ input.name }}'}]}\n"
FLOWS = """\
from weft import Workflow, run

flow = Workflow("shout", output="{{ shout.output }}")


@flow.node
def shout(input):
    return input["name"].upper()


if __name__ == "__main__":
    print(run(flow, input={"name": "ada"}).output)
"""


def _outside(settings: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return an environment that knows neither the source tree nor any setting of weft."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("WEFT_", "PYTHON"))}
    return {**kept, **(settings or {})}


def _do(
    arguments: Sequence[str], *, folder: Path, settings: Mapping[str, str] | None = None, code: int = 0
) -> str:
    """Return what a command prints that ends with this code; of one that fails, what it says of that."""
    ended = subprocess.run(
        arguments,
        cwd=folder,
        env=_outside(settings),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS_BEFORE_GIVING_UP,
    )
    assert ended.returncode == code, f"{arguments}: {ended.stdout}{ended.stderr}"
    return ended.stderr if code else ended.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    uv = _uv()
    build = [uv, "build", "-q", "--wheel", "-o"] if uv else [*_PIP, "wheel", "-q", "--no-deps", "-w"]
    _do([*build, str(folder), str(ROOT)], folder=folder)
    (built,) = folder.glob("*.whl")
    return built


@dataclass(frozen=True, slots=True)
class Installed:
    """An environment that holds the wheel and its dependencies, and nothing else."""

    programs: Path

    @property
    def weft(self) -> str:
        return str(self.programs / "weft")

    @property
    def python(self) -> str:
        return str(self.programs / "python")


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False)
    found = Installed(folder / "bin")
    uv = _uv()
    install = (
        [uv, "pip", "install", "--python", found.python]
        if uv
        else [*_PIP, f"--python={found.python}", "install"]
    )
    _do([*install, "-q", "-c", str(ROOT / "requirements-run.lock"), str(wheel)], folder=folder)
    return found


_PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check")


def _uv() -> str | None:
    return shutil.which("uv", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with two workflows, as a user has it who has read the first page."""
    (tmp_path / "greet.yaml").write_text(DEFINITION, encoding="utf-8")
    (tmp_path / "flows.py").write_text(FLOWS, encoding="utf-8")
    return tmp_path


def test_the_wheel_has_every_file_of_the_package(wheel: Path) -> None:
    files = {str(path.relative_to(SOURCE)) for path in (SOURCE / "weft").rglob("*") if path.is_file()}
    pages = {f"weft/docs/{path.relative_to(ROOT / 'docs')}" for path in (ROOT / "docs").rglob("*.md")}
    expected = {name for name in files if "__pycache__" not in name} | pages
    names = set(ZipFile(wheel).namelist())
    assert {name for name in names if ".dist-info/" not in name} == expected
    assert any(name.endswith("/licenses/LICENSE") for name in names)


def test_what_is_installed_is_the_wheel_and_it_runs_workflows(installed: Installed, folder: Path) -> None:
    place = _do([installed.python, "-c", "import weft; print(weft.__file__)"], folder=folder)
    assert Path(place.strip()).is_relative_to(installed.programs.parent)
    output = _do([installed.weft, "run", "greet.yaml", "--input", "name=ada"], folder=folder)
    assert json.loads(output) == {"hello": "hello ada"}
    # As a script, and with the functions in child processes.
    assert _do([installed.python, "flows.py"], folder=folder) == "ADA\n"
    output = _do([installed.weft, "run", "flows.py:flow", "--input", "name=ada"], folder=folder)
    assert json.loads(output) == "ADA"


def test_what_a_package_index_shows_links_to_nothing_that_it_does_not_have(wheel: Path) -> None:
    with ZipFile(wheel) as opened:
        (name,) = [name for name in opened.namelist() if name.endswith(".dist-info/METADATA")]
        description = opened.read(name).decode().partition("\n\n")[2]
    assert "# weft\n" in description
    assert "the tutorial (`weft docs tutorial`)" in re.sub(r"\s+", " ", description)
    links = re.findall(r"\]\(([^)]+)\)", description)
    assert [link for link in links if not link.startswith("https://")] == []


def test_every_page_that_the_readme_and_the_index_name_is_printed(
    wheel: Path, installed: Installed, folder: Path
) -> None:
    index = _do([installed.weft, "docs"], folder=folder)
    assert index == (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    with ZipFile(wheel) as opened:
        (name,) = [name for name in opened.namelist() if name.endswith(".dist-info/METADATA")]
        named = re.findall(r"`weft docs ([\w/-]+)`", opened.read(name).decode())
        linked = re.findall(r"\]\(([\w/-]+)\.md", index)
        shipped = set(opened.namelist())
    assert {f"weft/docs/{page}.md" for page in {*named, *linked}} <= shipped
    page = (ROOT / "docs" / "howto" / "debugging.md").read_text(encoding="utf-8")
    assert _do([installed.weft, "docs", "debugging"], folder=folder) == page
    assert "weft docs" in _do([installed.weft, "--help"], folder=folder)


def test_the_schema_of_a_definition_is_installed(installed: Installed, folder: Path) -> None:
    packaged = (SOURCE / "weft" / "definition" / "definition.schema.json").read_text(encoding="utf-8")
    assert json.loads(_do([installed.weft, "schema"], folder=folder)) == json.loads(packaged)


@pytest.mark.parametrize("command", ["dev", "up"])
async def test_it_serves_a_file_and_its_pages(installed: Installed, folder: Path, command: str) -> None:
    server = await Server.launch(
        *(command, "flows.py", "--port", "0"),
        command=(installed.weft,),
        settings={"PYTHONPATH": ""},
        folder=folder,
    )
    try:
        url = await server.ready()
        printed = await _call(installed, folder, url, "start", "shout", "--wait", "--input", "name=ada")
        assert json.loads(printed) == "ADA"
        async with aiohttp.ClientSession() as session:
            for path in ("/", "/docs", "/docs/key.js", "/openapi.json"):
                async with session.get(url + path) as answer:
                    assert answer.status == 200, path
            await _assert_console_is_kept(session, url)
    finally:
        await server.kill()


async def test_a_bug_is_found_mended_and_run_again_with_what_is_installed(
    installed: Installed, folder: Path
) -> None:
    flows = folder / "flows.py"
    flows.write_text(FLOWS.replace("@flow.node", "@flow.node(max_retries=0)").replace('["name"]', '["nmae"]'))
    said = _do([installed.weft, "run", "flows.py", "--input", "name=ada"], folder=folder, code=1)
    assert 'return input["nmae"].upper()' in said
    server = await Server.launch(
        *("dev", "flows.py", "--port", "0"),
        command=(installed.weft,),
        settings={"PYTHONPATH": ""},
        folder=folder,
    )
    try:
        url = await server.ready()
        execution_id = (await _call(installed, folder, url, "start", "shout", "--input", "name=ada")).strip()
        said = await _call(installed, folder, url, "watch", execution_id, code=1)
        assert 'return input["nmae"].upper()' in said
        assert f"retry: weft retry {execution_id}" in said
        flows.write_text(FLOWS)
        await server.logged("code.replaced")
        await _call(installed, folder, url, "retry", execution_id)
        assert json.loads(await _call(installed, folder, url, "watch", execution_id)) == "ADA"
    finally:
        await server.kill()


async def test_it_serves_on_redis_and_postgresql(
    installed: Installed, folder: Path, redis_url: str, postgres_url: str
) -> None:
    settings = {"WEFT_REDIS_URL": redis_url, "WEFT_DATABASE_URL": postgres_url, "PYTHONPATH": ""}
    _do([installed.weft, "migrate"], folder=folder, settings=settings)
    server = await Server.launch(
        "up", "--port", "0", command=(installed.weft,), settings=settings, folder=folder
    )
    try:
        url = await server.ready()
        await _call(installed, folder, url, "deploy", "greet.yaml")
        printed = await _call(installed, folder, url, "start", "greet", "--wait", "--input", "name=ada")
        assert json.loads(printed) == {"hello": "hello ada"}
    finally:
        await server.kill()


async def _assert_console_is_kept(session: aiohttp.ClientSession, url: str) -> None:
    """A browser may keep each file of the console: its path changes with its content."""
    async with session.get(url) as page:
        linked = re.findall(r'(?:src|href)="(/console/[^"]+)"', await page.text())
    assert linked
    for path in linked:
        assert re.match(r"/console/\d+\.\d+\.\d+\w*-[0-9a-f]{12}/", path), path
        async with session.get(url + path) as answer:
            assert (answer.status, answer.headers["Cache-Control"]) == (
                200,
                "public, max-age=31536000, immutable",
            )


async def _call(installed: Installed, folder: Path, url: str, *arguments: str, code: int = 0) -> str:
    """Run a command of a client, in a thread: the log of the server is read meanwhile."""
    command = [installed.weft, *arguments]
    return await asyncio.to_thread(_do, command, folder=folder, settings={"WEFT_URL": url}, code=code)
