"""A journal that finds its database to be another incarnation, and has the store follow it."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from tests.support.servers.postgres import PostgresServer

from weft.core.ledger.changes import Verdict
from weft.errors import JournalError, StoreError
from weft.incarnation import Incarnation
from weft.journal.postgres.incarnation import Watch
from weft.journal.postgres.journal import PostgresJournal
from weft.journal.postgres.schema import migrate
from weft.testing.recording import Recording, node

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator


def new_id() -> str:
    return str(uuid4())


class Kept:
    """What a fleet keeps of the database, in this process."""

    def __init__(self) -> None:
        self.kept: Incarnation | None = None
        self.is_away = False
        self.entered: list[str] = []
        self.changes = 0

    async def incarnation(self) -> Incarnation | None:
        if self.is_away:
            raise StoreError("the store cannot be reached")
        return self.kept

    async def enter(self, incarnation: Incarnation) -> None:
        self.kept = incarnation
        self.entered.append(incarnation.id)

    async def note(self, incarnation: Incarnation) -> None:
        self.kept = incarnation

    def changed(self) -> None:
        self.changes += 1


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """Return a PostgreSQL that may be stopped at any time."""
    with PostgresServer() as server:
        yield server


@pytest.fixture
async def url(server: PostgresServer) -> str:
    url = server.create_database(f"d{uuid4().hex}")
    await migrate(url)
    return url


@asynccontextmanager
async def watched(url: str, kept: Kept, **fields: Any) -> AsyncIterator[PostgresJournal]:
    watch = Watch(kept, new_id=new_id, changed=kept.changed)
    journal = PostgresJournal(url, new_id=new_id, watch=watch, **fields)
    await journal.open()
    try:
        yield journal
    finally:
        await journal.close()


async def reached(journal: PostgresJournal) -> None:
    """Return once the journal answers again, after what fails because the connection was lost."""
    async with asyncio.timeout(20):
        while True:
            try:
                return await journal.check()
            except JournalError:
                await asyncio.sleep(0.05)


async def restart(server: PostgresServer, **options: Any) -> None:
    await asyncio.to_thread(server.stop, **options)
    await asyncio.to_thread(server.start)


async def test_all_who_open_a_database_agree_on_its_incarnation(url: str) -> None:
    kept = Kept()
    async with watched(url, kept), watched(url, kept), watched(url, kept):
        assert len(kept.entered) == 3
        assert len(set(kept.entered)) == 1
        assert kept.changes == 0


async def test_a_restart_in_good_order_is_no_new_incarnation(server: PostgresServer, url: str) -> None:
    kept = Kept()
    async with watched(url, kept) as journal:
        for _ in range(2):
            await restart(server)
            await reached(journal)
        assert (len(set(kept.entered)), kept.changes) == (1, 0)


async def test_a_crash_with_a_synchronous_disk_is_no_new_incarnation(
    server: PostgresServer, url: str
) -> None:
    kept = Kept()
    async with watched(url, kept) as journal:
        await journal.note_position()
        await restart(server, immediate=True)
        await reached(journal)
        assert (len(set(kept.entered)), kept.changes) == (1, 0)


async def test_a_crash_without_a_synchronous_disk_is_a_new_incarnation_for_all(
    server: PostgresServer, url: str
) -> None:
    kept = Kept()
    async with watched(url, kept, relaxed=True) as journal, watched(url, kept, relaxed=True) as other:
        await restart(server, immediate=True)
        await reached(journal)
        await reached(other)
        assert (len(set(kept.entered)), kept.changes) == (2, 2)


async def test_whoever_starts_while_nothing_is_kept_takes_commits_for_lost(
    server: PostgresServer, url: str
) -> None:
    kept = Kept()
    async with watched(url, kept):
        pass
    await restart(server)
    kept.is_away = True
    async with watched(url, kept):
        assert len(set(kept.entered)) == 2


async def test_an_earlier_position_of_the_log_is_a_new_incarnation_for_all(
    server: PostgresServer, url: str
) -> None:
    """As a copy leaves it that was taken of a running server: the row is gone, the position is behind."""
    kept = Kept()
    async with watched(url, kept) as journal, watched(url, kept) as other:
        assert kept.kept is not None
        await kept.note(Incarnation(**{**_fields(kept.kept), "position": 2**50}))
        await restart(server, immediate=True)
        await reached(journal)
        await reached(other)
        assert (len(set(kept.entered)), kept.changes) == (2, 2)


@pytest.mark.parametrize("options", ["snapshot", "stopped", "promoted"])
async def test_a_database_that_comes_back_older_is_a_new_incarnation(
    options: str, server: PostgresServer, url: str
) -> None:
    """And what was decided before is not written, and no row that was remembered is believed."""
    kept = Kept()
    async with watched(url, kept) as journal:
        await Recording.start(journal, execution_id="before")
        copy = await asyncio.to_thread(server.snapshot)
        if options == "stopped":
            await asyncio.to_thread(server.stop)
            copy = await asyncio.to_thread(server.copy)
            await asyncio.to_thread(server.start)
            await reached(journal)
        lost = await Recording.start(journal, node("a"), node("b", "a"), execution_id="lost")
        await lost.completed("a")
        if options != "stopped":
            await journal.note_position()
        await asyncio.to_thread(server.stop)
        await asyncio.to_thread(server.restore, copy, promoted=options == "promoted")
        await asyncio.to_thread(server.start)
        async with asyncio.timeout(20):
            while True:
                with pytest.raises(JournalError) as refused:
                    await lost.completed("b")
                if "lost commits" in str(refused.value):
                    break
        assert kept.changes == 1
        assert (await lost.completed("b")).verdict is Verdict.UNKNOWN
        # It is given the number that the lost one had.
        again = await Recording.start(journal, node("c"), execution_id="again")
        assert (await again.completed("c")).verdict is Verdict.ACCEPTED
        assert await journal.execution("before") is not None
        assert await journal.execution("lost") is None


def _fields(incarnation: Incarnation) -> dict[str, Any]:
    return {name: getattr(incarnation, name) for name in incarnation.__struct_fields__}
