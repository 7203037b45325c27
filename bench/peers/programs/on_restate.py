"""Restate: its server from npm, and a service by its Python SDK (``restate_service.py``).

A single node with the default configuration, on a folder on the disk, bound to loopback, without telemetry.
The service is served by Hypercorn, as its page on serving says, with the settings of the production file
there and one worker for each core. Executions are started over its HTTP ingress, each request waiting for
its result; W3 has up to 256 of them open. Slots are a semaphore around the steps, in the service: the
server limits invocations, not steps. The server's own binary is run, without the script of Node.js around
it, which would only cost it memory.

What is on disk when a step is said to be done: the entry in the log of its partition, synced (the log
server's ``rocksdb-disable-wal-fsync`` is false by default).
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import urllib.error
import urllib.request
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp

from bench.peers.programs.contract import (
    Reporter,
    Stamps,
    child,
    folder,
    free_port,
    measure,
    wait_until,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

_REQUESTS_AT_ONCE = 256


class OnRestate:
    def __init__(self, url: str, loop: asyncio.AbstractEventLoop) -> None:
        self._url = url
        self._loop = loop
        self._stamps = Stamps(str(folder() / "stamps"))

    def chain(self, length: int) -> Sequence[tuple[float, float]]:
        self._call("chain", {"length": length})
        return self._stamps.take()

    def fan(self, width: int) -> None:
        self._call("diamond", {"width": width})

    def diamonds(self, count: int) -> None:
        self._call("diamond", {"width": 3}, times=count)

    def sleepers(self, count: int, seconds: float, slots: int) -> None:
        self._call("sleepers", {"count": count, "seconds": seconds, "slots": slots})

    def _call(self, handler: str, asked: dict[str, Any], *, times: int = 1) -> None:
        self._loop.run_until_complete(self._call_all(handler, asked, times))

    async def _call_all(self, handler: str, asked: dict[str, Any], times: int) -> None:
        connector = aiohttp.TCPConnector(limit=_REQUESTS_AT_ONCE)
        async with aiohttp.ClientSession(self._url, connector=connector) as session:

            async def call() -> None:
                async with session.post(f"/graphs/{handler}", json=asked) as answer:
                    assert answer.status == 200, await answer.text()
                    await answer.read()

            await asyncio.gather(*(call() for _ in range(times)))


def main() -> None:
    reporter = Reporter()
    ingress, admin, fabric, service = (free_port() for _ in range(4))
    binaries = Path(sys.prefix, "npm", "node_modules", "@restatedev").glob(
        "restate-server-*/bin/restate-server"
    )
    server_binary = next(binaries)
    package = json.loads((server_binary.parents[1] / "package.json").read_text())
    flags = ["--base-dir", str(folder() / "restate"), "--node-name", "peer", "--no-logo"]
    settings = {
        "RESTATE_LISTEN_MODE": "tcp",
        "RESTATE_BIND_IP": "127.0.0.1",
        "RESTATE_ADVERTISED_HOST": "127.0.0.1",
        "RESTATE_BIND_PORT": str(fabric),
        "RESTATE_INGRESS__BIND_PORT": str(ingress),
        "RESTATE_ADMIN__BIND_PORT": str(admin),
        "RESTATE_DISABLE_TELEMETRY": "true",
        "RESTATE_LOG_FILTER": "warn",
        "DO_NOT_TRACK": "1",
    }
    hypercorn = folder() / "hypercorn.toml"
    hypercorn.write_text(
        f'bind = "127.0.0.1:{service}"\n'
        "h2_max_concurrent_streams = 2147483647\n"
        "keep_alive_max_requests = 2147483647\n"
        "keep_alive_timeout = 2147483647\n"
        f"workers = {os.cpu_count()}\n"
    )
    served = "bench.peers.programs.restate_service:app"
    command = [sys.executable, "-m", "hypercorn", "--config", str(hypercorn), served]
    with (
        child(str(server_binary), *flags, environment=settings) as server,
        child(*command, environment={"PYTHONPATH": os.environ["PEER_ROOT"]}) as services,
    ):
        wait_until(lambda: _post(f"http://127.0.0.1:{admin}/health", None), server)
        registered = {"uri": f"http://127.0.0.1:{service}"}
        wait_until(lambda: _post(f"http://127.0.0.1:{admin}/deployments", registered), services)
        versions = {
            "restate-server": package["version"],
            "restate-sdk": version("restate-sdk"),
            "hypercorn": version("hypercorn"),
        }
        loop = asyncio.new_event_loop()
        measure(OnRestate(f"http://127.0.0.1:{ingress}", loop), reporter, versions=versions)


def _post(url: str, body: dict[str, Any] | None) -> bool:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"content-type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return bool(answer.status in (200, 201))
    except (OSError, urllib.error.URLError):
        return False


if __name__ == "__main__":
    main()
