"""Replies of the model by the SHA-256 of a document's bytes: what was extracted once is not sent again.

weft has a cache of its own, by a node's config. This one is asked before a page is even read, which for a
scan takes longer than all else here; it outlives the journal; and two files with the same bytes share it.

Two such files that come at the same time are both sent: to let one of them wait for the other, who may fail,
would be more than the second call is worth. What the model says first is what both become.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from paperwork.database import reading, transaction
from paperwork.fields import TYPES, recipe

if TYPE_CHECKING:
    from paperwork.fields import Reply


def find(sha256: str) -> tuple[str, Reply] | None:
    """Return the type of a document and what the model said of it, if it was asked before."""
    with reading() as connection:
        rows = connection.execute(
            "SELECT type, recipe, reply FROM extractions WHERE sha256 = ?", (sha256,)
        ).fetchall()
    for row in rows:
        if row["type"] in TYPES and row["recipe"] == recipe(row["type"]):
            return row["type"], json.loads(row["reply"])
    return None


def keep(sha256: str, type_: str, reply: Reply) -> Reply:
    """Remember what the model said, and give what it said first: the same bytes are the same fields."""
    key = (sha256, recipe(type_))
    with transaction() as connection:
        connection.execute(
            "INSERT OR IGNORE INTO extractions (sha256, recipe, type, reply) VALUES (?, ?, ?, ?)",
            (*key, type_, json.dumps(reply, ensure_ascii=False, sort_keys=True)),
        )
        kept = connection.execute(
            "SELECT reply FROM extractions WHERE sha256 = ? AND recipe = ?", key
        ).fetchone()
    first: Reply = json.loads(kept["reply"])
    return first
