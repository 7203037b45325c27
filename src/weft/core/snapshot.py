"""What the journal tells the store."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.core.plan import Plan
    from weft.core.row import ExecutionRow, NodeRow


class Snapshot(msgspec.Struct, frozen=True, gc=False):
    """What the journal holds of an execution, read in the commit that raised its epoch."""

    execution: ExecutionRow
    plan: Plan
    rows: Sequence[NodeRow]


class Settlement(msgspec.Struct, frozen=True, gc=False):
    """The journal's current rows of one execution, to be merged."""

    execution: ExecutionRow
    plan: Plan
    rows: Sequence[NodeRow]
