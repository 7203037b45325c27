"""Parses server-sent events from a stream of bytes, however the stream is cut into pieces."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, slots=True)
class ServerSentEvent:
    data: str
    event: str = "message"
    id: str | None = None


@dataclass(slots=True)
class EventReader:
    """Takes pieces of a stream, and gives the events that are whole. One cut off at the end is none."""

    _rest: bytes = b""
    _data: list[str] = field(default_factory=list)
    _event: str = "message"
    _id: str | None = None

    def read(self, piece: bytes) -> Iterator[ServerSentEvent]:
        # A line ends with LF or CRLF. (The standard also knows CR alone, which nobody writes.)
        *lines, self._rest = (self._rest + piece).split(b"\n")
        for raw in lines:
            line = raw.removesuffix(b"\r").decode(errors="replace")
            if not line:
                if self._data:
                    yield ServerSentEvent("\n".join(self._data), self._event, self._id)
                self._data, self._event, self._id = [], "message", None
                continue
            name, _, value = line.partition(":")
            value = value.removeprefix(" ")
            match name:
                case "data":
                    self._data.append(value)
                case "event":
                    self._event = value
                case "id":
                    self._id = value
                case _:  # a comment, whose name is empty, or what is not ours to know
                    pass
