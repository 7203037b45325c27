"""Carries the lines and the progress of attempts from where they run into the journal.

Lines gather for half a second and are written together, those of all attempts in one commit. What an attempt
still has when it ends is written before its result is reported: whoever sees a node settled finds all its
lines. Neither a slow journal nor an attempt that prints without end may cost more than some memory: each
attempt has a bound, and the oldest lines go first. Of what an attempt says of its progress only the last word
counts: it is written with the lines, no more often than they are.
"""

from __future__ import annotations

import asyncio
import logging
import os
import select
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

from msgspec.structs import replace

from weft.core.time import micros
from weft.errors import JournalError, UnstorableError
from weft.feed.contract import node_progress
from weft.journal.contract import LogChunk, LogLine, ReportedProgress
from weft.logs import PRINTED, are_json, are_set_up, format_printed
from weft.masking import HIDDEN
from weft.worker.capture import AttemptOutput

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from weft.clock import Clock
    from weft.core.rows import NodeProgress
    from weft.feed.contract import Feed
    from weft.journal.contract import Journal
    from weft.masking import Mask
    from weft.settings import Settings
    from weft.worker.call import HandlerCall

log = logging.getLogger("weft.worker")

# Of the lines that weft adds to those of an attempt.
_OWN_LOGGER = "weft"

# A line is in the journal within a second, the time of the child and of the commit included.
WRITE_SECONDS = 0.5
# A result waits no longer for its lines: the journal is away or slow, and results do not depend on them.
SETTLE_SECONDS = 2.0
# What a line counts for beside its text: empty lines take room, too.
_LINE_BYTES = 16
# More lines than this are masked in a thread.
_FEW_LINES = 200
_STDERR = 2
# A pipe that is ready takes so many bytes at once without a wait.
_PIPE_BYTES = 4096
_ECHO_SECONDS = 0.2


_Key: TypeAlias = tuple[str, str, int]


class AttemptName(Protocol):
    """Anything that names an attempt: a task, a call."""

    @property
    def execution_id(self) -> str: ...
    @property
    def node_id(self) -> str: ...
    @property
    def attempt(self) -> int: ...


class ShownLine(NamedTuple):
    """A line as it is shown; ``node_id``: None where nobody knows which of several nodes wrote it."""

    execution_id: str | None
    node_id: str | None
    attempt: int
    line: LogLine


class _Attempt:
    """The lines and the progress of one attempt: what waits, and how much of it the journal has."""

    def __init__(self) -> None:
        self.waiting: deque[LogLine] = deque()
        self.waiting_bytes = 0
        self.lines_before = 0
        self.last_number = 0
        # (number, bytes) of the chunks in the journal.
        self.written: deque[tuple[int, int]] = deque()
        self.written_bytes = 0
        self.call: HandlerCall | None = None
        self.progress: NodeProgress | None = None
        # When its progress was last written, in microseconds.
        self.progress_at = 0
        self.has_ended = False
        self.settled: asyncio.Event | None = None

    def add(self, lines: Sequence[LogLine], max_bytes: int) -> None:
        self.waiting += lines
        self.waiting_bytes += sum(map(_size, lines))
        while self.waiting_bytes > max_bytes and len(self.waiting) > 1:
            self.waiting_bytes -= _size(self.waiting.popleft())
            self.lines_before += 1

    @property
    def is_waiting(self) -> bool:
        return bool(self.waiting) or self.progress is not None

    def take(self) -> list[LogLine]:
        lines = list(self.waiting)
        self.waiting.clear()
        self.waiting_bytes = 0
        return lines

    def take_progress(self, now: int) -> tuple[HandlerCall, NodeProgress] | None:
        """Return the progress that waits, unless some was written a moment ago."""
        if self.progress is None or self.call is None:
            return None
        if not self.has_ended and 0 <= now - self.progress_at < micros(WRITE_SECONDS):
            return None
        progress, self.progress, self.progress_at = self.progress, None, now
        return self.call, progress


