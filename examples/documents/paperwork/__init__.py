"""The functions behind the Python nodes of ``documents.yaml``, in the order in which they run.

Each may be run twice, after a crash or by a retry, and leaves the same behind as if it had run once.
"""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paperwork import dataset, extractions, fields, metrics, reading, review
from paperwork.settings import settings
from weft import NonRetryable

if TYPE_CHECKING:
    from paperwork.fields import Record, Reply
    from weft.handlers.contract import HandlerContext

__all__ = [
    "check",
    "prepare",
    "read",
    "record_metrics",
    "save_json",
    "save_parquet",
    "save_review",
    "set_aside",
]


def read(path: str, document: str | None = None) -> dict[str, Any]:
    """Read a file of the inbox. One whose bytes were extracted before is not even looked into."""
    started_at = datetime.now(UTC).isoformat()
    data = _bytes_of(path)
    sha256 = hashlib.sha256(data).hexdigest()
    about = {
        "document": document or path,
        "sha256": sha256,
        "kind": reading.kind_of(data),
        "started_at": started_at,
    }
    known = extractions.find(sha256)
    if known is not None:
        type_, reply = known
        return {**about, "type": type_, "known": reply, "text": None}
    text = reading.text_of(data)
    return {**about, "type": fields.type_of(text), "known": None, "text": text}


def prepare(type: str, text: str) -> dict[str, Any]:  # noqa: A002 - the name of the argument in the definition
    """Make the question for the model, and the schema that its reply must fit."""
    return {
        "system": fields.SYSTEM,
        "prompt": fields.prompt(type, text),
        "response_schema": fields.response_schema(type),
    }


def check(document: str, sha256: str, type: str, reply: Reply) -> dict[str, Any]:  # noqa: A002 - as above
    """Check the fields of a reply, and put those that reviewers have fixed over them."""
    reply = extractions.keep(sha256, type, reply)
    found, problems = fields.check(type, reply)
    found = fields.with_locked(found, review.locked_fields(document))
    record = fields.make_record(document, sha256, type, found)
    return {
        "record": record,
        "found": sum(field["value"] is not None for field in found.values()),
        "question": review.question(record, problems or ["the confidence is low"]),
        "earlier_review": review.earlier(record),
    }


def save_parquet(record: Record, context: HandlerContext) -> dict[str, str]:
    return {"file": dataset.save_parquet(record, context)}


def save_json(record: Record, context: HandlerContext) -> dict[str, str]:
    return {"file": dataset.save_json(record, context)}


def record_metrics(
    document: str, status: str, started_at: str, context: HandlerContext, confidence: float | None = None
) -> dict[str, object]:
    return metrics.record(document, status, started_at, confidence, context)


def set_aside(document: str, sha256: str) -> dict[str, Any]:
    """Make the record and the question of a document that we have no fields for."""
    record = fields.make_record(document, sha256, fields.OTHER, {})
    return {
        "record": record,
        "question": review.question(record, ["its type is not known"]),
        "earlier_review": review.earlier(record),
    }


def save_review(
    record: Record, answer: dict[str, Any], at: str, context: HandlerContext, by: str | None = None
) -> dict[str, Any]:
    """Keep what a reviewer answered; what was corrected is in the files from here on."""
    record = review.decide(record, answer, by=by, at=at)
    if answer["decision"] == review.CORRECT:
        # After the commit: what an execution under way saves from here on has the new values, too.
        dataset.save_parquet(record, context)
        dataset.save_json(record, context)
    return {"record": record}


def _bytes_of(path: str) -> bytes:
    inbox = settings().inbox.resolve()
    file = (inbox / path).resolve()
    if not file.is_relative_to(inbox):
        raise NonRetryable(f"{path} does not lie in the inbox")
    try:
        if file.stat().st_size > reading.MAX_BYTES:
            raise NonRetryable(f"{path} is longer than {reading.MAX_BYTES:,} bytes")
        return Path(file).read_bytes()
    except FileNotFoundError:
        raise NonRetryable(f"there is no {path} in the inbox") from None
