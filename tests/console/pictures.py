"""The pictures of the console in docs/: ``./dev console-pictures`` takes them, of a server with a story.

The story is a morning's work: invoices are read and checked, one of them is wrong, and one execution runs.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from tests.console.conftest import start, window
from tests.operation.serving import ROOT, Api, Server
from tests.support.browser import chromium
from tests.support.hold import PYTHONPATH

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

FOLDER = ROOT / "docs" / "images"
# So that the docs stay small.
MOST_PICTURES, MOST_BYTES = 6, 1_000_000
WIDTH, HEIGHT = 1200, 720

COUNT = 12
# Of the execution that runs in the pictures, so many nodes have completed.
DONE = 8
CHECKS = """\
def check(number, wrong):
    print("invoice", number, "is read; comparing its total with its lines")
    if number == wrong:
        raise ValueError(f"invoice {number}: the total 118.00 is not the sum of the lines, 119.00")
    return {"invoice": number, "total": 118.0}
"""


@dataclass(frozen=True, slots=True)
class Picture:
    """One place of the console; ``{failed}`` and ``{running}`` in it stand for executions of the story."""

    name: str
    where: str
    scheme: Literal["light", "dark"]


PICTURES = (
    Picture("console-executions", "/executions", "light"),
    Picture("console-graph", "/executions/{running}", "light"),
    Picture("console-graph-dark", "/executions/{running}", "dark"),
    Picture("console-node", "/executions/{failed}?tab=nodes&node=check-7", "light"),
    Picture("console-logs-dark", "/executions/{failed}?tab=logs", "dark"),
)


def invoices() -> dict[str, Any]:
    """Return a definition that reads and checks invoices side by side, and books them together."""
    numbers = range(1, COUNT + 1)
    read = [
        {
            "id": f"read-{number}",
            "handler": "sleep",
            "dependencies": ["fetch"],
            "config": {"seconds": f"{{{{ input.seconds * {number} }}}}"},
        }
        for number in numbers
    ]
    check = [
        {
            "id": f"check-{number}",
            "handler": "python",
            "dependencies": [f"read-{number}"],
            "config": {
                "function": "checks:check",
                "args": {"number": number, "wrong": "{{ input.wrong }}"},
            },
        }
        for number in numbers
    ]
    return {
        "name": "invoices",
        "nodes": [
            {"id": "fetch", "handler": "echo"},
            *read,
            *check,
            {"id": "book", "handler": "echo", "dependencies": [one["id"] for one in check]},
            {"id": "report", "handler": "echo", "dependencies": ["book"]},
            {"id": "archive", "handler": "echo", "dependencies": ["book"]},
        ],
    }


async def tell_the_story(api: Api) -> Mapping[str, str]:
    """Start executions, and return the ids of one that failed and one that runs."""
    status, stored, _ = await api.call("POST", "/v1/workflows", invoices())
    assert status == 201, stored
    for day in range(10, 16):
        given = {"day": f"2026-11-{day}", "seconds": 0.01 * (day % 3), "wrong": 0}
        await api.terminal(await start(api, "invoices", given, labels={"team": "finance"}))
    given = {"day": "2026-11-16", "seconds": 0.01, "wrong": 7}
    failed = await start(api, "invoices", given, labels={"team": "finance"})
    await api.terminal(failed)
    given = {"day": "2026-11-17", "seconds": 2, "wrong": 0}
    running = await start(api, "invoices", given, labels={"team": "finance"})
    # So that the graph has something of everything.
    while (await api.get(f"/v1/executions/{running}?wait=0.5"))["counts"]["COMPLETED"] < DONE:
        pass
    return {"failed": failed, "running": running}


async def take(folder: Path) -> None:
    """Take every picture into a folder."""
    with tempfile.TemporaryDirectory() as home:
        async with _server(Path(home)) as url, Api(url) as api, chromium() as browser:
            story = await tell_the_story(api)
            for picture in PICTURES:
                size = {"width": WIDTH, "height": HEIGHT}
                async with window(browser, url, api, viewport=size, color_scheme=picture.scheme) as console:
                    page = await console.open(picture.where.format(**story))
                    await page.wait_for_load_state("networkidle")
                    await page.screenshot(path=folder / f"{picture.name}.png")


@asynccontextmanager
async def _server(folder: Path) -> AsyncIterator[str]:
    (folder / "checks.py").write_text(CHECKS, encoding="utf-8")
    settings = {"WEFT_PYTHON_ALLOW": "checks:*", "PYTHONPATH": f"{folder}{os.pathsep}{PYTHONPATH}"}
    server = await Server.launch("up", "--port", "0", settings=settings, folder=folder)
    try:
        yield await server.ready()
    finally:
        await server.kill()


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    asyncio.run(take(FOLDER))
