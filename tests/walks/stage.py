"""An engine whose nodes do what a test says: each call of ``held`` waits until the test ends it."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from weft.core.task import Result
from weft.definition.validation import check
from weft.engine import Engine
from weft.errors import NonRetryable, StoreError
from weft.handlers.contract import Handler, HandlerContext, HandlerKind
from weft.handlers.registry import Registry
from weft.journal.contract import LetterQuery
from weft.settings import Settings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
    from pathlib import Path

    from weft.core.payload import Json
    from weft.core.rows import DeadLetter, ExecutionRow, History, NodeRow
    from weft.handlers.usercode import UserCode

# A test that waits this long waits for something that will not come.
PATIENCE_SECONDS = 30.0
LATER_SECONDS = 600
QUICK = {
    # No test waits for a call that does not end, so nothing is gained by a longer time.
    "worker_grace_seconds": 0.05,
    "worker_heartbeat_interval_seconds": 0.05,
    # The net that finds what a crash left would hide a step that nobody takes.
    "orchestrator_sweep_interval_seconds": LATER_SECONDS,
}


class HeldCall:
    """One call of ``held``."""

    def __init__(self, config: Json, context: HandlerContext) -> None:
        self.config = config
        self.context = context
        self.heard_stop = asyncio.Event()
        self._answer: asyncio.Future[Json] = asyncio.get_running_loop().create_future()

    def complete(self, output: Json = None) -> None:
        self._answer.set_result(output)

    def fail(self, error: Exception | None = None) -> None:
        """End in an error; without one it is an error that no further attempt would mend."""
        self._answer.set_exception(error or NonRetryable("it was told to fail"))

    async def answer(self) -> Json:
        try:
            return await self._answer
        except asyncio.CancelledError:
            self.heard_stop.set()
            raise


class Stage:
    """The handlers, the folder and the present engine of one test."""

    def __init__(self, data: Path | None, registry: Registry | None = None) -> None:
        self.data = data
        self.registry = registry or Registry()
        # Every call of ``held``, in the order in which they came, and those nobody has asked for yet.
        self.calls: list[HeldCall] = []
        self._waiting: list[HeldCall] = []
        self._came = asyncio.Condition()
        self._engine: Engine | None = None
        self.add("held", self._held)
        self.add("fail", _fail)

    @property
    def engine(self) -> Engine:
        assert self._engine is not None, "no engine is open"
        return self._engine

    def add(self, name: str, function: Callable[..., Any], *, schema: Json = None) -> None:
        """Register a handler of the user's."""
        self.registry.add(Handler(name, HandlerKind.USER, function, schema))

    @asynccontextmanager
    async def open(self, *, code: UserCode | None = None, **settings: Any) -> AsyncIterator[Engine]:
        """Run an engine on this stage's folder until the block ends; with ``code``, that runs in children."""
        engine = Engine(
            registry=self.registry,
            settings=Settings(**{**QUICK, **settings}),
            data=self.data,
            code=code,
        )
        async with engine:
            self._engine = engine
            yield engine

    async def _held(self, config: Json, context: HandlerContext) -> Json:
        call = HeldCall(config, context)
        async with self._came:
            self.calls.append(call)
            self._waiting.append(call)
            self._came.notify_all()
        return await call.answer()

    # -- executions --------------------------------------------------------------------------------

    async def submit(self, document: Json, **options: Any) -> str:
        checked = check(document, handlers=self.registry)
        assert checked.plan is not None, checked.problems
        return await self.engine.submit(checked.plan, document=document, **options)

    async def submit_pending(self, document: Json, **options: Any) -> str:
        """Submit while the store is away: the execution is accepted, and nobody has taken it up."""

        async def away() -> str:
            raise StoreError("the store is away")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(self.engine.ports.store, "incarnation_id", away)
            return await self.submit(document, **options)

    async def run(self, document: Json, **options: Any) -> dict[str, Any]:
        """Run a definition whose nodes need no help to its end."""
        return await self.ended(await self.submit(document, **options))

    async def ended(self, execution_id: str) -> dict[str, Any]:
        """Wait for the end of an execution, and describe it."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            await self.engine.wait(execution_id)
        return await self.engine.describe(execution_id)

    async def call(self, node_id: str, execution_id: str | None = None) -> HeldCall:
        """Return the next call of a held node, once it has come."""
        (call,) = await self.calls_of([node_id], execution_id)
        return call

    async def calls_of(self, node_ids: Sequence[str], execution_id: str | None = None) -> list[HeldCall]:
        """Return the next call of each of these nodes, once all have come."""
        return [await self._next_call(node_id, execution_id) for node_id in node_ids]

    async def _next_call(self, node_id: str, execution_id: str | None) -> HeldCall:
        def found() -> HeldCall | None:
            for call in self._waiting:
                if call.context.node_id == node_id and execution_id in (None, call.context.execution_id):
                    return call
            return None

        async with asyncio.timeout(PATIENCE_SECONDS), self._came:
            await self._came.wait_for(found)
            call = found()
            assert call is not None
            self._waiting.remove(call)
            return call

    def started(self) -> list[tuple[str, int]]:
        """List the held attempts that were started: node and attempt, in order."""
        return [(call.context.node_id, call.context.attempt) for call in self.calls]

    # -- what is true now --------------------------------------------------------------------------

    async def execution(self, execution_id: str) -> ExecutionRow:
        row = await self.engine.ports.journal.execution(execution_id)
        assert row is not None
        return row

    async def rows(self, execution_id: str) -> dict[str, NodeRow]:
        return dict(await self.engine.ports.journal.nodes(execution_id))

    async def events(self, execution_id: str) -> Sequence[History]:
        return await self.engine.ports.catalog.events(execution_id, limit=100_000)

    async def event_types(self, execution_id: str) -> list[str]:
        return [event.type for event in await self.events(execution_id)]

    async def letters(self, execution_id: str) -> dict[str, DeadLetter]:
        """Return the latest dead letter of each node that has one."""
        letters = await self.engine.ports.catalog.dead_letters(LetterQuery(execution_id=execution_id))
        return {letter.node_id: letter for letter in reversed(letters)}

    async def node(self, execution_id: str, node_id: str) -> dict[str, Any]:
        return by_id(await self.engine.describe(execution_id))[node_id]

    async def states(self, execution_id: str) -> dict[str, str]:
        return states(await self.engine.describe(execution_id))

    async def reasons(self, execution_id: str, node_id: str) -> list[str]:
        """Return the codes of why a node is not running."""
        explained = await self.engine.explain(execution_id, node_id)
        return [reason["code"] for reason in explained["reasons"]]

    async def until(self, is_true: Callable[[], Awaitable[bool]]) -> None:
        """Return once something is true that no event announces."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not await is_true():  # noqa: ASYNC110 - what changes here tells nobody
                await asyncio.sleep(0)

    async def until_state(self, execution_id: str, node_id: str, state: str) -> None:
        async def is_there() -> bool:
            return bool((await self.node(execution_id, node_id))["state"] == state)

        await self.until(is_there)

    async def until_attempt(self, execution_id: str, node_id: str, attempt: int) -> None:
        async def is_there() -> bool:
            row = (await self.rows(execution_id)).get(node_id)
            return row is not None and row.attempt == attempt

        await self.until(is_there)

    async def until_reason(self, execution_id: str, node_id: str, code: str) -> None:
        async def is_there() -> bool:
            return code in await self.reasons(execution_id, node_id)

        await self.until(is_there)

    async def until_idle(self) -> None:
        """Return once the worker has nothing in hand."""

        async def is_idle() -> bool:
            return self.engine.worker.free_slots == self.engine.worker.concurrency

        await self.until(is_idle)

    async def publish_late(self, call: HeldCall, output: bytes = b'"late"') -> None:
        """Report a result for a call's attempt, as a worker does that has not heard of its end."""
        context = call.context
        now = self.engine.ports.clock.now()
        result = Result(
            execution_id=context.execution_id,
            generation=context.generation,
            node_id=context.node_id,
            attempt=context.attempt,
            digest=(await self.execution(context.execution_id)).digest,
            failures=0,
            losses=0,
            worker=self.engine.worker.name,
            queued_at=now,
            started_at=now,
            finished_at=now,
            output=output,
        )
        seen = (await self.execution(context.execution_id)).seq
        await self.engine.ports.transport.publish([result])

        async def is_recorded() -> bool:
            return (await self.execution(context.execution_id)).seq > seen

        await self.until(is_recorded)


