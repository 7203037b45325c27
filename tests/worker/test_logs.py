"""What attempts print and log, from their child processes into the journal."""

from __future__ import annotations

import asyncio
import logging
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from weft.clock import RealClock, new_id
from weft.core.payload import Json, canonical
from weft.core.rows import NodeProgress
from weft.errors import JournalError
from weft.handlers.contract import MAX_PROGRESS_CHARACTERS, HandlerContext
from weft.handlers.outcome import Completed, Failed
from weft.handlers.registry import Registry
from weft.handlers.usercode import UserCode
from weft.journal.contract import LogLine
from weft.journal.memory import MemoryJournal
from weft.masking import Mask
from weft.testing.recording import Recording, node
from weft.worker.call import AttemptLostError, HandlerCall
from weft.worker.capture import MAX_LINES_PER_SECOND
from weft.worker.inprocess import InProcess
from weft.worker.isolate import ChildPool
from weft.worker.logs import LogWriter, ShownLine

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from weft.journal.contract import LogChunk, ReportedProgress

HERE = Path(__file__).parent
CHATTY = UserCode(modules=("chatty",), folders=(str(HERE),), allow=("chatty:*",))


class FrailJournal(MemoryJournal):
    """One that can be away."""

    is_away = False
    wrote: asyncio.Event

    async def append_logs(
        self, chunks: Sequence[LogChunk], *, progress: Sequence[ReportedProgress] = ()
    ) -> None:
        if self.is_away:
            raise JournalError("it is away")
        await super().append_logs(chunks, progress=progress)
        self.wrote.set()

    async def has(self, text: str) -> None:
        """Return once there is a line with this text."""
        async with asyncio.timeout(30):
            while not any(text in line.message for line in await lines_of(self)):
                self.wrote.clear()
                await self.wrote.wait()


@pytest.fixture
async def journal() -> FrailJournal:
    journal = FrailJournal(now=RealClock().now, new_id=new_id)
    journal.wrote = asyncio.Event()
    await Recording.start(journal, node("a"), node("b"), execution_id="e")
    return journal


@pytest.fixture
def shown() -> list[ShownLine]:
    return []


@pytest.fixture
async def writer(journal: FrailJournal, shown: list[ShownLine]) -> AsyncIterator[LogWriter]:
    writer = LogWriter(
        journal,
        now=RealClock().now,
        mask=Mask(["tr0ub4dor&3"]),
        max_bytes=256 * 1024,
        show=shown.extend,
    )
    yield writer
    await writer.close()


@pytest.fixture
async def pool(writer: LogWriter) -> AsyncIterator[ChildPool]:
    async with ChildPool(1, code=CHATTY, grace_seconds=5, max_payload_bytes=1024 * 1024, logs=writer) as pool:
        yield pool


def call_of(function: str, *, node_id: str = "a", attempt: int = 1, **args: Json) -> HandlerCall:
    return HandlerCall(
        handler="python",
        config=canonical({"function": function, "args": args}),
        execution_id="e",
        node_id=node_id,
        generation=1,
        attempt=attempt,
        timeout_seconds=60,
    )


def chatty(function: str, **fields: Any) -> HandlerCall:
    return call_of(f"chatty:{function}", **fields)


async def lines_of(journal: MemoryJournal, node_id: str = "a", attempt: int | None = None) -> list[LogLine]:
    found = await journal.logs("e", limit=10_000, node_id=node_id, attempt=attempt)
    return [line for chunk in found for line in chunk.lines]


async def run(call: HandlerCall, caller: ChildPool | InProcess, writer: LogWriter) -> list[tuple[str, str]]:
    """Run a call as a worker does, and give what the journal then has of it: stream and message."""
    outcome = await caller.call(call)
    assert isinstance(outcome, Completed), outcome
    await writer.settle(call)
    assert not writer.has(call)
    lines = await lines_of(writer._journal, call.node_id, call.attempt)  # type: ignore[arg-type]
    return [(line.stream, line.message) for line in lines]


