"""The wire format of messages between processes: MessagePack with a version, payloads in it as they are.

Celery carries JSON alone: there a message is the same structure as JSON, and its bytes are base64.

Messages are not trusted, because anybody who reaches the server may write to a stream. A message that does
not fit raises ValueError, and its reader puts it aside. A task has a signature, which its result must bring
back.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from weft.core.task import Result, Task, Wake

if TYPE_CHECKING:
    from collections.abc import Sequence

# (execution id, generation, node id, attempt) → the signature of that attempt
Signer = Callable[[str, int, str, int], bytes]

_SIGNATURE_BYTES = 16

VERSION = 1
_TASK, _RESULT, _WAKE, _SEVERAL = 0, 1, 2, 3
_KINDS: dict[type, int] = {Task: _TASK, Result: _RESULT, Wake: _WAKE}


class _Envelope(msgspec.Struct, array_like=True, frozen=True, gc=False):
    version: int
    kind: int
    body: msgspec.Raw


_encode = msgspec.msgpack.Encoder().encode
_encode_json = msgspec.json.Encoder().encode
_read_json = msgspec.json.Decoder(tuple[int, int, Task]).decode
_read_envelope = msgspec.msgpack.Decoder(_Envelope).decode
_READERS: dict[int, Callable[[msgspec.Raw], Any]] = {
    kind: msgspec.msgpack.Decoder(type_).decode for type_, kind in _KINDS.items()
}
_START_OF_SEVERAL = _encode((VERSION, _SEVERAL, 0))[:-1]
_READERS[_SEVERAL] = msgspec.msgpack.Decoder(list[bytes]).decode


def pack(message: Task | Result | Wake) -> bytes:
    """Make the bytes of a message."""
    return _encode((VERSION, _KINDS[type(message)], message))


def pack_all(messages: Sequence[bytes]) -> bytes:
    """Make one message of the bytes of several."""
    return messages[0] if len(messages) == 1 else _encode((VERSION, _SEVERAL, messages))


def unpack_task(wire: bytes) -> Task:
    """Read a task; raises ValueError where it is none."""
    task: Task = _unpack(wire, (_TASK,))
    return task


def pack_json(task: Task) -> str:
    """Make the JSON text of a task."""
    return _encode_json((VERSION, _TASK, task)).decode()


def unpack_json(text: str) -> Task:
    """Read a task from JSON; raises ValueError where it is none."""
    try:
        version, kind, task = _read_json(text)
    except (msgspec.MsgspecError, RecursionError, UnicodeEncodeError) as error:
        raise ValueError(f"not a task of weft: {error}") from error
    if version != VERSION or kind != _TASK:
        raise ValueError(f"a message of version {version} and kind {kind}")
    return task


def unpack_message(wire: bytes) -> Result | Wake:
    """Read a result or a wake; raises ValueError where it is neither."""
    message: Result | Wake = _unpack(wire, (_RESULT, _WAKE))
    return message


def unpack_all(wire: bytes) -> list[bytes]:
    """Return the bytes of the messages in one, each to be read by itself; raises ValueError."""
    several: list[bytes] = _unpack(wire, (_SEVERAL,)) if wire.startswith(_START_OF_SEVERAL) else [wire]
    return several


def _unpack(wire: bytes, kinds: tuple[int, ...]) -> Any:
    try:
        envelope = _read_envelope(wire)
        if envelope.version != VERSION or envelope.kind not in kinds:
            raise ValueError(f"a message of version {envelope.version} and kind {envelope.kind}")
        return _READERS[envelope.kind](envelope.body)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ValueError(f"not a message of weft: {error}") from error


def make_signer(key: bytes) -> Signer:
    """Return the signer of a fleet whose processes share a key."""

    def sign(execution_id: str, generation: int, node_id: str, attempt: int) -> bytes:
        # Neither an id nor a node's name can hold a line break.
        about = f"{execution_id}\n{generation}\n{node_id}\n{attempt}".encode()
        return hashlib.blake2b(about, key=key, digest_size=_SIGNATURE_BYTES).digest()

    return sign


def verify(signature: bytes, expected: bytes) -> bool:
    """True if a signature is the expected one; compared in a time that says nothing about them."""
    return hmac.compare_digest(signature, expected)
