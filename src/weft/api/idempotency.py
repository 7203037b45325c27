"""Executes a request with an ``Idempotency-Key`` once, however often the request is sent.

The transaction that creates the resource also stores the key. So of concurrent requests one creates the
resource and the others find it, and a server that dies between the commit and the response has forgotten
nothing.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from weft.api.auth import caller_of
from weft.api.problem import ProblemError, invalid_request
from weft.core.payload import canonical
from weft.errors import ClaimedError, Problem
from weft.journal.contract import Claim

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from pydantic import BaseModel
    from starlette.requests import Request

    from weft.ports import ApiPorts

T = TypeVar("T")

HEADER = "Idempotency-Key"
_MAX_CHARACTERS = 255

# How a route says in the OpenAPI document that it honours the header.
KEY_PARAMETER: dict[str, Any] = {
    "name": HEADER,
    "in": "header",
    "required": False,
    "schema": {"type": "string", "minLength": 1, "maxLength": _MAX_CHARACTERS},
    "description": "sent again with the same body, the request gives the same resource (200)",
}


@dataclass(frozen=True, slots=True)
class Key:
    """An idempotency key, and what distinguishes the request that it came with from others."""

    text: str
    request_digest: str
    namespace: str

    def claim(self, resource: str) -> Claim:
        return Claim(
            key=self.text,
            request_digest=self.request_digest,
            resource=resource,
            namespace=self.namespace,
        )


def read_key(request: Request, body: BaseModel) -> Key | None:
    """Read the key of a request, if it has one; ``body`` is what its body says, however it was written."""
    given = request.headers.getlist(HEADER)
    if not given:
        return None
    text = _decoded(given[0])
    if len(given) > 1 or not 1 <= len(text) <= _MAX_CHARACTERS or not text.isprintable():
        message = f"must be one key of 1 to {_MAX_CHARACTERS} printable characters"
        raise invalid_request([Problem(f"/{HEADER}", message)])
    digest = hashlib.sha256(canonical([request.url.path, dict(body)])).hexdigest()
    return Key(text, digest, caller_of(request).namespace)


async def once(
    key: Key | None, resource: str, ports: ApiPorts, start: Callable[[Claim | None], Awaitable[T]]
) -> T | str:
    """Start something that will be known as ``resource``, and give what ``start`` gave.

    Where the key stands for something already, nothing is started: that resource is given instead.
    """
    if key is None:
        return await start(None)
    # Asked first: what the request names, such as a workflow, may be gone by the time it is sent again.
    known = await ports.catalog.claim(key.text, namespace=key.namespace)
    if known is not None:
        return _same(key, known.request_digest, known.resource)
    try:
        return await start(key.claim(resource))
    except ClaimedError as error:
        return _same(key, error.request_digest, error.resource)


def _same(key: Key, request_digest: str, resource: str) -> str:
    if request_digest != key.request_digest:
        detail = f"the idempotency key {key.text!r} stands for another request; choose a new key for this one"
        raise ProblemError(409, "idempotency_conflict", detail)
    return resource


def _decoded(value: str) -> str:
    # Headers are read as Latin-1; most clients that send anything beyond ASCII mean UTF-8.
    try:
        return value.encode("latin-1").decode()
    except UnicodeDecodeError:
        return value
