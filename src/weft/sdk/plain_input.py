"""An execution's input as JSON: it may have every type that a function may return."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft.core.payload import MAX_VALUES, is_json
from weft.definition.bounds import DEFAULT_BOUNDS
from weft.errors import PayloadError
from weft.handlers.types.encoding import to_json

if TYPE_CHECKING:
    from weft.core.payload import Json

_LIMITS = {"max_values": MAX_VALUES, "max_depth": DEFAULT_BOUNDS.max_depth}


def plain_input(value: Any) -> Json:
    """Return a value as JSON; a value that cannot be written is left for the check that names it."""
    if is_json(value, **_LIMITS):
        return value
    try:
        return to_json(value, **_LIMITS)
    except PayloadError:
        return value
