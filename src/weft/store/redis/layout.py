"""The layout of the hot state on Redis: every key, field, letter and pattern, written once.

``CONSTANTS`` is the only place. The Lua scripts have no literal of their own: ``script`` writes the value of
a constant wherever a script names it, and the functions below read and make the same fields in Python.

An execution is one hash of plain fields:

====================  ========================================================================================
``!``                 the fence: ``generation:incarnation:epoch:state``; of a closed execution, a tombstone
``x``                 what changes of the journal's row: ``seq deadline unsettled rest``, the rest opaque
``w``                 what does not change of it, opaque
``h``                 ``window digest``: how many tasks may be in flight, and the plan
``i``                 the input, where it is small
``c``                 one number: the nodes in flight, ``IN_HAND`` times those in a worker's hand, and
                      ``DELAYED`` times those that wait for a timer or a token. A parked node counts as in
                      hand, and besides as in flight where it takes a slot, else as delayed
``F`` ``F<n>``        the free nodes, in the order in which they became free: first and last piece, the pieces
``.<node>``           a node, see below; a node without a field waits for all its parents
``o.<node>``          the output of a settled node, where it is large
``v.<node>``          what a node sees, where that is not all it asks for: ``bits,bits…;.node,.node…``
``b<n>.<node>``       which parents of a wide join have settled: one piece of the bits
====================  ========================================================================================

A node's field is one of:

- ``S…``: settled, then the journal's row, opaque;
- ``bits`` or ``bits attempt:kept:not before``: it waits. A set bit is a parent that has settled; a join of
  more than ``PIECE_BITS`` parents counts the complete pieces of its bits here;
- ``<phase><attempt>:<kept>:<rest>``, where ``kept`` is empty or ``failures,losses,issued`` and flags, and

  ===============  ==================================================
  ``f`` free       the piece of the list that it is in
  ``n`` throttled  nothing
  ``t`` timer      when it is due
  ``q`` queued     when it was queued; where the store sent its task: the id of its entry, a space, its lane
  ``r`` running    queued at, started at, worker, nonce and its length
  ``p`` parked     when it is due (0: never), when it started, and 1 where it takes a concurrency slot, 2
                   where it waits: then it takes none, has no timer, and counts nowhere
  ``l`` orphaned   nothing
  ===============  ==================================================
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from weft.core.rows import ExecutionRow, NodeRow
from weft.core.state import ExecutionState, NodeState
from weft.core.time import micros
from weft.redis.keys import Keys
from weft.redis.script import Script, make_script
from weft.store.contract import PARKED_AGAIN_SECONDS, PARKED_LISTED_SECONDS, Answer

if TYPE_CHECKING:
    from weft.definition.plan import Plan

_KEYS = Keys()
CONSTANTS: dict[str, str | int] = {
    # Answers; the last two are a yes to the end of what was not there, and a start that has to wait.
    "YES": 1,
    "REFUSED": 2,
    "NO_SLOT": 3,
    "UNKNOWN": 4,
    "PAUSED": 5,
    "WAS_GONE": 6,
    # The keys of a partition that every script is given, in this order.
    "INCARNATION_KEY": 1,
    "LEASES_KEY": 2,
    "TIMERS_KEY": 3,
    "FREE_KEY": 4,
    "ACTIVE_KEY": 5,
    "UNSETTLED_KEY": 6,
    "LANES_KEY": 7,
    # Behind them, where a script has keys of its own: streams, and what a sweep or an incarnation asks for.
    "OWN_KEY": 8,
    # Where the id begins in the key of an execution, counted from the end of the incarnation's key; and the
    # lane in the key of its stream, counted from the end of the key of all lanes.
    "ID_FROM": len(_KEYS.executions) - len(_KEYS.incarnation_id) + 1,
    "LANE_FROM": len(_KEYS.tasks) - len(_KEYS.lanes) + 1,
    # Fields of an execution's hash.
    "FENCE": "!",
    "ROW": "x",
    "FIXED": "w",
    "PLAN": "h",
    "INPUT": "i",
    "COUNTS": "c",
    "FREE_LIST": "F",
    "NODE": ".",
    "OUTPUT": "o",
    "VIEW": "v",
    "PIECE": "b",
    # The fields that are read of every execution, and the parts of its counts: an execution has fewer nodes.
    "FIXED_FIELDS": 4,
    "IN_HAND": 2**18,
    # An execution that has so many tasks in flight sends more of them by the crowded lane beside the plain
    # one: as many as one worker has slots by default, so what fits into a worker never stands behind others.
    "CROWD": 64,
    "DELAYED": 2**36,
    # The member of every sorted set that is lost with the set.
    "SENTINEL": "!",
    # States of an execution.
    "OPEN": "r",
    "HALTED": "p",
    "TERMINAL": "t",
    "INSTALLING": "i",
    "CLOSED": "c",
    # Phases of a node; a waiting one begins with a digit.
    "FREE": "f",
    "THROTTLED": "n",
    "TIMER": "t",
    "QUEUED": "q",
    "RUNNING": "r",
    "PARKED": "p",
    "ORPHANED": "l",
    "WAITING": "w",
    "SETTLED": "S",
    # Flags in what is kept of a node: a token of its tag is reserved for it; its view is written down.
    "RELEASED": "r",
    "VIEWED": "v",
    "NOTHING_KEPT": "0,0,0",
    # In an apply: an unsettled row, one of a parked node, an output that has a field of its own, what is to
    # be said of free nodes.
    "UNIT_UNSETTLED": "u",
    "UNIT_PARKED": "p",
    "WITH_OUTPUT": "+",
    "GIVES_NOTHING": "0",
    "GIVES_FREE": "1",
    "GIVES_ALL": "2",
    # What a sweep looks at, and what it finds.
    "SEEN_TIMER": "t",
    "SEEN_LEASE": "l",
    "SEEN_FREE": "f",
    "NOTHING": 0,
    "WOKEN": 1,
    "DEADLINE": 2,
    "EXPIRED": 3,
    "PARKED_DUE": 4,
    # Separators.
    "COLON": ":",
    "COMMA": ",",
    "SPACE": " ",
    "SEMICOLON": ";",
    "EMPTY": "",
    "NO_TIME": "0",
    "FIRST_ATTEMPT": "1",
    "EARLY": "1",
    "MAY_BE_IN_HAND": "1",
    # Of a ready node that is parked, in the place of the former.
    "IS_PARKED": "2",
    "TAKES_SLOT": "1",
    "WAITS": "2",
    "PARKED_AGAIN": micros(PARKED_AGAIN_SECONDS),
    "PARKED_LISTED": micros(PARKED_LISTED_SECONDS),
    # The incarnation of the database, as ``hello.lua`` of the connection keeps it.
    "DATABASE_ID": "id",
    "DATABASE_LINE": "line",
    "DATABASE_STARTED": "started",
    "DATABASE_POSITION": "position",
    "DATABASE_BEGAN": "began",
    # Fields of a stream's entry: the message, and when a task was queued.
    "MESSAGE": "m",
    "QUEUED_AT": "q",
    # Patterns of Lua.
    "FENCE_PATTERN": "^(%d+):(.*):(%d+):(%a)$",
    "ROW_PATTERN": "^(%d+) (%d+) (%d+) ()",
    "PLAN_PATTERN": "^(%d+) ",
    "NODE_PATTERN": "^([fntqrpl])(%d+):([^:]*):(.*)$",
    "ATTEMPT_PATTERN": "^%a(%d+):",
    "WAITING_PATTERN": "^(%d+) (%d+):([^:]*):(%d+)$",
    "KEPT_PATTERN": "^(%d+),(%d+),(%d+)(%a*)$",
    "BOUNDS_PATTERN": "^(%d+):(%d+)$",
    "NAMES_PATTERN": "[^,]+",
    "HEAD_PATTERN": "^(%d*):(%d*):(%a) (%d+) (%d+) (%d+) (%d)$",
    "INSTALL_PATTERN": "^(%d+):(%d+):(%a) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+)$",
    "READY_PATTERN": "^(%S+) (%d+) (%S*) (%d+) (%d) ?(%S*)$",
    "PARKED_PATTERN": "^(%d+):(%d+):(%d)$",
    "PARKED_UNIT_PATTERN": "^(%d+):([^:]*):(%d+):(.*)$",
    "TIMER_UNIT_PATTERN": "^[^:]+:$",
    "TASK_PATTERN": "^(%d+) (%d+) (.+)$",
    "CHILD_PATTERN": "([^ +]+) (%d+) (%d+) ([^/]*)/",
    "UNSETTLED_PATTERN": "^(%d+):([^:]*):(%d+):(%d+)$",
    "MORE_PATTERN": "^(%d);(%d*);(%d*);(.*)$",
    "FIRST_NUMBER": "^(%d+)",
    "LAST_NUMBER": ":(%d+)$",
    "UPTO_QUEUED": "^%a%d+:[^:]*:%d+():",
    "RUN_ID_PATTERN": "run_id:(%x+)",
    "WHOLE": "%.0f",
    "BELOW": "(%.0f",
    "SWEPT": "%.0f %.0f",
    "SWEPT_PATTERN": "^(%d+) (%d+)$",
    # An execution's hash, or a field of it, that no release of weft has written.
    "POISON": "poison",
    # A piece of the free list that is longer than this is full; a call is given no more values at once.
    "PIECE_BYTES": 2048,
    "MOST_VALUES": 1000,
}
# The bits of one piece: Lua's are 32, with a sign.
PIECE_BITS = 31

ANSWERS = {
    CONSTANTS["YES"]: Answer.YES,
    CONSTANTS["REFUSED"]: Answer.REFUSED,
    CONSTANTS["NO_SLOT"]: Answer.NO_SLOT,
    CONSTANTS["UNKNOWN"]: Answer.UNKNOWN,
    CONSTANTS["WAS_GONE"]: Answer.YES,
}
REFUSED, UNKNOWN, PAUSED, WAS_GONE = (
    CONSTANTS[name] for name in ("REFUSED", "UNKNOWN", "PAUSED", "WAS_GONE")
)
# The phases as the scripts name them, and as ``NodeStatus`` does.
PHASES = {
    str(CONSTANTS[name]): name.lower()
    for name in ("FREE", "THROTTLED", "TIMER", "QUEUED", "RUNNING", "PARKED", "ORPHANED")
}
STATES = {
    ExecutionState.PENDING: CONSTANTS["OPEN"],
    ExecutionState.RUNNING: CONSTANTS["OPEN"],
    ExecutionState.PAUSED: CONSTANTS["HALTED"],
    ExecutionState.COMPLETED: CONSTANTS["TERMINAL"],
    ExecutionState.FAILED: CONSTANTS["TERMINAL"],
    ExecutionState.CANCELLED: CONSTANTS["TERMINAL"],
}
# An outcome over this size has its output in a field of its own: scripts look at outcomes, not at outputs.
INLINE_OUTPUT_BYTES = 1024

_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder().decode

_NODE_FIELDS = NodeRow.__struct_fields__[1:]  # without its name
_node_values = attrgetter(*_NODE_FIELDS)
_STATE, _OUTPUT = _NODE_FIELDS.index("state"), _NODE_FIELDS.index("output")
# Of an execution's row: what changes while it is in the store, and what does not. Its name, what has a field
# of its own, and what only a rebuild asks for are in neither; seq, deadline and unsettled stand in front.
_CHANGING = ("state", "failed", "skipped", "cancelled", "started_at", "updated_at")
_APART = ("id", "digest", "input", "halt", "seq", "deadline_at", "unsettled")
_FIXED = tuple([name for name in ExecutionRow.__struct_fields__ if name not in _CHANGING + _APART])
_changing_values, _fixed_values = attrgetter(*_CHANGING), attrgetter(*_FIXED)
_UPDATED_AT = _CHANGING.index("updated_at")

_IN_HAND, _DELAYED = int(CONSTANTS["IN_HAND"]), int(CONSTANTS["DELAYED"])
_SETTLED = str(CONSTANTS["SETTLED"]).encode()
_NODE, _OF_OUTPUT, _OF_VIEW, _OF_PIECE = (
    str(CONSTANTS[name]) for name in ("NODE", "OUTPUT", "VIEW", "PIECE")
)
_RELEASED, _VIEWED = (str(CONSTANTS[name]).encode() for name in ("RELEASED", "VIEWED"))


def _expression(constant: str) -> re.Pattern[bytes]:
    """Make the expression of a pattern of Lua."""
    text = str(CONSTANTS[constant]).replace("%d", "[0-9]").replace("%a", "[A-Za-z]")
    return re.compile(text.encode(), re.DOTALL)


_FENCE_FIELD, _NODE_FIELD, _WAITING_FIELD, _KEPT = (
    _expression(name) for name in ("FENCE_PATTERN", "NODE_PATTERN", "WAITING_PATTERN", "KEPT_PATTERN")
)


class PoisonError(ValueError):
    """An execution's hash holds what no release of weft has written: it is dropped, and built anew."""


