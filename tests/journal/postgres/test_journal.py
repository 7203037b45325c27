"""What is particular to the journal in PostgreSQL: several processes write it, and it may be away."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import count
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import asyncpg
import pytest
from tests.support.fault_proxy import FaultProxy

from weft.core.event import CancelRequested, NodeCompleted, WaitStarted
from weft.core.ledger.changes import Verdict
from weft.core.payload import canonical
from weft.core.rows import Wait
from weft.core.state import ExecutionState, NodeState
from weft.definition.waits import WaitKind
from weft.errors import (
    ClaimedError,
    DataFolderError,
    JournalError,
    OutcomeUnknownError,
    UnstorableError,
)
from weft.journal.contract import Claim, LetterQuery
from weft.journal.postgres import changes as postgres_changes
from weft.journal.postgres import queries as postgres_queries
from weft.journal.postgres.connection import connected
from weft.journal.postgres.journal import PostgresJournal
from weft.journal.postgres.pool import PoolLimits
from weft.journal.postgres.schema import migrate
from weft.orchestrator.advance import _commit
from weft.testing.journal.waits import inbound
from weft.testing.recording import Recording, assert_consistent, node, submission

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.support.servers.postgres import PostgresServer

    from weft.core.event import Event


def new_id() -> str:
    return str(uuid4())


def locked(name: str) -> dict[str, Any]:
    """Write down a node whose results are recorded in a transaction that takes locks."""
    return node(name, delivery="at_most_once")


@asynccontextmanager
async def opened(url: str, **fields: Any) -> AsyncIterator[PostgresJournal]:
    journal = PostgresJournal(url, new_id=new_id, **fields)
    await journal.open()
    try:
        yield journal
    finally:
        await journal.close()


@pytest.fixture
async def journal(journal_url: str) -> AsyncIterator[PostgresJournal]:
    async with opened(journal_url) as journal:
        yield journal


@pytest.fixture
async def other(journal_url: str) -> AsyncIterator[PostgresJournal]:
    """Another process on the same database."""
    async with opened(journal_url) as journal:
        yield journal


@pytest.fixture
async def direct(journal_url: str) -> AsyncIterator[Any]:
    """A connection past the journal."""
    connection = await asyncpg.connect(journal_url, server_settings={"search_path": "weft"})
    yield connection
    await connection.close()


# -- several processes -------------------------------------------------------------------------------


async def test_of_two_who_settle_the_last_two_nodes_at_once_one_finishes_the_execution(
    journal: PostgresJournal, other: PostgresJournal
) -> None:
    for number in range(100):
        run = await Recording.start(journal, node("a"), node("b"), execution_id=f"e{number}")
        (one,), (two,) = await asyncio.gather(
            journal.record([run.completion("a")]), other.record([run.completion("b")])
        )
        assert one.execution is not None
        assert two.execution is not None
        assert sorted([one.execution.is_terminal, two.execution.is_terminal]) == [False, True]
        assert (await run.types())[-3:] == ["node.completed", "node.completed", "execution.completed"]


async def test_of_the_same_results_recorded_by_two_each_is_accepted_once(
    journal: PostgresJournal, other: PostgresJournal
) -> None:
    runs = [
        await Recording.start(journal, *(node(name) for name in "abc"), execution_id=f"e{number}")
        for number in range(20)
    ]
    events = [run.completion(name) for name in "abc" for run in runs]
    batches = [events[start : start + 12] for start in range(0, len(events), 12)]
    # In opposite orders, so that each has in hand what the other wants.
    answers = await asyncio.gather(
        *(journal.record(batch) for batch in batches),
        *(other.record(batch[::-1]) for batch in batches[::-1]),
    )
    verdicts = [recorded_event.verdict for recorded_events in answers for recorded_event in recorded_events]
    assert (verdicts.count(Verdict.ACCEPTED), verdicts.count(Verdict.KNOWN)) == (60, 60)
    for run in runs:
        assert (await run.row()).state is ExecutionState.COMPLETED
        await assert_consistent(other, run.id)


async def test_what_another_process_stored_is_recorded_here(
    journal: PostgresJournal, other: PostgresJournal
) -> None:
    run = await Recording.start(journal, node("a"), node("b", "a"), input=b'{"n": 1}', output="{{ input.n }}")
    there = Recording(other, run.id, run.plan)
    await there.completed("a")
    await run.completed("b")
    row = await there.row()
    assert (row.state, row.output) == (ExecutionState.COMPLETED, b"1")


async def test_one_who_waits_for_the_lock_sees_what_its_holder_wrote(
    journal: PostgresJournal, direct: Any
) -> None:
    run = await Recording.start(journal, node("a"), node("b"))
    await direct.execute("BEGIN")
    await direct.execute("SELECT 1 FROM progress FOR UPDATE")
    waiting = asyncio.ensure_future(journal.record([run.completion("a", output=b"2")]))
    await _until_somebody_waits(direct)
    await direct.execute(
        "INSERT INTO nodes (execution, node_id, attempt, ended, answered, state, generation, output,"
        " output_bytes, seq) SELECT execution, 'a', 1, 1, 1, 'COMPLETED', 1, '1', 1, 3 FROM progress"
    )
    await direct.execute("UPDATE progress SET unsettled = 1, seq = 3")
    await direct.execute(
        "INSERT INTO recorded_events SELECT execution, 3, 'a',"
        """ '{"seq":3,"at":1,"type":"node.completed","execution":"execution-1","generation":1}'"""
        " FROM progress"
    )
    await direct.execute("COMMIT")
    (recorded_event,) = await waiting
    assert recorded_event.verdict is Verdict.KNOWN
    assert (await run.node("a")).output == b"1"


async def _until_somebody_waits(connection: Any) -> None:
    waits = "SELECT count(*) FROM pg_locks WHERE NOT granted"
    while not await connection.fetchval(waits):  # noqa: ASYNC110 - the server has no event for it
        await asyncio.sleep(0.01)


async def test_a_key_is_taken_by_one_of_two_processes(
    journal: PostgresJournal, other: PostgresJournal
) -> None:
    async def submit(journal: PostgresJournal, number: int) -> str:
        claim = Claim(key="key", request_digest=str(number), resource=f"execution/e{number}")
        try:
            await journal.submit([submission(f"e{number}")], claim=claim)
        except ClaimedError as taken:
            return taken.resource
        return claim.resource

    for _ in range(5):
        answers = await asyncio.gather(
            *(submit(each, number) for number, each in enumerate([journal, other] * 5))
        )
        assert len(set(answers)) == 1
        assert [f"execution/{row.id}" for row in await journal.executions()] == [answers[0]]


async def test_versions_are_numbered_one_after_the_other_by_two_processes(
    journal: PostgresJournal, other: PostgresJournal
) -> None:
    async def put(journal: PostgresJournal, number: int) -> int:
        new = submission("unused", node("a", config={"n": number}))
        version, _ = await journal.put_version("w", new.plan, new.document)
        return version.version

    numbers = await asyncio.gather(
        *(put(journal, number) for number in range(15)), *(put(other, number) for number in range(15))
    )
    assert sorted(numbers) == sorted([*range(1, 16), *range(1, 16)])


async def test_the_same_executions_submitted_by_two_are_stored_once(
    journal: PostgresJournal, other: PostgresJournal
) -> None:
    new = [submission(f"e{number}", labels={"n": str(number)}) for number in range(50)]
    ours, theirs = await asyncio.gather(journal.submit(new), other.submit(new[::-1]))
    assert ours == theirs[::-1]
    assert len(await journal.executions(limit=100)) == 50


async def test_an_execution_that_was_purged_by_another_and_stored_again_is_the_new_one(
    journal: PostgresJournal, other: PostgresJournal
) -> None:
    run = await Recording.start(journal, node("a"), input=b"1")
    await run.completed("a")
    later = (await run.row()).updated_at + 1
    assert await other.purge(finished_before=later, limit=10) == 1
    again = await Recording.start(other, node("a"), input=b"2")
    recorded_event = await run.completed("a")
    assert recorded_event.verdict is Verdict.ACCEPTED
    assert recorded_event.execution == await again.row()
    assert await other.purge(finished_before=(await run.row()).updated_at + 1, limit=10) == 1
    assert (await run.completed("a")).verdict is Verdict.UNKNOWN


async def test_the_key_for_messages_is_the_same_for_all(
    journal: PostgresJournal, other: PostgresJournal, journal_url: str
) -> None:
    one, two = await asyncio.gather(journal.signing_key(), other.signing_key())
    assert one == two
    async with opened(journal_url) as later:
        assert await later.signing_key() == one


async def test_a_database_that_one_has_for_itself_is_refused_to_a_second(postgres_url: str) -> None:
    async with opened(postgres_url, exclusive=True) as journal:
        await journal.check()  # it has brought the schema up to date itself
        second = PostgresJournal(postgres_url, new_id=new_id, exclusive=True)
        with pytest.raises(DataFolderError, match="in use by another weft"):
            await second.open()
    async with opened(postgres_url, exclusive=True) as third:
        await third.check()


# -- what is read ------------------------------------------------------------------------------------


async def test_a_result_of_a_wide_execution_reads_no_other_row(
    journal: PostgresJournal, other: PostgresJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"n{number}" for number in range(200)]
    run = await Recording.start(journal, *(node(name) for name in names))
    await journal.record([run.completion(name) for name in names[:100]])
    monkeypatch.delattr("weft.journal.postgres.queries.nodes")
    for name in names[90:110]:
        await other.record([run.completion(name)])


async def test_a_result_of_a_node_that_is_not_there_is_unknown_in_a_wide_execution_too(
    journal: PostgresJournal,
) -> None:
    run = await Recording.start(journal, *(node(f"n{number}") for number in range(100)))
    async with asyncio.timeout(10):
        assert (await run.completed("ghost")).verdict is Verdict.UNKNOWN


async def test_one_result_that_is_refused_fails_its_node_and_the_others_of_its_batch_stand(
    journal: PostgresJournal, direct: Any
) -> None:
    names = [f"n{number}" for number in range(50)]
    run = await Recording.start(journal, *(node(name) for name in names), failure_policy="continue")
    await _refuse_rows(direct, "NEW.node_id = 'n33' AND NEW.state = 'COMPLETED'")
    ports: Any = SimpleNamespace(journal=journal)
    recorded_events = await _commit([run.completion(name) for name in names], ports)
    assert {recorded_event.verdict for recorded_event in recorded_events} == {Verdict.ACCEPTED}
    states = await run.states()
    assert states.pop("n33") is NodeState.FAILED
    assert set(states.values()) == {NodeState.COMPLETED}
    error = (await run.node("n33")).error
    assert error is not None
    assert "not this one" in error["message"]


async def test_names_that_postgresql_cannot_hold_are_not_found(journal: PostgresJournal) -> None:
    run = await Recording.start(journal, node("a"))
    await run.completed("a")
    assert await journal.execution("a\0b") is None
    assert await journal.nodes("a\0b") == {}
    assert set(await journal.nodes(run.id, names=["a", "\0"])) == {"a"}
    assert await journal.events("\0") == []
    assert len(await journal.events(run.id, nodes=["a", "\0"])) == 1
    assert await journal.claim("\0") is None
    assert await journal.version("\0") is None
    assert await journal.version("w", 10**30) is None
    assert await journal.dead_letters(LetterQuery(code="\0")) == []
    stranger = NodeCompleted(
        execution_id="\0", generation=1, node_id="a", attempt=1, output=b"", output_bytes=0
    )
    (recorded_event,) = await journal.record([stranger])
    assert recorded_event.verdict is Verdict.UNKNOWN


async def test_a_workers_name_does_no_harm(journal: PostgresJournal) -> None:
    run = await Recording.start(journal, node("a"), node("b"))
    await run.completed("a", worker="evil\0\x1f\x1e\n{},NULL'\\\"")
    assert (await run.node("a")).worker == "evil{},NULL'\\\""
    await run.completed("b", worker="")
    assert (await run.node("b")).worker == ""


async def test_labels_of_any_text_are_found_again(journal: PostgresJournal) -> None:
    labels = {"a\0": "\x1f", "ü": "", "": "\x1e"}
    await journal.submit([submission("e", labels=labels), submission("f")])
    row = await journal.execution("e")
    assert row is not None
    assert row.labels == labels


# -- what cannot be stored ---------------------------------------------------------------------------


async def _refuse_rows(direct: Any, condition: str, sqlstate: str = "P0001") -> None:
    """Let a trigger refuse some rows of nodes."""
    await direct.execute(
        f"""
        CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            IF {condition} THEN RAISE EXCEPTION 'not this one' USING ERRCODE = '{sqlstate}'; END IF;
            RETURN NEW;
        END $$;
        CREATE TRIGGER refuse BEFORE INSERT ON nodes FOR EACH ROW EXECUTE FUNCTION refuse();
        """
    )


async def test_one_row_that_is_refused_leaves_nothing_of_its_batch(
    journal: PostgresJournal, direct: Any
) -> None:
    names = [f"n{number}" for number in range(50)]
    run = await Recording.start(journal, *(node(name) for name in names))
    await _refuse_rows(direct, "NEW.node_id = 'n33'")
    before = await run.row()
    with pytest.raises(UnstorableError, match="not this one"):
        await journal.record([run.completion(name) for name in names])
    assert await run.row() == before
    assert await journal.nodes(run.id) == {}


async def test_a_value_that_cannot_be_stored_fails_its_own_call_and_not_its_neighbours(
    journal: PostgresJournal,
) -> None:
    run = await Recording.start(journal, node("a"), node("b"), node("c"), failure_policy="continue")
    surrogate = run.failure("b", error={"code": "handler_error", "message": "\ud800", "retryable": False})
    answers = await asyncio.gather(
        journal.record([run.completion("a")]),
        journal.record([surrogate]),
        journal.record([run.completion("c")]),
        return_exceptions=True,
    )
    assert [isinstance(answer, UnstorableError) for answer in answers] == [False, True, False]
    assert await run.states() == {"a": NodeState.COMPLETED, "b": None, "c": NodeState.COMPLETED}


@pytest.mark.parametrize("sqlstate", ["40001", "40P01"])
async def test_transactions_in_each_others_way_are_tried_again(
    journal: PostgresJournal, direct: Any, sqlstate: str
) -> None:
    await direct.execute("CREATE SEQUENCE tries")
    # A sequence does not go back with the transaction.
    await _refuse_rows(direct, "nextval('weft.tries') % 3 <> 0", sqlstate)
    names = [f"n{number}" for number in range(10)]
    run = await Recording.start(journal, *(node(name) for name in names))
    for name in names:
        assert (await run.completed(name)).verdict is Verdict.ACCEPTED
    assert (await run.row()).state is ExecutionState.COMPLETED
    await assert_consistent(journal, run.id)
    assert await direct.fetchval("SELECT last_value FROM tries") == 30


async def test_transactions_that_are_always_in_the_way_are_given_up(
    journal: PostgresJournal, direct: Any
) -> None:
    await _refuse_rows(direct, "true", "40001")
    run = await Recording.start(journal, node("a"))
    with pytest.raises(JournalError, match="not this one"):
        await run.completed("a")
    assert await journal.nodes(run.id) == {}


# -- a server that is slow, or away ------------------------------------------------------------------


async def test_a_table_that_somebody_locks_ends_in_an_error_and_stops_nothing_else(
    journal: PostgresJournal, direct: Any
) -> None:
    run = await Recording.start(journal, node("a"))
    await direct.execute("BEGIN; LOCK TABLE progress")
    recording = asyncio.ensure_future(journal.record([run.completion("a")]))
    await _until_somebody_waits(direct)
    assert await journal.document(run.plan.digest) is not None
    with pytest.raises(JournalError, match="lock timeout"):
        await recording
    with pytest.raises(JournalError, match="lock timeout"):
        await journal.execution(run.id)
    await direct.execute("ROLLBACK")
    assert (await run.completed("a")).verdict is Verdict.ACCEPTED


async def test_reads_beyond_the_pool_are_told_so_and_the_writer_is_not_in_their_way(
    journal_url: str, direct: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PostgresJournal, "_readers", PoolLimits(2, 0.3))
    async with opened(journal_url) as journal:
        run = await Recording.start(journal, node("a"), node("b"))
        await direct.execute("BEGIN; LOCK TABLE executions")
        reads = [asyncio.ensure_future(journal.execution(run.id)) for _ in range(30)]
        await _until_somebody_waits(direct)
        assert (await run.completed("a")).verdict is Verdict.ACCEPTED
        busy = await asyncio.gather(*reads[2:], return_exceptions=True)
        assert {type(answer) for answer in busy} == {JournalError}
        await direct.execute("ROLLBACK")
        assert [row and row.id for row in await asyncio.gather(*reads[:2])] == [run.id] * 2


async def test_readers_who_go_away_leave_no_connection_behind(
    journal_url: str, direct: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PostgresJournal, "_readers", PoolLimits(2))
    async with opened(journal_url) as journal:
        run = await Recording.start(journal, node("a"))
        for _ in range(20):
            reads = [asyncio.ensure_future(journal.nodes(run.id)) for _ in range(20)]
            await asyncio.sleep(0.002)
            for read in reads:
                read.cancel()
            await asyncio.gather(*reads, return_exceptions=True)
        assert await journal.execution(run.id) is not None
        mine = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'weft'"
        assert await direct.fetchval(f"{mine} AND datname = current_database()") <= 3


async def test_a_reader_who_is_cancelled_knows_it_at_any_moment(journal: PostgresJournal) -> None:
    run = await Recording.start(journal, node("a"))
    for turns in range(6):
        reading = asyncio.ensure_future(journal.execution(run.id))
        for _ in range(turns):
            await asyncio.sleep(0)
        if not reading.done():
            reading.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reading


async def test_a_server_that_is_stopped_and_started_again_is_used_again(
    private_postgres: PostgresServer,
) -> None:
    url = private_postgres.create_database("journal")
    await migrate(url)
    async with opened(url) as journal:
        runs = [
            await Recording.start(journal, node("a"), node("b", "a"), execution_id=f"e{n}") for n in range(30)
        ]

        async def insist(event: Event) -> Verdict:
            while True:
                try:
                    (recorded_event,) = await journal.record([event])
                except JournalError:
                    await asyncio.sleep(0.05)
                else:
                    return recorded_event.verdict

        first = [asyncio.ensure_future(insist(run.completion("a"))) for run in runs]
        private_postgres.stop(immediate=True)
        with pytest.raises(JournalError):
            await journal.execution("e1")
        loop = asyncio.get_running_loop()
        began = loop.time()
        with pytest.raises(JournalError, match="cannot be reached"):
            await journal.execution("e1")
        assert loop.time() - began < 5
        private_postgres.start()
        assert set(await asyncio.gather(*first)) <= {Verdict.ACCEPTED, Verdict.KNOWN}
        await asyncio.gather(*(insist(run.completion("b")) for run in runs))
        for run in runs:
            await assert_consistent(journal, run.id)
            assert (await run.row()).state is ExecutionState.COMPLETED


async def test_while_the_server_is_away_it_is_looked_for_twice_a_second_at_most(journal_url: str) -> None:
    with FaultProxy(journal_url) as proxy:
        async with opened(proxy.url) as journal:
            run = await Recording.start(journal, node("a"))
            proxy.attempts.clear()
            proxy.refuse()
            proxy.reset()
            with pytest.raises(JournalError):
                await journal.execution(run.id)
            loop = asyncio.get_running_loop()
            until = loop.time() + 2.2
            failures = 0
            while loop.time() < until:
                answers = await asyncio.gather(
                    journal.execution(run.id), journal.record([run.completion("a")]), return_exceptions=True
                )
                failures += sum(isinstance(answer, JournalError) for answer in answers)
                await asyncio.sleep(0.01)
            assert failures > 20
            assert len(proxy.attempts) <= 6
            assert proxy.most_in_a_second <= 3
            proxy.heal()
            await asyncio.sleep(0.6)
            assert (await run.completed("a")).verdict in (Verdict.ACCEPTED, Verdict.KNOWN)


async def test_a_commit_whose_answer_is_lost_is_asked_after_and_found(journal_url: str) -> None:
    with FaultProxy(journal_url) as proxy:
        async with opened(proxy.url) as journal:
            run = await Recording.start(journal, locked("a"), locked("b"))
            lost = proxy.reset_on(b"COMMIT", delivered=True)
            assert (await run.completed("a")).verdict is Verdict.ACCEPTED
            assert lost.is_set()
            assert (await run.completed("a")).verdict is Verdict.KNOWN
            assert (await run.node("a")).state is NodeState.COMPLETED


async def test_a_commit_that_never_arrived_is_found_not_to_have_happened(journal_url: str) -> None:
    with FaultProxy(journal_url) as proxy:
        async with opened(proxy.url) as journal:
            run = await Recording.start(journal, locked("a"), locked("b"))
            lost = proxy.reset_on(b"COMMIT", delivered=False)
            with pytest.raises(JournalError) as raised:
                await run.completed("a")
            assert lost.is_set()
            assert not isinstance(raised.value, OutcomeUnknownError)
            assert (await run.completed("a")).verdict is Verdict.ACCEPTED


async def test_a_commit_that_cannot_be_asked_after_is_of_unknown_outcome(journal_url: str) -> None:
    with FaultProxy(journal_url) as proxy:
        async with opened(proxy.url) as journal:
            run = await Recording.start(journal, locked("a"), locked("b"))
            proxy.refuse()
            proxy.reset_on(b"COMMIT", delivered=True)
            with pytest.raises(OutcomeUnknownError):
                await run.completed("a")
            proxy.heal()
            await asyncio.sleep(0.6)
            assert (await run.completed("a")).verdict is Verdict.KNOWN


async def test_a_connection_that_is_lost_before_the_commit_leaves_nothing(journal_url: str) -> None:
    with FaultProxy(journal_url) as proxy:
        async with opened(proxy.url) as journal:
            run = await Recording.start(journal, locked("a"), locked("b"))
            await run.completed("a")
            lost = proxy.reset_on(b"weft_lock", delivered=True)
            with pytest.raises(JournalError) as raised:
                await run.completed("b")
            assert lost.is_set()
            assert not isinstance(raised.value, OutcomeUnknownError)
            assert (await run.completed("b")).verdict is Verdict.ACCEPTED


# -- one round trip ----------------------------------------------------------------------------------


async def test_what_follows_on_what_was_recorded_here_takes_one_round_trip(journal_url: str) -> None:
    with FaultProxy(journal_url) as proxy:
        async with opened(proxy.url) as journal:
            run = await Recording.start(journal, node("a"), node("b", "a"), node("c", "b"))
            await run.completed("a")
            begun = proxy.reset_on(b"BEGIN", delivered=True)
            read = proxy.reset_on(b"FROM executions", delivered=True)
            assert (await run.completed("b")).verdict is Verdict.ACCEPTED
            assert not begun.is_set()
            assert not read.is_set()


async def test_an_execution_of_a_known_definition_is_stored_in_one_round_trip(journal_url: str) -> None:
    with FaultProxy(journal_url) as proxy:
        async with opened(proxy.url) as journal:
            first, second = submission("first"), submission("second")
            await journal.submit([first])
            begun = proxy.reset_on(b"BEGIN", delivered=True)
            (row,) = await journal.submit([second])
            assert not begun.is_set()
            assert row == await journal.execution("second")
            assert [event.type for event in await journal.events("second")] == ["execution.created"]


async def test_more_executions_than_a_statement_takes_are_stored_in_a_transaction(
    journal_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with FaultProxy(journal_url) as proxy:
        async with opened(proxy.url) as journal:
            await journal.submit([submission("first")])
            monkeypatch.setattr(postgres_changes, "MAX_ROWS", 2)
            begun = proxy.reset_on(b"BEGIN", delivered=False)
            with pytest.raises(JournalError):
                await journal.submit([submission(f"x{number}") for number in range(3)])
            assert begun.is_set()
            rows = await journal.submit([submission(f"x{number}") for number in range(3)])
            assert [row.id for row in rows] == ["x0", "x1", "x2"]
            assert [len(await journal.events(row.id)) for row in rows] == [1, 1, 1]


async def test_rows_are_those_of_one_commit_and_few_take_one_round_trip(
    journal_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with FaultProxy(journal_url) as proxy:
        async with opened(proxy.url) as journal:
            run = await Recording.start(journal, *(node(name) for name in "abcde"))
            for name in "abcde":
                await run.completed(name)
            begun = proxy.reset_on(b"BEGIN", delivered=False)
            assert set(await journal.nodes(run.id)) == set("abcde")
            assert set(await journal.nodes(run.id, names=["b", "x"])) == {"b"}
            assert await journal.nodes("nothing") == {}
            assert not begun.is_set()
            # More than a page are read in a snapshot.
            monkeypatch.setattr(postgres_queries, "_PAGE_ROWS", 2)
            with pytest.raises(JournalError):
                await journal.nodes(run.id)
            assert begun.is_set()
            assert list(await journal.nodes(run.id)) == list("abcde")
            assert set(await journal.nodes(run.id, names="bcde")) == set("bcde")


@pytest.mark.parametrize("delivered", [True, False])
async def test_a_submit_whose_answer_is_lost_is_done_once(journal_url: str, delivered: bool) -> None:
    with FaultProxy(journal_url) as proxy:
        async with opened(proxy.url) as journal:
            await journal.submit([submission("first")])
            lost = proxy.reset_on(b"execution.created", delivered=delivered)
            (row,) = await journal.submit([submission("second")])
            assert lost.is_set()
            assert row == await journal.execution("second")
            assert [event.type for event in await journal.events("second")] == ["execution.created"]


async def test_an_execution_that_is_there_is_given_as_it_is_with_those_that_are_new(
    journal: PostgresJournal,
) -> None:
    run = await Recording.start(journal, node("a"), execution_id="there")
    rows = await journal.submit([submission(name) for name in ("there", "new")])
    assert [(row.id, row.state) for row in rows] == [
        ("there", ExecutionState.RUNNING),
        ("new", ExecutionState.PENDING),
    ]
    assert (await run.types()).count("execution.created") == 1
    assert len(await journal.events("new")) == 1


async def test_a_definition_that_goes_while_an_execution_is_stored_is_stored_again(
    journal: PostgresJournal, direct: Any
) -> None:
    await journal.submit([submission("first")])
    new = submission("second")
    transaction = direct.transaction()
    await transaction.start()
    await direct.execute("DELETE FROM definitions WHERE digest = $1", new.plan.digest)
    storing = asyncio.create_task(journal.submit([new]))
    await asyncio.sleep(0.1)
    # It waits for the one who takes the definition away, and is not stored without it.
    assert not storing.done()
    await transaction.commit()
    assert [row.id for row in await storing] == ["second"]
    assert await direct.fetchval("SELECT count(*) FROM definitions WHERE digest = $1", new.plan.digest) == 1


async def test_a_write_whose_answer_is_lost_is_looked_for_and_found(journal_url: str) -> None:
    with FaultProxy(journal_url) as proxy:
        async with opened(proxy.url) as journal:
            run = await Recording.start(journal, node("a"), node("b"))
            lost = proxy.reset_on(b"COMPLETED", delivered=True)
            assert (await run.completed("a")).verdict is Verdict.ACCEPTED
            assert lost.is_set()
            assert (await run.completed("a")).verdict is Verdict.KNOWN
            assert (await run.types()).count("node.completed") == 1


async def test_a_write_that_never_arrived_is_written_again(journal_url: str) -> None:
    with FaultProxy(journal_url) as proxy:
        async with opened(proxy.url) as journal:
            run = await Recording.start(journal, node("a"), node("b"))
            lost = proxy.reset_on(b"COMPLETED", delivered=False)
            assert (await run.completed("a")).verdict is Verdict.ACCEPTED
            assert lost.is_set()
            assert (await run.types()).count("node.completed") == 1


async def test_a_write_that_cannot_be_looked_for_is_of_unknown_outcome(journal_url: str) -> None:
    with FaultProxy(journal_url) as proxy:
        async with opened(proxy.url) as journal:
            run = await Recording.start(journal, node("a"), node("b"))
            proxy.refuse()
            proxy.reset_on(b"COMPLETED", delivered=True)
            with pytest.raises(OutcomeUnknownError):
                await run.completed("a")
            proxy.heal()
            await asyncio.sleep(0.6)
            # It is looked for again, and is what was asked for then.
            assert (await run.completed("a")).verdict is Verdict.ACCEPTED
            assert (await run.completed("a")).verdict is Verdict.KNOWN
            assert (await run.types()).count("node.completed") == 1


async def test_a_batch_of_which_a_part_was_written_is_of_unknown_outcome(journal_url: str) -> None:
    with FaultProxy(journal_url) as proxy:
        async with opened(proxy.url) as journal:
            quick = await Recording.start(journal, node("a"), node("b"), execution_id="quick")
            slow = await Recording.start(journal, locked("a"), locked("b"), execution_id="slow")
            both = [quick.completion("a"), slow.completion("a")]
            lost = proxy.reset_on(b"weft_lock", delivered=False)
            with pytest.raises(OutcomeUnknownError, match="a part was written"):
                await journal.record(both)
            assert lost.is_set()
            verdicts = [recorded_event.verdict for recorded_event in await journal.record(both)]
            assert verdicts == [Verdict.KNOWN, Verdict.ACCEPTED]


async def test_what_another_process_has_changed_is_judged_anew(journal_url: str) -> None:
    names = [f"n{number}" for number in range(6)]
    async with opened(journal_url) as journal, opened(journal_url) as other:
        run = await Recording.start(journal, *map(node, names))
        theirs = Recording(other, run.id, run.plan)
        for number, name in enumerate(names[:4]):
            own = run if number % 2 else theirs
            assert (await own.completed(name)).verdict is Verdict.ACCEPTED
        # Each has seen it before the other has recorded it.
        assert (await run.completed("n2")).verdict is Verdict.KNOWN
        assert (await theirs.completed("n3")).verdict is Verdict.KNOWN
        seqs = [event.seq for event in await run.events()]
        assert seqs == list(range(1, len(seqs) + 1))
        assert (await run.completed("n4")).verdict is Verdict.ACCEPTED
        await theirs.cancel()
        assert (await run.completed("n5")).verdict is Verdict.STALE
        assert (await run.node("n5")).state is NodeState.CANCELLED


async def test_what_would_change_nothing_is_answered_by_the_version_that_is_current(journal_url: str) -> None:
    """What a process remembers may be a generation behind: by that, the loss of an attempt would be stale."""
    async with opened(journal_url) as journal, opened(journal_url) as other:
        run = await Recording.start(journal, node("a"), node("b"))
        assert (await run.completed("a")).verdict is Verdict.ACCEPTED
        theirs = Recording(other, run.id, run.plan)
        await theirs.cancel()
        assert (await theirs.retry()).verdict is Verdict.ACCEPTED
        attempt = (await theirs.node("b")).attempt
        # By its memory, the loss would change nothing, not even the history.
        run.generation = 2
        assert (await run.lost("b", attempt)).verdict is Verdict.ACCEPTED
        assert (await theirs.completed("b", attempt + 1, generation=2)).verdict is Verdict.ACCEPTED
        assert (await run.row()).state is ExecutionState.COMPLETED
        await assert_consistent(journal, run.id)


async def test_a_cancel_between_whose_reads_another_process_completes_a_node_is_recorded(
    journal: PostgresJournal, other: PostgresJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows of the nodes are read behind that of the execution: one of them may be younger than that."""
    theirs = await Recording.start(other, *map(node, "abc"))
    await theirs.completed("a")
    all_nodes = postgres_queries.all_nodes

    async def later(*arguments: Any) -> Any:
        monkeypatch.undo()
        await theirs.completed("b")
        return await all_nodes(*arguments)

    monkeypatch.setattr(postgres_queries, "all_nodes", later)
    run = Recording(journal, theirs.id, theirs.plan)
    assert (await run.cancel()).verdict is Verdict.ACCEPTED
    states = {name: (await run.node(name)).state for name in "abc"}
    assert states == {"a": NodeState.COMPLETED, "b": NodeState.COMPLETED, "c": NodeState.CANCELLED}
    await assert_consistent(journal, run.id)


