"""Filling the templates in a JSON value: a config, or the output of an execution.

Every string of the value, keys of objects included, may hold ``{{ expression }}`` any number of times. A
string that is one expression and nothing else becomes the expression's value, of whatever type; in any other,
strings go in as they are and other values as compact JSON. What was filled in is never read as a template.

Jinja renders nothing, and does not split the text either (it would change line ends): this module finds the
ends of an expression, and ``expression`` compiles what is between. ``{{-`` and ``-}}`` take away the white
space beside them, as in Jinja; statements and comments are refused.

A secret is not known here. A filled value shows ``***`` in its place, and beside the value stand the slots
from which the worker makes the real strings at the call (``with_secrets``).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from weft.core.payload import pointer
from weft.errors import EvaluationError, ExpressionError, Problem
from weft.expressions import operators
from weft.expressions.budget import MAX_STEPS, Budget
from weft.expressions.expression import NO_NAMES, Expression, compile_expression
from weft.expressions.undefined import Undefined, UndefinedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from weft.core.payload import Json
    from weft.expressions.scope import Scope

MAX_DEPTH = 200
SECRET_SHOWN = "***"  # noqa: S105 - what is shown in place of one

Path: TypeAlias = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Secret:
    """A secret by its name, as part of a string."""

    name: str


@dataclass(frozen=True, slots=True)
class SecretSlot:
    """A string of a filled value that holds secrets: where it is, and what to make it from."""

    pointer: Path
    parts: tuple[str | Secret, ...]


class Filled(msgspec.Struct, frozen=True, gc=False):
    """A value with its templates filled in, and its secrets still to come."""

    value: Json
    secrets: tuple[SecretSlot, ...] = ()


class Template(msgspec.Struct, frozen=True, eq=False, gc=False):
    """A compiled JSON value, and the nodes and secrets that its templates name."""

    value: Json
    nodes: frozenset[str]
    secrets: frozenset[str]
    _fill: Fill | None
    # What the value takes as JSON, apart from the strings that will be filled.
    _fixed_bytes: int
    # Whether a template names the input of the execution, and the execution itself.
    reads_input: bool = False
    reads_execution: bool = False

    @property
    def is_static(self) -> bool:
        return self._fill is None

    def fill(self, scope: Scope, *, max_bytes: int, undefined_is_null: bool = False) -> Filled:
        """Return the value with every template filled; it shares data with the scope and with the template.

        Raises EvaluationError where an expression fails, or the result would take over ``max_bytes`` as JSON.
        ``undefined_is_null``: a template that needs something undefined reads as null.
        """
        if self._fixed_bytes > max_bytes:
            raise _too_large(max_bytes)
        if self._fill is None:
            return Filled(self.value)
        filling = _Filling(scope, max_bytes, max_bytes - self._fixed_bytes, undefined_is_null)
        value = self._fill(filling)
        return Filled(value, tuple(filling.slots)) if filling.slots else Filled(value)


def _too_large(max_bytes: int) -> EvaluationError:
    return EvaluationError(f"the filled value is larger than {max_bytes:,} bytes")


class _Filling(Budget):
    """One filling under way: the budget of its expressions, its scope, and the secrets met so far."""

    __slots__ = ("bytes_left", "scope", "slots", "undefined_is_null")

    def __init__(self, scope: Scope, max_bytes: int, bytes_left: int, undefined_is_null: bool) -> None:
        # In line, as Budget does it: one of these is made for every templated node.
        self.steps, self.max_text, self.multiplied = MAX_STEPS, max_bytes, False
        self.allowance = scope.allowance
        self.scope = scope
        self.bytes_left = bytes_left
        self.undefined_is_null = undefined_is_null
        self.slots: list[SecretSlot] = []

    def take(self, size: int) -> None:
        self.bytes_left -= size
        if self.bytes_left < 0:
            raise _too_large(self.max_text)

    def evaluate(self, expression: Expression) -> Json:
        try:
            value = expression.run(self.scope, self)
            if value.__class__ is Undefined:
                raise value.error()
        except UndefinedError:
            if not self.undefined_is_null:
                raise
            return None
        return value


if TYPE_CHECKING:
    Part: TypeAlias = str | Expression | Secret
    Fill: TypeAlias = Callable[[_Filling], Json]


def compile_template(
    value: Json,
    *,
    max_template_bytes: int,
    secrets_allowed: bool = False,
    pace: Callable[[], None] | None = None,
) -> Template | list[Problem]:
    """Compile all templates in a JSON value, or list every problem with its pointer into the value.

    ``pace`` is called for each expression, and may end the work by what it raises.
    """
    compiler = _Compiler(
        max_template_bytes=max_template_bytes, secrets_allowed=secrets_allowed, pace=pace or _no_pace
    )
    try:
        fill = compiler.visit(value, ())
        fixed_bytes = 0 if compiler.problems else _json_size(value) - compiler.template_bytes
    except (TypeError, ValueError, RecursionError):  # a key that is no string, half a character, no end
        compiler.problems.append(Problem("", "this is not JSON"))
    if compiler.problems:
        return compiler.problems
    return Template(
        value,
        compiler.nodes,
        compiler.secrets,
        fill,
        fixed_bytes,
        compiler.reads_input,
        compiler.reads_execution,
    )


def _no_pace() -> None:
    """Let the work go on."""


class _ParentOutputs(msgspec.Struct, frozen=True, gc=False):
    """Fills in the outputs of those parents that have completed."""

    parents: tuple[str, ...]

    def __call__(self, filling: _Filling) -> Json:
        seen = filling.scope.nodes
        return {name: seen[name].output for name in self.parents if name in seen and seen[name].completed}


def parent_outputs(parents: Sequence[str]) -> Template:
    """Return the template of an ``output`` node without config: the outputs of its parents by their ids."""
    return Template({}, frozenset(parents), frozenset(), _ParentOutputs(tuple(parents)), 2)


def with_secrets(value: Json, slots: Sequence[SecretSlot], lookup: Callable[[str], str]) -> Json:
    """Return a filled value with its secrets in place; the value passed in stays as it is."""
    holder = [value]
    copied: dict[Path, Json] = {}
    for slot in slots:
        # Each container on the way is copied once, however many secrets it holds.
        container: Json = holder
        key: str | int = 0
        for depth, next_key in enumerate(slot.pointer):
            path = slot.pointer[:depth]
            if path not in copied:
                copied[path] = container[key] = container[key].copy()
            container, key = copied[path], next_key
        container[key] = "".join(
            [part if isinstance(part, str) else lookup(part.name) for part in slot.parts]
        )
    return holder[0]


def _json_size(value: Json) -> int:
    return len(msgspec.json.encode(value))


# --- text and expressions ---------------------------------------------------------------------------

_OPENING = re.compile(r"\{\{[-+]?|\{%|\{#")
_INSIDE = re.compile(
    r"""(?P<string>"[^"\\]*(?:\\.[^"\\]*)*"|'[^'\\]*(?:\\.[^'\\]*)*')|(?P<end>-?\}\})|[()\[\]{}"']""",
    flags=re.DOTALL,
)
_CLOSING = {"(": ")", "[": "]", "{": "}"}