# A constant's name that stands for itself: no part of another name, and not in quotes.
_CONSTANT = re.compile(rf"(?<!')\b(?:{'|'.join(CONSTANTS)})\b(?!')")


@cache
def script(name: str, *libraries: str) -> Script:
    """Read ``lua/NAME.lua`` behind the libraries that it builds on, with its constants written out.

    A constant as a local variable would be captured by every function that names it, at every call.
    """
    folder = files("weft.store.redis") / "lua"
    parts = [folder / "lib" / f"{library}.lua" for library in libraries]
    source = "\n".join([part.read_text(encoding="utf-8") for part in (*parts, folder / f"{name}.lua")])
    code = re.sub(r"--[^\n]*", "", source)
    return make_script(name, _CONSTANT.sub(lambda found: _lua(CONSTANTS[found[0]]), code).encode())


def _lua(value: str | int) -> str:
    return str(value) if isinstance(value, int) else f"'{value}'"


class Fence(msgspec.Struct, frozen=True, gc=False):
    """The fencing token of an execution: the generation and the epoch that its hash holds, and the state."""

    generation: int
    incarnation_id: bytes
    epoch: int
    state: str

    @property
    def is_live(self) -> bool:
        return self.state not in (CONSTANTS["CLOSED"], CONSTANTS["INSTALLING"])

    def is_same_epoch(self, other: Fence | ExecutionRow) -> bool:
        return self.generation == other.generation and self.epoch == other.epoch


