"""A loop whose time takes none, and does not run ahead of those who work outside it."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from weft.clock import RealClock
from weft.core.time import MICROSECONDS
from weft.testing.clock_contract import ClockContract
from weft.testing.virtual_time import LoopClock, OrderlyThreads, VirtualLoop

if TYPE_CHECKING:
    from collections.abc import Coroutine

YEAR_SECONDS = 365 * 86_400


def run(main: Coroutine[Any, Any, Any]) -> Any:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)


def now() -> float:
    return asyncio.get_running_loop().time()


async def contract_of_clocks() -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    clock, contract = LoopClock(loop), ClockContract()
    contract.test_the_time_is_in_whole_microseconds_since_1970(clock)
    contract.test_time_never_goes_back(clock)
    await contract.test_after_a_sleep_so_much_time_has_passed(clock)
    await contract.test_no_sleep_is_allowed(clock)


def test_its_clock_keeps_the_contract_of_clocks() -> None:
    run(contract_of_clocks())


def test_its_clock_begins_with_the_real_time_and_goes_by_the_loop() -> None:
    async def main() -> None:
        clock = LoopClock(asyncio.get_running_loop())  # type: ignore[arg-type]
        began = clock.now()
        assert abs(began - RealClock().now()) < 60 * MICROSECONDS
        await clock.sleep(3600)
        assert clock.now() - began == 3600 * MICROSECONDS

    run(main())


def test_a_sleep_takes_exactly_its_time_and_none_of_ours() -> None:
    async def main() -> list[float]:
        times = []
        for seconds in (0.1, 60, 7200.000001, YEAR_SECONDS, 0.000001):
            before = now()
            await asyncio.sleep(seconds)
            times.append(round(now() - before, 6))
        return times

    began = time.monotonic()
    assert run(main()) == [0.1, 60, 7200.000001, YEAR_SECONDS, 0.000001]
    assert time.monotonic() - began < 5


def test_timers_fire_in_the_order_of_their_times() -> None:
    async def main() -> list[int]:
        fired: list[int] = []

        async def fire(seconds: int) -> None:
            await asyncio.sleep(seconds)
            fired.append(seconds)

        await asyncio.gather(*(fire(seconds) for seconds in (3, 500, 1, 40, 2)))
        return fired

    assert run(main()) == [1, 2, 3, 40, 500]


def test_a_timeout_fires_when_its_time_is_over() -> None:
    async def main() -> float:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(90):
                await asyncio.sleep(100)
        return now()

    assert run(main()) == 90


@pytest.mark.parametrize("way", ["executor", "threads"])
def test_no_timer_fires_early_while_a_thread_works(way: str) -> None:
    async def main() -> tuple[str, float]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        work = loop.run_in_executor(None, worked) if way == "executor" else OrderlyThreads(loop).run(worked)
        async with asyncio.timeout(60):
            return await work, now()

    def worked() -> str:
        time.sleep(0.2)
        return "done"

    answer, at = run(main())
    assert answer == "done"
    assert 0.15 < at < 60


def test_a_timeout_comes_in_real_time_while_a_thread_works_and_jumps_go_on_without_it() -> None:
    done = threading.Event()

    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await OrderlyThreads(loop).run(lambda: done.wait(30))
        # Nobody waits for the thread any more.
        await asyncio.sleep(YEAR_SECONDS)

    began = time.monotonic()
    run(main())
    assert 0.2 <= time.monotonic() - began < 5
    done.set()


def test_no_timer_fires_early_while_a_socket_is_waited_for() -> None:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)

    async def main() -> bytes:
        answering = threading.Timer(0.2, theirs.send, (b"answer",))
        answering.start()
        async with asyncio.timeout(60):
            answer = await asyncio.get_running_loop().sock_recv(ours, 100)
        await asyncio.sleep(YEAR_SECONDS)
        return answer

    with ours, theirs:
        assert run(main()) == b"answer"


def test_quick_functions_in_threads_end_in_the_order_in_which_they_were_called() -> None:
    async def main() -> list[int]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        threads = OrderlyThreads(loop)
        ended: list[int] = []
        await asyncio.gather(*(threads.run(partial(ended.append, number)) for number in range(200)))
        assert now() == 0
        threads.close()
        return ended

    assert run(main()) == list(range(200))


def test_functions_that_wait_for_each_other_run_side_by_side() -> None:
    meeting = threading.Barrier(3)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        threads = OrderlyThreads(loop)
        await asyncio.gather(*(threads.run(lambda: meeting.wait(10)) for _ in range(3)))
        threads.close()

    run(main())
