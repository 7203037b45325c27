"""Name → handler, and reference → function.

A process has one default registry, where ``@weft.handler`` puts what it decorates. Handlers of installed
distributions are found by the entry point group ``weft.handlers``: their names are known at once, their
code is imported when it is first needed.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, overload

from weft.errors import Problem, SettingsError
from weft.handlers import call_external_service, echo, llm_service, output, python, sleep, wait
from weft.handlers import input as input_
from weft.handlers.config_schema import ConfigSchema, config_decoder, schema_of_class, schema_problems
from weft.handlers.contract import (
    PYTHON,
    FunctionNotAllowed,
    Handler,
    HandlerContext,
    HandlerKind,
    Invocation,
    UnknownHandler,
    is_coroutine_function,
)
from weft.handlers.outcome import described

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint
    from types import ModuleType

    from weft.core.payload import Json

ENTRY_POINT_GROUP = "weft.handlers"

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,127}\Z")
_ALLOWED = re.compile(r"[^\W\d][\w-]*(\.[^\W\d]\w*)*:([^\W\d]\w*|\*)\Z")

_Function = TypeVar("_Function", bound=Callable[..., Any])


class Registry:
    """The handlers and functions of one process. It is also the HandlerCatalogue that validation asks."""

    def __init__(self, shipped: Iterable[Handler] = ()) -> None:
        """Start with the handlers of this package, and those of ``shipped``."""
        own = (
            call_external_service.HANDLER,
            echo.HANDLER,
            input_.HANDLER,
            llm_service.HANDLER,
            output.HANDLER,
            sleep.HANDLER,
            wait.HANDLER,
            python.handler(self.resolve),
        )
        self._handlers = {handler.name: handler for handler in (*own, *shipped)}
        self._shipped = frozenset(self._handlers)
        self._schemas: dict[str, ConfigSchema] = {}
        self._config_decoders: dict[str, tuple[Handler, Callable[[Json], Any] | None]] = {}
        self._functions: dict[str, python.PythonFunction] = {}
        self._allowed: set[str] = set()
        self._declared: frozenset[str] = frozenset()
        # Read when a name is asked for that nobody registered.
        self._entry_points: dict[str, EntryPoint] | None = None

    def knows(self, name: str) -> bool:
        return name in self._handlers or name in self._installed()

    def names(self) -> list[str]:
        return sorted({*self._handlers, *self._installed()})

    def problems(self, name: str, config: Json) -> list[Problem]:
        """List what is wrong with a config whose templates are not filled yet."""
        try:
            handler = self.get(name)
            schema = self._schema(handler)
        except UnknownHandler as error:
            return [Problem("", str(error))]
        found = schema.problems(config) if schema is not None else []
        for field in handler.schema_fields:
            if isinstance(config, dict) and field in config:
                found += [
                    Problem(f"/{field}{problem.pointer}", problem.message)
                    for problem in schema_problems(config[field])
                ]
        return found

    def get(self, name: str) -> Handler:
        """Return the handler of a name, or raise UnknownHandler; a distribution's handler is imported now."""
        handler = self._handlers.get(name)
        if handler is not None:
            return handler
        entry_point = self._installed().get(name)
        if entry_point is None:
            raise UnknownHandler(f"no handler {name!r}; this process has: {', '.join(self.names())}")
        return self._load(entry_point)

    def shipped(self, kind: HandlerKind) -> frozenset[str]:
        """Return the names of the handlers of this package that are of a kind."""
        return frozenset(name for name in self._shipped if self._handlers[name].kind is kind)

    def bind(self, name: str, config: Json, context: HandlerContext) -> Invocation:
        """Return the invocation of a handler with its resolved config, or raise BadConfig."""
        handler = self.get(name)
        if name == PYTHON:
            return python.bind(self.resolve, config, context)
        if handler.kind is HandlerKind.INSTANT:
            return Invocation(name, False, partial(handler.function, config))
        schema = self._schema(handler)
        if schema is not None:
            schema.require(config)
        is_coroutine = handler.kind is HandlerKind.NATIVE or is_coroutine_function(handler.function)
        if handler.kind is HandlerKind.USER:
            config = self._decoded(handler, config)
        call = partial(handler.function, config, context)
        return Invocation(name, is_coroutine, call, takes_context=handler.asks_for_facts)

    def module_of(self, handler: str, target: str) -> str:
        """Return the module that has the function of a handler; ``target``: what ``python`` is asked for."""
        if handler == PYTHON:
            return target.partition(":")[0]
        return str(getattr(self.get(handler).function, "__module__", None) or "")

    def add(self, handler: Handler) -> None:
        """Register a handler. Its name must be free, unless the same function is defined once more."""
        name = handler.name
        if not _NAME.match(name):
            raise ValueError(f"a handler's name is letters, digits, '_', '-' and '.', not {name!r}")
        if name in self._shipped:
            raise ValueError(f"handler {name!r} ships with weft and cannot be replaced")
        present = self._handlers.get(name)
        if present is not None and _origin(present.function) != _origin(handler.function):
            raise ValueError(f"handler {name!r} is already registered by {_origin(present.function)}")
        if inspect.isgeneratorfunction(handler.function) or inspect.isasyncgenfunction(handler.function):
            raise TypeError(f"handler {name!r} is a generator function; a handler returns one value")
        try:
            inspect.signature(handler.function).bind(None, None)
        except TypeError:
            raise TypeError(f"handler {name!r} must take two arguments: config and context") from None
        except ValueError:  # a builtin that does not tell its signature
            pass
        self._schemas.pop(name, None)
        self._handlers[name] = handler
        self._schema(handler)

    def add_function(self, reference: str, function: Callable[..., Any]) -> None:
        """Let ``python`` call this function by that reference."""
        self._functions[reference] = python.describe(reference, function)

    def declare_functions(self, references: Iterable[str]) -> None:
        """Note functions that child processes register by themselves: this process never calls them."""
        self._declared = frozenset(references)

    def functions(self) -> set[str]:
        """Name what ``python`` may call: ``module:name``, or ``module:*`` for all that a module offers."""
        return {*self._functions, *self._allowed, *self._declared}

    def scoped(self) -> Registry:
        """Return a registry that shares these handlers and later ones, and has its own functions."""
        scoped = copy(self)
        scoped._functions = dict(self._functions)
        scoped._allowed = set(self._allowed)
        return scoped

    def allow(self, patterns: Iterable[str]) -> None:
        """Let ``python`` call ``module:name``, or with ``module:*`` each function that the module offers."""
        for pattern in patterns:
            if not _ALLOWED.match(pattern):
                raise SettingsError(f"WEFT_PYTHON_ALLOW needs module:name or module:*, not {pattern!r}")
            self._allowed.add(pattern)

    def resolve(self, reference: str) -> python.PythonFunction:
        """Return the function behind a reference, or raise FunctionNotAllowed.

        Nothing is imported and no attribute is read before the reference is known to be allowed.
        """
        known = self._functions.get(reference)
        if known is not None:
            return known
        module_name, _, name = reference.partition(":")
        is_named = reference in self._allowed
        if not is_named and f"{module_name}:*" not in self._allowed:
            raise FunctionNotAllowed(f"this worker may not call {reference!r}: {python.HOW_TO_ALLOW}")
        module = importlib.import_module(module_name)
        function = getattr(module, name, None)
        if not callable(function) or not (is_named or _is_offered(module, name, function)):
            raise FunctionNotAllowed(f"the module {module_name!r} has no function {name!r} to call")
        self._functions[reference] = python.describe(reference, function)
        return self._functions[reference]

    def _schema(self, handler: Handler) -> ConfigSchema | None:
        if handler.config_schema is None:
            return None
        schema = self._schemas.get(handler.name)
        if schema is None:
            try:
                schema = self._schemas[handler.name] = ConfigSchema(
                    handler.config_schema, is_own=handler.kind is HandlerKind.NATIVE
                )
            except ValueError as error:
                self._handlers.pop(handler.name, None)
                raise ValueError(f"config_schema of handler {handler.name!r}: {described(error)}") from None
        return schema

    def _decoded(self, handler: Handler, config: Json) -> Any:
        """Return a config as the type that the handler's first parameter is annotated with."""
        known = self._config_decoders.get(handler.name)
        if known is None or known[0] is not handler:
            known = self._config_decoders[handler.name] = (handler, config_decoder(handler.function))
        return config if known[1] is None else known[1](config)

    def _installed(self) -> dict[str, EntryPoint]:
        if self._entry_points is None:
            from importlib.metadata import entry_points

            self._entry_points = {
                entry_point.name: entry_point
                for entry_point in entry_points(group=ENTRY_POINT_GROUP)
                if entry_point.name not in self._shipped
            }
        return self._entry_points

    def _load(self, entry_point: EntryPoint) -> Handler:
        """Import one entry point. What is wrong with it is said of it alone."""
        name = entry_point.name
        try:
            found = entry_point.load()
            # A decorated function has registered itself on import, with its schema.
            if name not in self._handlers:
                self.add(found if isinstance(found, Handler) else Handler(name, HandlerKind.USER, found))
            return self._handlers[name]
        except (Exception, SystemExit) as error:
            distribution = entry_point.dist
            origin = (
                f"{distribution.name} {distribution.version}" if distribution else "an unknown distribution"
            )
            raise UnknownHandler(
                f"handler {name!r} of {origin} ({entry_point.value}) cannot be loaded: {described(error)}"
            ) from error


