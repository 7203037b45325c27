"""The stores, held against their contract."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

from weft.definition.plan import compile_plan
from weft.store.memory import MemoryStore
from weft.testing.store.ahead import AheadContract
from weft.testing.store.contract import StoreBench, StoreContract
from weft.testing.store.parked import ParkedContract
from weft.testing.store.waits import WaitContract
from weft.testing.walk import Walk, node, workflow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.clock import VirtualClock
    from weft.core.task import Result, Task


class TestMemoryStore(StoreContract, AheadContract, ParkedContract, WaitContract):
    @pytest.fixture
    async def bench(self, clock: VirtualClock) -> StoreBench:
        ids = count(1)
        published: list[Result] = []
        sent: list[Task] = []
        store = MemoryStore(
            now=clock.now,
            new_id=lambda: f"token-{next(ids)}",
            publish=published.extend,
            send=sent.extend,
            options=self.options(),
        )

        async def all_published() -> Sequence[Result]:
            return published

        async def all_sent() -> Sequence[Task]:
            return sent

        async def flush() -> None:
            store.flush()

        return StoreBench(store, all_published, all_sent, flush)


class _Counted(Mapping[str, tuple[str, ...]]):
    """Lists of neighbours that count how often one is looked at."""

    def __init__(self, lists: Mapping[str, tuple[str, ...]]) -> None:
        self._lists = lists
        self.looks = 0

    def __getitem__(self, node_id: str) -> tuple[str, ...]:
        neighbours = self._lists[node_id]
        self.looks += max(1, len(neighbours))
        return neighbours

    def __iter__(self) -> Iterator[str]:
        return iter(self._lists)

    def __len__(self) -> int:
        return len(self._lists)


class _CountedGraph:
    """A plan's graph that counts what is looked at."""

    def __init__(self, graph: Any) -> None:
        self.ids, self.roots, self.leaves = graph.ids, graph.roots, graph.leaves
        self.parents, self.dependents = _Counted(graph.parents), _Counted(graph.dependents)

    @property
    def looks(self) -> int:
        return self.parents.looks + self.dependents.looks


class TestTheCostOfAWideWorkflow:
    """A result costs the same among ten nodes or ten thousand."""

    WIDTH = 10_000

    async def walk_through(self, width: int) -> tuple[int, list[int]]:
        """Fan out and in again; give the looks of the first step and of each that follows."""
        names = [f"n{index}" for index in range(width)]
        document = workflow("root", *[node(name, "root") for name in names], node("join", *names))
        walk = Walk(document)
        graph = _CountedGraph(compile_plan(document).graph)
        walk.plan = replace(walk.plan, graph=graph)  # type: ignore[arg-type]
        await walk.begin()
        in_hand = await walk.complete("root")
        first = graph.looks
        costs = []
        while in_hand:
            name = in_hand.pop()
            before = graph.looks
            in_hand += await walk.complete(name)
            costs.append(graph.looks - before)
        assert (await walk.execution()).state == "COMPLETED"
        assert len(walk.started) == width + 2
        return first, costs

    async def test_each_of_ten_thousand_siblings_costs_no_more_than_itself_and_the_next(self) -> None:
        first, costs = await self.walk_through(self.WIDTH)
        assert first <= 10 * self.WIDTH
        # All but the step that first meets the join, the one that frees it, and the join itself.
        assert sorted(costs)[-4] <= 3
        assert sum(costs) <= 10 * self.WIDTH
