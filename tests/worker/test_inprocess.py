from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest

from weft.clock import RealClock
from weft.core.payload import Json, canonical, decode
from weft.errors import Cancelled, RetryAfter
from weft.handlers.contract import Handler, HandlerContext, HandlerKind
from weft.handlers.outcome import Completed, Failed, Outcome
from weft.handlers.registry import Registry
from weft.worker.call import HandlerCall
from weft.worker.inprocess import InProcess

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable


@pytest.fixture
def registry() -> Registry:
    return Registry()


@pytest.fixture
async def caller(registry: Registry) -> AsyncIterator[InProcess]:
    caller = InProcess(registry, clock=RealClock(), grace_seconds=0.1, max_payload_bytes=10_000)
    yield caller
    await caller.close()


def call_of(handler: str, config: Json, timeout_seconds: float = 30) -> HandlerCall:
    return HandlerCall(
        handler=handler,
        config=canonical(config),
        execution_id="0198",
        node_id="charge",
        generation=1,
        attempt=1,
        timeout_seconds=timeout_seconds,
    )


async def run(
    caller: InProcess, registry: Registry, function: Callable[..., Any], timeout_seconds: float = 30
) -> Outcome:
    registry.add_function("here:function", function)
    return await caller.call(call_of("python", {"function": "here:function"}, timeout_seconds))


def error(outcome: Outcome) -> dict[str, Json]:
    assert isinstance(outcome, Failed), outcome
    return outcome.error


@pytest.mark.parametrize("handler", ["echo", "input", "output"])
async def test_the_output_of_an_instant_handler_is_its_config(caller: InProcess, handler: str) -> None:
    assert await caller.call(call_of(handler, {"a": [1]})) == Completed(b'{"a":[1]}')


async def test_sleep_gives_its_config_back(caller: InProcess) -> None:
    assert await caller.call(call_of("sleep", {"seconds": 0, "a": 1})) == Completed(b'{"a":1,"seconds":0}')


async def test_a_filled_config_that_does_not_fit_fails_for_good(caller: InProcess) -> None:
    refused = error(await caller.call(call_of("sleep", {"seconds": "sk-secret {{"})))
    assert (refused["code"], refused["retryable"]) == ("bad_config", False)
    assert "sk-secret" not in refused["message"]


async def test_coroutines_run_on_the_loop_and_plain_functions_in_threads(
    caller: InProcess, registry: Registry
) -> None:
    async def on_loop() -> bool:
        return threading.current_thread() is threading.main_thread()

    def in_thread() -> bool:
        return threading.current_thread() is threading.main_thread()

    assert await run(caller, registry, on_loop) == Completed(b"true")
    assert await run(caller, registry, in_thread) == Completed(b"false")


async def test_what_a_plain_function_leaves_to_await_is_awaited(
    caller: InProcess, registry: Registry
) -> None:
    assert await run(caller, registry, lambda: asyncio.sleep(0, "awaited")) == Completed(b'"awaited"')


async def test_many_plain_functions_run_at_once(caller: InProcess, registry: Registry) -> None:
    barrier = threading.Barrier(40)
    outcomes = await asyncio.gather(*(run(caller, registry, lambda: barrier.wait() >= 0) for _ in range(40)))
    assert outcomes == [Completed(b"true")] * 40


async def test_user_handlers_get_config_and_context(caller: InProcess, registry: Registry) -> None:
    async def greet(config: Json, context: HandlerContext) -> Json:
        return [config, context.idempotency_key, context.cancelled()]

    registry.add(Handler("greet", HandlerKind.USER, greet))
    outcome = await caller.call(call_of("greet", "hello"))
    assert isinstance(outcome, Completed)
    assert decode(outcome.output) == ["hello", "0198/charge/1", False]


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, StopIteration, asyncio.CancelledError])
async def test_what_a_function_raises_ends_nothing_but_its_attempt(
    caller: InProcess, registry: Registry, kind: type[BaseException]
) -> None:
    def plain() -> None:
        raise kind("bye")

    async def coroutine() -> None:
        raise kind("bye")

    assert error(await run(caller, registry, plain))["details"]["type"] == kind.__name__
    # Python itself turns this one into a RuntimeError where it leaves a coroutine.
    expected = "RuntimeError" if kind is StopIteration else kind.__name__
    assert error(await run(caller, registry, coroutine))["details"]["type"] == expected