async def test_a_failure_and_its_letter_take_one_round_trip(journal_url: str) -> None:
    with FaultProxy(journal_url) as proxy:
        async with opened(proxy.url) as journal:
            run = await Recording.start(journal, node("a"), node("b"), failure_policy="continue")
            await run.completed("b")
            begun = proxy.reset_on(b"BEGIN", delivered=True)
            assert (await run.failed("a")).verdict is Verdict.ACCEPTED
            assert not begun.is_set()
            assert await run.letters() == {("a", 1): "open"}


async def test_two_processes_at_once_record_each_result_once(journal_url: str) -> None:
    names = [f"n{number}" for number in range(40)]
    async with opened(journal_url) as journal, opened(journal_url) as other:
        run = await Recording.start(journal, *map(node, names))
        theirs = Recording(other, run.id, run.plan)
        both = [own.completed(name) for name in names for own in (run, theirs)]
        verdicts = [recorded_event.verdict for recorded_event in await asyncio.gather(*both)]
        assert verdicts.count(Verdict.ACCEPTED) == verdicts.count(Verdict.KNOWN) == len(names)
        await assert_consistent(journal, run.id)


# -- size --------------------------------------------------------------------------------------------


async def test_tens_of_thousands_of_nodes_are_cancelled_and_retried_in_one_commit(
    journal: PostgresJournal,
) -> None:
    names = [f"n{number}" for number in range(10_000)]
    run = await Recording.start(journal, *(node(name) for name in names))
    await journal.record([run.completion(name) for name in names[:100]])
    (cancelled,) = await journal.record([CancelRequested(execution_id=run.id, generation=0)])
    assert len(cancelled.history) == 9_901
    assert (await run.retry()).verdict is Verdict.ACCEPTED
    row = await run.row()
    assert (row.state, row.unsettled) == (ExecutionState.RUNNING, 9_900)
    await run.cancel()
    await assert_consistent(journal, run.id)


