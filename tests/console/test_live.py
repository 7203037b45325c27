"""What is shown is live, in however many tabs, and where it is not, that is said."""

from __future__ import annotations

import asyncio
import signal
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from playwright.async_api import expect
from tests.console.conftest import start, window
from tests.console.flows import PATIENT
from tests.operation.serving import Api, Server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from playwright.async_api import Browser, Page
    from tests.console.conftest import Console

pytestmark = pytest.mark.asyncio(loop_scope="session")

STREAMS = """performance.getEntriesByType("resource").filter((one) => one.name.endsWith("/live")).length"""
# Chromium without a window takes every page for one that is seen.
SEEN = """(seen) => {
  Object.defineProperty(document, "hidden", {value: !seen, configurable: true});
  document.dispatchEvent(new Event("visibilitychange"));
}"""
# A browser opens six connections to a server.
MANY_TABS = 8


async def is_live(page: Page) -> None:
    await expect(page.get_by_text("live", exact=True)).to_be_visible()


async def has_state(page: Page, word: str) -> None:
    await expect(page.locator(".execution-line strong")).to_contain_text(word)


async def test_two_tabs_of_a_browser_share_one_stream_and_the_second_goes_on_without_the_first(
    console: Console, shown: dict[str, str]
) -> None:
    execution = await start(console.api, "patient", {"seconds": 100})
    first = await console.open(f"/executions/{execution}?tab=nodes")
    await is_live(first)
    second = await first.context.new_page()
    await second.goto(first.url)
    await is_live(second)
    assert await second.evaluate(STREAMS) == 0
    await first.goto("about:blank")
    await console.api.call("POST", f"/v1/executions/{execution}/cancel")
    await expect(second.locator(".execution-line strong")).to_contain_text("cancelled")


async def test_a_tab_that_was_suspended_catches_up_without_a_reload(
    console: Console, shown: dict[str, str]
) -> None:
    execution = await start(console.api, "patient", {"seconds": 3})
    page = await console.open(f"/executions/{execution}?tab=nodes")
    await expect(page.locator(".execution-line strong")).to_contain_text("running")
    await page.evaluate("window.wasHere = true")
    session = await page.context.new_cdp_session(page)
    await session.send("Page.setWebLifecycleState", {"state": "frozen"})
    assert (await console.api.terminal(execution))["state"] == "COMPLETED"
    await session.send("Page.setWebLifecycleState", {"state": "active"})
    await expect(page.locator(".execution-line strong")).to_contain_text("completed")
    await expect(page.get_by_role("row").filter(has_text="last")).to_contain_text("completed")
    assert await page.evaluate("window.wasHere") is True


async def test_tabs_of_more_executions_than_a_browser_has_connections_are_all_live(
    console: Console, shown: dict[str, str]
) -> None:
    executions = [await start(console.api, "patient", {"seconds": 200}) for _ in range(MANY_TABS)]
    pages = [console.page, *[await console.page.context.new_page() for _ in executions[1:]]]
    for page, execution in zip(pages, executions, strict=True):
        await page.goto(f"{console.url}/#/executions/{execution}?tab=logs")
    await asyncio.gather(*map(is_live, pages))
    for execution in executions:
        await console.api.call("POST", f"/v1/executions/{execution}/cancel")
    await asyncio.gather(*(has_state(page, "cancelled") for page in pages))


async def test_a_tab_that_nobody_sees_holds_no_stream_and_catches_up(
    console: Console, shown: dict[str, str]
) -> None:
    execution = await start(console.api, "patient", {"seconds": 200})
    page = await console.open(f"/executions/{execution}?tab=nodes")
    await is_live(page)
    await page.evaluate(SEEN, False)
    # The lock of the stream is free for another tab.
    while await page.evaluate("navigator.locks.query().then(({held}) => held.length)"):
        pass
    await console.api.call("POST", f"/v1/executions/{execution}/cancel")
    await page.evaluate(SEEN, True)
    await has_state(page, "cancelled")


@asynccontextmanager
async def watched(browser: Browser, url: str) -> AsyncIterator[tuple[Api, str, Page]]:
    """Have an execution on a server of the test's own, and a page that shows it live."""
    async with Api(url) as api, window(browser, url, api) as console:
        # What a browser says of connections that are refused.
        console.watch.expected += ["ERR_CONNECTION_REFUSED", "ERR_INCOMPLETE_CHUNKED_ENCODING"]
        assert (await api.call("POST", "/v1/workflows", PATIENT))[0] == 201
        execution = await start(api, "patient", {"seconds": 200})
        page = await console.open(f"/executions/{execution}?tab=nodes")
        await is_live(page)
        yield api, execution, page


async def test_a_server_that_is_away_is_said_and_the_page_goes_on_when_it_is_back(
    browser: Browser, tmp_path: Path
) -> None:
    server = await Server.start(tmp_path / "data")
    try:
        url = await server.ready()
        async with watched(browser, url) as (api, execution, page):
            await server.kill()
            await expect(page.get_by_text("reconnecting")).to_be_visible()
            arguments = ("up", "--port", url.rpartition(":")[2], "--data", str(tmp_path / "data"))
            server = await Server.launch(*arguments, settings={}, folder=tmp_path)
            await server.ready()
            await is_live(page)
            await api.call("POST", f"/v1/executions/{execution}/cancel")
            await has_state(page, "cancelled")
    finally:
        await server.kill()


async def test_a_server_that_says_nothing_makes_the_page_stale_for_so_many_seconds(
    browser: Browser, tmp_path: Path
) -> None:
    server = await Server.start(tmp_path / "data")
    try:
        async with watched(browser, await server.ready()) as (_, _, page):
            server.process.send_signal(signal.SIGSTOP)
            await expect(page.get_by_text("stale for 1")).to_be_visible()
            server.process.send_signal(signal.SIGCONT)
            await is_live(page)
    finally:
        await server.kill()
