"""The engine in one process: what it takes up, what it keeps, what it forgets."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from weft.core.state import ExecutionState
from weft.definition.plan import Plan, compile_plan
from weft.engine import Engine
from weft.handlers.registry import Registry
from weft.settings import Settings

if TYPE_CHECKING:
    from pathlib import Path

SLOW: dict[str, Any] = {
    "name": "slow",
    "nodes": [
        {"id": "first", "handler": "echo", "config": "{{ input.number | default(0) }}"},
        {"id": "wait", "handler": "sleep", "dependencies": ["first"], "config": {"seconds": 0.2}},
    ],
}
QUICK: dict[str, Any] = {"name": "quick", "nodes": [{"id": "only", "handler": "echo"}]}


def engine(data: Path | None = None, **options: Any) -> Engine:
    return Engine(registry=Registry(), settings=Settings(worker_grace_seconds=0.0), data=data, **options)


async def abandoned(plan: Plan, data: Path, **input_: Any) -> str:
    """Begin an execution and close the engine over it."""
    async with engine(data) as first:
        return await first.submit(plan, document=SLOW, input=input_)


async def test_a_script_leaves_what_others_began_as_it_is(tmp_path: Path) -> None:
    other = await abandoned(compile_plan(SLOW), tmp_path)
    async with asyncio.timeout(20), engine(tmp_path, recovers=False) as script:
        quick = compile_plan(QUICK)
        assert await script.go_on(quick) is None
        await script.wait(await script.submit(quick, document=QUICK))
        row = await script.ports.journal.execution(other)
        assert row is not None
        assert not row.is_terminal
        assert await script.ports.store.epochs([other]) == [None]


async def test_it_goes_on_with_the_same_definition_and_input_alone(tmp_path: Path) -> None:
    plan = compile_plan(SLOW)
    one = await abandoned(plan, tmp_path, number=1)
    async with asyncio.timeout(20), engine(tmp_path, recovers=False) as script:
        assert await script.go_on(plan, input={"number": 2}) is None
        assert await script.go_on(plan, input={"number": 1}) == one
        assert (await script.wait(one)).state is ExecutionState.COMPLETED


async def test_a_server_takes_up_all_that_was_left(tmp_path: Path) -> None:
    plan = compile_plan(SLOW)
    left = [await abandoned(plan, tmp_path, number=number) for number in (1, 2)]
    async with asyncio.timeout(20), engine(tmp_path) as server:
        assert {(await server.wait(id_)).state for id_ in left} == {ExecutionState.COMPLETED}


async def test_waiting_for_what_has_ended_returns_at_once() -> None:
    plan = compile_plan(QUICK)
    async with asyncio.timeout(20), engine() as here:
        execution_id = await here.submit(plan, document=QUICK)
        first = await here.wait(execution_id)
        here.watch(execution_id, total=1)
        assert await here.wait(execution_id) == first


async def test_what_is_forgotten_leaves_nothing_in_memory() -> None:
    plan = compile_plan(QUICK)
    async with asyncio.timeout(20), engine() as here:
        execution_id = await here.submit(plan, document=QUICK)
        await here.wait(execution_id)
        here.forget(execution_id)
        assert await here.ports.journal.execution(execution_id) is None
        assert await here.ports.catalog.events(execution_id) == []
