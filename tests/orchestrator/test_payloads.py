"""What an orchestrator remembers of payloads, and what belongs to one batch alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from weft.core.payload import encode
from weft.core.rows import NodeRow
from weft.core.state import NodeState
from weft.errors import JournalError
from weft.journal.memory import MemoryJournal
from weft.orchestrator.context import Payloads

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class _CountingJournal(MemoryJournal):
    """Counts the blobs that are read."""

    def __init__(self) -> None:
        super().__init__(now=lambda: 0, new_id=iter(map(str, range(100))).__next__)
        self.read: list[str] = []

    async def blobs(self, names: Sequence[str]) -> Mapping[str, bytes]:
        self.read += names
        return await super().blobs(names)


async def _large(journal: MemoryJournal, value: str) -> NodeRow:
    blob = await journal.put_blob(encode(value, max_bytes=1000))
    return NodeRow(node_id="a", state=NodeState.COMPLETED, blob=blob)


async def _fetch(payloads: Payloads, journal: MemoryJournal, *rows: NodeRow) -> Mapping[str, bytes]:
    return await payloads.fetch([row.blob for row in rows if row.blob is not None], journal)


async def test_a_batch_keeps_its_blobs_while_another_batch_fetches_its_own() -> None:
    journal, payloads = _CountingJournal(), Payloads()
    first, second = await _large(journal, "first"), await _large(journal, "second")
    blobs = await _fetch(payloads, journal, first)
    others = await _fetch(payloads, journal, second)
    nothing = await _fetch(payloads, journal)
    assert payloads.value_of(first, blobs).output == "first"
    assert payloads.value_of(second, others).output == "second"
    assert not nothing


async def test_a_blob_that_the_next_batch_needs_too_is_read_once() -> None:
    journal, payloads = _CountingJournal(), Payloads()
    row, other = await _large(journal, "shared"), await _large(journal, "other")
    first = await _fetch(payloads, journal, row)
    second = await _fetch(payloads, journal, row, other)
    assert journal.read == [row.blob, other.blob]
    assert payloads.value_of(row, first).output == payloads.value_of(row, second).output == "shared"


async def test_a_blob_that_the_journal_has_lost_is_an_error_of_the_journal() -> None:
    """The batch is then kept and decided anew, instead of waiting until a peer claims it."""
    journal = _CountingJournal()
    row = await _large(journal, "lost")
    journal._blobs.clear()
    with pytest.raises(JournalError, match="lost commits"):
        await _fetch(Payloads(), journal, row)
