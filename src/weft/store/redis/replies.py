"""Free nodes as a script lists them, made whole: each with the rows of the nodes that it sees."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.core.view import FreeNode
from weft.store.contract import Answer, Applied
from weft.store.redis.layout import is_outcome, node_field, output_field, read_node, read_outcome
from weft.store.redis.plan_arguments import is_set

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.core.plan import Plan
    from weft.core.row import ExecutionRow, NodeRow
    from weft.redis.connection import Reply
    from weft.store.redis.layout import LiveNode


class FreeNodesReply:
    """The free nodes of one execution. What is ``missing`` of the rows they see is to be read, and added."""

    def __init__(
        self,
        row: ExecutionRow,
        plan: Plan,
        rows: dict[str, NodeRow],
        values: Sequence[Reply],
        queued: Sequence[str] = (),
    ) -> None:
        """``rows`` are at hand; ``values`` are what the script has said of the nodes."""
        self.row = row
        self._plan = plan
        # Rows of settled nodes, and of which of them the output is at hand. A settled row does not change.
        self._rows = rows
        self._whole = set(rows)
        self._queued = queued
        # Node, its field, its parents and what it names, as far as it sees them; the parents it does not see.
        self._nodes: list[tuple[str, LiveNode, Sequence[str], Sequence[str], int]] = []
        for at in range(0, len(values), 3):
            self._add_node(values[at][1:].decode(), read_node(values[at + 1]), values[at + 2])

    def _add_node(self, node_id: str, node: LiveNode, view: bytes) -> None:
        plan = self._plan
        parents: Sequence[str] = plan.graph.parents[node_id]
        needs: Sequence[str] = list(plan.needs[node_id])
        waiting = 0
        if node.has_view:
            bits, _, others = view.partition(b";")
            pieces = [int(piece) for piece in bits.split(b",")] if bits else None
            seen = parents
            if pieces is not None:
                seen = [name for index, name in enumerate(parents) if is_set(pieces, index)]
            waiting = len(parents) - len(seen)
            parents = seen
            known = {*seen, *[name[1:] for name in others.decode().split(",")]}
            needs = [name for name in needs if name in known]
        self._nodes.append((node_id, node, parents, needs, waiting))

    def missing(self) -> list[tuple[str, bool]]:
        """Return the nodes whose rows are still to be read, and of each whether its output is, too."""
        rows, whole = self._rows, self._whole
        wanted: dict[str, bool] = {}
        for _, _, parents, needs, _ in self._nodes:
            for name in parents:
                if name not in rows:
                    wanted.setdefault(name, False)
            for name in needs:
                if name not in whole:
                    wanted[name] = True
        return list(wanted.items())

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
            made.append(
                FreeNode(
                    self.row,
                    plan,
                    plan.nodes[node_id],
                    seen_parents,
                    {name: rows[name] for name in needs if name in rows} if needs else {},
                    waiting,
                    node.attempt,
                    node.failures,
                    node.losses,
                    node.issued,
                    node.released,
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
