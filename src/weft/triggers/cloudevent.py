"""Reads CloudEvents 1.0: an event in the JSON format, as one object."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from weft.core.time import parse_rfc3339
from weft.definition.fields import kind, shown
from weft.errors import Problem

if TYPE_CHECKING:
    from typing import Any

    from weft.core.payload import Json

MAX_CHARACTERS = 1_024
_NAME = re.compile(r"[a-z0-9]{1,64}")
# What the specification says of all attributes but the data.
_TEXTS = ("id", "source", "type", "subject", "datacontenttype", "dataschema", "time")


class InboundEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event from outside. ``source`` and ``id`` together name it."""

    namespace: str
    id: str
    source: str
    type: str
    # All of it, as templates see it.
    body: dict[str, Any]
    # What a node that waits for it completes with; of a large one, the name of a blob.
    output: bytes | None = None
    blob: str | None = None
    output_bytes: int = 0


def read_event(value: Json, *, namespace: str) -> InboundEvent | list[Problem]:
    """Read an event, or list what is wrong with it."""
    if not isinstance(value, dict):
        return [Problem("", f"must be an object, a CloudEvent, not {kind(value)}")]
    problems = [
        Problem("", f"{name} is missing") for name in ("id", "source", "type") if value.get(name) is None
    ]
    for name, item in value.items():
        if message := _fault(name, item):
            problems.append(Problem(f"/{name.replace('~', '~0').replace('/', '~1')}", message))
    if problems:
        return problems
    return InboundEvent(
        namespace=namespace, id=value["id"], source=value["source"], type=value["type"], body=value
    )


def _fault(name: str, item: Json) -> str | None:
    if name in ("data", "data_base64"):
        if name == "data_base64" and not isinstance(item, str):
            return f"must be a string, not {kind(item)}"
        return None
    if not _NAME.fullmatch(name):
        return f"{shown(name)} is no name of an attribute: use a to z and 0 to 9"
    if item is None:
        return None
    if name == "specversion":
        return None if item == "1.0" else f"must be '1.0', not {kind(item)}"
    if name not in _TEXTS:
        # Extensions are strings, numbers or booleans.
        return None if isinstance(item, str | bool | int | float) else f"must be a string, not {kind(item)}"
    if not isinstance(item, str):
        return f"must be a string, not {kind(item)}"
    if not 1 <= len(item) <= MAX_CHARACTERS:
        return f"must have 1 to {MAX_CHARACTERS:,} characters, not {len(item):,}"
    if not item.isprintable():
        return "must be printable text"
    if name == "time":
        try:
            parse_rfc3339(item)
        except ValueError as error:
            return str(error)
    return None
