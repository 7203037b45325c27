"""What must hold, looked at after every effect (the numbers are those of docs/proof.md).

What is stored is replayed as it grows: each new event of an execution's history is held against all that
happened before it, so that a look costs what has changed and not what there is.
"""

from __future__ import annotations

from collections import Counter
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.support.simulation.calls import Calls
from tests.support.simulation.pace import SLOTS
from tests.support.simulation.violation import Violation
from tests.support.simulation.waits import Waits

from weft.core.event import (
    AttemptFailed,
    AttemptIssued,
    AttemptParked,
    CallStarted,
    ChildEnded,
    HotStateEvicted,
    NodeCompleted,
    NodeFailed,
    ParkedDue,
    SignalReceived,
    WaitAnswered,
    WaitDue,
    WaitStarted,
)
from weft.core.ledger.changes import Verdict
from weft.core.payload import decode
from weft.core.readiness import EARLY_RULES, READY, readiness
from weft.core.state import TERMINAL, ExecutionState, NodeState, Reason
from weft.core.time import MICROSECONDS, micros
from weft.definition.model import TriggerRule
from weft.store.contract import Answer
from weft.views import history_check as trace
from weft.views.history_state import stored_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.support.simulation.caller import Request
    from tests.support.simulation.scheduler import Actor
    from tests.support.simulation.world import World

    from weft.core.ledger.changes import RecordedEvent
    from weft.core.rows import ExecutionRow, History, NodeRow
    from weft.core.task import Result, Task
    from weft.definition.plan import Plan
    from weft.journal.contract import LaneRelease
    from weft.store.contract import Lease, Started, StartRequest
    from weft.store.memory import MemoryStore
    from weft.transport.contract import Message

_SETTLING = {
    "node.completed": NodeState.COMPLETED,
    "node.failed": NodeState.FAILED,
    "node.skipped": NodeState.SKIPPED,
    "node.cancelled": NodeState.CANCELLED,
}
_ENDING = {f"execution.{state.lower()}": state for state in TERMINAL}
# Failures that are decided before an attempt, and those of attempts that are lost.
_UNRUN = frozenset({"bad_config", "bad_input", "condition_error", "template_error", "too_deep"})
_LOST = frozenset({"lost", "deliveries_exhausted"})
_TAG_INTERVAL = micros(0.5)
# A call of the caller may take as long, from the commit of an end to the release behind it.
_LONGEST_STALL = micros(5)
_OF_WAITS = frozenset({"node.waiting", "signal.received", "signal.discarded"})


class Kept(NamedTuple):
    """What is known of the journal at one time, in case that it comes back as it was then."""

    replays: dict[str, _Replay]
    starts: int
    started_in: Counter[tuple[str, str, int]]
    accepted: set[tuple[str, str, int]]
    ended: set[tuple[str, str, int]]
    cancelled: dict[str, int]
    paused: set[str]
    waits: Waits
    calls: Calls


class _Replay:
    """One execution as its history tells it."""

    __slots__ = ("attempts", "generation", "history", "in_hand", "reasons", "seq", "state", "states")

    def __init__(self) -> None:
        self.seq = 0
        # Every event as it was read first.
        self.history: list[History] = []
        self.generation = 1
        self.state: ExecutionState = ExecutionState.PENDING
        self.states: dict[str, NodeState] = {}
        # Why nodes were cancelled. Not read of their rows: one commit may cancel and open them again.
        self.reasons: dict[str, str | None] = {}
        # The current attempt of each node that is above its first.
        self.attempts: dict[str, int] = {}
        # Started, and not known to have ended: node → attempt
        self.in_hand: dict[str, int] = {}

    def copy(self) -> _Replay:
        copy = _Replay()
        copy.seq, copy.history, copy.generation = self.seq, list(self.history), self.generation
        copy.state, copy.states, copy.reasons = self.state, dict(self.states), dict(self.reasons)
        copy.attempts, copy.in_hand = dict(self.attempts), dict(self.in_hand)
        return copy


