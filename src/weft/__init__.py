"""weft: a durable workflow engine. These are its public names; each is loaded when it is first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

    from weft.core.state import ExecutionState, NodeState
    from weft.errors import (
        ApiError,
        Cancelled,
        DataFolderError,
        DefinitionError,
        DocumentError,
        ExecutionFailed,
        Failure,
        HandlerError,
        InputError,
        JournalError,
        NonRetryable,
        Problem,
        RetryAfter,
        SettingsError,
        UnreachableError,
        WeftError,
    )
    from weft.handlers.contract import HandlerContext
    from weft.handlers.registry import handler
    from weft.sdk.client import AsyncClient, Client
    from weft.sdk.dag import StepResult, WorkflowDAG, WorkflowExecutor, WorkflowResult
    from weft.sdk.limiter import TokenBucketRateLimiter
    from weft.sdk.result import ExecutionResult, NodeResult
    from weft.sdk.run import execute, run
    from weft.sdk.workflow import Workflow

    __version__: str

__all__ = [
    "ApiError",
    "AsyncClient",
    "Cancelled",
    "Client",
    "DataFolderError",
    "DefinitionError",
    "DocumentError",
    "ExecutionFailed",
    "ExecutionResult",
    "ExecutionState",
    "Failure",
    "HandlerContext",
    "HandlerError",
    "InputError",
    "JournalError",
    "NodeResult",
    "NodeState",
    "NonRetryable",
    "Problem",
    "RetryAfter",
    "SettingsError",
    "StepResult",
    "TokenBucketRateLimiter",
    "UnreachableError",
    "WeftError",
    "Workflow",
    "WorkflowDAG",
    "WorkflowExecutor",
    "WorkflowResult",
    "__version__",
    "execute",
    "handler",
    "run",
]

_NAMES_BY_MODULE = {
    "weft.core.state": ("ExecutionState", "NodeState"),
    "weft.errors": (
        "ApiError",
        "Cancelled",
        "DataFolderError",
        "DefinitionError",
        "DocumentError",
        "ExecutionFailed",
        "Failure",
        "HandlerError",
        "InputError",
        "JournalError",
        "NonRetryable",
        "Problem",
        "RetryAfter",
        "SettingsError",
        "UnreachableError",
        "WeftError",
    ),
    "weft.handlers.contract": ("HandlerContext",),
    "weft.handlers.registry": ("handler",),
    "weft.sdk.client": ("AsyncClient", "Client"),
    "weft.sdk.dag": ("StepResult", "WorkflowDAG", "WorkflowExecutor", "WorkflowResult"),
    "weft.sdk.limiter": ("TokenBucketRateLimiter",),
    "weft.sdk.result": ("ExecutionResult", "NodeResult"),
    "weft.sdk.run": ("execute", "run"),
    "weft.sdk.workflow": ("Workflow",),
}
_MODULES = {name: module for module, names in _NAMES_BY_MODULE.items() for name in names}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        value: Any = version("weft")
    elif name in _MODULES:
        from importlib import import_module

        value = getattr(import_module(_MODULES[name]), name)
    else:
        raise AttributeError(f"module 'weft' has no attribute {name!r}")
    globals()[name] = value  # from now on without this function
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
