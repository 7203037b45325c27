"""Crash points by name: the process dies just before or just after the n-th call of a port's method.

``journal.record:after:3`` means: after the third commit of results, before anybody learns of it. The
methods of the ports are the steps of the walk, so their names say what a crash leaves behind::

    journal.submit        an execution is recorded         journal.record    a batch is recorded
    journal.rebuild       the epoch is raised              store.install     hot state is in place
    store.apply           children are free                store.queue       tasks are moved and sent
    store.start           attempts are in hand             store.report      results are on their way
    store.close           an execution is let go           transport.publish executions are announced
    transport.read        results are in hand              transport.ack     results are done with
    transport.ack_tasks   tasks are done with              transport.send    tasks that were moved are sent

Nothing of this exists in an engine that was not given to ``crashing``.
"""

from __future__ import annotations

import os
import re
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable

    from weft.ports import Ports

# Where a process that is to be killed by a test looks for its crash point.
VARIABLE = "WEFT_TEST_CRASH"

STEPS = (
    "journal.submit",
    "journal.record",
    "journal.rebuild",
    "store.install",
    "store.apply",
    "store.queue",
    "store.start",
    "store.report",
    "store.close",
    "transport.send",
    "transport.publish",
    "transport.read",
    "transport.ack",
    "transport.ack_tasks",
)

_POINT = re.compile(r"(?P<step>[a-z_.]+):(?P<side>before|after):(?P<count>[1-9][0-9]*)")


@dataclass(frozen=True, slots=True)
class CrashPoint:
    """One side of the n-th call of one step."""

    step: str
    is_after: bool
    count: int

    @classmethod
    def parse(cls, text: str) -> CrashPoint:
        """Read ``step:before:n`` or ``step:after:n``; raises ValueError for anything else."""
        match = _POINT.fullmatch(text)
        if match is None or match["step"] not in STEPS:
            raise ValueError(
                f"{text!r} is no crash point: STEP:before:N or STEP:after:N of {', '.join(STEPS)}"
            )
        return cls(match["step"], match["side"] == "after", int(match["count"]))

    def __str__(self) -> str:
        return f"{self.step}:{'after' if self.is_after else 'before'}:{self.count}"


def die() -> NoReturn:
    """End this process as ``kill -9`` does: no handler runs, nothing is flushed."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("unreachable: SIGKILL cannot be caught")


def crashing(ports: Ports, point: CrashPoint | str, *, crash: Callable[[], NoReturn] = die) -> None:
    """Let the process that uses these ports crash at that point.

    The method is replaced on the port itself: who holds the port already meets the crash, too.
    """
    if isinstance(point, str):
        point = CrashPoint.parse(point)
    port_name, method_name = point.step.split(".")
    port = getattr(ports, port_name)
    setattr(port, method_name, _counted(getattr(port, method_name), point, crash))


def _counted(
    method: Callable[..., Any], point: CrashPoint, crash: Callable[[], NoReturn]
) -> Callable[..., Any]:
    calls = 0

    async def counted(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        is_due = calls == point.count
        if is_due and not point.is_after:
            crash()
        answer = await method(*args, **kwargs)
        if is_due and point.is_after:
            crash()
        return answer

    return counted
