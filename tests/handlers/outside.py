"""Calls of the handlers that go outside: on their own, and as a node of an engine."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from weft.clock import RealClock
from weft.definition.validation import check
from weft.engine import Engine
from weft.handlers.contract import LargeOutput, NativeContext
from weft.handlers.http.outbound import Outbound
from weft.handlers.registry import Registry
from weft.settings import Settings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from weft.core.payload import Json
    from weft.handlers.http.session import Lookup

PATIENCE_SECONDS = 30.0
LOOPBACK = ("127.0.0.0/8",)


class Caller:
    """Calls handlers as a worker does, without the engine around it."""

    def __init__(self, outbound: Outbound) -> None:
        self.outbound = outbound
        self._registry = Registry()

    async def __call__(self, config: Json, *, handler: str = "call_external_service") -> Any:
        context = NativeContext(
            execution_id="execution",
            node_id="node",
            generation=1,
            attempt=1,
            deadline=datetime(2030, 1, 1, tzinfo=UTC),
            way_out=self.outbound,
        )
        async with asyncio.timeout(PATIENCE_SECONDS):
            output = await self._registry.bind(handler, config, context).call()
        return output.value if isinstance(output, LargeOutput) else output


@asynccontextmanager
async def caller(
    *, allow: tuple[str, ...] = LOOPBACK, lookup: Lookup | None = None, **settings: Any
) -> AsyncIterator[Caller]:
    outbound = Outbound(Settings(http_allow=allow, **settings), RealClock(), lookup=lookup)
    try:
        yield Caller(outbound)
    finally:
        await outbound.close()


async def run_node(
    config: Json,
    *,
    handler: str = "call_external_service",
    input: Json = None,  # noqa: A002 - the word of the interface
    fields: dict[str, Json] | None = None,
    data: Path | None = None,
    **settings: Any,
) -> dict[str, Any]:
    """Run a workflow of one node to its end, and describe the node."""
    node = {"id": "node", "handler": handler, "config": config, "max_retries": 0, **(fields or {})}
    document = {"name": "one", "nodes": [node]}
    registry = Registry()
    plan = check(document, handlers=registry).plan
    assert plan is not None
    given = Settings(http_allow=LOOPBACK, worker_grace_seconds=0.05, **settings)
    async with (
        asyncio.timeout(PATIENCE_SECONDS),
        Engine(registry=registry, settings=given, data=data) as engine,
    ):
        execution_id = await engine.submit(plan, document=document, input=input)
        await engine.wait(execution_id)
        return await engine.describe_node(execution_id, "node")


def problems(handler: str, config: Json) -> dict[str, str]:
    """Return what validation says of a config: pointer → message."""
    return {problem.pointer: problem.message for problem in Registry().problems(handler, config)}
