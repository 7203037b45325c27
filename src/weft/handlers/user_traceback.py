"""The traceback of an exception as the user's own code saw it: bounded, masked, plain text.

Frames of weft, asyncio and their like stand between the user's function and the engine, and between the
function and what it awaits. They are left out; libraries such as pandas stay, because their frames say which
call of theirs failed. Where the text is too long, frames of libraries go first: the user's own line is what a
reader looks for.
"""

from __future__ import annotations

import os
import re
import sys
import traceback
from typing import TYPE_CHECKING

from weft.handlers.secrets import known
from weft.masking import Mask

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# An error is copied into events, dead letters, answers and messages: enough for a person, not for a dump.
MAX_TRACEBACK_BYTES = 16 * 1024

# Of one exception's text and notes, and of the chain of causes: what any traceback may take.
_MAX_TEXT_CHARACTERS = 2000
_MAX_LINE_CHARACTERS = 400
_MAX_LINKS = 12
_MAX_GROUP_MEMBERS = 8
_MAX_GROUP_DEPTH = 3
# A function that calls itself a thousand times is read once.
_MAX_FRAMES = 200

_CAUSE = "The above exception was the direct cause of the following exception:"
_CONTEXT = "During handling of the above exception, another exception occurred:"
# Terminal escapes in an exception's text would move the reader's cursor; tabs and newlines stay.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


_WEFT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_STDLIB = os.path.dirname(os.path.abspath(os.__file__))
_MACHINERY = (
    _WEFT + os.sep,
    *(os.path.join(_STDLIB, name, "") for name in ("asyncio", "concurrent", "multiprocessing", "importlib")),
    os.path.join(_STDLIB, "threading.py"),
    "<frozen importlib",
    "<frozen runpy",
)
_LIBRARIES = (_STDLIB + os.sep, "<frozen ")
_INSTALLED = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")


def user_traceback(error: BaseException) -> str | None:
    """Return the masked text of a traceback; None if no frame of it is outside of weft and asyncio."""
    try:
        text = _whole(error, own_only=False)
        if text is not None and len(text.encode()) > MAX_TRACEBACK_BYTES:
            text = _whole(error, own_only=True)
        return None if text is None else _bounded(text)
    except BaseException:
        # An exception is user data: its class may raise wherever it is asked. The error itself still counts.
        return None


def stack_of(thread_id: int) -> str | None:
    """Return where a thread stands now, as the masked text of a traceback; None where no user's code runs."""
    try:
        frame = sys._current_frames().get(thread_id)
        stack = () if frame is None else traceback.extract_stack(frame)
        frames = [one for one in stack if not _is_machinery(one.filename) and one.filename != "<string>"]
        if not frames:
            return None
        lines = "".join(_frames(frames, own_only=False))
        text = f"Traceback (most recent call last):\n{lines}It stood here when its time was over."
        return _bounded(Mask(known()).text(text))
    except Exception:
        return None


def own_frame(error: BaseException) -> tuple[str, int, str] | None:
    """Return file, line and function of the user's innermost frame, or else of the innermost at all."""
    trace, found, last = error.__traceback__, None, None
    while trace is not None:
        code = trace.tb_frame.f_code
        last = code.co_filename, trace.tb_lineno, code.co_name
        if is_users_file(code.co_filename):
            found = last
        trace = trace.tb_next
    return found or last


def _whole(error: BaseException, *, own_only: bool) -> str | None:
    parts = list(_chain(error, own_only=own_only, depth=0))
    if not any(part.startswith("  File ") or "\n  File " in part for part in parts):
        return None
    return Mask(known()).text("".join(parts).rstrip("\n"))


def _chain(error: BaseException, *, own_only: bool, depth: int) -> Iterator[str]:
    """Yield the parts of an exception and of all that led to it, the oldest first, as Python prints them."""
    links: list[tuple[BaseException, str]] = []
    seen: set[int] = set()
    link: BaseException | None = error
    how = ""
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        links.append((link, how))
        if link.__cause__ is not None:
            link, how = link.__cause__, _CAUSE
        else:
            link, how = None if link.__suppress_context__ else link.__context__, _CONTEXT
    left_out = len(links) - _MAX_LINKS
    if left_out > 0:
        # The newest, and the one that began it all.
        links[_MAX_LINKS - 1 : -1] = []
    for position, (one, leads_by) in enumerate(reversed(links)):
        if position == 1 and left_out > 0:
            yield f"… {left_out:,} more exceptions …\n\n"
        yield from _one(one, own_only=own_only, depth=depth)
        if leads_by:
            yield f"\n{leads_by}\n\n"


