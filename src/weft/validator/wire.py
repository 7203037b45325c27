"""Messages to and from a process that checks values: MessagePack, with the length first."""

from __future__ import annotations

import struct
from enum import StrEnum
from typing import TYPE_CHECKING, TypeVar

import msgspec

if TYPE_CHECKING:
    import socket

# What a question may take: a schema's patterns may take half of the time, and a value of 16 MiB a quarter.
CPU_SECONDS = 2.0
MEMORY_BYTES = 512 * 1024 * 1024

_LENGTH = struct.Struct(">Q")

T = TypeVar("T")


class CheckKind(StrEnum):
    """The question about the values."""

    # All faults.
    VALUE = "value"
    # The faults of a config whatever its templates become.
    UNFILLED = "unfilled"
    # The first fault, without a word of the value: it holds secrets.
    MASKED = "masked"


class CheckRequest(msgspec.Struct, frozen=True):
    kind: CheckKind
    schema: bytes
    payloads: list[bytes]
    cpu_seconds: float = CPU_SECONDS


class CheckerReady(msgspec.Struct, frozen=True):
    """The process has loaded what it needs."""


class Faults(msgspec.Struct, frozen=True):
    """The faults of each payload: pointer and message."""

    faults: list[list[tuple[str, str]]]


_ENCODER = msgspec.msgpack.Encoder()
questions = msgspec.msgpack.Decoder(CheckRequest)
ready = msgspec.msgpack.Decoder(CheckerReady)
answers = msgspec.msgpack.Decoder(Faults)


def send(channel: socket.socket, message: CheckRequest | CheckerReady | Faults) -> None:
    body = _ENCODER.encode(message)
    channel.sendall(_LENGTH.pack(len(body)))
    channel.sendall(body)


def receive(channel: socket.socket, decoder: msgspec.msgpack.Decoder[T]) -> T:
    """Read one message; raises EOFError where the other side has gone."""
    (length,) = _LENGTH.unpack(_read(channel, _LENGTH.size))
    return decoder.decode(_read(channel, length))


def _read(channel: socket.socket, count: int) -> bytearray:
    data = bytearray(count)
    view = memoryview(data)
    while view:
        read = channel.recv_into(view)
        if not read:
            raise EOFError
        view = view[read:]
    return data
