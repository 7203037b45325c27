"""``docs/lifecycle.md``: the tables of ``core/state.py`` as two state diagrams."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, TypeVar

from weft.core.state import EXECUTION_MOVES, NODE_MOVES, SETTLED, TERMINAL, ExecutionState, NodeState

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

State = TypeVar("State", bound=StrEnum)

_PAGE = """\
# Lifecycles

<!-- Drawn from src/weft/core/state.py by `python -m weft.drawing.lifecycle`; a test compares. -->

A state changes by these tables or not at all.

## A node

`PENDING` waits for its parents, `QUEUED` is a task on its way or one with a due time, `RUNNING` has been
started by a worker, or is a `sleep`, which needs none. `WAITING` is a `wait` node whose time has not come and
that nobody has answered. The other four are *settled*: only a retry of the execution reopens them.

{nodes}

## An execution

`RUNNING` is started, mostly in the commit that accepts it; `PENDING` was accepted while Redis was away,
or waits for its turn (a group, a trigger, a batch).
`COMPLETED`, `FAILED` and `CANCELLED` are *terminal*: every node is settled. Only a retry reopens a failed or
cancelled execution.

{executions}
"""


def lifecycle_page() -> str:
    """Write the page."""
    return _PAGE.format(
        nodes=_diagram(NODE_MOVES, first=NodeState.PENDING, last=SETTLED),
        executions=_diagram(EXECUTION_MOVES, first=ExecutionState.PENDING, last=TERMINAL),
    )


def _diagram(moves: Mapping[State, frozenset[State]], *, first: State, last: Collection[State]) -> str:
    order = list(type(first))
    lines = ["stateDiagram-v2", f"  [*] --> {first}"]
    for state in order:
        lines += [f"  {state} --> {target}" for target in order if target in moves[state]]
    lines += [f"  {state} --> [*]" for state in order if state in last]
    return "\n".join(["```mermaid", *lines, "```"])


if __name__ == "__main__":
    import sys

    sys.stdout.write(lifecycle_page())