def _is_offered(module: ModuleType, name: str, function: Any) -> bool:
    """True if ``module:*`` means this function.

    It means what the module defines, or names in ``__all__``; not what it happens to import, which may
    well be ``os.system``.
    """
    if name in getattr(module, "__all__", ()):
        return True
    home = getattr(function, "__module__", None) or ""
    return (
        not name.startswith("_")
        and not isinstance(function, type)
        and (home == module.__name__ or home.startswith(f"{module.__name__}."))
    )


def _origin(function: Callable[..., Any]) -> str:
    name = getattr(function, "__qualname__", type(function).__qualname__)
    return f"{getattr(function, '__module__', '?')}.{name}"


_DEFAULT = Registry()


def default_registry() -> Registry:
    """The registry of this process, where ``@handler`` registers."""
    return _DEFAULT


@overload
def handler(name: _Function, /) -> _Function: ...
@overload
def handler(
    name: str | None = None, *, config_schema: Mapping[str, Any] | bool | type | None = None
) -> Callable[[_Function], _Function]: ...


def handler(
    name: str | Callable[..., Any] | None = None,
    *,
    config_schema: Mapping[str, Any] | bool | type | None = None,
) -> Any:
    """Register ``f(config, context)``, a function or coroutine function, as the handler of that name.

    Without a name, and as ``@handler`` without parentheses, the handler is named like the function.
    ``config_schema``: a JSON Schema, or a class that has one: a pydantic model, a dataclass, a struct.
    """
    if callable(name):
        return handler()(name)
    if name is not None and not isinstance(name, str):
        raise TypeError(f'a handler\'s name is a string, such as @handler("shout"), not {name!r:.80}')

    def register(function: _Function) -> _Function:
        schema = schema_of_class(config_schema) if isinstance(config_schema, type) else config_schema
        own_name = str(name or getattr(function, "__name__", type(function).__name__))
        _DEFAULT.add(Handler(own_name, HandlerKind.USER, function, schema))
        return function

    return register
