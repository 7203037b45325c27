"""Payloads decoded at most once, as far as that is worth remembering.

A large output may be named by ten thousand children; decoding it for each would take longer than all
their work. Small payloads are decoded again: that is cheaper than remembering them.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from weft.core.expression import NodeValue
from weft.core.payload import decode
from weft.core.state import NodeState

if TYPE_CHECKING:
    from collections.abc import Iterable

    from weft.core.row import NodeRow
    from weft.journal.contract import Journal

_WORTH_REMEMBERING = 4096
_MOST_BYTES = 64 * 1024 * 1024


class Payloads:
    def __init__(self) -> None:
        # By identity: the payload is kept too, so that its id is not given to another.
        self._decoded: OrderedDict[int, tuple[bytes, Any]] = OrderedDict()
        self._bytes = 0
        self._blobs: dict[str, bytes] = {}

    def decode(self, payload: bytes) -> Any:
        if len(payload) < _WORTH_REMEMBERING:
            return decode(payload)
        hit = self._decoded.get(id(payload))
        if hit is not None:
            self._decoded.move_to_end(id(payload))
            return hit[1]
        value = decode(payload)
        self._decoded[id(payload)] = (payload, value)
        self._bytes += len(payload)
        while self._bytes > _MOST_BYTES:
            _, (dropped, _) = self._decoded.popitem(last=False)
            self._bytes -= len(dropped)
        return value

    def value_of(self, row: NodeRow) -> NodeValue:
        """Make of a settled row what an expression sees of it."""
        output = None
        if row.state is NodeState.COMPLETED:
            payload = row.output if row.blob is None else self._blobs[row.blob]
            assert payload is not None
            output = self.decode(payload)
        return NodeValue(state=str(row.state), output=output, error=row.error, reason=row.reason)

    async def fetch(self, rows: Iterable[NodeRow], journal: Journal) -> None:
        """Have the blobs of these rows at hand, and no others."""
        names = {row.blob for row in rows if row.blob is not None}
        if not names:
            if self._blobs:
                self._blobs = {}
            return
        # While the journal is asked, another batch may put its own in place of these.
        at_hand = self._blobs
        missing = [name for name in sorted(names) if name not in at_hand]
        found = await journal.blobs(missing) if missing else {}
        self._blobs = {name: found.get(name) or at_hand[name] for name in names}
