"""A server with keys: the console asks for one, and keeps none."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import pytest_asyncio
from playwright.async_api import expect
from tests.console.conftest import window
from tests.console.flows import KEY
from tests.operation.serving import Api
from tests.support.browser import grave_findings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from playwright.async_api import Browser, Page
    from tests.console.conftest import Console
    from tests.operation.serving import Server

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest_asyncio.fixture(loop_scope="session")
async def asked(browser: Browser, closed: Server) -> AsyncIterator[Console]:
    async with Api(closed.url) as api, window(browser, closed.url, api) as console:
        # What a caller without a key is answered.
        console.watch.expected.append("401")
        await console.page.goto(f"{closed.url}/#/executions")
        yield console


async def give(page: Page, key: str) -> None:
    await page.get_by_label("API key").fill(key)
    await page.get_by_role("button", name="Sign in").click()


async def test_a_key_opens_the_page_that_was_asked_for_and_stays_signed_in(asked: Console) -> None:
    page = asked.page
    await expect(page.get_by_label("API key")).to_be_visible()
    assert await grave_findings(page) == []
    await give(page, KEY)
    await expect(page.locator("main h1")).to_have_text("Executions")
    await page.reload()
    await expect(page.locator("main h1")).to_have_text("Executions")


async def test_the_key_is_nowhere_in_the_browser(asked: Console) -> None:
    page = asked.page
    await give(page, KEY)
    await expect(page.locator("main h1")).to_have_text("Executions")
    kept = await page.evaluate(
        "JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie, document.body.innerHTML])"
    )
    assert KEY not in kept
    (cookie,) = await page.context.cookies()
    assert (cookie["name"], cookie["httpOnly"], cookie["sameSite"]) == ("weft_session", True, "Strict")
    assert KEY not in cookie["value"]


async def test_a_wrong_key_is_said_to_be_wrong(asked: Console) -> None:
    page = asked.page
    await give(page, "wrong")
    await expect(page.get_by_role("alert")).to_contain_text("not one of")
    await give(page, KEY)
    await expect(page.locator("main h1")).to_have_text("Executions")


async def test_signing_out_shows_nothing_any_more(asked: Console) -> None:
    page = asked.page
    await give(page, KEY)
    await page.get_by_role("button", name="Sign out").click()
    await expect(page.get_by_label("API key")).to_be_visible()
    assert await page.context.cookies() == []
    await page.reload()
    await expect(page.get_by_label("API key")).to_be_visible()


async def test_the_page_of_the_api_asks_for_a_key_and_sends_it_with_each_call(asked: Console) -> None:
    page = asked.page
    await page.goto(f"{asked.url}/docs")
    state = page.locator("#key-state")
    await expect(state).to_contain_text("This server asks for a key")
    await page.locator("#key").fill("wrong")
    await page.locator("#key").press("Enter")
    await expect(state).to_contain_text("does not know this key")
    await page.locator("#key").fill(KEY)
    await page.locator("#key").press("Enter")
    await expect(state).to_contain_text("has taken this key")
    call = page.locator(".opblock-get", has=page.locator('[data-path="/v1/workflows"]'))
    await call.locator(".opblock-summary").click()
    await call.get_by_role("button", name="Try it out").click()
    await call.get_by_role("button", name="Execute").click()
    answer = call.locator(".live-responses-table tr.response .response-col_status")
    await expect(answer).to_contain_text("200")
