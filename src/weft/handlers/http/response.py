"""A response on its way in: read piece by piece within a bound, and made into a JSON value."""

from __future__ import annotations

import asyncio
import codecs
import zlib
from base64 import b64encode
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import aiohttp
import msgspec

from weft.handlers.http.failure import BadResponse, NetworkError, ResponseTooLarge

if TYPE_CHECKING:
    from yarl import URL

    from weft.core.payload import Json

# Of the body of a response that is no success, for the error.
_EXCERPT_CHARACTERS = 2000
_EXCERPT_BYTES = 16 * 1024
# A service that fails may well be slow, too; its status is known by then and must not be lost.
_EXCERPT_SECONDS = 5.0

_GZIP = 31
_ZLIB = 15
_RAW_DEFLATE = -15

# Codecs of Python's that are no charsets; some take a time that grows with the square of the text.
_NO_CHARSETS = frozenset({"idna", "punycode", "raw-unicode-escape", "undefined", "unicode-escape", "utf-7"})


@dataclass(frozen=True, slots=True)
class Received:
    """A whole response."""

    status: int
    headers: dict[str, str]
    body: bytes
    # The one that answered, after redirects.
    url: URL

    def value(self) -> tuple[Json, bool]:
        """Return the body as JSON, else as text, else as base64, and whether the value is base64."""
        if not self.body:
            return None, False
        media_type, charset = read_content_type(self.headers.get("content-type", ""))
        if is_json_type(media_type):
            with suppress(ValueError, RecursionError):
                return msgspec.json.decode(self.body), False
        text = _as_text(self.body, charset)
        return (b64encode(self.body).decode(), True) if text is None else (text, False)


async def read_body(response: aiohttp.ClientResponse, *, max_bytes: int) -> bytes:
    """Read a body to its end. Over ``max_bytes``, before or after it is decompressed, it is too large."""
    body = _Body(response.headers.get("Content-Encoding", ""), max_bytes)
    async for piece in response.content.iter_any():
        if not body.take(piece):
            # Not read to its end, so the connection is of no more use.
            response.close()
            raise ResponseTooLarge(f"the response is over {max_bytes:,} bytes (MAX_RESPONSE_BYTES)")
    return body.whole()


async def read_excerpt(response: aiohttp.ClientResponse) -> str | None:
    """Return the beginning of a body as text, as far as the body arrives soon; None if nothing arrives."""
    body = _Body(response.headers.get("Content-Encoding", ""), _EXCERPT_BYTES)
    try:
        async with asyncio.timeout(_EXCERPT_SECONDS):
            async for piece in response.content.iter_any():
                if not body.take(piece):
                    response.close()
                    break
    except (TimeoutError, aiohttp.ClientError, OSError, BadResponse):
        response.close()
    _, charset = read_content_type(response.headers.get("Content-Type", ""))
    text = body.so_far().decode(_codec(charset) or "utf-8", "replace")
    if not text:
        return None
    return text if len(text) <= _EXCERPT_CHARACTERS else text[:_EXCERPT_CHARACTERS] + "…"


def headers_of(response: aiohttp.ClientResponse) -> dict[str, str]:
    """Return the response headers by lower-case name; a repeated header is joined by commas."""
    headers: dict[str, str] = {}
    for name, value in response.headers.items():
        key = name.lower()
        # Bytes that are not UTF-8 come as halves of surrogate pairs, which no store takes.
        text = value if value.isascii() else value.encode("utf-8", "replace").decode()
        headers[key] = f"{headers[key]}, {text}" if key in headers else text
    return headers


def read_content_type(text: str) -> tuple[str, str | None]:
    """Return the media type of a Content-Type in lower case, and its charset or None."""
    media_type, _, parameters = text.partition(";")
    for parameter in parameters.split(";"):
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "charset":
            return media_type.strip().lower(), value.strip().strip("\"'") or None
    return media_type.strip().lower(), None


def is_json_type(media_type: str) -> bool:
    return media_type == "application/json" or media_type.endswith("+json")


class _Body:
    """The pieces of a body so far, decompressed where we asked for it, within a bound."""

    def __init__(self, encoding: str, max_bytes: int) -> None:
        self._left = self._raw_left = max_bytes
        self._pieces: list[bytes] = []
        self._encoding = encoding.strip().lower()
        self._compressed = self._encoding in ("gzip", "x-gzip", "deflate")
        self._decoder: zlib._Decompress | None = None

    def take(self, piece: bytes) -> bool:
        """Add a piece as it came; False where it is too much."""
        self._raw_left -= len(piece)
        if not self._compressed:
            self._left -= len(piece)
            if self._left >= 0:
                self._pieces.append(piece)
            else:
                self._pieces.append(piece[: self._left])
            return self._left >= 0
        try:
            return self._decompress(piece) and self._raw_left >= 0
        except zlib.error as error:
            raise BadResponse(f"the response cannot be decompressed: {error}") from None

    def whole(self) -> bytes:
        if self._decoder is not None and not self._decoder.eof:
            raise NetworkError("the compressed response ends too early")
        return self.so_far()

    def so_far(self) -> bytes:
        return self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)

    def _decompress(self, piece: bytes) -> bool:
        while piece:
            if self._decoder is None or self._decoder.eof:
                # A gzip file may be several, one behind the other.
                self._decoder = zlib.decompressobj(self._window_bits(piece))
            # One byte more than there may be tells that there is too much, and costs no memory.
            self._pieces.append(self._decoder.decompress(piece, self._left + 1))
            self._left -= len(self._pieces[-1])
            if self._left < 0:
                return False
            piece = self._decoder.unused_data
        return True

    def _window_bits(self, piece: bytes) -> int:
        if self._encoding != "deflate":
            return _GZIP
        # "deflate" means zlib's format, but some servers send it without zlib's first two bytes.
        return _ZLIB if piece[0] & 0x0F == zlib.DEFLATED else _RAW_DEFLATE


def _as_text(body: bytes, charset: str | None) -> str | None:
    """Return a body as text, or None if the body is not text."""
    codec = _codec(charset) if charset is not None else "utf-8"
    if codec is None:
        return None
    try:
        text = body.decode(codec)
    except UnicodeError:
        return None
    # NUL is in no text; halves of surrogate pairs are in none either, but a few codecs give them.
    return None if "\0" in text or not _is_unicode(text) else text


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _codec(charset: str | None) -> str | None:
    """Return the codec of a charset, or None if no codec is safe for untrusted bytes."""
    if charset is None:
        return None
    try:
        name = codecs.lookup(charset).name
        # Not every codec is one of text; four bytes are a character or two in any that is.
        bytes(4).decode(name, "replace")
    except (LookupError, ValueError):
        return None
    return None if name.replace("_", "-") in _NO_CHARSETS else name
