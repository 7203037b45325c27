"""NodeView: what one free node sees of its execution, and no more."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from weft.core.expression import NodeValue, Scope
from weft.core.output import ExecutionFacts
from weft.core.row import ExecutionRow, NodeRow

if TYPE_CHECKING:
    from weft.core.definition import Node
    from weft.core.plan import Plan

# Payloads are decoded where they are needed and at most once: the caller knows what it has decoded.
Decode = Callable[[bytes], Any]
ValueOf = Callable[[NodeRow], NodeValue]


class NodeView(msgspec.Struct, frozen=True, gc=False):
    """``parents`` are the settled ones its rule is asked about, ``seen`` the nodes its expressions name.

    Both were fixed when the node became free, so whoever decides it sees the same.
    """

    execution: ExecutionRow
    plan: Plan
    node: Node
    parents: tuple[NodeRow, ...]
    seen: Mapping[str, NodeRow]
    waiting: int = 0

    def scope(self, decode: Decode, value_of: ValueOf) -> Scope:
        return Scope(
            input=decode(self.execution.input),
            execution=ExecutionFacts(self.execution),
            nodes={node_id: value_of(row) for node_id, row in self.seen.items()},
        )
