"""The code of an attempt is kept with its error, and read by the next one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from weft.clock import RealClock, new_id
from weft.core.task import Task
from weft.errors import JournalError
from weft.handlers.outcome import Completed, Failed
from weft.journal.memory import MemoryJournal
from weft.testing.recording import Recording, node
from weft.worker.code_change import AttemptCode, last_code, with_code

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from weft.core.rows import NodeRow


class AbsentJournal(MemoryJournal):
    async def nodes(
        self, execution_id: str, *, names: Collection[str] | None = None
    ) -> Mapping[str, NodeRow]:
        raise JournalError("it is away")


def task(attempt: int) -> Task:
    return Task(
        execution_id="e",
        generation=1,
        node_id="a",
        attempt=attempt,
        digest="d",
        handler="python",
        queue="q",
        priority=1,
        config=b"{}",
        timeout_seconds=1.0,
        queued_at=0,
        failures=0,
        losses=0,
    )


def failed(digest: str) -> dict[str, object]:
    return {"code": "handler_error", "message": "no", "retryable": True, "details": {"code_digest": digest}}


@pytest.fixture
def journal() -> MemoryJournal:
    return MemoryJournal(now=RealClock().now, new_id=new_id)


async def test_the_next_attempt_reads_the_code_of_the_last_one_that_failed(journal: MemoryJournal) -> None:
    recording = await Recording.start(journal, node("a"), execution_id="e")
    assert await last_code(task(1), journal) is None
    await recording.failed_once("a", error=failed("one"))
    assert await last_code(task(2), journal) == AttemptCode(1, "one")
    await recording.lost("a", 2)
    assert await last_code(task(3), journal) == AttemptCode(1, "one")
    await recording.failed("a", 3, error=failed("three"))
    await recording.retry()
    # The row is a fresh one.
    assert await last_code(task(4), journal) == AttemptCode(3, "three")


async def test_an_attempt_runs_also_while_the_journal_is_away() -> None:
    journal = AbsentJournal(now=RealClock().now, new_id=new_id)
    assert await last_code(task(2), journal) is None


def test_a_failure_names_the_code_that_failed_and_a_result_does_not() -> None:
    plain = Failed({"code": "timeout", "message": "", "retryable": True}, 3.0)
    named = with_code(plain, "ab12")
    assert named == Failed({**plain.error, "details": {"code_digest": "ab12"}}, 3.0)
    assert with_code(Failed({"code": "x", "details": {"a": 1}}), "ab12") == Failed(
        {"code": "x", "details": {"a": 1, "code_digest": "ab12"}}
    )
    own = Failed({"code": "x", "details": [1]})
    assert with_code(own, "ab12") is own
    assert with_code(plain, "") is plain
    assert with_code(Completed(b"1"), "ab12") == Completed(b"1")
