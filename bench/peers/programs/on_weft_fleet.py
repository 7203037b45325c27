"""weft as a fleet: one orchestrator, one worker and one api on Redis and PostgreSQL, by the default settings.

Executions are started over REST, W3 as batches. W4 has a fleet whose worker has ten slots. The start and
end of a node are those that its worker records. Redis appends to its file every second, PostgreSQL has the
defaults.

What is on disk when a node is said to be done: its row in PostgreSQL, synced (``DURABILITY=strict``, the
default).
"""

from __future__ import annotations

from contextlib import ExitStack
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import aiohttp

from bench import graphs
from bench.fleet import RunningFleet, running
from bench.peers.programs.contract import Reporter, measure
from bench.run import run_loop
from bench.server import run_batches
from weft.core.time import parse_rfc3339

if TYPE_CHECKING:
    from collections.abc import Sequence


class OnWeftFleet:
    def __init__(self) -> None:
        self._open = ExitStack()
        self._fleet: RunningFleet | None = None
        self._slots = 0

    def fleet(self, slots: int = 64) -> RunningFleet:
        """Have a fleet with so many slots, in place of one with another number."""
        if self._fleet is None or self._slots != slots:
            self.close()
            self._fleet = self._open.enter_context(running(WORKER_CONCURRENCY=str(slots)))
            self._slots = slots
        return self._fleet

    def chain(self, length: int) -> Sequence[tuple[float, float]]:
        execution = run_loop(_execute(self.fleet().url, graphs.chain(length)))
        return [
            (parse_rfc3339(node["started_at"]) / 1e6, parse_rfc3339(node["finished_at"]) / 1e6)
            for node in execution["nodes"]
        ]

    def fan(self, width: int) -> None:
        run_loop(_execute(self.fleet().url, graphs.fan(width)))

    def diamonds(self, count: int) -> None:
        run_loop(run_batches(self.fleet().url, graphs.diamond(), sizes=[count]))

    def sleepers(self, count: int, seconds: float, slots: int) -> None:
        run_loop(_execute(self.fleet(slots).url, graphs.sleepers(count, seconds)))

    def close(self) -> None:
        self._open.close()


async def _execute(url: str, document: dict[str, Any]) -> dict[str, Any]:
    async with (
        aiohttp.ClientSession(url) as session,
        session.post("/v1/executions?wait=120", json={"definition": document}) as answer,
    ):
        execution: dict[str, Any] = await answer.json()
    assert execution["state"] == "COMPLETED", execution
    return execution


def main() -> None:
    reporter = Reporter()
    peer = OnWeftFleet()
    try:
        fleet = peer.fleet()
        versions = {
            "weft": version("weft"),
            "redis-server": fleet.redis.version,
            "postgresql": fleet.postgres.version,
        }
        measure(peer, reporter, versions=versions)
    finally:
        peer.close()


if __name__ == "__main__":
    main()
