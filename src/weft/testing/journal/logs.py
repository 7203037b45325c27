"""The contract of the lines and the progress of nodes: a part of ``JournalContract``."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from weft.core.rows import NodeProgress
from weft.journal.contract import LogChunk, LogLine, ReportedProgress
from weft.testing.recording import Recording, node

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.clock import VirtualClock
    from weft.journal.contract import JournalAdapter


def chunk(
    *messages: str,
    number: int = 1,
    before: int = 0,
    node_id: str = "a",
    attempt: int = 1,
    execution_id: str = "e",
    keep_from: int = 1,
) -> LogChunk:
    return LogChunk(
        execution_id=execution_id,
        node_id=node_id,
        attempt=attempt,
        number=number,
        lines_before=before,
        lines=[LogLine(7, "stdout", message) for message in messages],
        keep_from=keep_from,
    )


async def messages(
    journal: JournalAdapter,
    *,
    after: int = 0,
    limit: int = 50,
    node_id: str | None = None,
    attempt: int | None = None,
    execution_id: str = "e",
) -> list[str]:
    found = await journal.logs(execution_id, after=after, limit=limit, node_id=node_id, attempt=attempt)
    return [line.message for stored in found for line in stored.lines]


def told(
    progress: NodeProgress, *, node_id: str = "a", attempt: int = 1, execution_id: str = "e"
) -> ReportedProgress:
    return ReportedProgress(execution_id, node_id, attempt, progress)


class LogsContract:
    async def test_lines_come_back_as_they_were_in_the_order_of_the_commits(
        self, journal: JournalAdapter
    ) -> None:
        await Recording.start(journal, node("a"), node("b"), execution_id="e")
        lines = [
            LogLine(1_000_000, "stdout", 'ü "quoted" \t'),
            LogLine(1_000_001, "log", "late\nand on two lines", "WARNING", "shop.orders"),
        ]
        whole = LogChunk(
            execution_id="e", node_id="a", attempt=2, number=1, lines_before=0, lines=lines, keep_from=1
        )
        await journal.append_logs([whole, chunk("third", node_id="b")])
        await journal.append_logs([chunk("fourth", node_id="a", attempt=2, number=2, before=2)])
        found = await journal.logs("e")
        assert [(stored.node_id, stored.attempt) for stored in found] == [("a", 2), ("b", 1), ("a", 2)]
        assert list(found[0].lines) == lines
        numbers = [stored.first_seq + 1 + index for stored in found for index in range(len(stored.lines))]
        assert numbers == sorted(set(numbers))
        assert [stored.lines_gone for stored in found] == [0, 0, 0]
        # A reader that has seen a line gets the lines behind it.
        assert await messages(journal, after=numbers[0]) == [
            'ü "quoted" \t',
            lines[1].message,
            "third",
            "fourth",
        ]
        assert await messages(journal, after=numbers[1]) == ["third", "fourth"]
        assert await messages(journal, after=numbers[-1]) == []
        assert await messages(journal, limit=1) == [line.message for line in lines]

    async def test_lines_of_one_node_and_of_one_attempt_are_found(self, journal: JournalAdapter) -> None:
        await Recording.start(journal, node("a"), node("b"), execution_id="e")
        await Recording.start(journal, node("a"), execution_id="other")
        await journal.append_logs(
            [chunk("a1"), chunk("b1", node_id="b"), chunk("a2", attempt=2), chunk("x", execution_id="other")]
        )
        assert await messages(journal, node_id="a") == ["a1", "a2"]
        assert await messages(journal, node_id="a", attempt=2) == ["a2"]
        assert await messages(journal, attempt=1) == ["a1", "b1"]
        assert await messages(journal, execution_id="other") == ["x"]
        assert await messages(journal, execution_id="nobody") == []

    async def test_a_chunk_that_is_written_twice_is_there_once(self, journal: JournalAdapter) -> None:
        await Recording.start(journal, node("a"), execution_id="e")
        for _ in range(2):
            await journal.append_logs([chunk("one")])
        await journal.append_logs([chunk("one"), chunk("two", number=2, before=1)])
        assert await messages(journal) == ["one", "two"]

    async def test_the_oldest_lines_of_an_attempt_go_and_it_is_said_how_many(
        self, journal: JournalAdapter
    ) -> None:
        await Recording.start(journal, node("a"), execution_id="e")
        await journal.append_logs([chunk("one", "two"), chunk("other", attempt=2)])
        await journal.append_logs([chunk("three", number=2, before=2)])
        await journal.append_logs([chunk("four", number=3, before=3, keep_from=2)])
        found = await journal.logs("e")
        assert [(line.message, stored.lines_gone) for stored in found for line in stored.lines] == [
            ("other", 0),
            ("three", 2),
            ("four", 0),
        ]

    async def test_many_chunks_are_written_at_once(self, journal: JournalAdapter) -> None:
        await Recording.start(journal, node("a"), execution_id="e")
        many: Sequence[LogChunk] = [chunk(str(number), attempt=number) for number in range(1, 201)]
        await journal.append_logs(many)
        await journal.append_logs([])
        assert await messages(journal, limit=500) == [str(number) for number in range(1, 201)]

    async def test_writers_of_one_execution_do_not_share_a_number(self, journal: JournalAdapter) -> None:
        await Recording.start(journal, node("a"), execution_id="e")
        await Recording.start(journal, node("a"), execution_id="f")
        await asyncio.gather(
            *(
                journal.append_logs(
                    [chunk("x", attempt=attempt, execution_id=one) for one in ("e", "f")[:: (-1) ** attempt]]
                )
                for attempt in range(1, 21)
            )
        )
        found = await journal.logs("e", limit=100)
        assert len({stored.first_seq for stored in found}) == len(found) == 20

    async def test_lines_of_an_execution_that_is_gone_are_left_out(
        self, journal: JournalAdapter, clock: VirtualClock
    ) -> None:
        run = await Recording.start(journal, node("a"), execution_id="e")
        await journal.append_logs([chunk("kept"), chunk("lost", execution_id="nobody")])
        assert await messages(journal) == ["kept"]
        assert await messages(journal, execution_id="nobody") == []
        await run.completed("a")
        clock.advance(1)
        assert await journal.purge(finished_before=clock.now(), limit=10) == 1
        assert await journal.logs("e") == []
        await journal.append_logs([chunk("late", number=2, before=1)])
        assert await journal.logs("e") == []
        # A new one of the same name has none of them.
        await Recording.start(journal, node("a"), execution_id="e")
        assert await journal.logs("e") == []

    async def test_the_last_word_of_the_last_attempt_on_its_progress_is_kept(
        self, journal: JournalAdapter
    ) -> None:
        await Recording.start(journal, node("a"), node("b"), execution_id="e")
        assert await journal.progress("e") == {}
        first = NodeProgress(1, 4, 'ü "one"', 7)
        await journal.append_logs(
            [chunk("beside")], progress=[told(first), told(NodeProgress(0.5, None, None, 8), node_id="b")]
        )
        assert await messages(journal) == ["beside"]
        assert await journal.progress("e") == {"a": (1, first), "b": (1, NodeProgress(0.5, None, None, 8))}
        last = NodeProgress(3, 4, None, 9)
        for attempt, said in ((1, NodeProgress(2, 4, None, 8)), (2, last), (1, first)):
            await journal.append_logs([], progress=[told(said, attempt=attempt)])
        assert await journal.progress("e", names=["a"]) == {"a": (2, last)}
        assert await journal.progress("e", names=[]) == {}
        assert await journal.progress("nobody") == {}

    async def test_progress_goes_with_its_execution(
        self, journal: JournalAdapter, clock: VirtualClock
    ) -> None:
        run = await Recording.start(journal, node("a"), execution_id="e")
        said = NodeProgress(1, None, None, 7)
        many = [told(said, node_id=f"n{number}") for number in range(100)]
        await journal.append_logs([], progress=[*many, told(said, execution_id="nobody")])
        assert len(await journal.progress("e")) == 100
        await run.completed("a")
        clock.advance(1)
        assert await journal.purge(finished_before=clock.now(), limit=10) == 1
        await journal.append_logs([], progress=[told(said)])
        await Recording.start(journal, node("a"), execution_id="e")
        assert await journal.progress("e") == {}
