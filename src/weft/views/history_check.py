"""Checks by its history that an execution went as weft promises.

``check`` replays the events of one execution from nothing, holds each against what was true before it, and
compares what comes out with what is stored. It shares no code with the engine but the definition: rules,
retries and verdicts are written down here a second time, so that a mistake has to be made twice to pass.

What a violation names is the number of the invariant:

====  ==========================================================================================
I2    a node ran or was decided only when its trigger rule was met by nodes that had settled before
I3    at most one result of a node was accepted in a generation
I5    attempts are numbered 1, 2, 3 …, none ended twice, none was left out; at_most_once ran once
I6    nothing changed a settled node or a terminal execution within a generation
I7    the stored output is the one that was accepted
I9    nothing counted after the execution was cancelled, and no wait began while it was paused
I11   the stored counts are those of the nodes, and add up
I12   no result of the current attempt was discarded; what was answered was waiting
I14   no attempt beyond the retries that the definition allows
I15   no failure without a cause: an attempt that failed for good, a loss, an expression
I16   a skipped node did not run in that generation, and its cause is what broke its rule
I17   the execution's state follows from its nodes and from control calls; terminal: all are settled
I18   events are numbered without gaps, and replaying them gives the stored state
I19   a retry waited as long as its policy says
I20   times are in order: queued, started, finished, recorded; parents before children
I23   one dead letter for each failure, in the state that followed
====  ==========================================================================================

It looks at each event once, with the parents of its node: an execution of 50,000 nodes takes a second.
"""

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING, Any

from weft.core.state import TERMINAL, ExecutionState, NodeState, Reason
from weft.core.time import MICROSECONDS, rfc3339
from weft.definition.model import Delivery, FailurePolicy, TriggerRule
from weft.views.history_state import Letter, ReplayedNode, Stored, Violation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from weft.core.rows import History
    from weft.definition.model import Node
    from weft.definition.plan import Plan

_READY, _WAIT = "ready", "wait"
_EARLY = {TriggerRule.ONE_SUCCESS: NodeState.COMPLETED, TriggerRule.ONE_FAILED: NodeState.FAILED}
_DECIDED_ANEW = (TriggerRule.ONE_FAILED, TriggerRule.ALL_DONE)
# Failures that need no attempt: the node's own expressions or the time it is to sleep, and an attempt that
# gave no result.
_UNRUN = (
    "bad_config",
    "bad_input",
    "condition_error",
    "template_error",
    "too_deep",
    "workflow_not_found",
)
_LOSSES = ("lost", "deliveries_exhausted")
_STOPS = {
    Reason.CANCELLED: ExecutionState.CANCELLED,
    Reason.FAIL_FAST: ExecutionState.FAILED,
    Reason.DEADLINE: ExecutionState.FAILED,
    Reason.PARENT: ExecutionState.CANCELLED,
}


def check(plan: Plan, history: Sequence[History], stored: Stored | None = None) -> list[Violation]:
    """List all that is wrong with an execution; ``stored`` is what is kept of it beside its history."""
    replay = _Replay(plan, _asked_again(history, stored))
    for event in history:
        replay.take(event)
    if stored is not None:
        replay.compare(stored)
    return replay.violations


def _asked_again(history: Sequence[History], stored: Stored | None) -> dict[int, set[str]]:
    """Name, for each generation after the first, the nodes that are known to have run again in it.

    A retry may name nodes, and its event does not say which: what happened to them does.
    """
    if not any(event.type == "execution.retried" for event in history):
        return {}
    again: dict[int, set[str]] = {}
    for event in history:
        if event.node is not None and event.type != "result.discarded":
            again.setdefault(event.generation, set()).add(event.node)
    if stored is not None:
        unsettled = {node_id for node_id, node in stored.nodes.items() if node.state is None}
        again.setdefault(stored.generation, set()).update(unsettled)
    return again