def _split(template: str) -> Iterator[tuple[bool, str]]:
    """Yield the pieces of a template in order: texts, and the sources of expressions (marked by True)."""
    position = 0
    strip = False
    while opening := _OPENING.search(template, position):
        if opening[0] in ("{%", "{#"):
            what = "statements ({% … %})" if opening[0] == "{%" else "comments ({# … #})"
            raise ExpressionError(
                f"{what} are not available; for the text itself write {{{{ '{opening[0]}' }}}}"
            )
        text = template[position : opening.start()]
        if strip:
            text = text.lstrip()
        yield False, text.rstrip() if opening[0] == "{{-" else text
        end = _end_of_expression(template, opening.end())
        yield True, template[opening.end() : end.start()]
        position = end.end()
        strip = end[0].startswith("-")
    text = template[position:]
    yield False, text.lstrip() if strip else text


def _end_of_expression(template: str, position: int) -> re.Match[str]:
    """Find the braces that close an expression, as Jinja's lexer does: outside strings and brackets."""
    expected: list[str] = []
    while token := _INSIDE.search(template, position):
        position = token.end()
        if token["end"] is not None:
            if not expected:
                return token
            position = token.start() + 1  # the first brace closes an object, or the minus is an operator
            if token[0].startswith("-"):
                continue
        sign = token[0][0]
        if token["string"] is not None:
            continue
        if sign in _CLOSING:
            expected.append(_CLOSING[sign])
        elif sign in "\"'":
            raise ExpressionError("a string has no end")
        elif not expected or expected.pop() != sign:
            raise ExpressionError(f"{sign!r} closes nothing in the expression")
    raise ExpressionError("{{ has no }}; for the braces themselves write {{ '{{' }}")


