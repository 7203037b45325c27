"""The contract of purging: a part of ``JournalContract``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.core.state import ExecutionState
from weft.journal.contract import Claim, ExecutionQuery, LetterQuery, NewBatch
from weft.testing.recording import Recording, node, submission

if TYPE_CHECKING:
    from weft.clock import VirtualClock
    from weft.journal.contract import JournalAdapter


async def finish(journal: JournalAdapter, execution_id: str) -> Recording:
    """Leave an execution that completed behind."""
    run = await Recording.start(journal, node("a"), execution_id=execution_id)
    await run.completed("a")
    return run


async def ids(journal: JournalAdapter) -> set[str]:
    return {row.id for row in await journal.executions(limit=1_000)}


class PurgeContract:
    async def test_a_purge_removes_what_became_terminal_before_then(
        self, journal: JournalAdapter, clock: VirtualClock
    ) -> None:
        await finish(journal, "old")
        # Older, and not done: it may take as long as it likes.
        active = await Recording.start(journal, node("a"), execution_id="active")
        await Recording.submit(journal, node("a"), execution_id="pending")
        late = await Recording.start(journal, node("a"), execution_id="late")
        clock.advance(10)
        limit = clock.now()
        await late.completed("a")
        assert await journal.purge(finished_before=limit, limit=10) == 1
        assert await ids(journal) == {"active", "pending", "late"}
        assert await journal.purge(finished_before=limit, limit=10) == 0
        await active.completed("a")
        assert (await active.row()).state is ExecutionState.COMPLETED

    async def test_a_purge_removes_the_oldest_first_and_no_more_than_it_may(
        self, journal: JournalAdapter, clock: VirtualClock
    ) -> None:
        for name in "cabed":
            await finish(journal, name)
            clock.advance(1)
        removed = [await journal.purge(finished_before=clock.now(), limit=2) for _ in range(2)]
        assert (removed, await ids(journal)) == ([2, 2], {"d"})
        assert await journal.purge(finished_before=clock.now(), limit=2) == 1
        assert await ids(journal) == set()

    async def test_an_execution_that_was_opened_again_is_kept(
        self, journal: JournalAdapter, clock: VirtualClock
    ) -> None:
        run = await Recording.start(journal, node("a"))
        await run.failed("a")
        await run.retry()
        clock.advance(1)
        assert await journal.purge(finished_before=clock.now(), limit=10) == 0
        await run.completed("a", attempt=2)
        assert await run.letters() == {("a", 1): "retried"}

    async def test_nothing_of_a_purged_execution_is_found(
        self, journal: JournalAdapter, clock: VirtualClock
    ) -> None:
        claim = Claim(key="key", request_digest="digest", resource="execution/e")
        new = submission("e", node("a"), node("b"), labels={"team": "blue"}, failure_policy="continue")
        await journal.submit([new], claim=claim)
        run = Recording(journal, "e", new.plan)
        blob = await journal.put_blob(b'"large"')
        await run.started()
        await run.completed("a", output=None, blob=blob, output_bytes=7)
        await run.failed("b")
        (letter,) = await journal.dead_letters()
        clock.advance(1)
        assert await journal.purge(finished_before=clock.now(), limit=10) == 1

        assert await journal.execution("e") is None
        assert (await journal.nodes("e"), await journal.events("e")) == ({}, [])
        assert await journal.executions(ExecutionQuery(labels=(("team", "blue"),))) == []
        assert await journal.dead_letter(letter.id) is None
        assert (await journal.dead_letters(), (await journal.stats()).open_letters) == ([], 0)
        assert await journal.dead_letters(LetterQuery(execution_id="e")) == []
        assert await journal.claim("key") is None
        assert await journal.blobs([blob]) == {}
        assert (await journal.plan(new.plan.digest), await journal.document(new.plan.digest)) == (None, None)

        # Its name and its key are free, as if it had never been.
        (row,) = await journal.submit([new], claim=claim)
        assert (row.state, row.seq) == (ExecutionState.PENDING, 1)
        assert (await journal.nodes("e"), len(await journal.events("e"))) == ({}, 1)

    async def test_what_others_name_is_kept(self, journal: JournalAdapter, clock: VirtualClock) -> None:
        old = await Recording.start(
            journal, node("a", cache={"ttl_seconds": 60}), node("b"), execution_id="old"
        )
        cached, shared = await journal.put_blob(b'"cached"'), await journal.put_blob(b'"shared"')
        await old.completed("a", output=None, blob=cached, output_bytes=8, cache_key="key")
        await old.completed("b", output=None, blob=shared, output_bytes=8)
        keeper = Recording(journal, "keeper", old.plan)
        await journal.submit(
            [submission("keeper", node("a", cache={"ttl_seconds": 60}), node("b"))],
            claim=Claim(key="key", request_digest="digest", resource="execution/keeper"),
        )
        await keeper.started()
        await keeper.completed("b", output=None, blob=shared, output_bytes=8)
        clock.advance(1)
        assert await journal.purge(finished_before=clock.now(), limit=10) == 1
        assert await journal.cached(["key"]) == {"key": b'"cached"'}
        assert await journal.blobs([shared]) == {shared: b'"shared"'}
        assert await journal.document(old.plan.digest) is not None
        assert await journal.claim("key") is not None
        assert set(await journal.nodes("keeper")) == {"b"}
        assert len(await journal.events("keeper")) == 3

    async def test_a_definition_is_kept_as_long_as_a_version_names_it(
        self, journal: JournalAdapter, clock: VirtualClock
    ) -> None:
        run = await finish(journal, "e")
        document = await journal.document(run.plan.digest)
        assert document is not None
        await journal.put_version("w", run.plan, document)
        clock.advance(1)
        assert await journal.purge(finished_before=clock.now(), limit=10) == 1
        assert await journal.document(run.plan.digest) == document
        await journal.delete_workflow("w")
        await journal.purge(finished_before=clock.now(), limit=10)
        assert await journal.document(run.plan.digest) is None

    async def test_a_batch_is_kept_as_long_as_it_has_an_execution(
        self, journal: JournalAdapter, clock: VirtualClock
    ) -> None:
        claim = Claim(key="key", request_digest="digest", resource="batch/batch")
        new = [submission(name) for name in "ab"]
        await journal.submit(new, claim=claim, batch=NewBatch(id="batch", workflow="w", version=1))
        runs = [Recording(journal, name, new[0].plan) for name in "ab"]
        await runs[0].cancel()
        clock.advance(1)
        assert await journal.purge(finished_before=clock.now(), limit=10) == 1
        batch = await journal.batch("batch")
        assert batch is not None
        assert (batch.total, sum(batch.counts.values()), batch.finished_at) == (2, 1, None)
        assert [(index, row.id) for index, row in await journal.batch_results("batch")] == [(1, "b")]
        assert await journal.claim("key") == claim
        await runs[1].cancel()
        clock.advance(1)
        assert await journal.purge(finished_before=clock.now(), limit=10) == 1
        assert (await journal.batch("batch"), await journal.claim("key")) == (None, None)
        assert await journal.batch_results("batch") == []

    async def test_a_wide_execution_is_removed_whole(
        self, journal: JournalAdapter, clock: VirtualClock
    ) -> None:
        names = [f"n{number}" for number in range(1_200)]
        run = await Recording.start(journal, *(node(name) for name in names), failure_policy="continue")
        blobs = [await journal.put_blob(b"1") for _ in range(3)]
        await journal.record(
            [
                *(run.failure(name) for name in names[:600]),
                *(run.completion(name) for name in names[600:-3]),
                *(
                    run.completion(name, output=None, blob=blob, output_bytes=1)
                    for name, blob in zip(names[-3:], blobs, strict=True)
                ),
            ]
        )
        young = await finish(journal, "young")
        clock.advance(1)
        await journal.submit([submission("next")])
        assert await journal.purge(finished_before=clock.now(), limit=1) == 1
        assert await ids(journal) == {"young", "next"}
        assert await journal.blobs(blobs) == {}
        assert await journal.dead_letters() == []
        assert len(await young.events()) == 4

    async def test_a_purge_takes_definitions_also_when_it_leaves_executions_for_the_next(
        self, journal: JournalAdapter, clock: VirtualClock
    ) -> None:
        run = await Recording.start(journal, node("a", config={"n": 1}), execution_id="own")
        await run.completed("a")
        clock.advance(1)
        other = await finish(journal, "other")
        clock.advance(1)
        assert await journal.purge(finished_before=clock.now(), limit=1) == 1
        assert await journal.document(run.plan.digest) is None
        assert await journal.document(other.plan.digest) is not None

    async def test_only_old_blobs_that_nothing_names_are_swept(
        self, journal: JournalAdapter, clock: VirtualClock
    ) -> None:
        run = await Recording.start(
            journal, node("a"), node("b", cache={"ttl_seconds": 60}), node("c"), failure_policy="continue"
        )
        output, cached, orphan = [await journal.put_blob(payload) for payload in (b'"a"', b'"b"', b'"c"')]
        await run.completed("a", output=None, blob=output, output_bytes=3)
        await run.completed("b", output=None, blob=cached, output_bytes=3, cache_key="key")
        clock.advance(10)
        young = await journal.put_blob(b'"young"')
        assert await journal.sweep_blobs(older_than=clock.now()) == 1
        assert set(await journal.blobs([output, cached, orphan, young])) == {output, cached, young}
        assert await journal.cached(["key"]) == {"key": b'"b"'}
        clock.advance(60)
        assert await journal.sweep_blobs(older_than=clock.now()) == 1
        assert set(await journal.blobs([output, cached, young])) == {output, cached}
