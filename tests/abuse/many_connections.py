"""Many connections of one attacker, in a process of its own: on the bystander's loop they delay its probes.

``keep_open`` starts the process and returns when it has ended.
"""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import suppress

from tests.faults.raw import Connection
from tests.operation.serving import ROOT

# They come from another address than the bystander's.
ADDRESS = "127.0.0.2"
_AGAIN_SECONDS = 1.0


async def keep_open(
    url: str,
    number: int,
    first: bytes = b"",
    drip: bytes = b"",
    *,
    seconds: float = 4.0,
    apart_seconds: float = 0.006,
) -> int:
    """Keep so many connections open for a while: each sends something first and then, perhaps, drips.

    One that the server closes is opened again. They do not come all at once: how many calls a second a server
    answers is another question. Returns how many were open at the end.
    """
    given = [url, number, first.decode(), drip.decode(), seconds, apart_seconds]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.abuse.many_connections", json.dumps(given)),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    assert process.returncode == 0
    return int(output)


async def _keep_open(
    url: str, number: int, first: str, drip: str, seconds: float, apart_seconds: float
) -> int:
    opened: set[int] = set()

    async def one(index: int) -> None:
        await asyncio.sleep(index * apart_seconds)
        while True:
            with suppress(OSError):
                async with Connection.open(url, address=ADDRESS) as connection:
                    await connection.send(first.encode())
                    opened.add(index)
                    closed = asyncio.create_task(connection.closed())
                    try:
                        while not closed.done():
                            await asyncio.wait((closed,), timeout=0.5)
                            if drip and not closed.done():
                                await connection.send(drip.encode())
                    finally:
                        closed.cancel()
                        opened.discard(index)
            await asyncio.sleep(_AGAIN_SECONDS)

    tasks = [asyncio.create_task(one(index)) for index in range(number)]
    await asyncio.sleep(seconds)
    left = len(opened)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return left


if __name__ == "__main__":
    print(asyncio.run(_keep_open(*json.loads(sys.argv[1]))))
