"""A handler's config against its JSON Schema, before its templates are filled and after.

Before, a string that holds a template may become anything: it passes wherever it stands, and so does what
could only be judged by its value. After, the config must fit as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.core.payload import Json, pointer
from weft.errors import Problem
from weft.handlers.contract import BadConfig
from weft.handlers.outcome import bounded_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jsonschema_rs import Draft202012Validator, ValidationError

_MAX_MESSAGE_CHARACTERS = 300

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


class ConfigSchema:
    def __init__(self, schema: Json) -> None:
        """Compile a schema; one that is not a JSON Schema raises ValueError."""
        # Loaded late: it takes longer than the rest of a child process, and most of them never need it.
        from jsonschema_rs import Draft202012Validator

        # Offline: a schema is no reason to call a stranger's server.
        self._unfilled: Draft202012Validator = Draft202012Validator(schema, offline=True)
        # The filled config holds secrets; a message shows the rule, and not the value.
        self._filled: Draft202012Validator = Draft202012Validator(schema, offline=True, mask="the value")

    def problems(self, config: Json) -> list[Problem]:
        """List what is wrong with a config whatever its templates will become."""
        return [
            Problem(pointer(error.instance_path), _message(error))
            for error in self._unfilled.iter_errors(config)
            if _is_certain(error, config)
        ]

    def require(self, config: Json) -> None:
        """Raise BadConfig unless a filled config fits."""
        for error in self._filled.iter_errors(config):
            where = pointer(error.instance_path)
            raise BadConfig(f"config{f' at {where}' if where else ''}: {_message(error)}")


def _is_certain(error: ValidationError, config: Json) -> bool:
    """True if a validation error remains whatever values the templates get."""
    path = list(error.instance_path)
    if not _holds_template(_at(config, path)):
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


def _holds_template(value: Json) -> bool:
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
    text = "it cannot stand here" if error.kind.name == _FORBIDDEN else bounded_text(error.message)
    return text if len(text) <= _MAX_MESSAGE_CHARACTERS else text[:_MAX_MESSAGE_CHARACTERS] + "…"
