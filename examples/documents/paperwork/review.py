"""The review queue: documents that nobody should use before a person has looked at them.

An item belongs to a document, not to an execution: processing the same document again finds its item. A
field that a reviewer corrects is locked, and stays as it is, whatever is read of the document later.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from paperwork.database import reading, transaction
from paperwork.fields import Record, read_value, relocked

if TYPE_CHECKING:
    from collections.abc import Mapping
    from sqlite3 import Connection, Row

OPEN, APPROVED, CORRECTED, REJECTED = STATES = ("open", "approved", "corrected", "rejected")

PIPELINE = "pipeline"


class ReviewError(Exception):
    """What a reviewer asked for cannot be done; the message says why."""


class NoSuchItemError(ReviewError):
    """There is no item of that number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    id: int
    document: str
    state: str
    reason: str
    record: Record
    created_at: str
    updated_at: str
    history: list[dict[str, Any]]


# --- What the pipeline does.


def put(record: Record, *, reason: str) -> int:
    """Put a document into the queue, and give the number of its item.

    One that is there with the same values stays as it is, whatever was decided about it. Other values are to
    be looked at again.
    """
    with transaction() as connection:
        record = relocked(record, _locked(connection, record["document"]))
        found = _find(connection, "document", record["document"])
        now = _now()
        if found is None:
            cursor = connection.execute(
                "INSERT INTO reviews (document, state, reason, record, created_at, updated_at)"
                " VALUES (?, ?, ?, ?, ?, ?)",
                (record["document"], OPEN, reason, _write(record), now, now),
            )
            assert cursor.lastrowid is not None
            _note(connection, cursor.lastrowid, PIPELINE, "created", {"reason": reason})
            return cursor.lastrowid
        if found["record"] != _write(record):
            connection.execute(
                "UPDATE reviews SET state = ?, reason = ?, record = ?, updated_at = ? WHERE id = ?",
                (OPEN, reason, _write(record), now, found["id"]),
            )
            _note(connection, found["id"], PIPELINE, "changed", {"reason": reason})
        return int(found["id"])


def is_known(document: str) -> bool:
    """Return whether a document has an item."""
    with reading() as connection:
        return _find(connection, "document", document) is not None


def locked_fields(document: str) -> dict[str, str | None]:
    """Return the values that reviewers have fixed."""
    with reading() as connection:
        return _locked(connection, document)


# --- What reviewers do.


def listed(*, state: str | None = OPEN, limit: int = 50) -> list[Item]:
    """List items, those that wait longest first; ``state`` None means of every state."""
    with reading() as connection:
        rows = connection.execute(
            "SELECT * FROM reviews WHERE ? IN (state, '') ORDER BY created_at, id LIMIT ?",
            (state or "", limit),
        ).fetchall()
        return [_item(connection, row) for row in rows]


def show(item_id: int) -> Item:
    with reading() as connection:
        return _item(connection, _require(connection, item_id))


def approve(item_id: int, *, by: str, note: str = "") -> Item:
    """Approve all fields as they are."""
    return _decide(item_id, APPROVED, by, note)


def reject(item_id: int, *, by: str, note: str = "") -> Item:
    """Reject the whole document: nothing of it can be used."""
    return _decide(item_id, REJECTED, by, note)


def correct(item_id: int, values: Mapping[str, str | None], *, by: str, note: str = "") -> Item:
    """Put values in the place of what was read, lock them, and save the document again."""
    from paperwork import dataset

    if not values:
        raise ReviewError("name at least one field to correct")
    with transaction() as connection:
        row = _require(connection, item_id)
        record = json.loads(row["record"])
        fields = record["fields"]
        for name in values:
            if name not in fields:
                raise ReviewError(f"there is no field {name!r}; there is: {', '.join(fields) or 'none'}")
        try:
            fixed = {
                name: None if value is None else read_value(name, value) for name, value in values.items()
            }
        except ValueError as error:
            raise ReviewError(str(error)) from None
        for name, value in fixed.items():
            connection.execute(
                "INSERT OR REPLACE INTO locked_fields (document, field, value) VALUES (?, ?, ?)",
                (row["document"], name, value),
            )
        changed = {name: {"from": fields[name]["value"], "to": value} for name, value in fixed.items()}
        record = relocked(record, _locked(connection, row["document"]))
        connection.execute("UPDATE reviews SET record = ? WHERE id = ?", (_write(record), item_id))
        _close(connection, item_id, CORRECTED, _name(by), {"fields": changed, "note": note})
    # After the commit: what is saved from here on, also by an execution under way, has the new values.
    dataset.save_parquet(record)
    dataset.save_json(record)
    return show(item_id)


def _decide(item_id: int, state: str, by: str, note: str) -> Item:
    with transaction() as connection:
        _require(connection, item_id)
        _close(connection, item_id, state, _name(by), {"note": note})
    return show(item_id)


def _close(connection: Connection, item_id: int, state: str, by: str, details: dict[str, Any]) -> None:
    connection.execute("UPDATE reviews SET state = ?, updated_at = ? WHERE id = ?", (state, _now(), item_id))
    _note(connection, item_id, by, state, details)


def _note(connection: Connection, item_id: int, by: str, action: str, details: dict[str, Any]) -> None:
    connection.execute(
        "INSERT INTO review_history (review, at, by, action, details) VALUES (?, ?, ?, ?, ?)",
        (item_id, _now(), by, action, _write(details)),
    )


def _require(connection: Connection, item_id: int) -> Row:
    found = _find(connection, "id", item_id)
    if found is None:
        raise NoSuchItemError(f"there is no review {item_id}")
    return found


def _find(connection: Connection, column: str, value: object) -> Row | None:
    found: Row | None = connection.execute(
        f"SELECT * FROM reviews WHERE {column} = ?",  # noqa: S608 - one of two names
        (value,),
    ).fetchone()
    return found


def _locked(connection: Connection, document: str) -> dict[str, str | None]:
    sql = "SELECT field, value FROM locked_fields WHERE document = ?"
    return {row["field"]: row["value"] for row in connection.execute(sql, (document,))}


def _item(connection: Connection, row: Row) -> Item:
    history = connection.execute(
        "SELECT at, by, action, details FROM review_history WHERE review = ? ORDER BY rowid", (row["id"],)
    )
    return Item(
        id=row["id"],
        document=row["document"],
        state=row["state"],
        reason=row["reason"],
        record=json.loads(row["record"]),
        created_at=row["created_at"],
        updated_at=row["updated_at"],
        history=[{**dict(noted), "details": json.loads(noted["details"])} for noted in history],
    )


def _name(by: str) -> str:
    if not by.strip():
        raise ReviewError("say who decides")
    return by.strip()


def _write(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
