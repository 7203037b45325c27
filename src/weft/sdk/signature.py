"""A node's function, read from the outside: its name, its place in the source, what its parameters ask."""

from __future__ import annotations

import inspect
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft.definition.suggestion import Suggester

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

_CONTEXT = "context"
_INPUT = "input"
# Of the nodes that a parameter may name, so many are listed.
_MAX_NAMED = 20


def reference(function: Callable[..., Any]) -> str:
    """Name a function as the handler ``python`` does: ``module:name``.

    A script is imported by others under the name of its file, so that is what its functions go by, and
    not by ``__main__``.
    """
    module = getattr(function, "__module__", None) or "__main__"
    return f"{_main_module() if module == '__main__' else module}:{name(function)}"


def place(function: Callable[..., Any]) -> str:
    """Return where a function is written, for a message: ``fetch() at report.py:12``."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return f"{name(function)}()" + (f" at {code.co_filename}:{code.co_firstlineno}" if code else "")


def generator_kind(function: Callable[..., Any]) -> str | None:
    """Return what kind of generator function it is, or None if it is none."""
    inner = inspect.unwrap(function)
    if not inspect.isroutine(inner) and not isinstance(inner, type):
        inner = getattr(inner, "func", None) or type(inner).__call__
    if inspect.isgeneratorfunction(inner):
        return "a generator function"
    return "an async generator function" if inspect.isasyncgenfunction(inner) else None


def has_annotations(function: Callable[..., Any]) -> bool:
    """True if a parameter or the return value of a function is annotated."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return False
    return signature.return_annotation is not signature.empty or any(
        each.annotation is not each.empty for each in signature.parameters.values()
    )


def names_of_parents(function: Callable[..., Any]) -> list[str]:
    """Return the names of the parameters that may be parents of a function's node."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    return [
        each.name
        for each in parameters
        if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)
        and each.name not in (_CONTEXT, _INPUT)
    ]


def arguments(
    function: Callable[..., Any], parents: Sequence[str], declared: Collection[str]
) -> tuple[dict[str, str], list[str]]:
    """Return the templates that fill a function's parameters, and what keeps it from being a node.

    ``declared``: the nodes that a parameter may name.
    """
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return {}, ["its parameters cannot be read; wrap it in a function of your own"]
    filled: dict[str, str] = {}
    faults = []
    takes_the_rest = False
    for parameter in parameters:
        name, kind = parameter.name, parameter.kind
        if kind is parameter.VAR_KEYWORD:
            takes_the_rest = True
        elif kind is parameter.VAR_POSITIONAL:
            continue
        elif kind is parameter.POSITIONAL_ONLY:
            if parameter.default is parameter.empty:
                faults.append(f"parameter {name!r} is positional-only, and nodes are called by keyword")
        elif name == _CONTEXT and name in parents:
            faults.append(
                "parameter 'context' receives weft's context: give the parent of that name another id"
            )
        elif name in parents:
            filled[name] = _output_of(name)
        elif name == _INPUT:
            filled[name] = "{{ input }}"
        elif name != _CONTEXT and parameter.default is parameter.empty:
            faults.append(_unknown(name, [*parents, *(one for one in declared if one not in parents)]))
    if takes_the_rest:
        filled.update({parent: _output_of(parent) for parent in parents if parent not in filled})
    return filled, faults


def _output_of(node_id: str) -> str:
    # The long form is exact, and a parent that did not complete has no output.
    return f"{{{{ nodes[{json.dumps(node_id)}].output | default(none) }}}}"


def _unknown(name: str, nodes: Sequence[str]) -> str:
    shown = nodes if len(nodes) <= _MAX_NAMED else [*nodes[:_MAX_NAMED], "…"]
    known = ", ".join([*shown, _INPUT, _CONTEXT])
    hint = Suggester().hint(name, [*nodes, _INPUT, _CONTEXT]) or f"; known here: {known}"
    return (
        f"parameter {name!r} is not a parent of this node{hint}. "
        f"Declare the node {name!r} first, add it to the dependencies, or give the parameter a default"
    )


def name(function: Callable[..., Any]) -> str:
    return str(getattr(function, "__qualname__", type(function).__qualname__))


def _main_module() -> str:
    main = sys.modules.get("__main__")
    specification = getattr(main, "__spec__", None)
    if specification is not None:  # python -m package.module
        return str(specification.name)
    file = getattr(main, "__file__", None)
    return Path(file).stem if file else "__main__"
