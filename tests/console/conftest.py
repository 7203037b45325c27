"""A real ``weft up`` and a real Chromium, once for all tests of the console."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest_asyncio
from playwright.async_api import expect
from tests.console.flows import ASKING, FLOWS, KEY, MANY, PATIENT, WAITING
from tests.operation.serving import Api, Server
from tests.support.browser import PATIENCE_MS, Watch, chromium
from tests.support.fixtures import or_not_run

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    import pytest
    from playwright.async_api import Browser, Page

expect.set_options(timeout=PATIENCE_MS)

# One of each kind.
TRIGGERS: dict[str, dict[str, Any]] = {
    "nightly": {"schedule": {"cron": "0 3 * * *", "timezone": "Europe/Berlin"}},
    "guests": {"event": {"type": "guest.came"}},
    "shop": {"webhook": {"secret": "SHOP"}},
}


@dataclass(frozen=True, slots=True)
class Console:
    """A page of the console, on a server that has something to show."""

    page: Page
    url: str
    api: Api
    watch: Watch

    async def open(self, where: str) -> Page:
        """Open a place of the console, such as ``/executions``, and return once its page is drawn."""
        await self.page.goto(f"{self.url}/#{where}")
        await self.settled()
        return self.page

    async def settled(self) -> None:
        """Return once the page is there, with nothing of it still loading."""
        await expect(self.page.locator("main h1").first).to_be_visible()
        await expect(self.page.locator("[aria-busy=true], .loading")).to_have_count(0)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    with or_not_run():
        context = chromium()
        browser = await context.__aenter__()
    yield browser
    await context.__aexit__(None, None, None)


@asynccontextmanager
async def up(folder: Path, **settings: str) -> AsyncIterator[Server]:
    (folder / "flows.py").write_text(FLOWS, encoding="utf-8")
    (folder / "mended").unlink(missing_ok=True)
    settings = {"WEFT_SECRET_SHOP": "a-secret-of-the-shop", **settings}
    server = await Server.launch("up", "flows.py", "--port", "0", settings=settings, folder=folder)
    try:
        await server.ready()
        # They are stored one after the other once the server answers.
        await server.logged("workflow.deployed", times=FLOWS.count("= Workflow("))
        yield server
    finally:
        await server.kill()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Server]:
    """A server without keys, that all tests share: each starts executions of its own."""
    async with up(tmp_path_factory.mktemp("console")) as server:
        yield server


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def closed(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Server]:
    """A server that asks for a key."""
    async with up(tmp_path_factory.mktemp("closed"), WEFT_API_KEYS=KEY) as server:
        yield server


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def api(server: Server) -> AsyncIterator[Api]:
    async with Api(server.url) as api:
        yield api


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def shown(api: Api) -> dict[str, str]:
    """The ids of something of every kind: each page has something to show."""
    for definition in (PATIENT, WAITING, MANY, ASKING):
        status, stored, _ = await api.call("POST", "/v1/workflows", definition)
        assert status == 201, stored
    for name, starts_by in TRIGGERS.items():
        status, stored, _ = await api.call(
            "PUT", f"/v1/triggers/{name}", {"workflow": "greet", "input": {"name": "ada"}, **starts_by}
        )
        assert status == 201, stored
    event = {"specversion": "1.0", "type": "guest.came", "source": "/door", "id": "1", "data": {"room": 7}}
    status, done, _ = await api.call("POST", "/v1/events", event)
    assert status == 202, done
    found = {"completed": await start(api, "greet", {"name": "ada"})}
    found["failed"] = await start(api, "broken", {"file": "nosuch"})
    found["many"] = await start(api, "many")
    inputs = {"workflow": "greet", "inputs": [{"name": "ada"}, {"name": "bob"}]}
    status, batch, _ = await api.call("POST", "/v1/batches", inputs)
    assert status == 202, batch
    for execution in found.values():
        await api.terminal(execution)
    asks = await start(api, "asking", {"changes": 3})
    await asked(api, asks)
    return {**found, "batch": batch["id"], "asks": asks, "waiting": await start(api, "waiting")}


async def asked(api: Api, execution: str, node: str = "approval") -> None:
    """Return once a node of an execution asks its question."""
    while node not in [one["node"] for one in (await api.get(f"/v1/waits?execution={execution}"))["items"]]:
        pass


async def start(api: Api, workflow: str, given: Any = None, **fields: Any) -> str:
    status, body, _ = await api.call(
        "POST", f"/v1/workflows/{workflow}/executions", {"input": given or {}, **fields}
    )
    assert status == 202, body["detail"]
    return str(body["id"])


@pytest_asyncio.fixture(loop_scope="session")
async def console(browser: Browser, server: Server, api: Api) -> AsyncIterator[Console]:
    """A window of its own, with nothing of other tests; what the page must not do fails the test."""
    async with window(browser, server.url, api) as console:
        yield console


@asynccontextmanager
async def window(browser: Browser, url: str, api: Api, **options: Any) -> AsyncIterator[Console]:
    context = await browser.new_context(reduced_motion="reduce", **options)
    context.set_default_timeout(PATIENCE_MS)
    page = await context.new_page()
    watch = Watch(page, url)
    try:
        yield Console(page, url, api, watch)
        watch.check()
    finally:
        await context.close()
