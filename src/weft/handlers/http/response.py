"""Reads a response piece by piece within a bound, and makes a JSON value of it."""

from __future__ import annotations

import asyncio
import codecs
import zlib
from base64 import b64encode
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import aiohttp

from weft.core.payload import decoder_for
from weft.definition.chunked_json import PIECE_CHARACTERS
from weft.definition.document import read_foreign_json
from weft.errors import DocumentTooLargeError
from weft.handlers.http.failure import BadResponse, NetworkError, ResponseTooLarge

if TYPE_CHECKING:
    from yarl import URL

    from weft.core.payload import Json
    from weft.handlers.http.outbound import Outbound

# Of the body of a response that is no success, for the error.
_EXCERPT_CHARACTERS = 2000
_EXCERPT_BYTES = 16 * 1024
# A service that fails may well be slow, too; its status is known by then and must not be lost.
_EXCERPT_SECONDS = 5.0

# Decompressed on the loop: a fraction of a millisecond, so that small responses do not pay for a thread.
_AT_ONCE_BYTES = 64 * 1024
# Decompressed in a thread before the loop looks at it again: a few milliseconds, after which a cancelled or
# timed-out attempt ends.
_SLICE_BYTES = 1024 * 1024
# Given to zlib at once: it copies what it does not use, for each part anew.
_FED_BYTES = 16 * 1024
# Each part costs a decoder of its own, also an empty one of 20 bytes. bgzip has a part for 64 KiB.
_MAX_MEMBERS = 10_000
_MEMBER_COST_BYTES = 4096

_GZIP = 31
_ZLIB = 15
_RAW_DEFLATE = -15

# A multiple of three, so that the parts fit together.
_BASE64_BYTES = 3 * 256 * 1024
# Deeper values are no payloads of weft (MAX_DEPTH is far below); they stay text.
_MAX_DEPTH = 200

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

    @property
    def is_large(self) -> bool:
        """True if making a value of the body could hold up the loop: do that in a thread."""
        return len(self.body) > PIECE_CHARACTERS

    def value(self) -> tuple[Json, bool]:
        """Return the body as JSON, else as text, else as base64, and whether the value is base64."""
        if not self.body:
            return None, False
        media_type, charset = read_content_type(self.headers.get("content-type", ""))
        if is_json_type(media_type):
            with suppress(ValueError, RecursionError):
                return self.json(), False
        text = _as_text(self.body, charset)
        return (_as_base64(self.body), True) if text is None else (text, False)

    def json(self) -> Json:
        """Return the JSON value of the body; raises ValueError or RecursionError where it has none.

        A large body is read in pieces, between which other threads have their turn: a few kilobytes can
        become ten megabytes of brackets, which take seconds. More values than an
        output may have are ResponseTooLarge.
        """
        if not self.is_large:
            return decoder_for(self.body).decode(self.body)
        try:
            return read_foreign_json(self.body, max_depth=_MAX_DEPTH)
        except DocumentTooLargeError as error:
            raise ResponseTooLarge(f"the response has {error}") from None


async def read_body(response: aiohttp.ClientResponse, outbound: Outbound) -> bytes:
    """Read a body to its end. Over MAX_RESPONSE_BYTES, as it came or decompressed, it is too large."""
    max_bytes = outbound.settings.max_response_bytes
    body = _Body(response.headers.get("Content-Encoding", ""), max_bytes)
    async for piece in response.content.iter_any():
        await _take(piece, body, outbound)
        if body.is_over:
            # Not read to its end, so the connection is of no more use.
            response.close()
            raise ResponseTooLarge(f"the response is over {max_bytes:,} bytes (WEFT_MAX_RESPONSE_BYTES)")
    return body.whole()


async def read_excerpt(response: aiohttp.ClientResponse, outbound: Outbound) -> str | None:
    """Return the beginning of a body as text, as far as the body arrives soon; None if nothing arrives."""
    body = _Body(response.headers.get("Content-Encoding", ""), _EXCERPT_BYTES)
    try:
        async with asyncio.timeout(_EXCERPT_SECONDS):
            async for piece in response.content.iter_any():
                await _take(piece, body, outbound)
                if body.is_over:
                    response.close()
                    break
    except (TimeoutError, aiohttp.ClientError, OSError, BadResponse):
        response.close()
    _, charset = read_content_type(response.headers.get("Content-Type", ""))
    text = body.so_far().decode(_codec(charset) or "utf-8", "replace")
    if not text:
        return None
    return text if len(text) <= _EXCERPT_CHARACTERS else text[:_EXCERPT_CHARACTERS] + "…"


