"""A handler's config against its JSON Schema, before its templates are filled and after.

Before, what depends on a template passes. After, the config must fit as it is.
"""

from __future__ import annotations

import inspect
from functools import cached_property
from typing import TYPE_CHECKING, Any

from weft.core.payload import Json, canonical
from weft.handlers.contract import BadConfig
from weft.handlers.outcome import cut

if TYPE_CHECKING:
    from collections.abc import Callable

    from jsonschema_rs import Draft202012Validator

    from weft.definition.schema import Schema
    from weft.errors import Problem


# The schemas of weft's own handlers take less than 50 ns for a byte, whatever the config is.
_OWN_BYTES = 256 * 1024


class ConfigSchema:
    def __init__(self, schema: Json, *, is_own: bool = False) -> None:
        """Compile a schema; one that is not a JSON Schema, or costs too much, raises ValueError.

        ``is_own``: of a handler that ships with weft, which is quick by its size alone.
        """
        self._is_own = is_own
        # Loaded late: it takes longer than the rest of a child process, and most of them never need it.
        from weft.definition.schema import compile_schema

        made = compile_schema(schema)
        if isinstance(made, list):
            raise ValueError(str(made[0]))
        self._schema: Schema = made

    @cached_property
    def _masked(self) -> Draft202012Validator:
        from weft.definition.schema import compile_validator

        # The filled config holds secrets; a message shows the rule, and not the value.
        return compile_validator(self._schema.document, is_masked=True)

    def is_quick(self, payload: bytes) -> bool:
        """True if a config is checked at once."""
        return len(payload) <= _OWN_BYTES if self._is_own else self._schema.is_quick(payload)

    def problems(self, config: Json) -> list[Problem]:
        """List what is wrong with a config whatever its templates will become."""
        from weft.definition.unfilled import certain_faults
        from weft.validator import wire
        from weft.validator.check import faults_in_process

        payload = canonical(config)
        if self.is_quick(payload):
            if self._schema.validator.is_valid(config):
                return []
            if self._schema.reports_quickly(payload):
                return certain_faults(self._schema.validator, config)
        return faults_in_process(wire.CheckKind.UNFILLED, self._schema, payload)

    def require(self, config: Json) -> None:
        """Raise BadConfig unless a filled config fits."""
        from weft.definition.schema import first_fault
        from weft.validator import wire
        from weft.validator.check import faults_in_process

        payload = canonical(config)
        if self.is_quick(payload):
            # One fault is found as quickly as none.
            faults = first_fault(self._masked, config)
        else:
            faults = faults_in_process(wire.CheckKind.MASKED, self._schema, payload)
        for fault in faults:
            raise BadConfig(f"config{f' at {fault.pointer}' if fault.pointer else ''}: {cut(fault.message)}")


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


def schema_problems(value: Json) -> list[Problem]:
    """List what keeps a value in a config from being a schema; one that holds a template may become one."""
    from weft.definition.schema import compile_schema
    from weft.definition.unfilled import holds_template

    if holds_template(value):
        return []
    made = compile_schema(value)
    return made if isinstance(made, list) else []
