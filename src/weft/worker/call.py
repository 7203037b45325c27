"""One call of a handler's function, and what may become of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import msgspec

from weft.errors import WeftError
from weft.handlers.contract import PYTHON
from weft.journal.contract import DEFAULT_NAMESPACE

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Mapping

    from weft.handlers.outcome import Outcome
    from weft.worker.code_change import AttemptCode
    from weft.worker.facts import FactsReader


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerCall:
    handler: str
    # Resolved, secrets included: JSON bytes.
    config: bytes
    execution_id: str
    node_id: str
    generation: int
    attempt: int
    # Counted from when the function can start: waiting for a free process is not the function's fault.
    timeout_seconds: float
    # An earlier attempt was lost with the process it ran in. This one gets a process to itself, so that
    # whatever happens to the process is this call's doing.
    alone: bool = False
    # Reads what the context shows of the execution, as JSON of ``ExecutionFacts``; None: nothing can be read.
    facts: FactsReader | None = None
    # The secrets that its node was granted, by name.
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    # Reads what code the attempt before this one ran; None: this is the first.
    last_code: Callable[[], Awaitable[AttemptCode | None]] | None = None
    namespace: str = DEFAULT_NAMESPACE
    # Of its attempt's span; without tracing, what the execution's caller sent.
    traceparent: str | None = None
    # Of a node that polls: the number of its look.
    look: int = 0


class AttemptLostError(WeftError):
    """The process that ran the attempt is gone, and nobody knows how far the attempt came.

    ``charged`` says whether the attempt was alone in it, and so must have done it. Where others were
    there too, nobody is charged; each of them shall run ``alone`` the next time.
    """

    def __init__(self, message: str, *, charged: bool) -> None:
        self.charged = charged
        super().__init__(message)


class Caller(Protocol):
    """Something that runs calls: this process, or its children."""

    async def call(self, call: HandlerCall) -> Outcome:
        """Run a call to its end.

        A function that is not done in time is asked to stop, and its outcome is ``timeout`` whatever it
        does then. Cancelling this coroutine asks it to stop, too. Both end only when the function has
        ended, or can be waited for no longer. Raises AttemptLost where the outcome cannot be known, and
        OutOfFilesError where the function could not be started for want of a file.
        """

    def functions(self) -> Collection[str]:
        """Name what it lets ``python`` call beside this process's functions, as UserCode.allow does."""

    async def close(self) -> None:
        """Release all resources; calls still running are lost, and none is charged."""


class _PythonConfig(msgspec.Struct):
    function: str


_PYTHON_CONFIG = msgspec.json.Decoder(_PythonConfig)


def target_of(call: HandlerCall) -> str:
    """Return the handler of a call, or the function that ``python`` is asked for."""
    if call.handler != PYTHON:
        return call.handler
    try:
        return _PYTHON_CONFIG.decode(call.config).function
    except (msgspec.DecodeError, UnicodeDecodeError):
        return PYTHON  # the child will say what is wrong with it
