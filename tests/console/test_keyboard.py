"""What people do without a mouse, and what the browser does for them: keys, the palette, motion."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

import pytest
from playwright.async_api import expect
from tests.console.conftest import start, window

if TYPE_CHECKING:
    from playwright.async_api import Browser
    from tests.console.conftest import Console
    from tests.operation.serving import Api, Server

pytestmark = pytest.mark.asyncio(loop_scope="session")

RUNNING_ANIMATIONS = """() => document.getAnimations().filter((one) => one.playState === "running").length"""


async def test_the_palette_leads_to_what_is_typed(console: Console, shown: dict[str, str]) -> None:
    page = await console.open("/executions")
    palette = page.get_by_role("dialog")
    await page.keyboard.press("Control+k")
    await expect(palette.get_by_role("combobox")).to_be_focused()
    await page.keyboard.type("greet")
    await expect(palette.get_by_role("option", selected=True)).to_contain_text("greet")
    await page.keyboard.press("Enter")
    await expect(palette).to_have_count(0)
    await expect(page.locator("main h1")).to_contain_text("greet")
    # An execution is found by its id.
    await page.keyboard.press("Control+k")
    await expect(palette.get_by_role("combobox")).to_be_focused()
    await page.keyboard.type(shown["failed"])
    await expect(palette.get_by_role("option", selected=True)).to_contain_text(shown["failed"][:8])
    await page.keyboard.press("Enter")
    await expect(page.locator(".execution-line strong")).to_contain_text("failed")


async def test_a_question_mark_lists_the_keys_of_a_page(console: Console, shown: dict[str, str]) -> None:
    page = await console.open(f"/executions/{shown['failed']}")
    await page.keyboard.press("?")
    keys = page.get_by_role("dialog")
    await expect(keys).to_contain_text("Timeline")
    await expect(keys).to_contain_text("Next failure")
    await expect(keys).to_contain_text("Dark or light")
    await page.keyboard.press("Escape")
    await expect(keys).to_have_count(0)
    await page.keyboard.press("2")
    await expect(page.get_by_role("link", name="Timeline")).to_have_attribute("aria-current", "page")
    await page.keyboard.press("t")
    first = await page.evaluate("document.documentElement.dataset.theme")
    await page.keyboard.press("t")
    assert await page.evaluate("document.documentElement.dataset.theme") != first


async def test_a_list_is_walked_and_opened_by_keys(console: Console, shown: dict[str, str]) -> None:
    page = await console.open("/executions?workflow=broken&state=FAILED")
    await page.keyboard.press("j")
    await page.keyboard.press("Enter")
    await expect(page.locator("main h1")).to_contain_text("broken")
    await page.go_back()
    await expect(page.locator("main h1")).to_have_text("Executions")


async def test_rows_are_chosen_by_keys_and_cancelled_together_though_others_come_meanwhile(
    console: Console,
) -> None:
    label = {"together": "yes"}
    older = [await start(console.api, "patient", {"seconds": 100}, labels=label) for _ in range(2)]
    page = await console.open("/executions?label=together%3Ayes")
    rows = page.get_by_role("row").filter(has_text="patient")
    await expect(rows).to_have_count(2)
    await page.keyboard.press("j")
    newer = await start(console.api, "patient", {"seconds": 100}, labels=label)
    await expect(rows).to_have_count(3)
    await page.keyboard.press("x")
    await page.keyboard.press("j")
    await page.keyboard.press("x")
    await page.get_by_role("button", name="Cancel…").click()
    await page.get_by_role("dialog").get_by_role("button", name="Cancel 2 executions").click()
    await expect(rows.filter(has_text="cancelled")).to_have_count(2)
    states = [(await console.api.get(f"/v1/executions/{id_}"))["state"] for id_ in (*older, newer)]
    assert states == ["CANCELLED", "CANCELLED", "RUNNING"]
    await console.api.call("POST", f"/v1/executions/{newer}/cancel")


async def test_a_graph_is_walked_by_keys(console: Console, shown: dict[str, str]) -> None:
    page = await console.open(f"/executions/{shown['failed']}")
    graph = page.locator("[role=application]")
    await expect(graph).to_have_attribute(
        "aria-label", re.compile("^Graph of 3 nodes: 1 failed, 1 skipped, 1 completed[.]")
    )
    # Also where the graph has no focus.
    await page.keyboard.press("n")
    await expect(page.get_by_text("mend, failed, python")).to_be_attached()
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("complementary")).to_contain_text("the file is not there yet")


async def test_nothing_moves_where_people_want_no_motion(browser: Browser, server: Server, api: Api) -> None:
    execution = await start(api, "patient", {"seconds": 100})
    wishes: tuple[tuple[Literal["no-preference", "reduce"], bool], ...] = (
        ("no-preference", True),
        ("reduce", False),
    )
    for wish, moves in wishes:
        async with window(browser, server.url, api) as console:
            await console.page.emulate_media(reduced_motion=wish)
            page = await console.open(f"/executions/{execution}?tab=nodes")
            await expect(page.locator(".execution-line strong")).to_contain_text("running")
            assert bool(await page.evaluate(RUNNING_ANIMATIONS)) is moves
    await api.call("POST", f"/v1/executions/{execution}/cancel")