async def test_a_page_of_the_history_of_a_wide_execution_is_found_by_an_index(journal_url: str) -> None:
    async with connected(journal_url) as connection:
        plan = await connection.fetch(f"EXPLAIN {postgres_queries._EVENTS}", "e", 4_000, 4_200)
    lines = "\n".join(line for (line,) in plan)
    assert "Index Scan using nodes_page on nodes" in lines
    assert "Seq Scan" not in lines


async def test_a_node_takes_less_than_half_a_kilobyte(journal: PostgresJournal, direct: Any) -> None:
    names = [f"node-{number}" for number in range(5_000)]
    run = await Recording.start(journal, *(node(name) for name in names))
    output = b'{"value": 12345, "text": "as long as outputs often are"}'
    numbers = count(1_700_000_000_000_000)
    for start in range(0, 5_000, 500):
        await journal.record(
            [
                run.completion(name, output=output, started_at=next(numbers), queued_at=1, finished_at=None)
                for name in names[start : start + 500]
            ]
        )
    used = await direct.fetchval(
        "SELECT sum(pg_total_relation_size(oid)) FROM pg_class"
        " WHERE relname IN ('nodes', 'recorded_events', 'progress')"
    )
    assert used / 5_000 < 500


async def test_a_journal_that_is_opened_once_more_has_one_writer_still(journal: PostgresJournal) -> None:
    """As where the first call after it fails. Two would write in each other's transactions."""
    await journal.open()
    writers = [task for task in asyncio.all_tasks() if task.get_name() == "weft-journal-writer"]
    assert len(writers) == 1
    run = await Recording.start(journal, locked("a"))
    assert (await run.completed("a")).verdict is Verdict.ACCEPTED