async def test_a_floor_for_the_next_attempt_is_handed_on(caller: InProcess, registry: Registry) -> None:
    def later() -> None:
        raise RetryAfter(9)

    outcome = await run(caller, registry, later)
    assert isinstance(outcome, Failed)
    assert outcome.retry_after_seconds == 9


async def test_a_coroutine_is_cancelled_at_its_timeout(caller: InProcess, registry: Registry) -> None:
    stopped: list[bool] = []

    async def linger(context: HandlerContext) -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            stopped.append(context.cancelled())
        return "late"

    outcome = await run(caller, registry, linger, timeout_seconds=0.01)
    assert error(outcome)["code"] == "timeout"
    assert stopped == [True]


async def test_a_coroutine_that_ignores_its_stop_is_left_behind(
    caller: InProcess, registry: Registry
) -> None:
    let_go = asyncio.Event()

    async def stubborn() -> None:
        while not let_go.is_set():
            try:
                await let_go.wait()
            except asyncio.CancelledError:
                continue

    assert error(await run(caller, registry, stubborn, timeout_seconds=0.01))["code"] == "timeout"
    let_go.set()


async def test_a_thread_is_told_and_left_behind_at_its_timeout(caller: InProcess, registry: Registry) -> None:
    seen = threading.Event()

    def heed(context: HandlerContext) -> str:
        while not context.cancelled():
            pass
        seen.set()
        return "late"

    assert error(await run(caller, registry, heed, timeout_seconds=0.01))["code"] == "timeout"
    assert await asyncio.to_thread(seen.wait, 10)


async def test_a_cancelled_call_ends_when_its_coroutine_has_stopped(
    caller: InProcess, registry: Registry
) -> None:
    running = asyncio.Event()
    stopped = asyncio.Event()

    async def linger() -> None:
        running.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    attempt = asyncio.create_task(run(caller, registry, linger))
    await running.wait()
    attempt.cancel()
    with pytest.raises(asyncio.CancelledError):
        await attempt
    assert stopped.is_set()


STUCK = """
import asyncio, time
from weft.clock import RealClock
from weft.handlers.registry import Registry
from weft.worker.call import HandlerCall
from weft.worker.inprocess import InProcess

async def main():
    registry = Registry()
    registry.add_function("here:stuck", lambda: time.sleep(600))
    caller = InProcess(registry, clock=RealClock(), grace_seconds=0.1, max_payload_bytes=100)
    call = HandlerCall(handler="python", config=b'{"function": "here:stuck"}', execution_id="e",
                       node_id="n", generation=1, attempt=1, timeout_seconds=0.01)
    print(await caller.call(call))

asyncio.run(main())
"""


def test_a_stuck_thread_does_not_keep_the_interpreter_from_its_exit() -> None:
    ended = subprocess.run([sys.executable, "-c", STUCK], capture_output=True, text=True, timeout=30)
    assert "timeout" in ended.stdout
    assert ended.returncode == 0


async def test_the_error_of_a_thread_that_is_left_behind_says_where_it_stood(
    caller: InProcess, registry: Registry
) -> None:
    begun, let_go = threading.Event(), threading.Event()

    def stuck() -> None:
        begun.set()
        let_go.wait()

    running = asyncio.create_task(run(caller, registry, stuck, timeout_seconds=1))
    await asyncio.to_thread(begun.wait)
    trace = error(await running)["details"]["traceback"]
    assert "    let_go.wait()" in trace
    assert trace.endswith("It stood here when its time was over.")
    let_go.set()


async def test_a_heartbeat_ends_a_thread_that_was_asked_to_stop(
    caller: InProcess, registry: Registry
) -> None:
    ended = threading.Event()

    def beats(context: HandlerContext) -> None:
        context.heartbeat()
        try:
            while True:
                context.heartbeat()
        except Cancelled:
            ended.set()
            raise

    assert error(await run(caller, registry, beats, timeout_seconds=0.05))["code"] == "timeout"
    assert await asyncio.to_thread(ended.wait, 30)
