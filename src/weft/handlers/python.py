"""``python``: calls a function of the user's, by reference, with ``args`` as keyword arguments.

Only functions that were registered or allow-listed in this process can be called: the reference comes
from whoever may write a definition, and must not reach the rest of Python.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from weft.errors import Problem
from weft.handlers.contract import (
    PYTHON,
    BadConfig,
    BadInput,
    Handler,
    HandlerContext,
    HandlerKind,
    Invocation,
    is_coroutine_function,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from weft.core.payload import Json
    from weft.handlers.types.decoding import Decoder, MisfitError

CONFIG_SCHEMA = {
    "type": "object",
    "required": ["function"],
    "properties": {
        "function": {"type": "string", "pattern": "^[^:]+:[^:]+$"},
        "args": {"type": "object"},
    },
    "additionalProperties": False,
}


HOW_TO_ALLOW = (
    "serve the file that has it (`weft up FILE.py` or `weft dev FILE.py`), "
    "or name it in WEFT_PYTHON_ALLOW and its module in WEFT_IMPORTS"
)


def uncallable(document: Json, allowed: Collection[str]) -> list[Problem]:
    """Return a warning for each function that a definition names and no one of ``allowed`` stands for.

    ``allowed``: ``module:name`` or ``module:*``. A function whose name is filled in later is passed over.
    """
    nodes = document.get("nodes") if isinstance(document, dict) else None
    users: dict[str, list[int]] = {}
    for index, node in enumerate(nodes if isinstance(nodes, list) else ()):
        config = node.get("config") if isinstance(node, dict) and node.get("handler") == PYTHON else None
        function = config.get("function") if isinstance(config, dict) else None
        if isinstance(function, str) and "{{" not in function:
            users.setdefault(function, []).append(index)
    warnings = []
    for function, indexes in users.items():
        if function in allowed or f"{function.partition(':')[0]}:*" in allowed:
            continue
        more = f" ({len(indexes):,} nodes name it)" if len(indexes) > 1 else ""
        message = f"no living worker may call {function!r}{more}: {HOW_TO_ALLOW}"
        warnings.append(Problem(f"/nodes/{indexes[0]}/config/function", message))
    return warnings


class Arguments:
    """Makes the arguments of one function what their annotations ask for."""

    def __init__(
        self, reference: str, function: Callable[..., Any], parameters: Mapping[str, inspect.Parameter]
    ) -> None:
        """``parameters``: those that args may fill."""
        self._reference = reference
        self._function = function
        self._parameters = parameters
        is_annotated = any(each.annotation is not each.empty for each in self._parameters.values())
        # By parameter, and under ``**`` for the parameter of that kind. Made at the first call: a process
        # that only knows the function need not load its types.
        self._decoders: dict[str, Decoder] | None = None if is_annotated else {}

    def decoded(self, args: dict[str, Json]) -> dict[str, Any]:
        """Return the arguments, each as the type of its annotation, or raise BadInput."""
        decoded: dict[str, Any] = dict(args)
        decoders = self._decoders
        if decoders is None:
            decoders = self._decoders = self._compile()
        if decoders:
            from weft.handlers.types.decoding import MisfitError

            for name, value in args.items():
                decode = decoders.get(name if name in self._parameters else "**")
                if decode is not None:
                    try:
                        decoded[name] = decode(value)
                    except MisfitError as misfit:
                        raise self._refusal(name, value, misfit) from None
        return decoded

    def _compile(self) -> dict[str, Decoder]:
        from weft.handlers.types.annotations import hints_of
        from weft.handlers.types.decoding import decoder_of

        hints = hints_of(self._function)
        decoders = {}
        for name, parameter in self._parameters.items():
            decoder = decoder_of(hints[name]) if name in hints else None
            if decoder is not None and parameter.kind is not parameter.VAR_POSITIONAL:
                decoders["**" if parameter.kind is parameter.VAR_KEYWORD else name] = decoder
        return decoders

    def _refusal(self, name: str, value: Json, misfit: MisfitError) -> BadInput:
        from weft.handlers.types.encoding import path_text

        part = f"{path_text(misfit.path)[:300]} of {name!r}" if misfit.path else repr(name)
        hint = ""
        if value is None:
            hint = (
                "; where a parent may not complete or may return None, annotate the parameter with '| None'"
            )
        return BadInput(f"{self._reference} cannot take its argument: {part} is {misfit.reason}{hint}")


@dataclass(frozen=True, slots=True)
class PythonFunction:
    """A function that may be called, with what a call needs to know about it."""

    reference: str
    function: Callable[..., Any]
    is_coroutine: bool
    takes_context: bool
    # None for a few builtins that do not tell.
    signature: inspect.Signature | None
    arguments: Arguments = field(repr=False)

    def bind(self, args: dict[str, Json], context: HandlerContext) -> Invocation:
        arguments = self.arguments.decoded(args)
        if self.takes_context:
            if "context" in arguments:
                # The function would take what a definition, or an input, says for what the worker says: its
                # idempotency key, whether it was cancelled.
                raise BadConfig(
                    f"args do not fit {self.reference}: its parameter 'context' is filled in by weft; "
                    "rename the parameter if args should fill it"
                )
            arguments["context"] = context
        if self.signature is not None:
            # Arguments that do not fit are an error of the definition: another attempt would not mend it,
            # while a TypeError from inside the function might be anything.
            try:
                self.signature.bind(**arguments)
            except TypeError as error:
                raise BadConfig(f"args do not fit {self.reference}: {error}") from None
        call = partial(self.function, **arguments)
        return Invocation(self.reference, self.is_coroutine, call, takes_context=self.takes_context)


def describe(reference: str, function: Callable[..., Any]) -> PythonFunction:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        signature = None
    parameters = {} if signature is None else dict(signature.parameters)
    parameter = parameters.get("context")
    takes_context = parameter is not None and parameter.kind in (
        parameter.POSITIONAL_OR_KEYWORD,
        parameter.KEYWORD_ONLY,
    )
    if takes_context:
        # weft fills it in: its annotation is never decoded into.
        del parameters["context"]
    return PythonFunction(
        reference=reference,
        function=function,
        is_coroutine=is_coroutine_function(function),
        takes_context=takes_context,
        signature=signature,
        arguments=Arguments(reference, function, parameters),
    )


def bind(resolve: Callable[[str], PythonFunction], config: Json, context: HandlerContext) -> Invocation:
    """Find the function that a config asks for, and give it its arguments."""
    # Checked by hand: a child process that never sees a JSON Schema need not load the library for it.
    if not isinstance(config, dict) or not isinstance(config.get("function"), str):
        raise BadConfig("config needs a string 'function', such as \"module:name\"")
    unknown = sorted(config.keys() - {"function", "args"})
    if unknown:
        raise BadConfig(f"config has 'function' and 'args', not {', '.join(map(repr, unknown))}")
    args = config.get("args", {})
    if not isinstance(args, dict):
        raise BadConfig("config 'args' must be an object: the keyword arguments of the function")
    return resolve(config["function"]).bind(args, context)


def handler(resolve: Callable[[str], PythonFunction]) -> Handler:
    def call(config: Json, context: HandlerContext) -> Any:
        return bind(resolve, config, context).call()

    return Handler(PYTHON, HandlerKind.USER, call, CONFIG_SCHEMA)
