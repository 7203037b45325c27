"""The contract of the history: the same for stored events and for those derived from the rows of nodes."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from weft.core.event import NodeCompleted, RetryRequested
from weft.core.rows import History
from weft.core.state import ExecutionState
from weft.testing.recording import ERROR, Recording, node

if TYPE_CHECKING:
    from weft.clock import VirtualClock
    from weft.core.event import Event
    from weft.core.ledger.changes import RecordedEvent
    from weft.journal.contract import JournalAdapter


async def pages(journal: JournalAdapter, execution_id: str, *, limit: int) -> list[History]:
    """Read the whole history page by page, each resumed behind the last event of the page before."""
    history: list[History] = []
    while page := await journal.events(execution_id, after=history[-1].seq if history else 0, limit=limit):
        assert len(page) <= limit
        history += page
    return history


def told_by(*recorded_events: RecordedEvent) -> list[History]:
    return [event for recorded_event in recorded_events for event in recorded_event.history]


class HistoryContract:
    async def test_a_completion_is_shown_with_all_that_it_is(
        self, journal: JournalAdapter, clock: VirtualClock
    ) -> None:
        run = await Recording.start(journal, node("a"), node("b"))
        clock.advance(1)
        committed_at = clock.now()
        recorded_event = await run.completed(
            "a",
            output=b'{"x": 1.0}',
            queued_at=committed_at - 3,
            started_at=committed_at - 2,
            finished_at=committed_at - 1,
        )
        clock.advance(1)
        await run.completed("b")
        expected = History(
            seq=3,
            at=committed_at,
            type="node.completed",
            execution=run.id,
            generation=1,
            node="a",
            attempt=1,
            state="COMPLETED",
            worker="worker-1",
            queued_at=committed_at - 3,
            started_at=committed_at - 2,
            finished_at=committed_at - 1,
            output_digest=hashlib.sha256(b'{"x": 1.0}').hexdigest(),
        )
        assert list(recorded_event.history) == [expected]
        assert (await run.events())[2] == expected
        assert await journal.events(run.id, nodes=["a"]) == [expected]

    async def test_a_completion_from_the_cache_is_of_no_attempt(
        self, journal: JournalAdapter, clock: VirtualClock
    ) -> None:
        run = await Recording.start(journal, node("a"), node("b"))
        await run.failed_once("a")
        clock.advance(1)
        at = clock.now()
        await run.cached("a", b'{"hit": true}', attempt=2)
        clock.advance(1)
        assert (await run.events())[-1] == History(
            seq=4,
            at=at,
            type="node.completed",
            execution=run.id,
            generation=1,
            node="a",
            attempt=0,
            state="COMPLETED",
            queued_at=at,
            started_at=at,
            finished_at=at,
            output_digest=hashlib.sha256(b'{"hit": true}').hexdigest(),
        )

    async def test_the_states_of_nodes_are_their_rows_without_outputs(self, journal: JournalAdapter) -> None:
        names = [f"n{number}" for number in range(20)]
        run = await Recording.start(journal, *map(node, names), node("last", *names))
        for name in names[:10]:
            await run.completed(name, output=b'"' + name.encode() * 1000 + b'"')
        await run.failed_once(names[10])
        rows = await journal.nodes(run.id)
        assert len(rows) == 11
        assert await journal.node_states(run.id) == {
            name: replace(row, output=None) for name, row in rows.items()
        }
        some = [*names[8:12], "nothing"]
        assert await journal.node_states(run.id, names=some) == {
            name: replace(rows[name], output=None) for name in names[8:11]
        }
        assert await journal.node_states("nothing") == {}

    async def test_an_output_in_a_blob_has_no_digest(self, journal: JournalAdapter) -> None:
        run = await Recording.start(journal, node("a"), node("b"))
        blob = await journal.put_blob(b'"large"')
        recorded_event = await run.completed("a", output=None, blob=blob, output_bytes=7)
        (event,) = recorded_event.history
        assert event.output_digest is None
        assert (await run.events())[-1] == event

    @pytest.mark.parametrize("size", [2, 4096, 4097, 200_000])
    async def test_the_digest_of_an_output_of_any_size_is_exact(
        self, journal: JournalAdapter, size: int
    ) -> None:
        output = b'"' + b"x" * (size - 2) + b'"'
        run = await Recording.start(journal, node("a"), node("b"))
        await run.completed("a", output=output)
        assert (await run.events())[-1].output_digest == hashlib.sha256(output).hexdigest()

    @pytest.mark.parametrize("worker", [None, "w", "wörker 1", "one\nline\x1f\x1etwo", "\u2028 \xa0"])
    async def test_a_worker_may_have_any_name(self, journal: JournalAdapter, worker: str | None) -> None:
        run = await Recording.start(journal, node("a"), node("b"))
        (event,) = (await run.completed("a", worker=worker)).history
        assert event.worker == worker
        assert (await run.events())[-1] == event

    async def test_a_node_that_runs_again_keeps_its_completion_in_the_history(
        self, journal: JournalAdapter, clock: VirtualClock
    ) -> None:
        names = ("small", "large", "blob", "cached", "failed", "stays")
        run = await Recording.start(journal, *(node(name) for name in names), failure_policy="continue")
        blob = await journal.put_blob(b'"blob"')
        recorded_events = [
            await run.completed("small", started_at=clock.now()),
            await run.completed("large", output=b'"' + b"x" * 100_000 + b'"'),
            await run.completed("blob", output=None, blob=blob, output_bytes=6),
            await run.cached("cached", b"[1]"),
            await run.completed("stays"),
            await run.failed("failed"),
        ]
        before = await run.events()
        assert told_by(*recorded_events) == before[2:]
        clock.advance(1)
        recorded_events.append(await run.retry("small", "large", "blob", "cached"))
        assert (await run.events())[: len(before)] == before
        for name in names:
            clock.advance(1)
            if name != "stays":
                attempt = (await run.node(name)).attempt
                recorded_events.append(await run.completed(name, attempt=attempt, output=b"2"))
        row = await run.row()
        assert (row.state, row.generation) == (ExecutionState.COMPLETED, 2)
        history = await run.events()
        assert told_by(*recorded_events) == history[2:]
        assert [event.seq for event in history] == list(range(1, row.seq + 1))
        assert [(event.generation, event.attempt) for event in history if event.node == "large"] == [
            (1, 1),
            (2, 2),
        ]
        for limit in (1, 3, 100):
            assert await pages(journal, run.id, limit=limit) == history
        for name in names:
            assert await journal.events(run.id, nodes=[name]) == [
                event for event in history if event.node == name
            ]

    async def test_every_generation_stays_in_the_history(
        self, journal: JournalAdapter, clock: VirtualClock
    ) -> None:
        run = await Recording.start(journal, node("a"), node("b", "a"), node("c", "b"))
        told: list[History] = []
        for attempt in range(1, 5):
            for name in "ab":
                clock.advance(1)
                output = b"%d" % attempt
                told += (await run.completed(name, attempt=attempt, output=output)).history
            told += (await run.failed("c", attempt=attempt)).history
            told += (await run.retry("a")).history
        history = await run.events()
        assert history[2:] == told
        assert len({event.output_digest for event in history if event.node == "a"}) == 4
        assert await pages(journal, run.id, limit=4) == history

    async def test_a_result_and_the_retry_behind_it_are_recorded_in_one_batch(
        self, journal: JournalAdapter
    ) -> None:
        run = await Recording.start(journal, node("a"), node("b"), node("c"), failure_policy="continue")
        await run.completed("a", output=b'"first"')
        events: list[Event] = [
            run.completion("b", output=b'"second"'),
            run.failure("c", error=ERROR),
            RetryRequested(execution_id=run.id, generation=0, nodes=("a", "b"), actor="ann"),
            NodeCompleted(
                execution_id=run.id, generation=2, node_id="a", attempt=2, output=b"3", output_bytes=1
            ),
        ]
        before = await run.events()
        recorded_events = await journal.record(events)
        assert await run.events() == [*before, *told_by(*recorded_events)]
        assert [event.generation for event in await journal.events(run.id, nodes=["a"])] == [1, 2]

    @pytest.mark.parametrize("count", [127, 128, 129, 700])
    async def test_the_history_of_many_nodes_is_read_from_any_event_on(
        self, journal: JournalAdapter, count: int
    ) -> None:
        names = [f"n{number}" for number in range(count)]
        run = await Recording.start(journal, *(node(name) for name in names), failure_policy="continue")
        recorded_events: list[RecordedEvent] = []
        for start in range(0, count - 1, 50):
            some = names[start : min(start + 50, count - 1)]
            recorded_events += await journal.record([run.completion(name) for name in reversed(some)])
            if start % 100 == 0:
                recorded_events.append(await run.lost(names[-1], attempt=1 + start // 100))
        history = [*(await run.events())[:2], *told_by(*recorded_events)]
        assert [event.seq for event in history] == list(range(1, len(history) + 1))
        for limit in (1 + count // 3, 200):
            assert await pages(journal, run.id, limit=limit) == history
        for after in (0, 1, 2, 63, 126, 127, 128, 129, 255, 256, count, count + 50):
            assert await journal.events(run.id, after=after, limit=9) == history[after : after + 9]
        assert await journal.events(run.id, after=10**17, limit=200) == []
        some = [names[0], names[-1], names[count // 2]]
        assert await journal.events(run.id, nodes=some) == [event for event in history if event.node in some]