class LogWriter:
    """Keeps the lines and the progress of attempts in the journal."""

    def __init__(
        self,
        journal: Journal,
        *,
        now: Callable[[], int],
        mask: Mask,
        max_bytes: int,
        show: Callable[[Sequence[ShownLine]], None] | None = None,
        echoes: bool = False,
        feed: Feed | None = None,
    ) -> None:
        """``max_bytes``: what is kept of an attempt. ``show`` is given every line too, masked.

        ``echoes``: where nobody else shows the lines, they go to stderr. ``feed``: publishes progress.
        """
        self.max_bytes = max_bytes
        self._journal = journal
        self._now = now
        self._mask = mask
        self._show = show
        self._echoes = echoes
        self._feed = feed
        self._attempts: dict[_Key, _Attempt] = {}
        # What the journal did not take; bounded like the attempts.
        self._unwritten: list[LogChunk] = []
        # By execution and node, for the same reason: the last of each.
        self._unwritten_progress: dict[tuple[str, str], ReportedProgress] = {}
        self._nobodys: list[LogLine] = []
        self._some = asyncio.Event()
        self._urgent = asyncio.Event()
        self._writing: asyncio.Task[None] | None = None
        self._is_away = False

    def new_output(self, filled: Callable[[AttemptOutput], None]) -> AttemptOutput:
        return AttemptOutput(now=self._now, max_bytes=self.max_bytes, filled=filled)

    def add(self, attempt: AttemptName | None, lines: Sequence[LogLine]) -> None:
        """Add lines of an attempt; None: of no attempt, which are shown and not kept."""
        if not lines:
            return
        if attempt is None:
            self._nobodys += lines
        else:
            self._attempts.setdefault(_key(attempt), _Attempt()).add(lines, self.max_bytes)
        self._begin()

    def note(self, attempt: AttemptName, text: str) -> None:
        """Add a line of weft's own to those of an attempt."""
        self.add(attempt, [LogLine(self._now(), "log", text, "INFO", _OWN_LOGGER)])

    def add_progress(self, call: HandlerCall, progress: NodeProgress | None) -> None:
        """Take how far an attempt has come."""
        if progress is None:
            return
        found = self._attempts.setdefault(_key(call), _Attempt())
        found.call, found.progress = call, progress
        self._begin()

    def _begin(self) -> None:
        self._some.set()
        if self._writing is None:
            self._writing = asyncio.get_running_loop().create_task(self._write_on(), name="weft-logs")

    def has(self, attempt: AttemptName) -> bool:
        """True if an attempt has printed or logged anything, or told of its progress."""
        return bool(self._attempts) and _key(attempt) in self._attempts

    async def settle(self, attempt: AttemptName) -> None:
        """Return when the lines of an attempt that has ended are in the journal, or soon."""
        found = self.end(attempt)
        if found is None or not found.is_waiting:
            return
        found.settled = asyncio.Event()
        self._urgent.set()
        with suppress(TimeoutError):
            async with asyncio.timeout(SETTLE_SECONDS):
                await found.settled.wait()

    def end(self, attempt: AttemptName) -> _Attempt | None:
        """Note that no more lines of an attempt will come."""
        key = _key(attempt)
        found = self._attempts.get(key)
        if found is not None:
            found.has_ended = True
            if not found.is_waiting:
                del self._attempts[key]
        return found

    async def close(self) -> None:
        """Write what is left."""
        if self._writing is not None:
            self._writing.cancel()
            with suppress(asyncio.CancelledError):
                await self._writing
            self._writing = None
            await self._write()

    # ----------------------------------------------------------------------------------------------

    async def _write_on(self) -> None:
        while True:
            await self._some.wait()
            with suppress(TimeoutError):
                async with asyncio.timeout(WRITE_SECONDS):
                    await self._urgent.wait()
            self._urgent.clear()
            self._some.clear()
            try:
                await self._write()
            except Exception:
                log.exception("logs.broken")

    async def _write(self) -> None:
        taken = [(key, found, found.take()) for key, found in self._attempts.items() if found.is_waiting]
        told = self._take_progress([found for _, found, _ in taken])
        nobodys, self._nobodys = self._nobodys, []
        batches = [lines for _, _, lines in taken] + [nobodys]
        if self._mask and sum(map(len, batches)) > _FEW_LINES:
            masked = await asyncio.to_thread(lambda: [self._masked(lines) for lines in batches])
        else:
            masked = [self._masked(lines) for lines in batches]
        await self._present([key for key, *_ in taken], masked)
        chunks = [
            self._chunk(key, found, lines)
            for (key, found, _), lines in zip(taken, masked[:-1], strict=True)
            if lines
        ]
        await self._append(chunks, [progress for _, progress in told])
        self._publish(told)
        for key, found, _ in taken:
            if found.settled is not None:
                found.settled.set()
            if found.has_ended and not found.is_waiting:
                self._attempts.pop(key, None)

    def _take_progress(self, attempts: Sequence[_Attempt]) -> list[tuple[HandlerCall, ReportedProgress]]:
        """Return the progress that may be written now, masked."""
        told = []
        for found in attempts:
            taken = found.take_progress(self._now())
            if taken is None:
                if found.progress is not None:
                    self._some.set()
                continue
            call, progress = taken
            if progress.message is not None:
                progress = replace(progress, message=self._mask.text(progress.message))
            told.append((call, ReportedProgress(call.execution_id, call.node_id, call.attempt, progress)))
        return told

    def _publish(self, told: Sequence[tuple[HandlerCall, ReportedProgress]]) -> None:
        """Publish progress that is in the journal by now, or will be once the journal is back."""
        feed = self._feed
        if feed is None or not feed.has_listeners:
            return
        for call, reported in told:
            if feed.has_subscriber(call.execution_id):
                event = node_progress(
                    call.execution_id,
                    generation=call.generation,
                    node_id=call.node_id,
                    attempt=call.attempt,
                    progress=reported.progress,
                )
                feed.publish([event], namespace=call.namespace)

    async def _present(self, keys: Sequence[_Key], batches: Sequence[Sequence[LogLine]]) -> None:
        """Show lines; those of the last batch belong to no attempt."""
        *kept, nobodys = batches
        shown = [ShownLine(*key, line) for key, lines in zip(keys, kept, strict=True) for line in lines] + [
            ShownLine(None, None, 0, line) for line in nobodys
        ]
        if self._show is not None:
            self._show(shown)
        elif self._echoes:
            # In a thread: a terminal may take its time.
            await asyncio.to_thread(echo, shown)

    async def _append(self, chunks: Sequence[LogChunk], progress: Sequence[ReportedProgress]) -> None:
        """Write chunks, and those that could not be written before: none is there twice for that."""
        chunks = [*self._unwritten, *chunks]
        self._unwritten = []
        last = self._unwritten_progress | {(one.execution_id, one.node_id): one for one in progress}
        self._unwritten_progress = {}
        if not chunks and not last:
            return
        try:
            await self._journal.append_logs(chunks, progress=list(last.values()))
            self._is_away = False
        except UnstorableError as error:
            log.warning("logs.lost", extra={"error": str(error)})
        except JournalError as error:
            if not self._is_away:
                log.warning("logs.waiting", extra={"error": str(error)})
            self._is_away = True
            kept = {(_key(chunk), chunk.keep_from) for chunk in chunks}
            oldest = {key: max(number for one, number in kept if one == key) for key, _ in kept}
            self._unwritten = [chunk for chunk in chunks if chunk.number >= oldest[_key(chunk)]]
            self._unwritten_progress = last
            self._some.set()

    def _chunk(self, key: _Key, found: _Attempt, lines: Sequence[LogLine]) -> LogChunk:
        execution_id, node_id, attempt = key
        size = sum(map(_size, lines))
        found.last_number += 1
        found.written.append((found.last_number, size))
        found.written_bytes += size
        while found.written_bytes > self.max_bytes and len(found.written) > 1:
            found.written_bytes -= found.written.popleft()[1]
        chunk = LogChunk(
            execution_id=execution_id,
            node_id=node_id,
            attempt=attempt,
            number=found.last_number,
            lines_before=found.lines_before,
            lines=lines,
            keep_from=found.written[0][0],
        )
        found.lines_before += len(lines)
        return chunk

    def _masked(self, lines: Sequence[LogLine]) -> Sequence[LogLine]:
        """Return lines without secrets, also without those that go over several lines."""
        if not self._mask or not lines:
            return lines
        spans = deque(self._mask.spans("\n".join([line.message for line in lines])))
        if not spans:
            return lines
        masked, begin = [], 0
        for line in lines:
            end = begin + len(line.message)
            text, shown = "", begin
            while spans and spans[0][0] <= end:
                first, last = spans[0]
                text += line.message[shown - begin : max(first, begin) - begin] + HIDDEN
                shown = min(last, end)
                if last > end:
                    # The rest of it is on the next line.
                    break
                spans.popleft()
            masked.append(replace(line, message=text + line.message[shown - begin :]))
            begin = end + 1
        return masked


