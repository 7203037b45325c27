"""What the scripts are told of a plan: for each node its dependents, as arguments made once.

Lua knows no plan. With a settled row it is told, of each dependent, the bit of this parent and all its bits;
and of the few that are no plain children whether their rule wakes them for this state, in which piece of the
bits the parent is, and which further nodes they name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from weft.core.definition import TriggerRule
from weft.core.state import NodeState
from weft.store.redis.layout import PIECE_BITS, node_field, piece_field

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from weft.core.plan import Plan
    from weft.store.redis.calls import Argument

# A script is told of so many dependents at once.
MOST_CHILDREN = 250
# The rules that may be decided before all parents are settled, and by which state of one.
WAKES = {TriggerRule.ONE_SUCCESS: NodeState.COMPLETED, TriggerRule.ONE_FAILED: NodeState.FAILED}


class Children(msgspec.Struct, frozen=True, gc=False):
    """Some dependents of a node, as an argument of ``apply``: their number, and what is said of each."""

    count: int
    text: str


_NONE: Sequence[Children] = (Children(0, ""),)


class PlanArguments:
    def __init__(self, plan: Plan, window: int) -> None:
        self.plan = plan
        # How many tasks of an execution may be in flight.
        self.window = min(window, plan.definition.max_concurrency or window)
        self._children: dict[tuple[str, NodeState | None], Sequence[Children]] = {}
        self._positions: dict[str, Mapping[str, int]] = {}
        self._others: dict[str, tuple[str, ...]] = {}
        # The fields and the ready nodes of an execution that nothing has happened to; None: not needed yet.
        self.untouched: tuple[list[tuple[str, Argument]], list[str]] | None = None
        # The nodes whose output somebody reads.
        self.read_by_others = frozenset().union(*set(plan.needs.values()))

    def others(self, node_id: str) -> tuple[str, ...]:
        """Return the nodes that one sees besides its parents."""
        found = self._others.get(node_id)
        if found is None:
            parents = self.plan.graph.parents[node_id]
            wanted = self.plan.wanted[node_id]
            found = () if wanted is parents else tuple(sorted(set(wanted).difference(parents)))
            self._others[node_id] = found
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

    def _described(self, node_id: str, state: NodeState, dependents: Sequence[str]) -> Children:
        told: list[str] = []
        plan = self.plan
        for dependent in dependents:
            total = len(plan.graph.parents[dependent])
            position = self._position(dependent, node_id) if total > 1 else 0
            others = self.others(dependent)
            is_early = WAKES.get(plan.nodes[dependent].trigger_rule) is state
            piece, place = divmod(position, PIECE_BITS)
            full = (1 << min(PIECE_BITS, total - piece * PIECE_BITS)) - 1
            more = ""
            if is_early or others or total > PIECE_BITS:
                pieces = (piece, piece_count(total)) if total > PIECE_BITS else ("", "")
                named = ",".join([node_field(name) for name in others])
                more = f"{int(is_early)};{pieces[0]};{pieces[1]};{named}"
            told.append(f"{node_field(dependent)} {1 << place} {full} {more}/")
        return Children(len(dependents), "".join(told))

    def _position(self, node_id: str, parent: str) -> int:
        found = self._positions.get(node_id)
        if found is None:
            found = {name: index for index, name in enumerate(self.plan.graph.parents[node_id])}
            self._positions[node_id] = found
        return found[parent]


def piece_count(total: int) -> int:
    """Return in how many pieces the bits of so many parents lie."""
    return -(-total // PIECE_BITS)


def pieces_of(positions: Iterable[int], total: int) -> list[int]:
    """Return the bits of the parents at these positions, piece by piece."""
    pieces = [0] * piece_count(total)
    for position in positions:
        piece, place = divmod(position, PIECE_BITS)
        pieces[piece] |= 1 << place
    return pieces


def is_set(pieces: Sequence[int], position: int) -> bool:
    piece, place = divmod(position, PIECE_BITS)
    return pieces[piece] >> place & 1 == 1


def waiting_fields(node_id: str, positions: Sequence[int], total: int) -> tuple[int, list[tuple[str, int]]]:
    """Return the number of a waiting node's field, and further fields where its bits take several pieces."""
    pieces = pieces_of(positions, total)
    if len(pieces) <= 1:
        return (pieces[0] if pieces else 0), []
    complete = sum(
        [bits == (1 << min(PIECE_BITS, total - at * PIECE_BITS)) - 1 for at, bits in enumerate(pieces)]
    )
    return complete, [(piece_field(at, node_id), bits) for at, bits in enumerate(pieces) if bits]
