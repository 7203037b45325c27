"""Dead letters in a real browser: a group is one decision, and the question before it says of how many."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from playwright.async_api import expect
from tests.console.conftest import start

if TYPE_CHECKING:
    from tests.console.conftest import Console
    from tests.operation.serving import Api

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def fail(api: Api, workflow: str, *, times: int) -> None:
    """Store a workflow whose only node fails at once, and run it to its end."""
    node = {"id": "only", "handler": "echo", "config": "{{ input.missing }}"}
    status, stored, _ = await api.call("POST", "/v1/workflows", {"name": workflow, "nodes": [node]})
    assert status == 201, stored
    for execution in [await start(api, workflow) for _ in range(times)]:
        await api.terminal(execution)


async def letters(api: Api, workflow: str, state: str) -> list[dict[str, Any]]:
    found = await api.get(f"/v1/dead-letters?workflow={workflow}&state={state}")
    return list(found["items"])


async def test_a_group_is_retried_after_a_question_that_says_of_how_many(console: Console, api: Api) -> None:
    await fail(api, "retried-together", times=2)
    page = await console.open("/dead-letters?workflow=retried-together")
    await page.get_by_role("button", name="Retry 2…").click()
    question = page.get_by_role("dialog", name="Retry 2 dead letters?")
    await expect(question).to_contain_text("retried-together")
    await question.get_by_role("button", name="Retry 2 dead letters").click()
    await expect(page.get_by_text("2 dead letters retried.")).to_be_visible()
    assert len(await letters(api, "retried-together", "retried")) == 2


async def test_one_is_dropped_and_then_all_others(console: Console, api: Api) -> None:
    await fail(api, "dropped-by-one", times=3)
    page = await console.open("/dead-letters?workflow=dropped-by-one")
    await page.get_by_role("button", name="dropped-by-one").click()
    rows = page.locator(".letters tbody tr")
    await expect(rows).to_have_count(3)
    await rows.first.get_by_role("button", name="Drop").click()
    await page.get_by_role("dialog").get_by_role("button", name="Drop 1 dead letter").click()
    await expect(rows).to_have_count(2)
    assert len(await letters(api, "dropped-by-one", "dropped")) == 1
    await page.get_by_role("button", name="Drop all…").click()
    await page.get_by_role("dialog").get_by_role("button", name="Drop 2 dead letters").click()
    await expect(page.get_by_text("No dead letter is open of this workflow.")).to_be_visible()
    assert len(await letters(api, "dropped-by-one", "dropped")) == 3


async def test_a_search_shows_the_groups_of_what_it_finds_and_these_alone_are_dropped(
    console: Console, api: Api
) -> None:
    await fail(api, "searched-one", times=2)
    await fail(api, "searched-two", times=1)
    page = await console.open("/dead-letters")
    await page.keyboard.press("/")
    await page.keyboard.type("searched-two")
    await expect(page.locator(".letter-group")).to_have_count(1)
    assert "q=searched-two" in page.url
    await page.get_by_role("button", name="Drop all…").click()
    await page.get_by_role("dialog").get_by_role("button", name="Drop 1 dead letter").click()
    await expect(page.get_by_text("No dead letter is open with this text.")).to_be_visible()
    assert len(await letters(api, "searched-one", "open")) == 2


async def test_keeping_things_as_they_are_changes_nothing(console: Console, api: Api) -> None:
    await fail(api, "kept", times=1)
    page = await console.open("/dead-letters?workflow=kept")
    await page.get_by_role("button", name="Drop…").click()
    await page.get_by_role("button", name="Keep as it is").click()
    await expect(page.get_by_role("dialog")).to_have_count(0)
    assert len(await letters(api, "kept", "open")) == 1
