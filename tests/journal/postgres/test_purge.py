"""What a purge leaves in the tables, also when it is cut short, and what it does to those who write."""

from __future__ import annotations

import asyncio
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

from weft.clock import VirtualClock
from weft.core.ledger.changes import Verdict
from weft.journal import purge
from weft.journal.contract import Claim, NewBatch
from weft.journal.postgres.connection import connect
from weft.journal.postgres.journal import PostgresJournal
from weft.journal.postgres.queries import run_transaction
from weft.testing.recording import Recording, assert_consistent, node, submission

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
async def journal(journal_url: str, clock: VirtualClock) -> AsyncIterator[PostgresJournal]:
    numbers = count(1)
    journal = PostgresJournal(journal_url, now=clock.now, new_id=lambda: f"id-{next(numbers):08d}")
    await journal.open()
    yield journal
    await journal.close()


@pytest.fixture
async def direct(journal_url: str) -> AsyncIterator[Any]:
    connection = await connect(journal_url)
    yield connection
    await connection.close()


# Rows that are there from the start.
_FIXED = frozenset({"migrations", "lane_locks"})


async def rows_left(connection: Any) -> dict[str, int]:
    """Count the rows of every table that has one."""
    tables = await connection.fetch(
        "SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = 'weft'::regnamespace"
    )
    counts = {name: await connection.fetchval(f"SELECT count(*) FROM {name}") for (name,) in tables}
    return {name: number for name, number in counts.items() if number and name not in _FIXED}


async def make_history(journal: PostgresJournal) -> None:
    """Leave rows behind in every table that executions have a part in."""
    new = [
        submission(f"e{number}", node("a", cache={"ttl_seconds": 60}), node("b"), labels={"n": str(number)})
        for number in range(3)
    ]
    claim = Claim(key="key", request_digest="digest", resource="batch/batch")
    await journal.submit(new, claim=claim, batch=NewBatch(id="batch", workflow="w", version=1))
    for number in range(3):
        run = Recording(journal, f"e{number}", new[0].plan)
        blob = await journal.put_blob(b'"large"')
        await run.started()
        await run.completed("a", output=None, blob=blob, output_bytes=7, cache_key=f"key-{number}")
        await run.failed("b")


async def test_a_purge_leaves_no_row_behind(
    journal: PostgresJournal, clock: VirtualClock, direct: Any
) -> None:
    await make_history(journal)
    assert set(await rows_left(direct)) == {
        *(
            "executions",
            "progress",
            "labels",
            "nodes",
            "recorded_events",
            "dead_letters",
            "definitions",
            "batches",
        ),
        *("idempotency_keys", "cache", "blobs", "failures"),
    }
    clock.advance(1)
    assert await journal.purge(finished_before=clock.now(), limit=100) == 3
    assert await rows_left(direct) == {"cache": 3, "blobs": 3}, "the cache gives its outputs for a minute"
    clock.advance(60)
    assert await journal.sweep_blobs(older_than=clock.now()) == 3
    assert await rows_left(direct) == {}


async def test_a_purge_that_was_cut_short_is_finished_by_the_next(
    journal: PostgresJournal, clock: VirtualClock, direct: Any
) -> None:
    await make_history(journal)
    clock.advance(60)
    assert (await run_transaction(direct, purge.hide_some(clock.now(), 100)))[0] == 3
    assert await journal.executions() == []
    assert await journal.dead_letters() == []
    assert (await journal.stats()).open_letters == 0
    assert {"purging", "nodes", "recorded_events", "dead_letters", "failures"} <= set(await rows_left(direct))
    run = await Recording.start(journal, node("a"), node("b"), execution_id="e0")
    await run.completed("a")
    assert len(await journal.nodes("e0")) == 1
    assert await journal.purge(finished_before=clock.now(), limit=100) == 0
    await journal.sweep_blobs(older_than=clock.now())
    await assert_consistent(journal, "e0")
    assert set(await rows_left(direct)) == {
        "definitions",
        "executions",
        "progress",
        "nodes",
        "recorded_events",
    }


async def test_two_purge_at_once(journal: PostgresJournal, journal_url: str, direct: Any) -> None:
    other = PostgresJournal(journal_url, new_id=lambda: "id")
    await other.open()
    new = [submission(f"e{number:03d}", node("a"), labels={"n": "1"}) for number in range(300)]
    await journal.submit(new)
    await journal.record([Recording(journal, each.id, each.plan).completion("a") for each in new])
    purged = await asyncio.gather(
        *(each.purge(finished_before=2**60, limit=100) for each in (journal, other) for _ in range(3))
    )
    while more := await journal.purge(finished_before=2**60, limit=1_000):
        purged.append(more)
    assert sum(purged) == 300
    assert await rows_left(direct) == {}
    await other.close()


async def test_an_execution_that_somebody_has_locked_is_left_for_the_next_purge(
    journal: PostgresJournal, clock: VirtualClock, direct: Any
) -> None:
    for name in "ab":
        run = await Recording.start(journal, node("a"), execution_id=name)
        await run.completed("a")
    clock.advance(1)
    await direct.execute("BEGIN")
    await direct.execute("SELECT 1 FROM progress WHERE id = 'a' FOR UPDATE")
    assert await journal.purge(finished_before=clock.now(), limit=10) == 1
    await direct.execute("ROLLBACK")
    assert [row.id for row in await journal.executions()] == ["a"]
    assert await journal.purge(finished_before=clock.now(), limit=10) == 1


async def test_a_definition_that_is_being_named_is_not_purged(
    journal: PostgresJournal, clock: VirtualClock, direct: Any
) -> None:
    run = await Recording.start(journal, node("a"), execution_id="old")
    await run.completed("a")
    clock.advance(1)
    # As a submit does that has looked for the definition and has not stored its execution yet.
    await direct.execute("BEGIN")
    await direct.execute("SELECT 1 FROM definitions FOR KEY SHARE")
    assert await journal.purge(finished_before=clock.now(), limit=10) == 1
    assert await journal.document(run.plan.digest) is not None
    await direct.execute("ROLLBACK")
    await journal.purge(finished_before=clock.now(), limit=10)
    assert await journal.document(run.plan.digest) is None


async def test_results_are_recorded_while_a_purge_is_under_way(
    journal: PostgresJournal, clock: VirtualClock
) -> None:
    names = [f"n{number}" for number in range(6_000)]
    old = await Recording.start(journal, *(node(name) for name in names), execution_id="old")
    await journal.record([old.completion(name) for name in names])
    clock.advance(1)
    run = await Recording.start(journal, *(node(name) for name in names[:100]), execution_id="new")
    purge = asyncio.create_task(journal.purge(finished_before=clock.now(), limit=10))
    recorded = 0
    while not purge.done() and recorded < 100:
        assert (await run.completed(names[recorded])).verdict is Verdict.ACCEPTED
        recorded += 1
    assert await purge == 1
    assert recorded >= 5
    await assert_consistent(journal, "new")
