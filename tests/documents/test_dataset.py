from __future__ import annotations

import os
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import duckdb
import polars
import pytest

from paperwork import dataset, fields, review
from weft.handlers.contract import HandlerContext

if TYPE_CHECKING:
    from pathlib import Path

    from tests.documents.conftest import Place


def record(document: str = "a.pdf", type_: str = "invoice", **values: str | None) -> fields.Record:
    given = {"number": "7", "date": "2024-05-14", "vendor": "Blue", "total": "12.50", "currency": "EUR"}
    found = {
        name: {"value": value, "confidence": 0.9, "locked": False} for name, value in (given | values).items()
    }
    return fields.make_record(document, "0" * 64, type_, found)


def attempt(number: int, execution_id: str = "e") -> HandlerContext:
    return HandlerContext(
        execution_id=execution_id,
        node_id="save_json",
        generation=1,
        attempt=number,
        deadline=datetime.now(UTC),
    )


def partial(place: Place) -> list[Path]:
    return list((place.dataset / dataset.PARTIAL).iterdir())


def test_duckdb_and_polars_read_one_table(place: Place) -> None:
    dataset.save_parquet(record())
    dataset.save_parquet(record("b.png", "receipt", total="30.00"))
    dataset.save_parquet(record("c/d.txt", date=None, total=None))
    files = str(place.dataset / "parquet" / "*.parquet")

    rows: list[Any] = duckdb.execute(
        f"SELECT document, type, number, date, total FROM '{files}' ORDER BY document"
    ).fetchall()
    assert rows == [
        ("a.pdf", "invoice", "7", date(2024, 5, 14), Decimal("12.50")),
        ("b.png", "receipt", None, date(2024, 5, 14), Decimal("30.00")),
        ("c/d.txt", "invoice", "7", None, None),
    ]
    table = polars.read_parquet(files)
    assert table.height == 3
    assert table["total"].sum() == Decimal("42.50")
    assert table.schema["date"] == polars.Date


def test_the_same_record_is_the_same_file_and_is_not_written_again(place: Place) -> None:
    for save in (dataset.save_parquet, dataset.save_json):
        save(record())
    before = place.files()
    for save in (dataset.save_parquet, dataset.save_json):
        save(record())
    assert place.files() == before
    assert len(before) == 2


def test_a_file_that_cannot_be_finished_is_not_there(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    path = dataset.save_json(record(), attempt(1))

    def die(_: int) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", die)
        for changed in (record(total="99.00"), record("new.pdf")):
            with pytest.raises(KeyboardInterrupt):
                dataset.save_json(changed, attempt(1, changed["document"]))
    assert [str(file) for file in (place.dataset / "json").iterdir()] == [path]
    assert place.saved("a.pdf")["fields"]["total"]["value"] == "12.50"
    assert len(partial(place)) == 2

    # The next attempt takes away what the last one left.
    dataset.save_json(record(total="99.00"), attempt(2, "a.pdf"))
    dataset.save_json(record("new.pdf"), attempt(2, "new.pdf"))
    assert partial(place) == []
    assert place.saved("a.pdf")["fields"]["total"]["value"] == "99.00"


def test_documents_with_names_alike_have_files_of_their_own(place: Place) -> None:
    names = ["a/b.pdf", "a-b.pdf", "a b.pdf", "ä-b.pdf", "../b.pdf"]
    for name in names:
        dataset.save_json(record(name))
    assert [place.saved(name)["document"] for name in names] == names


def test_a_correction_made_while_a_record_is_saved_is_not_overwritten(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = dataset._write
    corrections = [{"decision": "correct", "fields": {"vendor": "Corrected"}}]

    def write_late(*arguments: Any) -> None:
        # Here the pipeline has read what is locked, and has not written yet.
        if corrections:
            corrected = review.decide(record(), corrections.pop(), by="ada", at="2026-01-31T10:05:00Z")
            dataset.save_json(corrected)
        write(*arguments)

    monkeypatch.setattr(dataset, "_write", write_late)
    dataset.save_json(record(), attempt(1))
    assert place.saved("a.pdf")["fields"]["vendor"]["value"] == "Corrected"
