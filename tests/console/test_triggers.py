"""Triggers in the console: written in a form, watched, started by hand and for a span; and what came in."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from playwright.async_api import expect

if TYPE_CHECKING:
    from tests.console.conftest import Console

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_a_trigger_is_made_by_a_form_with_problems_at_their_fields(
    console: Console, shown: dict[str, str]
) -> None:
    # What the server refuses is a line of the browser's console too.
    console.watch.expected.append("422")
    page = await console.open("/triggers?tab=new")
    form = page.get_by_role("form", name="New trigger")
    await form.get_by_role("button", name="Store").click()
    await expect(form.get_by_label("Name", exact=False).first).to_have_attribute("aria-invalid", "true")
    await form.get_by_label("Name", exact=False).first.fill("hourly")
    await form.get_by_label("Workflow").select_option("greet")
    await form.get_by_label("Cron", exact=False).first.fill("61 * * * *")
    await form.get_by_label("Input").fill('{"name": "{{ trigger.due_at }}"}')
    await form.get_by_role("button", name="Store").click()
    # The server knows what a cron expression is.
    cron = form.locator(".field").filter(has=page.locator("code", has_text=re.compile("^cron$"))).last
    await expect(cron.locator("[aria-invalid=true]")).to_be_focused()
    await expect(cron.locator(".field-said")).to_contain_text("61")
    await form.get_by_label("Cron", exact=False).first.fill("0 * * * *")
    await form.get_by_role("button", name="Store").click()
    await expect(page.locator("main h1")).to_have_text("hourly")
    await expect(
        page.get_by_role("heading", name="Next due times").locator("..").get_by_role("listitem")
    ).to_have_count(5)
    # Changed as JSON, and seen in the list.
    await page.get_by_role("button", name="Edit…").click()
    await page.get_by_role("button", name="Write JSON instead").click()
    area = page.get_by_label("Trigger as JSON")
    await area.fill((await area.input_value()).replace('"allow"', '"skip"'))
    await page.get_by_role("button", name="Store").click()
    await expect(page.get_by_role("heading", name="Next due times")).to_be_visible()
    stored = await console.api.get("/v1/triggers/hourly")
    assert (stored["overlap"], stored["schedule"]["cron"]) == ("skip", "0 * * * *")
    await page.get_by_role("button", name="Disable").click()
    await expect(page.get_by_role("button", name="Enable")).to_be_visible()
    await page.get_by_role("button", name="More").click()
    await page.get_by_role("menuitem", name="Delete…").click()
    await page.get_by_role("dialog").get_by_role("button", name="Delete the trigger").click()
    await expect(page.get_by_role("row").filter(has_text="nightly")).to_be_visible()
    await expect(page.get_by_role("row").filter(has_text="hourly")).to_have_count(0)


async def test_a_backfill_shows_what_would_start_before_it_starts_anything(
    console: Console, shown: dict[str, str]
) -> None:
    console.watch.expected.append("422")
    page = await console.open("/triggers/nightly")
    await page.get_by_role("button", name="Backfill…").click()
    dialog = page.get_by_role("dialog")
    await expect(dialog.get_by_role("button", name="Start …")).to_be_disabled()
    await dialog.get_by_label("From").fill("2026-01-05T00:00:00")
    await dialog.get_by_label("To").fill("2026-01-01T00:00:00")
    await dialog.get_by_role("button", name="Show what would start").click()
    await expect(dialog.get_by_label("To")).to_have_attribute("aria-invalid", "true")
    await dialog.get_by_label("To").fill("2026-01-08T00:00:00")
    await dialog.get_by_role("button", name="Show what would start").click()
    await expect(dialog.get_by_text("3 executions would start, for:")).to_be_visible()
    await expect(dialog.get_by_role("listitem")).to_have_count(3)
    assert (await console.api.get("/v1/triggers/nightly"))["executions"] == []
    # Other values than those that were counted start nothing.
    await dialog.get_by_label("At most so many run at once").fill("1")
    await expect(dialog.get_by_role("button", name="Start …")).to_be_disabled()
    await dialog.get_by_role("button", name="Show what would start").click()
    await dialog.get_by_role("button", name="Start 3 executions").click()
    await expect(page).to_have_url(re.compile("#/batches/"))
    await console.open("/triggers/nightly")
    await expect(
        page.get_by_role("heading", name="Last executions").locator("../..").get_by_role("row")
    ).to_have_count(4)


async def test_an_event_trigger_is_fired_by_hand(console: Console, shown: dict[str, str]) -> None:
    page = await console.open("/triggers/guests")
    await page.get_by_role("button", name="Fire…").click()
    dialog = page.get_by_role("dialog")
    await expect(dialog.get_by_label("event as JSON")).to_have_value(re.compile("guest.came"))
    await dialog.get_by_role("button", name="Start it").click()
    await expect(page.locator(".execution-line")).to_contain_text("trigger guests")


async def test_a_webhook_shows_its_url(console: Console, shown: dict[str, str]) -> None:
    page = await console.open("/triggers/shop")
    await expect(page.get_by_text(f"{console.url}/v1/hooks/shop")).to_be_visible()
    await expect(page.get_by_role("button", name="Backfill…")).to_have_count(0)


async def test_events_that_came_show_what_they_did(console: Console, shown: dict[str, str]) -> None:
    page = await console.open("/triggers?tab=events")
    row = page.get_by_role("row").filter(has_text="guest.came")
    await row.get_by_role("button", name="Event 1 in full").click()
    await expect(page.get_by_role("dialog")).to_contain_text("room")
    await page.keyboard.press("Escape")
    await page.get_by_role("searchbox").fill("nobody.came")
    await expect(page.get_by_text("No event of this type came.")).to_be_visible()
    await page.get_by_role("searchbox").fill("guest.came")
    await row.get_by_role("link").click()
    await expect(page.locator(".execution-line")).to_contain_text("trigger guests")


async def test_the_home_page_has_open_questions_and_what_is_due_next(
    console: Console, shown: dict[str, str]
) -> None:
    page = await console.open("/")
    await expect(page.get_by_role("link", name=re.compile("open question"))).to_be_visible()
    await page.get_by_role("link", name="nightly").click()
    await expect(page.locator("main h1")).to_have_text("nightly")
