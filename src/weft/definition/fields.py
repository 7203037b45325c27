"""Checks of one field of a definition, by itself.

A rule takes a value and gives its faults: pairs of a pointer, relative to the value, and a message that says
what to write instead. Types are strict: ``"3"`` is not 3, ``true`` is not 1, and 3.0 is no integer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from math import isfinite
from typing import TYPE_CHECKING, TypeAlias

from weft.core.payload import Json, pointer
from weft.definition.model import (
    ID_PATTERN,
    LANE_PATTERN,
    MAX_RETRIES,
    MAX_TIMEOUT_SECONDS,
    NAME_FORM,
    NAME_PATTERN,
    SECRET_PATTERN,
    SECRET_REFERENCE,
    Delivery,
    FailurePolicy,
    NotifyOn,
    OnConflict,
    TriggerRule,
)
from weft.definition.suggestion import Suggester

if TYPE_CHECKING:
    import re
    from collections.abc import Collection, Mapping
    from enum import StrEnum

Faults: TypeAlias = Sequence[tuple[str, str]]
Rule: TypeAlias = Callable[[Json], Faults]

_FINE: Faults = ()
_MAX_SHOWN_CHARACTERS = 80
# A function with more passwords than this has another problem. Each is a look at the environment or a file.
_MAX_SECRETS = 100
# Each of them is a row in the commit that ends an execution.
_MAX_TARGETS = 10
_MAX_URL_CHARACTERS = 2_000
# Of executions that run at once in a group.
_MAX_GROUP_LIMIT = 100_000
# Far above what any of these objects can hold, so that the rest of such an object is one of many problems.
_MAX_FIELDS_READ = 1000


def _one(message: str) -> Faults:
    return (("", message),)


def anything(value: Json) -> Faults:
    return _FINE


def text(value: Json) -> Faults:
    return _FINE if isinstance(value, str) else _one(f"must be a string, not {kind(value)}")


def spelled(pattern: re.Pattern[str], words: str) -> Rule:
    def rule(value: Json) -> Faults:
        if not isinstance(value, str):
            return text(value)
        if pattern.fullmatch(value):
            return _FINE
        return _one(f"{shown(value)} is not allowed: use {words}")

    return rule


def one_of(choices: type[StrEnum]) -> Rule:
    known = {str(choice): None for choice in choices}

    def rule(value: Json) -> Faults:
        if not isinstance(value, str):
            return text(value)
        if value in known:
            return _FINE
        hint = Suggester().hint(value, known)
        return _one(f"{shown(value)} is not one of {', '.join(known)}{hint}")

    return rule


def _integer(low: int, high: int) -> Rule:
    def rule(value: Json) -> Faults:
        if isinstance(value, bool) or not isinstance(value, int):
            return _one(f"must be an integer, not {kind(value)}{_unquote(value)}")
        if not low <= value <= high:
            return _one(f"must be {low} to {high:,}, not {shown(value)}")
        return _FINE

    return rule


def number(low: int, high: int, *, above_low: bool = False) -> Rule:
    lower = f"above {low}" if above_low else f"at least {low}"

    def rule(value: Json) -> Faults:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return _one(f"must be a number, not {kind(value)}{_unquote(value)}")
        if not low <= value <= high or (above_low and value == low):
            return _one(f"must be {lower} and at most {high:,}, not {shown(value)}")
        return _FINE

    return rule


def _secret_names(value: Json) -> Faults:
    if not isinstance(value, list):
        return _one(f"must be a list of names of secrets, not {kind(value)}")
    if len(value) > _MAX_SECRETS:
        return _one(f"{len(value):,} secrets; the limit is {_MAX_SECRETS}")
    found = []
    seen: set[str] = set()
    for index, name in enumerate(value):
        if not isinstance(name, str):
            found.append((f"/{index}", f"must be the name of a secret, not {kind(name)}"))
        elif not SECRET_PATTERN.fullmatch(name):
            words = "1 to 128 letters, digits and '_', not starting with a digit"
            found.append((f"/{index}", f"{shown(name)} is not allowed: use {words}"))
        elif name.upper().endswith("_FILE"):
            message = f"{shown(name)} is not allowed: WEFT_SECRET_…_FILE names the file of a secret"
            found.append((f"/{index}", message))
        elif name.upper() in seen:
            found.append((f"/{index}", f"{shown(name)} is listed twice; upper and lower case are the same"))
        else:
            seen.add(name.upper())
    return found


def record(fields: Mapping[str, Rule], required: Collection[str] = ()) -> Rule:
    """Make the rule of an object: known fields only, each by its own rule."""

    def rule(value: Json) -> Faults:
        if not isinstance(value, dict):
            return _one(f"must be an object, not {kind(value)}")
        found = [("", f"{name} is missing") for name in required if name not in value]
        suggester = Suggester()
        for name, item in islice(value.items(), _MAX_FIELDS_READ):
            at = pointer((name,))
            if name in fields:
                found += [(at + where, message) for where, message in fields[name](item)]
            else:
                found.append((at, unknown_field(name, fields, suggester)))
        return found

    return rule


def unknown_field(name: str, fields: Collection[str], suggester: Suggester) -> str:
    """Return the message for an unknown field, with the nearest known field, or with all of them."""
    near = suggester.nearest(name, fields)
    help_with_it = f"did you mean {near!r}?" if near is not None else f"known are {', '.join(fields)}"
    return f"unknown field {shown(name)}; {help_with_it}"


def shown(value: Json) -> str:
    """Quote a value in a message, shortened where it is long."""
    if isinstance(value, str):
        text = repr(value[: _MAX_SHOWN_CHARACTERS + 1])
        return text if len(value) <= _MAX_SHOWN_CHARACTERS else f"{text[:_MAX_SHOWN_CHARACTERS]}…'"
    text = str(value)
    return text if len(text) <= _MAX_SHOWN_CHARACTERS else f"{text[:_MAX_SHOWN_CHARACTERS]}…"


def kind(value: Json) -> str:
    """Name a value by its type, and by itself where that is short enough to help."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return f"the string {shown(value)}"
        case int() | float():
            return f"the number {shown(value)}"
        case list():
            return "a list"
        case _:
            return "an object"


