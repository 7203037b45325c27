"""How the hot state of an execution lies in its hash: what Lua packs is read here, and the other way round.

Lua sees the numbers that guard and count (``state.lua`` says which); rows are opaque to it. They are packed
as arrays in the order of their fields: a field may be added at the end, with a default.
"""

from __future__ import annotations

import struct
from operator import attrgetter
from typing import Any

import msgspec

from weft.core.row import ExecutionRow, NodeRow
from weft.core.state import ExecutionState, NodeState

META = struct.Struct("<cIIdIIIIIIIIIIddd")
_NODE = struct.Struct("<cBIIIII")
_ONE_TIME = struct.Struct("<d")
_WAITING = struct.Struct("<dI")
_IN_HAND = struct.Struct("<dddI")
_OUTCOME = struct.Struct("<cc")
_LENGTH = struct.Struct("<I")

PHASES = {
    b"w": "waiting",
    b"f": "free",
    b"n": "lined",
    b"q": "queued",
    b"r": "running",
    b"p": "reported",
    b"l": "limbo",
    b"t": "timer",
}
# What an execution's state is to the store: it may run, it is paused, or it is terminal.
STATES = {
    ExecutionState.PENDING: b"r",
    ExecutionState.RUNNING: b"r",
    ExecutionState.PAUSED: b"p",
    ExecutionState.COMPLETED: b"t",
    ExecutionState.FAILED: b"t",
    ExecutionState.CANCELLED: b"t",
}
_LETTERS = {
    NodeState.COMPLETED: b"C",
    NodeState.FAILED: b"F",
    NodeState.SKIPPED: b"S",
    NodeState.CANCELLED: b"X",
}
# An outcome over this size has its output in a field of its own: scripts look at outcomes, not at outputs.
INLINE_OUTPUT_BYTES = 1024

_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder().decode

_NODE_FIELDS = NodeRow.__struct_fields__[1:]  # without its name
_node_values = attrgetter(*_NODE_FIELDS)
_STATE, _OUTPUT = _NODE_FIELDS.index("state"), _NODE_FIELDS.index("output")
# What is not in an execution's row: its name, what has a field of its own, what only a rebuild asks for.
_APART = ("id", "digest", "input", "halt")
_EXECUTION_FIELDS = tuple([name for name in ExecutionRow.__struct_fields__ if name not in _APART])
_execution_values = attrgetter(*_EXECUTION_FIELDS)
_EXECUTION_STATE = _EXECUTION_FIELDS.index("state")


class Meta(msgspec.Struct, frozen=True, gc=False):
    """The numbers of an execution that those who only look on ask for."""

    state: bytes
    generation: int
    epoch: int
    places: int
    running: int
    delayed: int
    unsettled: int
    updated_at: int
    token: bytes

    @property
    def is_live(self) -> bool:
        return self.state in b"rpt"


def read_meta(packed: bytes) -> Meta:
    values = META.unpack_from(packed)
    state, generation, epoch, _, _, places, running, delayed, unsettled = values[:9]
    return Meta(
        *(state, generation, epoch, places, running, delayed, unsettled),
        *(int(values[15]), packed[META.size :]),
    )


def holder(nonce: str, worker: str) -> bytes:
    """Say who has an attempt in hand, as scripts compare it and records end with it."""
    name = nonce.encode()
    return _LENGTH.pack(len(name)) + name + worker.encode()


class Record(msgspec.Struct, frozen=True, gc=False):
    """An unsettled node as it lies in the hash."""

    phase: bytes
    released: bool
    has_view: bool
    attempt: int
    failures: int
    losses: int
    issued: int
    rest: bytes

    @property
    def due_at(self) -> int | None:
        """Until when a timer runs for it."""
        return int(_ONE_TIME.unpack_from(self.rest)[0]) if self.phase == b"t" else None

    @property
    def queued_at(self) -> int | None:
        return int(_ONE_TIME.unpack_from(self.rest)[0]) if self.phase in b"qrp" else None

    @property
    def entry(self) -> tuple[str, str] | None:
        """Of a queued node: the id of its task's entry, and its lane; None: not sent with the move."""
        if self.phase != b"q" or len(self.rest) == _ONE_TIME.size:
            return None
        entry, _, lane = self.rest[_ONE_TIME.size :].decode().partition(" ")
        return entry, lane

    @property
    def started_at(self) -> int | None:
        return int(_IN_HAND.unpack_from(self.rest)[1]) if self.phase in b"rp" else None

    @property
    def worker(self) -> str | None:
        if self.phase not in b"rp":
            return None
        return self.rest[_IN_HAND.size + _IN_HAND.unpack_from(self.rest)[3] :].decode()

    @property
    def bits(self) -> bytes:
        """Of a waiting node: a bit for each parent that has settled; none yet, nothing."""
        return self.rest[_WAITING.size :]


def read_record(packed: bytes) -> Record:
    phase, flags, attempt, failures, losses, issued, _ = _NODE.unpack_from(packed)
    return Record(
        phase, flags & 1 == 1, flags & 2 == 2, attempt, failures, losses, issued, packed[_NODE.size :]
    )


def pack_waiting(
    *, attempt: int, not_before: int, failures: int, losses: int, issued: int, arrived: int, bits: bytes
) -> bytes:
    """Make the record of a node that waits for parents."""
    return (
        _NODE.pack(b"w", 0, attempt, failures, losses, issued, 0) + _WAITING.pack(not_before, arrived) + bits
    )


def bits_of(positions: list[int], size: int) -> bytes:
    """Make a bit for each of so many parents; those at ``positions`` are set."""
    made = bytearray((size + 7) // 8)
    for position in positions:
        made[position >> 3] |= 1 << (position & 7)
    return bytes(made)


def is_set(bits: bytes, position: int) -> bool:
    return bool(bits) and bits[position >> 3] >> (position & 7) & 1 == 1


def pack_outcome(row: NodeRow, *, keep_output: bool) -> tuple[bytes, bytes]:
    """Make what is kept of a settled node, and its output where that goes into a field of its own."""
    output = row.output
    assert row.state is not None
    head = _OUTCOME.pack(b"S", _LETTERS[row.state])
    if output is not None and (not keep_output or len(output) > INLINE_OUTPUT_BYTES):
        values = list(_node_values(row))
        values[_OUTPUT] = None
        return head + _pack(values), output if keep_output else b""
    return head + _pack(_node_values(row)), b""


def is_outcome(packed: bytes) -> bool:
    return packed[:1] == b"S"


def read_outcome(node_id: str, packed: bytes, output: bytes | None) -> NodeRow:
    values: list[Any] = _unpack(memoryview(packed)[_OUTCOME.size :])
    values[_STATE] = NodeState(values[_STATE])
    if output is not None:
        values[_OUTPUT] = output
    return NodeRow(node_id=node_id, **dict(zip(_NODE_FIELDS, values, strict=False)))


def pack_execution(row: ExecutionRow) -> bytes:
    return _pack(_execution_values(row))


def read_execution(execution_id: str, packed: bytes, *, digest: str, given: bytes) -> ExecutionRow:
    """Make an execution's row of what is kept of it; ``given`` is its input."""
    values: list[Any] = _unpack(packed)
    values[_EXECUTION_STATE] = ExecutionState(values[_EXECUTION_STATE])
    fields = dict(zip(_EXECUTION_FIELDS, values, strict=False))
    return ExecutionRow(id=execution_id, digest=digest, input=given, **fields)
