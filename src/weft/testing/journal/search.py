"""The promises of every journal about searches: a part of ``JournalContract``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft.core.state import ExecutionState
from weft.core.time import MICROSECONDS
from weft.journal import pages
from weft.journal.contract import ExecutionQuery, LetterQuery
from weft.testing.recording import ERROR, Recording, node, submission

if TYPE_CHECKING:
    import pytest

    from weft.clock import VirtualClock
    from weft.core.rows import DeadLetter, ExecutionRow
    from weft.journal.contract import JournalAdapter
    from weft.journal.search import LetterGroup

FAILED, RUNNING = ExecutionState.FAILED, ExecutionState.RUNNING
ENDS = (ExecutionState.COMPLETED, FAILED, ExecutionState.CANCELLED)

# What is searched for among the executions of ``_tell``, and the first letters of what is found.
SEARCHES: list[tuple[dict[str, Any], str]] = [
    ({"error": "timeout"}, "eb"),
    ({"error": "node_failed"}, "edb"),
    ({"error": "deadline_exceeded"}, "c"),
    ({"error": "output_error"}, "a"),
    ({"error": "stranger"}, ""),
    ({"node": "fetch"}, "db"),
    ({"node": "parse"}, "ed"),
    ({"worker": "w-2"}, "fd"),
    ({"worker": "w-1"}, "eb"),
    ({"worker": "w-3"}, ""),
    ({"node": "fetch", "error": "timeout"}, "b"),
    ({"node": "parse", "worker": "w-2"}, "d"),
    ({"error": "node_failed", "states": (FAILED,)}, "ed"),
    ({"error": "timeout", "workflow": "report"}, "b"),
    ({"error": "node_failed", "labels": (("customer", "Blue Sky"),)}, "d"),
    ({"text": "rep"}, "ba"),
    ({"text": "REPORT"}, "ba"),
    ({"text": "blue"}, "d"),
    ({"text": "e sK"}, "d"),
    ({"text": "c-0000"}, "c"),
    ({"text": "c-00000000"}, "c"),
    ({"text": "C-00000000-3"}, "c"),
    ({"text": "0000-3"}, ""),
    ({"text": "100%_"}, "f"),
    ({"text": "9%"}, ""),
    ({"text": "stranger", "error": "timeout"}, ""),
    ({"text": "b-00000000", "error": "timeout"}, "b"),
    ({"text": "b-00000000", "error": "stranger"}, ""),
    ({"text": "e", "states": (FAILED, RUNNING), "workflow": "report"}, ""),
    ({"min_microseconds": 100 * MICROSECONDS}, "fc"),
    ({"max_microseconds": 3 * MICROSECONDS}, "edba"),
    ({"min_microseconds": 100 * MICROSECONDS, "states": (RUNNING,)}, "f"),
    ({"min_microseconds": 100 * MICROSECONDS, "max_microseconds": 110 * MICROSECONDS}, "c"),
    ({"min_microseconds": 1000 * MICROSECONDS}, ""),
]
LETTER_SEARCHES: list[tuple[dict[str, Any], str]] = [
    ({"node": "parse"}, "ed"),
    ({"node": "fetch"}, "db"),
    ({"node": "fetch", "state": "open"}, "d"),
    ({"node": "stranger"}, ""),
    ({"text": "report"}, "b"),
    ({"text": "Sky"}, "dd"),
    ({"text": "d-0"}, "dd"),
    ({"text": "d-0", "node": "parse"}, "d"),
    ({"text": "stranger"}, ""),
]


def _id(letter: str) -> str:
    return f"{letter}-00000000-{'abcdefgh'.index(letter) + 1}"


async def _tell(journal: JournalAdapter, clock: VirtualClock) -> None:
    """Leave executions behind: two of a workflow, most with a failure, one in another namespace."""

    async def start(letter: str, *nodes: dict[str, Any], **fields: Any) -> Recording:
        run = await Recording.start(
            journal,
            *(nodes or (node("fetch"),)),
            execution_id=_id(letter),
            failure_policy="continue",
            **fields,
        )
        clock.advance(1)
        return run

    timeout = {**ERROR, "code": "timeout"}
    a = await start("a", output="{{ 1 / 0 }}", workflow="report", version=1)
    await a.completed("fetch")
    b = await start("b", workflow="report", version=2)
    await b.failed("fetch", error=timeout, worker="w-1")
    await b.retry()
    await b.completed("fetch", attempt=2)
    c = await start("c", timeout_seconds=100)
    clock.advance(99)
    await c.deadline_passed()
    d = await start("d", node("fetch"), node("parse"), labels={"customer": "Blue Sky"})
    await d.failed("fetch", worker="w-2")
    await d.failed("parse", worker="w-2")
    e = await start("e", node("fetch"), node("parse"))
    await e.failed_once("fetch", worker="w-1")
    await e.completed("fetch", attempt=2)
    await e.failed("parse", error=timeout, worker=None)
    f = await start("f", labels={"rate": "100%_", "null": "a\0b"})
    await f.lost("fetch", worker="w-2")
    clock.advance(200)
    theirs = await start("g", labels={"customer": "Blue Sky"}, namespace="other")
    await theirs.failed("fetch", error=timeout, worker="w-2")
    # Accepted, and not started: it has taken no time yet.
    await journal.submit([submission(_id("h"), node("fetch"))])


async def _all_found(journal: JournalAdapter, query: ExecutionQuery, *, limit: int) -> list[str]:
    """Turn the pages of a search to its end; give the ids on them."""
    seen: list[ExecutionRow] = []
    before = None
    while True:
        found = await journal.search(query, before=before, limit=limit)
        assert len(found.rows) <= limit
        seen += found.rows
        if len(found.rows) == limit:
            before = seen[-1].created_at, seen[-1].id
        elif found.searched_to is not None:
            before = found.searched_to
        else:
            return [row.id for row in seen]


class SearchContract:
    async def test_a_search_finds_what_meets_every_condition(
        self, journal: JournalAdapter, clock: VirtualClock
    ) -> None:
        await _tell(journal, clock)
        for condition, expected in SEARCHES:
            query = ExecutionQuery(**condition)
            for limit in (1, 50):
                found = await _all_found(journal, query, limit=limit)
                assert "".join(id_[0] for id_ in found) == expected, condition
            if "text" not in condition:
                listed = await journal.executions(query)
                assert "".join(row.id[0] for row in listed) == expected, condition

    async def test_a_search_of_dead_letters_goes_by_node_and_text(
        self, journal: JournalAdapter, clock: VirtualClock
    ) -> None:
        await _tell(journal, clock)
        for condition, expected in LETTER_SEARCHES:
            query = LetterQuery(**condition)
            seen: list[DeadLetter] = []
            while page := (
                await journal.search_letters(
                    query, before=(seen[-1].created_at, seen[-1].id) if seen else None, limit=1
                )
            ).rows:
                seen += page
            assert "".join(letter.execution_id[0] for letter in seen) == expected, condition
            listed = await journal.dead_letters(query)
            assert "".join(letter.execution_id[0] for letter in listed) == expected, condition

    async def test_a_search_that_stops_before_the_end_goes_on_from_there(
        self, journal: JournalAdapter, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await _tell(journal, clock)
        for most in (1, 2, 3):
            monkeypatch.setattr(pages, "MAX_WALKED", most)
            for condition, expected in SEARCHES:
                found = await _all_found(journal, ExecutionQuery(**condition), limit=2)
                assert "".join(id_[0] for id_ in found) == expected, (most, condition)
            before, nodes = None, ""
            while True:
                some = await journal.search_letters(LetterQuery(text="sky"), before=before, limit=5)
                nodes += "".join(letter.node_id[0] for letter in some.rows)
                before = some.searched_to
                if before is None:
                    break
            assert nodes == "pf"

    async def test_a_search_finds_an_execution_once_however_much_of_it_failed(
        self, journal: JournalAdapter
    ) -> None:
        names = [f"n{number}" for number in range(5)]
        run = await Recording.start(journal, *map(node, names), failure_policy="continue")
        for generation in (1, 2):
            for name in names:
                await run.failed(name, attempt=generation)
            if generation == 1:
                await run.retry()
        for query in (ExecutionQuery(error="handler_error"), ExecutionQuery(node="n3")):
            found = await journal.search(query)
            assert [row.id for row in found.rows] == [run.id]

    async def test_an_execution_that_is_purged_is_found_no_more(
        self, journal: JournalAdapter, clock: VirtualClock
    ) -> None:
        run = await Recording.start(journal, node("a"))
        await run.failed("a", worker="w-1")
        clock.advance(10)
        later = await Recording.start(journal, node("a"), execution_id="later")
        await later.failed("a", worker="w-1")
        assert await journal.purge(finished_before=clock.now(), limit=10) == 1
        for query in (
            ExecutionQuery(error="handler_error"),
            ExecutionQuery(node="a"),
            ExecutionQuery(worker="w-1"),
        ):
            found = await journal.search(query)
            assert [row.id for row in found.rows] == ["later"]


class LetterGroupsContract:
    async def test_dead_letters_are_grouped_by_workflow_node_and_code(
        self, journal: JournalAdapter, clock: VirtualClock
    ) -> None:
        await self._fail(journal, clock)
        groups = list(await journal.letter_groups())
        assert [(group.workflow, group.node_id, group.code, group.count) for group in groups] == [
            (None, "a", "timeout", 1),
            ("w", "a", "lost", 1),
            ("w", "a", "timeout", 2),
            ("w", "b", "timeout", 1),
            ("w-2", "a", "timeout", 1),
        ]
        two = groups[2]
        (first,) = await journal.dead_letters(LetterQuery(execution_id="e1", node="a"))
        (last,) = await journal.dead_letters(LetterQuery(execution_id="e2"))
        assert (two.executions, two.first_at, two.last_at) == (2, first.created_at, last.created_at)
        assert two.sample == last
        assert await journal.newest_letter_groups(limit=3) == [groups[4], groups[0], groups[1]]
        for group in groups:
            query = LetterQuery(
                workflow=group.workflow or "", node=group.node_id, code=group.code, state="open"
            )
            assert len(await journal.dead_letters(query)) == group.count
        assert len(await journal.dead_letters(LetterQuery(workflow=""))) == 1

    async def test_groups_come_in_pages_of_a_state_a_workflow_or_none(
        self, journal: JournalAdapter, clock: VirtualClock
    ) -> None:
        await self._fail(journal, clock)
        groups = list(await journal.letter_groups())
        turned: list[LetterGroup] = []
        while page := await journal.letter_groups(after=turned[-1].key if turned else None, limit=2):
            turned += page
        assert turned == groups
        assert await journal.letter_groups(workflow="w") == groups[1:4]
        assert await journal.letter_groups(workflow="w", after=groups[1].key) == groups[2:4]
        assert await journal.letter_groups(workflow="") == groups[:1]
        assert [group.count for group in await journal.letter_groups(state="retried")] == [1]
        assert [group.count for group in await journal.letter_groups(namespace="other")] == [1]

    async def _fail(self, journal: JournalAdapter, clock: VirtualClock) -> None:
        async def fail(execution_id: str, *names: str, code: str = "timeout", **fields: Any) -> Recording:
            nodes = [node(name) for name in names]
            run = await Recording.start(
                journal, *nodes, execution_id=execution_id, failure_policy="continue", **fields
            )
            for name in names:
                clock.advance(1)
                await run.failed(name, error={**ERROR, "code": code})
            return run

        await fail("e1", "a", "b", workflow="w")
        await fail("e2", "a", workflow="w")
        await fail("e3", "a", code="lost", workflow="w")
        retried = await fail("e4", "a", workflow="w")
        await fail("e5", "a")
        await fail("e6", "a", workflow="w-2")
        await fail("e7", "a", workflow="w", namespace="other")
        await retried.retry()

    async def test_many_letters_are_dropped_as_one(self, journal: JournalAdapter) -> None:
        names = [f"n{number}" for number in range(5)]
        run = await Recording.start(journal, *map(node, names), failure_policy="continue")
        for name in names:
            await run.failed(name)
        letters = {letter.node_id: letter.id for letter in await journal.dead_letters()}
        await journal.drop_letter(letters["n0"])
        assert await journal.drop_letters(list(letters.values()), namespace="other") == 0
        wanted = [letters["n0"], letters["n1"], letters["n2"], letters["n2"], "stranger"]
        assert await journal.drop_letters(wanted, actor="ann") == 2
        states = {name: state for (name, _), state in (await run.letters()).items()}
        assert states == dict.fromkeys(names, "open") | dict.fromkeys(names[:3], "dropped")
        dropped = [change.dead_letter for change in await journal.changes() if change.actor == "ann"]
        assert sorted(filter(None, dropped)) == sorted([letters["n1"], letters["n2"]])
        assert await journal.drop_letters([]) == 0


class ActivityContract:
    async def test_executions_of_a_period_are_counted_by_their_ends(
        self, journal: JournalAdapter, clock: VirtualClock
    ) -> None:
        start = clock.now()
        runs = {}
        for name in "abcd":
            runs[name] = await Recording.start(journal, node("a"), execution_id=name)
            clock.advance(10)
        await runs["a"].completed("a")
        await runs["b"].failed("a")
        clock.advance(10)
        await runs["c"].cancel()
        other = await Recording.start(journal, node("a"), execution_id="z", namespace="other")
        await other.failed("a")
        seconds = MICROSECONDS

        async def counted(since: int, until: int) -> tuple[int, list[int]]:
            found = await journal.period_counts(since=start + since * seconds, until=start + until * seconds)
            return found.created, [found.ended[state] for state in ENDS]

        assert await counted(0, 100) == (4, [1, 1, 1])
        assert await counted(10, 30) == (2, [0, 0, 0])
        assert await counted(40, 50) == (0, [1, 1, 0])
        assert await counted(50, 51) == (0, [0, 0, 1])
        now = await journal.namespace_counts()
        assert now.executions == {ExecutionState.PENDING: 0, RUNNING: 1, ExecutionState.PAUSED: 0}
        assert (now.open_letters, now.open_waits) == (1, 0)
        await runs["b"].retry()
        assert await counted(0, 100) == (4, [1, 0, 1])
        now = await journal.namespace_counts(namespace="other")
        assert (sum(now.executions.values()), now.open_letters) == (0, 1)

    async def test_node_runs_tell_how_long_nodes_took_and_how_often_they_failed(
        self, journal: JournalAdapter
    ) -> None:
        for name in ("e1", "e2", "e3"):
            run = await Recording.start(
                journal, node("a"), node("b"), node("c"), execution_id=name, failure_policy="continue"
            )
            ended = (await run.row()).created_at
            await run.completed("a", started_at=ended - 5, finished_at=ended)
            await run.failed("b")
            if name == "e1":
                await run.cached("c", b"1")
        runs = await journal.node_runs(["e1", "e2", "stranger"])
        assert {name: (one.durations, one.failures) for name, one in runs.items()} == {
            "a": ([5, 5], 0),
            "b": ([], 2),
        }
        assert await journal.node_runs([]) == {}