def _unquote(value: Json) -> str:
    """Return the advice for a number in quotes, the most common of wrong types; else an empty string."""
    if not isinstance(value, str) or len(value) > _MAX_SHOWN_CHARACTERS:
        return ""
    try:
        is_number = isfinite(float(value))
    except ValueError:
        return ""
    return "; leave out the quotes" if is_number else ""


# A week is the bound of every number of seconds; a cache may keep its outputs for longer, but not for ever,
# because the moment it ends must be one that a clock can show: a hundred years.
_TIMEOUT = number(0, MAX_TIMEOUT_SECONDS, above_low=True)
_DELAY = number(0, MAX_TIMEOUT_SECONDS)
_TTL = number(0, 100 * 366 * 86_400, above_low=True)
_LANE = spelled(LANE_PATTERN, "1 to 128 letters, digits, '_', '.', '-', not starting with '.' or '-'")

_RETRY = record(
    {
        "base_delay_seconds": _DELAY,
        "multiplier": number(1, 1000),
        "max_delay_seconds": _DELAY,
        "jitter": number(0, 1),
        "when": text,
    }
)

_SHARED_FIELDS: dict[str, Rule] = {
    "timeout_seconds": _TIMEOUT,
    "max_retries": _integer(0, MAX_RETRIES),
    "retry": _RETRY,
    "queue": _LANE,
    "resource_tag": _LANE,
    "delivery": one_of(Delivery),
}

# Ten years, as for a wait.
_POLL_SECONDS = number(0, 315_360_000, above_low=True)

NODE_FIELDS: dict[str, Rule] = {
    "id": spelled(ID_PATTERN, "1 to 128 letters, digits, '_', '-', starting with a letter or '_'"),
    "handler": text,
    "config": anything,
    "dependencies": anything,
    "depends_on": anything,
    "condition": text,
    "trigger_rule": one_of(TriggerRule),
    "cache": record({"ttl_seconds": _TTL}, required=("ttl_seconds",)),
    "secrets": _secret_names,
    "poll": record(
        {"until": text, "every_seconds": _POLL_SECONDS, "timeout_seconds": _POLL_SECONDS},
        required=("until", "every_seconds"),
    ),
    **_SHARED_FIELDS,
}