async def test_what_a_function_prints_is_kept_with_its_attempt(pool: ChildPool, writer: LogWriter) -> None:
    found = await run(chatty("prints"), pool, writer)
    assert sorted(found) == [("stderr", "to stderr"), ("stdout", "hello"), ("stdout", "no end")]
    assert await run(chatty("prints", attempt=2, text="two\nlines"), pool, writer) == [
        ("stdout", "two"),
        ("stdout", "lines"),
        ("stderr", "to stderr"),
        ("stdout", "no end"),
    ]


async def test_what_a_function_logs_is_kept_with_its_level(
    pool: ChildPool, writer: LogWriter, journal: FrailJournal
) -> None:
    await run(chatty("logs"), pool, writer)
    first, second, third = await lines_of(journal)
    assert (first.stream, first.level, first.logger, first.message) == (
        "log",
        "INFO",
        "shop.orders",
        "order 7",
    )
    assert (second.level, second.logger, second.message) == ("WARNING", "weft.handlers", "slow")
    assert third.message.startswith("cannot read\nTraceback")
    assert third.message.endswith("KeyError: 'price'")


async def test_a_record_is_one_line_whatever_handlers_there_are(pool: ChildPool, writer: LogWriter) -> None:
    assert await run(chatty("own_handler"), pool, writer) == [("log", "once")]


async def test_the_output_of_programs_is_that_of_the_call_alone_in_its_process(
    pool: ChildPool, writer: LogWriter
) -> None:
    found = await run(chatty("starts_program"), pool, writer)
    assert sorted(found) == [("stderr", "err"), ("stdout", "before"), ("stdout", "out"), ("stdout", "raw")]


@pytest.mark.parametrize(
    ("function", "text"),
    [("in_thread", "from a thread"), ("forks", "from the fork"), ("carriage", "100 %")],
)
async def test_threads_forks_and_bars_write_lines_too(
    pool: ChildPool, writer: LogWriter, function: str, text: str
) -> None:
    assert await run(chatty(function), pool, writer) == [("stdout", text)]


async def test_coroutines_in_one_process_are_told_apart(pool: ChildPool, writer: LogWriter) -> None:
    # The first call says that the function is a coroutine function, and the next two share a process.
    await pool.call(chatty("prints_apart", attempt=9, name="x", beside=""))
    found = await asyncio.gather(
        *(
            run(chatty("prints_apart", node_id=name, name=name, beside=""), pool, writer)
            for name in ("a", "b")
        )
    )
    assert [message for _, message in found[0]] == ["a 0", "a 1", "a 2", "a in a task"]
    assert [message for _, message in found[1]] == ["b 0", "b 1", "b 2", "b in a task"]
    assert len(pool.pids()) == 1


async def test_a_flood_is_dropped_and_counted_in_the_child(
    pool: ChildPool, writer: LogWriter, journal: FrailJournal
) -> None:
    await run(chatty("floods", lines=20_000), pool, writer)
    lines = await lines_of(journal)
    assert lines[0].message == "flood 0"
    kept = sum(line.message.startswith("flood") for line in lines)
    notices = [line for line in lines if line.logger == "weft"]
    dropped = sum(int(line.message.split()[0].replace(",", "")) for line in notices)
    assert kept + dropped == 20_000
    assert kept >= MAX_LINES_PER_SECOND
    assert all("lines were dropped" in line.message for line in notices)


async def test_over_its_size_an_attempt_loses_its_oldest_lines(journal: FrailJournal) -> None:
    writer = LogWriter(journal, now=RealClock().now, mask=Mask([]), max_bytes=5_000)
    call = chatty("prints")
    for number in range(30):
        writer.add(call, [LogLine(number, "stdout", f"{number} {'x' * 400}")])
        if number % 5 == 4:
            await writer._write()
    await writer.settle(call)
    found = await journal.logs("e", limit=1_000)
    lines = [line.message.split()[0] for chunk in found for line in chunk.lines]
    assert lines[-1] == "29"
    assert lines == [str(number) for number in range(30 - len(lines), 30)]
    assert 5 <= len(lines) <= 5_000 // 400
    assert found[0].lines_gone == 30 - len(lines)
    await writer.close()


