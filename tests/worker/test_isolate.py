from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import uvloop

import weft
from weft.core.payload import Json, canonical, decode
from weft.handlers.outcome import MAX_MESSAGE_BYTES, Completed, Failed, Outcome
from weft.handlers.user_traceback import MAX_TRACEBACK_BYTES
from weft.handlers.usercode import UserCode, beside
from weft.worker.call import AttemptLostError, HandlerCall
from weft.worker.isolate import ChildPool

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

HERE = Path(__file__).parent
LETHAL = UserCode(modules=("lethal",), folders=(str(HERE),), allow=("lethal:*",))
# Longer than any test: whoever heeds a stop is never killed, however slow the machine is.
PATIENT_SECONDS = 60.0


def python(function: str, /, timeout_seconds: float = 30, alone: bool = False, **args: Json) -> HandlerCall:
    return user_handler("python", {"function": f"lethal:{function}", "args": args}, timeout_seconds, alone)


def user_handler(name: str, config: Json, timeout_seconds: float = 30, alone: bool = False) -> HandlerCall:
    return HandlerCall(
        handler=name,
        config=canonical(config),
        execution_id="0198",
        node_id="charge",
        generation=2,
        attempt=5,
        timeout_seconds=timeout_seconds,
        alone=alone,
    )


def pool_of(processes: int, code: UserCode = LETHAL, *, grace_seconds: float = PATIENT_SECONDS) -> ChildPool:
    return ChildPool(processes, code=code, grace_seconds=grace_seconds, max_payload_bytes=1024 * 1024)


@pytest.fixture
async def pool() -> AsyncIterator[ChildPool]:
    async with pool_of(1) as pool:
        yield pool


@pytest.fixture
async def strict_pool() -> AsyncIterator[ChildPool]:
    async with pool_of(1, grace_seconds=0.1) as pool:
        yield pool


class Beacon:
    """Where functions in child processes say that they have come so far."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._words: asyncio.Queue[str] = asyncio.Queue()
        self._closed: asyncio.Queue[None] = asyncio.Queue()

    async def serve(self) -> asyncio.Server:
        return await asyncio.start_unix_server(self._listen, self.path)

    async def heard(self, *words: str) -> None:
        for word in words:
            assert await self.word() == word

    async def word(self) -> str:
        return await self._words.get()

    async def hung_up(self) -> None:
        """Return when every process that holds some connection is gone."""
        await self._closed.get()

    async def _listen(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._words.put_nowait((await reader.readline()).decode().strip())
        with contextlib.suppress(ConnectionError):
            await reader.read()
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
        self._closed.put_nowait(None)


@pytest.fixture
async def beacon(tmp_path: Path) -> AsyncIterator[Beacon]:
    beacon = Beacon(str(tmp_path / "beacon"))
    server = await beacon.serve()
    yield beacon
    server.close()


def value(outcome: Outcome) -> Json:
    assert isinstance(outcome, Completed), outcome
    return decode(outcome.output)


def error(outcome: Outcome) -> dict[str, Json]:
    assert isinstance(outcome, Failed), outcome
    return outcome.error


async def loss(attempt: asyncio.Task[Outcome]) -> AttemptLostError:
    with pytest.raises(AttemptLostError) as caught:
        await attempt
    return caught.value


def exists(pid: int) -> bool:
    """A zombie exists, too."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


# Calls that go well.


async def test_functions_and_handlers_of_both_kinds_give_their_outputs(pool: ChildPool) -> None:
    assert value(await pool.call(python("add", a=2, b=3))) == 5
    assert value(await pool.call(python("meet", count=1))) in pool.pids()
    assert value(await pool.call(user_handler("greet", {"name": "you"}))) == "hello you, attempt 5"


async def test_a_plain_function_may_run_a_loop_of_its_own(pool: ChildPool) -> None:
    assert value(await pool.call(python("own_loop"))) == 42


async def test_what_a_plain_function_leaves_to_await_is_awaited(pool: ChildPool) -> None:
    assert value(await pool.call(python("hidden_coroutine"))) == "awaited"


async def test_the_context_tells_of_the_attempt(pool: ChildPool) -> None:
    shown = value(await pool.call(python("show")))
    assert shown == ["0198", "charge", 2, 5, "0198/charge/2", False, True]


