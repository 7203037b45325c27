"""``python -m tests.walks.driver FILE DATA``: run a definition in a data folder to its end.

What ``weft run --data`` does, except that functions run in this process, where they start sooner, and that
the environment may name a crash point.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from tests.support.crash import VARIABLE, crashing

from weft.definition.validation import check
from weft.engine import Engine
from weft.handlers.registry import Registry
from weft.sdk.loading import load
from weft.settings import Settings


async def run(file: str, data: Path) -> None:
    registry = Registry()
    loaded = load(file, registry)
    plan = check(loaded.document, handlers=registry).plan
    assert plan is not None
    settings = Settings(worker_concurrency=4)
    engine = Engine(registry=registry, settings=settings, data=data)
    if point := os.environ.get(VARIABLE):
        crashing(engine.ports, point)
    async with engine:
        found = [row.id for row in await engine.ports.journal.executions()]
        for execution_id in found or [await engine.submit(plan, document=loaded.document)]:
            await engine.wait(execution_id)


if __name__ == "__main__":
    asyncio.run(run(sys.argv[1], Path(sys.argv[2])))
