"""Real servers for the tests of operation: ``weft up`` in a process of its own, asked over HTTP."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import aiohttp
from tests.support.hold import PYTHONPATH

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

WEFT = (str(Path(sys.executable).with_name("weft")),)
ROOT = Path(__file__).parent.parent.parent

# A server alone is ready in a second; this is for a machine with much else to do.
PATIENCE_SECONDS = 60.0


class Server:
    """One process of ``weft up``, on a port that was free, or of another command that stays."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        # What it logged, line by line; a line that is no JSON stands as it was.
        self.log: list[dict[str, Any]] = []
        self.url = ""
        self._ended = False
        self._wrote = asyncio.Condition()
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def start(
        cls,
        data: Path,
        *flags: str,
        command: Sequence[str] = WEFT,
        settings: Mapping[str, str] | None = None,
        folder: Path | None = None,
    ) -> Self:
        """Start a server and return at once; ``ready`` waits for it."""
        return await cls.launch(
            *("up", "--port", "0", "--data", str(data), *flags),
            command=command,
            settings=settings or {},
            folder=folder or data.parent,
        )

    @classmethod
    async def launch(
        cls, *arguments: str, command: Sequence[str] = WEFT, settings: Mapping[str, str], folder: Path
    ) -> Self:
        """Start any command of weft that stays."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("WEFT_")}
        environment["PYTHONPATH"] = PYTHONPATH
        process = await asyncio.create_subprocess_exec(
            *(*command, *arguments),
            env={**environment, **settings},
            cwd=folder,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            limit=2**20,
        )
        return cls(process)

    async def ready(self) -> str:
        """Return the server's address once it is at work; what listens nowhere has none."""
        self.url = (await self.logged("server.ready")).get("url", "")
        return self.url

    async def logged(self, name: str, *, times: int = 1) -> dict[str, Any]:
        """Return the first line of an event once as many are there; raises where the server ended before."""
        async with asyncio.timeout(PATIENCE_SECONDS), self._wrote:
            await self._wrote.wait_for(lambda: self._ended or len(self.events(name)) >= times)
        assert len(self.events(name)) >= times, f"the server ended: {self.log}"
        return self.events(name)[0]

    async def stop(self, number: int = signal.SIGTERM) -> int:
        """Ask it to stop, and give its exit code."""
        self.process.send_signal(number)
        return await self.ended()

    async def kill(self) -> None:
        """End it as a power cut does."""
        if self.process.returncode is None:
            self.process.kill()
        await self.ended()

    async def ended(self) -> int:
        async with asyncio.timeout(PATIENCE_SECONDS):
            # Whoever waits in vain may still kill it.
            await asyncio.shield(self._reading)
            return await self.process.wait()

    def events(self, name: str) -> list[dict[str, Any]]:
        """Return the log's lines of one event."""
        return [line for line in self.log if line.get("event") == name]

    async def _read(self) -> None:
        assert self.process.stderr is not None
        async for raw in self.process.stderr:
            text = raw.decode().rstrip("\n")
            try:
                line = json.loads(text)
            except ValueError:
                line = {"text": text}
            async with self._wrote:
                self.log.append(line)
                self._wrote.notify_all()
        async with self._wrote:
            self._ended = True
            self._wrote.notify_all()


@asynccontextmanager
async def serving(data: Path, *flags: str, **options: Any) -> AsyncIterator[tuple[Server, Api]]:
    """Have a server that is ready, and killed at the end whatever became of it."""
    server = await Server.start(data, *flags, **options)
    try:
        async with Api(await server.ready()) as api:
            yield server, api
    finally:
        await server.kill()


class Api:
    """The REST calls that these tests make."""

    def __init__(self, url: str) -> None:
        self.url = url

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            self.url,
            connector=aiohttp.TCPConnector(limit=0),
            timeout=aiohttp.ClientTimeout(total=PATIENCE_SECONDS),
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def call(
        self, method: str, path: str, body: Any = None, *, key: str | None = None
    ) -> tuple[int, Any, Mapping[str, str]]:
        """Return the status, the body and the headers of an answer."""
        headers = {} if key is None else {"Idempotency-Key": key}
        async with self._session.request(method, path, json=body, headers=headers) as response:
            text = await response.read()
            return response.status, json.loads(text) if text else None, response.headers

    async def get(self, path: str) -> Any:
        status, body, _ = await self.call("GET", path)
        assert status == 200, (path, status, body)
        return body

    async def start(self, definition: Mapping[str, Any], **options: Any) -> str:
        """Submit a definition, and give the id of its execution."""
        status, body, _ = await self.call(
            "POST", "/v1/executions", {"definition": definition}, key=options.pop("key", None)
        )
        assert status in (200, 202), (status, body)
        return str(body["id"])

    async def terminal(self, execution_id: str) -> Any:
        """Return an execution once it is terminal."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                shown = await self.get(f"/v1/executions/{execution_id}?wait=30")
                if shown["state"] in ("COMPLETED", "FAILED", "CANCELLED"):
                    return shown

    async def history(self, execution_id: str) -> list[dict[str, Any]]:
        """Return all recorded events of an execution."""
        events: list[dict[str, Any]] = []
        cursor = ""
        while True:
            page = await self.get(f"/v1/executions/{execution_id}/events?limit=500{cursor}")
            events += page["items"]
            if page["next_cursor"] is None:
                return events
            cursor = f"&after={page['next_cursor']}"

    async def executions(self) -> list[str]:
        """Return the ids of all executions."""
        ids: list[str] = []
        cursor = ""
        while True:
            page = await self.get(f"/v1/executions?limit=500{cursor}")
            ids += [item["id"] for item in page["items"]]
            if page["next_cursor"] is None:
                return ids
            cursor = f"&cursor={page['next_cursor']}"
