"""Steps 1 and 2: executions are recorded, put into the store, and announced."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.core.snapshot import Snapshot
from weft.core.task import Wake

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.core.row import ExecutionRow
    from weft.journal.contract import Submission
    from weft.ports import Ports


async def submit(submissions: Sequence[Submission], ports: Ports) -> Sequence[ExecutionRow]:
    """Accept executions: durable when this returns. A crash after the commit is repaired by the sweep."""
    token = await ports.store.token()
    rows = await ports.journal.submit(submissions)
    for row, submission in zip(rows, submissions, strict=True):
        await ports.store.install(Snapshot(row, submission.plan, ()), token=token, fresh=True)
    await ports.transport.publish([Wake(row.id, row.generation, row.digest) for row in rows])
    return rows
