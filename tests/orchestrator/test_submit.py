"""Inputs become executions: what is refused, what is announced, and how many go into the store at once."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from weft.clock import new_id
from weft.core.payload import encode
from weft.core.state import ExecutionState
from weft.definition.bounds import Bounds
from weft.definition.plan import compile_plan
from weft.engine import Engine
from weft.errors import ClaimedError, InputError, NotFoundError, StoreError
from weft.handlers.registry import Registry
from weft.journal.contract import Claim, NewBatch
from weft.orchestrator.recover import rebuild
from weft.orchestrator.submit import (
    ResolvedDefinition,
    SubmitOptions,
    find_source,
    make_batch,
    make_submission,
    read_input,
    read_inputs,
    submit,
)
from weft.store.contract import Answer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from weft.ports import Ports

DOCUMENT: dict[str, Any] = {
    "name": "flow",
    "input_schema": {"properties": {"n": {"type": "integer"}}},
    "nodes": [{"id": "a", "handler": "echo"}],
}
PLAN = compile_plan(DOCUMENT)
SOURCE = ResolvedDefinition(plan=PLAN, document=encode(DOCUMENT, max_bytes=10_000), workflow="flow")


@pytest.fixture
async def engine() -> AsyncIterator[Engine]:
    async with asyncio.timeout(30), Engine(registry=Registry()) as engine:
        yield engine


class TestInputs:
    async def test_one_that_fits_is_its_json(self) -> None:
        assert await read_input({"n": 1, "x": [None]}, PLAN, Bounds()) == b'{"n":1,"x":[null]}'

    @pytest.mark.parametrize(
        ("value", "pointer"),
        [
            ({"n": "1"}, "/n"),
            ([], ""),
            (None, ""),
            ({"x": {"y": float("nan")}}, "/x/y"),
            ({"x": {1: 2}}, "/x"),
            ({"x": "y" * 100}, ""),
        ],
    )
    async def test_one_that_does_not_fit_is_a_problem_with_a_place(self, value: Any, pointer: str) -> None:
        with pytest.raises(InputError) as refused:
            await read_input(value, PLAN, Bounds(max_payload_bytes=100))
        assert [problem.pointer for problem in refused.value.problems] == [pointer]

    async def test_of_a_list_every_problem_is_told_with_its_place_in_the_list(self) -> None:
        with pytest.raises(InputError) as refused:
            await read_inputs([{"n": 1}, {"n": "x"}, 3], PLAN, Bounds())
        assert [problem.pointer for problem in refused.value.problems] == ["/1/n", "/2"]

    async def test_not_more_problems_are_told_than_anybody_reads(self) -> None:
        with pytest.raises(InputError) as refused:
            await read_inputs([{"n": "x"}] * 5000, PLAN, Bounds())
        assert len(refused.value.problems) == 1000


class TestASource:
    async def test_a_version_is_found_by_number_by_alias_and_as_the_latest(self, engine: Engine) -> None:
        catalog = engine.ports.catalog
        for n in (1, 2):
            document = {**DOCUMENT, "description": str(n)}
            await catalog.put_version("flow", compile_plan(document), encode(document, max_bytes=10_000))
        await catalog.put_alias("flow", "live", 1)
        for wanted, version in (("latest", 2), (1, 1), ("live", 1)):
            source = await find_source("flow", wanted, engine.ports)
            assert (source.workflow, source.version) == ("flow", version)
            assert source.plan.definition.description == str(version)

    @pytest.mark.parametrize("wanted", [3, 0, -1, 10**30, "nobody"])
    async def test_what_is_not_there_is_named(self, engine: Engine, wanted: int | str) -> None:
        await engine.ports.catalog.put_version("flow", PLAN, SOURCE.document)
        with pytest.raises(NotFoundError, match=f"no version '{wanted}' of workflow 'flow'"):
            await find_source("flow", wanted, engine.ports)
        with pytest.raises(NotFoundError, match="no workflow 'nobody'"):
            await find_source("nobody", "latest", engine.ports)


async def test_more_than_go_into_the_store_at_once_all_run(engine: Engine) -> None:
    batch = NewBatch(id=new_id(), workflow="flow", version=1)
    submissions = await make_batch(
        batch.id, SOURCE, [{"n": n} for n in range(1234)], SubmitOptions(), engine.ports
    )
    rows = await submit(submissions, engine.ports, batch=batch)
    assert [row.id for row in rows] == [submission.id for submission in submissions]
    ended = await asyncio.gather(*[engine.wait(row.id) for row in rows])
    assert {row.state for row in ended} == {"COMPLETED"}


async def test_others_have_a_turn_while_many_go_into_the_store(engine: Engine) -> None:
    batch = NewBatch(id=new_id(), workflow="flow", version=1)
    submissions = await make_batch(batch.id, SOURCE, [{}] * 1234, SubmitOptions(), engine.ports)
    installed: list[int] = []
    install = engine.ports.store.install

    async def counted(*args: Any, **kwargs: Any) -> Any:
        installed.append(1)
        return await install(*args, **kwargs)

    engine.ports.store.install = counted  # type: ignore[method-assign]
    submitting = asyncio.create_task(submit(submissions, engine.ports, batch=batch))
    seen = set()
    while not submitting.done():
        seen.add(len(installed))
        await asyncio.sleep(0)
    assert len(await submitting) == 1234
    assert len(seen - {0, 1234}) >= 2


async def test_those_who_look_on_are_told_of_a_new_execution(engine: Engine) -> None:
    assert engine.ports.feed is not None
    submission = make_submission(new_id(), SOURCE, b"{}", SubmitOptions())
    async with engine.ports.feed.subscribe(execution_id=submission.id) as subscription:
        (row,) = await submit([submission], engine.ports)
        created, started, *_ = await subscription.receive(wait_seconds=10)
    assert [created, started] == list(await engine.ports.catalog.events(row.id))[:2]


class TestTheStart:
    """The commit that accepts an execution starts it, and its first tasks go out with it."""

    @staticmethod
    async def submitted(ports: Ports, *nodes: dict[str, Any], **fields: Any) -> tuple[list[str], list[str]]:
        """Submit an execution; return the nodes whose tasks were sent, and the executions that were woken."""
        document = {"nodes": list(nodes), **fields}
        source = ResolvedDefinition(plan=compile_plan(document), document=encode(document, max_bytes=100_000))
        await submit([make_submission("x", source, b'{"n":7}', SubmitOptions())], ports)
        tasks = await ports.transport.fetch("worker", queues=None, limit=5000, wait_seconds=0)
        messages = await ports.transport.read("orchestrator", limit=100, wait_seconds=0)
        return [each.task.node_id for each in tasks], [each.message.execution_id for each in messages]

    async def test_roots_are_sent_with_the_submit_and_nobody_is_woken(self, ports: Ports) -> None:
        sent = await self.submitted(
            ports,
            {"id": "a", "handler": "echo", "config": "{{ input.n }}"},
            {"id": "b", "handler": "input"},
            {"id": "c", "handler": "echo", "dependencies": ["a", "b"]},
        )
        assert sent == (["a", "b"], [])
        row = await ports.journal.execution("x")
        assert row is not None
        assert (row.state, row.started_at) == (ExecutionState.RUNNING, row.created_at)

    @pytest.mark.parametrize(
        "fields",
        [
            {"delivery": "at_most_once"},
            {"cache": {"ttl_seconds": 60}},
            {"condition": "input.n == 8"},
            {"config": "{{ input.missing }}"},
        ],
        ids=["at_most_once", "cache", "a skip", "a failure"],
    )
    async def test_a_root_that_takes_more_than_a_task_is_left_to_an_orchestrator(
        self, ports: Ports, fields: dict[str, Any]
    ) -> None:
        root = {"id": "a", "handler": "echo", **fields}
        assert await self.submitted(ports, root, {"id": "b", "handler": "echo"}) == (["b"], ["x"])

    async def test_a_root_without_a_slot_is_left_to_an_orchestrator(self, ports: Ports) -> None:
        roots = [{"id": name, "handler": "echo"} for name in "abc"]
        assert await self.submitted(ports, *roots, max_concurrency=2) == (["a", "b"], ["x"])

    async def test_a_deadline_wakes_the_orchestrator_that_keeps_it(self, ports: Ports) -> None:
        assert await self.submitted(ports, {"id": "a", "handler": "echo"}, timeout_seconds=5) == (
            ["a"],
            ["x"],
        )

    async def test_of_a_wide_execution_the_first_roots_are_sent(self, ports: Ports) -> None:
        sent, woken = await self.submitted(ports, *[{"id": f"n{n}", "handler": "echo"} for n in range(300)])
        assert (sent, woken) == ([f"n{n}" for n in range(100)], ["x"])

    async def test_without_the_store_an_execution_is_accepted_and_not_started(self, ports: Ports) -> None:
        async def away() -> str:
            raise StoreError("away")

        token, ports.store.incarnation_id = ports.store.incarnation_id, away  # type: ignore[method-assign]
        assert await self.submitted(ports, {"id": "a", "handler": "echo"}) == ([], [])
        row = await ports.journal.execution("x")
        assert row is not None
        assert (row.state, row.started_at) == (ExecutionState.PENDING, None)
        # No task of it can exist: once the store is back the first attempt is free at once, and not orphaned.
        ports.store.incarnation_id = token  # type: ignore[method-assign]
        assert await rebuild("x", ports) is Answer.YES
        status = await ports.store.inspect("x")
        assert status is not None
        assert (status.nodes["a"].phase, status.nodes["a"].attempt) == ("free", 1)


async def test_a_key_that_is_taken_starts_nothing(engine: Engine) -> None:
    first, second = (make_submission(new_id(), SOURCE, b"{}", SubmitOptions()) for _ in range(2))
    claims = [
        Claim(key="k", request_digest=digest, resource=f"execution/{submission.id}")
        for digest, submission in (("one", first), ("two", second))
    ]
    await submit([first], engine.ports, claim=claims[0])
    with pytest.raises(ClaimedError) as refused:
        await submit([second], engine.ports, claim=claims[1])
    assert (refused.value.request_digest, refused.value.resource) == ("one", claims[0].resource)
    assert await engine.ports.journal.execution(second.id) is None
    assert list(await engine.ports.store.epochs([second.id])) == [None]
