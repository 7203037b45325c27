"""Captures what users' code prints and logs in this process, line by line, for the attempt that runs it.

``sys.stdout`` and ``sys.stderr`` are replaced by streams that look up the attempt of the caller: by a
context variable, which coroutines, tasks and weft's own threads inherit, or, in a child process, by the only
call that runs in it. Records of ``logging`` are caught where they are made, so no handler has to be added: a
handler on the root logger would change what ``logging.basicConfig`` and the handler of last resort do.

A function may print far more than anybody reads. Lines over a bound are counted and dropped in this process,
before they cost a message to the worker.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import traceback
from collections.abc import Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TextIO, TypeAlias

from weft.core.rows import NodeProgress
from weft.core.time import MICROSECONDS
from weft.handlers.contract import MAX_PROGRESS_CHARACTERS
from weft.journal.contract import LogLine, Stream

if TYPE_CHECKING:
    from collections.abc import Iterable

# Ten nodes that print without a pause fill what a worker can write, and an attempt keeps about as many.
MAX_LINES_PER_SECOND = 2_000
# Longer lines are cut: nobody reads them, and a program may write without ever ending a line.
MAX_LINE_CHARACTERS = 16 * 1024

_EMIT = logging.StreamHandler.emit.__code__

Fallback: TypeAlias = Callable[[], "AttemptOutput | None"]


class AttemptOutput:
    """The lines of one attempt that wait to be taken; any thread may write."""

    def __init__(
        self, *, now: Callable[[], int], max_bytes: int, filled: Callable[[AttemptOutput], None]
    ) -> None:
        """``filled`` is called with the first line that waits, by the thread that wrote it."""
        self._now = now
        self._max_bytes = max_bytes
        self._filled = filled
        # Reentrant: a signal handler or a finaliser may print while a line is being added.
        self._lock = threading.RLock()
        self._lines: list[LogLine] = []
        self._unfinished: dict[Stream, str] = {}
        # Streams whose present line was cut, and is not shown further.
        self._cut: set[Stream] = set()
        self._dropped = 0
        self._progress: NodeProgress | None = None
        # Of the second that is counted.
        self._window_from = 0
        self._window_lines = self._window_bytes = 0

    def write(self, stream: Stream, text: str) -> bool:
        """Add what was printed; a line waits for its end. True if lines were dropped."""
        with self._lock:
            was_empty, dropped = not self._lines, self._dropped
            if stream in self._cut:
                # The rest of a line that was too long: a secret may go on in it.
                _, end, text = text.partition("\n")
                if not end:
                    return False
                self._cut.discard(stream)
            *lines, rest = (self._unfinished.pop(stream, "") + text).split("\n")
            for index, line in enumerate(lines):
                self._add(stream, line)
                if self._dropped > dropped:
                    # For all at once: a program writes faster than lines can be looked at here.
                    self._dropped += len(lines) - index - 1
                    break
            if len(rest) > MAX_LINE_CHARACTERS:
                self._add(stream, rest)
                self._cut.add(stream)
            elif rest:
                self._unfinished[stream] = rest
            is_filled = was_empty and bool(self._lines)
            is_dropping = self._dropped > dropped
        if is_filled:
            self._filled(self)
        return is_dropping

    def log(self, record: logging.LogRecord) -> None:
        """Add what was logged."""
        try:
            text = record.getMessage()
            if record.exc_info and record.exc_info[1] is not None:
                text += "\n" + "".join(traceback.format_exception(record.exc_info[1])).rstrip("\n")
        except Exception:
            # As ``logging`` does with a message whose arguments do not fit: it must not fail the caller.
            text = str(record.msg)
        with self._lock:
            was_empty = not self._lines
            self._add("log", text, record.levelname, record.name)
            is_filled = was_empty and bool(self._lines)
        if is_filled:
            self._filled(self)

    def report(self, done: float, total: float | None, message: str | None) -> None:
        """Take what the attempt says of its progress; a later call takes the place of an earlier one."""
        text = None if message is None else _plain(message, MAX_PROGRESS_CHARACTERS)
        with self._lock:
            is_filled = self._progress is None
            self._progress = NodeProgress(done, total, text, self._now())
        if is_filled:
            self._filled(self)

    def take_progress(self) -> NodeProgress | None:
        """Return the progress that waits, and forget it."""
        with self._lock:
            progress, self._progress = self._progress, None
        return progress

    def take(self, *, is_last: bool = False) -> list[LogLine]:
        """Return the lines that wait, and forget them; ``is_last``: with what has no line end."""
        with self._lock:
            if is_last:
                for stream, rest in self._unfinished.items():
                    self._add(stream, rest)
                self._unfinished.clear()
                self._count_dropped()
            lines, self._lines = self._lines, []
        return lines

    def _count_dropped(self) -> None:
        """Add a line that says how many were dropped: once for each second, and behind the last line."""
        if self._dropped:
            text = (
                f"{self._dropped:,} lines were dropped: an attempt may log {MAX_LINES_PER_SECOND:,} a second"
            )
            self._lines.append(LogLine(self._now(), "log", text, "WARNING", "weft"))
            self._dropped = 0

    def _add(self, stream: Stream, text: str, level: str | None = None, logger: str | None = None) -> None:
        now = self._now()
        if not 0 <= now - self._window_from < MICROSECONDS:
            self._count_dropped()
            self._window_from = now
            self._window_lines = self._window_bytes = 0
        if self._window_lines >= MAX_LINES_PER_SECOND or self._window_bytes >= self._max_bytes:
            self._dropped += 1
            return
        message = _plain(text)
        self._window_lines += 1
        self._window_bytes += len(message)
        self._lines.append(LogLine(now, stream, message, level, logger))


def _plain(text: str, most: int = MAX_LINE_CHARACTERS) -> str:
    """Return a line as a terminal would leave it: what a carriage return overwrote is gone."""
    text = str.__getitem__(text, slice(None))
    if "\r" in text:
        text = text.rstrip("\r").rpartition("\r")[2]
    if len(text) > most:
        text = f"{text[:most]}… ({len(text):,} characters)"
    # Every store accepts it: no lone surrogates, no NUL.
    return text.encode("utf-8", "replace").decode().replace("\0", "\N{REPLACEMENT CHARACTER}")


class CapturedStream:
    """A text stream whose text goes to the attempt of whoever writes; for all else it is the stream.

    ``tees``: the text also goes where it went before. In a user's own process that is a must.
    """

    def __init__(self, stream: TextIO, name: Stream, *, tees: bool) -> None:
        self._stream = stream
        self._name = name
        self._tees = tees

    def write(self, text: str) -> int:
        output = current_output()
        if output is None:
            return self._stream.write(text)
        if self._tees:
            self._stream.write(text)
        # A handler of ``logging`` writes what was caught as a record already.
        frame = sys._getframe(1)
        if frame.f_code is not _EMIT or id(frame.f_locals.get("record")) != _caught.record_id:
            output.write(self._name, text)
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def __iter__(self) -> Any:
        return iter(self._stream)


class _Caught(threading.local):
    # The id of the record that this thread made last, if it was caught: 0 otherwise. Not the record itself,
    # which may hold the frames of an exception.
    record_id: int = 0


_caught = _Caught()
_output: ContextVar[AttemptOutput | None] = ContextVar("weft_output", default=None)


def _nobody() -> AttemptOutput | None:
    return None


class _Installation:
    """The changes that ``install`` made in this process."""

    users = 0
    fallback: Fallback = staticmethod(_nobody)
    streams: tuple[CapturedStream, CapturedStream] | None = None
    factory: Callable[..., logging.LogRecord] = logging.LogRecord


_installed = _Installation()


def current_output() -> AttemptOutput | None:
    """Return where the lines of the caller go; None: to no attempt."""
    return _output.get() or _installed.fallback()


def enter(output: AttemptOutput) -> None:
    """Let all that the current context prints and logs from now on go to an attempt."""
    _output.set(output)


def install(*, tees: bool, fallback: Fallback = _nobody) -> None:
    """Catch what this process prints and logs, until as many calls of ``uninstall``.

    ``fallback`` names the attempt of a caller without a context of its own, as a thread is that the user's
    code started.
    """
    _installed.users += 1
    if _installed.users > 1:
        return
    _installed.fallback = fallback
    out, err = (
        CapturedStream(sys.stdout, "stdout", tees=tees),
        CapturedStream(sys.stderr, "stderr", tees=tees),
    )
    _installed.streams = out, err
    sys.stdout, sys.stderr = out, err
    _installed.factory = logging.getLogRecordFactory()
    logging.setLogRecordFactory(_make_record)


def uninstall() -> None:
    """Put back what ``install`` changed, where nobody has changed it since."""
    _installed.users -= 1
    if _installed.users == 0:
        _put_back()


def _put_back() -> None:
    if _installed.streams is None:
        return
    out, err = _installed.streams
    _installed.streams = None
    _installed.fallback = _nobody
    if sys.stdout is out:
        sys.stdout = out._stream
    if sys.stderr is err:
        sys.stderr = err._stream
    if logging.getLogRecordFactory() is _make_record:
        logging.setLogRecordFactory(_installed.factory)


# A forked process has no thread that takes the lines, and a lock may be held there for ever.
os.register_at_fork(after_in_child=_put_back)


def _make_record(*args: Any, **kwargs: Any) -> logging.LogRecord:
    record = _installed.factory(*args, **kwargs)
    output = current_output()
    if output is not None:
        output.log(record)
    _caught.record_id = 0 if output is None else id(record)
    return record


def is_uncaught(record: logging.LogRecord) -> bool:
    """True if no attempt has caught a record, so that a handler of this process should show it."""
    return id(record) != _caught.record_id
