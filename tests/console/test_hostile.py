"""What users and their functions write is shown as text: markup, megabytes, control characters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio
from playwright.async_api import expect
from tests.console.conftest import start
from tests.console.flows import HOSTILE
from tests.support.browser import overflow

if TYPE_CHECKING:
    from playwright.async_api import Page
    from tests.console.conftest import Console
    from tests.operation.serving import Api

pytestmark = pytest.mark.asyncio(loop_scope="session")

# A megabyte and a half of output.
TIMES = 150_000

# Text that turns the direction must be kept apart from what stands beside it.
NOT_ISOLATED = """() => {
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const found = [];
  while (texts.nextNode()) {
    if (!/[\\u202e\\u0590-\\u05ff]/.test(texts.currentNode.data)) continue;
    let one = texts.currentNode.parentElement;
    while (one && getComputedStyle(one).display === "inline"
           && !/isolate|plaintext/.test(getComputedStyle(one).unicodeBidi)) one = one.parentElement;
    if (one && getComputedStyle(one).display !== "inline"
        && !/isolate|plaintext/.test(getComputedStyle(one).unicodeBidi)
        && one.textContent.trim() !== texts.currentNode.data.trim()) {
      found.push(`${one.tagName}.${one.className}: ${one.textContent.slice(0, 200)}`);
    }
  }
  return found;
}"""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def hostile(api: Api) -> str:
    labels = {"note": HOSTILE[:200]}
    execution = await start(api, "hostile", {"text": HOSTILE, "times": TIMES}, labels=labels)
    assert (await api.terminal(execution))["state"] == "FAILED"
    return execution


# Controls are written out, such as \\u202e: raw, they would turn what stands behind them. A canvas has none.
RAW = r"""() => {
  const raw = /[\u0000-\u0008\u000e-\u001f\u200b-\u200f\u202a-\u202e\ufeff]/;
  return raw.exec(document.body.innerText)?.[0] ?? null;
}"""


async def assert_harmless(page: Page) -> None:
    assert await page.title() != "owned"
    assert await page.locator("img[src=x], main script, main b b").count() == 0
    assert await overflow(page) == []
    assert await page.evaluate(NOT_ISOLATED) == []
    assert await page.evaluate(RAW) is None


async def test_labels_in_the_list_are_text(console: Console, hostile: str) -> None:
    page = await console.open("/executions?workflow=hostile")
    await expect(page.locator("main")).to_contain_text("<img src=x")
    await assert_harmless(page)


@pytest.mark.parametrize("tab", ["graph", "timeline", "nodes", "logs", "events", "data", "definition"])
async def test_an_execution_with_hostile_values_is_shown_as_text(
    console: Console, hostile: str, tab: str
) -> None:
    page = await console.open(f"/executions/{hostile}?tab={tab}")
    if tab in ("logs", "data"):
        await expect(page.locator("main")).to_contain_text("<img src=x")
    await assert_harmless(page)


@pytest.mark.parametrize("where", ["/", "/dead-letters?workflow=hostile"])
async def test_hostile_messages_of_dead_letters_are_text(console: Console, hostile: str, where: str) -> None:
    page = await console.open(where)
    await expect(page.locator("main")).to_contain_text("<img src=x")
    await assert_harmless(page)


@pytest.mark.parametrize("node", ["echoes", "raises"])
async def test_a_node_with_hostile_values_is_shown_as_text(console: Console, hostile: str, node: str) -> None:
    page = await console.open(f"/executions/{hostile}?tab=nodes&node={node}")
    await expect(page.locator("main")).to_contain_text("<img src=x")
    await assert_harmless(page)


@pytest.mark.parametrize(
    "where",
    ["/executions/{}", "/executions?workflow={}", "/{}", "/%", "/%00"],
)
async def test_a_hostile_address_is_no_page_and_no_script(console: Console, where: str) -> None:
    from urllib.parse import quote

    console.watch.expected.append("404")
    page: Any = console.page
    await page.goto(f"{console.url}/#{where.format(quote(HOSTILE, safe=''))}")
    await expect(page.locator("main")).not_to_be_empty()
    await assert_harmless(page)