def read_fence(value: bytes) -> Fence:
    found = _FENCE_FIELD.fullmatch(value)
    if found is None:
        raise PoisonError("the fence of an execution is unreadable")
    generation, incarnation_id, epoch, state = found.groups()
    return Fence(int(generation), incarnation_id, int(epoch), state.decode())


def node_field(node_id: str) -> str:
    return _NODE + node_id


def output_field(node_id: str) -> str:
    return _OF_OUTPUT + _NODE + node_id


def view_field(node_id: str) -> str:
    return _OF_VIEW + _NODE + node_id


def piece_field(piece: int, node_id: str) -> str:
    return f"{_OF_PIECE}{piece}{_NODE}{node_id}"


def lease_member(execution_id: str, node_id: str, attempt: int) -> str:
    """Return the member of the sorted set of leases that stands for an attempt."""
    return f"{_NODE}{node_id}:{attempt}:{execution_id}"


def holder(nonce: str, worker: str) -> str:
    """Return the end of the field of a running node: the worker, the nonce, and its length behind it."""
    return f":{worker}:{nonce}:{len(nonce) if nonce.isascii() else len(nonce.encode())}"


def kept(row: NodeRow, *, flags: str = "") -> str:
    """Return what a node's field keeps of its row."""
    if not (row.failures or row.losses or row.issued or flags):
        return ""
    return f"{row.failures},{row.losses},{row.issued}{flags}"


