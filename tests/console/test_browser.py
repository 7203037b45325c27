"""Where the browser of these tests comes from, and that what a page must not do is seen."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.support.browser import find_chromium, grave_findings, overflow
from tests.support.fixtures import or_not_run
from tests.support.servers.process import NoServerError

if TYPE_CHECKING:
    from pathlib import Path

    from tests.console.conftest import Console

find = find_chromium.__wrapped__
REMEDY = "set WEFT_TEST_CHROMIUM to the path of one"


def test_the_browser_that_is_named_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named = tmp_path / "my-chromium"
    monkeypatch.setenv("WEFT_TEST_CHROMIUM", str(named))
    with pytest.raises(NoServerError, match="my-chromium"):
        find()
    named.touch(mode=0o755)
    assert find() == named


def test_without_a_browser_a_run_says_what_to_do_and_ci_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WEFT_TEST_CHROMIUM", raising=False)
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CI", raising=False)
    with (
        pytest.raises(pytest.skip.Exception, match=REMEDY),
        or_not_run(),
    ):
        find()
    monkeypatch.setenv("CI", "1")
    with (
        pytest.raises(pytest.fail.Exception, match=REMEDY),
        or_not_run(),
    ):
        find()


@pytest.mark.asyncio(loop_scope="session")
async def test_what_a_page_must_not_do_is_seen(console: Console) -> None:
    page = await console.open("/executions")
    await page.evaluate(
        """() => {
          document.body.insertAdjacentHTML("beforeend", "<button></button><i class='wide'></i>");
          const wide = document.querySelector(".wide");
          Object.assign(wide.style, {position: "absolute", top: "0", width: "5000px", height: "1px"});
          console.error("an error of the page");
          fetch("http://elsewhere.invalid/").catch(() => {});
        }"""
    )
    assert [one.split(":")[0] for one in await grave_findings(page)] == ["button-name"]
    assert any(one.startswith("I.wide") for one in await overflow(page))
    seen = "\n".join(console.watch.faults)
    assert "an error of the page" in seen
    assert "Connecting to 'http://elsewhere.invalid/' violates" in seen
    console.watch.faults.clear()
