"""The place of an execution in a distributed trace: W3C Trace Context, and ids that follow from names.

The ids of spans are made from what the spans stand for, so none has to be stored or sent. Whoever commits the
same end again, or runs on after a crash, names the same span.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from weft.core.rows import ExecutionRow

# A later version may have more behind the flags.
_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.ASCII)
_SAMPLED, _RANDOM = 1, 2


class SpanContext(msgspec.Struct, frozen=True, gc=False):
    """A span as others refer to it: the ids in lowercase hexadecimal, and the flags of its trace."""

    trace_id: str
    span_id: str
    flags: int

    @property
    def is_sampled(self) -> bool:
        return bool(self.flags & _SAMPLED)

    @property
    def traceparent(self) -> str:
        """The header that carries it."""
        return f"00-{self.trace_id}-{self.span_id}-{self.flags:02x}"


def read_traceparent(text: str | None) -> SpanContext | None:
    """Read a ``traceparent``; None where there is none, or where W3C says to go on as if there were none."""
    found = None if text is None else _TRACEPARENT.fullmatch(text.strip(" \t"))
    if found is None:
        return None
    version, trace_id, span_id, flags, rest = found.groups()
    if version == "ff" or (version == "00" and rest) or not trace_id.strip("0") or not span_id.strip("0"):
        return None
    return SpanContext(trace_id, span_id, int(flags, 16) & (_SAMPLED | _RANDOM))


def own_trace_id(execution_id: str) -> str:
    """Return the id of the trace that begins with an execution."""
    return _digest(execution_id, size=16)


def trace_of(execution: ExecutionRow) -> tuple[str, SpanContext | None]:
    """Return the id of the trace that an execution's spans are in, and its caller's span.

    An execution of a batch has a trace of its own, which is linked to the caller's span: a batch of ten
    thousand would be one trace that nobody could read.
    """
    caller = read_traceparent(execution.traceparent)
    if caller is None or execution.batch is not None:
        return own_trace_id(execution.id), caller
    return caller.trace_id, caller


def span_of_execution(execution: ExecutionRow, *, is_sampled: bool) -> SpanContext:
    """Return the span of an execution's current generation."""
    trace_id, _ = trace_of(execution)
    return SpanContext(trace_id, execution_span_id(execution.id, execution.generation), int(is_sampled))


def shown_trace_id(execution: ExecutionRow, *, is_exported: bool) -> str | None:
    """Return the trace id by which people find an execution's spans; None: no span of it is anywhere.

    ``is_exported``: whether this process exports spans.
    """
    return trace_of(execution)[0] if is_exported or execution.traceparent is not None else None


def execution_span_id(execution_id: str, generation: int) -> str:
    """Return the id of the span of an execution, one for each generation."""
    return _digest(execution_id, generation, size=8)


def attempt_span_id(execution_id: str, generation: int, node_id: str, attempt: int) -> str:
    """Return the id of the span of an attempt."""
    return _digest(execution_id, generation, node_id, attempt, size=8)


def random_span_id() -> str:
    """Return an id for a span that no other span names, such as that of a call."""
    return secrets.token_hex(8)


def _digest(*names: str | int, size: int) -> str:
    # Neither an id nor a node's name can hold a line break.
    return hashlib.blake2b("\n".join(map(str, names)).encode(), digest_size=size).hexdigest()
