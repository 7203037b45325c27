"""The contract of claims, batches and lists: a part of ``JournalContract``."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from weft.core.event import CancelRequested, RetryRequested
from weft.core.ledger.changes import Verdict
from weft.core.state import ExecutionState
from weft.core.time import MICROSECONDS
from weft.errors import ClaimedError
from weft.journal.contract import Claim, ExecutionQuery, LetterQuery, NewBatch
from weft.testing.recording import ERROR, Recording, node, submission

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.clock import VirtualClock
    from weft.core.rows import DeadLetter, ExecutionRow
    from weft.journal.contract import JournalAdapter

STATES = tuple(ExecutionState)

# What is asked of the eight executions below, and the ids of those that are listed. Times are in seconds.
CONDITIONS: list[tuple[dict[str, Any], str]] = [
    ({}, "hgfedcba"),
    ({"workflow": "w"}, "hfdb"),
    ({"workflow": "stranger"}, ""),
    ({"workflow": "w", "version": 2}, "hd"),
    ({"version": 2}, "hd"),
    ({"states": (ExecutionState.COMPLETED,)}, "ba"),
    ({"states": (ExecutionState.FAILED,)}, "dc"),
    ({"states": (ExecutionState.PENDING, ExecutionState.RUNNING)}, "hgfe"),
    ({"states": (ExecutionState.COMPLETED, ExecutionState.FAILED) * 2}, "dcba"),
    ({"states": (ExecutionState.PAUSED,)}, ""),
    ({"labels": (("team", "blue"),)}, "gfcb"),
    ({"labels": (("team", "blue"), ("env", "test"))}, "gc"),
    ({"labels": (("env", "test"), ("team", "blue"))}, "gc"),
    ({"labels": (("team", "test"),)}, ""),
    ({"batch": "batch"}, "hg"),
    ({"batch": "stranger"}, ""),
    ({"created_after": 2}, "hgfedc"),
    ({"created_before": 2}, "ba"),
    ({"created_after": 1, "created_before": 3}, "cb"),
    ({"workflow": "w", "states": (ExecutionState.FAILED, ExecutionState.PENDING)}, "hfd"),
    ({"workflow": "w", "states": (ExecutionState.COMPLETED, ExecutionState.FAILED)}, "db"),
    ({"workflow": "w", "labels": (("team", "blue"),)}, "fb"),
    ({"labels": (("team", "blue"),), "states": (ExecutionState.PENDING,)}, "gf"),
    ({"batch": "batch", "workflow": "w"}, "h"),
    ({"batch": "batch", "labels": (("team", "blue"),)}, "g"),
    ({"batch": "batch", "states": (ExecutionState.FAILED,)}, ""),
    ({"workflow": "w", "created_after": 3, "created_before": 6}, "fd"),
    ({"states": (ExecutionState.FAILED,), "created_before": 3}, "c"),
    ({"labels": (("env", "test"),), "created_after": 3, "created_before": 6}, "d"),
    (
        {
            "workflow": "w",
            "version": 1,
            "states": (ExecutionState.COMPLETED,),
            "labels": (("team", "blue"),),
            "created_after": 1,
            "created_before": 2,
        },
        "b",
    ),
]
# The same of six dead letters, by their nodes.
LETTER_CONDITIONS: list[tuple[dict[str, Any], str]] = [
    ({}, "fedcba"),
    ({"execution_id": "one"}, "cba"),
    ({"execution_id": "stranger"}, ""),
    ({"workflow": "w"}, "cba"),
    ({"workflow": "stranger"}, ""),
    ({"state": "open"}, "fed"),
    ({"state": "retried"}, "cb"),
    ({"state": "dropped"}, "a"),
    ({"code": "timeout"}, "eb"),
    ({"code": "stranger"}, ""),
    ({"workflow": "w", "code": "timeout"}, "b"),
    ({"state": "open", "code": "timeout"}, "e"),
    ({"execution_id": "one", "state": "retried"}, "cb"),
    ({"execution_id": "two", "workflow": "w"}, ""),
]


def claim_on(resource: str, key: str = "key", **fields: Any) -> Claim:
    return Claim(key=key, request_digest=f"digest of {resource}", resource=resource, **fields)


def batch_of(name: str = "batch", **fields: Any) -> NewBatch:
    return NewBatch(id=name, workflow="w", version=1, **fields)


async def all_executions(
    journal: JournalAdapter, query: ExecutionQuery, *, limit: int = 2, **fields: Any
) -> list[str]:
    """Turn the pages of a list to its end; give the ids on them."""
    seen: list[ExecutionRow] = []
    while page := await journal.executions(query, before=_behind(seen), limit=limit, **fields):
        assert len(page) <= limit
        seen += page
    return [row.id for row in seen]


async def all_letters(journal: JournalAdapter, query: LetterQuery, *, limit: int = 2) -> list[str]:
    """The same of dead letters, whose nodes are given."""
    seen: list[DeadLetter] = []
    while page := await journal.dead_letters(query, before=_behind(seen), limit=limit):
        assert len(page) <= limit
        seen += page
    return [letter.node_id for letter in seen]


def _behind(seen: Sequence[ExecutionRow] | Sequence[DeadLetter]) -> tuple[int, str] | None:
    return (seen[-1].created_at, seen[-1].id) if seen else None


class ClaimsContract:
    async def test_a_claim_is_taken_with_what_it_stands_for(self, journal: JournalAdapter) -> None:
        claim = claim_on("execution/e")
        assert await journal.claim("key") is None
        await journal.submit([submission("e")], claim=claim)
        assert await journal.claim("key") == claim

    async def test_a_key_that_is_taken_stores_nothing(self, journal: JournalAdapter) -> None:
        await journal.submit([submission("e")], claim=claim_on("execution/e"))
        with pytest.raises(ClaimedError) as raised:
            await journal.submit(
                [submission("f", node("other"))], claim=claim_on("batch/b"), batch=batch_of("b")
            )
        assert (raised.value.resource, raised.value.request_digest) == (
            "execution/e",
            "digest of execution/e",
        )
        assert [row.id for row in await journal.executions()] == ["e"]
        assert await journal.batch("b") is None
        assert await journal.document(submission("f", node("other")).plan.digest) is None
        assert await journal.claim("key") == claim_on("execution/e")

    async def test_of_calls_with_one_key_at_once_one_is_done_and_the_others_fail_alone(
        self, journal: JournalAdapter
    ) -> None:
        async def with_the_key(number: int) -> str | None:
            try:
                await journal.submit([submission(f"k{number}")], claim=claim_on(f"execution/k{number}"))
            except ClaimedError as taken:
                return taken.resource
            return None

        keyed = asyncio.gather(*(with_the_key(number) for number in range(10)))
        plain = asyncio.gather(*(journal.submit([submission(f"p{number}")]) for number in range(10)))
        answers, _ = await asyncio.gather(keyed, plain)
        ids = {row.id for row in await journal.executions()}
        (winner,) = {id_ for id_ in ids if id_.startswith("k")}
        assert ids == {winner} | {f"p{number}" for number in range(10)}
        assert answers.count(None) == 1
        assert {answer for answer in answers if answer is not None} == {f"execution/{winner}"}
        assert await journal.claim("key") == claim_on(f"execution/{winner}")

    async def test_a_retry_takes_its_claim_when_it_is_accepted(self, journal: JournalAdapter) -> None:
        run = await Recording.start(journal, node("a"))
        retry = RetryRequested(execution_id=run.id, generation=0)
        claim = claim_on(f"execution/{run.id}")
        (refused,) = await journal.record([retry], claim=claim)
        assert (refused.verdict, await journal.claim("key")) == (Verdict.REFUSED, None)
        await run.failed("a")
        (accepted,) = await journal.record([retry], claim=claim)
        assert (accepted.verdict, await journal.claim("key")) == (Verdict.ACCEPTED, claim)

    async def test_a_control_call_with_a_key_that_is_taken_is_not_recorded(
        self, journal: JournalAdapter
    ) -> None:
        run = await Recording.start(journal, node("a"))
        await run.failed("a")
        claim = claim_on(f"execution/{run.id}")
        await journal.record([RetryRequested(execution_id=run.id, generation=0)], claim=claim)
        before = await run.row()
        for again in (RetryRequested, CancelRequested):
            with pytest.raises(ClaimedError):
                await journal.record([again(execution_id=run.id, generation=0)], claim=claim)
        assert await run.row() == before

    async def test_a_call_that_is_unknown_takes_no_claim(self, journal: JournalAdapter) -> None:
        retry = RetryRequested(execution_id="stranger", generation=0)
        (recorded_event,) = await journal.record([retry], claim=claim_on("execution/stranger"))
        assert (recorded_event.verdict, await journal.claim("key")) == (Verdict.UNKNOWN, None)

    async def test_keys_of_a_namespace_are_its_own(self, journal: JournalAdapter) -> None:
        await journal.submit([submission("e")], claim=claim_on("execution/e"))
        theirs = claim_on("execution/f", namespace="other")
        await journal.submit([submission("f", namespace="other")], claim=theirs)
        assert await journal.claim("key", namespace="other") == theirs
        assert await journal.claim("key") == claim_on("execution/e")
        assert await journal.claim("key", namespace="third") is None


class BatchesContract:
    async def test_a_batch_counts_its_executions_by_state(
        self, journal: JournalAdapter, clock: VirtualClock
    ) -> None:
        created_at = clock.now()
        rows = await journal.submit([submission(name) for name in "cab"], batch=batch_of())
        assert {row.batch for row in rows} == {"batch"}
        batch = await journal.batch("batch")
        assert batch is not None
        assert (batch.id, batch.workflow, batch.version, batch.total) == ("batch", "w", 1, 3)
        assert batch.counts == dict.fromkeys(STATES, 0) | {ExecutionState.PENDING: 3}
        assert (batch.created_at, batch.finished_at) == (created_at, None)

        runs = [Recording(journal, name, submission(name).plan) for name in "abc"]
        clock.advance(1)
        await runs[0].started()
        await runs[0].completed("a")
        await runs[1].started()
        await runs[1].failed("a")
        clock.advance(1)
        last = clock.now()
        batch = await journal.batch("batch")
        assert batch is not None
        assert batch.finished_at is None
        await runs[2].cancel()
        clock.advance(1)
        batch = await journal.batch("batch")
        assert batch is not None
        assert batch.counts == dict.fromkeys(STATES, 0) | {
            ExecutionState.COMPLETED: 1,
            ExecutionState.FAILED: 1,
            ExecutionState.CANCELLED: 1,
        }
        assert batch.finished_at == last
        await runs[1].retry()
        batch = await journal.batch("batch")
        assert batch is not None
        assert batch.finished_at is None

    async def test_batches_are_listed_newest_first(
        self, journal: JournalAdapter, clock: VirtualClock
    ) -> None:
        assert await journal.batches() == []
        for number, name in enumerate(["b0", "b1", "b2", "b3"]):
            # The two in the middle were created at the same time.
            clock.advance(number != 2)
            await journal.submit([submission(f"e{number}")], batch=batch_of(name))
        await journal.submit([submission("x")], batch=batch_of("theirs", namespace="other"))
        first = await journal.batches(limit=2)
        assert [batch.id for batch in first] == ["b3", "b2"]
        rest = await journal.batches(before=(first[-1].created_at, first[-1].id), limit=5)
        assert [batch.id for batch in rest] == ["b1", "b0"]
        assert rest[0] == await journal.batch("b1")
        assert [batch.id for batch in await journal.batches(namespace="other")] == ["theirs"]

    async def test_results_come_in_the_order_of_the_inputs(self, journal: JournalAdapter) -> None:
        ids = [f"e{number * 7 % 10}" for number in range(10)]
        await journal.submit([submission(id_, input=b'{"n": 1}') for id_ in ids], batch=batch_of())
        run = Recording(journal, ids[1], submission(ids[1]).plan)
        await run.started()
        await run.completed("a", output=b'"done"')
        seen: list[tuple[int, ExecutionRow]] = []
        while page := await journal.batch_results("batch", after=seen[-1][0] if seen else -1, limit=3):
            assert len(page) <= 3
            seen += page
        assert [(index, row.id) for index, row in seen] == list(enumerate(ids))
        assert {row.input for _, row in seen} == {b""}
        assert [row.output for _, row in seen] == [None, b'{"a":"done"}', *[None] * 8]
        large = Recording(journal, ids[2], submission(ids[2]).plan)
        await large.started()
        await large.completed("a", output=b'"%s"' % (b"\\u00e9" * 1000))
        results = dict(await journal.batch_results("batch"))
        assert results[1].output == b'{"a":"done"}'
        assert results[2].output == b'{"a":"%s"}' % (b"\\u00e9" * 1000)
        assert await journal.batch_results("stranger") == []

    async def test_a_page_of_results_ends_with_the_output_that_fills_it(
        self, journal: JournalAdapter
    ) -> None:
        ids = [f"e{number}" for number in range(6)]
        await journal.submit([submission(id_) for id_ in ids], batch=batch_of())
        # An output of two bytes more, and one that is read apart from others.
        for id_, size in (("e1", 100), ("e2", 10_000), ("e3", 100), ("e5", 100)):
            run = Recording(journal, id_, submission(id_).plan)
            await run.started()
            await run.completed("a", output=b'"%s"' % (b"x" * size))
        pages = []
        after = -1
        while page := await journal.batch_results("batch", after=after, most_bytes=200):
            pages.append([index for index, _ in page])
            after = page[-1][0]
            assert all((row.output is None) == (row.id in ("e0", "e4")) for _, row in page)
        assert pages == [[0, 1, 2], [3, 4, 5]]
        first = await journal.batch_results("batch", after=1, limit=2, most_bytes=1)
        assert [index for index, _ in first] == [2]

    async def test_a_batch_counts_the_attempts_that_followed_a_first_one(
        self, journal: JournalAdapter
    ) -> None:
        await journal.submit([submission(name) for name in "ab"], batch=batch_of())
        await journal.submit([submission("c")])
        runs = [Recording(journal, name, submission(name).plan) for name in "abc"]
        for run in runs:
            await run.started()
        batch = await journal.batch("batch")
        assert batch is not None
        assert batch.retried == 0
        await runs[0].failed_once("a")
        await runs[0].failed_once("a", 2)
        await runs[0].completed("a", attempt=3)
        await runs[1].completed("a")
        await runs[2].failed_once("a")
        batch = await journal.batch("batch")
        assert batch is not None
        assert batch.retried == 2

    async def test_a_batch_that_comes_again_changes_nothing(self, journal: JournalAdapter) -> None:
        new = [submission(name) for name in "ab"]
        await journal.submit(new, batch=batch_of())
        before = await journal.batch("batch")
        await journal.submit(new, batch=batch_of())
        assert await journal.batch("batch") == before
        assert [index for index, _ in await journal.batch_results("batch")] == [0, 1]

    async def test_a_batch_without_inputs_is_finished(
        self, journal: JournalAdapter, clock: VirtualClock
    ) -> None:
        assert await journal.submit([], batch=batch_of()) == []
        batch = await journal.batch("batch")
        assert batch is not None
        assert (batch.total, batch.finished_at) == (0, clock.now())

    async def test_batches_of_a_namespace_are_its_own(self, journal: JournalAdapter) -> None:
        await journal.submit([submission("e", namespace="other")], batch=batch_of(namespace="other"))
        assert await journal.batch("batch") is None
        assert await journal.batch("batch", namespace="other") is not None


class ListsContract:
    async def test_a_list_has_everything_of_an_execution_but_input_and_output(
        self, journal: JournalAdapter
    ) -> None:
        run = await Recording.start(
            journal,
            node("a"),
            node("b", condition="1 == 2"),
            input=b'{"n": 1}',
            labels={"team": 'blue "sky" \u00fc'},
            workflow="w",
            version=3,
        )
        await run.skipped("b")
        await run.completed("a")
        whole = await run.row()
        assert whole.output is not None
        (listed,) = await journal.executions()
        assert (listed.input, listed.output) == (b"", None)
        listed.input, listed.output = whole.input, whole.output
        assert listed == whole
        failed = await Recording.start(journal, node("a"), execution_id="f")
        await failed.failed("a")
        (listed,) = await journal.executions(ExecutionQuery(states=(ExecutionState.FAILED,)))
        assert (listed.id, listed.error, listed.total) == ("f", (await failed.row()).error, 1)

    async def test_pages_stay_as_they_are_while_new_executions_come_in(
        self, journal: JournalAdapter, clock: VirtualClock
    ) -> None:
        for number in range(3):
            # Several have one time: the id decides between them.
            await journal.submit([submission(f"{name}{number}") for name in "bca"])
            clock.advance(1)
        expected = [f"{name}{number}" for number in (2, 1, 0) for name in "cba"]
        seen: list[str] = []
        before = None
        while page := await journal.executions(before=before, limit=2):
            seen += [row.id for row in page]
            before = page[-1].created_at, page[-1].id
            await journal.submit([submission(f"new{len(seen)}")])
        assert seen == expected

    async def test_a_list_has_what_meets_every_condition(
        self, journal: JournalAdapter, clock: VirtualClock
    ) -> None:
        start = clock.now()
        blue, test = {"team": "blue"}, {"env": "test"}
        #            workflow, version, labels
        facts: dict[str, tuple[str | None, int | None, dict[str, str]]] = {
            "a": (None, None, {}),
            "b": ("w", 1, blue),
            "c": ("v", 1, blue | test),
            "d": ("w", 2, test),
            "e": (None, None, {"team": "red"}),
            "f": ("w", 1, blue),
            "g": ("v", 1, test | blue),
            "h": ("w", 2, {}),
        }
        new = {
            id_: submission(id_, workflow=workflow, version=version, labels=labels)
            for id_, (workflow, version, labels) in facts.items()
        }
        for id_ in "abcdef":
            await journal.submit([new[id_]])
            clock.advance(1)
        await journal.submit([new["g"], new["h"]], batch=batch_of())
        runs = {id_: Recording(journal, id_, new[id_].plan) for id_ in facts}
        for id_ in "abcde":
            await runs[id_].started()
        for id_ in "ab":
            await runs[id_].completed("a")
        for id_ in "cd":
            await runs[id_].failed("a")
        stranger = submission("z", namespace="other", workflow="w", version=1, labels=blue | test)
        await journal.submit([stranger])
        for condition, expected in CONDITIONS:
            times = {
                bound: start + seconds * MICROSECONDS
                for bound, seconds in condition.items()
                if bound in ("created_after", "created_before")
            }
            query = ExecutionQuery(**condition | times)
            assert "".join(await all_executions(journal, query)) == expected, condition
            assert "".join(row.id for row in await journal.executions(query)) == expected, condition

    async def test_a_state_filter_follows_an_execution_from_state_to_state(
        self, journal: JournalAdapter
    ) -> None:
        async def states() -> list[ExecutionState]:
            found = []
            for state in STATES:
                found += [state] * len(await journal.executions(ExecutionQuery(states=(state,))))
            return found

        run = await Recording.submit(journal, node("a"))
        assert await states() == [ExecutionState.PENDING]
        await run.started()
        assert await states() == [ExecutionState.RUNNING]
        await run.pause()
        assert await states() == [ExecutionState.PAUSED]
        await run.resume()
        assert await states() == [ExecutionState.RUNNING]
        await run.failed("a")
        assert await states() == [ExecutionState.FAILED]
        await run.retry()
        assert await states() == [ExecutionState.RUNNING]
        await run.cancel()
        assert await states() == [ExecutionState.CANCELLED]

    async def test_dead_letters_are_listed_by_condition_in_pages(
        self, journal: JournalAdapter, clock: VirtualClock
    ) -> None:
        async def fail_all(run: Recording, names: str) -> None:
            for name in names:
                code = "timeout" if name in "be" else "handler_error"
                await run.failed(name, error={**ERROR, "code": code})
                clock.advance(1)

        async def start(execution_id: str, names: str, **fields: Any) -> Recording:
            nodes = [node(name) for name in names]
            return await Recording.start(
                journal, *nodes, execution_id=execution_id, failure_policy="continue", **fields
            )

        one, two = await start("one", "abc", workflow="w"), await start("two", "def")
        await fail_all(one, "abc")
        await fail_all(two, "def")
        other = await start("other", "z", namespace="other", workflow="w")
        await other.failed("z", error={**ERROR, "code": "timeout"})
        (oldest,) = [letter for letter in await journal.dead_letters() if letter.node_id == "a"]
        await journal.drop_letter(oldest.id)
        await one.retry()
        for condition, expected in LETTER_CONDITIONS:
            assert "".join(await all_letters(journal, LetterQuery(**condition))) == expected, condition

    async def test_a_dead_letter_is_found_by_its_id(self, journal: JournalAdapter) -> None:
        run = await Recording.start(journal, node("a"))
        await run.failed("a")
        (letter,) = await journal.dead_letters()
        assert await journal.dead_letter(letter.id) == letter
        assert await journal.dead_letter("stranger") is None
        assert await journal.dead_letter(letter.id, namespace="other") is None

    async def test_a_dropped_letter_stays_dropped(self, journal: JournalAdapter) -> None:
        run = await Recording.start(journal, node("a"), node("b"), failure_policy="continue")
        await run.failed("a")
        await run.failed("b")
        letters = {letter.node_id: letter for letter in await journal.dead_letters()}
        assert not await journal.drop_letter("stranger")
        assert not await journal.drop_letter(letters["a"].id, namespace="other")
        assert await run.letters() == {("a", 1): "open", ("b", 1): "open"}
        assert await journal.drop_letter(letters["a"].id, actor="ann")
        (change,) = await journal.changes()
        assert (change.action, change.actor, change.dead_letter) == (
            "dead_letter.dropped",
            "ann",
            letters["a"].id,
        )
        assert await journal.drop_letter(letters["a"].id)
        assert await run.letters() == {("a", 1): "dropped", ("b", 1): "open"}
        await run.retry()
        assert await run.letters() == {("a", 1): "dropped", ("b", 1): "retried"}
        assert await journal.drop_letter(letters["b"].id)
        assert await run.letters() == {("a", 1): "dropped", ("b", 1): "dropped"}

    async def test_the_stats_count_what_is_not_done_in_all_namespaces(self, journal: JournalAdapter) -> None:
        empty = await journal.stats()
        assert (empty.executions, empty.open_letters) == (
            dict.fromkeys((ExecutionState.PENDING, ExecutionState.RUNNING, ExecutionState.PAUSED), 0),
            0,
        )
        await journal.submit([submission("p"), submission("q", namespace="other")])
        failed = await Recording.start(journal, node("a"), execution_id="f", namespace="other")
        await failed.failed("a")
        await Recording.start(journal, node("a"), execution_id="r")
        stats = await journal.stats()
        assert stats.executions == {
            ExecutionState.PENDING: 2,
            ExecutionState.RUNNING: 1,
            ExecutionState.PAUSED: 0,
        }
        assert stats.open_letters == 1
        await failed.retry()
        assert (await journal.stats()).open_letters == 0

    async def test_a_journal_that_works_passes_its_check(self, journal: JournalAdapter) -> None:
        await journal.check()

    async def test_the_key_for_messages_has_32_bytes(self, journal: JournalAdapter) -> None:
        assert len(await journal.signing_key()) == 32