def parked_rest(row: NodeRow, plan: Plan) -> str:
    """Return the end of a parked node's field: when it is due, when it started, whether it takes a slot."""
    assert row.parked is not None
    if row.parked.wait is not None:
        takes = CONSTANTS["WAITS"]
    else:
        # Only a limit that its workflow asks for counts a node that no worker has in hand.
        takes = int(plan.definition.max_concurrency is not None)
    return f"{row.parked.due_at or 0}:{row.started_at or 0}:{takes}"


class LiveNode(msgspec.Struct, frozen=True, gc=False):
    """An unsettled node that something has happened to."""

    phase: str
    attempt: int
    failures: int = 0
    losses: int = 0
    issued: int = 0
    released: bool = False
    has_view: bool = False
    # Of a waiting one: the bits of the parents that have settled, or how many pieces are complete.
    number: int = 0
    due_at: int | None = None
    queued_at: int | None = None
    started_at: int | None = None
    worker: str | None = None
    # Of a queued one: the id of its task's entry, and its lane; None: the store has not sent it.
    entry: tuple[str, str] | None = None


def is_outcome(value: bytes) -> bool:
    return value[:1] == _SETTLED


def read_node(value: bytes) -> LiveNode:
    """Read a node's field; raises PoisonError where it is none of an unsettled node."""
    found = _NODE_FIELD.fullmatch(value)
    if found is None:
        waiting = _WAITING_FIELD.fullmatch(value)
        if waiting is not None:
            return LiveNode("waiting", int(waiting[2]), number=int(waiting[1]))
        if not value.isdigit():
            raise PoisonError("the field of a node is unreadable")
        return LiveNode("waiting", 1, number=int(value))
    letter, attempt, kept_, rest = found.groups()
    phase = PHASES[letter.decode()]
    failures = losses = issued = 0
    flags = b""
    if kept_:
        numbers = _KEPT.fullmatch(kept_)
        if numbers is None:
            raise PoisonError("what is kept of a node is unreadable")
        failures, losses, issued = int(numbers[1]), int(numbers[2]), int(numbers[3])
        flags = numbers[4]
    due_at: int | None = None
    queued_at: int | None = None
    started_at: int | None = None
    worker: str | None = None
    entry: tuple[str, str] | None = None
    try:
        if phase == "timer":
            due_at = int(rest)
        elif phase == "parked":
            due, started, _ = rest.split(b":")
            due_at, started_at = int(due) or None, int(started)
            queued_at = started_at
        elif phase == "queued":
            queued, _, sent = rest.partition(b":")
            queued_at = int(queued)
            if sent:
                name, _, lane = sent.decode().partition(" ")
                entry = (name, lane)
        elif phase == "running":
            queued, started, held = rest.split(b":", 2)
            queued_at, started_at = int(queued), int(started)
            held, _, length = held.rpartition(b":")
            worker = held[: len(held) - int(length) - 1].decode()
    except ValueError:  # also of text that is no UTF-8
        raise PoisonError("the field of a node is unreadable") from None
    return LiveNode(
        phase,
        int(attempt),
        failures,
        losses,
        issued,
        _RELEASED in flags,
        _VIEWED in flags,
        due_at=due_at,
        queued_at=queued_at,
        started_at=started_at,
        worker=worker,
        entry=entry,
    )


