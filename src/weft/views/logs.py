"""The lines that nodes printed and logged, as they are shown: numbered, filtered, page by page."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from weft.core.time import rfc3339
from weft.journal.contract import LogLine

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from weft.journal.contract import Catalog, StoredChunk

LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")

# Chunks in one read: each has at most what an attempt may keep.
_CHUNKS = 20


async def read_lines(
    execution_id: str,
    catalog: Catalog,
    *,
    after: int = 0,
    limit: int,
    node_id: str | None = None,
    attempt: int | None = None,
    level: str | None = None,
) -> tuple[list[dict[str, Any]], int | None]:
    """Read up to ``limit`` lines behind number ``after``, oldest first; and the last number if more follow.

    ``level``: lines that were logged at this level or above; what was printed has none.
    """
    shown: list[dict[str, Any]] = []
    least = None if level is None else _LEVEL_NUMBERS[level]
    async for item in _lines(execution_id, catalog, after, node_id, attempt):
        if least is not None and _LEVEL_NUMBERS.get(item["level"] or "", 0) < least:
            continue
        if len(shown) == limit:
            return shown, shown[-1]["seq"]
        shown.append(item)
    return shown, None


_LEVEL_NUMBERS = {name: getattr(logging, name) for name in LEVELS}


async def _lines(
    execution_id: str, catalog: Catalog, after: int, node_id: str | None, attempt: int | None
) -> AsyncIterator[dict[str, Any]]:
    while True:
        chunks = await catalog.logs(
            execution_id, after=after, limit=_CHUNKS, node_id=node_id, attempt=attempt
        )
        for chunk in chunks:
            for item in _shown(chunk):
                if item["seq"] > after:
                    yield item
        if len(chunks) < _CHUNKS:
            return
        after = chunks[-1].first_seq + len(chunks[-1].lines)


def _shown(chunk: StoredChunk) -> Iterator[dict[str, Any]]:
    lines = list(chunk.lines)
    first = chunk.first_seq + 1
    if chunk.lines_gone and lines:
        text = f"{chunk.lines_gone:,} older lines are gone: they were over WEFT_MAX_LOG_BYTES"
        lines.insert(0, LogLine(lines[0].at, "log", text, "WARNING", "weft"))
        first -= 1
    for seq, line in enumerate(lines, first):
        yield {
            "seq": seq,
            "at": rfc3339(line.at),
            "node": chunk.node_id,
            "attempt": chunk.attempt,
            "stream": line.stream,
            "level": line.level,
            "logger": line.logger,
            "message": line.message,
        }
