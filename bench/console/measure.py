"""The graph of 10,000 and 50,000 nodes in headless Chromium: until it answers, how it moves, what it takes.

The server is ``weft up`` in a process of its own, and the execution is a real one. The graph is alone on its
page, with states as of an execution that is half done; then the console is opened as it is.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any
from urllib.request import Request, urlopen

from bench import graphs
from bench.figure import Figure, Target, at_least, at_most
from bench.server import cpu_seconds, resident_bytes, running

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Page, ViewportSize

_SCRIPT = Path(__file__).with_name("graph_page.js")
_WIDTH = 200
# Seconds until a graph of so many nodes answers.
_SIZES = {10_000: 1.0, 50_000: 2.5}
_FRAMES, _FRAMES_UNDER_LOAD = 45.0, 30.0
_CHANGES = 5_000
_MEGABYTES = 150.0
_SECONDS = 3.0
_LOADS = 7
_PATIENCE_MS = 60_000
_VIEWPORT: ViewportSize = {"width": 1440, "height": 900}
# The time of the mark that the graph leaves when it is drawn for the first time. `wait_for_function` runs
# text in the page, which its Content-Security-Policy forbids.
_DRAWN = """() => new Promise((done) => {
  const look = () => {
    const [mark] = performance.getEntriesByName("weft-graph-ready");
    if (mark) done(mark.startTime);
    else setTimeout(look, 10);
  };
  look();
})"""
_FRAMES_OF = """async (milliseconds) => {
  const begun = performance.now();
  let before = begun, frames = 0, longest = 0;
  while (before - begun < milliseconds) {
    const now = await new Promise((done) => requestAnimationFrame(() => done(performance.now())));
    longest = Math.max(longest, now - before);
    before = now;
    frames++;
  }
  return {fps: frames * 1000 / (before - begun), longest};
}"""
_PAGE = """<!doctype html><html lang="en" data-theme="light"><head><meta charset="utf-8"><title>bench</title>
<link rel="stylesheet" href="{files}styles/tokens.css"><link rel="stylesheet" href="{files}styles/base.css">
<style>html, body {{ height: 100%; margin: 0 }} #graph {{ position: absolute; inset: 0 }}</style></head>
<body><div id="graph"></div><script>window.bench = {{files: "{files}", execution: "{execution}"}};</script>
<script type="module" src="/bench/graph_page.js"></script></body></html>"""


def console() -> Iterator[Figure]:
    """Measure the graph by stages and with all nodes, while zooming and while states change."""
    from playwright.sync_api import sync_playwright

    with running() as server, sync_playwright() as playwright:
        for count, seconds in _SIZES.items():
            execution = _start(server.url, count, wait=60)
            # A browser for each: what the one before left behind is not counted.
            browser = playwright.chromium.launch(executable_path=_chromium())
            try:
                yield from _graph(browser, server.url, execution, count, seconds)
                yield from _whole(browser, server.url, execution, count, seconds)
                if count == max(_SIZES):
                    yield from _running(browser, server.url, count)
            finally:
                browser.close()


def _chromium() -> str:
    given = (
        os.environ.get("WEFT_TEST_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    )
    assert given, (
        "no chromium on the PATH; install your system's, or set WEFT_TEST_CHROMIUM to the path of one"
    )
    return given


def _start(url: str, count: int, *, wait: int) -> str:
    body = json.dumps({"definition": graphs.layered(count // _WIDTH, _WIDTH)}).encode()
    request = Request(f"{url}/v1/executions?wait={wait}", body, {"Content-Type": "application/json"})
    with urlopen(request) as answer:
        return str(json.load(answer)["id"])


def _files(url: str) -> str:
    """Return the path below which the server has the console's files."""
    with urlopen(url) as answer:
        page = answer.read().decode()
    start = page.index("/console/")
    return str(page[start : page.index("/", start + len("/console/")) + 1])


def _graph(browser: Browser, url: str, execution: str, count: int, seconds: float) -> Iterator[Figure]:
    page = browser.new_page(viewport=_VIEWPORT)
    html = _PAGE.format(files=_files(url), execution=execution)
    page.route("**/bench/graph.html", lambda route: route.fulfill(body=html, content_type="text/html"))
    script = _SCRIPT.read_text(encoding="utf-8")
    page.route(
        "**/bench/graph_page.js", lambda route: route.fulfill(body=script, content_type="text/javascript")
    )
    # Once to fill the browser's caches of compiled code, as for somebody who was here before.
    for _ in range(2):
        page.goto(f"{url}/bench/graph.html")
        page.wait_for_function("window.bench.ready === true", timeout=_PATIENCE_MS)
    interactive = float(page.evaluate("window.bench.interactive"))
    yield _figure(count, "interactive after", interactive / 1e3, "s", at_most(seconds))
    pid = _page_process(browser)
    zoom = f"window.bench.zoom({_SECONDS})"
    yield from _moved(page, pid, zoom, f"{count:,} nodes, by stages, zooming", _FRAMES)
    yield _figure(count, "all nodes shown after", float(page.evaluate("window.bench.expandAll()")) / 1e3, "s")
    yield from _moved(page, pid, zoom, f"{count:,} nodes, all, zooming", _FRAMES)
    changes = f"window.bench.change({_SECONDS}, {_CHANGES})"
    what = f"{count:,} nodes, all, {_CHANGES:,} changes/s"
    yield from _moved(page, pid, changes, what, _FRAMES_UNDER_LOAD)
    yield from _memory(page, pid, count)
    page.close()