async def test_large_configs_and_outputs_pass(pool: ChildPool) -> None:
    half = "x" * 400_000
    assert value(await pool.call(python("add", a=half, b=half))) == half + half


async def test_coroutines_share_a_child(pool: ChildPool) -> None:
    # The first goes alone until its child has said what it is; it returns only once the others are there.
    pids = await asyncio.gather(*(pool.call(python("meet", count=20)) for _ in range(20)))
    assert {value(pid) for pid in pids} == set(pool.pids())
    assert len(pool.pids()) == 1


async def test_plain_functions_have_a_child_each(beacon: Beacon) -> None:
    async with pool_of(2) as pool:
        first = asyncio.create_task(pool.call(python("heed", beacon=beacon.path)))
        second = asyncio.create_task(pool.call(python("heed", beacon=beacon.path)))
        third = asyncio.create_task(pool.call(python("process_id")))
        await beacon.heard("running", "running")
        assert len(pool.pids()) == 2
        assert not third.done()
        first.cancel()
        assert value(await third) in pool.pids()
        second.cancel()
        await asyncio.wait((first, second))


async def test_lingering_coroutines_do_not_keep_a_plain_function_waiting(
    pool: ChildPool, beacon: Beacon
) -> None:
    lingering = asyncio.create_task(pool.call(python("linger", beacon=beacon.path)))
    await beacon.heard("lingering")
    assert value(await pool.call(python("add", a=1, b=1))) == 2
    assert value(await pool.call(python("meet", count=1, alone=True))) is not None
    lingering.cancel()
    await asyncio.wait((lingering,))


async def test_a_call_that_runs_alone_shares_with_nobody(pool: ChildPool, beacon: Beacon) -> None:
    await pool.call(python("meet", count=1))
    lingering = asyncio.create_task(pool.call(python("linger", beacon=beacon.path)))
    await beacon.heard("lingering")
    (shared,) = pool.pids()
    assert value(await pool.call(python("die_among_others", is_lethal=False))) == "alive"
    with pytest.raises(AttemptLostError) as caught:
        await pool.call(python("die_among_others", is_lethal=True, alone=True))
    assert caught.value.charged
    assert shared in pool.pids()
    lingering.cancel()
    await asyncio.wait((lingering,))


async def test_what_a_function_prints_goes_to_stderr(capfd: pytest.CaptureFixture[str]) -> None:
    async with pool_of(1) as pool:
        await pool.call(python("shout", text="printed by a function"))
    captured = capfd.readouterr()
    assert "printed by a function" in captured.err
    assert captured.out == ""


async def test_signals_for_the_parent_leave_a_child_alone(pool: ChildPool) -> None:
    assert value(await pool.call(python("interrupt_self"))) == "alive"


async def test_a_process_forked_by_a_function_can_be_terminated(pool: ChildPool) -> None:
    assert value(await pool.call(python("terminate_fork"))) == -signal.SIGTERM


# What may be called.


@pytest.mark.parametrize("reference", ["os:system", "builtins:exec", "lethal:os", "lethal:_nested", "lethal"])
async def test_a_function_that_is_not_allowed_is_refused(pool: ChildPool, reference: str) -> None:
    refused = error(await pool.call(user_handler("python", {"function": reference})))
    assert refused["code"] == "function_not_allowed"
    assert refused["retryable"] is False


async def test_a_config_that_does_not_fit_fails_for_good(pool: ChildPool) -> None:
    for call in (
        user_handler("python", {}),
        user_handler("python", {"function": "lethal:add", "args": [1]}),
        python("add", a=1),
        user_handler("greet", {"name": 7}),
    ):
        refused = error(await pool.call(call))
        assert (refused["code"], refused["retryable"]) == ("bad_config", False)


async def test_an_unknown_handler_is_named_with_those_there_are(pool: ChildPool) -> None:
    unknown = error(await pool.call(user_handler("ecko", {})))
    assert "no handler 'ecko'" in unknown["message"]
    assert "greet" in unknown["message"]


