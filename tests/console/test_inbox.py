"""Questions in the console: they appear by themselves, are answered by keys and forms, and say who did."""

from __future__ import annotations

import re
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from playwright.async_api import expect
from tests.console.conftest import asked, start, window
from tests.console.flows import ASKING, KEY
from tests.console.test_sign_in import give
from tests.notifications.receiver import Receiver
from tests.operation.serving import Api, Server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from playwright.async_api import Browser, Locator
    from tests.console.conftest import Console

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def output_of(api: Api, execution: str, node: str) -> dict[str, Any]:
    return dict((await api.get(f"/v1/executions/{execution}/nodes/{node}"))["output"])


async def test_a_question_appears_without_a_reload_and_is_answered_by_keys(
    console: Console, shown: dict[str, str]
) -> None:
    workflow = {**ASKING, "name": "by-keys"}
    assert (await console.api.call("POST", "/v1/workflows", workflow))[0] == 201
    page = await console.open("/waits?workflow=by-keys")
    await expect(page.get_by_text("No question is open here.")).to_be_visible()
    first = await start(console.api, "by-keys", {"changes": 1})
    await asked(console.api, first)
    second = await start(console.api, "by-keys", {"changes": 2})
    toggles = page.get_by_role("button", name=re.compile("by-keys.*approval"))
    await expect(toggles).to_have_count(2)
    await expect(page.get_by_text("expires in")).to_have_count(2)
    await page.keyboard.press("j")
    await page.keyboard.press("Enter")
    await expect(page.get_by_text("Apply 1 changes?")).to_be_visible()
    await page.keyboard.press("a")
    # One key alone answers nothing.
    await expect(page.get_by_role("radio", name="approve")).to_be_checked()
    await expect(page.get_by_role("button", name="Answer", exact=True)).to_be_focused()
    assert (await console.api.get(f"/v1/waits?execution={first}"))["items"] != []
    await page.keyboard.press("Enter")
    # The next one opens by itself.
    await expect(page.get_by_role("form", name="Answer to approval")).to_have_count(1)
    await expect(toggles.last).to_have_attribute("aria-expanded", "true")
    await page.keyboard.press("x")
    await page.keyboard.press("Enter")
    ended = await console.api.terminal(second)
    assert ended["counts"]["SKIPPED"] == 1
    assert (await output_of(console.api, first, "approval"))["value"] == "approve"
    assert (await output_of(console.api, second, "approval"))["value"] == "reject"


async def fill(form: Locator) -> None:
    await form.get_by_label("Total").fill("0")
    await form.get_by_label("Kind").select_option("service")
    await form.get_by_label("foreign").check()
    await form.get_by_label("Due").fill("2026-02-28")
    await form.get_by_label("Customer").fill("Ada & Söhne")
    await form.get_by_label("Extra").fill('{"page": [1, 2]}')


async def test_a_form_from_the_schema_has_problems_at_their_fields(
    console: Console, shown: dict[str, str]
) -> None:
    execution = await start(console.api, "asking", {"changes": 5})
    await asked(console.api, execution)
    # What the server refuses is a line of the browser's console too.
    console.watch.expected.append("422")
    page = await console.open(f"/executions/{execution}?tab=events&node=approval")
    sheet = page.get_by_role("complementary")
    await sheet.get_by_role("radio", name="approve").check()
    await sheet.get_by_role("button", name="Answer", exact=True).click()
    # Who answered, and when: beside the execution, and in its history.
    await expect(sheet.get_by_text("Answered", exact=False).first).to_be_visible()
    await expect(page.get_by_role("row").filter(has_text="signal.received")).to_contain_text("by local")
    await asked(console.api, execution, "review")
    page = await console.open(f"/waits/{execution}/review")
    form = page.get_by_role("form", name="Answer to review")
    await fill(form)
    await form.get_by_role("button", name="Answer", exact=True).click()
    await expect(form.get_by_label("Total")).to_be_focused()
    await expect(form.get_by_label("Total")).to_have_attribute("aria-invalid", "true")
    await expect(form.locator(".field").filter(has_text="Total").first).to_contain_text("minimum of 1")
    await form.get_by_label("Total").fill("119.5")
    await form.get_by_role("button", name="Answer", exact=True).click()
    await expect(page.get_by_role("status").filter(has_text="Answered")).to_be_visible()
    assert (await output_of(console.api, execution, "review"))["value"] == {
        "total": 119.5,
        "kind": "service",
        "flags": ["foreign"],
        "due": "2026-02-28",
        "customer": "Ada & Söhne",
        "extra": {"page": [1, 2]},
    }


async def test_whoever_comes_second_is_told(console: Console, shown: dict[str, str]) -> None:
    execution = await start(console.api, "asking", {"changes": 6})
    await asked(console.api, execution)
    page = await console.open(f"/waits?open={execution}/approval")
    await page.get_by_role("radio", name="approve").check()
    path = f"/v1/executions/{execution}/nodes/approval/answer"
    assert (await console.api.call("POST", path, {"value": "reject"}))[0] == 202
    await expect(page.get_by_text("is answered, or is not asked any more")).to_be_visible()
    await page.get_by_role("link", name="What became of it").click()
    await expect(page.get_by_role("status").filter(has_text="Answered")).to_contain_text('"reject"')


@asynccontextmanager
async def plain(folder: Path, **settings: str) -> AsyncIterator[Server]:
    """A server without files, which may come back on the folder of an earlier one."""
    server = await Server.launch("up", "--port", "0", settings=settings, folder=folder)
    try:
        await server.ready()
        yield server
    finally:
        await server.kill()


async def test_a_notification_leads_to_the_form_and_the_form_says_who_answered(
    browser: Browser, tmp_path: Path
) -> None:
    with Receiver() as receiver:
        settings = {"WEFT_NOTIFY": receiver.hook, "WEFT_NOTIFY_ON": "waiting"}
        async with plain(tmp_path, **settings) as first, Api(first.url) as api:
            assert (await api.call("POST", "/v1/workflows", ASKING))[0] == 201
            execution = await start(api, "asking", {"changes": 3})
            while not receiver.received:
                await api.get("/healthz")
            (body,) = receiver.bodies()
            # Nobody named an address: it is the one where this server listens.
            assert body["url"] == f"{first.url}/#/waits/{execution}/approval"
    async with (
        plain(tmp_path, WEFT_API_KEYS=KEY) as server,
        Api(server.url) as api,
        window(browser, server.url, api) as console,
    ):
        console.watch.expected.append("401")
        page = console.page
        await page.goto(body["url"].replace(first.url, server.url))
        await give(page, KEY)
        await expect(page.get_by_text("Apply 3 changes?")).to_be_visible()
        await page.keyboard.press("x")
        await page.keyboard.press("Enter")
        answered = page.get_by_role("status").filter(has_text="Answered by key-")
        await expect(answered).to_contain_text('"reject"')