async def _fail(config: Json, context: HandlerContext) -> Json:
    raise NonRetryable((config or {}).get("message", "it always fails"))


def workflow(*nodes: Json, **fields: Json) -> dict[str, Json]:
    """Write a definition whose retries follow at once, unless it says otherwise."""
    defaults = {"retry": {"base_delay_seconds": 0}, **fields.pop("defaults", {})}
    return {"name": "walk", "nodes": list(nodes), "defaults": defaults, **fields}


def node(node_id: str, *dependencies: str, handler: str = "held", **fields: Json) -> dict[str, Json]:
    """Write a node that runs after these; it is held unless it has another handler."""
    written: dict[str, Json] = {"id": node_id, "handler": handler, **fields}
    if dependencies:
        written["dependencies"] = list(dependencies)
    if "rule" in written:
        written["trigger_rule"] = written.pop("rule")
    return written


def echo(node_id: str, *dependencies: str, **fields: Json) -> dict[str, Json]:
    return node(node_id, *dependencies, handler="echo", **fields)


def fails(node_id: str, *dependencies: str, **fields: Json) -> dict[str, Json]:
    return node(node_id, *dependencies, handler="fail", **fields)


def by_id(execution: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {shown["id"]: shown for shown in execution["nodes"]}


def states(execution: dict[str, Any]) -> dict[str, str]:
    """Return in a word or three how each node stands: ``SKIPPED upstream_failed a``."""
    return {
        shown["id"]: " ".join(
            str(part) for part in (shown["state"], shown["reason"], shown["cause"]) if part is not None
        )
        for shown in execution["nodes"]
    }
