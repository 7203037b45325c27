"""Makes the result of a call that can always be stored, whatever the user's code did.

An exception is user data: its text may be ten megabytes long, hold half a surrogate pair, or raise when
it is asked for. What comes out of here is bounded, plain text.
"""

from __future__ import annotations

import math
import os
import re
from dataclasses import dataclass
from typing import Any, TypeAlias

from weft.core.payload import MAX_VALUES, Json, decode, encode, encode_plain
from weft.errors import HandlerError, PayloadError
from weft.handlers.types.encoding import to_json
from weft.handlers.user_traceback import own_frame, stack_of, user_traceback

# Enough for what a person reads; an error is copied into events, dead letters and answers.
MAX_MESSAGE_BYTES = 4096
MAX_DETAILS_BYTES = 16 * 1024
# Levels of an output, as in every payload.
MAX_DEPTH = 100
# A floor above a year would only overflow the clocks of others.
MAX_RETRY_AFTER_SECONDS = 366 * 86_400.0

_MAX_NAME_CHARACTERS = 200
_CODE = re.compile(r"[a-z][a-z0-9_]{0,63}\Z")


@dataclass(frozen=True, slots=True)
class Completed:
    output: bytes


@dataclass(frozen=True, slots=True)
class Failed:
    """``error`` is the error of a node: ``code, message, retryable`` and perhaps ``details``."""

    error: dict[str, Json]
    retry_after_seconds: float | None = None


Outcome: TypeAlias = Completed | Failed


def completed(value: Any, *, target: str, max_bytes: int, in_pieces: bool = False) -> Outcome:
    """Turn what ``target`` returned into its outcome: not JSON, or too much of it, is a failure for good.

    ``in_pieces``: for a large value in a thread beside the loop.
    """
    try:
        output = encode_plain(value, max_bytes=max_bytes, in_pieces=in_pieces)
        if output is None:
            most = min(MAX_VALUES, max_bytes)
            output = encode(to_json(value, max_values=most, max_depth=MAX_DEPTH), max_bytes=max_bytes)
        return Completed(output)
    except PayloadError as error:
        text = bounded_text(error)
        if error.code == "not_json":
            message = f"{target} returned a value that is not JSON: {text}"
            return _failed("output_not_json", cut(message), retryable=False)
        # Nesting is a limit like the size: the value is JSON, there is too much of it.
        return _failed("output_too_large", cut(f"{target} returned too much: {text}"), retryable=False)
    except BaseException as error:
        # A value of a class with methods of its own runs the user's code while it is read.
        message = f"{target} returned a value that cannot be read: {described(error)}"
        return _failed("output_not_json", cut(message), retryable=False)


def where_it_stands(thread_id: int) -> str | None:
    """Return where the user's code in a thread is now, for ``timed_out``; None where none runs there."""
    return stack_of(thread_id)


def timed_out(timeout_seconds: float, stopped: Outcome | None = None, *, stood: str | None = None) -> Failed:
    """Return the failure of a call that took too long.

    ``stopped``: its end, if it ended when asked to. ``stood``: where it was when its time was over.
    """
    details = stopped.error.get("details") if isinstance(stopped, Failed) else None
    trace = (details.get("traceback") if isinstance(details, dict) else None) or stood
    message = f"no result within {timeout_seconds:g} s"
    return _failed("timeout", message, retryable=True, details=_with_traceback(None, trace))


def classify(error: BaseException, *, user_code: bool = True) -> Failed:
    """Return the failure for any exception: code, message, details, and whether another attempt may help.

    ``user_code``: the exception may come from a user's function, so its traceback belongs to the details.
    """
    trace = user_traceback(error) if user_code else None
    if not isinstance(error, HandlerError):
        details = {"type": type_name(error), **_place(error)}
        return _failed(
            "handler_error", described(error), retryable=True, details=_with_traceback(details, trace)
        )
    code = _attribute(error, "code")
    if not isinstance(code, str) or not _CODE.match(code):
        code = "handler_error"
    details = _storable(_attribute(error, "details"))
    floor = _floor(_attribute(error, "retry_after_seconds"))
    if details is None and code == "handler_error":
        own: dict[str, Json] = {"type": type_name(error), **_place(error)}
        if floor is not None:
            # With it `explain` can tell a wait that was asked for from one of the node's backoff.
            own["retry_after_seconds"] = floor
        details = own
    return _failed(
        code,
        bounded_text(error) or type_name(error),
        retryable=_attribute(error, "retryable") is not False,
        details=_with_traceback(details, trace),
        retry_after_seconds=floor,
    )


def described(error: BaseException) -> str:
    """Return an exception's type and text, as in the last line of a traceback."""
    text = bounded_text(error)
    return cut(f"{type_name(error)}: {text}") if text else type_name(error)


def bounded_text(value: object) -> str:
    """Return the text of any object, at most MAX_MESSAGE_BYTES of it, whatever its ``__str__`` does."""
    try:
        return cut(str(value))
    except BaseException:
        return "(its text cannot be made)"


def cut(text: str) -> str:
    """Return text that every store accepts: bounded, without lone surrogates and without NUL."""
    # The slice of str itself gives a plain str, also of a subclass with methods of its own.
    plain = str.__getitem__(text, slice(MAX_MESSAGE_BYTES + 1))
    data = plain.replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace")
    if len(data) <= MAX_MESSAGE_BYTES:
        return data.decode()
    return data[: MAX_MESSAGE_BYTES - 3].decode("utf-8", "ignore") + "…"


def type_name(error: BaseException) -> str:
    try:
        return cut(type(error).__name__[:_MAX_NAME_CHARACTERS])
    except BaseException:  # a metaclass may define __name__ anew
        return "Exception"


def _failed(
    code: str,
    message: str,
    *,
    retryable: bool,
    details: Json = None,
    retry_after_seconds: float | None = None,
) -> Failed:
    error: dict[str, Json] = {"code": code, "message": message, "retryable": retryable}
    if details is not None:
        error["details"] = details
    return Failed(error, retry_after_seconds)


def _place(error: BaseException) -> dict[str, str]:
    """Return the user's innermost line: file name, line and function, without the path of the file."""
    frame = own_frame(error)
    if frame is None:
        return {}
    file, line, function = frame
    return {"at": cut(f"{os.path.basename(file)}:{line} in {function}")}


def _with_traceback(details: Json, trace: str | None) -> Json:
    if trace is None:
        return details
    if isinstance(details, dict):
        return {**details, "traceback": trace}
    # As ``shown_error`` shows details that are no object.
    return {"traceback": trace} if details is None else {"value": details, "traceback": trace}


def _attribute(error: HandlerError, name: str) -> Any:
    """Read an attribute that a user's subclass may have turned into anything."""
    try:
        return getattr(error, name, None)
    except BaseException:
        return None


def _storable(details: Any) -> Json:
    if details is None:
        return None
    try:
        return decode(encode(details, max_bytes=MAX_DETAILS_BYTES))
    except BaseException:
        return None


def _floor(seconds: Any) -> float | None:
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
        return None
    try:
        number = float(seconds)
    except BaseException:  # an integer beyond floats
        return MAX_RETRY_AFTER_SECONDS
    return min(max(number, 0.0), MAX_RETRY_AFTER_SECONDS) if math.isfinite(number) else None
