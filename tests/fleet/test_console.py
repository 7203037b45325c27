"""What the console reads, through the API of a fleet: graphs and live states."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft.api.schema_console import Topology

if TYPE_CHECKING:
    from tests.fleet.conftest import Fleets

PAIR: list[dict[str, Any]] = [
    {"id": "a", "handler": "echo", "config": {}},
    {"id": "b", "handler": "echo", "dependencies": ["a"], "config": {}},
]


async def test_every_api_shows_the_graph_of_an_execution(fleets: Fleets) -> None:
    async with fleets() as fleet:
        await fleet.start(apis=2)
        execution_id = await fleet.api.start({"nodes": PAIR})
        for member in fleet.having("api"):
            shown = await fleet.api_of(member).get(f"/v1/executions/{execution_id}/topology")
            Topology.model_validate(shown, strict=True)
            assert (shown["nodes"], shown["from"], shown["to"]) == (["a", "b"], [0], [1])
        await fleet.settle(execution_id)
