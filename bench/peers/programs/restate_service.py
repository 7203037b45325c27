"""The handlers that Restate calls: an execution is an invocation of one, a node a ``ctx.run_typed`` in it.

That is the cheapest thing Restate records: an entry of the invocation's journal. Steps that run side by
side are started without waiting for them and gathered, as its page on concurrent tasks shows.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import restate

from bench.peers.programs.contract import Stamps, folder

_stamps = Stamps(str(folder() / "stamps"))
graphs = restate.Service("graphs")


async def _link(number: int) -> int:
    start = time.monotonic()
    _stamps.add(start, time.monotonic())
    return number


async def _echo(number: int) -> int:
    return number


@graphs.handler()
async def chain(ctx: restate.Context, asked: dict[str, Any]) -> int:
    number = 1
    for i in range(asked["length"]):
        number = await ctx.run_typed(f"n{i}", _link, number=number)
    return number


@graphs.handler()
async def diamond(ctx: restate.Context, asked: dict[str, Any]) -> int:
    first = await ctx.run_typed("first", _echo, number=1)
    middle = [ctx.run_typed(f"m{i}", _echo, number=first) for i in range(asked["width"])]
    await restate.gather(*middle)
    last: int = await ctx.run_typed("last", _echo, number=await middle[0])
    return last


@graphs.handler()
async def sleepers(ctx: restate.Context, asked: dict[str, Any]) -> int:
    free = asyncio.Semaphore(asked["slots"])

    async def sleep() -> int:
        async with free:
            await asyncio.sleep(asked["seconds"])
        return 1

    steps = [ctx.run_typed(f"s{i}", sleep) for i in range(asked["count"])]
    await restate.gather(*steps)
    return len(steps)


app = restate.app(services=[graphs])
