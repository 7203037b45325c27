"""JSON Schema, draft 2020-12: its cost counted first, compiled once, asked often, fetching nothing.

The library holds Python's lock while it works. So a check runs here only if its counted cost is small; other
checks run in a process that can be killed (``weft.validator``).
"""

from __future__ import annotations

from functools import cached_property, lru_cache
from itertools import islice
from typing import NoReturn

import jsonschema_rs

from weft.core.payload import Json, canonical, decode, is_json, pointer
from weft.definition.bounds import DEFAULT_BOUNDS
from weft.definition.schema_cost import Cost, cost_of, patterns_of
from weft.errors import Problem

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_MAX_PROBLEMS = 1000
_MAX_MESSAGE_CHARACTERS = 300

# The same definition is submitted again and again; only short schemas are kept, and they bound the cache.
_CACHED_SCHEMAS = 256
_LONGEST_CACHED = 16 * 1024

# What may be done at once, by the counted cost. Others wait meanwhile, and 50 ms is the most they may.
_QUICK_SECONDS = 0.02
# A schema with more steps from reference to reference is compiled where it may exhaust the stack.
_QUICK_REACH = 150
# The meta-schema takes 12 ms for so much.
_MAX_BYTES = 1024 * 1024
# Of a larger schema only the first fault is told: the library takes 0.1 ms for each, and lists all or one.
_ALL_FAULTS_BYTES = 8 * 1024
# Patterns that look around or back are matched by backtracking; more steps than these are no match.
_BACKTRACKS = 100_000


class Schema:
    """A schema that is counted, and compiled when it is first asked."""

    def __init__(self, document: Json) -> None:
        """Keep a schema without a look at it: one that is stored was checked when it came."""
        self.document = document

    @cached_property
    def text(self) -> bytes:
        return canonical(self.document)

    @cached_property
    def _counted(self) -> Cost | list[Problem]:
        return _problems_of(self.document, self.text) or cost_of(self.document)

    @property
    def problems(self) -> list[Problem]:
        """Return the problems of the schema itself, with pointers into it."""
        return self._counted if isinstance(self._counted, list) else []

    @property
    def cost(self) -> Cost:
        """Its cost; only of a schema without problems."""
        assert isinstance(self._counted, Cost)
        return self._counted

    @property
    def is_counted(self) -> bool:
        """True if its cost is known; counting takes a while for a large schema."""
        return "_counted" in self.__dict__

    @property
    def is_compiled_at_once(self) -> bool:
        return self.cost.compile_ns / 1e9 <= _QUICK_SECONDS and self.cost.reach <= _QUICK_REACH

    @cached_property
    def validator(self) -> jsonschema_rs.Draft202012Validator:
        return compile_validator(self.document)

    def is_quick(self, payload: bytes) -> bool:
        """True if it is checked at once whether a payload fits."""
        return self.is_compiled_at_once and self.cost.check_seconds(payload) <= _QUICK_SECONDS

    def reports_quickly(self, payload: bytes) -> bool:
        """True if all faults of a payload are listed at once."""
        return self.cost.report_seconds(payload) <= _QUICK_SECONDS


def compile_schema(document: Json) -> Schema | list[Problem]:
    """Make a schema ready to use, or list what is wrong with it, with pointers into the schema."""
    if not is_json(document, max_values=_MAX_BYTES, max_depth=DEFAULT_BOUNDS.max_depth):
        # Of a handler of one's own; what comes in a definition is JSON, and no deeper.
        return [Problem("", "a JSON Schema must be JSON, of a size that weft reads")]
    text = canonical(document)
    if len(text) > _LONGEST_CACHED:
        return _compile(document)
    made = _compile_cached(text)
    return made if isinstance(made, Schema) else [*made]


@lru_cache(maxsize=_CACHED_SCHEMAS)
def _compile_cached(text: bytes) -> Schema | list[Problem]:
    # Of its own copy: a caller may change the document later.
    return _compile(decode(text))