class _Replay:
    """An execution, as far as its events have been taken."""

    def __init__(self, plan: Plan, asked_again: dict[int, set[str]]) -> None:
        self.violations: list[Violation] = []
        self._plan = plan
        self._asked_again = asked_again
        self._nodes = {node_id: ReplayedNode() for node_id in plan.graph.ids}
        self._unsettled = len(self._nodes)
        self._state: ExecutionState | None = None
        self._generation = 1
        self._seq = 0
        self._at = 0
        self._id: str | None = None
        self._created_at: int | None = None
        self._started_at: int | None = None
        self._finished_at: int | None = None
        self._error: dict[str, Any] | None = None
        # Why the execution is being stopped, once the first of its nodes was cancelled.
        self._stopping: tuple[str, str | None] | None = None
        # The failure that nothing handles any more, under fail_fast: from here on it is only wound up.
        self._fatal: str | None = None
        self._letters: dict[tuple[str, int], Letter] = {}
        self._event: History | None = None

    def _say(self, invariant: str, message: str, node_id: str | None = None) -> None:
        seq = None if self._event is None else self._event.seq
        self.violations.append(Violation(invariant, node_id, seq, message))

    # -- events ------------------------------------------------------------------------------------

    def take(self, event: History) -> None:
        self._event = event
        if event.seq != self._seq + 1:
            self._say("I18", f"it follows event {self._seq}")
        if event.at < self._at:
            self._say("I20", "it was recorded before the event that it follows")
        self._seq, self._at = event.seq, event.at
        if self._id is None:
            self._id = event.execution
        elif event.execution != self._id:
            self._say("I18", f"it is of another execution, {event.execution}")
        if event.type in _EXECUTION:
            _EXECUTION[event.type](self, event)
        elif event.type not in _NODE or event.node is None:
            self._say("I18", f"there is no event {event.type}")
        elif event.node not in self._nodes:
            self._say("I18", "the definition has no such node", event.node)
        else:
            if event.type != "result.discarded":
                self._check_place(event)
            _NODE[event.type](self, event, event.node, self._nodes[event.node])
        self._event = None

    def _check_place(self, event: History) -> None:
        """Compare a node's event with the state of the execution."""
        if event.generation != self._generation:
            self._say("I6", f"generation {event.generation} is not the current one", event.node)
        if self._state is ExecutionState.CANCELLED:
            self._say("I9", "it counted after the execution was cancelled", event.node)
        elif self._state in TERMINAL:
            self._say("I6", f"it counted after the execution was {self._state}", event.node)
        elif self._state is not ExecutionState.PENDING:
            pass
        elif event.type != "node.cancelled" and not self._is_kept(event):
            self._say("I2", "it came before the execution was started", event.node)
        if self._stopping is not None and event.type != "node.cancelled":
            self._say("I17", "it counted while the execution was being stopped", event.node)
        elif self._fatal is not None and event.type not in ("node.cancelled", "node.skipped"):
            self._say("I17", f"it counted after {self._fatal} had failed and nothing handled it", event.node)

    def _is_kept(self, event: History) -> bool:
        """True if a fork took the node over: settled in the commit that created the execution."""
        is_kept = event.reason == Reason.CONDITION or (event.type == "node.completed" and not event.attempt)
        return is_kept and self._state is ExecutionState.PENDING and event.at == self._created_at

    def _created(self, event: History) -> None:
        if self._state is not None or event.seq != 1:
            self._say("I18", "an execution is created once, by its first event")
        self._state = ExecutionState.PENDING
        self._created_at = event.at

    def _started(self, event: History) -> None:
        self._move(event, ExecutionState.RUNNING, (ExecutionState.PENDING,))
        self._started_at = event.at

    def _paused(self, event: History) -> None:
        self._move(event, ExecutionState.PAUSED, (ExecutionState.PENDING, ExecutionState.RUNNING))

    def _resumed(self, event: History) -> None:
        resumed = ExecutionState.PENDING if self._started_at is None else ExecutionState.RUNNING
        self._move(event, resumed, (ExecutionState.PAUSED,))

    def _notified(self, event: History) -> None:
        # A notification may end after its execution, also after a retry, and changes nothing of it.
        if event.generation > self._generation:
            self._say("I18", f"it tells of generation {event.generation}, which has not begun")

    def _move(self, event: History, to: ExecutionState, allowed: Sequence[ExecutionState]) -> None:
        if self._state not in allowed:
            self._say("I6" if self._state in TERMINAL else "I17", f"{event.type} came while {self._state}")
        if event.state != to:
            self._say("I17", f"{event.type} made it {event.state}, not {to}")
        if event.generation != self._generation:
            self._say("I6", f"{event.type} is of generation {event.generation}, not {self._generation}")
        if self._stopping is not None or self._fatal is not None:
            self._say("I17", f"{event.type} came while it was being stopped")
        self._state = to

    def _retried(self, event: History) -> None:
        if self._state not in (ExecutionState.FAILED, ExecutionState.CANCELLED):
            self._say("I6", f"it was retried while {self._state}")
        if event.generation != self._generation + 1:
            self._say("I6", f"generation {event.generation} follows {self._generation}")
        self._generation = event.generation
        # PENDING: it waits for its turn in its group.
        self._state = ExecutionState(event.state or ExecutionState.RUNNING)
        self._started_at = None if self._state is ExecutionState.PENDING else event.at
        self._finished_at = self._error = None
        self._stopping = self._fatal = None
        for letter in self._letters.values():
            if letter.state == "open":
                letter.state = "retried"
        for node_id in self._reopened():
            node = self._nodes[node_id]
            self._unsettled += node.state is not None
            self._nodes[node_id] = node.reopened()

    def _reopened(self) -> set[str]:
        """Return the nodes that must run again, and all that consumed an outcome which is about to change."""
        frontier = [
            node_id
            for node_id, node in self._nodes.items()
            if node.state in (NodeState.FAILED, NodeState.CANCELLED)
            or (node.state is NodeState.SKIPPED and node.reason == Reason.UPSTREAM_FAILED)
        ]
        frontier += self._asked_again.get(self._generation, ())
        again = set(frontier)
        while frontier:
            node_id = frontier.pop()
            gave_an_output = self._nodes[node_id].state is NodeState.COMPLETED
            for behind in self._plan.graph.dependents[node_id]:
                if behind not in again and (
                    gave_an_output
                    or self._nodes[behind].state is NodeState.SKIPPED
                    or self._plan.nodes[behind].trigger_rule in _DECIDED_ANEW
                ):
                    again.add(behind)
                    frontier.append(behind)
        return again

    def _ended(self, event: History) -> None:
        state = ExecutionState(event.type.removeprefix("execution.").upper())
        if self._state in TERMINAL or self._state is None:
            self._say("I6", f"{event.type} came while {self._state}")
        if event.generation != self._generation:
            self._say("I6", f"{event.type} is of generation {event.generation}, not {self._generation}")
        if event.state != state:
            self._say("I17", f"{event.type} made it {event.state}")
        if self._unsettled:
            left = [node_id for node_id, node in self._nodes.items() if node.state is None]
            self._say("I17", f"it is {state}, and not settled are {_some(left)}")
        self._check_verdict(event, state)
        self._state, self._finished_at, self._error = state, event.at, event.error
        self._stopping = self._fatal = None

    def _check_verdict(self, event: History, state: ExecutionState) -> None:
        unhandled = [
            node_id
            for node_id, node in self._nodes.items()
            if node.state is NodeState.FAILED and not self._handled(node_id, (NodeState.COMPLETED,))
        ]
        reason, cause = self._stopping or (None, None)
        if reason is not None:
            if _STOPS.get(Reason(reason)) is not state:
                self._say("I17", f"it is {state}, and its nodes were cancelled because of {reason}")
            if reason == Reason.FAIL_FAST and cause not in unhandled:
                self._say("I17", f"it was stopped because of {cause}, which is no failure without a handler")
            if reason == Reason.DEADLINE and (event.error or {}).get("code") != "deadline_exceeded":
                self._say("I17", "it was stopped at its deadline, and its error says something else")
        elif state is ExecutionState.CANCELLED:
            self._say("I17", "it is CANCELLED, and no node was")
        elif (state is ExecutionState.FAILED) != bool(unhandled):
            self._say("I17", f"it is {state}; failures that nothing handled: {_some(unhandled)}")
        if state is ExecutionState.FAILED and reason != Reason.DEADLINE:
            named = (event.error or {}).get("node")
            if named not in unhandled:
                self._say("I17", f"its error names {named}, which is no failure without a handler")

    # -- events of nodes ---------------------------------------------------------------------------

    def _waiting(self, event: History, node_id: str, node: ReplayedNode) -> None:
        if node_id not in self._plan.waits and node_id not in self._plan.calls:
            self._say("I15", "it waits, and its definition does not say so", node_id)
        if self._state is ExecutionState.PAUSED:
            self._say("I9", "it began to wait while the execution was paused", node_id)
        if node.waits_in == event.generation:
            self._say("I5", "it began to wait twice in a generation", node_id)
        if not max(node.attempt, node.ended + 1) <= (event.attempt or 0) <= node.at_most:
            self._say("I5", f"attempt {event.attempt} waits, and {node.attempt} was to be the next", node_id)
        self._require_ready(node_id)
        node.wait(event)

    def _signalled(self, event: History) -> None:
        """Take a signal that came in or was dropped: it answers at most a node that waits."""
        if self._state in TERMINAL or event.generation != self._generation:
            self._say("I6", f"{event.type} of generation {event.generation} came while {self._state}")
        node = None if event.node is None else self._nodes.get(event.node)
        if node is not None and (node.state is not None or node.waits_in != event.generation):
            self._say("I12", "it was answered, and did not wait", event.node)

    def _completed(self, event: History, node_id: str, node: ReplayedNode) -> None:
        waits = node_id in self._plan.waits or node_id in self._plan.calls
        if event.attempt and waits and node.waits_in != event.generation:
            self._say("I12", "its wait ended, and had not begun", node_id)
        if node.accepted == event.generation:
            self._say("I3", f"two results were accepted in generation {event.generation}", node_id)
        node.accepted = event.generation
        if event.attempt:
            self._attempt_ended(event, node)
            if event.started_at is None or event.finished_at is None:
                self._say("I15", "it completed without a start or an end", node_id)
        elif not self._is_kept(event):  # what a fork keeps may be behind a node that runs again
            self._require_ready(node_id)
            if self._plan.nodes[node_id].cache_ttl_seconds is None:
                self._say("I15", "it was answered from the cache, and has none", node_id)
        node.cached = not event.attempt
        node.digest = event.output_digest
        self._settle(event, node, NodeState.COMPLETED)
        node.error = None
        if self._plan.nodes[node_id].trigger_rule is TriggerRule.ONE_FAILED:
            for parent in self._plan.graph.parents[node_id]:
                if self._nodes[parent].state is NodeState.FAILED:
                    self._mark_handled(parent)

    def _retrying(self, event: History, node_id: str, node: ReplayedNode) -> None:
        self._attempt_ended(event, node)
        if event.started_at is None:
            self._say("I15", "an attempt failed that was not started", node_id)
        definition = self._plan.nodes[node_id]
        node.failures += 1
        if not _may_try_again(event, definition, node.failures):
            self._say("I14", f"it is tried again after failure {node.failures}", node_id)
        self._check_delay(event, node_id, node.failures)
        node.next_attempt(event)
        node.due_at = event.due_at

    def _polled(self, event: History, node_id: str, node: ReplayedNode) -> None:
        self._attempt_ended(event, node)
        if self._plan.nodes[node_id].poll is None:
            self._say("I18", "it looks again, and does not poll", node_id)
        node.failures = 0
        node.next_attempt(event)
        node.due_at = event.due_at

    def _check_delay(self, event: History, node_id: str, failures: int) -> None:
        if event.due_at is None:
            self._say("I19", "a retry without a time", node_id)
            return
        policy = self._plan.nodes[node_id].retry
        try:
            grown = policy.base_delay_seconds * policy.multiplier ** (failures - 1)
        except OverflowError:
            grown = policy.max_delay_seconds if policy.base_delay_seconds else 0.0
        floor = min(policy.max_delay_seconds, grown) * MICROSECONDS
        delay = event.due_at - event.at
        if delay < floor - 1:
            self._say("I19", f"the retry comes after {delay} µs, its policy says {floor:.0f} µs", node_id)
        cap = floor * (1 + policy.jitter)
        if delay > cap + 1 and not _may_ask_for_more(event):
            self._say("I19", f"the retry comes after {delay} µs, at most {cap:.0f} µs apply", node_id)

    def _lost(self, event: History, node_id: str, node: ReplayedNode) -> None:
        due_at = node.due_at
        self._attempt_ended(event, node)
        node.next_attempt(event)
        node.lost_at = event.seq
        if event.started_at is None:
            node.due_at = due_at  # it was never started, so the retry that it was still has its time

    def _failed(self, event: History, node_id: str, node: ReplayedNode) -> None:
        definition = self._plan.nodes[node_id]
        code = (event.error or {}).get("code")
        if code in _LOSSES:
            if node.lost_at != event.seq - 1 or event.attempt != node.ended:
                self._say("I15", f"it failed with {code}, and no attempt was lost", node_id)
            if code == "lost" and definition.delivery is not Delivery.AT_MOST_ONCE:
                self._say("I15", "a lost attempt ended it, and it may run more than once", node_id)
            node.attempt = node.at_most = node.ended
        else:
            node.failures += 1
            if code in _UNRUN and event.started_at is None:
                self._require_ready(node_id)
                if (event.attempt or 0) != node.ended:
                    self._say("I5", f"attempt {event.attempt} of a failure without one", node_id)
            else:
                self._attempt_ended(event, node)
                if code is None or event.started_at is None:
                    self._say("I15", "it failed without an attempt that did", node_id)
                # An expression may have made the failure final, and no event records its value.
                elif definition.retry.when is None and _may_try_again(event, definition, node.failures):
                    self._say("I15", f"it failed for good after {node.failures} failures", node_id)
        if (node_id, event.generation) in self._letters:
            self._say("I6", f"it failed twice in generation {event.generation}", node_id)
        self._settle(event, node, NodeState.FAILED)
        node.finished_at = event.at if event.finished_at is None else event.finished_at
        # The child has a letter of its own.
        if code != "child_failed":
            self._letters[node_id, event.generation] = Letter(attempt=node.ended, error=event.error)
        if self._handled(node_id, (NodeState.COMPLETED,)):
            self._mark_handled(node_id)
        self._look_for_fatal(node_id)

    def _skipped(self, event: History, node_id: str, node: ReplayedNode) -> None:
        if event.started_at is not None or node.ran_in == event.generation:
            self._say("I16", "it was skipped after it had been started", node_id)
        if (event.attempt or 0) != node.ended:
            self._say("I5", f"attempt {event.attempt} of a node that was skipped", node_id)
        wanted = self._rule(node_id)
        if event.reason == Reason.CONDITION:
            is_ready = wanted == _READY or self._is_kept(event)
            if not is_ready or node_id not in self._plan.conditions:
                self._say("I2", f"its condition was asked, and its rule says {wanted}", node_id)
        elif wanted != event.reason:
            self._say("I2", f"it was skipped as {event.reason}, and its rule says {wanted}", node_id)
        elif event.reason in (Reason.UPSTREAM_FAILED, Reason.UPSTREAM_SKIPPED):
            self._check_cause(event, node_id)
        self._settle(event, node, NodeState.SKIPPED)
        self._look_for_fatal(node_id)

    def _check_cause(self, event: History, node_id: str) -> None:
        """A cause is a parent that broke the rule, or the cause of one: so it is an ancestor."""
        for parent_id in self._plan.graph.parents[node_id]:
            parent = self._nodes[parent_id]
            bad = _is_bad(parent)
            if parent.state is None or bad is not (event.reason == Reason.UPSTREAM_FAILED):
                continue
            if event.cause == (parent_id if parent.cause is None else parent.cause):
                return
        self._say("I16", f"its cause {event.cause} is not what broke its rule", node_id)

    def _cancelled(self, event: History, node_id: str, node: ReplayedNode) -> None:
        why = (str(event.reason), event.cause)
        if event.reason not in _STOPS:
            self._say("I17", f"it was cancelled because of {event.reason}", node_id)
        elif self._stopping not in (None, why):
            self._say("I17", f"it was cancelled because of {event.reason}, others for another reason")
        elif self._stopping is None:
            self._stopping = why
            if event.reason == Reason.FAIL_FAST and self._fatal is None:
                self._say("I17", f"it was stopped because of {event.cause}, which can still be handled")
        if event.reason == Reason.FAIL_FAST:
            if self._plan.definition.failure_policy is not FailurePolicy.FAIL_FAST:
                self._say("I17", "fail_fast stopped an execution that goes on", node_id)
            if event.cause not in self._nodes or self._nodes[event.cause].state is not NodeState.FAILED:
                self._say("I16", f"it was cancelled because of {event.cause}, which did not fail", node_id)
        if event.started_at is not None:
            self._attempt_ended(event, node)
        elif (event.attempt or 0) != node.ended:
            self._say("I5", f"attempt {event.attempt} of a node that was not running", node_id)
        self._settle(event, node, NodeState.CANCELLED)

    def _discarded(self, event: History, node_id: str, node: ReplayedNode) -> None:
        if (
            event.generation == self._generation
            and self._state not in TERMINAL
            and node.state is None
            and event.attempt == node.attempt == node.at_most
        ):
            self._say("I12", f"the result of attempt {event.attempt} was discarded as stale", node_id)
        self._check_times(event)

    # -- what several of them are held against ------------------------------------------------------

    def _settle(self, event: History, node: ReplayedNode, state: NodeState) -> None:
        if node.state is not None:
            self._say("I6", f"it was {node.state} and became {state}", event.node)
        else:
            self._unsettled -= 1
        if event.state != state:
            self._say("I18", f"{event.type} made it {event.state}", event.node)
        node.settle(event, state)

    def _attempt_ended(self, event: History, node: ReplayedNode) -> None:
        """Check the end of an attempt: its number, that it was ready, and its times."""
        assert event.node is not None
        number = event.attempt or 0
        if number <= node.ended:
            self._say("I5", f"attempt {number} ended, and attempt {node.ended} had before", event.node)
        elif not node.attempt <= number <= node.at_most:
            self._say("I5", f"attempt {number} ended, and {node.attempt} was to be the next", event.node)
        node.attempt = node.at_most = number
        node.ended = max(number, node.ended)
        if event.started_at is not None:
            once = self._plan.nodes[event.node].delivery is Delivery.AT_MOST_ONCE
            if once and node.ran_in == event.generation:
                self._say("I5", "it is at_most_once, and was started twice", event.node)
            node.ran_in = event.generation
            self._require_ready(event.node)
        elif self._rule(event.node) == _WAIT:
            self._say("I2", "an attempt was lost before the node was ready", event.node)
        self._check_times(event)
        queued_at = event.queued_at
        if queued_at is None:
            return
        if node.due_at is not None and queued_at < node.due_at:
            self._say(
                "I19", f"it was queued {node.due_at - queued_at} µs before its retry was due", event.node
            )
        freed_at = self._freed_at(event.node)
        if queued_at < freed_at:
            self._say(
                "I20", f"it was queued {freed_at - queued_at} µs before what freed it ended", event.node
            )

    def _require_ready(self, node_id: str) -> None:
        wanted = self._rule(node_id)
        if wanted != _READY:
            rule = self._plan.nodes[node_id].trigger_rule
            states = ", ".join(
                f"{name} {self._nodes[name].state or 'not settled'}"
                for name in self._plan.graph.parents[node_id][:5]
            )
            self._say("I2", f"it ran, and {rule} says {wanted}: {states}", node_id)

    def _check_times(self, event: History) -> None:
        times = (event.queued_at, event.started_at, event.finished_at, event.at)
        known = [at for at in times if at is not None]
        if sorted(known) != known:
            shown = ", ".join(map(rfc3339, known))
            self._say("I20", f"its times are not in the order queued, started, finished: {shown}", event.node)

    def _freed_at(self, node_id: str) -> int:
        """Return the earliest moment at which a ready node can have become ready."""
        waking = _EARLY.get(self._plan.nodes[node_id].trigger_rule)
        ends = [
            parent.finished_at
            for name in self._plan.graph.parents[node_id]
            if (parent := self._nodes[name]).finished_at is not None and waking in (None, parent.state)
        ]
        return (max if waking is None else min)(ends, default=0)

    def _rule(self, node_id: str) -> str:
        """Ask the trigger rule: ready, wait, or the reason of a skip."""
        completed = failed = bad = skipped = waiting = 0
        for name in self._plan.graph.parents[node_id]:
            parent = self._nodes[name]
            if parent.state is None:
                waiting += 1
            elif parent.state is NodeState.COMPLETED:
                completed += 1
            elif _is_bad(parent):
                bad += 1
                failed += parent.state is NodeState.FAILED
            else:
                skipped += 1
        rule = self._plan.nodes[node_id].trigger_rule
        if rule is TriggerRule.ONE_SUCCESS and completed:
            return _READY
        if rule is TriggerRule.ONE_FAILED and failed:
            return _READY
        if bad and rule not in (TriggerRule.ALL_DONE, *_EARLY):
            return Reason.UPSTREAM_FAILED
        if skipped and rule is TriggerRule.ALL_SUCCESS:
            return Reason.UPSTREAM_SKIPPED
        if waiting:
            return _WAIT
        if rule is TriggerRule.ONE_FAILED:
            return Reason.NOT_TRIGGERED
        if rule is TriggerRule.ONE_SUCCESS and bad:
            return Reason.UPSTREAM_FAILED
        if skipped and not completed and rule not in (TriggerRule.ALL_DONE, TriggerRule.NONE_FAILED):
            return Reason.UPSTREAM_SKIPPED
        return _READY

    def _handled(self, node_id: str, states: Sequence[NodeState | None]) -> bool:
        """True if a dependent that handles failures is in one of these states."""
        return any(
            self._nodes[behind].state in states
            for behind in self._plan.graph.dependents[node_id]
            if self._plan.nodes[behind].trigger_rule is TriggerRule.ONE_FAILED
        )

    def _mark_handled(self, node_id: str) -> None:
        letter = self._letters.get((node_id, self._generation))
        if letter is not None and letter.state == "open":
            letter.state = "handled"

    def _look_for_fatal(self, node_id: str) -> None:
        """Under fail_fast, see whether a failure is left that nothing handles and nothing still can."""
        if self._plan.definition.failure_policy is not FailurePolicy.FAIL_FAST:
            return
        suspects = [node_id]
        if self._plan.nodes[node_id].trigger_rule is TriggerRule.ONE_FAILED:
            suspects += self._plan.graph.parents[node_id]
        for suspect in suspects:
            failed = self._nodes[suspect].state is NodeState.FAILED
            if failed and not self._handled(suspect, (None, NodeState.COMPLETED)):
                self._fatal = self._fatal or suspect

    # -- what is stored ----------------------------------------------------------------------------

    def compare(self, stored: Stored) -> None:
        """Compare what is stored with what the events lead to."""
        if self._state is None:
            self._say("I18", "it has no history")
            return
        facts = {
            "state": (stored.state, self._state),
            "generation": (stored.generation, self._generation),
            "created_at": (stored.created_at, self._created_at),
            "started_at": (stored.started_at, self._started_at),
            "finished_at": (stored.finished_at, self._finished_at),
            "error": (stored.error, self._error),
        }
        for name, (kept, told) in facts.items():
            if kept != told:
                self._say("I18", f"its {name} is stored as {kept}, its history says {told}")
        self._compare_nodes(stored)
        self._compare_counts(stored)
        if stored.letters is not None:
            self._compare_letters(stored)

    def _compare_nodes(self, stored: Stored) -> None:
        for node_id in stored.nodes.keys() - self._nodes.keys():
            self._say("I18", "it is stored, and the definition has no such node", node_id)
        for node_id, node in self._nodes.items():
            kept = stored.nodes.get(node_id)
            if kept is None:
                if node.is_touched:
                    self._say("I18", "its history tells of it, and nothing is stored", node_id)
                continue
            for name, is_, told in node.differences(kept):
                invariant = "I7" if name == "output" else "I18"
                self._say(invariant, f"its {name} is stored as {is_}, its history says {told}", node_id)

    def _compare_counts(self, stored: Stored) -> None:
        if stored.counts is None:
            return
        counted: dict[str | None, int] = {}
        for node in self._nodes.values():
            counted[node.state] = counted.get(node.state, 0) + 1
        if sum(stored.counts.values()) != len(self._nodes):
            self._say(
                "I11", f"its counts add up to {sum(stored.counts.values())} of {len(self._nodes)} nodes"
            )
        for state in (NodeState.COMPLETED, NodeState.FAILED, NodeState.SKIPPED, NodeState.CANCELLED):
            if stored.counts.get(state, 0) != counted.get(state, 0):
                kept, told = stored.counts.get(state, 0), counted.get(state, 0)
                self._say("I11", f"{kept} nodes are counted as {state}, its history has {told}")

    def _compare_letters(self, stored: Stored) -> None:
        assert stored.letters is not None
        for node_id, generation in self._letters.keys() - stored.letters.keys():
            self._say("I23", f"its failure in generation {generation} left no dead letter", node_id)
        for node_id, generation in stored.letters.keys() - self._letters.keys():
            self._say("I23", f"a dead letter of generation {generation}, and it did not fail", node_id)
        for key, told in self._letters.items():
            kept = stored.letters.get(key)
            if kept is None:
                continue
            if kept.state not in (told.state, "dropped"):
                self._say("I23", f"its dead letter is {kept.state}, and should be {told.state}", key[0])
            if (kept.attempt, kept.error) != (told.attempt, told.error):
                self._say("I23", "its dead letter tells of another failure", key[0])


