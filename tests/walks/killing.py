"""A workflow whose process is killed and started again, and which must lose nothing and repeat nothing.

Its nodes leave a line in a log before they do anything, so the log is the truth about what has started; the
journal, opened after the process is dead, is the truth about what was accepted. The two are held against
each other after every death and at the end.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support.crash import VARIABLE
from tests.tracecheck import merkle

from weft.clock import new_id
from weft.core.payload import decode
from weft.core.state import NodeState
from weft.journal.sqlite.journal import SqliteJournal
from weft.views.history_check import check
from weft.views.history_state import stored_rows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from weft.core.rows import ExecutionRow, History, NodeRow

# One process alone takes a second or so; this is for a machine with much else to do.
PATIENCE_SECONDS = 120

ROOT = Path(__file__).parent.parent.parent


@dataclass(frozen=True, slots=True)
class Recorded:
    """One execution as the journal has it."""

    row: ExecutionRow
    nodes: Mapping[str, NodeRow]
    events: Sequence[History]


@dataclass(frozen=True, slots=True)
class Start:
    """One line of the log: this attempt was started."""

    execution_id: str
    node_id: str
    attempt: int


@dataclass(frozen=True, slots=True)
class Seen:
    """What is true while no process lives."""

    executions: Mapping[str, Recorded]
    starts: Sequence[Start]


class Walk:
    """A definition, its data folder and its log, through any number of processes."""

    def __init__(self, folder: Path, nodes: Sequence[Mapping[str, Any]]) -> None:
        self.data = folder / "data"
        self.file = folder / "walk.json"
        self.log = folder / "starts.log"
        self.deaths = 0
        self.seen = Seen({}, ())
        self.nodes = {node["id"]: node for node in nodes}
        shutil.copy(Path(__file__).with_name("steps.py"), folder)
        self.log.touch()
        self.file.write_text(json.dumps(self._definition()))

    def _definition(self) -> dict[str, Any]:
        nodes = [
            {
                "id": node["id"],
                "handler": "python",
                "dependencies": node["parents"],
                "delivery": node.get("delivery", "at_least_once"),
                "retry": {"base_delay_seconds": 0.001, "jitter": 0},
                "config": {
                    "function": f"steps:{node.get('function', 'step')}",
                    "args": {
                        "log": str(self.log),
                        "node": node["id"],
                        "parents": [f"{{{{ {parent}.output }}}}" for parent in node["parents"]],
                    },
                },
            }
            for node in self.nodes.values()
        ]
        return {"name": "walk", "failure_policy": "continue", "nodes": nodes}

    def run(self) -> subprocess.Popen[bytes]:
        """Start ``weft run --data``; what an earlier one left is taken to its end."""
        weft = Path(sys.executable).with_name("weft")
        return self._begin([str(weft), "run", "--quiet", "--data", str(self.data), str(self.file)])

    def drive(self, *, crash_point: str = "") -> subprocess.Popen[bytes]:
        """Start the driver, which dies at the crash point if it is given one."""
        command = [sys.executable, "-m", "tests.walks.driver", str(self.file), str(self.data)]
        return self._begin(command, **({VARIABLE: crash_point} if crash_point else {}))

    def _begin(self, command: Sequence[str], **variables: str) -> subprocess.Popen[bytes]:
        environment = {**os.environ, **variables}
        return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL)

    @property
    def is_over(self) -> bool:
        """True if everything that was accepted is terminal."""
        executions = self.seen.executions.values()
        return bool(executions) and all(recorded.row.is_terminal for recorded in executions)

    def end(self, process: subprocess.Popen[bytes]) -> int:
        """Wait for a process, look at what it left, and give its exit code."""
        try:
            code = process.wait(PATIENCE_SECONDS)
        finally:
            process.kill()
            process.wait()
        self.deaths += code != 0
        self.look()
        return code

    def wait_for_starts(self, process: subprocess.Popen[bytes], count: int) -> None:
        """Return once so many attempts were started, or the process has ended."""
        wanted = len(self.seen.starts) + count
        while process.poll() is None and self.log.read_bytes().count(b"\n") < wanted:
            with suppress(subprocess.TimeoutExpired):
                process.wait(0.001)

    def look(self) -> None:
        """Read journal and log, now that the process is dead, and hold them against what was there before."""
        before, self.seen = self.seen, asyncio.run(self._read())
        for execution_id, recorded in before.executions.items():
            now = self.seen.executions[execution_id]
            assert now.events[: len(recorded.events)] == recorded.events, "history was rewritten"
            for node_id, row in recorded.nodes.items():
                if row.is_settled:
                    assert now.nodes[node_id] == row, "an accepted result was lost or replaced"
        settled = {
            (execution_id, node_id)
            for execution_id, recorded in before.executions.items()
            for node_id, row in recorded.nodes.items()
            if row.is_settled
        }
        for start in self.seen.starts[len(before.starts) :]:
            assert (start.execution_id, start.node_id) not in settled, f"settled, and run again: {start}"
        self._check_attempts()

    def check_end(self) -> None:
        """Check that every execution is terminal, with every node settled once and every output right."""
        assert self.seen.executions
        for recorded in self.seen.executions.values():
            assert recorded.row.is_terminal
            assert recorded.row.unsettled == 0
            ends = Counter(event.node for event in recorded.events if event.type == "node.completed")
            outputs: dict[str, str] = {}
            for node_id, node in self.nodes.items():
                row = recorded.nodes[node_id]
                if row.state is not NodeState.COMPLETED:
                    continue
                assert ends[node_id] == 1, f"{node_id} settled {ends[node_id]} times"
                assert row.output is not None
                outputs[node_id] = decode(row.output)
                assert outputs[node_id] == merkle(node_id, [outputs[parent] for parent in node["parents"]])
                assert Start(recorded.row.id, node_id, row.attempt) in self.seen.starts

    def _check_attempts(self) -> None:
        counts = Counter(self.seen.starts)
        assert all(count == 1 for count in counts.values()), "an attempt number was used twice"
        for start in counts:
            recorded = self.seen.executions[start.execution_id]
            row = recorded.nodes.get(start.node_id)
            current = 1 if row is None else row.attempt
            assert start.attempt <= current, f"started before it was issued: {start}"
            failures = self.nodes[start.node_id].get("function") == "stumble"
            assert current <= 1 + self.deaths + failures, "attempts were burned"

    async def _read(self) -> Seen:
        lines = self.log.read_text().splitlines()
        starts = [Start(execution, node, int(attempt)) for execution, node, attempt in map(str.split, lines)]
        journal = SqliteJournal(self.data, now=lambda: 0, new_id=new_id)
        await journal.open()
        try:
            executions = {}
            for row in await journal.executions(limit=100):
                events = await journal.events(row.id, limit=100_000)
                nodes, plan = await journal.nodes(row.id), await journal.plan(row.digest)
                assert plan is not None
                assert check(plan, events, stored_rows(row, nodes)) == []
                executions[row.id] = Recorded(row, nodes, events)
            return Seen(executions, starts)
        finally:
            await journal.close()


def layers(count: int, width: int) -> list[dict[str, Any]]:
    """Draw a root, layers behind it with up to three parents a node, and a join; some nodes stumble once."""
    nodes: list[dict[str, Any]] = [{"id": "root", "parents": []}]
    above = ["root"]
    for layer in range(count):
        names = [f"n{layer}_{i}" for i in range(width)]
        for i, name in enumerate(names):
            parents = sorted({above[(i * k + k) % len(above)] for k in (1, 2, 3)})
            function = "stumble" if (layer + i) % 5 == 3 else "step"
            nodes.append({"id": name, "parents": parents, "function": function})
        above = names
    nodes.append({"id": "join", "parents": above})
    return nodes
