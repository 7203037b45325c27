"""``python -m tests.history.record``: keep a journal that this release wrote, for later releases to open.

It runs the workflows of ``stories`` on a server with a data folder, twice: the first server is cut off in the
midst of its work, the second takes over, and is cut off too. What lies in the folder then goes to
``tests/history/RELEASE/journal.sql.gz``, and what the server showed of each execution beside it. Run it once
for a release, when the schema or what is stored has changed, and never again for an old one.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import shutil
import sqlite3
import sys
import tempfile
from contextlib import AsyncExitStack, asynccontextmanager, closing
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from tests.history import stories
from tests.operation.serving import PATIENCE_SECONDS, Api

from weft.api.app import create_app
from weft.api.server import bind, listening, url_of
from weft.api.service import serve_engine
from weft.clock import RealClock
from weft.core.time import MICROSECONDS
from weft.engine import Engine, EngineParts
from weft.journal.sqlite.journal import FILE_NAME
from weft.settings import Settings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection, Mapping

FOLDER = Path(__file__).parent
# Whoever opens the journal lives later than it, whatever the clock of that machine says.
_THEN = 1_735_689_600 * MICROSECONDS
_SETTINGS = Settings(
    worker_grace_seconds=0.05, worker_heartbeat_interval_seconds=0.05, orchestrator_sweep_interval_seconds=0.1
)


class ThenClock(RealClock):
    """The first days of 2025, passing at their own pace."""

    _offset = RealClock().now() - _THEN

    def now(self) -> int:
        return super().now() - self._offset


@asynccontextmanager
async def cut_off(data: Path, open_gates: Collection[str]) -> AsyncIterator[Api]:
    """Have a server on a data folder; when it stops, the folder is as it was before."""
    registry = stories.registry(open_gates)
    kept = b""
    async with AsyncExitStack() as stack:
        engine = Engine(
            registry=registry, settings=_SETTINGS, data=data, parts=EngineParts(clock=ThenClock())
        )
        await stack.enter_async_context(engine)
        service = serve_engine(engine, registry)
        bound = bind("127.0.0.1", 0)
        await stack.enter_async_context(listening(create_app(service), bound))
        yield await stack.enter_async_context(Api(url_of(bound)))
        service.stopping.set()
        kept = dump(data)
    restore(kept, data)


def dump(data: Path) -> bytes:
    """Write all of a journal as SQL; a server may be at work on it."""
    with closing(sqlite3.connect(data / FILE_NAME)) as connection:
        connection.execute("BEGIN")
        marks = {
            name: connection.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("application_id", "user_version")
        }
        lines = [*(f"PRAGMA {name} = {value};" for name, value in marks.items()), *connection.iterdump()]
    return ("\n".join(lines) + "\n").encode()


def restore(sql: bytes, data: Path) -> None:
    """Make a data folder of a journal that was written as SQL, whatever was in it."""
    shutil.rmtree(data, ignore_errors=True)
    data.mkdir()
    with closing(sqlite3.connect(data / FILE_NAME)) as connection:
        connection.executescript(sql.decode())


class Recorder:
    """The calls that tell the stories; each execution is known by the name of its story."""

    def __init__(self, api: Api, ids: dict[str, str]) -> None:
        self.api = api
        self.ids = ids

    async def post(self, path: str, body: Any = None, *, key: str | None = None) -> Any:
        status, answer, _ = await self.api.call("POST", f"/v1/{path}", body, key=key)
        assert status in (200, 201, 202), (path, status, answer)
        return answer

    async def start(self, story: str, definition: Mapping[str, Any], **body: Any) -> None:
        await self.post("workflows", definition)
        await self.start_stored(story, definition["name"], **body)

    async def start_stored(self, story: str, workflow: str, **body: Any) -> None:
        body = {"labels": {"story": story}, **body}
        started = await self.post(f"workflows/{workflow}/executions", body, key=f"key-of-{story}")
        self.ids[story] = started["id"]

    async def end(self, story: str, state: str) -> None:
        shown = await self.api.terminal(self.ids[story])
        assert shown["state"] == state, shown

    async def reach(self, story: str, node_id: str, state: str, attempt: int = 1) -> None:
        """Return once an attempt of a node is in a state."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                shown = await self.api.get(f"/v1/executions/{self.ids[story]}/nodes/{node_id}")
                if (shown["state"], shown["attempt"]) == (state, attempt):
                    return
                await asyncio.sleep(0.01)

    async def control(self, story: str, verb: str, **body: Any) -> None:
        await self.post(f"executions/{self.ids[story]}/{verb}", body or None)

    # -- the first server ------------------------------------------------------------------------------

    async def first_life(self) -> None:
        """Most stories, to their ends; and two in the midst of which the server dies."""
        for story, definition, state in (
            ("rules", stories.RULES, "FAILED"),
            ("retries", stories.RETRIES, "COMPLETED"),
            ("exhausted", stories.EXHAUSTED, "FAILED"),
            ("handled", stories.HANDLED, "COMPLETED"),
            ("deadline", stories.DEADLINE, "FAILED"),
            ("cache", stories.CACHE, "COMPLETED"),
            ("cache-hit", stories.CACHE, "COMPLETED"),
            ("large", stories.LARGE, "COMPLETED"),
            ("narrow", stories.NARROW, "COMPLETED"),
            ("output", stories.OUTPUT, "COMPLETED"),
            ("fail-fast", stories.FAIL_FAST, "FAILED"),
            ("retried", stories.FAIL_FAST, "FAILED"),
        ):
            await self.start(story, definition, input={"word": story})
            await self.end(story, state)
        await self.start("cancelled", stories.CANCEL, priority="high")
        await self.reach("cancelled", "b", "RUNNING")
        await self.control("cancelled", "cancel")
        await self.drop_a_letter()
        await self.make_versions()
        inline = {"definition": {**stories.OUTPUT, "description": "not stored by name"}}
        self.ids["inline"] = (await self.post("executions", inline))["id"]
        await self.end("inline", "COMPLETED")
        for story, definition in (("lost", stories.LOST), ("lost-once", stories.LOST_ONCE)):
            await self.start(story, definition)
            await self.reach(story, "a", "RUNNING")

    async def drop_a_letter(self) -> None:
        letters = (await self.api.get("/v1/dead-letters?workflow=rules"))["items"]
        dropped = next(letter["id"] for letter in letters if letter["node"] == "bad_template")
        status, _, _ = await self.api.call("DELETE", f"/v1/dead-letters/{dropped}")
        assert status == 204

    async def make_versions(self) -> None:
        """Make a workflow of two versions, with an alias and a batch, and one that is deleted."""
        for number in (1, 2):
            node = stories.node("a", config={"version": number, "given": "{{ input.n | default(0) }}"})
            await self.post("workflows", stories.flow("versions", node))
        status, _, _ = await self.api.call("PUT", "/v1/workflows/versions/aliases/stable", {"version": 1})
        assert status == 200
        await self.start_stored("by-alias", "versions", version="stable")
        await self.end("by-alias", "COMPLETED")
        inputs = [{"n": number} for number in range(3)]
        batch = await self.post("batches", {"workflow": "versions", "inputs": inputs})
        for item in (await self.api.get(f"/v1/batches/{batch['id']}/results"))["items"]:
            self.ids[f"batch-{item['index']}"] = item["execution"]
            await self.end(f"batch-{item['index']}", "COMPLETED")
        await self.start("of-a-deleted-workflow", stories.flow("deleted", stories.node("a")))
        await self.end("of-a-deleted-workflow", "COMPLETED")
        status, _, _ = await self.api.call("DELETE", "/v1/workflows/deleted")
        assert status == 204

    # -- the second server -----------------------------------------------------------------------------

    async def second_life(self) -> None:
        """What the first left comes to its end; retries, and what a later release has to finish."""
        await self.end("lost", "COMPLETED")
        await self.end("lost-once", "COMPLETED")
        await self.control("retried", "retry")
        await self.reach("retried", "running", "RUNNING", attempt=2)
        await self.control("retried", "cancel")
        await self.control("retried", "retry", nodes=["a"])
        await self.reach("retried", "running", "RUNNING", attempt=3)
        await self.start("paused", stories.PAUSE)
        await self.reach("paused", "b", "RUNNING")
        await self.control("paused", "pause")
        await self.start("resumed", stories.PAUSE)
        await self.reach("resumed", "b", "RUNNING")
        await self.control("resumed", "pause")
        await self.control("resumed", "resume")
        await self.start("running", stories.RUNNING)
        await self.reach("running", "once", "RUNNING")
        await self.reach("running", "b", "RUNNING")
        await self.reach("running", "late", "QUEUED")


async def record() -> tuple[bytes, dict[str, Any]]:
    """Return a journal as SQL, and what the server showed of each execution in it at the end."""
    ids: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        async with cut_off(data, open_gates=()) as api:
            await Recorder(api, ids).first_life()
        async with cut_off(data, open_gates=("second",)) as api:
            await Recorder(api, ids).second_life()
            shown = {story: await api.get(f"/v1/executions/{id_}") for story, id_ in ids.items()}
        return dump(data), shown


def main() -> None:
    folder = FOLDER / ".".join(version("weft").split(".")[:2])
    # A worker is named after its machine, which is nobody's business here.
    with patch("socket.gethostname", return_value="recorder"):
        sql, shown = asyncio.run(record())
    folder.mkdir(exist_ok=True)
    written = {"journal.sql.gz": sql, "shown.json.gz": json.dumps(shown, indent=1).encode()}
    for name, content in written.items():
        # No time in it, so that the same content gives the same file.
        (folder / name).write_bytes(gzip.compress(content, mtime=0))
    size = sum((folder / name).stat().st_size for name in written)
    sys.stdout.write(f"{folder.name}: {len(shown)} executions, {size:,} bytes\n")


if __name__ == "__main__":
    main()
