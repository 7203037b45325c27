"""Wait nodes as they are written down: a config is checked before and after its templates are filled.

``schema``, ``signal`` and ``event`` are literals: an answer is checked, and its node is found, without
filling anything. The other fields may hold templates.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec

from weft.core.payload import canonical, encode, pointer
from weft.core.time import MICROSECONDS, parse_rfc3339
from weft.definition.fields import kind, shown, unknown_field
from weft.definition.schema import Schema, compile_schema, quick_problems
from weft.definition.suggestion import Suggester
from weft.definition.unfilled import holds_template
from weft.errors import Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from weft.core.payload import Json

# Ten years.
MAX_WAIT_SECONDS = 315_360_000
# Whoever answers reads the prompt in a list of many.
MAX_PROMPT_BYTES = 16 * 1024
# A default lies in its node's row while the node waits.
MAX_DEFAULT_BYTES = 64 * 1024
# The pairs of ``match`` together are one key of an index.
MAX_MATCH_PAIRS = 16
MAX_MATCH_BYTES = 16 * 1024
# The name of a signal is part of a URL, and a node's id is one.
SIGNAL_PATTERN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
SIGNAL_FORM = "1 to 128 letters, digits, '_', '.', '-', not starting with '.' or '-'"
_MAX_EVENT_TYPE_CHARACTERS = 256
# No config is larger: the document that it stands in is not.
_MAX_CONFIG_BYTES = 2**30

_LITERALS = frozenset({"schema", "signal", "event"})
_SOURCES = ("seconds", "until", "event", "signal")
_OF_SIGNALS = frozenset({"prompt", "schema"})
_OF_EVENTS = frozenset({"match", "lookback_seconds"})
_EXPIRING = frozenset({"expires_seconds", "default"})
# Every field of the config, whatever the node waits for.
FIELDS = (*_SOURCES, "prompt", "schema", "match", "lookback_seconds", "expires_seconds", "default")


class WaitKind(StrEnum):
    """The end that a wait is for: a time, an answer by somebody, an event that comes in, or a child."""

    TIMER = "timer"
    SIGNAL = "signal"
    EVENT = "event"
    CHILD = "child"


@dataclass(frozen=True, slots=True)
class WaitRule:
    """The literal part of a wait node: what it waits for, and what an answer must fit."""

    kind: WaitKind
    # The name of its signal, or the type of its event; empty for a timer.
    name: str = ""
    schema: Schema | None = None
    # Whether its expiry has an answer; without one it fails the node.
    has_default: bool = False


class WaitTerms(msgspec.Struct, frozen=True, gc=False):
    """The filled config of a wait node: when the wait ends by itself, and what it asks for."""

    # From the moment at which the node is ready, or a time of its own; None: never.
    seconds: float | None = None
    due_at: int | None = None
    # The value at expiry as JSON; None: there is none.
    default: bytes | None = None
    prompt: str | None = None
    # Of an event: the pairs that its data must have, as canonical JSON.
    match: bytes | None = None
    # How long before it is ready the event may have come.
    lookback_seconds: float = 0.0


def read_wait(node_id: str, config: Mapping[str, Json]) -> WaitRule:
    """Return the rule of a wait node whose config passed validation."""
    has_default = "default" in config
    if "seconds" in config or "until" in config:
        return WaitRule(WaitKind.TIMER)
    if "event" in config:
        return WaitRule(WaitKind.EVENT, config["event"], has_default=has_default)
    schema = Schema(config["schema"]) if "schema" in config else None
    return WaitRule(WaitKind.SIGNAL, config.get("signal", node_id), schema, has_default)


def without_literals(config: Json) -> Json:
    """Return the part of a wait node's config that may hold templates."""
    if not isinstance(config, dict):
        return config
    return {name: value for name, value in config.items() if name not in _LITERALS}


# -- before the templates are filled -------------------------------------------------------------------


def wait_problems(config: Json) -> list[Problem]:
    """List what is wrong with the config of a wait node, whatever its templates will become."""
    if not isinstance(config, dict):
        return [Problem("", f"must be an object, not {kind(config)}")]
    suggester = Suggester()
    found = [
        Problem(pointer((name,)), unknown_field(name, FIELDS, suggester))
        for name in config
        if name not in FIELDS
    ]
    sources = [name for name in _SOURCES if name in config]
    if len(sources) > 1:
        found.append(
            Problem(f"/{sources[1]}", f"a wait has one of {', '.join(_SOURCES)}; {sources[0]} is one")
        )
    source = sources[0] if sources else "signal"
    found += _misplaced(config, source)
    for name, rule in _RULES.items():
        if name in config and (name in _LITERALS or not holds_template(config[name])):
            found += [Problem(f"/{name}{where}", message) for where, message in rule(config[name])]
    if not found:
        found = _unfit_default(config)
    return found


def _misplaced(config: Mapping[str, Json], source: str) -> Iterable[Problem]:
    """List the fields that a wait for this source does not have."""
    for names, owner in ((_OF_SIGNALS, "signal"), (_OF_EVENTS, "event")):
        if source != owner:
            yield from (
                Problem(f"/{name}", f"only a wait for {_article(owner)} has {name}")
                for name in FIELDS
                if name in names and name in config
            )
    if source in ("seconds", "until"):
        for name in FIELDS:
            if name in _EXPIRING and name in config:
                yield Problem(f"/{name}", f"{source} ends this wait: it does not expire")
    elif "default" in config and "expires_seconds" not in config:
        yield Problem("/default", "is the answer at expiry: it needs expires_seconds")