def _compile(document: Json) -> Schema | list[Problem]:
    schema = Schema(document)
    if schema.problems:
        return schema.problems
    try:
        if schema.is_compiled_at_once:
            assert schema.validator is not None
        else:
            # One by one, so that others have a turn; the whole is compiled where it can be killed.
            for pattern, path in patterns_of(document).items():
                try:
                    compile_validator({"pattern": pattern})
                except jsonschema_rs.ValidationError as error:
                    return [Problem(pointer(path), shortened(error.message))]
    except jsonschema_rs.ValidationError as error:  # a pattern that does not parse, a reference to nothing
        return [Problem(pointer(error.instance_path), shortened(error.message))]
    except (ValueError, jsonschema_rs.ReferencingError) as error:
        return [Problem("", shortened(str(error)))]
    return schema


def quick_problems(schema: Schema, value: Json, payload: bytes) -> list[Problem] | None:
    """List what a value does not keep of a schema, with pointers into it; None if that could take long.

    ``payload``: the value as JSON, whose size says how long it could take.
    """
    if schema.problems:
        return [Problem("", f"its schema cannot be used: {schema.problems[0]}")]
    if not schema.is_quick(payload):
        return None
    if schema.validator.is_valid(value):
        return []
    return all_faults(schema.validator, value) if schema.reports_quickly(payload) else None


def compile_validator(document: Json, *, is_masked: bool = False) -> jsonschema_rs.Draft202012Validator:
    """Compile a schema, however long it takes. Masked: messages show the rule, and not the value."""
    return jsonschema_rs.Draft202012Validator(
        document,
        retriever=_refuse_to_fetch,
        mask="the value" if is_masked else None,
        pattern_options=jsonschema_rs.FancyRegexOptions(backtrack_limit=_BACKTRACKS),
    )


def all_faults(validator: jsonschema_rs.Draft202012Validator, value: Json) -> list[Problem]:
    """List what a value does not keep of a schema, however long it takes."""
    return [
        Problem(pointer(error.instance_path), shortened(error.message))
        for error in islice(validator.iter_errors(value), _MAX_PROBLEMS)
    ]


def first_fault(validator: jsonschema_rs.Draft202012Validator, value: Json) -> list[Problem]:
    """List one thing that a value does not keep of a schema, or nothing."""
    try:
        validator.validate(value)
    except jsonschema_rs.ValidationError as error:
        return [Problem(pointer(error.instance_path), shortened(error.message))]
    return []


def _problems_of(document: Json, text: bytes) -> list[Problem]:
    """List what keeps a document from being a schema."""
    if not isinstance(document, (dict, bool)):
        return [Problem("", "must be a JSON Schema: an object, or true or false")]
    if len(text) > _MAX_BYTES:
        return [Problem("", f"{len(text):,} bytes of JSON; the limit for a schema is {_MAX_BYTES:,}")]
    problems: list[Problem] = []
    if not _META_SCHEMA.is_valid(document):
        find = all_faults if len(text) <= _ALL_FAULTS_BYTES else first_fault
        problems = find(_META_SCHEMA, document)
    dialect = document.get("$schema") if isinstance(document, dict) else None
    if isinstance(dialect, str) and dialect.removesuffix("#") != _DIALECT:
        problems.append(Problem("/$schema", f"only draft 2020-12 is read: {_DIALECT}"))
    return problems


def _refuse_to_fetch(uri: str) -> NoReturn:
    raise ValueError("a schema may only refer to itself")


def shortened(message: str) -> str:
    # The library quotes the whole offending value, which may be megabytes of input.
    if len(message) <= _MAX_MESSAGE_CHARACTERS:
        return message
    half = _MAX_MESSAGE_CHARACTERS // 2
    return f"{message[:half]} … {message[-half:]}"


_META_SCHEMA = jsonschema_rs.Draft202012Validator({"$ref": _DIALECT})