def _one(error: BaseException, *, own_only: bool, depth: int) -> Iterator[str]:
    frames = [
        frame for frame in traceback.extract_tb(error.__traceback__) if not _is_machinery(frame.filename)
    ]
    if frames:
        yield "Traceback (most recent call last):\n"
        yield from _frames(frames, own_only=own_only)
    yield _described(error)
    if isinstance(error, BaseExceptionGroup):
        members: Sequence[BaseException] = error.exceptions
        shown = members[:_MAX_GROUP_MEMBERS] if depth < _MAX_GROUP_DEPTH else ()
        for number, member in enumerate(shown, 1):
            yield f"  +- {number} of {len(members)}:\n"
            for part in _chain(member, own_only=own_only, depth=depth + 1):
                yield "".join(f"  | {line}" for line in part.splitlines(keepends=True))
        if len(members) > len(shown):
            yield f"  +- … {len(members) - len(shown):,} more exceptions\n"


def _frames(frames: Sequence[traceback.FrameSummary], *, own_only: bool) -> Iterator[str]:
    hidden_frames = 0
    kept: list[traceback.FrameSummary] = []

    def flush() -> Iterator[str]:
        # ``format`` writes a frame that repeats, of a recursion, three times and then its number.
        for text in traceback.StackSummary.from_list(kept).format():
            yield "".join(_cut(line, _MAX_LINE_CHARACTERS) + "\n" for line in text.splitlines())
        kept.clear()

    if len(frames) > _MAX_FRAMES and not _repeats(frames):
        frames = [*frames[: _MAX_FRAMES // 2], *frames[-_MAX_FRAMES // 2 :]]
    for frame in frames:
        if own_only and _is_library(frame.filename):
            hidden_frames += 1
            continue
        if hidden_frames:
            yield from flush()
            yield f"  … {hidden_frames} frames of libraries …\n"
            hidden_frames = 0
        kept.append(frame)
    yield from flush()
    if hidden_frames:
        yield f"  … {hidden_frames} frames of libraries …\n"


def _repeats(frames: Sequence[traceback.FrameSummary]) -> bool:
    """True if the frames are few lines over and over, which ``format`` writes in short."""
    return len({(frame.filename, frame.lineno) for frame in frames}) < _MAX_FRAMES


def _described(error: BaseException) -> str:
    kind = type(error)
    module = kind.__module__
    name = kind.__qualname__ if module in ("builtins", "__main__") else f"{module}.{kind.__qualname__}"
    text = _cut(_text(error), _MAX_TEXT_CHARACTERS)
    lines = [f"{name}: {text}" if text else name]
    if isinstance(error, SyntaxError):
        # With the line that Python could not read: no frame has it.
        lines = [_cut(line, _MAX_LINE_CHARACTERS) for line in _unread(error)] or lines
    notes = getattr(error, "__notes__", None)
    if isinstance(notes, list):
        lines += [_cut(_text(note), _MAX_TEXT_CHARACTERS) for note in notes[:_MAX_GROUP_MEMBERS]]
    return "\n".join(lines) + "\n"


def _unread(error: SyntaxError) -> list[str]:
    return "".join(traceback.format_exception_only(error)).splitlines()


def _text(value: object) -> str:
    try:
        return str.__str__(str(value))
    except BaseException:
        return "(its text cannot be made)"


def _cut(text: str, most: int) -> str:
    plain = _CONTROL.sub("\N{REPLACEMENT CHARACTER}", str.__getitem__(text, slice(most + 1)))
    return plain if len(plain) <= most else plain[: most - 1] + "…"


def _bounded(text: str) -> str:
    """Keep the head and the innermost end, whole lines of both."""
    data = text.encode()
    if len(data) <= MAX_TRACEBACK_BYTES:
        return text
    gap = "\n…\n"
    room = (MAX_TRACEBACK_BYTES - len(gap.encode())) // 2
    head = data[:room].decode("utf-8", "ignore").rpartition("\n")[0]
    tail = data[-room:].decode("utf-8", "ignore").partition("\n")[2]
    return head + gap + tail


def _is_machinery(file: str) -> bool:
    return file.startswith(_MACHINERY)


def is_users_file(file: str) -> bool:
    """True if a file is neither of weft, nor of Python or an installed library."""
    return bool(file) and not _is_machinery(file) and not _is_library(file)


def _is_library(file: str) -> bool:
    return file.startswith(_LIBRARIES) or any(mark in file for mark in _INSTALLED)
