"""Reads the body of a request: bounded before it is in memory, and parsed as strictly as a definition."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from pydantic import BaseModel, ValidationError

from weft.api.cpu_budget import CpuBudget
from weft.api.load import load_of
from weft.api.problem import ProblemError, fault_of, invalid_request
from weft.api.service import service_of
from weft.core.payload import MAX_DOCUMENT_VALUES, VALUE_BYTES, count_values
from weft.definition.document import read_json, read_yaml
from weft.definition.validation import CompileBudgetError
from weft.errors import Problem

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request

    from weft.core.payload import Json

M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Media:
    """The media types that a route accepts, each with its reader."""

    readers: dict[str, Callable[..., Json]]


JSON = Media({"application/json": read_json})
JSON_OR_YAML = Media({"application/json": read_json, "application/yaml": read_yaml, "text/yaml": read_yaml})

# Up to this size a document is read at once; a larger one in a thread, so that the event loop goes on.
# JSON takes about 20 µs a kilobyte at worst, YAML fifty times that.
_AT_ONCE = {read_json: 64 * 1024, read_yaml: 2 * 1024}

# A body that takes longer to arrive takes a share that others could have: so many seconds, one more for each
# so many bytes that have come, and no more than so many in all.
FIRST_SECONDS = 20.0
BYTES_PER_SECOND = 64 * 1024
MAX_SECONDS = 120.0


async def read_value(request: Request, *, media: Media = JSON_OR_YAML, max_bytes: int | None = None) -> Json:
    """Read the body as one JSON or YAML value, or raise the problem that it is."""
    reader = _reader(request, media)
    return await parse(request, await read_bytes(request, max_bytes=max_bytes), reader)


async def read_model(
    request: Request,
    model: type[M],
    *,
    empty: bool = False,
    media: Media = JSON_OR_YAML,
    max_bytes: int | None = None,
) -> M:
    """Read the body as a model.

    ``empty``: no body at all reads as an object without fields. ``max_bytes``: less than WEFT_MAX_BODY_BYTES.
    """
    reader = _reader(request, media)
    body = await read_bytes(request, max_bytes=max_bytes)
    value = {} if empty and not body else await parse(request, body, reader)
    try:
        return model.model_validate(value)
    except ValidationError as error:
        fields = [field.alias or name for name, field in model.model_fields.items()]
        raise invalid_request([fault_of(dict(fault), fields) for fault in error.errors()]) from None


def _reader(request: Request, media: Media) -> Callable[..., Json]:
    """Choose how to read the body by the declared type alone, never by a look at it."""
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise _unsupported("a compressed body is not read; send it as it is", media)
    given = request.headers.getlist("content-type")
    if len(given) > 1:
        raise _unsupported("more than one Content-Type", media)
    if not given or not given[0].strip():
        return read_json
    name, *parameters = (part.strip().lower() for part in given[0].split(";"))
    reader = media.readers.get(name)
    if reader is None and _is_empty(request):
        # Some clients name a type even where they send nothing.
        return read_json
    if reader is None:
        raise _unsupported(f"{name[:100]!r} is not read here", media)
    for parameter in filter(None, parameters):
        key, _, value = parameter.partition("=")
        if key.strip() == "charset" and value.strip().strip('"') not in ("utf-8", "utf8"):
            raise _unsupported(f"the charset must be utf-8, not {value[:100]!r}", media)
    return reader


def _is_empty(request: Request) -> bool:
    length = request.headers.get("content-length")
    return length == "0" if length is not None else "transfer-encoding" not in request.headers


def _unsupported(message: str, media: Media) -> ProblemError:
    accepted = ", ".join(media.readers)
    return ProblemError(415, "unsupported_media_type", f"{message}; accepted: {accepted}")


async def read_bytes(request: Request, *, max_bytes: int | None = None) -> bytes:
    """Read the body as it came, up to WEFT_MAX_BODY_BYTES or less."""
    limit = service_of(request).settings.max_body_bytes
    if max_bytes is not None:
        limit = min(limit, max_bytes)
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared[:20]) > limit:
        raise _too_large(limit)
    load = load_of(request)
    # A body with a declared length has its room from the beginning, or is refused before it is sent in vain.
    room = int(declared) if declared.isdecimal() else 0
    load.hold(room)
    body = bytearray()
    began = asyncio.get_running_loop().time()
    try:
        async with asyncio.timeout_at(began + FIRST_SECONDS) as time_limit:
            async for chunk in request.stream():
                # A body without a declared length is refused at the piece that passes the limit.
                if len(body) + len(chunk) > limit:
                    raise _too_large(limit)
                body += chunk
                if len(body) > room:
                    load.hold(len(body) - room)
                    room = len(body)
                seconds = min(MAX_SECONDS, FIRST_SECONDS + len(body) / BYTES_PER_SECOND)
                time_limit.reschedule(began + seconds)
    except TimeoutError:
        detail = f"the body did not arrive in time: {len(body):,} bytes of it came"
        raise ProblemError(400, "bad_syntax", detail, headers={"Connection": "close"}) from None
    return bytes(body)


def _too_large(limit: int) -> ProblemError:
    # The connection stays open, and the server drops what still comes on it: a connection that is closed
    # under a caller who is sending is reset, and the answer is lost with it.
    return ProblemError(413, "too_large", f"the body is longer than {limit:,} bytes")


async def parse(request: Request, body: bytes, reader: Callable[..., Json]) -> Json:
    """Return what a body says; a large one is read beside the loop, and takes up room for its values."""
    service = service_of(request)
    max_bytes, max_depth = service.settings.max_body_bytes, service.settings.max_depth
    if len(body) <= _AT_ONCE[reader]:
        return reader(body, max_bytes=max_bytes, max_depth=max_depth)
    # A decoded body takes many times the memory of its text. In YAML, a value has at least two characters.
    count = len(body) // 2
    if reader is read_json:
        count = await service.run_in_thread(count_values, body, most=MAX_DOCUMENT_VALUES)
    load_of(request).hold_values(VALUE_BYTES * min(count, MAX_DOCUMENT_VALUES))
    if reader is read_yaml:
        # YAML takes hundreds of times as long as JSON.
        reader = partial(read_yaml, pace=CpuBudget(service.settings.max_compile_cpu_seconds))
    try:
        return await service.run_in_thread(reader, body, max_bytes=max_bytes, max_depth=max_depth)
    except CompileBudgetError as error:
        raise invalid_request([Problem("", f"{error}; or send JSON")]) from None
