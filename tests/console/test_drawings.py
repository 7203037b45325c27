"""The graph and the timeline under the pointer: what they show is on a canvas, what they say is beside it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from playwright.async_api import expect
from tests.support.browser import grave_findings

if TYPE_CHECKING:
    from playwright.async_api import FloatRect, Page
    from tests.console.conftest import Console

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def box_of(page: Page) -> FloatRect:
    box = await page.locator("[role=application]").bounding_box()
    assert box is not None
    return box


async def test_a_card_of_the_graph_opens_its_node_and_the_graph_stays_in_view(
    console: Console, shown: dict[str, str]
) -> None:
    page = await console.open(f"/executions/{shown['failed']}")
    box = await box_of(page)
    # Three nodes in a row.
    await page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    await expect(page.get_by_role("complementary", name="Node mend")).to_be_visible()
    assert "node=mend" in page.url
    narrower = await box_of(page)
    assert narrower["width"] < box["width"]
    await page.mouse.click(narrower["x"] + narrower["width"] / 2, narrower["y"] + narrower["height"] - 20)
    await expect(page.get_by_role("complementary")).to_have_count(0)


async def test_a_large_graph_opens_by_stages_and_shows_all_nodes_when_asked(
    console: Console, shown: dict[str, str]
) -> None:
    page = await console.open(f"/executions/{shown['many']}")
    graph = page.locator("[role=application]")
    await expect(graph).to_have_attribute("aria-label", re.compile("^Graph of 2\u202f100 nodes in 1 stage: "))
    await page.get_by_role("button", name="Show all nodes").click()
    await expect(page.get_by_role("button", name="Show stages")).to_be_visible()
    assert await grave_findings(page) == []
    await page.get_by_label("Find a node by id").fill("node-77")
    await expect(page.get_by_text("1 of 11", exact=True)).to_be_visible()
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("complementary", name="Node node-77")).to_be_visible()
    await page.get_by_role("button", name="Show stages").click()
    await expect(page.get_by_role("button", name="Show all nodes")).to_be_visible()


async def test_a_brush_over_the_timeline_shows_that_time_alone(
    console: Console, shown: dict[str, str]
) -> None:
    page = await console.open(f"/executions/{shown['failed']}?tab=timeline")
    whole = page.get_by_role("button", name="Show the whole time")
    await expect(whole).to_be_disabled()
    box = await box_of(page)
    y = box["y"] + box["height"] - 30
    await page.mouse.move(box["x"] + box["width"] * 0.5, y)
    await page.mouse.down()
    await page.mouse.move(box["x"] + box["width"] * 0.7, y, steps=3)
    await page.mouse.up()
    await expect(whole).to_be_enabled()
    await page.keyboard.press("f")
    await expect(whole).to_be_disabled()


async def test_the_timeline_is_narrowed_to_the_critical_path(console: Console, shown: dict[str, str]) -> None:
    page = await console.open(f"/executions/{shown['failed']}?tab=timeline")
    timeline = page.locator("[role=application]")
    await expect(timeline).to_have_attribute("aria-label", re.compile("critical path of 2 nodes, 2 lanes"))
    await page.keyboard.press("c")
    await expect(page.get_by_role("button", name="critical path")).to_have_attribute("aria-pressed", "true")


async def test_a_timeline_of_many_lanes_fits_into_the_window(console: Console, shown: dict[str, str]) -> None:
    page = await console.open(f"/executions/{shown['many']}?tab=timeline")
    rows = page.get_by_role("button", name="Fit rows")
    await expect(rows).to_have_attribute("aria-pressed", "false")
    await rows.click()
    await expect(rows).to_have_attribute("aria-pressed", "true")
