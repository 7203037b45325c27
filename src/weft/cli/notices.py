"""Prints notices of nodes while an execution runs: the lines that they print, and their retries."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from weft.cli.printing import write_error
from weft.core.time import rfc3339
from weft.definition.model import DEFAULT_MAX_RETRIES
from weft.drawing.escaping import escaped
from weft.sdk.progress import NodeLine, seconds_text
from weft.sdk.waiting import begun_waits

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from weft.core.ledger.changes import RecordedEvent
    from weft.sdk.waiting import NodeWait
    from weft.worker.logs import ShownLine

# Of so many waits a notice is printed; a graph may have thousands.
MAX_WAITS = 20


@dataclass(slots=True)
class NodeNotices:
    """Lines that wait for the next look at an execution, or go to stderr at once where nobody looks."""

    # Of each node: how often it may be started in a generation.
    attempts: Mapping[str, int]
    waits: bool = True
    # Says how the wait of a node is answered; an empty text says nothing.
    how_to_answer: Callable[[str, str], str] = lambda execution_id, node_id: ""
    _lines: list[NodeLine] = field(default_factory=list)
    _waits_shown: int = 0
    _retries: Counter[tuple[int, str]] = field(default_factory=Counter)

    def take(self) -> list[NodeLine]:
        lines, self._lines = self._lines, []
        return lines

    def stop_waiting(self) -> None:
        """Write what waits, and from now on all that comes, to stderr."""
        self.waits = False
        self._write()

    def show(self, shown: Sequence[ShownLine]) -> None:
        """Take lines of the embedded engine."""
        for one in shown:
            line = one.line
            self.printed(
                {
                    "node": one.node_id,
                    "stream": line.stream,
                    "level": line.level,
                    "logger": line.logger,
                    "message": line.message,
                }
            )

    def printed(self, line: Mapping[str, Any]) -> None:
        """Take a line as the API tells it."""
        node = line["node"] or ""
        self._add(node, [f"{node} │ {text}" for text in line_texts(line)], at=line.get("at") or "")

    def receive(self, recorded_events: Sequence[RecordedEvent]) -> None:
        """Take what the embedded engine has recorded."""
        for recorded_event in recorded_events:
            for node_wait in begun_waits(recorded_event):
                self.waiting(node_wait)
            for event in recorded_event.events:
                if event.type == "node.retrying" and event.due_at is not None:
                    self.retrying(
                        {
                            "generation": event.generation,
                            "node": event.node,
                            "error": event.error,
                            "at": rfc3339(event.at),
                            "due_at": rfc3339(event.due_at),
                        }
                    )

    def waiting(self, wait: NodeWait, *, at: str = "") -> None:
        """Take a node that waits; of many, the first ones."""
        if self._waits_shown == MAX_WAITS:
            return
        self._waits_shown += 1
        texts = [f"WAITING {wait.text}"]
        if wait.is_for_answer and (how := self.how_to_answer(wait.execution_id, wait.node_id)):
            texts.append(f"  {how}")
        self._add(wait.node_id, texts, at=at)

    def retrying(self, event: Mapping[str, Any]) -> None:
        """Take a ``node.retrying`` event as the API tells it."""
        node, error = event["node"], event.get("error") or {}
        self._retries[event["generation"], node] += 1
        number = 1 + self._retries[event["generation"], node]
        details = error.get("details")
        why = (details.get("type") if isinstance(details, dict) else None) or error.get("code", "")
        most = f"/{self.attempts[node]}" if node in self.attempts else ""
        wait = ""
        if event.get("due_at"):
            seconds = datetime.fromisoformat(event["due_at"]) - datetime.fromisoformat(event["at"])
            wait = f", next in {seconds_text(max(0.0, seconds.total_seconds()))}"
        self._add(node, [f"RETRYING {node} {number}{most}: {why}{wait}"], at=event.get("at") or "")

    def _add(self, node: str, texts: Sequence[str], *, at: str) -> None:
        self._lines += [NodeLine(node, escaped(text), at) for text in texts]
        if not self.waits:
            self._write()

    def _write(self) -> None:
        if taken := self.take():
            write_error("".join(f"{line.text}\n" for line in taken))


def attempts_of(definition: Mapping[str, Any]) -> dict[str, int]:
    """Return how often each node of a stored definition may be started in a generation."""
    usual = (definition.get("defaults") or {}).get("max_retries", DEFAULT_MAX_RETRIES)
    return {node["id"]: 1 + node.get("max_retries", usual) for node in definition["nodes"]}


def line_texts(line: Mapping[str, Any]) -> list[str]:
    """Return what a line says, a text for each line on the screen; a logged one begins with its level."""
    text: str = line["message"]
    if line["stream"] == "log":
        text = f"{line['level']} {line['logger']}: {text}"
    return text.split("\n")
