"""The contract of a handler: its function, its context, and the errors that it raises."""

from __future__ import annotations

import inspect
import logging
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from math import isfinite
from typing import TYPE_CHECKING, Any

import msgspec

from weft.core.payload import Json  # noqa: TC001 - the decoder reads the annotations
from weft.core.state import NodeState  # noqa: TC001 - the same
from weft.core.time import MICROSECONDS
from weft.errors import (
    Cancelled,
    Failure,
    HandlerError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from weft.handlers.http.outbound import Outbound
    from weft.tracing.contract import Tracing

# A longer message of ``context.progress`` is cut: a bar has one line.
MAX_PROGRESS_CHARACTERS = 500
# Larger integers are kept as floats: JSON readers in other languages have no others.
_MAX_EXACT = 2**53

# The handler that calls a user's function by reference. Who places its calls looks at the function.
PYTHON = "python"

_LOGGER = logging.getLogger("weft.handlers")


class HandlerKind(StrEnum):
    """Where a handler's function may run."""

    # Ships with weft: a plain function of the config that cannot block. It runs where it is called.
    INSTANT = "instant"
    # Ships with weft: a coroutine function of (config, context). It runs on the worker's loop.
    NATIVE = "native"
    # A user's function of (config, context). On a server it never runs in the worker's process.
    USER = "user"


@dataclass(frozen=True, slots=True)
class Handler:
    name: str
    kind: HandlerKind
    function: Callable[..., Any]
    config_schema: Json = None
    # False: it has the context, and never asks it for facts of the execution.
    asks_for_facts: bool = True
    # Fields of the config that are schemas themselves: their cost is counted with the definition.
    schema_fields: tuple[str, ...] = ()

    @property
    def queue(self) -> str:
        """The lane its tasks travel on where a node names none."""
        return self.name


@dataclass(slots=True)
class StopSignal:
    """A flag that is set once, from any thread: the attempt should come to an end."""

    requested: bool = False


class ParentNode(msgspec.Struct, frozen=True, kw_only=True):
    """A settled parent of a node. ``output`` is None unless the parent completed."""

    state: NodeState
    output: Json = None
    error: Failure | None = None


class ExecutionFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The execution around an attempt, as its context shows it."""

    input: Json
    labels: dict[str, str]
    workflow: str | None
    version: int | None
    is_last_attempt: bool
    parents: dict[str, ParentNode]


class FactsSource(ABC):
    """Reads the facts of an execution once, when a function first asks for one of them."""

    def __init__(self) -> None:
        self.payload: bytes | None = None
        self._facts: ExecutionFacts | None = None

    def get(self) -> ExecutionFacts:
        if self._facts is None:
            if self.payload is None:
                self.payload = self.load()
            self._facts = msgspec.json.decode(self.payload, type=ExecutionFacts)
        return self._facts

    @abstractmethod
    def load(self) -> bytes:
        """Return the facts as JSON; it may block, and is called from any thread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerContext:
    """The context of the attempt that a handler runs."""

    execution_id: str
    node_id: str
    generation: int
    attempt: int
    # In UTC. At this moment the attempt is asked to stop; what it returns later does not count.
    deadline: datetime
    stop: StopSignal = field(default_factory=StopSignal, repr=False)
    facts: FactsSource | None = field(default=None, repr=False)
    # Secrets granted to the node, by the names that the node uses: ``context.secrets["API_KEY"]``.
    secrets: GrantedSecrets = field(default_factory=lambda: GrantedSecrets(), repr=False)
    # Takes (done, total, message) of ``progress``; None: nobody could see it.
    show_progress: Callable[[int | float, int | float | None, str | None], None] | None = field(
        default=None, repr=False
    )
    # The W3C header by which what the function calls joins the trace of its attempt: send it along. Where the
    # server exports no spans it is what the execution's caller sent; None: there is no trace.
    traceparent: str | None = None
    # Of a node that polls: the number of the look, which its attempts share; 0: the node does not poll.
    look: int = 0

    @property
    def input(self) -> Json:
        """The execution's input."""
        return self._known().input

    @property
    def labels(self) -> Mapping[str, str]:
        """The execution's labels."""
        return self._known().labels

    @property
    def workflow(self) -> str | None:
        """The name of the workflow; None for a definition without a name."""
        return self._known().workflow

    @property
    def version(self) -> int | None:
        """The version of the workflow; None for a definition that is not deployed."""
        return self._known().version

    @property
    def is_last_attempt(self) -> bool:
        """True if a failure of this attempt fails the node for good."""
        return self._known().is_last_attempt

    @property
    def parents(self) -> Mapping[str, ParentNode]:
        """The node's parents by id, each with ``state``, ``output`` and ``error``."""
        return self._known().parents

    def _known(self) -> ExecutionFacts:
        if self.facts is None:
            raise HandlerError("this context knows nothing of an execution")
        return self.facts.get()

    @property
    def idempotency_key(self) -> str:
        """The same for every attempt of a node in one generation, or of one look of a node that polls."""
        key = f"{self.execution_id}/{self.node_id}/{self.generation}"
        return f"{key}/{self.look}" if self.look else key

    @property
    def logger(self) -> logging.LoggerAdapter[logging.Logger]:
        facts = {"execution": self.execution_id, "node": self.node_id, "attempt": self.attempt}
        return logging.LoggerAdapter(_LOGGER, facts)

    def cancelled(self) -> bool:
        """True if the attempt was asked to stop; a long-running function should check this regularly."""
        return self.stop.requested

    def heartbeat(self) -> None:
        """Raise ``weft.Cancelled`` if the attempt was asked to stop; it costs nothing otherwise."""
        if self.stop.requested:
            raise Cancelled("the attempt was asked to stop")

    def progress(self, done: float, total: float | None = None, message: str | None = None) -> None:
        """Show how far the attempt has come: ``done`` of ``total``, in any unit, and what it does now.

        May be called as often as one likes, from any thread: about twice a second the last call is shown.
        """
        amounts = _finite("done", done), None if total is None else _finite("total", total)
        if self.show_progress is not None:
            self.show_progress(*amounts, None if message is None else str(message))


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeContext(HandlerContext):
    """The context of a handler that ships with weft, which may also call services outside."""

    way_out: Outbound | None = field(default=None, repr=False)
    # Makes a span of each call; None: nobody exports spans.
    tracing: Tracing | None = field(default=None, repr=False)

    @property
    def outbound(self) -> Outbound:
        if self.way_out is None:
            raise HandlerError("this worker cannot call services outside")
        return self.way_out


@dataclass(frozen=True, slots=True)
class LargeOutput:
    """The return value of a handler that ships with weft where encoding the value as JSON takes long.

    The worker writes it in a thread: on the loop it would hold up every other attempt.
    """

    value: Any


@dataclass(frozen=True, slots=True)
class Invocation:
    """A function with all its arguments: only the call is left to do."""

    # What is called, by name: the handler, or the function that ``python`` was asked for.
    target: str
    is_coroutine: bool
    call: Callable[[], Any]
    # Whether it was given the context.
    takes_context: bool = False


class GrantedSecrets(dict[str, str]):
    """The secrets of one attempt: those in the node's field ``secrets``, and those that its config names."""

    def __missing__(self, name: str) -> str:
        raise BadConfig(
            f"this node was not granted the secret {name!r}: add the name to the field `secrets` of the node"
        )

    def __repr__(self) -> str:
        return f"GrantedSecrets({', '.join(self)})"


class BadConfig(HandlerError):  # noqa: N818 - named like its code
    """The resolved config does not fit the handler; the same config would not fit it the next time."""

    code = "bad_config"
    retryable = False


class BadInput(HandlerError):  # noqa: N818 - named like its code
    """An argument does not fit the annotation of its parameter; another attempt would get the same value."""

    code = "bad_input"
    retryable = False


class UnknownHandler(HandlerError):  # noqa: N818 - as above
    """A handler that this process does not have. weft retries: in a roll-out, another worker may have it."""

    code = "bad_config"


class FunctionNotAllowed(HandlerError):  # noqa: N818 - named like its code
    """The function is neither registered nor on the allow-list of this worker."""

    code = "function_not_allowed"
    retryable = False


def _finite(name: str, value: Any) -> int | float:
    """Return a number of ``context.progress`` as JSON can hold it; numpy's numbers are numbers too."""
    try:
        number = float("nan" if isinstance(value, str | bytes) else value)
    except (TypeError, ValueError, OverflowError):
        number = float("nan")
    if not isfinite(number):
        raise ValueError(f"context.progress takes a finite number as {name!r}, not {value!r:.80}")
    return int(number) if number.is_integer() and abs(number) <= _MAX_EXACT else number


def deadline_after(now: int, timeout_seconds: float) -> datetime:
    """Return the time ``timeout_seconds`` after ``now``, which is engine time in microseconds."""
    return datetime.fromtimestamp(now / MICROSECONDS, UTC) + timedelta(seconds=timeout_seconds)


def is_coroutine_function(function: Callable[..., Any]) -> bool:
    """True if calling the function returns a coroutine; an object with ``async def __call__`` counts."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(type(function), "__call__", None)  # noqa: B004 - the method itself is wanted
    )