class Invariants:
    """Watches the journal and the starts of one run."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._journal = world.journal
        self._replays: dict[str, _Replay] = {}
        # Lanes in which one waits whose turn has come, and since when.
        self._stalled: dict[tuple[str, str], int] = {}
        # (execution, node, attempt) → how many were started before it
        self._starts: dict[tuple[str, str, int], int] = {}
        self._numbers = count()
        # The nonce of each start, and the starts that rest on commits which the journal has lost.
        self._nonces: dict[tuple[str, str, int], str] = {}
        self._orphaned: set[tuple[str, str, int]] = set()
        # (execution, node, attempt) of a parked one → when it started, and what it sleeps on
        self._parked: dict[tuple[str, str, int], tuple[int, bytes]] = {}
        self.waits = Waits(world)
        self.calls = Calls(world)
        # (execution, node) → the attempt that was started last
        self._latest: dict[tuple[str, str], int] = {}
        # (execution, node, attempt) → how its handler ended, once; more often if it was orphaned
        self._results: dict[tuple[str, str, int], list[Result]] = {}
        # output → the task that led to it
        self._tasks: dict[bytes, Task] = {}
        # (execution, node) → how often a handler failed, or was lost with its process
        self._failures: Counter[tuple[str, str]] = Counter()
        # (execution, node, generation)
        self._accepted: set[tuple[str, str, int]] = set()
        self._started_in: Counter[tuple[str, str, int]] = Counter()
        self._reported: set[tuple[str, str, int]] = set()
        # Attempts that some event of the history ends
        self._ended: set[tuple[str, str, int]] = set()
        # execution → generation whose cancel was answered; executions whose pause was
        self._cancelled: dict[str, int] = {}
        self._paused: set[str] = set()
        # cache key → the outputs that were accepted with it
        self._cacheable: set[tuple[str, bytes]] = set()
        # Orchestrators that start: the losses of the store until then, and the messages that wait
        self._waiting: dict[Actor, tuple[int, list[Message]]] = {}
        self._spent: set[tuple[str, int, str, int]] = set()
        self._spent_at: int | None = None
        self._ancestors: dict[tuple[str, str], frozenset[str]] = {}

    def effect(
        self, actor: Actor, step: str, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
    ) -> None:
        """Look at the effect of one step."""
        match step:
            case "store.start":
                self._started(args[0], result)
            case "journal.record":
                self._recorded(result)
            case "journal.submit":
                for row in result:
                    self._read_on(row.id)
            case "journal.release_queued":
                self._check_released(args[0], result)
            case "journal.fire":
                self._world.triggers.fired(args[0], kwargs.get("event"), result)
                self.waits.event_came(kwargs.get("event"), result)
                self._recorded(result.answered)
                for one in result.fired:
                    if one.execution is not None:
                        self._read_on(one.execution.id)
            case "journal.untold_waits":
                self._world.hits["sweep: the end of a wait that the store was not told of"] += bool(result)
            case "journal.active" if actor in self._waiting:
                self._recovers(actor)
            case "store.renew":
                self._renewed(args[0], result)
            case "store.report":
                for each in args[0]:
                    self._report(each)
            case "limits.spend":
                self._spend(args[0], args[1], spent=result)
            case "transport.claim":
                self._world.hits["reclaim: results"] += bool(result[0])
                self._world.hits["reclaim: tasks"] += bool(result[1])

    # -- starts ------------------------------------------------------------------------------------

    def _started(self, requests: Sequence[StartRequest], answers: Sequence[Started]) -> None:
        for request, answer in zip(requests, answers, strict=True):
            if answer.answer is Answer.YES:
                self._start(request)
            else:
                self._world.hits[f"start {answer.answer}"] += 1

    def _renewed(self, items: Sequence[Lease], answers: Sequence[Answer]) -> None:
        for item, answer in zip(items, answers, strict=True):
            latest = self._latest.get((item.execution_id, item.node_id), 0)
            if answer is Answer.YES and item.attempt < latest:
                raise Violation(
                    f"I10 the lease of attempt {item.attempt} of {item.node_id} was renewed after the start "
                    f"of attempt {latest}"
                )

    def _start(self, request: StartRequest) -> None:
        key = (request.execution_id, request.node_id, request.attempt)
        if self._world.store_is_ahead:
            # Nobody knows yet that the journal has lost what this rests on.
            self._starts[key] = next(self._numbers)
            self._orphaned.add(key)
            return
        self._nonces[key] = request.nonce
        self._begin(request)

    def _begin(self, request: StartRequest | AttemptParked | WaitStarted | CallStarted) -> None:
        key = (request.execution_id, request.node_id, request.attempt)
        self._latest[key[:2]] = request.attempt
        if key in self._orphaned:
            self._orphaned.remove(key)
        elif key in self._starts:
            raise Violation(f"I5 attempt {request.attempt} of {request.node_id} was started twice")
        self._starts[key] = next(self._numbers)
        execution = self._execution(request.execution_id)
        plan = self._plan(execution)
        node = plan.nodes[request.node_id]
        if self._cancelled.get(execution.id) == request.generation:
            raise Violation(f"I9 {node.id} was started after the cancel was answered")
        if execution.id in self._paused:
            raise Violation(f"I9 {node.id} was started after the pause was answered")
        once = (execution.id, node.id, request.generation)
        self._started_in[once] += 1
        if node.delivery == "at_most_once" and self._started_in[once] > 1:
            raise Violation(f"an at_most_once node was started twice: {node.id}")
        ticket = (execution.id, request.generation, node.id, request.attempt)
        if node.resource_tag == "limited" and ticket not in self._spent:
            raise Violation(f"{node.id} was started without a token of its tag")
        if execution.generation != request.generation:
            return  # a start that slipped in beside a commit: its result is refused
        self.calls.check_start(execution, node.id)
        self._check_ready(request, execution, plan)
        if not isinstance(request, WaitStarted | CallStarted):
            self._check_slots(request, execution, plan)

    def _check_ready(
        self,
        request: StartRequest | AttemptParked | WaitStarted | CallStarted,
        execution: ExecutionRow,
        plan: Plan,
    ) -> None:
        node, rows = plan.nodes[request.node_id], self._rows(execution.id)
        now = self._world.scheduler.now
        names = plan.graph.parents[node.id]
        parents = [rows[name] for name in names if name in rows and rows[name].is_settled]
        if execution.state not in TERMINAL:
            ready = readiness(node.id, node.trigger_rule, parents, waiting=len(names) - len(parents))
            if ready is not READY:
                raise Violation(f"I2 {node.id} was started, but in the journal its rule says {ready}")
        own = rows.get(node.id)
        if (
            own is not None
            and own.attempt == request.attempt
            and own.retry_at is not None
            and now < own.retry_at
        ):
            raise Violation(f"I19 attempt {own.attempt} of {node.id} was started before its time")
        if any(row.finished_at is not None and row.finished_at > now for row in parents):
            raise Violation(f"I20 {node.id} was started before a parent finished")

    def _check_slots(
        self, request: StartRequest | AttemptParked, execution: ExecutionRow, plan: Plan
    ) -> None:
        if execution.state in TERMINAL:
            return  # it slipped in between the commit that ended the execution and the closing of the store
        in_hand = self._replay(execution.id).in_hand
        other = in_hand.get(request.node_id)
        if other is not None:
            raise Violation(f"I10 {request.node_id} was started while its attempt {other} is in hand")
        in_hand[request.node_id] = request.attempt
        limit = plan.definition.max_concurrency
        if limit is not None and not self._world.losses and len(in_hand) > limit:
            raise Violation(f"I10 {len(in_hand)} attempts in hand, {limit} slots")

    def memory(self, store: MemoryStore) -> None:
        """Check that large configs in flight are within the bounds, and that only these are counted."""
        world, count = self._world, 0
        for execution in store._executions.values():
            held = execution.held
            count += len(held)
            if sum(held.values()) != execution.held_bytes or not execution.slots.issuperset(held):
                raise Violation(f"I26 {held} held, {execution.held_bytes} bytes counted")
            if execution.held_bytes > world.execution_bytes and len(held) > 1:
                raise Violation(f"I26 {execution.held_bytes} bytes of an execution in flight")
        total = sum(execution.held_bytes for execution in store._executions.values())
        if total != store._config_memory.held_bytes or (total > world.process_bytes and count > 1):
            raise Violation(f"I26 {total} bytes in flight, {store._config_memory.held_bytes} counted")

    def took(self, task: Task, held: Lease) -> None:
        """Check what a handler is given."""
        if self._nonces.get((task.execution_id, task.node_id, task.attempt)) == held.nonce:
            self._check_given(task)

    def _check_given(self, task: Task) -> None:
        """Check that a task has the accepted outputs of the parents, all of them, none else."""
        self._check_seen(task, task.config)

    def _check_seen(self, task: Task | AttemptParked, config: bytes) -> None:
        execution = self._execution(task.execution_id)
        if execution.generation != task.generation:
            return
        plan, rows = self._plan(execution), self._rows(task.execution_id)
        parents = plan.graph.parents[task.node_id]
        is_early = plan.nodes[task.node_id].trigger_rule in EARLY_RULES
        for name, given in decode(config)["parents"].items():
            # What it saw was fixed when it became free: of others than its parents perhaps nothing yet.
            if given is None and (is_early or name not in parents):
                continue
            row = rows.get(name)
            accepted = self._output(row) if row is not None and row.state is NodeState.COMPLETED else None
            if given != (None if accepted is None else decode(accepted)):
                raise Violation(f"I7 {task.node_id} was given {given!r} of {name}, accepted is {accepted!r}")

    def ended_attempt(self, result: Result, task: Task) -> None:
        """Remember how a handler ended, whether or not anybody hears of it."""
        key = (result.execution_id, result.node_id, result.attempt)
        self._results.setdefault(key, []).append(result)
        if result.output is not None:
            self._tasks[result.output] = task
        else:
            self._failures[result.execution_id, result.node_id] += 1

    def _report(self, result: Result) -> None:
        self._reported.add((result.execution_id, result.node_id, result.attempt))
        replay = self._replay(result.execution_id)
        if replay.in_hand.get(result.node_id) == result.attempt:
            del replay.in_hand[result.node_id]

    def _spend(self, tag: str, ticket: Any, *, spent: bool) -> None:
        if tag != "limited":
            return
        if not spent:
            self._world.hits["tag: no token at the start"] += 1
            return
        now = self._world.scheduler.now
        if self._spent_at is not None and now - self._spent_at < _TAG_INTERVAL:
            raise Violation("tokens of a tag were spent faster than its rate")
        self._spent_at = now
        self._spent.add((ticket.execution_id, ticket.generation, ticket.node_id, ticket.attempt))

    def lost_store(self) -> None:
        """Take note that the store was lost, and the buckets with it."""
        self._spent_at = None

    def copy(self) -> Kept:
        """Return what is known of the journal now."""
        return Kept(
            {id_: replay.copy() for id_, replay in self._replays.items()},
            next(self._numbers),
            self._started_in.copy(),
            set(self._accepted),
            set(self._ended),
            dict(self._cancelled),
            set(self._paused),
            self.waits.copy(),
            self.calls.copy(),
        )

    def lost_commits(self, kept: Kept) -> None:
        """Take note that the journal is again what it was: what was started since may be started again."""
        self._replays, self._started_in = kept.replays, kept.started_in
        self._accepted, self._ended = kept.accepted, kept.ended
        self._cancelled, self._paused = kept.cancelled, kept.paused
        self.waits, self.calls = kept.waits, kept.calls
        self._orphaned.update(key for key, number in self._starts.items() if number > kept.starts)
        self._nonces.clear()
        self._latest.clear()

    def takes_over(self, actor: Actor) -> None:
        """Take note of the messages that wait for an orchestrator that starts."""
        self._waiting[actor] = self._world.losses, list(self._world.transport._messages)

    def _recovers(self, actor: Actor) -> None:
        """Check that what waited when an orchestrator started is recorded before anything is rebuilt."""
        losses, waiting = self._waiting.pop(actor)
        left = set(map(id, self._world.transport._messages))
        if losses == self._world.losses and any(id(message) in left for message in waiting):
            raise Violation("I13 an orchestrator rebuilds executions before it reads the results that wait")

    # -- the journal -------------------------------------------------------------------------------

    def _recorded(self, recorded_events: Sequence[RecordedEvent]) -> None:
        hits = self._world.hits
        for recorded_event in recorded_events:
            name = type(recorded_event.event).__name__
            if recorded_event.verdict is not Verdict.STALE:
                hits[f"{recorded_event.verdict} {name}"] += 1
            elif isinstance(recorded_event.event, NodeCompleted | AttemptFailed | NodeFailed | AttemptIssued):
                hits[
                    f"stale {'issue' if name == 'AttemptIssued' else 'result'}: {_why_stale(recorded_event)}"
                ] += 1
            if recorded_event.verdict is Verdict.ACCEPTED:
                match recorded_event.event:
                    case NodeCompleted():
                        self._accept(recorded_event.event)
                    case AttemptFailed() | NodeFailed():
                        self._check_retry(recorded_event.event)
                    case AttemptParked():
                        self._park(recorded_event.event)
                    case ParkedDue():
                        self._wake(recorded_event.event, recorded_event.rows[0])
                    case WaitStarted():
                        self._begin(recorded_event.event)
                        self._complete_wait(self.waits.begun(recorded_event), recorded_event)
                    case CallStarted():
                        self._begin(recorded_event.event)
                        self.calls.begun(recorded_event)
                    case ChildEnded():
                        self._complete_wait(self.calls.ended(recorded_event), recorded_event)
                    case WaitDue() if self._is_call(recorded_event.event):
                        self.calls.came_due(recorded_event)
                    case WaitDue():
                        self._complete_wait(self.waits.came_due(recorded_event), recorded_event)
                    case HotStateEvicted():
                        self._evicted(recorded_event.event)
                    case WaitAnswered() | SignalReceived():
                        self._complete_wait(self.waits.answered(recorded_event), recorded_event)
        changed = [s.execution.id for s in recorded_events if s.execution is not None]
        changed += [c.execution.id for s in recorded_events for c in s.children if c.execution is not None]
        for execution_id in dict.fromkeys(changed):
            self._read_on(execution_id)
            self.waits.check(execution_id)
            self.calls.check(execution_id)

    def _is_call(self, event: WaitDue) -> bool:
        return event.node_id in self._plan(self._execution(event.execution_id)).calls

    def _complete_wait(self, node_id: str | None, recorded_event: RecordedEvent) -> None:
        """Note that a wait ended with an output, once in a generation."""
        if node_id is None:
            return
        assert recorded_event.execution is not None
        once = (recorded_event.execution.id, node_id, recorded_event.execution.generation)
        if once in self._accepted:
            raise Violation(f"I3 two results of {node_id} were accepted in one generation")
        self._accepted.add(once)

    def _evicted(self, event: HotStateEvicted) -> None:
        """Check that an execution leaves the hot state with nothing in hand, and with an open wait."""
        in_hand = self._replay(event.execution_id).in_hand
        waits = [*self.waits.open, *self.calls.open]
        if in_hand or not any(id_ == event.execution_id for id_, _ in waits):
            raise Violation(f"I30 {event.execution_id} was evicted with {in_hand} in hand")

    def _accept(self, event: NodeCompleted) -> None:
        key = (event.execution_id, event.node_id, event.generation)
        if key in self._accepted:
            raise Violation(f"I3 two results of {event.node_id} were accepted in one generation")
        self._accepted.add(key)
        results = self._results.get((event.execution_id, event.node_id, event.attempt), [])
        output = event.output if event.blob is None else self._journal._blobs[event.blob]
        if output is None or not any(output == result.output for result in results):
            raise Violation(f"I4 {event.node_id} was accepted with {output!r}, its handler gave {results}")
        self._check_given(self._tasks[output])
        if event.cache_key is not None:
            self._cacheable.add((event.cache_key, output))

    def _check_retry(self, event: AttemptFailed | NodeFailed) -> None:
        """Check that a failure that may retry does so where ``retry.when`` holds, and only there."""
        execution = self._execution(event.execution_id)
        node = self._plan(execution).nodes[event.node_id]
        failed = [
            result
            for result in self._results.get((event.execution_id, event.node_id, event.attempt), [])
            if result.error is not None
        ]
        if node.retry.when is None or event.started_at is None or not failed:
            return
        holds = any(self._holds(node.retry.when, result) for result in failed)
        may = any(
            result.error is not None and result.error["retryable"] and result.failures < node.max_retries
            for result in failed
        )
        self._world.hits[f"retry.when: {holds}"] += may
        if isinstance(event, AttemptFailed) != (may and holds):
            raise Violation(f"I19 {event.node_id}, retry.when {node.retry.when!r}: {type(event).__name__}")

    def _holds(self, when: str, result: Result) -> bool:
        assert result.error is not None
        match when:
            case "attempt < 2":
                return result.failures == 0
            case "attempt_seconds < 1.5":
                return result.finished_at - result.started_at < micros(1.5)
            case "error.code == 'timeout'":
                return bool(result.error["code"] == "timeout")
            case "input.draw > 0.5":
                return bool(decode(self._execution(result.execution_id).input)["draw"] > 0.5)
            case "error.details.nothing > 1":
                return False  # an error in it means final
        _, parent, _ = when.split(".", 2)
        return self._replay(result.execution_id).states[parent] is NodeState.COMPLETED

    def _park(self, event: AttemptParked) -> None:
        """Check the start of an attempt that no worker runs: it is one like any other."""
        key = (event.execution_id, event.node_id, event.attempt)
        self._begin(event)
        output = event.output if event.blob is None else self._journal._blobs[event.blob]
        assert output is not None
        self._check_seen(event, output)
        self._parked[key] = self._world.scheduler.now, output

    def _wake(self, event: ParkedDue, row: NodeRow) -> None:
        """Check that an attempt that slept has slept for its time, since its start."""
        once = (event.execution_id, event.node_id, event.generation)
        if once in self._accepted:
            raise Violation(f"I3 two results of {event.node_id} were accepted in one generation")
        self._accepted.add(once)
        started_at, output = self._parked[event.execution_id, event.node_id, event.attempt]
        if row.started_at != started_at:
            raise Violation(f"I27 {event.node_id} started at {started_at}, its row says {row.started_at}")
        if self._output(row) != output:
            raise Violation(f"I27 {event.node_id} slept on {output!r} and completed with {row.output!r}")
        slept = self._world.scheduler.now - started_at
        if slept < micros(decode(output)["seconds"]):
            raise Violation(f"I27 {event.node_id} slept for {slept / MICROSECONDS} s of {output!r}")
        node = self._plan(self._execution(event.execution_id)).nodes[event.node_id]
        if node.cache_ttl_seconds is not None:
            self._cacheable.add(("", output))

    def _read_on(self, execution_id: str) -> None:
        """Replay what was added to an execution's history, and hold its row against the outcome."""
        replay = self._replay(execution_id)
        execution = self._execution(execution_id)
        if replay.seq == execution.seq:
            return
        plan = self._plan(execution)
        for event in self._journal.history(execution_id, replay.seq):
            replay.seq += 1
            replay.history.append(event)
            if event.seq != replay.seq:
                raise Violation(f"I18 event {event.seq} follows {replay.seq - 1}")
            self._replay_event(event, replay, plan)
        self._check_row(execution, replay, plan)

    def _replay_event(self, event: History, replay: _Replay, plan: Plan) -> None:
        _check_times(event)
        if event.node is None:
            self._replay_execution_event(event, replay, plan)
            return
        node_id, attempt = event.node, event.attempt or 0
        if event.type in _OF_WAITS:
            self._replay_wait_event(event, replay, node_id)
            return
        if attempt:
            self._ended.add((event.execution, node_id, attempt))
        if event.type == "result.discarded":
            return
        if replay.states.get(node_id) is not None:
            raise Violation(f"I6 {node_id} was {replay.states[node_id]}, and then {event.type}")
        if replay.state in TERMINAL:
            raise Violation(f"I6 {event.type} of {node_id} in an execution that is {replay.state}")
        if event.type == "node.completed" and not attempt and node_id in replay.in_hand:
            running = replay.in_hand[node_id]
            raise Violation(
                f"I10 {node_id} was completed from the cache while its attempt {running} is in hand"
            )
        current = replay.attempts.get(node_id, 1)
        is_run = event.started_at is not None and attempt != 0
        if is_run and attempt != current:
            raise Violation(f"I4 attempt {attempt} of {node_id} counted while {current} was current")
        if is_run and (event.execution, node_id, attempt) not in self._starts:
            raise Violation(f"I12 attempt {attempt} of {node_id} ended and was never started")
        if replay.in_hand.get(node_id) == attempt:
            del replay.in_hand[node_id]
        match event.type:
            case "node.retrying":
                self._check_delay(event, plan)
                replay.attempts[node_id] = current + 1
            case "node.lost":
                if node_id in plan.waits or node_id in plan.calls:
                    raise Violation(f"I28 attempt {attempt} of {node_id}, which waits, was taken for lost")
                self._check_lost(event)
                # One that fails the node is not followed by another attempt: its row says so.
                row = self._rows(event.execution)[node_id]
                if row.attempt > current:
                    replay.attempts[node_id] = current + 1
            case _:
                replay.states[node_id] = _SETTLING[event.type]
                self._check_settled(event, replay, plan)

    def _replay_wait_event(self, event: History, replay: _Replay, node_id: str) -> None:
        if replay.state in TERMINAL or replay.states.get(node_id) is not None:
            raise Violation(f"I6 {event.type} of {node_id}, {replay.state}, {replay.states.get(node_id)}")
        if event.type == "node.waiting" and event.attempt != replay.attempts.get(node_id, 1):
            raise Violation(f"I4 attempt {event.attempt} of {node_id} waits, which is not current")
        if event.type == "signal.discarded":
            self._world.hits["signal: discarded"] += 1

    def _replay_execution_event(self, event: History, replay: _Replay, plan: Plan) -> None:
        if event.type in _ENDING:
            replay.state = _ENDING[event.type]
            replay.in_hand.clear()
            self._paused.discard(event.execution)
            self._check_verdict(event.execution, replay, plan)
            return
        if replay.state in TERMINAL and event.type != "execution.retried":
            raise Violation(f"I6 {event.type} in an execution that is {replay.state}")
        if event.state is not None:
            replay.state = ExecutionState(event.state)
        if event.type == "execution.started" or replay.state is ExecutionState.RUNNING:
            self._check_group(self._execution(event.execution))
        if event.type == "execution.resumed":
            self._paused.discard(event.execution)
        if event.type != "execution.retried":
            return
        replay.generation += 1
        for node_id, row in self._rows(event.execution).items():
            if row.generation == replay.generation and node_id in replay.states:
                was = replay.attempts.get(node_id, 1)
                # Read at the commit that retried, so this is the number it was given.
                if row.state is None and row.attempt - was not in (0, 1):
                    raise Violation(f"I5 {node_id} had attempt {was}, and has {row.attempt} after the retry")
                del replay.states[node_id]
                replay.reasons.pop(node_id, None)
                replay.attempts[node_id] = row.attempt

    def _check_settled(self, event: History, replay: _Replay, plan: Plan) -> None:
        node_id = event.node
        assert node_id is not None
        key = (event.execution, node_id, event.generation)
        match event.type:
            case "node.completed" if event.attempt == 0:
                row = self._rows(event.execution)[node_id]
                if not any(output == self._output(row) for _, output in self._cacheable):
                    raise Violation(f"I4 {node_id} has an output of the cache that nobody put there")
                self._world.hits["answered from the cache"] += 1
            case "node.completed" if key not in self._accepted:
                raise Violation(f"I3 {node_id} completed without an accepted result")
            case "node.failed":
                self._check_failure(event)
            case "node.skipped":
                self._world.hits[f"skipped: {event.reason}"] += 1
                if self._started_in[key]:
                    raise Violation(f"I16 {node_id} was skipped, and was started in this generation")
                if event.cause is not None and event.cause not in self._behind(plan, node_id):
                    raise Violation(
                        f"I16 {node_id} was skipped because of {event.cause}, which is not before it"
                    )
            case "node.cancelled":
                self._world.hits[f"cancelled: {event.reason}"] += 1
                replay.reasons[node_id] = event.reason
                if node_id in plan.waits:
                    self.waits.cancelled(event)
                if node_id in plan.calls:
                    self.calls.cancelled(event)

    def _check_lost(self, event: History) -> None:
        """Check that a paused execution loses nothing that it did not have in hand when it was paused."""
        execution = self._execution(event.execution)
        halt = execution.halt
        if execution.state is not ExecutionState.PAUSED or halt is None or halt.in_hand is None:
            return
        self._world.hits["lost while it is paused"] += 1
        assert event.node is not None
        if halt.in_hand.get(event.node) != event.attempt:
            raise Violation(f"I15 attempt {event.attempt} of {event.node} was lost, and never handed out")

    def _check_failure(self, event: History) -> None:
        """Check that a failure has a cause: a handler's error, an attempt that was started and lost."""
        assert event.error is not None
        assert event.node is not None
        code = event.error["code"]
        self._world.hits[f"failed: {code}"] += 1
        if code in _UNRUN:
            return
        if code == "child_failed" or event.node in self._plan(self._execution(event.execution)).calls:
            self.calls.check_failed(event)
            return
        if code == "expired":
            self.waits.check_expired(event)
            return
        key = (event.execution, event.node, event.attempt or 0)
        if code in _LOST:
            # Of an orphaned attempt nobody knows: an at_most_once attempt that was issued may have run.
            if key not in self._starts and not self._world.losses and not self._world.profile.rebuilds:
                raise Violation(f"I15 {event.node} failed as {code}, and was never started")
            return
        errors = [result.error["code"] for result in self._results.get(key, []) if result.error is not None]
        if code not in errors:
            raise Violation(f"I15 {event.node} failed with {code}, which its handler did not say")

    def _check_delay(self, event: History, plan: Plan) -> None:
        assert event.node is not None
        assert event.due_at is not None
        policy = plan.nodes[event.node].retry
        delay = event.due_at - event.at
        for result in self._results[event.execution, event.node, event.attempt or 0]:
            after = micros(result.retry_after_seconds or 0.0)
            backoff = min(
                policy.max_delay_seconds, policy.base_delay_seconds * policy.multiplier**result.failures
            )
            least = max(after, micros(backoff))
            most = max(after, micros(backoff * (1 + policy.jitter)))
            if least - 1 <= delay <= most + 1:
                break
        else:
            delay_seconds = delay / MICROSECONDS
            raise Violation(
                f"I19 attempt {event.attempt} of {event.node} is followed after {delay_seconds} s"
            )

    def _check_verdict(self, execution_id: str, replay: _Replay, plan: Plan) -> None:
        """Check that the end is what the nodes' states say."""
        left = [node_id for node_id in plan.nodes if node_id not in replay.states]
        if left:
            raise Violation(f"I17 {replay.state} with unsettled nodes: {', '.join(left)}")
        reasons = set(replay.reasons.values())
        unhandled = [
            node_id
            for node_id, state in replay.states.items()
            if state is NodeState.FAILED
            and not any(
                replay.states[name] is NodeState.COMPLETED
                for name in plan.graph.dependents[node_id]
                if plan.nodes[name].trigger_rule is TriggerRule.ONE_FAILED
            )
        ]
        if Reason.CANCELLED in reasons or Reason.PARENT in reasons:
            expected = ExecutionState.CANCELLED
        elif reasons or unhandled:
            expected = ExecutionState.FAILED
        else:
            expected = ExecutionState.COMPLETED
        if replay.state is not expected:
            raise Violation(f"I17 {execution_id} is {replay.state}, its nodes say {expected}")

    def _check_row(self, execution: ExecutionRow, replay: _Replay, plan: Plan) -> None:
        counted = Counter(replay.states.values())
        unsettled = len(plan.nodes) - len(replay.states)
        if execution.unsettled != unsettled:
            raise Violation(f"I11 {execution.unsettled} unsettled on the row, {unsettled} by count")
        if (execution.state in TERMINAL) != (execution.unsettled == 0):
            raise Violation(f"I17 {execution.state} with {execution.unsettled} unsettled nodes")
        if (execution.failed, execution.skipped, execution.cancelled, execution.completed) != (
            counted[NodeState.FAILED],
            counted[NodeState.SKIPPED],
            counted[NodeState.CANCELLED],
            counted[NodeState.COMPLETED],
        ):
            raise Violation("I11 the numbers of settled nodes on the row are wrong")
        if (execution.state, execution.generation, execution.seq) != (
            replay.state,
            replay.generation,
            replay.seq,
        ):
            raise Violation(f"I18 the row says {execution.state}, its history {replay.state}")

    def _check_group(self, started: ExecutionRow) -> None:
        """Check that no more of a group have started, and not ended, than its limit says."""
        terms = self._plan(started).definition.concurrency
        if started.group_name is None or terms is None:
            return
        others = [
            row
            for row in self._journal._executions.values()
            if row.group_lane == started.group_lane and not row.is_terminal
        ]
        if sum(row.started_at is not None for row in others) > terms.limit:
            raise Violation(f"I31 more than {terms.limit} of {started.group_lane} run")
        self._world.hits[f"group: {terms.on_conflict}"] += 1

    def _check_released(self, lane: str, released: LaneRelease) -> None:
        """Check that nobody's turn comes while one behind it waits to take its place."""
        self._world.hits["group: cancelled for a newcomer"] += bool(released.doomed)
        if not released.started:
            return
        for turn in self._journal._queued.values():
            is_paused = self._execution(turn.execution_id).state is not ExecutionState.PENDING
            if turn.lane == lane and turn.cancels and not is_paused:
                raise Violation(f"I31 {released.started} start, and {turn.execution_id} takes their place")

    def look_at_groups(self) -> None:
        """Check that none waits for long whose turn has come; without faults a moment is enough."""
        now, world = self._world.scheduler.now, self._world
        if not world.profile.is_calm:
            return
        stalled = {
            (turn.namespace, turn.lane)
            for turn in self._journal._queued.values()
            if self._journal._is_stalled(turn.namespace, turn.lane)
        }
        self._stalled = {lane: self._stalled.get(lane, now) for lane in stalled}
        for lane, since in self._stalled.items():
            if now - since > _LONGEST_STALL:
                raise Violation(f"I32 one of {lane} could run since {since}, and waits")

    # -- what was answered -------------------------------------------------------------------------

    def answers(self, request: Request | None, value: int | str) -> None:
        """Take note of a value that somebody is about to answer with, or to signal."""
        self.waits.tried(value, is_again=request is not None and request.key is not None)

    def answer_counted(self, value: int | str) -> None:
        self.waits.check_counted(value)

    def submit_answered(self, request: Request, ids: Sequence[str]) -> None:
        """Check that what was answered is there, and that the same request has the same answer."""
        for execution_id in ids:
            if execution_id not in self._journal._executions:
                raise Violation(f"I1 {execution_id} was answered and is not in the journal")
        if request.key is not None and request.answer not in (None, tuple(ids)):
            raise Violation(f"I22 {request.key} stood for {request.answer}, and now for {tuple(ids)}")
        request.answer = tuple(ids)

    def retried_twice(self, row: ExecutionRow) -> None:
        raise Violation(f"I22 the same key retried {row.id} twice")

    def cancel_answered(self, execution: ExecutionRow) -> None:
        self._cancelled[execution.id] = execution.generation
        for child in self.calls.below(execution):
            if self._execution(execution.id).generation != execution.generation:
                return
            if child.is_terminal:
                self._cancelled[child.id] = child.generation
            else:
                raise Violation(
                    f"I35 {child.id} is {child.state} after the cancel of its parent was answered"
                )

    def pause_answered(self, execution: ExecutionRow) -> None:
        # It may have been resumed, or have ended, before the answer came.
        if self._execution(execution.id).state is ExecutionState.PAUSED:
            self._paused.add(execution.id)

    # -- at the end --------------------------------------------------------------------------------

    def untidy(self) -> str | None:
        """Return what is still lying about, of all that is terminal."""
        world = self._world
        nets, is_calm = world.profile.nets, world.profile.is_calm
        if "rebuild" in nets or is_calm:
            for execution_id in world.store._executions:
                row = self._journal._executions.get(execution_id)
                if row is None or row.state in TERMINAL:
                    return f"{execution_id} is terminal and still open in the store"
            if world.store._leases and not any(
                row.state not in TERMINAL for row in self._journal._executions.values()
            ):
                return "leases in the store"
        if "rebuild" in nets and self._journal._untold_children:
            return "children whose parents were not told of their end"
        if ("reclaim" in nets or is_calm) and not world.transport.is_quiet:
            return "messages in the streams"
        if "rebuild" in nets or is_calm:
            line = world.limits._queues["limited"]
            if line.waiting or line.released:
                return "tickets in the wait queue of a tag"
        return None

    def ended(self) -> None:
        """Check the whole run."""
        world = self._world
        for execution in self._journal._executions.values():
            self._read_on(execution.id)
            self._check_stored(execution)
            if execution.state not in TERMINAL and not world.is_safety:
                left = [
                    name
                    for name in self._plan(execution).nodes
                    if name not in self._replay(execution.id).states
                ]
                raise Violation(
                    f"I8 {execution.id} is {execution.state} for ever; unsettled: {', '.join(left)}"
                )
            if not world.profile.rebuilds and execution.generation == 1:
                self._check_waste(execution)
            if world.profile.is_calm:
                self._check_needless(execution)
        self._check_work()
        self._check_submits()
        self.calls.ended_run()
        if not world.is_safety:
            self._check_conserved()
            untidy = self.untidy()
            if untidy is not None:
                raise Violation(f"I23 in the end: {untidy}")

    def _check_stored(self, execution: ExecutionRow) -> None:
        """Check that the replay of the history is what is stored, node by node."""
        replay, rows = self._replay(execution.id), self._rows(execution.id)
        # An event that was derived from the row of its node stays what it was, whatever becomes of the row.
        history = self._journal.history(execution.id)
        if history != replay.history:
            raise Violation(f"I18 the history of {execution.id} was rewritten")
        for node_id in self._plan(execution).nodes:
            row = rows.get(node_id)
            state, attempt = (None, 1) if row is None else (row.state, row.attempt)
            if state is not replay.states.get(node_id) or attempt != replay.attempts.get(node_id, 1):
                raise Violation(f"I18 {node_id} is stored as {state}, {attempt}; its history says otherwise")
        if self._world.amounts["skew"]:
            return  # a task is marked as queued by the clock of whoever sent it
        # And once more by the checker that everybody may use: it shares no code with this.
        letters = self._journal._letters.get(execution.id, [])
        wrong = trace.check(self._plan(execution), history, stored_rows(execution, rows, letters))
        if wrong:
            raise Violation(str(wrong[0]))

    def _check_waste(self, execution: ExecutionRow) -> None:
        for node_id, row in self._rows(execution.id).items():
            for attempt in range(1, row.attempt):
                if (execution.id, node_id, attempt) not in self._starts:
                    raise Violation(f"I15 attempt {attempt} of {node_id} was used up without a start")

    def _check_needless(self, execution: ExecutionRow) -> None:
        for node_id, row in self._rows(execution.id).items():
            if row.attempt > self._failures[execution.id, node_id] + execution.generation:
                raise Violation(f"I13 needless attempt: {node_id} has attempt {row.attempt}")

    def _check_work(self) -> None:
        """Check that all starts are explained: a node in a generation, a failure, a fault."""
        world = self._world
        executions = self._journal._executions.values()
        nodes = sum(execution.total for execution in executions)
        explained = sum(execution.total * execution.generation for execution in executions)
        explained += sum(self._failures.values()) + SLOTS * world.faults + nodes * world.losses
        starts = sum(key[0] in self._journal._executions for key in self._starts)
        if starts > explained:
            raise Violation(f"I14 {starts} starts, of which {explained} are explained")

    def _check_conserved(self) -> None:
        """Check that every result that was reported is accounted for, where no message can be lost."""
        amounts = self._world.amounts
        if not self._world.transport.is_quiet:
            return  # nobody takes over what a process took with it: not every profile has that net
        if self._world.losses or amounts["dropped"] or amounts["port_error"] or amounts["crash.worker"]:
            return
        for key in self._reported - self._ended:
            if not self._results[key][-1].lost:
                raise Violation(f"I12 the result of attempt {key[2]} of {key[1]} was reported and is nowhere")

    def _check_submits(self) -> None:
        tried: set[str] = set()
        for request in self._world.caller.submits:
            there = [ids for ids in request.tried if any(id_ in self._journal._executions for id_ in ids)]
            for ids in there:
                if not all(id_ in self._journal._executions for id_ in ids):
                    raise Violation(f"I1 of a batch only a part was stored: {ids}")
            if request.key is not None and len(there) > 1:
                raise Violation(f"I22 {request.key} has started {there}")
            if request.answer is not None and request.answer not in there:
                raise Violation(f"I1 {request.answer} was answered and is not in the journal")
            tried.update(id_ for ids in request.tried for id_ in ids)
        self._world.triggers.ended()
        by_trigger = {row.id for row in self._journal._executions.values() if row.trigger is not None}
        asked = {row.id for row in self._journal._executions.values() if row.parent is None}
        unasked = asked - tried - by_trigger
        if unasked:
            raise Violation(f"I1 nobody has asked for {', '.join(sorted(unasked))}")

    # -- reading -----------------------------------------------------------------------------------

    def _replay(self, execution_id: str) -> _Replay:
        replay = self._replays.get(execution_id)
        if replay is None:
            replay = self._replays[execution_id] = _Replay()
        return replay

    def _behind(self, plan: Plan, node_id: str) -> frozenset[str]:
        """Name all nodes before a node."""
        found = self._ancestors.get((plan.digest, node_id))
        if found is None:
            parents = plan.graph.parents[node_id]
            found = frozenset(parents).union(*(self._behind(plan, parent) for parent in parents))
            self._ancestors[plan.digest, node_id] = found
        return found

    def _output(self, row: NodeRow) -> bytes | None:
        return row.output if row.blob is None else self._journal._blobs[row.blob]

    def _execution(self, execution_id: str) -> ExecutionRow:
        return self._journal._executions[execution_id]

    def _rows(self, execution_id: str) -> dict[str, NodeRow]:
        return self._journal._nodes.get(execution_id, {})

    def _plan(self, execution: ExecutionRow) -> Plan:
        return self._journal._plans[execution.digest]


def _check_times(event: History) -> None:
    if event.started_at is not None and not (
        (event.queued_at or 0) <= event.started_at <= (event.finished_at or event.started_at) <= event.at
    ):
        raise Violation(f"I20 times out of order in {event}")


def _why_stale(recorded_event: RecordedEvent) -> str:
    execution, event = recorded_event.execution, recorded_event.event
    assert execution is not None
    if event.generation != execution.generation:
        return "of an older generation"
    (row,) = recorded_event.rows
    if isinstance(event, AttemptIssued):
        return "of an older epoch" if event.attempt == row.attempt else "of a superseded attempt"
    if event.attempt != row.attempt:  # type: ignore[union-attr]
        return "of a superseded attempt"
    return "of a node that was settled without it"
