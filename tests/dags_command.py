"""``./dev dags FOLDER``: every DAG of a folder through a real server, checked node by node and edge by edge.

Each file (``*/*.json`` or ``.json.gz``; ``tests/dags/README.md`` has the form) runs twice: the graph alone,
and with its own trigger rules among failures drawn from a seed. With ``--fleet`` on two orchestrators and two
workers, with servers of their own.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.operation.serving import serving
from tests.rest_replay import replay_over_rest
from tests.walks.replay import read, structural, with_rules

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.fleet.harness import RunningFleet
    from tests.operation.serving import Api
    from tests.walks.replay import Replay

SLOTS = 16
# So many run side by side: enough to meet each other, few enough for each to be quick.
AT_ONCE = 4
HANDLER = {"WEFT_IMPORTS": "tests.walks.replay_handler"}


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    file: str
    options: str
    replay: Replay
    name: str


def runs_of(path: Path, folder: Path, *, seed: int) -> list[Run]:
    dag = read(str(path.resolve()))
    file = str(path.relative_to(folder))
    return [
        Run(file, "graph", structural(dag), f"{dag['name']}-graph"),
        Run(file, f"rules, seed {seed}", with_rules(dag, seed=seed), f"{dag['name']}-rules"),
    ]


async def run_all(
    runs: list[Run], api: Api, *, slots: int, at_once: int, says: bool = False
) -> dict[Run, list[str]]:
    """Return what is wrong, by run, of those with which something is."""
    failures: dict[Run, list[str]] = {}
    waiting = list(reversed(runs))
    done = 0

    async def work() -> None:
        nonlocal done
        while waiting:
            run = waiting.pop()
            try:
                wrong = await replay_over_rest(run.replay, run.name, api, slots=slots)
            except Exception as error:
                wrong = [f"{type(error).__name__}: {error}"]
            done += 1
            if wrong:
                failures[run] = wrong
            if says:
                verdict = f"{len(wrong)} wrong" if wrong else "ok"
                nodes = f"{len(run.replay.graph):>5} nodes"
                print(f"{done:>4}/{len(runs)}  {nodes}  {run.file} ({run.options})  {verdict}")

    await asyncio.gather(*(work() for _ in range(at_once)))
    return failures


@asynccontextmanager
async def one_server(folder: Path) -> AsyncIterator[Api]:
    async with serving(folder / "data", "--concurrency", str(SLOTS), settings=HANDLER) as (_, api):
        yield api


@asynccontextmanager
async def a_fleet(folder: Path) -> AsyncIterator[Api]:
    # Only here: the other way needs none of these servers.
    from tests.fleet.harness import RunningFleet
    from tests.support.servers.postgres import PostgresServer
    from tests.support.servers.redis import RedisServer

    from weft.journal.postgres.schema import migrate

    with RedisServer() as redis, PostgresServer() as postgres:
        database_url = postgres.create_database("weft")
        await migrate(database_url)
        async with RunningFleet(redis.url, database_url, folder) as fleet:
            await fleet_members(fleet)
            yield fleet.api


async def fleet_members(fleet: RunningFleet) -> None:
    """Start two orchestrators, and two workers that have the slots between them."""
    flags = ("--concurrency", str(SLOTS // 2))
    # On a busy machine nothing is to be taken for lost: every attempt is counted.
    settings: dict[str, Any] = {**HANDLER, "WEFT_WORKER_HEARTBEAT_TIMEOUT": "15"}
    await fleet.start(*flags, orchestrators=2, workers=2, **settings)


async def run_on(runs: list[Run], *, fleet: bool) -> dict[Run, list[str]]:
    with tempfile.TemporaryDirectory(prefix="weft-dags-") as name:
        async with a_fleet(Path(name)) if fleet else one_server(Path(name)) as api:
            return await run_all(runs, api, slots=SLOTS, at_once=AT_ONCE, says=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev dags", description=(__doc__ or "").partition("\n\n")[2])
    parser.add_argument("folder", type=Path, help="a folder of folders of DAGs, such as tests/dags")
    parser.add_argument("--seed", type=int, default=1, help="of the failures (1)")
    parser.add_argument("--fleet", action="store_true", help="on two orchestrators and two workers")
    given = parser.parse_args()
    paths = sorted(given.folder.glob("*/*.json*"))
    if not paths:
        print(f"weft: there is no */*.json in {given.folder}", file=sys.stderr)
        return 2
    runs = [run for path in paths for run in runs_of(path, given.folder, seed=given.seed)]
    failures = asyncio.run(run_on(runs, fleet=given.fleet))
    nodes = sum(len(run.replay.graph) for run in runs)
    edges = sum(len(node.parents) for run in runs for node in run.replay.graph)
    print(f"\n{len(paths)} DAGs, {len(runs)} executions, {nodes:,} nodes, {edges:,} edges: ", end="")
    print(f"{len(failures)} failed" if failures else "all as drawn")
    for run, wrong in failures.items():
        print(f"\n{run.file} ({run.options})")
        for sentence in wrong[:10]:
            print(f"  {sentence}")
        if len(wrong) > 10:
            print(f"  and {len(wrong) - 10} more")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
