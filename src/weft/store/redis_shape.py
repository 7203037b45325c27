"""What the scripts are told of a plan: for each node its dependents, as arguments made once.

Lua knows no plan. With a settled row it is given, of each dependent, how many parents that has and which of
them this is, whether its rule wakes it for this state, which further nodes it names, and which fields it
takes to decide it: so that what it frees comes back with all that deciding needs, in the same reply.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import msgspec

from weft.core.definition import TriggerRule
from weft.core.state import NodeState

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from weft.core.plan import Plan

_CHILD = struct.Struct("<IIBHH")
# A script is told of so many dependents at once.
MOST_CHILDREN = 250
# A node that sees more than this is decided after a read of its own: its rows are too much for one reply.
_MOST_ASKED = 16

# The rules that may be decided before all parents are settled, and by which state of one.
WAKES = {TriggerRule.ONE_SUCCESS: NodeState.COMPLETED, TriggerRule.ONE_FAILED: NodeState.FAILED}


class Children(msgspec.Struct, frozen=True, gc=False):
    """Some dependents of a node: their fields, and what the scripts are told of them."""

    count: int
    fields: tuple[str, ...]
    arguments: tuple[str | bytes, ...]


_NONE: Sequence[Children] = (Children(0, (), ()),)


class Shape:
    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._children: dict[tuple[str, NodeState | None], Sequence[Children]] = {}
        self._positions: dict[str, Mapping[str, int]] = {}
        self._others: dict[str, tuple[str, ...]] = {}
        self._asked: dict[str, tuple[tuple[str, bool], ...]] = {}
        # The nodes whose output somebody reads.
        self.read_by_others = frozenset().union(*set(plan.needs.values()))

    def others(self, node_id: str) -> tuple[str, ...]:
        """Name the nodes that one sees besides its parents."""
        found = self._others.get(node_id)
        if found is None:
            parents = self.plan.graph.parents[node_id]
            wanted = self.plan.wanted[node_id]
            found = () if wanted is parents else tuple(sorted(set(wanted).difference(parents)))
            self._others[node_id] = found
        return found

    def positions(self, node_id: str) -> Mapping[str, int]:
        """Number the parents of a node."""
        found = self._positions.get(node_id)
        if found is None:
            found = {name: index for index, name in enumerate(self.plan.graph.parents[node_id])}
            self._positions[node_id] = found
        return found

    def asked(self, node_id: str) -> tuple[tuple[str, bool], ...]:
        """Name the nodes whose rows come with this one when it is freed, and say of which the output is read.

        None for a node that sees its one parent alone: whoever applies that parent's row has it at hand.
        """
        found = self._asked.get(node_id)
        if found is None:
            wanted, needs = self.plan.wanted[node_id], self.plan.needs[node_id]
            found = ()
            if 1 < len(wanted) <= _MOST_ASKED:
                found = tuple([(name, name in needs) for name in wanted])
            self._asked[node_id] = found
        return found

    def children(self, node_id: str, state: NodeState) -> Sequence[Children]:
        """Describe the dependents of a node that settles in a state; at least one, perhaps an empty, part."""
        dependents = self.plan.graph.dependents.get(node_id)
        if not dependents:
            return _NONE
        # Two states make a difference, to early rules.
        key = (node_id, state if self.plan.has_early_rules else None)
        found = self._children.get(key)
        if found is None:
            found = self._children[key] = [
                self._described(node_id, state, dependents[start : start + MOST_CHILDREN])
                for start in range(0, len(dependents), MOST_CHILDREN)
            ]
        return found

    def _described(self, node_id: str, state: NodeState, dependents: Iterable[str]) -> Children:
        fields: list[str] = []
        arguments: list[str | bytes] = []
        plan = self.plan
        for dependent in dependents:
            parents = plan.graph.parents[dependent]
            early = WAKES.get(plan.nodes[dependent].trigger_rule) is state
            others = [f".{name}" for name in self.others(dependent)]
            asked = [
                field for name, read in self.asked(dependent) for field in fields_of(name, with_output=read)
            ]
            fields.append(f".{dependent}")
            position = self.positions(dependent)[node_id] if len(parents) > 1 else 0
            numbers = _CHILD.pack(position, len(parents), early, len(others), len(asked))
            arguments += [numbers, f".{dependent}", *others, *asked]
        return Children(len(fields), tuple(fields), tuple(arguments))


def fields_of(name: str, *, with_output: bool) -> list[str]:
    """Name the fields of a settled node."""
    return [f".{name}", f"o.{name}"] if with_output else [f".{name}"]
