"""``python -m tests.faults.dying FOLDER KILLS SEED``: writers on one journal, killed one after the other.

Each writer is forked from this process, which has everything loaded and no thread: so a kill costs a few
milliseconds, and two hundred of them can be had in a test. After each kill this process opens the journal,
and checks that all is there that was acknowledged, and that everything that is there fits together.
"""

from __future__ import annotations

import asyncio
import os
import random
import select
import signal
import sys
import time
from itertools import count
from pathlib import Path
from typing import NoReturn

from weft.clock import RealClock
from weft.journal.sqlite.journal import SqliteJournal
from weft.testing.recording import Recording, assert_consistent, node

NODES = (node("a"), node("b", "a"), node("c", "a"))


def open_journal(folder: Path) -> SqliteJournal:
    numbers = count()
    return SqliteJournal(folder, now=RealClock().now, new_id=lambda: f"id-{next(numbers)}")


async def write(folder: Path, writer: int, said: int) -> NoReturn:
    """Record executions for ever, several at a time, and say after each commit how far they are."""
    journal = open_journal(folder)
    await journal.open()

    async def one(line: int) -> None:
        for number in count():
            run = await Recording.start(journal, *NODES, execution_id=f"w{writer}-{line}-{number}")
            for name in "abc":
                recorded_event = await run.completed(name)
                assert recorded_event.execution is not None
                os.write(said, f"{run.id} {recorded_event.execution.seq}\n".encode())

    await asyncio.gather(*(one(line) for line in range(4)))
    raise AssertionError("unreachable")


def die(folder: Path, writer: int, rng: random.Random) -> dict[str, int]:
    """Let a writer begin, kill it, and give what it had said by then."""
    heard, said = os.pipe()
    pid = os.fork()
    if pid == 0:
        asyncio.run(write(folder, writer, said))
    os.close(said)
    text = b""
    # From its first commit on, at any moment of those that follow.
    select.select([heard], [], [], 30)
    time.sleep(rng.random() * 0.02)
    os.kill(pid, signal.SIGKILL)
    while piece := os.read(heard, 65536):
        text += piece
    os.close(heard)
    os.waitpid(pid, 0)
    told = [line.split() for line in text.decode().splitlines()]
    return {execution_id: int(seq) for execution_id, seq in told}


async def look(folder: Path, acknowledged: dict[str, int]) -> int:
    """Check the executions of the last writer; give how many there are."""
    journal = open_journal(folder)
    await journal.open()
    try:
        for execution_id, seq in acknowledged.items():
            row = await journal.execution(execution_id)
            assert row is not None, f"{execution_id} was acknowledged and is gone"
            assert row.seq >= seq, f"{execution_id}: {row.seq} is before {seq}"
        rows = await journal.executions(limit=500)
        newest = {execution_id.partition("-")[0] for execution_id in acknowledged}
        for row in rows:
            if row.id.partition("-")[0] in newest:
                await assert_consistent(journal, row.id)
        return len(rows)
    finally:
        await journal.close()


def main(folder: Path, kills: int, seed: int) -> None:
    rng = random.Random(seed)
    for writer in range(kills):
        acknowledged = die(folder, writer, rng)
        assert acknowledged, "it was killed before it had done anything"
        asyncio.run(look(folder, acknowledged))
    print(kills)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
