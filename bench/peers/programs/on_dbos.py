"""DBOS, on PostgreSQL or on SQLite: a library within the program.

A node is a step, the cheapest thing that DBOS records: one row, written before the step's result is handed
on. An execution is a workflow. W1 is a workflow of plain functions, one step after the other, as in its
first example. Where steps run beside each other the workflow is a coroutine and gathers them; W3 starts
such workflows without waiting for them. Configuration is the default one with the URL of the system
database (a pool of 20 connections; SQLite as DBOS opens it). Logs below warnings are not written.

W4 is steps of one workflow behind a semaphore of ten, which is the better way for it. Its own way, ten
slots of a queue (``worker_concurrency``) that looks once a second, with a workflow for each node, is said
in a note.

What is on disk when a step is said to be done: its row, synced. PostgreSQL has the defaults for that,
SQLite too (a rollback journal, ``synchronous=FULL``).
"""

from __future__ import annotations

import asyncio
import os
import time
from importlib.metadata import version
from typing import TYPE_CHECKING

from dbos import DBOS

from bench.peers.programs.contract import Reporter, folder, measure

if TYPE_CHECKING:
    from collections.abc import Sequence

_times: list[tuple[float, float]] = []


@DBOS.step()
def link(number: int) -> int:
    start = time.monotonic()
    _times.append((start, time.monotonic()))
    return number


@DBOS.step()
async def echo(number: int) -> int:
    return number


@DBOS.step()
async def sleep(seconds: float) -> None:
    await asyncio.sleep(seconds)


@DBOS.workflow()
def run_chain(length: int) -> int:
    number = 1
    for _ in range(length):
        number = link(number)
    return number


@DBOS.workflow()
async def run_diamond(width: int) -> int:
    first = await echo(1)
    middle = await asyncio.gather(*(echo(first) for _ in range(width)))
    last: int = await echo(middle[0])
    return last


@DBOS.workflow()
async def run_sleepers(count: int, seconds: float, slots: int) -> None:
    free = asyncio.Semaphore(slots)

    async def run() -> None:
        async with free:
            await sleep(seconds)

    await asyncio.gather(*(run() for _ in range(count)))


@DBOS.workflow()
async def run_sleeper(seconds: float) -> None:
    await sleep(seconds)


class OnDBOS:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def chain(self, length: int) -> Sequence[tuple[float, float]]:
        _times.clear()
        run_chain(length)
        return list(_times)

    def fan(self, width: int) -> None:
        self._loop.run_until_complete(run_diamond(width))

    def diamonds(self, count: int) -> None:
        async def run() -> None:
            handles = [await DBOS.start_workflow_async(run_diamond, 3) for _ in range(count)]
            for handle in handles:
                await handle.get_result()

        self._loop.run_until_complete(run())

    def sleepers(self, count: int, seconds: float, slots: int) -> None:
        self._loop.run_until_complete(run_sleepers(count, seconds, slots))

    def sleepers_in_a_queue(self, count: int, seconds: float) -> float:
        async def run() -> None:
            handles = [await DBOS.enqueue_workflow_async("slots", run_sleeper, seconds) for _ in range(count)]
            for handle in handles:
                await handle.get_result()

        begun = time.monotonic()
        self._loop.run_until_complete(run())
        return time.monotonic() - begun


def main() -> None:
    reporter = Reporter()
    url = os.environ.get("PEER_POSTGRES_URL") or f"sqlite:///{folder() / 'dbos.sqlite'}"
    DBOS(config={"name": "peer", "system_database_url": url, "log_level": "WARNING"})
    DBOS.launch()
    loop = asyncio.new_event_loop()
    peer = OnDBOS(loop)
    measure(peer, reporter, versions={name: version(name) for name in ("dbos", "sqlalchemy")})
    DBOS.register_queue("slots", worker_concurrency=10)
    count = 40
    seconds = peer.sleepers_in_a_queue(count, 0.01)
    share = count / 10 * 0.01 / seconds
    reporter.say(note=f"W4 in a queue with ten slots that looks once a second: {share:.3f} of the ideal")
    DBOS.destroy()


if __name__ == "__main__":
    main()
