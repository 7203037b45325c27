"""Every exception weft raises.

::

    WeftError
    ├── DefinitionError          a definition breaks the rules; .problems lists all of them
    ├── InputError               an execution's input does not fit its schema; .problems
    ├── RequestError             a call names what does not fit what it is about; .problems
    ├── DocumentError            text that is not JSON or YAML as weft reads it
    │   └── DocumentTooLargeError  more values than a document, or a response, may have
    ├── PayloadError             a value that cannot be stored: not JSON, too large, too deep
    ├── ExpressionError          an expression that does not parse
    ├── EvaluationError          an expression that fails on its data: a missing path, a bound passed
    ├── NotAllowedError          a control call that the execution's state forbids; .state
    ├── NotFoundError            no such workflow, execution or node
    ├── ClaimedError             an idempotency key that stands for something already; .resource
    ├── TriggerChangedError      a trigger that has fired or was changed since a start of it was decided
    ├── StillRunningError        executions of a trigger that are to be cancelled before a start; .executions
    ├── ExecutionFailed          what ``raise_for_state`` raises; .execution, .state, .error
    ├── ApiError                 what a server answered instead of what was asked; .status, .code, .problems
    ├── UnreachableError         no server could be reached
    ├── SettingsError            a setting that cannot be used
    ├── DataFolderError          a data folder that is held by another process, or newer than this weft
    ├── JournalError             the journal cannot be reached or did not commit
    │   ├── OutcomeUnknownError  a commit was sent and its answer was lost
    │   ├── SchemaError          the schema of the database is behind this weft, or too new for it
    │   └── UnstorableError      something in the batch can never be stored; nothing of it was
    ├── StoreError               the store or the transport cannot be reached, or lost the call
    └── HandlerError             what a handler says of its own failure
        ├── Cancelled            what ``context.heartbeat()`` raises in an attempt that was asked to stop
        ├── NonRetryable         another attempt would fail the same way
        └── RetryAfter           another attempt, but not before .seconds have passed
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with a document, and where: a JSON pointer (RFC 6901) into it."""

    pointer: str
    message: str
    # In the file that the document was read from, where that is known.
    line: int | None = None

    def __str__(self) -> str:
        # The whole of a document has the empty pointer.
        text = f"{self.pointer}: {self.message}" if self.pointer else self.message
        return text if self.line is None else f"line {self.line}: {text}"


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """Why a node or an execution failed. ``error["code"]`` reads what ``error.code`` does."""

    code: str
    message: str
    retryable: bool = False
    node: str | None = None
    details: dict[str, Any] = {}

    def __getitem__(self, key: str) -> Any:
        if key not in self.__struct_fields__:
            raise KeyError(key)
        return getattr(self, key)

    def get(self, key: str, default: Any = None) -> Any:
        return getattr(self, key) if key in self.__struct_fields__ else default

    def keys(self) -> tuple[str, ...]:
        return self.__struct_fields__


class WeftError(Exception):
    """The root of weft's errors."""


class _ProblemsError(WeftError):
    subject = "document"

    def __init__(self, problems: list[Problem]) -> None:
        self.problems = problems
        shown = "\n".join(f"  {problem}" for problem in problems[:20])
        rest = f"\n  … and {len(problems) - 20} more" if len(problems) > 20 else ""
        count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
        super().__init__(f"the {self.subject} has {count}:\n{shown}{rest}")


class DefinitionError(_ProblemsError):
    """A workflow definition breaks the rules; every problem is listed."""

    subject = "definition"


class InputError(_ProblemsError):
    """An execution's input does not fit the workflow's ``input_schema``."""

    subject = "input"


class RequestError(_ProblemsError):
    """A call names parts that its object does not have: a retry of nodes that are not in the execution."""

    subject = "request"


class DocumentError(WeftError):
    """Text that is not JSON or YAML as weft reads it."""


class DocumentTooLargeError(DocumentError):
    """Text with more values than a document may have: they would take too much memory."""


