"""The journal of a fleet, held to the contract."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest

from weft.journal.postgres.journal import PostgresJournal
from weft.testing.journal.contract import JournalContract, Reopened

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from weft.clock import VirtualClock
    from weft.journal.contract import Journal


class TestPostgresJournal(JournalContract):
    @pytest.fixture
    async def journal(
        self, journal_url: str, clock: VirtualClock, new_id: Callable[[], str]
    ) -> AsyncIterator[Journal]:
        journal = PostgresJournal(journal_url, now=clock.now, new_id=new_id, notify=())
        await journal.open()
        yield journal
        await journal.close()


class TestPostgresJournalReopened(JournalContract):
    @pytest.fixture
    def journal(self, journal_url: str, clock: VirtualClock, new_id: Callable[[], str]) -> Journal:
        return cast(
            "Journal", Reopened(lambda: PostgresJournal(journal_url, now=clock.now, new_id=new_id, notify=()))
        )