_MAX_VERSION = 2**31


def version_of(value: Json) -> Faults:
    """Return the faults of the version of a stored workflow: its number, or an alias."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        return (("", f"must be a number or an alias, not {kind(value)}"),)
    if isinstance(value, int):
        is_version = 1 <= value <= _MAX_VERSION
        return _FINE if is_version else (("", f"must be 1 to {_MAX_VERSION:,}, not {shown(value)}"),)
    return spelled(NAME_PATTERN, NAME_FORM)(value)


_STORED_WORKFLOW = record({"name": spelled(NAME_PATTERN, NAME_FORM), "version": version_of}, ("name",))


def _workflow(value: Json) -> Faults:
    # An inline definition is checked as a definition is (``validation``).
    return _FINE if isinstance(value, dict) and "nodes" in value else _STORED_WORKFLOW(value)


# The fields of a node that runs a workflow. Its workflow retries, where that is asked for.
CALL_FIELDS: dict[str, Rule] = {
    "id": NODE_FIELDS["id"],
    "workflow": _workflow,
    "input": anything,
    "dependencies": anything,
    "depends_on": anything,
    "condition": text,
    "trigger_rule": one_of(TriggerRule),
    "timeout_seconds": _POLL_SECONDS,
}


def _notify_url(value: Json) -> Faults:
    if not isinstance(value, str):
        return text(value)
    if len(value) > _MAX_URL_CHARACTERS:
        return _one(f"{len(value):,} characters; the limit is {_MAX_URL_CHARACTERS:,}")
    plain, secrets = SECRET_REFERENCE.subn("x", value)
    if "{{" in plain or "}}" in plain:
        return _one("of templates, only {{ secrets.NAME }} may stand in the url of notify")
    if not plain.isprintable() or " " in plain:
        return _one("must be a URL without spaces and control characters")
    # A secret may be the whole of it, or its beginning.
    if not plain.startswith(("https://", "http://")) and not (secrets and value.startswith("{{")):
        return _one(f"{shown(value)} is not allowed: use a URL that starts with https:// or http://")
    if "@" in plain.partition("://")[2].partition("/")[0]:
        return _one(
            "holds a user or a password, which no notification sends: put a {{ secrets.NAME }} in its path"
        )
    return _FINE


def _notify_occasions(value: Json) -> Faults:
    if not isinstance(value, list):
        return _one(f"must be a list of {', '.join(NotifyOn)}, not {kind(value)}")
    if not value:
        return _one(f"names nothing: list at least one of {', '.join(NotifyOn)}")
    if len(value) > len(NotifyOn):
        return _one(f"lists {len(value):,} occasions; there are {len(NotifyOn)}")
    rule = one_of(NotifyOn)
    return [(f"/{index}", message) for index, item in enumerate(value) for _, message in rule(item)]


_NOTIFY_TARGET = record({"url": _notify_url, "on": _notify_occasions}, required=("url",))


def _notify(value: Json) -> Faults:
    if not isinstance(value, list):
        return _NOTIFY_TARGET(value)
    if len(value) > _MAX_TARGETS:
        return _one(f"{len(value):,} targets; the limit is {_MAX_TARGETS}")
    return [
        (f"/{index}{where}", message)
        for index, item in enumerate(value)
        for where, message in _NOTIFY_TARGET(item)
    ]


DEFINITION_FIELDS: dict[str, Rule] = {
    "name": spelled(NAME_PATTERN, NAME_FORM),
    "description": text,
    "input_schema": anything,
    "failure_policy": one_of(FailurePolicy),
    "timeout_seconds": _TIMEOUT,
    "max_concurrency": _integer(1, 1_000_000),
    "concurrency": record(
        {"group": text, "limit": _integer(1, _MAX_GROUP_LIMIT), "on_conflict": one_of(OnConflict)},
        required=("group",),
    ),
    "notify": _notify,
    "defaults": record(_SHARED_FIELDS),
    "nodes": anything,
    "output": anything,
}