async def test_a_module_that_cannot_be_loaded_is_named(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("import missing_dependency")
    async with pool_of(1, UserCode(modules=("broken",), folders=(str(tmp_path),))) as pool:
        unknown = error(await pool.call(user_handler("from_broken", {})))
    assert "missing_dependency" in unknown["message"]


async def test_functions_beside_a_definition_and_of_a_file_may_be_called(tmp_path: Path) -> None:
    (tmp_path / "flow.py").write_text("import helper\ndef main(): return helper.answer()\n")
    (tmp_path / "helper.py").write_text("def answer(): return 42\n")
    async with pool_of(1, beside(tmp_path / "flow.py")) as pool:
        assert value(await pool.call(user_handler("python", {"function": "flow:main"}))) == 42
        assert value(await pool.call(user_handler("python", {"function": "helper:answer"}))) == 42


# Death.


@pytest.mark.parametrize("function", ["die", "segfault", "run_out_of_memory", "babble"])
async def test_a_call_that_kills_its_child_is_lost_and_charged(pool: ChildPool, function: str) -> None:
    with pytest.raises(AttemptLostError) as caught:
        await pool.call(python(function))
    assert caught.value.charged
    assert value(await pool.call(python("add", a=1, b=1))) == 2


async def test_a_child_that_hangs_up_is_killed(pool: ChildPool) -> None:
    with pytest.raises(AttemptLostError) as caught:
        await pool.call(python("hang_up"))
    assert caught.value.charged
    assert pool.pids() == []


async def test_good_calls_are_not_disturbed_by_lethal_ones() -> None:
    async with pool_of(2) as pool:
        good = [asyncio.create_task(pool.call(python("add", a=n, b=1))) for n in range(100)]
        lethal = [asyncio.create_task(pool.call(python(f))) for f in ("die", "segfault", "run_out_of_memory")]
        for attempt in lethal:
            assert (await loss(attempt)).charged
        assert [value(outcome) for outcome in await asyncio.gather(*good)] == list(range(1, 101))


async def test_neighbours_of_a_death_are_not_charged_and_alone_the_guilty_one_is(
    pool: ChildPool, beacon: Beacon
) -> None:
    await pool.call(python("die_among_others", is_lethal=False))
    neighbours = [
        asyncio.create_task(pool.call(python("linger", beacon=beacon.path, timeout_seconds=30)))
        for _ in range(3)
    ]
    await beacon.heard("lingering", "lingering", "lingering")
    guilty = asyncio.create_task(pool.call(python("die_among_others", is_lethal=True)))
    for attempt in (*neighbours, guilty):
        assert not (await loss(attempt)).charged
    with pytest.raises(AttemptLostError) as caught:
        await pool.call(python("die_among_others", is_lethal=True, alone=True))
    assert caught.value.charged


async def test_a_breakpoint_says_what_to_do_where_there_is_no_terminal(pool: ChildPool) -> None:
    found = error(await pool.call(python("stops_at_breakpoint")))
    assert (found["code"], found["retryable"]) == ("handler_error", False)
    assert "breakpoint() needs a terminal" in found["message"]
    assert "weft.run()" in found["message"]
    assert "    breakpoint()" in found["details"]["traceback"]


async def test_a_debugger_of_ones_own_is_left_alone() -> None:
    environment = {**os.environ, "PYTHONBREAKPOINT": "0"}
    async with ChildPool(
        1, code=LETHAL, grace_seconds=5, max_payload_bytes=1024, environment=environment
    ) as pool:
        assert value(await pool.call(python("stops_at_breakpoint"))) == 3


# Time.


async def test_a_function_that_heeds_its_stop_times_out_and_keeps_its_child(
    pool: ChildPool, beacon: Beacon
) -> None:
    pid = value(await pool.call(python("process_id")))
    outcome = await pool.call(python("heed", beacon=beacon.path, timeout_seconds=0.05))
    found = error(outcome)
    assert (found["code"], found["message"], found["retryable"]) == (
        "timeout",
        "no result within 0.05 s",
        True,
    )
    assert value(await pool.call(python("process_id"))) == pid


async def test_a_heartbeat_ends_a_function_that_was_asked_to_stop(pool: ChildPool, beacon: Beacon) -> None:
    pid = value(await pool.call(python("process_id")))
    outcome = await pool.call(python("beats", beacon=beacon.path, timeout_seconds=0.05))
    assert error(outcome)["code"] == "timeout"
    # It ended where the heartbeat raised, and its process was not killed.
    assert "context.heartbeat()" in error(outcome)["details"]["traceback"]
    assert value(await pool.call(python("process_id"))) == pid
    attempt = asyncio.create_task(pool.call(python("beats", beacon=beacon.path)))
    await beacon.heard("running", "running")
    attempt.cancel()
    await asyncio.wait((attempt,))
    assert value(await pool.call(python("process_id"))) == pid


async def test_a_coroutine_is_cancelled_at_its_timeout_and_neighbours_go_on(
    pool: ChildPool, beacon: Beacon
) -> None:
    neighbour = asyncio.create_task(pool.call(python("linger", beacon=beacon.path)))
    await beacon.heard("lingering")
    outcome = await pool.call(python("linger", beacon=beacon.path, timeout_seconds=0.05))
    assert error(outcome)["code"] == "timeout"
    # Where it waited when its time was over.
    assert "in linger" in error(outcome)["details"]["traceback"]
    await beacon.heard("lingering", "stopped")
    assert not neighbour.done()
    neighbour.cancel()
    await asyncio.wait((neighbour,))


async def test_a_function_that_swallows_everything_is_killed_after_the_grace_time(
    strict_pool: ChildPool, beacon: Beacon
) -> None:
    pid = value(await strict_pool.call(python("process_id")))
    outcome = await strict_pool.call(python("swallow_everything", beacon=beacon.path, timeout_seconds=1))
    assert error(outcome)["code"] == "timeout"
    # All that is left of it is where it stood.
    trace = error(outcome)["details"]["traceback"]
    assert trace.startswith("Traceback (most recent call last):\n")
    assert "in swallow_everything\n" in trace
    assert trace.endswith("\nIt stood here when its time was over.")
    # No frame of weft's own: the path of a checkout may hold the name.
    assert f"{Path(weft.__file__).parent}{os.sep}" not in trace
    assert not exists(pid)
    assert value(await strict_pool.call(python("add", a=1, b=1))) == 2


async def test_a_kill_reaches_the_programs_that_a_function_started(
    strict_pool: ChildPool, beacon: Beacon
) -> None:
    outcome = await strict_pool.call(python("start_program", beacon=beacon.path, timeout_seconds=0.05))
    assert error(outcome)["code"] == "timeout"
    await beacon.hung_up()


async def test_a_coroutine_that_ignores_its_stop_is_charged_and_its_neighbours_are_not(
    strict_pool: ChildPool, beacon: Beacon
) -> None:
    await strict_pool.call(python("ignore_stop"))
    neighbours = [
        asyncio.create_task(strict_pool.call(python("linger", beacon=beacon.path))) for _ in range(2)
    ]
    await beacon.heard("lingering", "lingering")
    guilty = asyncio.create_task(
        strict_pool.call(python("ignore_stop", beacon=beacon.path, timeout_seconds=0.05))
    )
    assert error(await guilty)["code"] == "timeout"
    for attempt in neighbours:
        assert not (await loss(attempt)).charged


async def test_a_blocked_loop_charges_nobody_until_its_calls_run_alone(
    strict_pool: ChildPool, beacon: Beacon
) -> None:
    await strict_pool.call(python("block_loop"))
    patient = asyncio.create_task(strict_pool.call(python("linger", beacon=beacon.path)))
    await beacon.heard("lingering")
    guilty = asyncio.create_task(strict_pool.call(python("block_loop", beacon=beacon.path)))
    await beacon.heard("blocking")
    # The loop is blocked before this one starts: its timeout passes, and it is as innocent as the other.
    hurried = asyncio.create_task(
        strict_pool.call(python("linger", beacon=beacon.path, timeout_seconds=0.05))
    )
    for attempt in (patient, hurried, guilty):
        assert not (await loss(attempt)).charged
    again = python("block_loop", beacon=beacon.path, timeout_seconds=1, alone=True)
    blocked = error(await strict_pool.call(again))
    assert blocked["code"] == "timeout"
    assert "    time.sleep(600)" in blocked["details"]["traceback"]
    assert value(await strict_pool.call(python("meet", count=1, alone=True))) is not None


# Cancellation.


async def test_a_cancelled_call_ends_when_its_coroutine_has_stopped(pool: ChildPool, beacon: Beacon) -> None:
    attempt = asyncio.create_task(pool.call(python("linger", beacon=beacon.path)))
    await beacon.heard("lingering")
    pids = pool.pids()
    attempt.cancel()
    with pytest.raises(asyncio.CancelledError):
        await attempt
    await beacon.heard("stopped")
    assert pool.pids() == pids


async def test_a_cancelled_call_that_does_not_stop_is_killed(strict_pool: ChildPool, beacon: Beacon) -> None:
    attempt = asyncio.create_task(strict_pool.call(python("swallow_everything", beacon=beacon.path)))
    await beacon.heard("swallowing")
    (pid,) = strict_pool.pids()
    attempt.cancel()
    with pytest.raises(asyncio.CancelledError):
        await attempt
    assert not exists(pid)


async def test_a_call_that_is_cancelled_twice_does_not_wait_and_is_killed_all_the_same(
    strict_pool: ChildPool, beacon: Beacon
) -> None:
    attempt = asyncio.create_task(strict_pool.call(python("swallow_everything", beacon=beacon.path)))
    await beacon.heard("swallowing")
    (pid,) = strict_pool.pids()
    attempt.cancel()
    await asyncio.wait((attempt,), timeout=0)
    attempt.cancel()
    with pytest.raises(asyncio.CancelledError):
        await attempt
    assert exists(pid)
    await beacon.hung_up()


async def test_a_call_that_is_cancelled_before_it_starts_never_starts(
    pool: ChildPool, beacon: Beacon
) -> None:
    starting = asyncio.create_task(pool.call(python("swallow_everything", beacon=beacon.path)))
    waiting = asyncio.create_task(pool.call(python("swallow_everything", beacon=beacon.path)))
    # One turn of the loop: the first has a child that is not up yet, the second is in line behind it.
    await asyncio.wait((starting, waiting), timeout=0)
    starting.cancel()
    waiting.cancel()
    await asyncio.wait((starting, waiting))
    assert starting.cancelled()
    assert waiting.cancelled()
    assert value(await pool.call(python("add", a=1, b=1))) == 2


# Outcomes.

NOT_JSON = [
    "nan",
    "infinity",
    "circular",
    "generator",
    "long integer",
    "surrogate",
    "object",
    "class",
    "hostile",
]


async def test_a_value_that_is_not_json_fails_for_good(pool: ChildPool) -> None:
    for what in NOT_JSON:
        failure = error(await pool.call(python("returned", what=what)))
        assert (what, failure["code"], failure["retryable"]) == (what, "output_not_json", False)


async def test_a_value_over_a_limit_fails_for_good(pool: ChildPool) -> None:
    for what in ("large", "deep"):
        failure = error(await pool.call(python("returned", what=what)))
        assert (what, failure["code"], failure["retryable"]) == (what, "output_too_large", False)


EXCEPTIONS = {
    "SystemExit": "SystemExit",
    "KeyboardInterrupt": "KeyboardInterrupt",
    "GeneratorExit": "GeneratorExit",
    "CancelledError": "CancelledError",
    "StopIteration": "StopIteration",
    "long": "ValueError",
    "surrogates": "ValueError",
    "unprintable": "UnprintableError",
    "exits": "ExitingError",
    "recursion": "RecursionError",
    "chain": "ValueError",
    "group": "ExceptionGroup",
}


async def test_every_exception_becomes_a_bounded_text(pool: ChildPool) -> None:
    for what, kind in EXCEPTIONS.items():
        failure = error(await pool.call(python("raised", what=what)))
        assert (what, failure["code"], failure["retryable"]) == (what, "handler_error", True)
        assert failure["details"]["type"] == kind
        assert 0 < len(failure["message"].encode()) <= MAX_MESSAGE_BYTES
        trace = failure["details"]["traceback"]
        assert len(trace.encode()) <= MAX_TRACEBACK_BYTES
        assert f'File "{HERE / "lethal.py"}"' in trace
        assert "in raised" in trace


async def test_a_coroutine_may_raise_anything_without_hurting_its_loop(
    pool: ChildPool, beacon: Beacon
) -> None:
    neighbour = asyncio.create_task(pool.call(python("linger", beacon=beacon.path)))
    await beacon.heard("lingering")
    for function in ("raised_in_coroutine", "raised_in_task"):
        for what in ("SystemExit", "KeyboardInterrupt", "CancelledError", "long"):
            failure = error(await pool.call(python(function, what=what)))
            assert failure["details"]["type"] == EXCEPTIONS[what]
    assert not neighbour.done()
    neighbour.cancel()
    await asyncio.wait((neighbour,))


async def test_a_function_says_whether_another_attempt_helps(pool: ChildPool) -> None:
    never = await pool.call(python("raised", what="NonRetryable"))
    assert error(never)["message"] == "never again"
    assert error(never)["retryable"] is False
    later = await pool.call(python("raised", what="RetryAfter"))
    assert error(later)["retryable"] is True
    assert isinstance(later, Failed)
    assert later.retry_after_seconds == 7


# The pool's own life.


async def test_a_pool_starts_no_child_before_it_is_needed(pool: ChildPool) -> None:
    assert pool.pids() == []


async def test_close_leaves_no_process_and_no_descriptor(beacon: Beacon) -> None:
    before = sorted(os.listdir("/dev/fd"))
    async with pool_of(2) as pool:
        await pool.call(python("add", a=1, b=1))
        busy = asyncio.create_task(pool.call(python("swallow_everything", beacon=beacon.path)))
        await beacon.heard("swallowing")
        pids = pool.pids()
    lost = await loss(busy)
    assert not lost.charged
    assert not any(exists(pid) for pid in pids)
    with pytest.raises(AttemptLostError):
        await pool.call(python("add", a=1, b=1))
    await beacon.hung_up()
    assert sorted(os.listdir("/dev/fd")) == before


async def test_a_child_that_is_one_too_many_goes_when_it_is_idle(pool: ChildPool, beacon: Beacon) -> None:
    lingering = asyncio.create_task(pool.call(python("linger", beacon=beacon.path)))
    await beacon.heard("lingering")
    (kept,) = pool.pids()
    await pool.call(python("add", a=1, b=1))
    for child in [child for child in pool._children if child.is_leaving]:
        await child.gone.wait()
    assert pool.pids() == [kept]
    lingering.cancel()
    await asyncio.wait((lingering,))


@pytest.mark.parametrize("new_event_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_every_kind_of_loop_will_do(new_event_loop: Callable[[], Any]) -> None:
    async def live() -> None:
        async with pool_of(1) as pool:
            assert value(await pool.call(python("add", a=1, b=1))) == 2
            with pytest.raises(AttemptLostError):
                await pool.call(python("die"))
            assert value(await pool.call(python("meet", count=1))) in pool.pids()

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(live())


ORPHANS = """
import asyncio, json, sys
from weft.handlers.usercode import UserCode
from weft.worker.call import HandlerCall
from weft.worker.isolate import ChildPool

def call(function, **args):
    config = json.dumps({"function": "lethal:" + function, "args": args}).encode()
    return HandlerCall(handler="python", config=config, execution_id="e", node_id="n", generation=1,
                       attempt=1, timeout_seconds=600)

async def main(folder, beacon):
    code = UserCode(folders=(folder,), allow=("lethal:*",))
    pool = ChildPool(2, code=code, grace_seconds=600, max_payload_bytes=1000)
    await pool.call(call("add", a=1, b=1))
    await asyncio.gather(*(pool.call(call(name, beacon=beacon)) for name in ("swallow_everything", "linger")))

asyncio.run(main(*sys.argv[1:]))
"""


async def test_children_do_not_outlive_a_parent_that_is_killed(beacon: Beacon) -> None:
    parent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", ORPHANS, str(HERE), beacon.path, stderr=subprocess.PIPE
    )
    assert {await beacon.word(), await beacon.word()} == {"swallowing", "lingering"}
    parent.kill()
    await parent.wait()
    # Each child holds a connection, and the pipe of the parent's stderr.
    await beacon.hung_up()
    await beacon.hung_up()
    assert parent.stderr is not None
    await parent.stderr.read()


async def test_calls_that_share_a_child_have_each_their_own_secrets() -> None:
    environment = {**os.environ, "MINE": "1"}
    async with ChildPool(
        1, code=LETHAL, grace_seconds=PATIENT_SECONDS, max_payload_bytes=2**20, environment=environment
    ) as pool:
        outcomes = await asyncio.gather(
            *[
                pool.call(replace(python("secrets_of", count=3), secrets={name: name * 9}))
                for name in ("A", "B", "C")
            ]
        )
    assert [value(outcome) for outcome in outcomes] == [
        {"secrets": {name: name * 9}, "mine": "1"} for name in ("A", "B", "C")
    ]
