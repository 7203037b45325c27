"""What people do with an execution: watch it, steer it, find out why it failed, and run it again."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import aiohttp
import pytest
from playwright.async_api import expect
from tests.console.conftest import start

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.async_api import Page
    from tests.console.conftest import Console
    from tests.operation.serving import Api

pytestmark = pytest.mark.asyncio(loop_scope="session")

# Longer than any test waits, and within the timeout of a node.
FOR_EVER = 200


async def has_state(page: Page, word: str) -> None:
    await expect(page.locator(".execution-line strong")).to_contain_text(word)


async def patient(api: Api, seconds: float) -> str:
    return await start(api, "patient", {"seconds": seconds})


async def test_a_page_that_is_open_follows_the_execution_to_its_end(
    console: Console, shown: dict[str, str]
) -> None:
    execution = await patient(console.api, 4)
    page = await console.open(f"/executions/{execution}?tab=nodes")
    await has_state(page, "running")
    # Nobody reloads it.
    await has_state(page, "completed")
    await expect(page.get_by_role("row").filter(has_text="last")).to_contain_text("completed")


async def test_it_is_paused_and_resumed(console: Console, shown: dict[str, str]) -> None:
    execution = await patient(console.api, 4)
    page = await console.open(f"/executions/{execution}")
    await page.get_by_role("button", name="Pause").click()
    await has_state(page, "paused")
    await page.get_by_role("button", name="Resume").click()
    await has_state(page, "completed")


async def test_it_is_cancelled_only_when_that_is_confirmed(console: Console, shown: dict[str, str]) -> None:
    execution = await patient(console.api, FOR_EVER)
    page = await console.open(f"/executions/{execution}")
    await page.get_by_role("button", name="Cancel…").click()
    await page.get_by_role("button", name="Keep as it is").click()
    await has_state(page, "running")
    await page.get_by_role("button", name="Cancel…").click()
    await page.get_by_role("dialog").get_by_role("button", name="Cancel the execution").click()
    await has_state(page, "cancelled")
    assert (await console.api.get(f"/v1/executions/{execution}"))["state"] == "CANCELLED"


async def test_the_sheet_of_a_node_shows_why_it_failed_and_what_it_printed(
    console: Console, shown: dict[str, str]
) -> None:
    page = await console.open(f"/executions/{shown['failed']}?tab=nodes")
    await page.get_by_role("row").filter(has_text="mend").first.click()
    assert "node=mend" in page.url
    sheet = page.get_by_role("complementary")
    await expect(sheet).to_contain_text("the file is not there yet")
    await expect(sheet).to_contain_text("ValueError")
    await expect(sheet).to_contain_text("looking for nosuch")
    # The list stays where it is, and back leads to it.
    await expect(page.get_by_role("row").filter(has_text="behind")).to_be_visible()
    await page.go_back()
    await expect(sheet).to_have_count(0)


async def test_a_logged_line_is_shown_in_full(console: Console, shown: dict[str, str]) -> None:
    page = await console.open(f"/executions/{shown['failed']}?tab=logs")
    await page.get_by_title("The whole line").first.click()
    dialog = page.get_by_role("dialog", name="mend, attempt 1, stdout")
    await expect(dialog).to_contain_text("looking for nosuch")


async def test_an_execution_in_a_trace_shows_its_id_to_copy(console: Console, shown: dict[str, str]) -> None:
    trace_id = "0af7651916cd43dd8448eb211c80319c"
    headers = {"traceparent": f"00-{trace_id}-b7ad6b7169203331-01"}
    async with aiohttp.ClientSession(console.api.url, headers=headers) as session:
        body = {"input": {"name": "ada"}}
        async with session.post("/v1/workflows/greet/executions", json=body) as answer:
            execution = (await answer.json())["id"]
    page = await console.open(f"/executions/{execution}")
    await expect(page.locator(".execution-line")).to_contain_text(f"trace {trace_id[:8]}")
    await page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    await page.get_by_role("button", name="Copy trace id").click()
    assert await page.evaluate("navigator.clipboard.readText()") == trace_id
    # One without a trace says nothing of it.
    await console.open(f"/executions/{shown['completed']}")
    await expect(page.locator(".execution-line")).not_to_contain_text("trace")


async def test_the_sheet_of_a_node_counts_down_to_its_next_attempt(
    console: Console, shown: dict[str, str]
) -> None:
    execution = await start(console.api, "stubborn")
    page = await console.open(f"/executions/{execution}?tab=nodes&node=tries")
    sheet = page.get_by_role("complementary")
    await expect(sheet).to_contain_text("retry scheduled")
    countdown = sheet.get_by_role("timer").locator("strong")
    await expect(countdown).to_contain_text(re.compile(r"[123] min"))
    first = await countdown.inner_text()
    await expect(countdown).not_to_have_text(first)
    await console.api.call("POST", f"/v1/executions/{execution}/cancel")


async def test_a_retry_shows_its_plan_and_runs_what_failed(console: Console, tmp_path: Path) -> None:
    file = tmp_path / "mended"
    execution = await start(console.api, "broken", {"file": str(file)})
    await console.api.terminal(execution)
    page = await console.open(f"/executions/{execution}?tab=nodes")
    await has_state(page, "failed")
    file.touch()
    await page.get_by_role("button", name="Retry…").click()
    dialog = page.get_by_role("dialog")
    await expect(dialog.locator("section").filter(has_text="Runs again")).to_contain_text("mend")
    await expect(dialog.locator("section").filter(has_text="Kept")).to_contain_text("before")
    await dialog.get_by_role("button", name="Run 2 nodes").click()
    await has_state(page, "completed")
    await expect(page.locator(".execution-line")).to_contain_text("generation 2")


async def test_a_fork_starts_another_execution_and_leads_to_it(
    console: Console, shown: dict[str, str]
) -> None:
    page = await console.open(f"/executions/{shown['completed']}")
    await page.get_by_role("button", name="Fork…").click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_label("Run from these nodes").fill("shout")
    await dialog.get_by_label("With another input").check()
    await dialog.get_by_label("Input as JSON").fill('{"name": "bob"}')
    await dialog.get_by_role("button", name="Fork").click()
    await expect(page.get_by_role("link", name=re.compile("forked from"))).to_be_visible()
    assert shown["completed"] not in page.url
    await has_state(page, "completed")
    forked = page.url.rpartition("/")[2].partition("?")[0]
    assert (await console.api.get(f"/v1/executions/{forked}"))["output"] == "BOB"