_EXECUTION: Mapping[str, Callable[[_Replay, History], None]] = {
    "execution.created": _Replay._created,
    "execution.started": _Replay._started,
    "execution.paused": _Replay._paused,
    "execution.resumed": _Replay._resumed,
    "execution.retried": _Replay._retried,
    "execution.completed": _Replay._ended,
    "execution.failed": _Replay._ended,
    "execution.cancelled": _Replay._ended,
    "notification.delivered": _Replay._notified,
    "notification.failed": _Replay._notified,
    "signal.received": _Replay._signalled,
    "signal.discarded": _Replay._signalled,
}
_NODE: Mapping[str, Callable[[_Replay, History, str, ReplayedNode], None]] = {
    "node.waiting": _Replay._waiting,
    "node.completed": _Replay._completed,
    "node.retrying": _Replay._retrying,
    "node.polled": _Replay._polled,
    "node.lost": _Replay._lost,
    "node.failed": _Replay._failed,
    "node.skipped": _Replay._skipped,
    "node.cancelled": _Replay._cancelled,
    "result.discarded": _Replay._discarded,
}


def _is_bad(node: ReplayedNode) -> bool:
    """True if a parent counts as failed: by its own failure, or skipped because of a failure."""
    return node.state is NodeState.FAILED or (
        node.state is NodeState.SKIPPED and node.reason == Reason.UPSTREAM_FAILED
    )


def _may_try_again(event: History, definition: Node, failures: int) -> bool:
    return (
        bool((event.error or {}).get("retryable"))
        and failures <= definition.max_retries
        and definition.delivery is not Delivery.AT_MOST_ONCE
    )


def _may_ask_for_more(event: History) -> bool:
    """True if a service or a handler may have set the delay: no event records the delay they ask for."""
    error = event.error or {}
    if error.get("code") != "handler_error":
        return error.get("code") not in ("timeout", "network_error")
    details = error.get("details")
    kind = details.get("type") if isinstance(details, dict) else None
    # Only an error of weft's own kinds can ask; a built-in exception cannot.
    return kind is not None and not hasattr(builtins, str(kind))


def _some(names: Iterable[str], most: int = 5) -> str:
    names = list(names)
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "") or "none"
