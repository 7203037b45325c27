"""A handler's config against its JSON Schema before its templates are filled.

A string that holds a template may become anything: it passes wherever it stands, and so does what could only
be judged by its value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.core.payload import Json, pointer
from weft.definition.schema import shortened
from weft.errors import Problem

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jsonschema_rs import Draft202012Validator, ValidationError

# Of these, the values inside an object or array are no part: it is judged by its keys or its length.
_SHAPE = frozenset(
    {
        "additionalProperties",
        "dependentRequired",
        "maxItems",
        "maxProperties",
        "minItems",
        "minProperties",
        "propertyNames",
        "required",
        "type",
    }
)

# The schema ``false``: nothing may stand there, whatever its value.
_FORBIDDEN = "falseSchema"


def certain_faults(validator: Draft202012Validator, config: Json) -> list[Problem]:
    """List what is wrong with a config whatever its templates will become."""
    return [
        Problem(pointer(error.instance_path), _message(error))
        for error in validator.iter_errors(config)
        if _is_certain(error, config)
    ]


def _is_certain(error: ValidationError, config: Json) -> bool:
    """True if a validation error remains whatever values the templates get."""
    path = list(error.instance_path)
    if not holds_template(_at(config, path)):
        return True
    keyword = error.kind.name
    if keyword == _FORBIDDEN:
        return True
    if keyword in _SHAPE:
        return not isinstance(_at(config, path), str)
    if keyword in ("anyOf", "oneOf"):
        # None of the branches fits; certain only where each of them fails for a certain reason. (The
        # other error of oneOf, two branches that fit, has at least two branches without errors.)
        branches: Sequence[Sequence[ValidationError]] = error.kind.value
        return all(any(_is_certain(cause, config) for cause in branch) for branch in branches)
    return False


def holds_template(value: Json) -> bool:
    open_values = [value]
    while open_values:
        item = open_values.pop()
        if isinstance(item, str):
            if "{{" in item:
                return True
        elif isinstance(item, dict):
            open_values.extend(item.values())
        elif isinstance(item, list):
            open_values.extend(item)
    return False


def _at(value: Json, path: Sequence[str | int]) -> Json:
    for step in path:
        value = value[step]
    return value


def _message(error: ValidationError) -> str:
    return "it cannot stand here" if error.kind.name == _FORBIDDEN else shortened(error.message)
