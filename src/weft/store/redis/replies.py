"""Makes free nodes of what a script lists: each with the rows of the nodes that it sees."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.core.decide import FreeNode
from weft.store.contract import Answer, Applied
from weft.store.redis.calls import is_set
from weft.store.redis.layout import is_outcome, node_field, output_field, read_node, read_outcome

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.core.rows import ExecutionRow, NodeRow
    from weft.definition.plan import Plan
    from weft.redis.connection import Reply
    from weft.redis.keys import Keys
    from weft.store.redis.layout import LiveNode


class FreeNodesReply:
    """The free nodes of one execution. What is ``missing`` of the rows they see is to be read, and added."""

    def __init__(
        self,
        keys: Keys,
        row: ExecutionRow,
        plan: Plan,
        values: Sequence[Reply],
        packed: bytes = b"",
        rows: dict[str, NodeRow] | None = None,
        queued: Sequence[str] = (),
    ) -> None:
        """``values`` are what the script has said of the nodes; ``rows`` of settled nodes are at hand.

        ``packed``: the store's row of the execution, where it is not the given one.
        """
        self.keys = keys
        self.row = row
        self.packed = packed
        self._plan = plan
        self._values = values
        # A settled row does not change.
        self._rows = rows or {}
        self._queued = queued
        # Node, its field, its parents and what it names, as far as it sees them; the parents it does not see.
        self._nodes: list[tuple[str, LiveNode, Sequence[str], Sequence[str], int]] = []

    def missing(self) -> list[tuple[str, bool]]:
        """Return the nodes whose rows are still to be read, and of each whether its output is, too."""
        wanted: dict[str, bool] = {}
        for at in range(0, len(self._values), 3):
            name, value, view = self._values[at : at + 3]
            node_id, node = name[1:].decode(), read_node(value)
            parents, needs = self._seen(node_id, view if node.has_view else None)
            waiting = len(self._plan.graph.parents[node_id]) - len(parents)
            self._nodes.append((node_id, node, parents, needs, waiting))
            for one in parents:
                if one not in self._rows:
                    wanted.setdefault(one, False)
            for one in needs:
                if one not in self._rows:
                    wanted[one] = True
        return list(wanted.items())

    def _seen(self, node_id: str, view: bytes | None) -> tuple[Sequence[str], Sequence[str]]:
        """Return the parents that a node sees, and the nodes that it names; ``view`` None: all of them."""
        parents: Sequence[str] = self._plan.graph.parents[node_id]
        needs = list(self._plan.references[node_id])
        if view is None:
            return parents, needs
        bits, _, others = view.partition(b";")
        if bits:
            pieces = [int(piece) for piece in bits.split(b",")]
            parents = [name for index, name in enumerate(parents) if is_set(pieces, index)]
        known = {*parents, *[name[1:] for name in others.decode().split(",")]}
        return parents, [name for name in needs if name in known]

    def add(self, names: Sequence[tuple[str, bool]], values: Sequence[bytes | None]) -> None:
        """Add the rows that were read for the missing ones."""
        at = 0
        for name, with_output in names:
            outcome = values[at]
            output = values[at + 1] if with_output else None
            at += 2 if with_output else 1
            # An unsettled one has another field here, or none; it is then not seen either.
            if outcome is not None and is_outcome(outcome):
                self._rows[name] = read_outcome(name, outcome, output)

    def applied(self) -> Applied:
        """Make the nodes; none where rows are gone that were there when they were listed."""
        made = []
        rows, plan = self._rows, self._plan
        for node_id, node, parents, needs, waiting in self._nodes:
            try:
                seen_parents = tuple([rows[name] for name in parents])
            except KeyError:
                return Applied(Answer.YES, (), queued=self._queued)
            seen = {name: rows[name] for name in needs if name in rows} if needs else {}
            made.append(
                FreeNode(
                    *(self.row, plan, plan.nodes[node_id], seen_parents, seen, waiting),
                    *(node.attempt, node.failures, node.losses, node.issued, node.released),
                )
            )
        return Applied(Answer.YES, made, queued=self._queued)


def missing_fields(names: Sequence[tuple[str, bool]]) -> list[str]:
    fields = []
    for name, with_output in names:
        fields.append(node_field(name))
        if with_output:
            fields.append(output_field(name))
    return fields
