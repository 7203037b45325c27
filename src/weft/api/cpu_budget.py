"""The CPU that one request may take to read and to compile its document."""

from __future__ import annotations

import time

from weft.definition.validation import CompileBudgetError


class CpuBudget:
    """Counts the CPU of the thread that calls it, from the first call on; raises CompileBudgetError."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._ends: float | None = None

    def __call__(self) -> None:
        now = time.thread_time()
        if self._ends is None:
            self._ends = now + self._seconds
        elif now > self._ends:
            raise CompileBudgetError(
                f"this takes more than {self._seconds:g} s of CPU (WEFT_MAX_COMPILE_CPU); make the "
                "definition smaller, or its templates and conditions shorter"
            )
