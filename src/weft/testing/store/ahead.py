"""Tasks that are told with the rows they follow on: queued if their nodes are free then, else left alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from weft.core.snapshot import RowUpdate
from weft.store.contract import Answer, Applied
from weft.testing.store.contract import as_seen_before, free_nodes, phases, start
from weft.testing.walk import node

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from weft.core.rows import ExecutionRow
    from weft.core.task import Task
    from weft.testing.store.contract import StoreBench
    from weft.testing.walk import Walk


class AheadContract:
    """Beside ``StoreContract``, with the same fixture ``bench``."""

    async def test_what_the_rows_make_free_is_queued_with_them(
        self, new_walk: Callable[..., Walk], bench: StoreBench
    ) -> None:
        walk = new_walk("a", node("b", "a"), node("c", "a"), node("d", "a", "z"), "z")
        await walk.begin()
        (applied,) = await completed(walk, "a", ahead=["b", "d"])
        assert list(applied.queued) == ["b"]
        assert [one.node_id for one in applied.free] == ["c"]
        assert (await phases(walk))["b"] == "queued"
        assert await start(walk, "b") is Answer.YES
        if bench.sent is not None:
            assert [task.node_id for task in await bench.sent()] == ["a", "z", "b"]

    async def test_what_is_queued_with_its_row_is_not_looked_for_as_free(
        self, new_walk: Callable[..., Walk]
    ) -> None:
        walk = new_walk("a", node("b", "a"))
        await walk.begin()
        await completed(walk, "a", ahead=["b"])
        walk.clock.advance(60)
        assert list((await walk.store.due(idle_seconds=5)).woken) == []

    async def test_nothing_goes_behind_rows_that_were_not_merged(
        self, new_walk: Callable[..., Walk], bench: StoreBench
    ) -> None:
        walk = new_walk("a", node("b", "a"))
        await walk.begin()
        recorded_event = await walk.record(await walk.completed("a"))
        assert recorded_event.execution is not None
        task = task_of(walk, await walk.execution(), "b")
        later = replace(recorded_event.execution, epoch=2)
        row_update = RowUpdate(later, walk.plan, recorded_event.rows)
        (applied,) = await walk.store.apply([row_update], [replace(task, epoch=2)])
        assert applied == Applied(Answer.UNKNOWN)
        if bench.sent is not None:
            assert [task.node_id for task in await bench.sent()] == ["a"]

    async def test_a_task_of_another_attempt_or_epoch_is_left_and_its_node_is_free(
        self, new_walk: Callable[..., Walk]
    ) -> None:
        walk = new_walk("a", node("b", "a"))
        await walk.begin()
        recorded_event = await walk.record(await walk.completed("a"))
        assert recorded_event.execution is not None
        task = task_of(walk, recorded_event.execution, "b")
        row_update = RowUpdate(recorded_event.execution, walk.plan, recorded_event.rows)
        for wrong in (replace(task, attempt=2), replace(task, epoch=2), replace(task, generation=2)):
            (applied,) = await walk.store.apply([row_update], [wrong])
            assert (list(applied.queued), [one.node_id for one in applied.free]) == ([], ["b"])
        (applied,) = await walk.store.apply([row_update], [task])
        assert (list(applied.queued), list(applied.free)) == (["b"], [])
        # Told once more, as after a crash: it is on its way already.
        (applied,) = await walk.store.apply([row_update], [task])
        assert (list(applied.queued), list(applied.free)) == ([], [])

    async def test_a_paused_execution_queues_nothing_ahead(self, new_walk: Callable[..., Walk]) -> None:
        walk = new_walk("a", node("b", "a"))
        await walk.begin()
        await walk.advance(walk.paused())
        (applied,) = await completed(walk, "a", ahead=["b"])
        assert (list(applied.queued), list(applied.free)) == ([], [])
        await walk.record(walk.resumed())
        await walk.store.apply([RowUpdate(await walk.execution(), walk.plan, ())])
        assert [one.node_id for one in await free_nodes(walk)] == ["b"]

    async def test_roots_are_queued_with_the_install(
        self, new_walk: Callable[..., Walk], bench: StoreBench
    ) -> None:
        walk = new_walk("a", "b", "z", node("c", "a"))
        snapshot = await walk.submit()
        row, incarnation_id = snapshot.execution, await walk.store.incarnation_id()
        tasks = [task_of(walk, row, name) for name in ("a", "b", "c")]
        tasks[1] = replace(tasks[1], attempt=2)
        assert list(
            await walk.store.install([snapshot], incarnation_id=incarnation_id, fresh=True, ahead=tasks)
        ) == [Answer.YES]
        assert await phases(walk) == {"a": "queued", "b": "free", "z": "free"}
        assert [one.node_id for one in await free_nodes(walk)] == ["b", "z"]
        assert await start(walk, "a") is Answer.YES
        # Refused, an install queues nothing either.
        tasks = [task_of(walk, row, "z")]
        answers = await walk.store.install([snapshot], incarnation_id=incarnation_id, fresh=True, ahead=tasks)
        assert list(answers) == [Answer.REFUSED]
        assert (await phases(walk))["z"] == "free"
        if bench.sent is not None:
            assert [task.node_id for task in await bench.sent()] == ["a"]
        walk.clock.advance(60)
        assert list((await walk.store.due(idle_seconds=5)).woken) == [(row.id, 1)]

    async def test_an_install_queues_as_many_as_have_a_slot(self, new_walk: Callable[..., Walk]) -> None:
        names = [f"a{number}" for number in range(8)]
        walk = new_walk(*names)
        snapshot = await walk.submit()
        tasks = [task_of(walk, snapshot.execution, name) for name in names]
        # The first is of another epoch: its node stays free.
        tasks = [replace(tasks[0], epoch=2), *tasks[1:]]
        incarnation_id = await walk.store.incarnation_id()
        (answer,) = await walk.store.install(
            [snapshot], incarnation_id=incarnation_id, fresh=True, ahead=tasks
        )
        assert answer is Answer.YES
        # The window of these suites.
        shown = await phases(walk)
        assert [name for name in names if shown[name] == "queued"] == names[1:4]

    async def test_what_has_no_slot_stays_free(self, new_walk: Callable[..., Walk]) -> None:
        children = [f"b{number}" for number in range(8)]
        walk = new_walk("a", *[node(name, "a") for name in children])
        await walk.begin()
        (applied,) = await completed(walk, "a", ahead=children)
        # The window of these suites.
        assert list(applied.queued) == children[:3]
        assert list(applied.free) == []
        assert sorted(set((await phases(walk)).values())) == ["free", "queued"]


async def completed(walk: Walk, name: str, *, ahead: Sequence[str]) -> Sequence[Applied]:
    """Record a completion, and tell the store with tasks of these nodes."""
    recorded_event = await walk.record(await walk.completed(name))
    row = recorded_event.execution
    assert row is not None
    tasks = [task_of(walk, row, one) for one in ahead]
    return await walk.store.apply([RowUpdate(row, walk.plan, recorded_event.rows)], tasks)


def task_of(walk: Walk, row: ExecutionRow, name: str) -> Task:
    return walk.task(as_seen_before(walk, row, name))
