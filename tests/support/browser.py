"""A real Chromium for the tests of the console, driven by Playwright, and what every page of it must keep to.

Chromium is what ``WEFT_TEST_CHROMIUM`` names, else one on the PATH, else, for root, the package ``chromium``
by ``apt-get``. pip brings none: without one the tests are reported as not run, with the remedy, and fail
under ``CI``.
"""

from __future__ import annotations

import os
import shutil
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from playwright.async_api import async_playwright
from tests.support.servers.binaries import from_apt
from tests.support.servers.process import NoServerError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from playwright.async_api import Browser, ConsoleMessage, Page, Request

# The npm package axe-core, unchanged: it looks for what keeps people with disabilities out.
_AXE = Path(__file__).parent / "axe-core-4.14.0" / "axe.min.js"
_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
# What keeps somebody from using the page; the rest of axe's findings is advice.
_GRAVE = ("serious", "critical")
# A page of this machine answers in milliseconds; this is for a machine with much else to do.
PATIENCE_MS = 20_000


@cache
def find_chromium() -> Path:
    """Return the path of a Chromium; raises NoServerError, which says what to do."""
    given = os.environ.get("WEFT_TEST_CHROMIUM")
    if given:
        if not os.access(given, os.X_OK):
            raise NoServerError(f"WEFT_TEST_CHROMIUM names {given}, which is no program")
        return Path(given)
    for source in (_on_path, _of_system):
        for path, _ in source():
            return path
    raise NoServerError(
        "no Chromium was found (looked for it by: WEFT_TEST_CHROMIUM, PATH, and for root by apt-get).\n"
        "Install your system's chromium; or set WEFT_TEST_CHROMIUM to the path of one."
    )


def _on_path() -> Iterator[tuple[Path, str]]:
    for name in _NAMES:
        if found := shutil.which(name):
            yield Path(found), "PATH"


def _of_system() -> Iterator[tuple[Path, str]]:
    return from_apt("chromium", _on_path)


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    """Have a browser without a window; raises NoServerError where there is none."""
    path = find_chromium()
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=path)
        try:
            yield browser
        finally:
            await browser.close()


class Watch:
    """Notes everything that a page must not do: errors, calls of elsewhere, what the CSP refuses."""

    def __init__(self, page: Page, url: str) -> None:
        self.faults: list[str] = []
        # Parts of messages that the test causes on purpose.
        self.expected: list[str] = []
        self._host = urlsplit(url).netloc
        page.on("console", self._said)
        page.on("pageerror", lambda error: self._note(f"error: {error}"))
        page.on("request", self._asked)

    def check(self) -> None:
        """Raise if the page has done any of it."""
        assert not self.faults, "\n".join(self.faults)

    def _note(self, fault: str) -> None:
        if not any(part in fault for part in self.expected):
            self.faults.append(fault)

    def _said(self, message: ConsoleMessage) -> None:
        # What the CSP refuses is an error of the console too.
        if message.type in ("error", "warning"):
            self._note(f"{message.type}: {message.text} ({message.location.get('url', '')})")

    def _asked(self, request: Request) -> None:
        parts = urlsplit(request.url)
        if parts.scheme not in ("data", "blob") and parts.netloc != self._host:
            self._note(f"asked for {request.url}, which is elsewhere")


async def grave_findings(page: Page) -> list[str]:
    """Return the serious findings of axe on a page as it is now."""
    # Evaluated by the debugger, which no CSP holds up; a script tag would be refused.
    if not await page.evaluate("typeof axe !== 'undefined'"):
        await page.evaluate(_AXE.read_text(encoding="utf-8"))
    found: Any = await page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{one['id']}: {one['help']}: {node['target']}: {node['failureSummary']}"
        for one in found["violations"]
        if one["impact"] in _GRAVE
        for node in one["nodes"]
    ]


async def overflow(page: Page) -> list[str]:
    """Return what sticks out of the page to the right, so that the whole page scrolls sideways."""
    wide: list[str] = await page.evaluate(
        """() => {
          const width = document.documentElement.clientWidth;
          if (document.documentElement.scrollWidth <= width) return [];
          const scrolls = (element) => {
            for (let one = element.parentElement; one; one = one.parentElement) {
              if (["auto", "scroll", "hidden", "clip"].includes(getComputedStyle(one).overflowX)) return true;
            }
            return false;
          };
          return [...document.querySelectorAll("body *")]
            .map((one) => [one, Math.round(one.getBoundingClientRect().right)])
            .filter(([one, right]) => right > width + 1 && !scrolls(one))
            .map(([one, right]) => `${one.tagName}.${one.className}: ${right} px`)
            .concat(`the page is ${document.documentElement.scrollWidth} px wide, the window ${width} px`);
        }"""
    )
    return wide
