"""Threads for large documents: callers have them in turn."""

from __future__ import annotations

import asyncio
from threading import Event

import pytest

from weft.api.threads import THREADS, FairThreads

PATIENCE_SECONDS = 10.0


class Work:
    """Calls that run until the test ends them, with the order in which they began."""

    def __init__(self, threads: FairThreads) -> None:
        self.threads = threads
        self.began: list[str] = []
        self.gates: list[Event] = []

    def start(self, caller: str) -> tuple[asyncio.Task[str], Event]:
        gate = Event()
        self.gates.append(gate)

        def call() -> str:
            self.began.append(caller)
            assert gate.wait(PATIENCE_SECONDS)
            return caller

        return asyncio.create_task(self.threads.run(caller, call)), gate

    async def until_began(self, count: int) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while len(self.began) < count:  # noqa: ASYNC110 - threads set no event of the loop
                await asyncio.sleep(0.001)


@pytest.fixture
def work() -> Work:
    return Work(FairThreads())


async def test_one_caller_has_half_of_the_threads_and_another_starts_at_once(work: Work) -> None:
    greedy = [work.start("greedy") for _ in range(20)]
    await work.until_began(THREADS // 2)
    other, gate = work.start("other")
    await work.until_began(THREADS // 2 + 1)
    assert work.began == ["greedy"] * (THREADS // 2) + ["other"]
    gate.set()
    assert await other == "other"
    for _, gate in greedy:
        gate.set()
    assert await asyncio.gather(*(task for task, _ in greedy)) == ["greedy"] * 20


async def test_callers_that_wait_have_their_turns(work: Work) -> None:
    callers = ["a"] * 6 + ["b"] * 6 + ["c"] * 2
    tasks = [work.start(caller) for caller in callers]
    await work.until_began(THREADS)
    assert sorted(work.began) == ["a", "a", "b", "b"]
    # As a thread comes free, the caller that waits for its first comes before the others' third.
    tasks[0][1].set()
    await work.until_began(THREADS + 1)
    assert work.began[-1] == "c"
    for _, gate in tasks:
        gate.set()
    assert await asyncio.gather(*(task for task, _ in tasks)) == callers


async def test_a_call_that_nobody_awaits_keeps_its_thread_to_its_end(work: Work) -> None:
    first = [work.start("a") for _ in range(THREADS // 2)]
    await work.until_began(THREADS // 2)
    waiting, _ = work.start("a")
    given_up, _ = work.start("a")
    await asyncio.sleep(0)
    for task in (first[0][0], given_up):
        task.cancel()
    await asyncio.gather(first[0][0], given_up, return_exceptions=True)
    assert len(work.began) == THREADS // 2
    for gate in work.gates:
        gate.set()
    assert await waiting == "a"
    assert await work.threads.run("a", lambda: 1) == 1
    assert len(work.began) == THREADS // 2 + 1


async def test_what_a_call_raises_is_raised_and_its_thread_is_free_again(work: Work) -> None:
    for _ in range(2 * THREADS):
        with pytest.raises(ZeroDivisionError):
            await work.threads.run("a", lambda: 1 // 0)
