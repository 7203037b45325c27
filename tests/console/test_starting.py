"""How executions are started from the console, and how its lists are narrowed and kept."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from playwright.async_api import expect
from tests.console.conftest import start

if TYPE_CHECKING:
    from tests.console.conftest import Console

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_a_form_made_from_the_schema_starts_an_execution_that_fills_its_page(
    console: Console, shown: dict[str, str]
) -> None:
    page = await console.open("/workflows/patient?tab=start")
    await page.get_by_label("Seconds").fill("much")
    await page.get_by_role("button", name="Start version 1").click()
    await expect(page.get_by_label("Seconds")).to_have_attribute("aria-invalid", "true")
    await page.get_by_label("Seconds").fill("2")
    await page.get_by_label("Labels").fill("team=finance")
    await page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    await page.get_by_role("button", name="Copy", exact=True).click()
    await page.get_by_role("menuitem", name="As a command").click()
    copied = str(await page.evaluate("navigator.clipboard.readText()"))
    assert "weft start patient --version 1 --label team=finance --input-file -" in copied
    assert '{"seconds":2}' in copied
    await page.get_by_role("button", name="Start version 1").click()
    await expect(page.locator(".execution-line strong")).to_contain_text("running")
    await expect(page.locator(".execution-line")).to_contain_text("team:finance")
    await expect(page.locator(".execution-line strong")).to_contain_text("completed")
    await expect(page.locator("[role=application]")).to_have_attribute(
        "aria-label", re.compile("3 completed")
    )


async def test_the_graph_of_a_definition_shows_no_states(console: Console, shown: dict[str, str]) -> None:
    page = await console.open("/workflows/broken")
    graph = page.locator("[role=application]")
    await expect(graph).to_have_attribute("aria-label", re.compile("^Graph of 3 nodes[.]"))
    assert "pending" not in str(await graph.get_attribute("aria-label"))
    await expect(page.get_by_text("pending")).to_be_hidden()


async def test_a_view_is_saved_and_there_after_a_reload(console: Console, shown: dict[str, str]) -> None:
    page = await console.open("/executions?workflow=greet&state=COMPLETED")
    await page.get_by_role("button", name="Save this view").click()
    await page.get_by_role("textbox", name="Name of this view").fill("greetings")
    await page.keyboard.press("Enter")
    await console.open("/executions")
    await page.reload()
    await page.get_by_role("button", name="greetings", exact=True).click()
    assert "workflow=greet" in page.url
    assert "state=COMPLETED" in page.url
    await page.get_by_role("button", name="Forget the view greetings").click()
    await expect(page.get_by_role("button", name="greetings", exact=True)).to_have_count(0)


@pytest.mark.parametrize("form", ["As curl", "As a command", "As Python"])
async def test_what_is_copied_starts_the_same_again(
    console: Console, shown: dict[str, str], tmp_path: Path, form: str
) -> None:
    name = 'O\'Brien \u00e9 "$HOME"'
    labels = {"from": form.replace(" ", "-").lower()}
    execution = await start(console.api, "greet", {"name": name}, labels=labels)
    await console.api.terminal(execution)
    page = await console.open(f"/executions/{execution}")
    await page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    await page.locator("[aria-haspopup=menu]").filter(has_text="Copy").click()
    await page.get_by_role("menuitem", name=form).click()
    copied = await page.evaluate("navigator.clipboard.readText()")
    if form == "As Python":
        (tmp_path / "again.py").write_text(copied, encoding="utf-8")
        copied = shlex.join([sys.executable, "again.py"])
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    process = await asyncio.create_subprocess_shell(
        copied, cwd=tmp_path, env={**os.environ, "PATH": path}, stderr=asyncio.subprocess.PIPE
    )
    _, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    listed = (await console.api.get(f"/v1/executions?label=from:{labels['from']}"))["items"]
    assert len(listed) == 2
    again = await console.api.terminal(listed[0]["id"])
    assert (again["input"], again["output"]) == ({"name": name}, name.upper())
