"""A handler's config against its JSON Schema, before its templates are filled and after.

Before, a string that holds a template may become anything: it passes wherever it stands, and so does what
could only be judged by its value. After, the config must fit as it is.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from weft.core.payload import Json, pointer
from weft.errors import Problem
from weft.handlers.contract import BadConfig
from weft.handlers.outcome import bounded_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

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


def schema_of_class(cls: type) -> Json:
    """Return the JSON Schema of a class: a pydantic model, a dataclass, a struct, a typed dict."""
    from weft.handlers.types.schema import schema_of
    from weft.handlers.types.shape import Unsupported, shape_of

    shape = shape_of(cls)
    if isinstance(shape, Unsupported):
        raise TypeError(
            f"config_schema is a JSON Schema, a pydantic model, a dataclass or a struct, not {cls.__name__}"
        )
    return schema_of(shape)


def config_decoder(function: Callable[..., Any]) -> Callable[[Json], Any] | None:
    """Return what makes a config the type of a handler's first parameter, or None if it takes JSON."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return None
    if not parameters or parameters[0].annotation is inspect.Parameter.empty:
        return None
    from weft.handlers.types.annotations import hints_of
    from weft.handlers.types.decoding import MisfitError, decoder_of
    from weft.handlers.types.encoding import path_text

    decode = decoder_of(hints_of(function).get(parameters[0].name, Any))
    if decode is None:
        return None

    def decoded(config: Json) -> Any:
        try:
            return decode(config)
        except MisfitError as misfit:
            raise BadConfig(f"config: {path_text(misfit.path)[:300]} is {misfit.reason}") from None

    return decoded


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
