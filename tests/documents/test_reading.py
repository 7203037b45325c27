from __future__ import annotations

from io import BytesIO

import pytest

from paperwork import reading
from paperwork.samples import as_pdf, as_png, as_text, make, page
from weft import NonRetryable

LINES = make(1, reading.TEXT).lines


@pytest.mark.parametrize(("kind", "data"), [("pdf", as_pdf(LINES)), ("text", as_text(LINES))])
def test_the_text_of_a_file_is_what_is_written_there(kind: str, data: bytes) -> None:
    assert reading.kind_of(data) == kind
    assert reading.text_of(data).split("\n")[:-1] == list(LINES)


def test_a_scanned_page_is_read_line_by_line() -> None:
    data = as_png(LINES)
    assert reading.kind_of(data) == "png"
    # How wide a gap is, nobody can tell from a picture.
    assert [line.replace(" ", "") for line in reading.text_of(data).split("\n")] == [
        line.replace(" ", "") for line in LINES
    ]


def test_a_scan_inside_a_pdf_is_read_as_well() -> None:
    buffer = BytesIO()
    page(LINES).save(buffer, "PDF")
    assert reading.kind_of(buffer.getvalue()) == "pdf"
    assert "INV-00001" in reading.text_of(buffer.getvalue())


def test_words_on_one_line_stay_on_it() -> None:
    pieces = [((101.0, 300.0, 20.0), "b"), ((100.0, 400.0, 20.0), "c"), ((130.0, 10.0, 20.0), "d")]
    assert reading._lines([*pieces, ((104.0, 10.0, 20.0), "a")]) == ["a b c", "d"]


@pytest.mark.parametrize(
    "data",
    [b"PK\x03\x04\0\0", b"\xff\xfe no UTF-8", b"%PDF-1.4 and no more", b"\x89PNG\r\n\x1a\n and no more"],
)
def test_what_cannot_be_read_is_not_tried_again(data: bytes) -> None:
    with pytest.raises(NonRetryable):
        reading.text_of(data)