def make_log_writer(
    settings: Settings,
    journal: Journal,
    clock: Clock,
    *,
    mask: Mask,
    show: Callable[[Sequence[ShownLine]], None] | None = None,
    echoes: bool = False,
    feed: Feed | None = None,
) -> LogWriter | None:
    """Return what keeps lines as the settings say; None: nothing is kept."""
    if settings.logs == "off":
        return None
    return LogWriter(
        journal,
        now=clock.now,
        mask=mask,
        max_bytes=settings.max_log_bytes,
        show=show,
        echoes=echoes,
        feed=feed,
    )


def echo(lines: Sequence[ShownLine]) -> None:
    """Write lines to stderr: what was logged as an event of this process's log, the rest as it was printed.

    Where this process logs JSON, what was printed is the text of an event, lines in a row together. Where it
    logs for people, a line has its node before it.
    Where nobody reads stderr, the rest of it is left out: it must hold up neither results nor lines.
    """
    as_events, as_json = are_set_up(), are_json()
    rows: list[tuple[ShownLine, list[str]]] = []
    printed = []
    for shown in lines:
        line = shown.line
        if as_events and line.logger == _OWN_LOGGER:
            continue  # an event of this process's log says it already
        if as_events and line.stream == "log" and line.logger is not None:
            level = logging.getLevelName(line.level or "INFO")
            logger = logging.getLogger(line.logger)
            record = logger.makeRecord(
                line.logger,
                level if isinstance(level, int) else logging.INFO,
                *("", 0, "%s", (line.message,), None),
                extra={"execution": shown.execution_id, "node": shown.node_id, "attempt": shown.attempt},
            )
            # Not by the logger's level: the child's decided that it is worth a line.
            logger.handle(record)
        elif as_json:
            _add_printed(rows, shown)
        else:
            node = f"{shown.node_id} │ " if as_events and shown.node_id is not None else ""
            logged = f"{line.level} {line.logger} " if line.stream == "log" else ""
            printed.append(f"{node}{logged}{line.message}\n")
    for shown, texts in rows:
        about = {"execution": shown.execution_id, "node": shown.node_id, "attempt": shown.attempt}
        printed.append(format_printed(log, PRINTED, "\n".join(texts), **about))
    _write_if_ready("".join(printed).encode("utf-8", "replace"))


def _add_printed(rows: list[tuple[ShownLine, list[str]]], shown: ShownLine) -> None:
    """Add a line to the last row, if that is of the same attempt and stream, or to a new one."""
    if rows and rows[-1][0][:3] == shown[:3] and rows[-1][0].line.stream == shown.line.stream:
        rows[-1][1].append(shown.line.message)
    else:
        rows.append((shown, [shown.line.message]))


def _write_if_ready(data: bytes) -> None:
    if _Echo.is_torn and data:
        data = b"\n" + data
    with suppress(OSError, ValueError):
        while data:
            _, ready, _ = select.select([], [_STDERR], [], _ECHO_SECONDS)
            if not ready:
                return
            count = os.write(_STDERR, data[:_PIPE_BYTES])
            _Echo.is_torn = data[count - 1 : count] != b"\n"
            data = data[count:]


class _Echo:
    """Whether what was written last ends in the middle of a line."""

    is_torn = False


def _key(attempt: AttemptName) -> _Key:
    return attempt.execution_id, attempt.node_id, attempt.attempt


def _size(line: LogLine) -> int:
    text = line.message
    return _LINE_BYTES + (len(text) if text.isascii() else len(text.encode()))
