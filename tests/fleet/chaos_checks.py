"""What has to be true of a chaotic run once it is calm; what is not is listed in words.

- every submit that was answered is one execution, there is no other, and its key still leads to it (I1, I22);
- all of them complete within a bound (I8), and the trace checker finds nothing in their histories;
- each node was called with its parents' accepted answers, and what was accepted is an answer it got (I4, I7);
- no attempt without a cause (I14): what a worker had is lost while that worker or Redis is struck; what
  nobody was known to have, after Redis was lost, or where a fault struck its submit. One fault costs a node
  one attempt at most, and there are no more calls than attempts;
- Redis holds nothing more of them: no entry, no lease, no hot state (I23);
- no process has ended by itself, and none has logged an error (I25).
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.fleet.chaos_faults import EVERYBODY, REDIS, Kind
from tests.fleet.harness import check_calls, is_wrong

from weft.cli.trace import read_journal
from weft.core.time import MICROSECONDS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.fleet.chaos_faults import Fault
    from tests.fleet.harness import RunningFleet
    from tests.tracecheck import DrawnNode

    from weft.cli.trace import Trace
    from weft.core.rows import History
    from weft.testing.recording_service import RecordedCall

# What Redis does not have is rebuilt execution by execution: what became ready so long after a fault may
# still be taken for handed out, and be given up when a lease is over. And for so long after its commit, a
# submit may be on its way into Redis.
REBUILD_SECONDS = 5.0
# How an attempt ends after which there is another.
_IN_VAIN = ("node.lost", "node.retrying")
# Requests at once, when all executions are asked for.
_AT_ONCE = 32


@dataclass(frozen=True, slots=True)
class Strike:
    """A fault as it happened, in microseconds since 1970; it is over when what it hit is at work again."""

    fault: Fault
    began_at: int
    ended_at: int

    @property
    def loses_redis(self) -> bool:
        return self.fault.kind in (Kind.FLUSH, Kind.REDIS)

    def parts(self, worker: str) -> bool:
        """True if it may keep a worker from its heartbeat."""
        fault = self.fault
        if fault.kind in (Kind.KILL, Kind.FREEZE):
            return fault.whom == worker
        return self.loses_redis or (fault.server == REDIS and fault.whom in (worker, EVERYBODY))

    def overlaps(self, begin: int, end: int) -> bool:
        return self.began_at <= end and begin <= self.ended_at


@dataclass
class Reckoning:
    """What came of a run; ``wrong`` is empty where all is as it should be."""

    strikes: Sequence[Strike]
    # Process → member.
    names: Mapping[int, str]
    wrong: list[str] = field(default_factory=list)
    executions: int = 0
    nodes: int = 0
    calls: int = 0
    # Attempts that ended without a result, with a worker and orphaned, and those that failed.
    lost: int = 0
    orphaned: int = 0
    failed: int = 0
    # From the end of the last fault to that of the last execution.
    settled_seconds: float = 0.0

    def __str__(self) -> str:
        verdict = "nothing is lost, nothing counts twice, nothing is left over"
        return (
            f"{self.executions:,} executions, {self.nodes:,} nodes, {self.calls:,} calls; "
            f"{len(self.strikes):,} faults cost {self.lost:,} attempts with their workers, {self.orphaned:,} "
            f"that nobody was known to have, and {self.failed:,} that failed; all was terminal "
            f"{self.settled_seconds:.1f} s after the last fault; "
            + (f"{len(self.wrong)} things are wrong" if self.wrong else verdict)
        )

    # -- one check each --------------------------------------------------------------------------------

    async def check_terminal(
        self, fleet: RunningFleet, executions: Mapping[str, Sequence[DrawnNode]], *, within_seconds: float
    ) -> None:
        """Wait for all of them, and hold each that is terminal against what is known of it."""
        self.executions = len(executions)
        slots = asyncio.Semaphore(_AT_ONCE)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + within_seconds

        async def terminal(execution_id: str) -> Any:
            async with slots:
                try:
                    async with asyncio.timeout_at(deadline):
                        return await fleet.api.terminal(execution_id)
                except TimeoutError:
                    return await fleet.api.get(f"/v1/executions/{execution_id}")

        shown = await asyncio.gather(*map(terminal, executions))
        calls: dict[str, list[RecordedCall]] = defaultdict(list)
        for call in fleet.service.calls:
            calls[call.execution].append(call)
        self.calls = len(fleet.service.calls)
        for execution, graph in zip(shown, executions.values(), strict=True):
            self.nodes += len(graph)
            if execution["state"] != "COMPLETED":
                self._say_unfinished(execution, within_seconds)
                continue
            trace = await read_journal(fleet.journal, execution["id"])
            self.wrong += [f"{execution['id']}: {violation}" for violation in trace.check()]
            try:
                # How many are too many is asked below.
                check_calls(execution, graph, calls[execution["id"]], faults=len(self.strikes))
            except AssertionError as error:
                self.wrong.append(f"{execution['id']}: {error}")
            self.check_attempts(execution, graph, trace, calls[execution["id"]])

    def _say_unfinished(self, execution: Mapping[str, Any], within_seconds: float) -> None:
        open_nodes = [
            f"{node['id']} {node['state']} attempt {node['attempt']}"
            for node in execution["nodes"]
            if node["state"] not in ("COMPLETED", "SKIPPED", "CANCELLED")
        ]
        when = f"{within_seconds:.0f} s into the calm"
        error = execution["error"] or ""
        self.wrong.append(f"{execution['id']} is {execution['state']} {when}: {error} {open_nodes[:5]}")

    def check_attempts(
        self,
        execution: Mapping[str, Any],
        graph: Sequence[DrawnNode],
        trace: Trace,
        calls: Sequence[RecordedCall],
    ) -> None:
        """Ask for a cause of every attempt but the first, and for an attempt of every call."""
        settled_at = {event.node: event.at for event in trace.history if event.type == "node.completed"}
        made = Counter(call.node for call in calls)
        for node, shown in zip(graph, execution["nodes"], strict=True):
            where = f"{execution['id']} {node.id}"
            submitted_at = trace.history[0].at
            ready_at = max((settled_at[parent] for parent in node.parents), default=submitted_at)
            ends = [event for event in trace.history if event.node == node.id and event.type in _IN_VAIN]
            explained: set[Strike] = set()
            for event in ends:
                causes = self.causes(event, ready_at=ready_at, submitted_at=submitted_at)
                if not causes:
                    self.wrong.append(
                        f"{where}: attempt {event.attempt} was in vain, and no fault explains it"
                    )
                explained |= causes
            if shown["attempt"] - 1 > len(explained):
                self.wrong.append(
                    f"{where}: attempt {shown['attempt']}, which {len(explained)} faults explain"
                )
            if made[node.id] > shown["attempt"]:
                self.wrong.append(f"{where}: {made[node.id]} calls in {shown['attempt']} attempts")
        last = max(settled_at.values())
        over_at = max((strike.ended_at for strike in self.strikes), default=last)
        self.settled_seconds = max(self.settled_seconds, (last - over_at) / MICROSECONDS)

    def causes(self, event: History, *, ready_at: int, submitted_at: int) -> set[Strike]:
        """Return the faults that may have cost an attempt."""
        if event.worker is None:
            self.orphaned += 1
            # Redis has lost it, or whoever submitted it could not tell Redis of it.
            rebuild = int(REBUILD_SECONDS * MICROSECONDS)
            return {
                strike
                for strike in self.strikes
                if (strike.loses_redis and strike.overlaps(ready_at - rebuild, event.at))
                or strike.overlaps(submitted_at, submitted_at + rebuild)
            }
        if event.type == "node.lost":
            self.lost += 1
        else:
            self.failed += 1
        worker = self.names[int(event.worker.rsplit("-", 2)[1])]
        assert event.started_at is not None
        return {
            strike
            for strike in self.strikes
            if strike.parts(worker) and strike.overlaps(event.started_at, event.at)
        }

    async def check_submits(self, fleet: RunningFleet, accepted: Mapping[str, str]) -> None:
        """Ask for exactly one execution for each submit that was answered."""
        if len(set(accepted.values())) < len(accepted):
            self.wrong.append("two submits were answered with the same execution")
        there = await fleet.api.executions()
        for what, ids in (
            ("accepted, and not listed", set(accepted.values()) - set(there)),
            ("listed, and not asked for", set(there) - set(accepted.values())),
        ):
            self.wrong += [f"{execution_id}: {what}" for execution_id in sorted(ids)]

    async def check_left(self, fleet: RunningFleet) -> None:
        """Ask Redis for what is left, and the processes for how they fared."""
        try:
            await fleet.quiet()
        except AssertionError as error:
            self.wrong.append(str(error))
        for member in fleet.members:
            self.wrong += [
                f"{member.role} {member.pid} logged {line}" for line in member.log if is_wrong(line)
            ]
