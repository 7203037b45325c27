"""Nodes that wait, wherever the console shows nodes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from playwright.async_api import expect
from tests.console.conftest import start

if TYPE_CHECKING:
    from tests.console.conftest import Console

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_what_waits_has_one_state_in_the_head_the_list_and_the_graph(
    console: Console, shown: dict[str, str]
) -> None:
    page = await console.open(f"/executions/{shown['waiting']}?tab=nodes")
    await expect(page.get_by_role("row").filter(has_text="waiting")).to_have_count(3)
    await expect(page.locator(".counts")).to_have_text(re.compile(r"^\s*○\s*1 pending\s*☰\s*3 waiting\s*$"))
    await page.get_by_role("link", name="Graph").click()
    await expect(page.locator("[role=application]")).to_have_attribute(
        "aria-label", re.compile("^Graph of 4 nodes: 3 waiting, 1 pending[.]")
    )


async def test_the_sheet_says_what_a_node_waits_for_and_counts_down(
    console: Console, shown: dict[str, str]
) -> None:
    page = await console.open(f"/executions/{shown['waiting']}?tab=nodes&node=approve")
    sheet = page.get_by_role("complementary")
    await expect(sheet).to_contain_text("Is it right?")
    await expect(sheet).to_contain_text("waits for an answer, or for the signal 'approve'")
    timer = sheet.get_by_role("timer")
    await expect(timer).to_contain_text(re.compile(r"expires in\s*23 h"))
    await page.get_by_role("row").filter(has_text="later").click()
    await expect(timer).to_contain_text(re.compile(r"goes on in\s*23 h"))
    await page.get_by_role("row").filter(has_text="job").click()
    await expect(sheet).to_contain_text("look 2 of its poll follows")
    await expect(timer).to_contain_text(re.compile(r"next look in\s*\d+ min"))
    await sheet.locator("summary").filter(has_text="Attempts").click()
    await expect(sheet.get_by_role("table")).to_contain_text("looked")


async def test_the_timeline_has_lanes_for_what_needs_no_worker(
    console: Console, shown: dict[str, str]
) -> None:
    page = await console.open(f"/executions/{shown['waiting']}?tab=timeline")
    timeline = page.locator("[role=application]")
    await expect(timeline).to_have_attribute("aria-label", re.compile("^Timeline of nodes: 3 attempts"))
    await timeline.focus()
    # To the first lane, and to the last.
    for _ in range(3):
        await page.keyboard.press("ArrowDown")
    await expect(page.get_by_text(re.compile("attempt 1 · waiting, waits for"))).to_be_attached()
    await page.get_by_role("button", name="by worker").click()
    # One of the worker that looked, and one for each node that waits.
    await expect(timeline).to_have_attribute("aria-label", re.compile("3 lanes"))


async def test_the_end_of_a_wait_is_seen_at_once(console: Console, shown: dict[str, str]) -> None:
    execution = await start(console.api, "waiting")
    page = await console.open(f"/executions/{execution}?tab=nodes")
    row = page.get_by_role("row").filter(has_text="approve")
    await expect(row).to_contain_text("waiting")
    path = f"/v1/executions/{execution}/nodes/approve/answer"
    assert (await console.api.call("POST", path, {"value": "yes"}))[0] == 202
    await expect(row).to_contain_text("completed")
    await console.api.call("POST", f"/v1/executions/{execution}/cancel")