class PayloadError(WeftError):
    """A value that cannot be stored. ``code`` is one of ``not_json``, ``too_large``, ``too_deep``."""

    def __init__(self, code: str, message: str) -> None:
        self.code = code
        super().__init__(message)


class ExpressionError(WeftError):
    """An expression or template that does not parse, or uses what the language does not have."""


class EvaluationError(WeftError):
    """An expression that fails on its data: a missing path, a wrong type, a bound passed."""


class NotAllowedError(WeftError):
    """A control call that the execution's present state forbids."""

    def __init__(self, message: str, *, state: str, code: str = "not_allowed") -> None:
        self.state = state
        self.code = code
        super().__init__(message)


class NotFoundError(WeftError):
    """No such workflow, execution or node."""


class ClaimedError(WeftError):
    """An idempotency key that stands for a ``resource`` already, made by a request of that digest."""

    def __init__(self, key: str, *, request_digest: str, resource: str) -> None:
        self.request_digest = request_digest
        self.resource = resource
        super().__init__(f"the idempotency key {key!r} stands for {resource} already")


class TriggerChangedError(WeftError):
    """A trigger has fired, or was changed, since this start of it was decided; nothing was written."""


class StillRunningError(WeftError):
    """A start of a trigger waits for the cancel of the executions that run; nothing was written."""

    def __init__(self, executions: Sequence[str]) -> None:
        self.executions = executions
        super().__init__(f"{len(executions):,} executions of the trigger run; cancel them first")


class ExecutionFailed(WeftError):  # noqa: N818 - the public name
    """An execution that failed or was cancelled: its id, its state, and its error if it failed."""

    def __init__(self, message: str, *, execution: str, state: str, error: Failure | None) -> None:
        self.execution = execution
        self.state = state
        self.error = error
        super().__init__(message)


class ApiError(WeftError):
    """A server answered with a problem, which has a status and a code."""

    def __init__(
        self,
        message: str,
        *,
        status: int,
        code: str,
        problems: Sequence[Problem] = (),
        retry_after_seconds: float | None = None,
        trace_id: str | None = None,
    ) -> None:
        self.status = status
        self.code = code
        self.problems = list(problems)
        self.retry_after_seconds = retry_after_seconds
        self.trace_id = trace_id
        super().__init__(message)


class UnreachableError(WeftError):
    """No server could be reached, or it did not answer in time."""


class SettingsError(WeftError):
    """A setting that cannot be used."""


class DataFolderError(WeftError):
    """A data folder that cannot be used: held by another process, or written by a newer weft."""


class JournalError(WeftError):
    """The journal cannot be reached, or refused a commit: nothing of the batch was written."""


class OutcomeUnknownError(JournalError):
    """A commit was sent and its answer was lost: the batch may be written or not."""


class SchemaError(JournalError):
    """The schema of the database is behind this weft, which ``weft migrate`` mends; or too new for it."""


class UnstorableError(JournalError):
    """Something in the batch can never be stored, however often it is tried: nothing was written."""


class StoreError(WeftError):
    """The store or the transport cannot be reached. What was asked of it may have happened or not."""


class StoreKeyError(StoreError):
    """A key in Redis that weft needs holds another type; the message names it and says what to do."""


class HandlerError(WeftError):
    """Raised by a handler to report its own failure. ``code`` is one of the node error codes."""

    code = "handler_error"
    retryable = True
    retry_after_seconds: float | None = None


class Cancelled(HandlerError):  # noqa: N818 - the public name
    """The attempt was asked to stop: cancelled, over its time, or its worker stops."""


class NonRetryable(HandlerError):  # noqa: N818 - the public name
    """Another attempt would fail the same way: the node fails for good."""

    retryable = False


class RetryAfter(HandlerError):  # noqa: N818 - the public name
    """Try again, but not before ``seconds`` have passed."""

    def __init__(self, seconds: float, message: str = "") -> None:
        if not 0 <= seconds < float("inf"):
            raise ValueError(f"RetryAfter needs a number of seconds from 0 up, not {seconds!r}")
        self.retry_after_seconds = float(seconds)
        super().__init__(message or f"retry after {seconds:g} s")
