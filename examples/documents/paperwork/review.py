"""What people have decided about documents: the answers that reviews waited for.

A review is a node of the workflow that waits; weft lists the open ones and takes the answers. Here lies what
outlives the execution: a document that was decided is not asked about again while its values stay as they
are, and a field that a reviewer corrects is locked, whatever is read of the document later.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from paperwork.database import reading, transaction
from paperwork.fields import Record, read_value, relocked
from weft import NonRetryable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from sqlite3 import Connection

# Whether a document was decided before: never, with the values that it has, or with others.
Earlier: TypeAlias = Literal["none", "same", "other"]

CORRECT = "correct"


def question(record: Record, reasons: Iterable[str]) -> str:
    """Return what a reviewer is asked: which document, why, and what was read of it."""
    values = [
        f"{name} {'is missing' if field['value'] is None else field['value']}"
        f" ({'locked' if field['locked'] else format(field['confidence'], '.2f')})"
        for name, field in record["fields"].items()
    ]
    return f"{record['document']}: {'; '.join([*reasons, *values])}"


def earlier(record: Record) -> Earlier:
    """Return whether a document was decided before, and whether with these values."""
    with reading() as connection:
        found = connection.execute(
            "SELECT record FROM decisions WHERE document = ?", (record["document"],)
        ).fetchone()
    if found is None:
        return "none"
    return "same" if json.loads(found["record"]) == record else "other"


def locked_fields(document: str) -> dict[str, str | None]:
    """Return the values that reviewers have fixed."""
    with reading() as connection:
        return _locked(connection, document)


def decide(record: Record, answer: Mapping[str, Any], *, by: str | None, at: str) -> Record:
    """Keep what a reviewer answered, lock what was corrected, and return the record as it is from then on.

    The same answer a second time changes nothing.
    """
    fixed = _corrections(record, answer)
    document = record["document"]
    with transaction() as connection:
        for name, value in fixed.items():
            connection.execute(
                "INSERT OR REPLACE INTO locked_fields (document, field, value) VALUES (?, ?, ?)",
                (document, name, value),
            )
        record = relocked(record, _locked(connection, document))
        connection.execute(
            "INSERT OR REPLACE INTO decisions (document, decision, record, by, note, at)"
            " VALUES (?, ?, ?, ?, ?, ?)",
            (
                document,
                answer["decision"],
                json.dumps(record, ensure_ascii=False),
                by,
                answer.get("note", ""),
                at,
            ),
        )
    return record


def _corrections(record: Record, answer: Mapping[str, Any]) -> dict[str, str | None]:
    """Return the values of a correction in their one form.

    The schema of the answer knows the form of each field, but neither the type of the document nor the
    calendar.
    """
    fields = record["fields"]
    values = answer.get("fields", {}) if answer["decision"] == CORRECT else {}
    for name in values:
        if name not in fields:
            raise NonRetryable(f"there is no field {name!r}; there is: {', '.join(fields) or 'none'}")
    try:
        return {name: None if value is None else read_value(name, value) for name, value in values.items()}
    except ValueError as error:
        raise NonRetryable(str(error)) from None


def _locked(connection: Connection, document: str) -> dict[str, str | None]:
    sql = "SELECT field, value FROM locked_fields WHERE document = ?"
    return {row["field"]: row["value"] for row in connection.execute(sql, (document,))}