def pack_outcome(row: NodeRow, *, keep_output: bool) -> tuple[bytes, bytes | None]:
    """Return the field of a settled node, and its output where that has a field of its own."""
    output = row.output
    if output is not None and (not keep_output or len(output) > INLINE_OUTPUT_BYTES):
        values = list(_node_values(row))
        values[_OUTPUT] = None
        return _SETTLED + _pack(values), output if keep_output else None
    return _SETTLED + _pack(_node_values(row)), None


def read_outcome(node_id: str, value: bytes, output: bytes | None) -> NodeRow:
    try:
        values: list[Any] = _unpack(memoryview(value)[1:])
        values[_STATE] = NodeState(values[_STATE])
        if output is not None:
            values[_OUTPUT] = output
        return NodeRow(node_id=node_id, **dict(zip(_NODE_FIELDS, values, strict=False)))
    except (msgspec.MsgspecError, ValueError, TypeError, IndexError) as error:
        raise PoisonError(f"the row of node {node_id} is unreadable") from error


def row_value(row: ExecutionRow) -> bytes:
    """Make the field of what changes of an execution's row."""
    return b"%d %d %d %b" % (row.seq, row.deadline_at or 0, row.unsettled, _pack(_changing_values(row)))


def fixed_value(row: ExecutionRow) -> bytes:
    """Make the field of what does not change of an execution's row."""
    return _pack(_fixed_values(row))


