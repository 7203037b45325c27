"""JSON answers, and the cursors of pages."""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING, TypeVar

import msgspec
from starlette.responses import Response

from weft.api.problem import invalid_request
from weft.errors import Problem

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

    from starlette.requests import HTTPConnection

    from weft.core.rows import DeadLetter, ExecutionRow
    from weft.journal.search import Found

Row = TypeVar("Row")
Place = TypeVar("Place", bound="tuple[str | int, ...]")

_ENCODER = msgspec.json.Encoder()
_MAX_CURSOR = 512
# Items that may be large are read by so many; where the items before were small, by more. A page of them ends
# behind the item with which it has so many bytes.
_READ_AT_ONCE = 4
_SMALL_BYTES = 8 * 1024
_SMALL_AT_ONCE = 64
_PAGE_BYTES = 2 * 1024 * 1024
_INT64 = 2**63


def answer(value: object, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Answer with a value as JSON. It is not checked against any model: the tests do that."""
    return Response(
        _ENCODER.encode(value), status_code=status, headers=headers, media_type="application/json"
    )


def accepts_gzip(request: HTTPConnection) -> bool:
    """True if the client says that it reads gzip; one that says nothing gets plain text."""
    for one in ",".join(request.headers.getlist("accept-encoding")).lower().split(","):
        name, _, weight = one.partition(";")
        if name.strip() == "gzip":
            return weight.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False


def has_tag(request: HTTPConnection, tag: str) -> bool:
    """True if the client has what it asks for already: it sent this tag as ``If-None-Match``."""
    given = ",".join(request.headers.getlist("if-none-match")).split(",")
    return any(one.strip().removeprefix("W/") in (f'"{tag}"', "*") for one in given)


def no_content() -> Response:
    return Response(status_code=204)


def page(items: Sequence[object], *, next_cursor: str | None) -> Response:
    """Answer with a page of a list. ``next_cursor`` is None at the end."""
    return answer({"items": items, "next_cursor": next_cursor})


def page_of(
    found: Sequence[Row],
    limit: int,
    *,
    shown: Callable[[Row], object],
    place: Callable[[Row], Sequence[str | int]],
) -> Response:
    """Answer with the page of a list that was asked for one row more than the page shows.

    ``shown``: what the page shows of a row; ``place``: the values that the next page begins behind.
    """
    items = found[:limit]
    next_cursor = cursor_of(*place(items[-1])) if len(found) > limit else None
    return page([shown(row) for row in items], next_cursor=next_cursor)


async def filled_page(
    read: Callable[[Place, int], Awaitable[Sequence[Row]]],
    shown: Callable[[Row], Awaitable[object]],
    place: Callable[[Row], Place],
    *,
    turn: AbstractAsyncContextManager[None],
    after: Place,
    limit: int,
) -> Response:
    """Answer with a page of a list whose items may be large; such a page ends before its limit.

    ``read`` lists so many items behind a place in the list; ``place`` is that of an item. ``turn``: entered
    for each read: callers of large pages wait for each other, and nobody else does.
    """
    items: list[msgspec.Raw] = []
    size = 0
    while True:
        is_small = items and size < len(items) * _SMALL_BYTES
        wanted = min(_SMALL_AT_ONCE if is_small else _READ_AT_ONCE, limit + 1 - len(items))
        async with turn:
            found = await read(after, wanted)
            for one in found:
                if len(items) == limit or size > _PAGE_BYTES:
                    return page(items, next_cursor=cursor_of(*after))
                item = _ENCODER.encode(await shown(one))
                items.append(msgspec.Raw(item))
                size += len(item)
                after = place(one)
        if len(found) < wanted:
            return page(items, next_cursor=None)


# --- Cursors. A cursor says where a page ended, in values of its last item. Its content is private, and may
# --- change. It is no secret: a caller who makes one up sees only rows that the caller may see anyway.


def cursor_of(*values: str | int) -> str:
    """Write a place in a list as a word that goes into a URL."""
    return base64.urlsafe_b64encode(_ENCODER.encode(values)).decode().rstrip("=")


def cursor_behind(found: Found[ExecutionRow] | Found[DeadLetter], limit: int) -> str | None:
    """Return the cursor of the next page of a search that was asked for one row more than a page shows.

    A search may stop before its page is full, or with no row at all: then the next page goes on from there.
    """
    if len(found.rows) > limit:
        last = found.rows[limit - 1]
        return cursor_of(last.created_at, last.id)
    return None if found.searched_to is None else cursor_of(*found.searched_to)


def read_cursor(text: str | None, *types: type) -> tuple[str | int, ...] | None:
    """Read back what ``cursor_of`` wrote; anything else is 422 ``invalid_request`` at ``/cursor``."""
    if text is None:
        return None
    try:
        if len(text) > _MAX_CURSOR:
            raise ValueError
        values = msgspec.json.decode(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)), type=list)
        # Written again it must be the same: then it is one of ours, in every detail.
        if [type(value) for value in values] != list(types) or cursor_of(*values) != text:
            raise ValueError
        if not all(_is_storable(value) for value in values):
            raise ValueError
    except (ValueError, binascii.Error, msgspec.DecodeError):
        message = "is not a cursor of this list; take next_cursor of the page before as it is"
        raise invalid_request([Problem("/cursor", message)]) from None
    return tuple(values)


def _is_storable(value: str | int) -> bool:
    """True if a database accepts the value as a key: text without NUL, or a 64-bit integer."""
    return "\0" not in value if isinstance(value, str) else -_INT64 <= value < _INT64
