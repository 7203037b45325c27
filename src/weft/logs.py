"""Logs: an event with its fields on one line, for people on a terminal and as JSON everywhere else.

What weft logs is a dotted name with fields: ``log.info("server.ready", extra={"url": url})``. Names, ids and
error texts come from users, so a line is never made of them raw: line ends, control characters and whatever
else a terminal obeys are escaped, and a secret's value is taken out wherever it stands.
"""

from __future__ import annotations

import json
import logging
import math
import re
import sys
import threading
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TextIO

from weft.core.time import micros
from weft.masking import Mask, MaskedLines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from weft.core.ledger.changes import RecordedEvent
    from weft.core.rows import ExecutionRow

_executions = logging.getLogger("weft.executions")

# What a record has of its own; all else was given to it as fields.
_OWN = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName", "color_message"}
# Controls, line and paragraph separators, and what is invisible or turns the direction of text.
_OBEYED = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u2028\u2029\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff\ud800-\udfff]"
)
_PLAIN = re.compile(r"[^\s\"'=]+\Z")
# Bounds what one value adds to a line: an error's text may be a page of HTML.
MAX_TEXT = 8192
_MAX_NESTING = 6
# Lines that callers can cause must not fill the disk.
_LOG_INTERVAL = micros(10.0)

_COLOURS = {"warning": "\x1b[33m", "error": "\x1b[31m", "critical": "\x1b[31m"}
_DIM, _PLAINLY = "\x1b[2m", "\x1b[0m"


def set_up_logs(
    *,
    stream: TextIO | None = None,
    terminal: bool | None = None,
    secrets: Iterable[str] = (),
    debug: bool = False,
    others: int = logging.WARNING,
) -> None:
    """Let everything this process logs go to ``stream`` (stderr), one event a line.

    ``terminal``: whether people read it there; it is asked of the stream where nobody says. What other
    libraries log comes the same way, from the level ``others`` up.
    """
    stream = stream or sys.stderr
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        PeopleFormatter(secrets)
        if (stream.isatty() if terminal is None else terminal)
        else JsonFormatter(secrets)
    )
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(others)
    logging.getLogger("weft").setLevel(logging.DEBUG if debug else logging.INFO)
    logging.captureWarnings(capture=True)
    # A line that cannot be written is lost: it must not take a request or a loop with it.
    logging.raiseExceptions = False


def log_failed_executions(
    recorded_events: Sequence[RecordedEvent], *, trace_id: Callable[[ExecutionRow], str | None]
) -> None:
    """Log one line for each execution that one of these events has failed.

    ``trace_id``: returns the id of the trace that an execution's spans are in, if there is one.
    """
    for recorded_event in recorded_events:
        for event in recorded_event.events:
            execution = recorded_event.execution
            if event.type == "execution.failed" and execution is not None:
                error = event.error or {}
                fields = {
                    "execution": execution.id,
                    "workflow": execution.workflow,
                    "node": error.get("node"),
                    "code": error.get("code"),
                    "error": error.get("message"),
                    "do": f"weft logs {execution.id}; weft retry {execution.id}",
                }
                if (found := trace_id(execution)) is not None:
                    fields["trace_id"] = found
                _executions.warning("execution.failed", extra=fields)


# The event for what a user's function printed.
PRINTED = "function.printed"


def are_set_up() -> bool:
    """True if ``set_up_logs`` configured this process: then its child processes should log so, too."""
    return any(isinstance(handler.formatter, _Formatter) for handler in logging.getLogger().handlers)


def are_json() -> bool:
    """True if this process logs JSON: then nothing but events may be written where it logs."""
    return any(isinstance(handler.formatter, JsonFormatter) for handler in logging.getLogger().handlers)


def log_printed(log: logging.Logger, event: str, text: str, **fields: object) -> None:
    """Log lines that were printed, as the ``text`` of an event; many lines are several events."""
    for record in _printed(log, event, text, fields):
        log.handle(record)


def format_printed(log: logging.Logger, event: str, text: str, **fields: object) -> str:
    """Return the lines that ``log_printed`` would write, for whoever writes them himself; "": none."""
    formatters = [handler.formatter for handler in logging.getLogger().handlers]
    formatter = next((one for one in formatters if isinstance(one, JsonFormatter)), None)
    records = [] if formatter is None else _printed(log, event, text, fields)
    return "".join(f"{formatter.format(record)}\n" for record in records if formatter is not None)


def _printed(
    log: logging.Logger, event: str, text: str, fields: Mapping[str, object]
) -> Iterator[logging.LogRecord]:
    while text:
        piece = text[:MAX_TEXT]
        if len(text) > MAX_TEXT and (end := max(piece.rfind("\n"), piece.rfind("\r")) + 1):
            piece = text[:end]
        text = text[len(piece) :]
        if shown := piece.rstrip("\r\n"):
            extra = {**fields, "text": shown}
            yield log.makeRecord(log.name, logging.INFO, "", 0, event, (), None, extra=extra)


def log_again(log: logging.Logger, event: Mapping[str, Any], **fields: object) -> None:
    """Log an event that another process logged as JSON; ``fields`` go before those of the event."""
    level = logging.getLevelNamesMapping().get(str(event.get("level")).upper(), logging.INFO)
    name, message = log.name, str(event.get("event"))
    if "message" in event:
        # By another library, whose events are named after its logger.
        name, message = message, str(event["message"])
    record = log.makeRecord(name, level, "", 0, "%s", (message,), None)
    for name, value in {**event, **fields}.items():
        if name not in _OWN and name not in ("ts", "level", "event"):
            setattr(record, name, value)
    log.handle(record)


