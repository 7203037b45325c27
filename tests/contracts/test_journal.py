"""The journals that ship, each held to the contract."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest

from weft.journal.memory import MemoryJournal
from weft.journal.sqlite.journal import SqliteJournal
from weft.testing.journal.contract import JournalContract, Reopened

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from weft.clock import VirtualClock
    from weft.journal.contract import Journal


class TestMemoryJournal(JournalContract):
    HOLDS_INPUTS = True

    @pytest.fixture
    def journal(self, clock: VirtualClock, new_id: Callable[[], str]) -> Journal:
        return MemoryJournal(now=clock.now, new_id=new_id, notify=())


class TestSqliteJournal(JournalContract):
    @pytest.fixture
    async def journal(
        self, tmp_path: Path, clock: VirtualClock, new_id: Callable[[], str]
    ) -> AsyncIterator[Journal]:
        journal = SqliteJournal(tmp_path, now=clock.now, new_id=new_id, notify=())
        await journal.open()
        yield journal
        await journal.close()


class TestSqliteJournalReopened(JournalContract):
    @pytest.fixture
    def journal(self, tmp_path: Path, clock: VirtualClock, new_id: Callable[[], str]) -> Journal:
        return cast(
            "Journal", Reopened(lambda: SqliteJournal(tmp_path, now=clock.now, new_id=new_id, notify=()))
        )
