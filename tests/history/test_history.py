"""Journals that past releases wrote: this one opens them, agrees with them, and finishes what they began."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any

import pytest
from tests.history import stories
from tests.history.record import FOLDER, record, restore

from weft.cli.trace import read_journal
from weft.clock import RealClock, new_id
from weft.core.state import ExecutionState
from weft.engine import Engine
from weft.journal.sqlite.journal import FILE_NAME, SqliteJournal
from weft.journal.sqlite.schema import pending
from weft.orchestrator import control
from weft.settings import Settings
from weft.views.describe import describe_execution

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from weft.core.rows import History, NodeRow

RELEASES = sorted(path.name for path in FOLDER.iterdir() if (path / "journal.sql.gz").exists())
TERMINAL = ("COMPLETED", "FAILED", "CANCELLED")
# How a later release ends what the recorded one had in hand.
ENDS = {"retried": "COMPLETED", "paused": "COMPLETED", "resumed": "COMPLETED", "running": "FAILED"}


@pytest.fixture(params=RELEASES)
def release(request: pytest.FixtureRequest) -> Path:
    return FOLDER / str(request.param)


@pytest.fixture
def data(release: Path, tmp_path: Path) -> Path:
    """The data folder that the release left."""
    restore(gzip.decompress((release / "journal.sql.gz").read_bytes()), tmp_path / "data")
    return tmp_path / "data"


@pytest.fixture
def shown(release: Path) -> dict[str, Any]:
    """What the release showed of each execution, by the name of its story."""
    stories: dict[str, Any] = json.loads(gzip.decompress((release / "shown.json.gz").read_bytes()))
    return stories


@pytest.fixture
async def journal(data: Path) -> AsyncIterator[SqliteJournal]:
    """The release's journal, opened by this one: its schema is brought up to date."""
    journal = SqliteJournal(data, now=RealClock().now, new_id=new_id)
    await journal.open()
    yield journal
    await journal.close()


def test_the_histories_of_a_release_are_there() -> None:
    assert RELEASES


async def test_every_history_replays_to_what_is_stored(journal: SqliteJournal, shown: dict[str, Any]) -> None:
    rows = await journal.executions(limit=500)
    assert {row.id for row in rows} == {execution["id"] for execution in shown.values()}
    for row in rows:
        violations = (await read_journal(journal, row.id)).check()
        assert violations == [], (row.labels, [*map(str, violations)])


async def test_the_histories_have_all_that_can_happen(journal: SqliteJournal) -> None:
    events = [
        event
        for row in await journal.executions(limit=500)
        for event in await journal.events(row.id, limit=10_000)
    ]
    assert {event.type for event in events} >= {
        *(f"execution.{what}" for what in ("created", "started", "paused", "resumed", "retried")),
        *(f"execution.{state.lower()}" for state in TERMINAL),
        *(f"node.{what}" for what in ("completed", "failed", "skipped", "cancelled", "retrying", "lost")),
    }
    assert {event.reason for event in events} == {
        None,
        *("upstream_failed", "upstream_skipped", "not_triggered", "condition"),
        *("fail_fast", "cancelled", "deadline"),
    }
    letters = await journal.dead_letters(limit=500)
    assert {letter.state for letter in letters} == {"open", "dropped", "retried", "handled"}


def with_details(shown: dict[str, Any]) -> dict[str, Any]:
    """Return what a release showed with the field that errors were given since, and the states that came."""
    error = shown["error"]
    if "counts" in shown:
        shown = {**shown, "counts": {"WAITING": 0, **shown["counts"]}}
    return shown if error is None else {**shown, "error": {"details": {}, **error}}


async def test_what_has_ended_is_shown_as_it_was(data: Path, shown: dict[str, Any]) -> None:
    async with engine(data, recovers=False) as opened:
        for story, before in shown.items():
            if before["state"] not in TERMINAL:
                continue
            now = await describe_execution(before["id"], opened.ports)
            # Fields may be added, never renamed.
            assert {name: now[name] for name in before if name != "nodes"} == {
                name: value for name, value in with_details(before).items() if name != "nodes"
            }, story
            for node, then in zip(now["nodes"], before["nodes"], strict=True):
                assert {name: node[name] for name in then} == with_details(then), story


async def test_what_was_begun_comes_to_its_end_and_changes_nothing_settled(
    data: Path, shown: dict[str, Any]
) -> None:
    ids = {story: shown[story]["id"] for story in ENDS}
    async with engine(data) as opened:
        journal, catalog = opened.ports.journal, opened.ports.catalog
        before = {story: await _kept(catalog, id_) for story, id_ in ids.items()}
        await control.resume(ids["paused"], opened.ports)
        for story, execution_id in ids.items():
            row = await opened.wait(execution_id)
            assert row.state == ENDS[story], (story, row.error)
            trace = await read_journal(catalog, execution_id)
            assert trace.check() == []
            events, rows = before[story]
            assert list(trace.history[: len(events)]) == events, "history was rewritten"
            now = await journal.nodes(execution_id)
            for node_id, kept in rows.items():
                assert not kept.is_settled or now[node_id] == kept, (story, node_id)
        nodes = await journal.nodes(ids["running"])
        # It may have run, and must not run again; the retry that was due in an hour has come.
        assert (nodes["once"].error or {})["code"] == "lost"
        assert (nodes["late"].state, nodes["late"].failures) == ("COMPLETED", 1)
        assert not await journal.active(not_updated_since=opened.ports.clock.now())


async def _kept(journal: Any, execution_id: str) -> tuple[list[History], dict[str, NodeRow]]:
    return list(await journal.events(execution_id)), dict(await journal.nodes(execution_id))


async def test_workflows_batches_keys_and_letters_are_what_they_were(
    journal: SqliteJournal, shown: dict[str, Any]
) -> None:
    workflow = await journal.workflow("versions")
    assert workflow is not None
    assert (workflow.latest.version, workflow.aliases) == (2, {"stable": 1})
    assert await journal.workflow("deleted") is None
    stable = await journal.version("versions", "stable")
    assert stable is not None
    assert stable.digest == shown["by-alias"]["digest"]
    batch = await journal.batch(shown["batch-0"]["batch"])
    assert batch is not None
    assert batch.counts[ExecutionState.COMPLETED] == batch.total == 3
    results = [row.id for _, row in await journal.batch_results(batch.id)]
    assert results == [shown[f"batch-{index}"]["id"] for index in range(3)]
    claim = await journal.claim("key-of-rules")
    assert claim is not None
    assert claim.resource == f"execution/{shown['rules']['id']}"
    large = (await journal.nodes(shown["large"]["id"]))["a"]
    assert large.blob is not None
    assert len((await journal.blobs([large.blob]))[large.blob]) == large.output_bytes


def engine(data: Path, *, recovers: bool = True) -> Engine:
    settings = Settings(orchestrator_sweep_interval_seconds=0.1, worker_heartbeat_interval_seconds=0.05)
    return Engine(registry=stories.registry(("third",)), settings=settings, data=data, recovers=recovers)


async def test_the_stories_can_be_recorded_by_this_release(tmp_path: Path) -> None:
    sql, shown = await record()
    restore(sql, tmp_path / "data")
    assert pending(tmp_path / "data" / FILE_NAME) == []
    assert {story for story, execution in shown.items() if execution["state"] not in TERMINAL} == set(ENDS)