async def test_a_journal_is_closed_after_what_waits(journal_url: str) -> None:
    async with AsyncExitStack() as stack:
        journal = await stack.enter_async_context(opened(journal_url))
        run = await Recording.start(journal, *(node(f"n{number}") for number in range(20)))
        waiting = [asyncio.ensure_future(run.completed(f"n{number}")) for number in range(20)]
        await asyncio.sleep(0)
    assert {recorded_event.verdict for recorded_event in await asyncio.gather(*waiting)} == {Verdict.ACCEPTED}
    with pytest.raises(JournalError, match="not open"):
        await journal.record([run.completion("n1")])
    with pytest.raises(JournalError, match="not open"):
        await journal.execution(run.id)


async def test_a_wait_that_looks_back_and_an_event_of_the_same_moment_find_each_other(
    journal: PostgresJournal, other: PostgresJournal
) -> None:
    """Of two transactions neither of which sees the other, one has to wait for the commit of the other."""
    count = 40
    nodes = [node(f"n{number}", handler="wait", config={"event": "paid"}) for number in range(count)]
    run = await Recording.start(journal, *nodes)
    for number in range(count):
        began = WaitStarted(
            *(run.id, 1, f"n{number}", 1),
            epoch=1,
            wait=Wait(WaitKind.EVENT, "paid", match=canonical({"order": number})),
            lookback_seconds=60,
        )
        await asyncio.gather(
            journal.record([began]), other.fire([], event=inbound(str(number), order=number))
        )
    rows = await other.nodes(run.id)
    assert [row.state for row in rows.values()] == [NodeState.COMPLETED] * count
    await assert_consistent(other, run.id)