async def _take(piece: bytes, body: _Body, outbound: Outbound) -> None:
    """Add a piece to a body. What it becomes beyond a little is made in a thread, slice by slice.

    So the loop serves others meanwhile, and the timeout of the attempt ends it.
    """
    body.take(piece)
    more = body.advance(_AT_ONCE_BYTES)
    while more:
        more = await outbound.off_loop(body.advance, _SLICE_BYTES)


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
    """The pieces of a body so far, decompressed where we asked for it, within a bound.

    ``take`` a piece, then ``advance`` until nothing is left of it. An ``advance`` has a bounded cost, however
    little came and however much that becomes. Several layers of compression, which nobody asked for, are not
    taken off.
    """

    def __init__(self, encoding: str, max_bytes: int) -> None:
        self.is_over = False
        self._left = self._raw_left = max_bytes
        self._pieces: list[bytes] = []
        self._encoding = encoding.strip().lower()
        self._compressed = self._encoding in ("gzip", "x-gzip", "deflate")
        self._decoder: zlib._Decompress | None = None
        self._members = 0
        # Compressed bytes that came and were not decompressed yet.
        self._waiting = memoryview(b"")

    def take(self, piece: bytes) -> None:
        """Add a piece as it came."""
        if len(piece) > self._raw_left:
            # What is beyond the bound is not decompressed: it cannot be part of the body any more.
            self.is_over = True
            piece = piece[: self._raw_left]
        self._raw_left -= len(piece)
        if self._compressed:
            self._waiting = memoryview(piece)
        else:
            self._pieces.append(piece)

    def advance(self, max_bytes: int) -> bool:
        """Decompress some of the piece, up to so many bytes of output; False where nothing is left to do."""
        try:
            while self._waiting and self._left >= 0 and max_bytes > 0:
                max_bytes -= self._decompress(max_bytes)
        except zlib.error as error:
            raise BadResponse(f"the response cannot be decompressed: {error}") from None
        self.is_over = self.is_over or self._left < 0
        return bool(self._waiting) and not self.is_over

    def whole(self) -> bytes:
        if self._decoder is not None and not self._decoder.eof:
            raise NetworkError("the compressed response ends too early")
        return self.so_far()

    def so_far(self) -> bytes:
        return self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)

    def _decompress(self, max_bytes: int) -> int:
        """Decompress a little; return what it cost, in bytes of output."""
        cost = 0
        if self._decoder is None or self._decoder.eof:
            # A gzip file may be several, one behind the other.
            self._members += 1
            if self._members > _MAX_MEMBERS:
                raise BadResponse(f"the response has more than {_MAX_MEMBERS:,} compressed parts")
            self._decoder = zlib.decompressobj(self._window_bits(self._waiting[0]))
            cost = _MEMBER_COST_BYTES
        fed = self._waiting[:_FED_BYTES]
        # One byte more than there may be tells that there is too much, and costs no memory.
        made = self._decoder.decompress(fed, min(self._left + 1, max_bytes))
        unread = len(self._decoder.unused_data if self._decoder.eof else self._decoder.unconsumed_tail)
        self._waiting = self._waiting[len(fed) - unread :]
        if made:
            self._pieces.append(made)
            self._left -= len(made)
        return cost + max(len(made), len(fed) - unread)

    def _window_bits(self, first: int) -> int:
        if self._encoding != "deflate":
            return _GZIP
        # "deflate" means zlib's format, but some servers send it without zlib's first two bytes.
        return _ZLIB if first & 0x0F == zlib.DEFLATED else _RAW_DEFLATE


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


def _as_base64(body: bytes) -> str:
    """Return base64, made in parts: in one go, the largest body would hold up the other threads."""
    parts = range(0, len(body), _BASE64_BYTES)
    return b"".join(b64encode(body[at : at + _BASE64_BYTES]) for at in parts).decode()


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