async def test_lines_are_written_while_the_function_runs(pool: ChildPool, journal: FrailJournal) -> None:
    with pytest.raises(AttemptLostError):
        await pool.call(chatty("dies"))
    # The writer is at work by itself: nobody has settled the attempt.
    await journal.has("last words")
    # What the process itself said at its end is there as well.
    await journal.has("Fatal Python error")


async def test_secrets_are_masked_and_lines_are_shown(
    pool: ChildPool, writer: LogWriter, shown: list[ShownLine]
) -> None:
    found = await run(chatty("prints", text="the key is tr0ub4dor&3"), pool, writer)
    assert ("stdout", "the key is ***") in found
    assert (shown[0].node_id, shown[0].line.message) == ("a", "the key is ***")


async def test_a_journal_that_is_away_gets_the_lines_later_and_once(
    journal: FrailJournal, shown: list[ShownLine], writer: LogWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weft.worker.logs.SETTLE_SECONDS", 0.01)
    monkeypatch.setattr("weft.worker.logs.WRITE_SECONDS", 0.01)
    journal.is_away = True
    call = chatty("prints")
    writer.add(call, [LogLine(1, "stdout", "one")])
    await writer.settle(call)
    assert await lines_of(journal) == []
    journal.is_away = False
    await journal.has("one")
    assert [line.message for line in await lines_of(journal)] == ["one"]
    assert len(shown) == 1


# --- In this process.


@pytest.fixture
async def caller(writer: LogWriter) -> AsyncIterator[InProcess]:
    registry = Registry()
    caller = InProcess(registry, clock=RealClock(), grace_seconds=5, max_payload_bytes=10_000, logs=writer)
    yield caller
    await caller.close()


def here(caller: InProcess, function: Callable[..., Any], **fields: Any) -> HandlerCall:
    caller._registry.add_function(f"here:{function.__name__}", function)
    return call_of(f"here:{function.__name__}", **fields)


async def test_in_this_process_lines_are_kept_and_go_where_they_always_went(
    caller: InProcess, writer: LogWriter, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sys.stdout, sys.stderr, logging.getLogRecordFactory()

    def plain() -> None:
        print("plain")
        logging.getLogger("here").warning("logged")

    async def coroutine() -> None:
        print("coroutine")
        await asyncio.to_thread(print, "in a thread")

    assert await run(here(caller, plain), caller, writer) == [("stdout", "plain"), ("log", "logged")]
    found = await run(here(caller, coroutine, node_id="b"), caller, writer)
    assert found == [("stdout", "coroutine"), ("stdout", "in a thread")]
    print("nobody's")
    await caller.close()
    assert (sys.stdout, sys.stderr, logging.getLogRecordFactory()) == before
    assert capsys.readouterr().out == "plain\ncoroutine\nin a thread\nnobody's\n"


async def test_nothing_is_changed_before_a_function_runs(caller: InProcess) -> None:
    stdout = sys.stdout
    outcome = await caller.call(
        HandlerCall(
            handler="echo",
            config=b"1",
            execution_id="e",
            node_id="a",
            generation=1,
            attempt=1,
            timeout_seconds=60,
        )
    )
    assert isinstance(outcome, Completed)
    assert sys.stdout is stdout


async def test_a_failing_function_keeps_what_it_said(
    caller: InProcess, writer: LogWriter, journal: FrailJournal
) -> None:
    def fails() -> None:
        print("about to fail")
        raise ValueError

    call = here(caller, fails)
    assert isinstance(await caller.call(call), Failed)
    await writer.settle(call)
    assert [line.message for line in await lines_of(journal)] == ["about to fail"]


# --- Progress.


async def progress_of(journal: MemoryJournal, node_id: str = "a") -> tuple[Any, ...] | None:
    """Return what the journal has of a node's progress: attempt, done, total, message."""
    attempt, said = (await journal.progress("e")).get(node_id, (0, None))
    return None if said is None else (attempt, said.done, said.total, said.message)


async def test_the_last_word_on_its_progress_is_kept_when_a_function_ends(
    pool: ChildPool, writer: LogWriter, journal: FrailJournal
) -> None:
    assert await run(chatty("progresses", steps=2_000), pool, writer) == []
    assert await progress_of(journal) == (1, 2_000, 2_000, "reading 2000")
    await run(chatty("progresses_apart", node_id="b", attempt=3, done=0.5), pool, writer)
    assert await progress_of(journal, "b") == (3, 0.5, None, None)


async def test_progress_is_masked_and_bounded(
    pool: ChildPool, writer: LogWriter, journal: FrailJournal
) -> None:
    await run(chatty("progresses", steps=1, message="with tr0ub4dor&3\0"), pool, writer)
    assert await progress_of(journal) == (1, 1, 1, "with ***\N{REPLACEMENT CHARACTER} 1")
    await run(chatty("progresses", attempt=2, steps=1, message="x" * 100_000), pool, writer)
    found = await progress_of(journal)
    assert found is not None
    assert len(found[3]) < MAX_PROGRESS_CHARACTERS + 50


@pytest.mark.parametrize(("done", "total"), [("nan", None), (1, "ten"), (None, None), ([], 3)])
async def test_progress_takes_finite_numbers_alone(
    pool: ChildPool, journal: FrailJournal, done: Any, total: Any
) -> None:
    outcome = await pool.call(chatty("misreports", done=done, total=total))
    assert isinstance(outcome, Failed)
    assert "context.progress takes a finite number as" in outcome.error["message"]
    assert await progress_of(journal) is None


async def test_progress_is_written_while_the_function_runs_and_not_at_each_call(
    pool: ChildPool, journal: FrailJournal, writer: LogWriter
) -> None:
    journal.wrote.clear()
    running = asyncio.create_task(pool.call(chatty("climbs")))
    seen: list[tuple[Any, ...] | None] = []
    async with asyncio.timeout(30):
        while len(seen) < 3:
            await journal.wrote.wait()
            journal.wrote.clear()
            seen.append(await progress_of(journal))
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    steps = [one[1] for one in seen if one is not None]
    assert steps == sorted(set(steps))
    # It says a hundred times a second what is written twice a second.
    assert steps[-1] > 10


async def test_what_the_journal_did_not_take_of_the_progress_it_gets_later(
    journal: FrailJournal, writer: LogWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weft.worker.logs.SETTLE_SECONDS", 0.01)
    monkeypatch.setattr("weft.worker.logs.WRITE_SECONDS", 0.01)
    journal.is_away = True
    call = chatty("prints")
    writer.add_progress(call, NodeProgress(1, 2, None, 7))
    await writer.settle(call)
    assert await progress_of(journal) is None
    journal.is_away = False
    journal.wrote.clear()
    async with asyncio.timeout(30):
        await journal.wrote.wait()
    assert await progress_of(journal) == (1, 1, 2, None)


async def test_in_this_process_progress_is_kept_too(
    caller: InProcess, writer: LogWriter, journal: FrailJournal
) -> None:
    def plain(context: HandlerContext) -> None:
        context.progress(Scalar(3), 4, "in a thread")

    async def coroutine(context: HandlerContext) -> None:
        context.progress(2**60)

    await run(here(caller, plain), caller, writer)
    assert await progress_of(journal) == (1, 3, 4, "in a thread")
    await run(here(caller, coroutine, node_id="b"), caller, writer)
    assert await progress_of(journal, "b") == (1, float(2**60), None, None)


class Scalar(float):
    """A number of another library: a number, and none of Python's own types."""


def test_a_context_that_nobody_watches_takes_progress_and_checks_it() -> None:
    context = HandlerContext(
        execution_id="e", node_id="a", generation=1, attempt=1, deadline=datetime.now(UTC)
    )
    context.progress(1, 2)
    with pytest.raises(ValueError, match="finite number as 'total', not inf"):
        context.progress(1, float("inf"))
