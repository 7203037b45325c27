"""Answers of a test to the nodes that wait for one, and the check that somebody will answer."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from weft.core.state import SETTLED, NodeState
from weft.definition.suggestion import Suggester
from weft.definition.waits import WaitKind
from weft.errors import NotAllowedError
from weft.orchestrator.waits.answers import answer
from weft.sdk.waiting import NodeWait, begun_waits

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from weft.core.ledger.changes import RecordedEvent
    from weft.core.payload import Json
    from weft.definition.plan import Plan
    from weft.engine import Engine


class GivenAnswers:
    """The answers of one execution, by the id of a node or by the name of a signal."""

    def __init__(self, given: Mapping[str, Json], plan: Plan) -> None:
        self._signals = {
            node_id: rule.name for node_id, rule in plan.waits.items() if rule.kind is WaitKind.SIGNAL
        }
        known = {*self._signals, *self._signals.values()}
        unknown = [name for name in given if name not in known]
        if unknown:
            hints = (f"{name!r}{Suggester().hint(name, known)}" for name in unknown)
            raise ValueError(f"nothing waits for this answer: {', '.join(hints)}")
        self._given = given
        self._engine: Engine | None = None
        self._answering: set[asyncio.Task[None]] = set()
        # Done, with what went wrong, where an answer was refused.
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def begin(self, engine: Engine) -> None:
        """Answer with this engine from now on."""
        self._engine = engine

    def receive(self, recorded_events: Sequence[RecordedEvent]) -> None:
        """Answer the waits that begin."""
        for recorded_event in recorded_events:
            for wait in begun_waits(recorded_event):
                if wait.is_for_answer and self._name(wait.node_id) is not None:
                    task = asyncio.ensure_future(self._answer(wait))
                    self._answering.add(task)
                    task.add_done_callback(self._answered)

    async def _answer(self, wait: NodeWait) -> None:
        assert self._engine is not None
        name = self._name(wait.node_id)
        assert name is not None
        with suppress(NotAllowedError):  # the execution was stopped in the same moment
            await answer(wait.execution_id, wait.node_id, self._given[name], self._engine.ports)

    def _answered(self, task: asyncio.Task[None]) -> None:
        self._answering.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None and not self.failed.done():
            self.failed.set_exception(error)

    def _name(self, node_id: str) -> str | None:
        """Return the name of the answer to a node; that of the node goes before that of its signal."""
        names = (node_id, self._signals.get(node_id))
        return next((name for name in names if name in self._given), None)

    async def unanswered(self, execution_id: str, engine: Engine, *, look_seconds: float) -> None:
        """Raise ValueError once an execution does nothing but wait for answers that nobody has."""
        while True:
            await asyncio.sleep(look_seconds)
            nodes = (await engine.describe(execution_id))["nodes"]
            active = [node for node in nodes if node["state"] not in {*SETTLED, NodeState.PENDING}]
            open_ids = [
                node["id"] for node in active if node["state"] == NodeState.WAITING and node["due_at"] is None
            ]
            if open_ids and len(open_ids) == len(active) and not self._answering:
                named = ", ".join(map(repr, open_ids))
                raise ValueError(
                    f"nobody answers {named}: give the test an answer, as in answers={{{open_ids[0]!r}: …}}"
                )