# --- the compiler -----------------------------------------------------------------------------------


class _Compiler:
    """Turns a JSON value into calls for the parts of it that hold templates, and lists all problems."""

    def __init__(self, *, max_template_bytes: int, secrets_allowed: bool, pace: Callable[[], None]) -> None:
        self.max_template_bytes = max_template_bytes
        self.pace = pace
        self.secrets_allowed = secrets_allowed
        self.nodes = self.secrets = NO_NAMES
        self.reads_input = self.reads_execution = False
        self.problems: list[Problem] = []
        self.template_bytes = 0
        self.under_template_key = False

    def visit(self, value: Json, path: Path) -> Fill | None:
        """Compile a part of the value, or give None where it holds no template."""
        if isinstance(value, str):
            return self.string(value, path) if "{" in value else None
        if not isinstance(value, (list, dict)) or not value:
            return None
        if len(path) >= MAX_DEPTH:
            self.problems.append(Problem(pointer(path), f"nested more than {MAX_DEPTH} deep"))
            return None
        return self.elements(value, path) if isinstance(value, list) else self.members(value, path)

    def elements(self, value: list[Json], path: Path) -> Fill | None:
        fills = [(index, self.visit(item, (*path, index))) for index, item in enumerate(value)]
        needed = tuple([(index, fill) for index, fill in fills if fill is not None])
        return _FillItems(value, needed) if needed else None

    def members(self, value: dict[str, Json], path: Path) -> Fill | None:
        if any("{" in key for key in value):
            return self.members_and_keys(value, path)
        fills = [(key, self.visit(item, (*path, key))) for key, item in value.items()]
        needed = tuple([(key, fill) for key, fill in fills if fill is not None])
        return _FillItems(value, needed) if needed else None

    def members_and_keys(self, value: dict[str, Json], path: Path) -> Fill | None:
        fills: list[tuple[str, Fill | None, Json, Fill | None]] = []
        outer = self.under_template_key
        for key, item in value.items():
            self.under_template_key = outer or "{{" in key
            place = (*path, key)
            fill_key = self.string(key, place, lone_keeps_type=False)
            fills.append((key, fill_key, item, self.visit(item, place)))
        self.under_template_key = outer
        if all(fill_key is None and fill is None for _, fill_key, _, fill in fills):
            return None

        def fill_members(filling: _Filling) -> Json:
            result: dict[str, Json] = {}
            for key, fill_key, item, fill in fills:
                filled_key = key if fill_key is None else fill_key(filling)
                if filled_key in result:
                    raise _at(path, EvaluationError(f"two keys of the object become {filled_key!r:.80}"))
                result[filled_key] = item if fill is None else fill(filling)
            return result

        return fill_members

    def string(self, template: str, path: Path, *, lone_keeps_type: bool = True) -> Fill | None:
        parts = self.parts(template, path)
        if all(isinstance(part, str) for part in parts):
            return None
        self.template_bytes += _json_size(template)
        if any(isinstance(part, Secret) for part in parts):
            return _FillSecrets(tuple(parts), path)
        if lone_keeps_type and len(parts) == 1 and isinstance(parts[0], Expression):
            return _FillLone(parts[0], path)
        return _FillText(tuple(parts), path)

    def parts(self, template: str, path: Path) -> list[Part]:
        if not _OPENING.search(template):
            return [template]
        if len(template.encode("utf-8", "replace")) > self.max_template_bytes:
            self.problem(path, f"a template has at most {self.max_template_bytes:,} bytes")
            return []
        parts: list[Part] = []
        try:
            pieces = list(_split(template))
        except ExpressionError as error:
            self.problem(path, str(error))
            return []
        for is_expression, piece in pieces:
            if not is_expression:
                parts += [piece] if piece else []
                continue
            self.pace()
            try:
                parts.append(self.expression(piece))
            except ExpressionError as error:
                self.problem(path, str(error))
        return parts

    def expression(self, source: str) -> Expression | Secret:
        expression = compile_expression(source, secrets_allowed=self.secrets_allowed)
        self.nodes = self.nodes | expression.nodes if self.nodes else expression.nodes
        self.reads_input = self.reads_input or expression.reads_input
        self.reads_execution = self.reads_execution or expression.reads_execution
        if not expression.secrets:
            return expression
        if self.under_template_key:
            # A slot says where its string stands, which must not change from filling to filling.
            raise ExpressionError("a secret cannot stand in or under a key that is a template")
        self.secrets |= expression.secrets
        (name,) = expression.secrets
        return Secret(name)

    def problem(self, path: Path, message: str) -> None:
        self.problems.append(Problem(pointer(path), message))