def _article(owner: str) -> str:
    return "an event" if owner == "event" else "a signal"


def _unfit_default(config: Mapping[str, Json]) -> list[Problem]:
    """List why a default without templates does not fit the schema of the answer."""
    if "default" not in config or "schema" not in config or holds_template(config["default"]):
        return []
    schema = compile_schema(config["schema"])
    assert isinstance(schema, Schema)
    return _misfits(schema, config["default"])


def _misfits(schema: Schema, value: Json) -> list[Problem]:
    faults = quick_problems(schema, value, _text(value))
    if faults is None:
        return [Problem("/default", "takes too long to be checked against the schema: use a simpler one")]
    return [Problem(f"/default{fault.pointer}", fault.message) for fault in faults]


# -- filled ----------------------------------------------------------------------------------------------


def wait_terms(rule: WaitRule, config: Json) -> WaitTerms:
    """Read the filled config of a wait node; raises ValueError, with the field, for what cannot be."""
    assert isinstance(config, dict)
    for name in config:
        for where, message in _RULES[name](config[name]):
            raise ValueError(f"config at /{name}{where}: {message}")
    if rule.kind is WaitKind.TIMER:
        if "until" in config:
            # A time that has passed is due at once.
            return WaitTerms(due_at=max(0, parse_rfc3339(config["until"])))
        return WaitTerms(seconds=float(config["seconds"]))
    default = None
    if "default" in config:
        if rule.schema is not None:
            for problem in _misfits(rule.schema, config["default"]):
                raise ValueError(f"config at {problem.pointer}: {problem.message}")
        default = _text(config["default"])
    expires_seconds = config.get("expires_seconds")
    prompt = config.get("prompt")
    return WaitTerms(
        seconds=None if expires_seconds is None else float(expires_seconds),
        default=default,
        prompt=prompt if prompt is None or isinstance(prompt, str) else _text(prompt).decode(),
        match=canonical(config.get("match", {})) if rule.kind is WaitKind.EVENT else None,
        lookback_seconds=float(config.get("lookback_seconds", 0)),
    )


# -- single fields ---------------------------------------------------------------------------------------


def _seconds(value: Json) -> list[tuple[str, str]]:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return [("", f"must be a number of seconds, not {kind(value)}")]
    if not 0 <= value <= MAX_WAIT_SECONDS:
        return [("", f"must be 0 to {MAX_WAIT_SECONDS:,} seconds, not {shown(value)}")]
    return []


def _until(value: Json) -> list[tuple[str, str]]:
    if not isinstance(value, str):
        return [("", f"must be a time as in 2026-01-31T09:30:00Z, not {kind(value)}")]
    try:
        at = parse_rfc3339(value)
    except (ValueError, OverflowError) as fault:
        return [("", str(fault))]
    # Far times are typing errors, and must fit the columns of the databases.
    return [] if abs(at) < 2**53 * MICROSECONDS else [("", f"{shown(value)} is too far away")]


def _signal(value: Json) -> list[tuple[str, str]]:
    if not isinstance(value, str):
        return [("", f"must be a string, not {kind(value)}")]
    return (
        [] if SIGNAL_PATTERN.fullmatch(value) else [("", f"{shown(value)} is not allowed: use {SIGNAL_FORM}")]
    )


def _event(value: Json) -> list[tuple[str, str]]:
    if not isinstance(value, str):
        return [("", f"must be the type of an event, not {kind(value)}")]
    if not value or len(value) > _MAX_EVENT_TYPE_CHARACTERS or not value.isprintable():
        return [("", f"must be 1 to {_MAX_EVENT_TYPE_CHARACTERS} printable characters")]
    return []


def _prompt(value: Json) -> list[tuple[str, str]]:
    return _size(value, MAX_PROMPT_BYTES)


def _default(value: Json) -> list[tuple[str, str]]:
    return _size(value, MAX_DEFAULT_BYTES)


def _match(value: Json) -> list[tuple[str, str]]:
    if not isinstance(value, dict):
        return [("", f"must be an object, not {kind(value)}")]
    if len(value) > MAX_MATCH_PAIRS:
        return [("", f"{len(value):,} pairs; the limit is {MAX_MATCH_PAIRS}")]
    return _size(value, MAX_MATCH_BYTES)


def _schema(value: Json) -> list[tuple[str, str]]:
    schema = compile_schema(value)
    return [] if isinstance(schema, Schema) else [(fault.pointer, fault.message) for fault in schema]


def _text(value: Json) -> bytes:
    return encode(value, max_bytes=_MAX_CONFIG_BYTES)


def _size(value: Json, limit: int) -> list[tuple[str, str]]:
    size = len(_text(value))
    return [("", f"{size:,} bytes; the limit is {limit:,}")] if size > limit else []


_RULES: Mapping[str, Callable[[Json], list[tuple[str, str]]]] = {
    "seconds": _seconds,
    "until": _until,
    "signal": _signal,
    "event": _event,
    "prompt": _prompt,
    "schema": _schema,
    "default": _default,
    "match": _match,
    "lookback_seconds": _seconds,
    "expires_seconds": _seconds,
}
