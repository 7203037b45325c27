"""The hints of a function's parameters, resolved one by one: a name that cannot be found spoils no other."""

from __future__ import annotations

import inspect
import sys
import typing
from contextlib import suppress
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

RETURN = "return"

# The hints that a declaration resolved where the function was written: a class that is local to another
# function is found there and nowhere else.
_RESOLVED: WeakKeyDictionary[Callable[..., Any], dict[str, Any]] = WeakKeyDictionary()


def hints_of(function: Callable[..., Any], local: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return parameter → type for every hint that can be resolved, and ``return`` → the return type.

    ``local``: the names at the place where the function is declared.
    """
    try:
        known = _RESOLVED.get(function)
    except TypeError:  # an object that has no hash or cannot be referred to weakly
        known = None
    if known is not None:
        return known
    resolved = _resolve(function, local or {})
    if local is not None:
        with suppress(TypeError):
            _RESOLVED[function] = resolved
    return resolved


def caller_names() -> dict[str, Any]:
    """Return the local names of the nearest caller outside weft."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "weft":
        frame = frame.f_back
    return dict(frame.f_locals)


def _resolve(function: Callable[..., Any], local: Mapping[str, Any]) -> dict[str, Any]:
    inner = inspect.unwrap(function)
    if not hasattr(inner, "__globals__") and not isinstance(inner, type):
        # A method, a partial, or an object that can be called.
        inner = getattr(inner, "__func__", None) or getattr(inner, "func", None) or type(inner).__call__
        inner = inspect.unwrap(inner)
    annotations = getattr(inner, "__annotations__", None)
    if not isinstance(annotations, dict):
        return {}
    names = getattr(inner, "__globals__", {})
    closure = getattr(inner, "__closure__", None) or ()
    code = getattr(inner, "__code__", None)
    free = dict(local)
    for name, cell in zip(getattr(code, "co_freevars", ()), closure, strict=False):
        try:
            free[name] = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    resolved = {}
    for name, annotation in annotations.items():
        try:
            holder = SimpleNamespace(__annotations__={name: annotation})
            resolved[name] = typing.get_type_hints(holder, names, free, include_extras=True)[name]
        except Exception:  # noqa: S112 - a name for type checkers alone; the parameter takes what comes
            continue
    return resolved
