"""Reads the document of a trigger: all problems at once, each with a JSON pointer to its place."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import msgspec

from weft.core.payload import pointer
from weft.definition.fields import anything, kind, number, one_of, record, shown, spelled, text, version_of
from weft.definition.model import NAME_FORM, NAME_PATTERN, SECRET_PATTERN
from weft.errors import ExpressionError, Problem
from weft.expressions.expression import Expression, compile_expression
from weft.expressions.template import Template, compile_template
from weft.triggers.cloudevent import MAX_CHARACTERS as MAX_TYPE
from weft.triggers.cron import CronError, read_cron, read_zone
from weft.triggers.model import EVENT, SCHEDULE, WEBHOOK, CatchUp, Overlap, Scheme, Trigger

if TYPE_CHECKING:
    from weft.core.payload import Json
    from weft.definition.bounds import Bounds
    from weft.definition.fields import Faults

# What the templates and the condition of each kind of trigger see.
SEEN = {
    SCHEDULE: frozenset({"trigger"}),
    EVENT: frozenset({"trigger", "event"}),
    WEBHOOK: frozenset({"trigger", "request"}),
}
KINDS = (SCHEDULE, EVENT, WEBHOOK)
# A year; and a day of jitter.
_MAX_EVERY_SECONDS = 366 * 86_400
_MAX_JITTER_SECONDS = 86_400
_MAX_LABELS = 32
_LABEL_KEY = re.compile(r"[a-z0-9][a-z0-9._/-]{0,62}")
_MAX_LABEL_CHARACTERS = 255
# A trigger is compiled where it starts something, also by a request that has no key: so much compiles in some
# 100 ms, beside the loop.
MAX_TEMPLATED_BYTES = 16 * 1024


class _Priority(StrEnum):
    LOW = "low"
    NORMAL = "normal"
    HIGH = "high"


def _flag(value: Json) -> Faults:
    return () if isinstance(value, bool) else (("", f"must be true or false, not {kind(value)}"),)


def _labels(value: Json) -> Faults:
    if not isinstance(value, dict):
        return (("", f"must be an object, not {kind(value)}"),)
    if len(value) > _MAX_LABELS:
        return (("", f"{len(value):,} labels; the limit is {_MAX_LABELS}"),)
    found = []
    for key, label in value.items():
        if not _LABEL_KEY.fullmatch(key):
            found.append((pointer((key,)), f"{shown(key)} is no key of a label"))
        elif not isinstance(label, str):
            found.append((pointer((key,)), f"must be a string, not {kind(label)}"))
        elif len(label) > _MAX_LABEL_CHARACTERS:
            found.append((pointer((key,)), f"over {_MAX_LABEL_CHARACTERS} characters"))
    return found


def _cron(value: Json) -> Faults:
    if not isinstance(value, str):
        return text(value)
    try:
        read_cron(value, "UTC")
    except CronError as error:
        return (("", str(error)),)
    return ()


def _zone(value: Json) -> Faults:
    if not isinstance(value, str):
        return text(value)
    try:
        read_zone(value)
    except CronError as error:
        return (("", str(error)),)
    return ()


def _event_type(value: Json) -> Faults:
    if not isinstance(value, str):
        return text(value)
    if not 1 <= len(value) <= MAX_TYPE or not value.isprintable():
        return (("", f"must be 1 to {MAX_TYPE:,} printable characters"),)
    return ()


_SCHEDULE = record(
    {
        "cron": _cron,
        "every_seconds": number(1, _MAX_EVERY_SECONDS),
        "timezone": _zone,
        "catch_up": one_of(CatchUp),
        "jitter_seconds": number(0, _MAX_JITTER_SECONDS),
    }
)


def _schedule(value: Json) -> Faults:
    found = list(_SCHEDULE(value))
    if isinstance(value, dict):
        if ("cron" in value) == ("every_seconds" in value):
            found.insert(0, ("", "needs one of cron and every_seconds"))
        if "every_seconds" in value and "timezone" in value:
            found.append(("/timezone", "belongs to cron: every_seconds knows no zone"))
    return found


_SECRET = spelled(SECRET_PATTERN, "1 to 128 letters, digits and '_', not starting with a digit")
_TRIGGER = record(
    {
        "name": spelled(NAME_PATTERN, NAME_FORM),
        "workflow": spelled(NAME_PATTERN, NAME_FORM),
        "version": version_of,
        "enabled": _flag,
        "input": anything,
        "labels": _labels,
        "priority": one_of(_Priority),
        "overlap": one_of(Overlap),
        "schedule": _schedule,
        "event": record({"type": _event_type, "when": text}, required=("type",)),
        "webhook": record({"secret": _SECRET, "scheme": one_of(Scheme)}, required=("secret",)),
    },
    required=("workflow",),
)


def read_trigger(document: Json, *, name: str | None, bounds: Bounds) -> Trigger | list[Problem]:
    """Read a trigger, or list everything that is wrong with it; ``name``: the name that it is stored by."""
    if not isinstance(document, dict):
        return [Problem("", f"must be an object, a trigger, not {kind(document)}")]
    given = document if name is None else {"name": name, **document}
    problems = [Problem(at, message) for at, message in _TRIGGER(given)]
    if "name" not in given:
        problems.append(Problem("", "name is missing"))
    elif name is not None and given["name"] != name and not problems:
        problems.append(Problem("/name", f"is {shown(given['name'])}, and the path names {name!r}"))
    kinds = [known for known in KINDS if known in document]
    if len(kinds) != 1:
        had = f"has {' and '.join(kinds)}" if kinds else "has none of them"
        problems.append(Problem("", f"needs exactly one of schedule, event and webhook; it {had}"))
    else:
        problems += _template_problems(document, kinds[0], bounds)
    if problems:
        return problems
    return msgspec.convert(given, Trigger)


def _template_problems(document: dict[str, Any], kind_: str, bounds: Bounds) -> list[Problem]:
    given = document.get("input", {})
    # Before it is compiled: that is what takes long.
    source = msgspec.json.encode(given)
    problems = _size_problems("/input", len(source)) if b"{{" in source else []
    compiled = problems or compile_input(given, bounds)
    if isinstance(compiled, Template):
        unknown = _unknown(compiled, kind_)
        if compiled.is_static and not isinstance(compiled.value, dict):
            problems.append(Problem("/input", f"must be an object, not {kind(compiled.value)}"))
        if unknown:
            problems.append(Problem("/input", _unseen(unknown, kind_)))
    elif not problems:
        problems = [Problem(f"/input{problem.pointer}", problem.message) for problem in compiled]
    when = document[kind_].get("when") if isinstance(document[kind_], dict) else None
    if isinstance(when, str):
        problems += _condition_problems(when)
    return problems


def _size_problems(at: str, size: int) -> list[Problem]:
    if size <= MAX_TEMPLATED_BYTES:
        return []
    message = f"{size:,} bytes with expressions; the limit of a trigger is {MAX_TEMPLATED_BYTES:,}"
    return [Problem(at, message)]


def _condition_problems(when: str) -> list[Problem]:
    if problems := _size_problems("/event/when", len(when.encode())):
        return problems
    try:
        condition = compile_expression(when)
    except ExpressionError as error:
        return [Problem("/event/when", str(error))]
    unknown = _unknown(condition, EVENT)
    return [Problem("/event/when", _unseen(unknown, EVENT))] if unknown else []


def _unknown(compiled: Template | Expression, kind_: str) -> list[str]:
    """Return the names in templates, or in a condition, that nothing is known by at a start."""
    unknown = sorted(compiled.nodes - SEEN[kind_])
    for name, is_read in (("input", compiled.reads_input), ("execution", compiled.reads_execution)):
        unknown += [name] if is_read else []
    return unknown


def compile_input(value: Json, bounds: Bounds) -> Template | list[Problem]:
    """Compile the templates in the input of a trigger."""
    return compile_template(value, max_template_bytes=bounds.max_template_bytes)


def _unseen(names: list[str], kind_: str) -> str:
    seen = " and ".join(sorted(SEEN[kind_], key=lambda name: name != "trigger"))
    return f"names {', '.join(repr(name[:80]) for name in names)}, which nothing is here; it sees {seen}"
