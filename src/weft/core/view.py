"""FreeNode: a node that may run, with all that deciding it needs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from weft.core.rows import ExecutionRow, NodeRow
from weft.core.time import rfc3339
from weft.expressions.compiler import EXECUTION_FIELDS
from weft.expressions.scope import NodeValue, Scope

if TYPE_CHECKING:
    from weft.definition.model import Node
    from weft.definition.plan import Plan

# Payloads are decoded where they are needed and at most once: the caller knows what it has decoded.
Decode = Callable[[bytes], Any]
ValueOf = Callable[[NodeRow], NodeValue]


class FreeNode(msgspec.Struct, frozen=True, gc=False):
    """A node whose parents are settled as its rule asks, and what it sees of its execution.

    ``parents`` are the settled ones its rule is asked about, ``seen`` the nodes its expressions name. Both
    are fixed when the node becomes free: two orchestrators that decide it see the same. ``waiting`` counts
    the parents an early rule did not wait for.
    """

    execution: ExecutionRow
    plan: Plan
    node: Node
    parents: tuple[NodeRow, ...]
    seen: Mapping[str, NodeRow]
    waiting: int = 0
    attempt: int = 1
    failures: int = 0
    losses: int = 0
    issued: int = 0
    # A token of its resource tag is reserved for it: it goes to the queue, not to the line.
    released: bool = False

    @property
    def node_id(self) -> str:
        return self.node.id

    def scope(self, decode: Decode, value_of: ValueOf) -> Scope:
        nodes = {node_id: value_of(row) for node_id, row in self.seen.items()}
        return Scope(self.execution.input, ExecutionFacts(self.execution), nodes, decode)


class ExecutionFacts(Mapping[str, Any]):
    """What ``execution.…`` holds in a template. A fact is made where one is asked for: few nodes do."""

    __slots__ = ("_execution",)

    def __init__(self, execution: ExecutionRow) -> None:
        self._execution = execution

    def __getitem__(self, fact: str) -> Any:
        if fact not in EXECUTION_FIELDS:
            raise KeyError(fact)
        value = getattr(self._execution, fact)
        return rfc3339(value) if fact == "created_at" else value

    def __iter__(self) -> Iterator[str]:
        return iter(EXECUTION_FIELDS)

    def __len__(self) -> int:
        return len(EXECUTION_FIELDS)
