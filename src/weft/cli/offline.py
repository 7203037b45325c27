"""Reads and cancels executions in the data folder of a server that is stopped."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from weft.cli.identify import unique_id
from weft.core.payload import decode
from weft.core.time import micros
from weft.errors import DataFolderError
from weft.journal.contract import ExecutionQuery
from weft.orchestrator.control import cancel_offline
from weft.tracing.context import shown_trace_id
from weft.views.summary import NOTHING_IN_FLIGHT, summary

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from datetime import datetime
    from pathlib import Path

    from weft.journal.sqlite.journal import SqliteJournal

_ACTOR = "offline"
_PAGE = 200


@asynccontextmanager
async def open_folder(path: Path) -> AsyncIterator[SqliteJournal]:
    """Hold the data folder of a server that is stopped; raises DataFolderError where a server runs on it."""
    from weft.clock import RealClock, new_id
    from weft.journal.sqlite.journal import FILE_NAME, SqliteJournal
    from weft.journal.sqlite.schema import pending

    if not (path / FILE_NAME).exists():
        raise DataFolderError(f"{path} is no data folder of weft: it has no {FILE_NAME}")
    if pending(path / FILE_NAME):
        raise DataFolderError(f"{path} was written by an older weft: bring it up to date with `weft migrate`")
    journal = SqliteJournal(path, now=RealClock().now, new_id=new_id)
    await journal.open()
    try:
        yield journal
    finally:
        await journal.close()


async def cancel_in_folder(path: Path, execution: str) -> dict[str, Any]:
    """Cancel an execution, named by the first characters of its id; return it as the API shows it."""
    async with open_folder(path) as journal:

        async def made_in(begin: datetime, end: datetime) -> AsyncIterator[dict[str, Any]]:
            query = ExecutionQuery(
                created_after=micros(begin.timestamp()), created_before=micros(end.timestamp())
            )
            before = None
            while rows := await journal.executions(query, before=before, limit=_PAGE):
                for row in rows:
                    yield {"id": row.id}
                before = (rows[-1].created_at, rows[-1].id)

        execution_id = await unique_id(execution, "execution", made_in)
        await cancel_offline(execution_id, journal, actor=_ACTOR)
        row = await journal.execution(execution_id)
        assert row is not None
        return summary(row, NOTHING_IN_FLIGHT, trace_id=shown_trace_id(row, is_exported=False), show=decode)
