"""The dataset: a Parquet and a JSON file for each document, whole or not there at all."""

from __future__ import annotations

import hashlib
import json
import os
import re
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from paperwork.extra import needed
from paperwork.fields import NAMES, Record, relocked
from paperwork.review import locked_fields
from paperwork.settings import settings

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from weft.handlers.contract import HandlerContext

# Files are written here and moved to their place; a program that reads the dataset never looks here.
PARTIAL = ".partial"


def save_parquet(record: Record, context: HandlerContext | None = None) -> str:
    """Save a record as one row of the dataset."""
    return _save("parquet", record, _as_parquet, context)


def save_json(record: Record, context: HandlerContext | None = None) -> str:
    """Save a record with the confidence of each field."""
    return _save("json", record, _as_json, context)


def file_name(document: str) -> str:
    """Return the name of a document's files: readable, safe as a name, and different for each document."""
    readable = re.sub(r"[^A-Za-z0-9]+", "-", document).strip("-")[:60]
    return f"{readable}-{hashlib.sha256(document.encode()).hexdigest()[:12]}"


def _save(
    format_: str, record: Record, content: Callable[[Record], bytes], context: HandlerContext | None
) -> str:
    path = settings().dataset / format_ / f"{file_name(record['document'])}.{format_}"
    while True:
        locked = locked_fields(record["document"])
        _write(path, content(relocked(record, locked)), context)
        # A reviewer may have corrected a field meanwhile, and saved it, before this older value was written.
        if locked_fields(record["document"]) == locked:
            return str(path)


def _write(path: Path, data: bytes, context: HandlerContext | None) -> None:
    """Put a file in its place in one step, and return once it is on the disk."""
    if path.exists() and path.read_bytes() == data:
        return
    partial = path.parents[1] / PARTIAL
    for folder in (partial, path.parent):
        folder.mkdir(parents=True, exist_ok=True)
    if context is None:
        place = partial / f"{path.name}.{uuid4()}"
    else:
        mine = f"{path.name}.{context.execution_id}.{context.generation}"
        place = partial / f"{mine}.{context.attempt}"
        # An earlier attempt that was killed in the middle left its own.
        for left in partial.glob(f"{mine}.*"):
            left.unlink(missing_ok=True)
    with place.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    place.replace(path)
    folder_descriptor = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder_descriptor)
    finally:
        os.close(folder_descriptor)


def _as_json(record: Record) -> bytes:
    return json.dumps(record, ensure_ascii=False, indent=2).encode() + b"\n"


def _as_parquet(record: Record) -> bytes:
    with needed():
        import pyarrow
        from pyarrow import parquet

    read: dict[str, Callable[[str], Any]] = {"date": date.fromisoformat, "total": Decimal}
    kinds = {"date": pyarrow.date32(), "total": pyarrow.decimal128(15, 2)}
    row: dict[str, Any] = {name: record[name] for name in ("document", "sha256", "type", "confidence")}
    columns = [(name, pyarrow.string()) for name in ("document", "sha256", "type")]
    columns.append(("confidence", pyarrow.float64()))
    # Every file has all columns, whatever the type of its document: together they are one table.
    for name in NAMES:
        value = record["fields"].get(name, {}).get("value")
        row[name] = None if value is None else read.get(name, str)(value)
        columns.append((name, kinds.get(name, pyarrow.string())))
    sink = pyarrow.BufferOutputStream()
    parquet.write_table(pyarrow.Table.from_pylist([row], schema=pyarrow.schema(columns)), sink)
    return bytes(sink.getvalue())
