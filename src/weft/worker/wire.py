"""Messages between a worker and its child processes: MessagePack, each message with its length first."""

from __future__ import annotations

import struct
import sys
from collections.abc import Sequence  # noqa: TC003 - the decoder reads the annotations
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from weft.core.rows import NodeProgress  # noqa: TC001 - as above
from weft.journal.contract import LogLine  # noqa: TC001 - as above

if TYPE_CHECKING:
    from collections.abc import Iterator

    from weft.handlers.usercode import UserCode

_LENGTH = struct.Struct(">I")


class LoadCode(msgspec.Struct, frozen=True, tag=True):
    """The first message to a child: where to look for modules, and what to load and allow of them."""

    path: list[str]
    modules: tuple[str, ...]
    folders: tuple[str, ...]
    files: tuple[str, ...]
    allow: tuple[str, ...]
    sources: dict[str, bytes]
    max_payload_bytes: int

    @classmethod
    def of(cls, code: UserCode, max_payload_bytes: int) -> LoadCode:
        return cls(
            sys.path,
            code.modules,
            code.folders,
            code.files,
            code.allow,
            dict(code.sources),
            max_payload_bytes,
        )


class Run(msgspec.Struct, frozen=True, tag=True):
    number: int
    handler: str
    config: bytes
    execution_id: str
    node_id: str
    generation: int
    attempt: int
    timeout_seconds: float
    # Of its node alone: a child runs the calls of many.
    secrets: dict[str, str] = {}
    traceparent: str | None = None
    look: int = 0


class StopCall(msgspec.Struct, frozen=True, tag=True):
    number: int


class Facts(msgspec.Struct, frozen=True, tag=True):
    """The facts about an execution in the context of a call, or the reason why they cannot be read."""

    number: int
    payload: bytes | None = None
    problem: str = ""


class Probe(msgspec.Struct, frozen=True, tag=True):
    """Is your loop running? Answered by the loop itself."""


class Ready(msgspec.Struct, frozen=True, tag=True):
    """The child has loaded what it could."""


class CallTarget(msgspec.Struct, frozen=True, tag=True):
    """Said once, when a target is first called: whether it shares its process well, and its code."""

    name: str
    is_coroutine: bool
    # ``code_digest``; "": not known.
    code: str = ""


class AskFacts(msgspec.Struct, frozen=True, tag=True):
    """A function asks its context for something of the execution."""

    number: int


class Ended(msgspec.Struct, frozen=True, tag=True):
    """An output, or an error; both JSON, whose integers are longer than MessagePack's."""

    number: int
    output: bytes | None = None
    error: bytes | None = None
    retry_after_seconds: float | None = None
    # The child holds so much that it should run no more calls.
    should_recycle: bool = False


class Output(msgspec.Struct, frozen=True, tag=True):
    """Lines that a call has printed and logged since the last such message, and how far it says it is."""

    number: int
    lines: Sequence[LogLine]
    progress: NodeProgress | None = None


class Stack(msgspec.Struct, frozen=True, tag=True):
    """Where a plain function stood when it was asked to stop."""

    number: int
    text: str


class Alive(msgspec.Struct, frozen=True, tag=True):
    pass


ToChild: TypeAlias = LoadCode | Run | StopCall | Facts | Probe
ToParent: TypeAlias = Ready | CallTarget | AskFacts | Output | Stack | Ended | Alive

_ENCODER = msgspec.msgpack.Encoder()
to_child = msgspec.msgpack.Decoder(LoadCode | Run | StopCall | Facts | Probe)
to_parent = msgspec.msgpack.Decoder(Ready | CallTarget | AskFacts | Output | Stack | Ended | Alive)


def frame(message: ToChild | ToParent) -> bytes:
    body = _ENCODER.encode(message)
    return _LENGTH.pack(len(body)) + body


class Frames:
    """Bytes in as they come, whole messages out."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Add the bytes that were read, and yield each whole message; an absurd length raises ValueError."""
        buffer = self._buffer
        buffer += data
        start = 0
        try:
            while len(buffer) - start >= _LENGTH.size:
                (length,) = _LENGTH.unpack_from(buffer, start)
                if length > self._max_bytes:
                    raise ValueError(f"a message of {length:,} bytes; the limit is {self._max_bytes:,}")
                end = start + _LENGTH.size + length
                if len(buffer) < end:
                    break
                body = bytes(buffer[start + _LENGTH.size : end])
                start = end
                yield body
        finally:
            del buffer[:start]
