"""Messages from the journal to the store: a snapshot of an execution, and updates of rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from weft.core.state import ExecutionState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.core.rows import ExecutionRow, NodeRow
    from weft.definition.plan import Plan


class Snapshot(msgspec.Struct, frozen=True, gc=False):
    """The journal's rows of an execution, read in the commit that raised its epoch."""

    execution: ExecutionRow
    plan: Plan
    rows: Sequence[NodeRow]

    def may_be_in_hand(self, node_id: str, attempt: int) -> bool:
        """True if a worker may have the attempt of a ready node, from an earlier incarnation of the store.

        Not if the store was asked while no attempt could start, and none could since: the execution is still
        paused, or its engine stopped then and this is the first store after it. Nor if no worker is given
        it: the row tells whether it has started.
        """
        if self.plan.nodes[node_id].is_parked:
            return False
        row, halt = self.execution, self.execution.halt
        if halt is None or halt.in_hand is None:
            return True
        if row.state is not ExecutionState.PAUSED and halt.epoch != row.epoch - 1:
            return True
        return halt.in_hand.get(node_id) == attempt


class RowUpdate(msgspec.Struct, frozen=True, gc=False):
    """The journal's current rows of one execution, to be merged."""

    execution: ExecutionRow
    plan: Plan
    rows: Sequence[NodeRow]
