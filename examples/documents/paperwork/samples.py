"""Documents to try the pipeline on: invoices and receipts as text, PDF and scanned pages, and a few letters.

The same number gives the same document every time.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from io import BytesIO
from random import Random
from typing import TYPE_CHECKING

from paperwork.reading import PDF, PNG, TEXT

if TYPE_CHECKING:
    from pathlib import Path

    from PIL.Image import Image

# One in so many is …
SMUDGED, RECEIPT, LETTER, SCANNED = 5, 3, 25, 10

_VENDORS = ("Northwind Traders", "Blue Harbour Ltd", "Maple and Sons", "Orchard Paper", "Tidewater Tools")
_SUFFIXES = {PDF: ".pdf", PNG: ".png", TEXT: ".txt"}


@dataclass(frozen=True, slots=True)
class Sample:
    name: str
    data: bytes
    lines: tuple[str, ...]


def write(folder: Path, count: int, *, scans: int | None = None, first: int = 1) -> list[str]:
    """Write so many documents, with ``documents.jsonl`` beside the folder, and give their names.

    ``scans``: so many scanned pages at most, which take longer to make and to read than all else.
    """
    folder.mkdir(parents=True, exist_ok=True)
    names = []
    left = count if scans is None else scans
    for number in range(first, first + count):
        is_scan = number % SCANNED == 0 and left > 0
        left -= is_scan
        sample = make(number, PNG if is_scan else (TEXT, PDF)[number % 2])
        (folder / sample.name).write_bytes(sample.data)
        names.append(sample.name)
    lines = "".join(json.dumps({"path": name}) + "\n" for name in names)
    (folder.parent / "documents.jsonl").write_text(lines, encoding="utf-8")
    return names


def make(number: int, kind: str) -> Sample:
    lines = tuple(_lines(number))
    makers = {PDF: as_pdf, PNG: as_png, TEXT: as_text}
    return Sample(f"{number:05}{_SUFFIXES[kind]}", makers[kind](lines), lines)


def _lines(number: int) -> list[str]:
    draw = Random(number)  # noqa: S311 - what is drawn is a sample
    vendor = draw.choice(_VENDORS)
    if number % LETTER == 0:
        return ["Dear customer,", f"thank you for visiting {vendor}.", f"Yours, desk {number}"]
    # A smudge hides a character.
    vendor = vendor[:3] + "?" + vendor[4:] if number % SMUDGED == 0 else vendor
    date = f"2024-{draw.randint(1, 12):02}-{draw.randint(1, 28):02}"
    total = f"{draw.randint(5, 4000)}.{draw.randint(0, 99):02}"
    if number % RECEIPT == 0:
        return ["RECEIPT", f"Merchant: {vendor}", f"Date: {date}", f"Total: {total} EUR", f"Till {number}"]
    return [
        "INVOICE",
        f"Invoice number: INV-{number:05}",
        f"Date: {date}",
        f"Vendor: {vendor}",
        f"Total: {total} EUR",
        "Thank you for your business.",
    ]


def as_text(lines: tuple[str, ...]) -> bytes:
    return "\n".join(lines).encode() + b"\n"


def as_pdf(lines: tuple[str, ...]) -> bytes:
    """Write a PDF of one page, as any program would that prints to one."""
    shown = " ".join(f"({_escaped(line)}) Tj T*" for line in lines)
    content = f"BT /F1 12 Tf 18 TL 72 770 Td {shown} ET".encode("latin-1")
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents 4 0 R"
        b" /Resources << /Font << /F1 5 0 R >> >> >>",
        b"<< /Length %d >>\nstream\n%b\nendstream" % (len(content), content),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>",
    ]
    written = bytearray(b"%PDF-1.4\n")
    places = []
    for number, body in enumerate(objects, start=1):
        places.append(len(written))
        written += b"%d 0 obj\n%b\nendobj\n" % (number, body)
    table = len(written)
    written += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    written += b"".join(b"%010d 00000 n \n" % place for place in places)
    written += b"trailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (len(objects) + 1, table)
    return bytes(written)


def as_png(lines: tuple[str, ...]) -> bytes:
    """Scan a page: it lies a little askew, and the paper is not quite white."""
    buffer = BytesIO()
    page(lines).save(buffer, "PNG")
    return buffer.getvalue()


def page(lines: tuple[str, ...]) -> Image:
    from PIL import Image, ImageDraw, ImageFont

    paper = 244
    image = Image.new("L", (827, 1169), paper)
    draw = ImageDraw.Draw(image)
    font = ImageFont.load_default(size=24)
    for number, line in enumerate(lines):
        draw.text((80, 90 + 44 * number), line, font=font, fill=30)
    return image.rotate(0.6, resample=Image.Resampling.BICUBIC, fillcolor=paper)


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("(", r"\(").replace(")", r"\)")