def _whole(browser: Browser, url: str, execution: str, count: int, seconds: float) -> Iterator[Figure]:
    """Open the execution in the console, as a user does who was here before."""
    page = browser.new_page(viewport=_VIEWPORT)
    drawn: list[float] = []
    for _ in range(1 + _LOADS):
        page.goto("about:blank")
        page.goto(f"{url}/#/executions/{execution}?tab=graph")
        drawn.append(float(page.evaluate(_DRAWN)))
    page.close()
    # The median: other work on the machine delays single loads by a second.
    yield _figure(count, "in the console, drawn after", median(drawn[1:]) / 1e3, "s", at_most(seconds))


def _running(browser: Browser, url: str, count: int) -> Iterator[Figure]:
    """Watch an execution in the console while it runs on the same machine, with all its nodes shown."""
    page = browser.new_page(viewport=_VIEWPORT)
    execution = _start(url, count, wait=0)
    page.goto(f"{url}/#/executions/{execution}?tab=graph")
    page.evaluate(_DRAWN)
    page.get_by_role("button", name="Show all nodes").click()
    before, begun = _completed(url, execution), time.perf_counter()
    measured: dict[str, Any] = page.evaluate(_FRAMES_OF, _SECONDS * 1e3)
    rate = (_completed(url, execution) - before) / (time.perf_counter() - begun)
    page.close()
    what = f"{count:,} nodes, running in the console"
    yield Figure(workload="graph", what=f"{what}, completed", value=rate, unit="nodes/s")
    fps, longest = float(measured["fps"]), float(measured["longest"])
    target = at_least(_FRAMES_UNDER_LOAD)
    yield Figure(workload="graph", what=what, value=fps, unit="frames/s", target=target)
    yield Figure(workload="graph", what=f"{what}, longest frame", value=longest, unit="ms")


def _completed(url: str, execution: str) -> int:
    with urlopen(f"{url}/v1/executions/{execution}") as answer:
        return int(json.load(answer)["counts"].get("COMPLETED", 0))


def _moved(page: Page, pid: int, script: str, what: str, least: float) -> Iterator[Figure]:
    """Run a movement of some seconds; yield its frames a second, its longest frame and what a frame costs."""
    before = cpu_seconds(pid)
    measured: dict[str, Any] = page.evaluate(script)
    cpu = (cpu_seconds(pid) - before) / float(measured["frames"])
    fps = float(measured["fps"])
    yield Figure(workload="graph", what=what, value=fps, unit="frames/s", target=at_least(least))
    longest = float(measured["longest"])
    yield Figure(workload="graph", what=f"{what}, longest frame", value=longest, unit="ms")
    # Unlike frames a second, hardly changed by who else uses the machine.
    yield Figure(workload="graph", what=f"{what}, CPU a frame", value=cpu * 1e3, unit="ms")


def _page_process(browser: Browser) -> int:
    """Return the pid of the largest of the browser's renderers, which is the page's."""
    processes: Any = browser.new_browser_cdp_session().send("SystemInfo.getProcessInfo")["processInfo"]
    return max((int(one["id"]) for one in processes if one["type"] == "renderer"), key=resident_bytes)


def _memory(page: Page, pid: int, count: int) -> Iterator[Figure]:
    session = page.context.new_cdp_session(page)
    session.send("HeapProfiler.collectGarbage")
    session.send("Performance.enable")
    metrics: Any = session.send("Performance.getMetrics")["metrics"]
    heap = next(float(one["value"]) for one in metrics if one["name"] == "JSHeapUsedSize")
    yield _figure(count, "JavaScript heap", heap / 1e6, "MB", at_most(_MEGABYTES))
    # Heap, typed arrays, pictures and code, less what Chromium's processes share.
    private = resident_bytes(pid) - _shared_bytes(pid)
    yield _figure(count, "memory of the page's process", private / 1e6, "MB", at_most(_MEGABYTES))


def _shared_bytes(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text().splitlines()
    return 1024 * sum(int(line.split()[1]) for line in status if line.startswith(("RssFile:", "RssShmem:")))


def _figure(count: int, what: str, value: float, unit: str, target: Target | None = None) -> Figure:
    return Figure(workload="graph", what=f"{count:,} nodes, {what}", value=value, unit=unit, target=target)