# --- filling ----------------------------------------------------------------------------------------


def _at(path: Path, error: EvaluationError) -> EvaluationError:
    """The same error, with the place of the template that failed."""
    return EvaluationError(f"{error} (at {pointer(path):.200})") if path else error


class _FillItems(msgspec.Struct, frozen=True, eq=False, gc=False):
    """An object or an array, of which some items hold templates."""

    value: Json
    needed: tuple[tuple[str | int, Fill], ...]

    def __call__(self, filling: _Filling) -> Json:
        result = self.value.copy()
        for key, fill in self.needed:
            result[key] = fill(filling)
        return result


class _FillLone(msgspec.Struct, frozen=True, eq=False, gc=False):
    """A string that is one expression."""

    expression: Expression
    path: Path

    def __call__(self, filling: _Filling) -> Json:
        try:
            value = filling.evaluate(self.expression)
            if filling.multiplied and isinstance(value, (list, dict)):
                filling.spend_tree(value)
            filling.take(_json_size(value))
        except EvaluationError as error:
            raise _at(self.path, error) from None
        return value


class _FillText(msgspec.Struct, frozen=True, eq=False, gc=False):
    """A string with expressions in it."""

    parts: tuple[Part, ...]
    path: Path

    def __call__(self, filling: _Filling) -> Json:
        try:
            text = operators.concatenate(
                [filling.evaluate(part) if isinstance(part, Expression) else part for part in self.parts],
                filling,
            )
            filling.take(_json_size(text))
        except EvaluationError as error:
            raise _at(self.path, error) from None
        return text


class _FillSecrets(msgspec.Struct, frozen=True, eq=False, gc=False):
    """Fill all but the secrets, note what the string is made from, and give what may be seen of it."""

    parts: tuple[Part, ...]
    path: Path

    def __call__(self, filling: _Filling) -> Json:
        try:
            made = [
                operators.text(filling.evaluate(part), filling) if isinstance(part, Expression) else part
                for part in self.parts
            ]
            shown = operators.concatenate(
                [SECRET_SHOWN if isinstance(part, Secret) else part for part in made], filling
            )
            filling.take(_json_size(shown))
        except EvaluationError as error:
            raise _at(self.path, error) from None
        filling.slots.append(SecretSlot(self.path, tuple(made)))
        return shown