def _changes(value: bytes) -> dict[str, Any]:
    seq, deadline, unsettled, packed = value.split(b" ", 3)
    fields = dict(zip(_CHANGING, _unpack(packed), strict=True))
    fields["state"] = ExecutionState(fields["state"])
    return {**fields, "seq": int(seq), "deadline_at": int(deadline) or None, "unsettled": int(unsettled)}


def read_row(
    execution_id: str, value: bytes, fixed: bytes | None, *, digest: str, given: bytes
) -> ExecutionRow:
    """Read an execution's row from its two fields; ``given`` is its input."""
    try:
        fields = dict(zip(_FIXED, _unpack(fixed or b""), strict=False))
        return ExecutionRow(id=execution_id, digest=digest, input=given, **fields, **_changes(value))
    except (msgspec.MsgspecError, ValueError, TypeError, IndexError) as error:
        raise PoisonError(f"the row of execution {execution_id} is unreadable") from error


def with_changes(row: ExecutionRow, value: bytes) -> ExecutionRow:
    """Return a row with what the store has of it where that is newer."""
    try:
        return replace(row, halt=None, **_changes(value))
    except (msgspec.MsgspecError, ValueError, TypeError) as error:
        raise PoisonError(f"the row of execution {row.id} is unreadable") from error


def read_progress(value: bytes) -> tuple[int, int]:
    """Return the number of unsettled nodes in the field of an execution's row, and when it last changed."""
    try:
        _, _, unsettled, packed = value.split(b" ", 3)
        return int(unsettled), int(_unpack(packed)[_UPDATED_AT])
    except (msgspec.MsgspecError, ValueError, TypeError, IndexError) as error:
        raise PoisonError("the row of an execution is unreadable") from error


def read_seq(value: bytes | None) -> int:
    """Return the number of the last event that was merged into the field of an execution's row."""
    number, _, _ = (value or b"").partition(b" ")
    if not number.isdigit():
        raise PoisonError("the row of an execution is unreadable")
    return int(number)


def read_counts(value: bytes | None) -> tuple[int, int, int]:
    """Return how many nodes are in flight, in a worker's hand, and delayed."""
    if not (value or b"0").isdigit():
        raise PoisonError("the counts of an execution are unreadable")
    rest, in_flight = divmod(int(value or 0), _IN_HAND)
    delayed, in_hand = divmod(rest, _DELAYED // _IN_HAND)
    return in_flight, in_hand, delayed


def read_plan(value: bytes | None) -> tuple[int, str]:
    """Read how many tasks of an execution may be in flight, and the digest of its plan."""
    window, _, digest = (value or b"").partition(b" ")
    if not window.isdigit():
        raise PoisonError("the plan of an execution is unreadable")
    return int(window), digest.decode(errors="replace")


def plan_value(window: int, digest: str) -> str:
    return f"{window} {digest}"
