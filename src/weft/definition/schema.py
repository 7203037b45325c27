"""JSON Schema, draft 2020-12: compiled once, asked often, and never fetching what a schema refers to."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import NoReturn

import jsonschema_rs

from weft.core.payload import Json, pointer
from weft.definition.schema_cost import Cost, cost_of
from weft.errors import Problem


@dataclass(frozen=True, slots=True)
class Schema:
    validator: jsonschema_rs.Draft202012Validator
    # None: it has no references, and its work is in proportion to the value.
    cost: Cost | None = None


_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_MAX_PROBLEMS = 1000
_MAX_MESSAGE_CHARACTERS = 300


def compile_schema(schema: Json) -> Schema | list[Problem]:
    """Make a schema ready to use, or list what is wrong with it, with pointers into the schema."""
    if not isinstance(schema, (dict, bool)):
        return [Problem("", "must be a JSON Schema: an object, or true or false")]
    problems = _problems(_META_SCHEMA, schema)
    dialect = schema.get("$schema") if isinstance(schema, dict) else None
    if isinstance(dialect, str) and dialect.removesuffix("#") != _DIALECT:
        problems.append(Problem("/$schema", f"only draft 2020-12 is read: {_DIALECT}"))
    if problems:
        return problems
    cost, problems = cost_of(schema)
    if problems:
        return problems
    try:
        return Schema(jsonschema_rs.Draft202012Validator(schema, retriever=_refuse_to_fetch), cost)
    except jsonschema_rs.ValidationError as error:  # a pattern that does not parse, a reference to nothing
        return [Problem(pointer(error.instance_path), _shortened(error.message))]
    except (ValueError, jsonschema_rs.ReferencingError) as error:
        return [Problem("", _shortened(str(error)))]


def schema_problems(schema: Schema, value: Json) -> list[Problem]:
    """List what a value does not keep of a schema, with pointers into the value."""
    if schema.cost is not None and not schema.cost.is_bounded(value):
        message = "the schema refers to itself so often that this value cannot be checked in reasonable time"
        return [Problem("", message)]
    return _problems(schema.validator, value)


def _problems(validator: jsonschema_rs.Draft202012Validator, value: Json) -> list[Problem]:
    return [
        Problem(pointer(error.instance_path), _shortened(error.message))
        for error in islice(validator.iter_errors(value), _MAX_PROBLEMS)
    ]


def _refuse_to_fetch(uri: str) -> NoReturn:
    raise ValueError("a schema may only refer to itself")


def _shortened(message: str) -> str:
    # The library quotes the whole offending value, which may be megabytes of input.
    if len(message) <= _MAX_MESSAGE_CHARACTERS:
        return message
    half = _MAX_MESSAGE_CHARACTERS // 2
    return f"{message[:half]} … {message[-half:]}"


_META_SCHEMA = jsonschema_rs.Draft202012Validator({"$ref": _DIALECT})
