"""Every page of the console: it loads without an error, everybody can use it, and it fits a telephone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from playwright.async_api import expect
from tests.console.conftest import window
from tests.support.browser import grave_findings, overflow

if TYPE_CHECKING:
    from playwright.async_api import Browser
    from tests.console.conftest import Console
    from tests.operation.serving import Api, Server

pytestmark = pytest.mark.asyncio(loop_scope="session")

PAGES = {
    "home": "/",
    "executions": "/executions",
    "execution, graph": "/executions/{failed}?tab=graph",
    "execution, timeline": "/executions/{failed}?tab=timeline",
    "execution, timeline of many": "/executions/{many}?tab=timeline",
    "execution, nodes": "/executions/{failed}?tab=nodes",
    "execution, logs": "/executions/{failed}?tab=logs",
    "execution, events": "/executions/{failed}?tab=events",
    "execution, data": "/executions/{completed}?tab=data",
    "execution, definition": "/executions/{completed}?tab=definition",
    "execution, node": "/executions/{failed}?tab=nodes&node=mend",
    "execution, waits": "/executions/{waiting}?tab=timeline&node=approve",
    "execution, poll": "/executions/{waiting}?tab=nodes&node=job",
    "execution, question": "/executions/{asks}?tab=nodes&node=approval",
    "inbox": "/waits",
    "inbox, a question": "/waits?open={asks}%2Fapproval",
    "question": "/waits/{asks}/approval",
    "question, not asked": "/waits/{asks}/review",
    "triggers": "/triggers",
    "triggers, new": "/triggers?tab=new",
    "triggers, events": "/triggers?tab=events",
    "trigger, schedule": "/triggers/nightly",
    "trigger, event": "/triggers/guests",
    "trigger, webhook": "/triggers/shop",
    "trigger, edit": "/triggers/nightly?tab=edit",
    "dead letters": "/dead-letters",
    "dead letters, a group": "/dead-letters?open=%5B%22broken%22%2C%22mend%22%2C%22handler_error%22%5D",
    "workers": "/workers",
    "about": "/about",
    "workflows": "/workflows",
    "workflow, graph": "/workflows/greet",
    "workflow, start": "/workflows/greet?tab=start",
    "workflow, executions": "/workflows/greet?tab=executions",
    "workflow, versions": "/workflows/greet?tab=versions",
    "batches": "/batches",
    "batch": "/batches/{batch}",
}


@pytest.mark.parametrize("where", PAGES.values(), ids=PAGES)
async def test_a_page_loads_without_an_error_and_without_a_grave_finding_in_light_and_dark(
    console: Console, shown: dict[str, str], where: str
) -> None:
    page = await console.open(where.format(**shown))
    for scheme in ("light", "dark"):
        await page.emulate_media(color_scheme=scheme)
        assert await grave_findings(page) == [], scheme


@pytest.mark.parametrize("where", PAGES.values(), ids=PAGES)
async def test_a_page_fits_a_telephone_and_a_wall(
    browser: Browser, server: Server, api: Api, shown: dict[str, str], where: str
) -> None:
    async with window(browser, server.url, api, viewport={"width": 360, "height": 720}) as console:
        page = await console.open(where.format(**shown))
        assert await overflow(page) == []
        await page.set_viewport_size({"width": 3840, "height": 2160})
        assert await overflow(page) == []


@pytest.mark.parametrize("opens", ["Retry…", "Fork…", "Control+k", "?"])
async def test_a_dialog_has_no_grave_finding(console: Console, shown: dict[str, str], opens: str) -> None:
    page = await console.open(f"/executions/{shown['failed']}?node=mend")
    if opens.endswith("…"):
        await page.get_by_role("button", name=opens).click()
    else:
        await page.keyboard.press(opens)
    await expect(page.get_by_role("dialog")).to_be_visible()
    await console.settled()
    assert await grave_findings(page) == []


async def test_the_home_page_shows_how_the_last_minutes_went(console: Console, shown: dict[str, str]) -> None:
    page = await console.open("/")
    for name in ("Ended per minute", "Longest wait in a queue"):
        await expect(page.get_by_role("img", name=f"{name} in the last minutes")).to_be_visible()


async def test_the_policy_of_the_page_allows_no_inline_script(console: Console) -> None:
    page = await console.open("/executions")
    console.watch.expected.append("Content Security Policy")
    await page.evaluate(
        """() => {
          const script = document.createElement("script");
          script.textContent = "document.title = 'owned'";
          document.body.append(script);
        }"""
    )
    assert await page.title() != "owned"
