"""The text of a document: a PDF, a scanned page, or plain text."""

from __future__ import annotations

from functools import cache
from io import BytesIO
from typing import TYPE_CHECKING, Any

from paperwork.extra import needed
from weft import NonRetryable

if TYPE_CHECKING:
    from PIL.Image import Image

MAX_BYTES = 32 * 2**20
# A page that was scanned has no text of its own, or a few characters that a scanner put there.
_FEWEST_CHARACTERS = 16
# Pages are made smaller before text is looked for: enough for print, and half a second a page.
_LONGEST_SIDE = 1280

PDF, PNG, TEXT = "pdf", "png", "text"


def kind_of(data: bytes) -> str:
    """Return what a document is, by its content: a name may say anything."""
    if data.startswith(b"%PDF-"):
        return PDF
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return PNG
    if b"\0" not in data:
        return TEXT
    raise NonRetryable("this is no PDF, no PNG and no text")


def text_of(data: bytes) -> str:
    """Return the text of a document, one line of it to a line."""
    match kind_of(data):
        case "pdf":
            return _of_pdf(data)
        case "png":
            return _of_image(_open_image(data))
        case _:
            try:
                return data.decode("utf-8")
            except UnicodeDecodeError as error:
                raise NonRetryable(f"the text is not UTF-8: {error}") from None


def _of_pdf(data: bytes) -> str:
    with needed():
        from pypdf import PdfReader
        from pypdf.errors import PyPdfError

    try:
        pages = []
        for page in PdfReader(BytesIO(data)).pages:
            text = page.extract_text()
            if len(text.strip()) < _FEWEST_CHARACTERS:
                text = "\n".join(_of_image(found.image) for found in page.images if found.image is not None)
            pages.append(text)
    except PyPdfError as error:
        raise NonRetryable(f"the PDF cannot be read: {error}") from error
    return "\n".join(pages)


def _open_image(data: bytes) -> Image:
    with needed():
        from PIL import Image, UnidentifiedImageError

    try:
        image = Image.open(BytesIO(data))
        image.load()
    except (UnidentifiedImageError, OSError, Image.DecompressionBombError) as error:
        raise NonRetryable(f"the image cannot be read: {error}") from error
    return image


def _of_image(image: Image) -> str:
    """Read what is printed on a page, line by line from the top."""
    with needed():
        import numpy

    found = _engine()(numpy.asarray(image.convert("RGB")))
    if found.txts is None:
        return ""
    # The corners of a line, from the upper left one: words on the same line come back as several boxes.
    places = [(float(box[0][1]), float(box[0][0]), float(box[3][1] - box[0][1])) for box in found.boxes]
    return "\n".join(_lines(list(zip(places, found.txts, strict=True))))


def _lines(pieces: list[tuple[tuple[float, float, float], str]]) -> list[str]:
    lines: list[list[tuple[float, str]]] = []
    top = float("-inf")
    for (y, x, height), text in sorted(pieces):
        if y - top > height / 2:
            lines.append([])
            top = y
        lines[-1].append((x, text))
    return [" ".join(text for _, text in sorted(line)) for line in lines]


@cache
def _engine() -> Any:
    """Load the engine: once in a process, for its models take a second. They come with its wheel."""
    with needed():
        from rapidocr import RapidOCR

    return RapidOCR(
        params={
            "Global.log_level": "critical",
            # Pages lie the right way up.
            "Global.use_cls": False,
            "Det.limit_type": "max",
            "Det.limit_side_len": _LONGEST_SIDE,
            # A child process has one core: there are as many of them as cores.
            "EngineConfig.onnxruntime.intra_op_num_threads": 1,
            "EngineConfig.onnxruntime.inter_op_num_threads": 1,
        }
    )
