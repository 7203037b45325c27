"""The asker of a check in the current task: a caller of the API, or an execution."""

from __future__ import annotations

from contextvars import ContextVar

current_asker: ContextVar[str] = ContextVar("weft_asker", default="")