class RateLimitedLog:
    """Writes warnings that a caller can cause: one line of a kind in ten seconds, with the number left out.

    A kind is an event with its ``reason``; its first line is written at once. ``now``: microseconds.
    """

    def __init__(self, log: logging.Logger, *, now: Callable[[], int]) -> None:
        self._log = log
        self._now = now
        # By kind: when a line of it may be written again, and how many were left out since the last.
        self._next_at: dict[tuple[str, object], int] = {}
        self._left_out: dict[tuple[str, object], int] = {}

    def warning(self, event: str, **fields: object) -> None:
        kind = (event, fields.get("reason"))
        now = self._now()
        if now < self._next_at.get(kind, now):
            self._left_out[kind] = self._left_out.get(kind, 0) + 1
            return
        self._next_at[kind] = now + _LOG_INTERVAL
        if left_out := self._left_out.pop(kind, 0):
            fields["repeated"] = left_out
        self._log.warning(event, extra=fields)


class MaskedStream:
    """A text stream that passes on what is written to it without secrets; for all else it is the stream.

    A secret may be written in parts, so what could be the beginning of one waits for the next write.
    """

    def __init__(self, stream: TextIO, mask: Mask) -> None:
        self._stream = stream
        self._pieces = MaskedLines(mask, whole_lines=False)
        self._lock = threading.Lock()

    def write(self, text: str) -> int:
        with self._lock:
            self._stream.write(self._pieces.feed(text))
        return len(text)

    def finish(self) -> None:
        """Write what was held back: nothing follows."""
        with self._lock:
            self._stream.write(self._pieces.rest())

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class PrintedStream:
    """Stands for stdout and stderr in a process that logs JSON: what is printed becomes events.

    For all else it is the stream that it stands for.
    """

    def __init__(self, stream: TextIO, log: logging.Logger, mask: Mask) -> None:
        self._stream = stream
        self._log = log
        self._lines = MaskedLines(mask)
        self._lock = threading.RLock()

    def write(self, text: str) -> int:
        with self._lock:
            log_printed(self._log, "server.printed", self._lines.feed(text))
        return len(text)

    def finish(self) -> None:
        """Log what was held back: nothing follows."""
        with self._lock:
            log_printed(self._log, "server.printed", self._lines.rest())

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class _Formatter(logging.Formatter):
    def __init__(self, secrets: Iterable[str] = ()) -> None:
        super().__init__()
        self._mask = Mask(secrets)

    def event(self, record: logging.LogRecord) -> dict[str, Any]:
        """Return a record's event: name and fields. Other libraries' events are named after their logger."""
        event: dict[str, Any] = {"event": record.getMessage()}
        if record.name.partition(".")[0] != "weft":
            event = {"event": record.name, "message": event["event"]}
        for name, value in record.__dict__.items():
            if name not in _OWN and name not in event:
                event[name] = value
        if record.exc_info and record.exc_info[1] is not None:
            event["exception"] = self.formatException(record.exc_info)
        return {self._clean(name): self._clean(value) for name, value in event.items()}

    def _clean(self, value: Any, depth: int = 0) -> Any:
        """Return a value of JSON's types with secrets hidden and long texts cut."""
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, int | float):
            return self._mask.value(value) if math.isfinite(value) else str(value)
        if depth < _MAX_NESTING and isinstance(value, dict):
            return {self._clean(str(key)): self._clean(item, depth + 1) for key, item in value.items()}
        if depth < _MAX_NESTING and isinstance(value, list | tuple | set | frozenset):
            return [self._clean(item, depth + 1) for item in value]
        text = value if isinstance(value, str) else _text_of(value)
        if len(text) <= MAX_TEXT:
            return self._mask.text(text)
        # Cut first: a text may have any size, and the mask knows the sign of a cut.
        return self._mask.text(f"{text[:MAX_TEXT]}…") + f" ({len(text):,} characters)"


class JsonFormatter(_Formatter):
    """One JSON object a line: ``ts``, ``level``, ``event``, then the fields."""

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        line = {"ts": at, "level": record.levelname.lower(), **self.event(record)}
        # Pure ASCII: every control character and separator beyond it is escaped, whatever reads the line.
        return json.dumps(line, ensure_ascii=True).replace("\x7f", "\\u007f")


class PeopleFormatter(_Formatter):
    """The time with its zone, the level where it is worth a word, the event, its fields as ``name=value``."""

    def format(self, record: logging.LogRecord) -> str:
        level = record.levelname.lower()
        event = self.event(record)
        exception = event.pop("exception", None)
        name = _escaped(str(event.pop("event")))
        at = datetime.fromtimestamp(record.created, UTC).astimezone().timetz()
        words = [f"{_DIM}{at.isoformat(timespec='seconds')}{_PLAINLY}"]
        if level in _COLOURS:
            words.append(f"{_COLOURS[level]}{level}{_PLAINLY}")
        words.append(name)
        words += [f"{_DIM}{_escaped(key)}={_PLAINLY}{_shown(value)}" for key, value in event.items()]
        lines = [] if exception is None else [f"  {_escaped(line)}" for line in exception.splitlines()]
        return "\n".join([" ".join(words), *lines])


def _escaped(text: str) -> str:
    return _OBEYED.sub(lambda found: ascii(found[0])[1:-1], text)


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return value if _PLAIN.match(value) and not _OBEYED.search(value) else f'"{_escaped(value)}"'
    return _escaped(json.dumps(value, ensure_ascii=False))


def _text_of(value: object) -> str:
    try:
        return str(value)
    except Exception as error:
        return f"<{type(value).__name__} that cannot be shown: {type(error).__name__}>"
