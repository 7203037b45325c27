"""Large configs in flight are bounded, by execution and in the process; what waits goes on at once."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

from msgspec.structs import replace

from weft.clock import VirtualClock
from weft.store.contract import MemoryWait, StoreOptions
from weft.store.memory import MemoryStore
from weft.testing.walk import Walk, node, workflow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.core.decide import FreeNode
    from weft.core.payload import Json
    from weft.core.task import Task, Wake

# Enough for two of the usual configs of an execution, and for three of all.
OWN, ALL = 20, 30


class _Bench:
    """A store with a small budget, and executions whose nodes say in their configs what these weigh."""

    def __init__(self, *, own: int = OWN, process: int | None = ALL, window: int = 100) -> None:
        self.clock = VirtualClock()
        self.woken: list[str] = []
        ids = count(1)
        self.store = MemoryStore(
            now=self.clock.now,
            new_id=lambda: f"token-{next(ids)}",
            publish=lambda results: None,
            send=lambda tasks: None,
            wake=self._hear,
            options=StoreOptions(window=window, execution_bytes=own, process_bytes=process),
        )

    def _hear(self, wakes: Sequence[Wake]) -> None:
        self.woken += [wake.execution_id for wake in wakes]

    async def begin(self, execution_id: str, weights: dict[str, int], **fields: Json) -> _Weighing:
        document = workflow(*[node(name, config=weight) for name, weight in weights.items()], **fields)
        walk = _Weighing(document, store=self.store, clock=self.clock, execution_id=execution_id)
        walk.handed_out = await walk.begin()
        return walk

    async def take_up(self, *walks: _Weighing) -> dict[str, list[str]]:
        """Let the executions that were woken go on; give what was handed out."""
        woken, self.woken = self.woken, []
        return {walk.execution_id: await walk.go_on() for walk in walks if walk.execution_id in woken}


class _Weighing(Walk):
    handed_out: list[str]

    def task(self, free: FreeNode, config: bytes = b"null") -> Task:
        return replace(super().task(free, config), config_weight=int(config))

    async def go_on(self) -> list[str]:
        (applied,) = await self.store.free([self.execution_id])
        return await self.carry_on(applied.free)

    async def memory(self, name: str) -> MemoryWait | None:
        status = await self.store.inspect(self.execution_id)
        assert status is not None
        return status.nodes[name].memory


async def test_an_execution_has_its_share_in_flight_and_the_rest_waits_its_turn() -> None:
    bench = _Bench()
    walk = await bench.begin("x1", {"a": 10, "b": 10, "c": 10, "d": 0, "e": 10})
    assert walk.handed_out == ["a", "b", "d"]
    assert await walk.memory("c") == MemoryWait(10, 20, OWN, False)
    assert await walk.memory("d") is None
    # The small one gives nothing back; each of the others makes room for the next.
    assert await walk.complete("d") == []
    assert await walk.complete("a") == ["c"]
    assert await walk.complete("b", "c") == ["e"]


async def test_what_is_larger_than_the_budget_runs_alone() -> None:
    bench = _Bench()
    walk = await bench.begin("x1", {"a": 10, "huge": 1000, "b": 10})
    assert walk.handed_out == ["a", "b"]
    assert await walk.complete("a") == []
    assert await walk.complete("b") == ["huge"]
    other = await bench.begin("x2", {"c": 1})
    assert other.handed_out == []
    assert await walk.complete("huge") == []
    assert await bench.take_up(other) == {"x2": ["c"]}


async def test_an_execution_is_woken_when_another_gives_back_what_it_waits_for() -> None:
    bench = _Bench()
    first = await bench.begin("x1", {"a": 10, "b": 10})
    second = await bench.begin("x2", {"c": 10, "d": 10})
    assert second.handed_out == ["c"]
    assert await second.memory("d") == MemoryWait(10, 30, ALL, True)
    assert bench.woken == []
    await first.complete("a")
    assert await bench.take_up(first, second) == {"x2": ["d"]}
    await first.complete("b")
    assert bench.woken == []


async def test_nobody_goes_past_an_execution_that_has_waited_longer() -> None:
    bench = _Bench()
    first = await bench.begin("x1", {"a": 10, "b": 10})
    wide = await bench.begin("x2", {"c": 20})
    small = await bench.begin("x3", {"d": 5})
    assert (wide.handed_out, small.handed_out) == ([], [])
    # There is room for the small one, and the other one would never have its turn.
    assert await small.go_on() == []
    assert await small.memory("d") == MemoryWait(5, 20, ALL, True)
    await first.complete("a")
    assert await bench.take_up(first, wide, small) == {"x2": ["c"]}
    await first.complete("b")
    assert await bench.take_up(wide, small) == {"x3": ["d"]}


async def test_who_cannot_go_on_holds_up_nobody() -> None:
    for stopped in ("paused", "cancelled", "without a place"):
        bench = _Bench()
        first = await bench.begin("x1", {"a": 10, "b": 10})
        places = {"max_concurrency": 1} if stopped == "without a place" else {}
        wide = await bench.begin("x2", {"c": 20, "s": 0}, **places)
        # The place that the large one could not take is there for the small one.
        assert wide.handed_out + await wide.go_on() == ["s"]
        small = await bench.begin("x3", {"d": 5})
        assert small.handed_out == ([] if stopped != "without a place" else ["d"])
        if stopped == "paused":
            await wide.advance(wide.paused())
        elif stopped == "cancelled":
            await wide.advance(wide.cancelled())
        if stopped != "without a place":
            assert await bench.take_up(first, wide, small) == {"x3": ["d"]}
        await first.complete("a", "b")
        await small.complete("d")
        if stopped == "paused":
            assert bench.woken == []
            await wide.advance(wide.resumed())
            assert "c" in wide.started[-1]


async def test_every_way_out_of_flight_gives_the_memory_back() -> None:
    bench = _Bench(own=10, process=10)
    walk = await bench.begin("x1", {"a": 10, "b": 10}, defaults={"max_retries": 3})
    assert walk.handed_out == ["a"]
    # A retry waits without memory, and asks for it again when it is due.
    assert await walk.advance(await walk.failed("a", retryable=True)) == ["b"]
    assert await walk.advance(await walk.lost("b")) == ["b"]
    await walk.complete("b")
    bench.clock.advance(400)
    (due,) = (await bench.store.due(idle_seconds=1000)).woken
    assert due == ("x1", 1)
    assert await walk.go_on() == ["a"]
    # What is closed or built anew holds nothing of its earlier life.
    other = await bench.begin("x2", {"c": 10})
    assert other.handed_out == []
    await walk.rebuild()
    assert await bench.take_up(other) == {"x2": ["c"]}
    third = await bench.begin("x3", {"d": 10})
    await other.advance(other.cancelled())
    assert await bench.take_up(third) == {"x3": ["d"]}


async def test_without_a_process_budget_executions_do_not_wait_for_each_other() -> None:
    bench = _Bench(process=None)
    for name in ("x1", "x2", "x3"):
        walk = await bench.begin(name, {"a": 10, "b": 10, "c": 10})
        assert walk.handed_out == ["a", "b"]
        assert await walk.memory("c") == MemoryWait(10, 20, OWN, False)
