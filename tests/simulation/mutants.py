"""Bugs planted into the real code, one at a time, by changing a line of it.

Each is a mistake that is easily made, and that a net may well hide: so each names the profile of the
simulation that shows it, and within how many seeds. ``planted`` changes the code of the one function in
place, so whoever has imported it runs the mutant, and puts it back afterwards. A line that is no longer there
is an error: the mutant then has to be written anew, or it proves nothing.
"""

from __future__ import annotations

import inspect
import textwrap
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from weft.core.snapshot import RowUpdate
from weft.orchestrator.advance import record

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import FunctionType

    from weft.core.event import Event
    from weft.core.ledger.changes import RecordedEvent
    from weft.orchestrator.context import Context


@dataclass(frozen=True, slots=True)
class Mutant:
    name: str
    # Where: module:function, or module:class.function.
    function: str
    old: str
    new: str
    # Which profile shows it, within its first so many seeds.
    profile: str
    seeds: int
    # What is wrong with it, for the table.
    bug: str


@contextmanager
def planted(mutant: Mutant) -> Iterator[None]:
    """Let the mutant's function be wrong for a while."""
    function = _function(mutant.function)
    right = function.__code__
    function.__code__ = _mutated(mutant, function).__code__
    try:
        yield
    finally:
        function.__code__ = right


def _function(path: str) -> FunctionType:
    module, _, name = path.partition(":")
    found: Any = import_module(module)
    for part in name.split("."):
        found = inspect.getattr_static(found, part)
    plain: FunctionType = getattr(found, "__func__", found)
    return plain


def _mutated(mutant: Mutant, function: FunctionType) -> FunctionType:
    source = textwrap.dedent(inspect.getsource(function))
    if source.count(mutant.old) != 1:
        raise LookupError(
            f"{mutant.name}: {mutant.function} has {mutant.old!r} {source.count(mutant.old)} times, not once"
        )
    # In its own file and scope: names are looked up where the original looks them up.
    scope = dict(function.__globals__)
    code = compile(
        "from __future__ import annotations\n" + source.replace(mutant.old, mutant.new),
        f"<{mutant.name}>",
        "exec",
    )
    exec(code, scope)
    made = scope[function.__name__]
    plain: FunctionType = getattr(made, "__func__", made)
    return plain


async def applied_before_recorded(events: Sequence[Event], context: Context) -> Sequence[RecordedEvent]:
    """What ``advance`` must not do: tell the store what is not yet committed."""
    journal: Any = context.ports.journal
    ledger = journal._ledger()
    expected = [ledger.record(event) for event in events]
    await context.ports.store.apply(
        [
            RowUpdate(recorded_event.execution, recorded_event.plan, recorded_event.rows)
            for recorded_event in expected
            if recorded_event.execution is not None
            and recorded_event.plan is not None
            and recorded_event.rows
        ]
    )
    return await record(events, context)


_LEDGER = "weft.core.ledger"
_STORE = "weft.store.memory.store:MemoryStore"
_CONFIG_MEMORY = "weft.store.memory.budget:ConfigMemory"
_ORCHESTRATOR = "weft.orchestrator"

MUTANTS = (
    # -- the order of steps ------------------------------------------------------------------------
    Mutant(
        "ack_before_commit",
        f"{_ORCHESTRATOR}.collect:take",
        "    if not deliveries:\n        return\n",
        "    if not deliveries:\n        return\n"
        "    await context.ports.transport.ack(context.name, [d.id for d in deliveries])\n",
        "orchestrator_crash",
        60,
        "results are acknowledged before they are recorded",
    ),
    Mutant(
        "apply_before_commit",
        f"{_ORCHESTRATOR}.advance:advance",
        "recorded_events = await record(events, context)",
        "from tests.simulation.mutants import applied_before_recorded as early\n"
        "        recorded_events = await early(events, context)",
        "orchestrator_crash",
        60,
        "the store is told of results that are not yet committed, and dependents are dispatched on them",
    ),
    Mutant(
        "known_not_applied",
        f"{_ORCHESTRATOR}.advance:_merged",
        "recorded_event.verdict is Verdict.UNKNOWN",
        "recorded_event.verdict is not Verdict.ACCEPTED",
        "orchestrator_crash",
        60,
        "a result that was recorded before a crash is not applied when it comes again",
    ),
    Mutant(
        "finish_apart",
        f"{_LEDGER}.fence:Ledger._recorded",
        "if execution.unsettled == 0 and execution.state not in TERMINAL:",
        "if False:",
        "calm",
        60,
        "the commit that settles the last node does not end the execution",
    ),
    Mutant(
        "unknown_commit_is_success",
        f"{_ORCHESTRATOR}.advance:_commit",
        "        return await ports.journal.record(events)\n    except",
        "        return await ports.journal.record(events)\n"
        "    except __import__('weft.errors').errors.OutcomeUnknownError:\n        return []\n    except",
        "unknown_commits",
        60,
        "a commit whose answer was lost is taken for done, and nothing is applied",
    ),
    Mutant(
        "failed_commit_is_success",
        f"{_ORCHESTRATOR}.advance:_commit",
        "        return await ports.journal.record(events)\n    except",
        "        return await ports.journal.record(events)\n"
        "    except __import__('weft.errors').errors.OutcomeUnknownError:\n        raise\n"
        "    except __import__('weft.errors').errors.JournalError:\n        return []\n    except",
        "unknown_commits",
        60,
        "a commit that failed is taken for done, and its results are acknowledged",
    ),
    Mutant(
        "unknown_commit_is_refusal",
        f"{_ORCHESTRATOR}.advance:_commit",
        "except UnstorableError as refusal",
        "except __import__('weft.errors').errors.JournalError as refusal",
        "journal_errors",
        60,
        "a commit that failed, or whose answer was lost, is taken for one that can never be stored",
    ),
    Mutant(
        "recovers_before_it_drains",
        f"{_ORCHESTRATOR}.service:Orchestrator.take_over",
        "    await take_waiting(self.context, limit=BATCH)\n",
        "    await recover(self.ports, grace_seconds=self._grace_seconds)\n"
        "    await take_waiting(self.context, limit=BATCH)\n",
        "restart",
        60,
        "an orchestrator that starts rebuilds executions whose results wait in the stream",
    ),
    # -- the fence ---------------------------------------------------------------------------------
    Mutant(
        "no_attempt_fence",
        f"{_LEDGER}.fence:fence",
        "if event.attempt != row.attempt:",
        "if False:",
        "worker_crash",
        60,
        "a result of any attempt counts",
    ),
    Mutant(
        "fence_lets_older_attempts_pass",
        f"{_LEDGER}.fence:fence",
        "if event.attempt != row.attempt:",
        "if event.attempt > row.attempt:",
        "frozen_worker",
        60,
        "the fence compares with <= instead of ==",
    ),
    Mutant(
        "settled_nodes_are_overwritten",
        f"{_LEDGER}.fence:fence",
        "if row.state is not None:",
        "if False:",
        "doubled",
        60,
        "a second result of a settled node counts",
    ),
    Mutant(
        "loss_without_fence",
        f"{_LEDGER}.fence:fence",
        "if event.attempt != row.attempt:",
        "if event.attempt != row.attempt and not isinstance(event, AttemptLost):",
        "worker_crash",
        60,
        "the reaper gives out another attempt without comparing the number that it lost",
    ),
    Mutant(
        "skip_counts_twice",
        f"{_LEDGER}.settle:skip_nodes",
        "if row.state is None:",
        "if row.state is None or row.state is NodeState.SKIPPED:",
        "sweeper_crash",
        100,
        "a node that two failures skip is counted twice",
    ),
    # -- attempts and generations ------------------------------------------------------------------
    Mutant(
        "retry_resets_attempts",
        f"{_LEDGER}.control:reopen",
        "attempt = old.attempt + 1 if may_have_started(plan, rows, node_id) else old.attempt",
        "attempt = 1",
        "calm_control",
        60,
        "a retry of the execution numbers attempts from 1 again",
    ),
    Mutant(
        "retry_reuses_the_attempt",
        f"{_LEDGER}.control:reopen",
        "old.attempt + 1 if may_have_started(plan, rows, node_id) else old.attempt",
        "old.attempt",
        "calm_control",
        60,
        "a retry gives out a number that may have been handed out before",
    ),
    Mutant(
        "retry_keeps_what_ran_on_failures",
        "weft.core.retry_plan:plan_retry",
        "or plan.nodes[dependent].trigger_rule in _RAN_ON_FAILURES",
        "or False",
        "api_crash",
        300,
        "a retry keeps the outcome of a node that ran because of a failure which is taken back",
    ),
    Mutant(
        "overwritten_completion_is_forgotten",
        f"{_LEDGER}.changes:Changes.put",
        "self.overwritten.append(completion_event(change.row.id, old, digest))",
        "pass",
        "calm_control",
        60,
        "a retry overwrites the row that stands for a completion, and stores no event for it",
    ),
    Mutant(
        "failures_are_not_counted",
        f"{_LEDGER}.node_events:attempt_failed",
        "failures=row.failures + 1",
        "failures=row.failures",
        "calm",
        60,
        "a node is tried again for ever",
    ),
    Mutant(
        "retry_time_is_not_recorded",
        f"{_LEDGER}.node_events:attempt_failed",
        "retry_at=due_at",
        "retry_at=None",
        "calm",
        60,
        "the time of a retry is in no row, so nobody waits for it",
    ),
    Mutant(
        "retry_time_in_memory_only",
        f"{_LEDGER}.node_events:attempt_failed",
        "changes.put(change, row, again)",
        "changes.put(change, row, replace(again, retry_at=None))",
        "flush_timers",
        1500,
        "the store waits for a retry, and forgets the time when it is rebuilt",
    ),
    Mutant(
        "retry_after_is_ignored",
        "weft.core.judge:delay_seconds",
        "max(backoff, retry_after_seconds or 0.0)",
        "backoff",
        "ahead",
        150,
        "a service that asks for time is called again at once",
    ),
    Mutant(
        "retry_condition_is_not_heeded",
        f"{_ORCHESTRATOR}.results.retries:judge_retry",
        "return final_failure(event, plan, error, settled=context.cascades.known)",
        "return event",
        "retries",
        60,
        "a failure retries though `retry.when` is false, or cannot be evaluated",
    ),
    Mutant(
        "retry_condition_counts_from_zero",
        "weft.core.judge:retry_words",
        "result.failures + 1",
        "result.failures",
        "retries",
        60,
        "`retry.when` sees the first failure as attempt 0",
    ),
    # -- groups --------------------------------------------------------------------------------------
    Mutant(
        "group_has_no_limit",
        "weft.journal.firing:next_turns",
        "len(running) + len(started) + 1 - one.slots",
        "len(started) + 1 - one.slots",
        "groups",
        60,
        "those of a group that run are not counted",
    ),
    Mutant(
        "doomed_ones_start",
        "weft.journal.firing:next_turns",
        "    if takes_over:\n",
        "    if False:\n",
        "groups",
        60,
        "one starts though another takes its place",
    ),
    Mutant(
        "newcomer_to_a_group_is_not_released",
        f"{_ORCHESTRATOR}.submit:submit",
        "await release_groups(rows, ports)",
        "pass",
        "groups",
        60,
        "whoever accepts an execution does not look whether its turn has come",
    ),
    Mutant(
        "end_in_a_lane_releases_nobody",
        f"{_ORCHESTRATOR}.triggers.lanes:release_behind",
        "if row.state in TERMINAL",
        "if False",
        "groups",
        60,
        "the end of an execution does not let the next of its group start",
    ),
    Mutant(
        "stalled_lanes_are_not_released",
        f"{_ORCHESTRATOR}.triggers.lanes:release_stalled",
        "for namespace, lane in stalled:",
        "for namespace, lane in ():",
        "groups_faults",
        150,
        "nobody lets the next of a group start when the process died that was to do it",
    ),
    Mutant(
        "rebuild_starts_what_waits",
        f"{_ORCHESTRATOR}.recover:rebuild",
        "if row.lanes and",
        "if False and",
        "groups_faults",
        150,
        "a rebuild starts an execution that waits for its turn",
    ),
    Mutant(
        "retry_joins_no_group",
        f"{_LEDGER}.control:retry",
        "None if execution.group_name is None else plan.definition.concurrency",
        "None",
        "groups",
        60,
        "a retry starts beside the others of its group",
    ),
    Mutant(
        "at_most_once_is_not_issued",
        f"{_ORCHESTRATOR}.dispatch:_issue",
        "if not unissued:",
        "if True:",
        "at_most_once",
        60,
        "an at_most_once attempt is handed out without a record of it",
    ),
    Mutant(
        "cache_answers_what_runs",
        f"{_LEDGER}.fence:fence",
        "if isinstance(event, NodeCached) and row.issued == row.attempt:",
        "if False:",
        "caches",
        150,
        "an orchestrator that is late completes a node from the cache while a worker runs it",
    ),
    # -- rules and verdicts ------------------------------------------------------------------------
    Mutant(
        "handled_failures_are_fatal",
        f"{_LEDGER}.settle:stop_if_fatal",
        "and not has_handler_in(change, suspect, None, NodeState.COMPLETED)",
        "and True",
        "early",
        150,
        "fail_fast stops at a failure whose handler can still run",
    ),
    Mutant(
        "fail_fast_goes_on",
        f"{_LEDGER}.settle:stop_if_fatal",
        "if fatal:",
        "if False:",
        "calm",
        60,
        "a failure that nothing handles does not stop a fail_fast execution",
    ),
    Mutant(
        "verdict_ignores_failures",
        f"{_LEDGER}.settle:finish",
        "if failures:",
        "if False:",
        "calm",
        60,
        "an execution with a failure that nothing handled is COMPLETED",
    ),
    Mutant(
        "letters_stay_open",
        f"{_LEDGER}.node_events:_complete",
        "if change.row_of(parent).state is NodeState.FAILED:",
        "if False:",
        "calm",
        60,
        "the dead letter of a failure that was handled stays open",
    ),
    Mutant(
        "skip_is_not_propagated",
        f"{_ORCHESTRATOR}.dispatch:_carry_out",
        "events.append(await with_running(_settling_event(node, decision), node.plan, ports))",
        "pass",
        "calm",
        60,
        "a node that is to be skipped is forgotten",
    ),
    Mutant(
        "all_success_ignores_skips",
        "weft.core.readiness:readiness",
        "if rule is TriggerRule.ALL_SUCCESS and skipped is not None:",
        "if False:",
        "api_crash",
        200,
        "all_success runs behind a skipped parent",
    ),
    # -- the store ---------------------------------------------------------------------------------
    Mutant(
        "counter_fan_in",
        f"{_STORE}._free_behind",
        "child.awaited.discard(node_id)",
        "child.awaited and child.awaited.pop()",
        "flush",
        60,
        "a join counts its parents instead of naming them",
    ),
    Mutant(
        "view_is_not_fixed",
        f"{_STORE}._make_free",
        "node.seen = frozenset(name for name in wanted if name in outcomes)",
        "pass",
        "early",
        60,
        "a node of an early rule sees whatever has settled by the time it is decided",
    ),
    Mutant(
        "start_of_any_attempt",
        f"{_STORE}._find",
        "or node.attempt != attempt",
        "",
        "swarm",
        300,
        "the store does not compare the attempt: not at a start, a heartbeat, or a report",
    ),
    Mutant(
        "start_twice",
        f"{_STORE}._start",
        "if node.phase is not QUEUED:",
        "if node.phase not in (QUEUED, RUNNING):",
        "doubled",
        60,
        "a task that comes twice is started twice",
    ),
    Mutant(
        "renewal_of_any_attempt",
        f"{_STORE}._renew",
        "    found = self._find(item.execution_id, item.generation, item.node_id, item.attempt)\n",
        "    there = self._executions.get(item.execution_id)\n"
        "    if there is not None and item.node_id in there.nodes:\n"
        "        return Answer.YES\n"
        "    found = self._find(item.execution_id, item.generation, item.node_id, item.attempt)\n",
        "frozen_worker",
        60,
        "a lease is renewed for a worker whose attempt is no longer its own",
    ),
    Mutant(
        "report_keeps_the_lease",
        f"{_STORE}.report",
        "node.lease_until = max(node.lease_until, until)",
        "pass",
        "journal_away",
        60,
        "an attempt whose result waits for the journal is taken for lost",
    ),
    Mutant(
        "pause_not_checked_at_start",
        f"{_STORE}._start",
        "if not execution.is_open:",
        "if False:",
        "slow_api",
        300,
        "a task that was queued before the pause is started after it",
    ),
    Mutant(
        "end_is_merged",
        f"{_STORE}._apply",
        "if row.state in TERMINAL:",
        "if False:",
        "calm",
        20,
        "an execution that has ended stays open in the store",
    ),
    Mutant(
        "no_orphans",
        f"{_STORE}._install",
        "if not fresh:",
        "if False:",
        "flush",
        60,
        "after a rebuild, what may be running somewhere is started once more under the same number",
    ),
    Mutant(
        "reaper_of_running_only",
        f"{_STORE}.due",
        "expired.append(self._expired(execution_id, node_id, node))",
        "node.phase is RUNNING and expired.append(self._expired(execution_id, node_id, node))",
        "flush",
        60,
        "attempts that were in flight when the store was lost are never given up",
    ),
    # -- a journal that has lost commits -----------------------------------------------------------
    Mutant(
        "orphans_count",
        f"{_ORCHESTRATOR}.collect:without_orphans",
        "if not old:",
        "if True:",
        "set_back",
        60,
        "a result counts though the journal has lost what its attempt was started on",
    ),
    Mutant(
        "any_orphan_is_adopted",
        f"{_ORCHESTRATOR}.collect:_is_adopted",
        'if node.phase == "orphaned":',
        "if True:",
        "set_back_crash",
        600,
        "the same of an attempt that was not orphaned, which has the number of another",
    ),
    Mutant(
        "step_of_another_incarnation",
        f"{_ORCHESTRATOR}.context:check_step",
        "if begun_on is not None and begun_on != ports.incarnation():",
        "if False:",
        "set_back",
        60,
        "an orchestrator records decisions that it made on lost commits",
    ),
    Mutant(
        "apply_frees_nothing",
        f"{_STORE}.apply",
        "applied[index] = Applied(_YES, self._free_nodes(execution), queued.get(execution_id, ()))",
        "applied[index] = Applied(_YES, (), queued.get(execution_id, ()))",
        "calm",
        5,
        "an apply does not return the free nodes of the execution",
    ),
    Mutant(
        "queue_moves_what_is_not_free",
        f"{_STORE}._queue",
        "node.attempt != task.attempt or node.phase is not FREE or",
        "node.attempt != task.attempt or",
        "ahead",
        30,
        "a task that came with its rows moves a node that is not free",
    ),
    Mutant(
        "rebuild_frees_what_may_run",
        f"{_ORCHESTRATOR}.recover:rebuild",
        "never_started = row.started_at is None",
        "never_started = True",
        "memory_faults",
        5,
        "a rebuild takes every execution for one that was never started",
    ),
    # These two rules are scripts of Redis (hello.lua): in the simulation the world follows them.
    Mutant(
        "streams_are_not_wiped",
        "tests.support.simulation.world:World.connect",
        "self.transport.wipe_tasks()",
        "pass",
        "set_back_queues",
        150,
        "a task that was made of lost results is started when its node is queued again",
    ),
    Mutant(
        "store_is_not_wiped",
        "tests.support.simulation.world:World.connect",
        "self.store.flush()",
        "pass",
        "set_back",
        60,
        "the store goes on with what the journal has lost",
    ),
    # -- nets --------------------------------------------------------------------------------------
    Mutant(
        "no_sweep_of_leases",
        f"{_ORCHESTRATOR}.sweep:sweep",
        "for expired in due.expired",
        "for expired in ()",
        "worker_crash",
        60,
        "the sweep does not look for attempts whose worker has died",
    ),
    Mutant(
        "no_reclaim",
        f"{_ORCHESTRATOR}.sweep:reclaim",
        "await take(messages, context)",
        "pass",
        "orchestrator_crash",
        60,
        "results that an orchestrator took and did not finish stay taken",
    ),
    Mutant(
        "no_rebuild",
        f"{_ORCHESTRATOR}.recover:recover",
        "if epoch is None or epoch < execution.epoch:",
        "if False:",
        "flush",
        60,
        "the sweep does not look for executions that the store has lost",
    ),
    Mutant(
        "release_is_final",
        "weft.limits.memory:_WaitQueue.take_back",
        "late = [ticket for ticket, until in self.released.items() if until <= now]",
        "late: list[AttemptRef] = []",
        "sweeper_crash",
        150,
        "a node that was released, and whose sweeper died, waits for ever",
    ),
    # -- control -----------------------------------------------------------------------------------
    Mutant(
        "cancel_does_not_close",
        f"{_ORCHESTRATOR}.control:cancel",
        "await _close(execution, recorded_event.plan, ports)",
        "pass",
        "calm_control",
        60,
        "a cancel is answered before the store knows, and attempts start after it",
    ),
    Mutant(
        "close_leaves_the_queue",
        f"{_STORE}._close",
        "self._drop(execution_id)",
        "pass",
        "calm_control",
        60,
        "a task that was queued before the cancel is started after it",
    ),
    Mutant(
        "pause_is_not_told",
        f"{_ORCHESTRATOR}.control:pause",
        "await _tell(recorded_event, ports) is Answer.YES",
        "True",
        "calm_control",
        200,
        "a pause is answered before the store knows, and attempts start after it",
    ),
    Mutant(
        "paused_work_is_lost",
        "weft.core.snapshot:Snapshot.may_be_in_hand",
        "return halt.in_hand.get(node_id) == attempt",
        "return True",
        "flush_paused",
        60,
        "a store that is lost costs a paused execution attempts that were never handed out",
    ),
    Mutant(
        "pause_forgets_what_runs",
        f"{_ORCHESTRATOR}.recover:_in_hand",
        "node.phase in _IN_HAND",
        'node.phase == "orphaned"',
        "flush_paused",
        60,
        "an attempt that ran when its execution was paused is handed out again, under the same number",
    ),
    Mutant(
        "retry_is_not_fresh",
        f"{_ORCHESTRATOR}.control:retry",
        "fresh=True",
        "fresh=False",
        "calm_control",
        60,
        "nodes that a retry reopens wait as if a worker could be running them",
    ),
    Mutant(
        "key_is_not_kept",
        "weft.journal.memory:MemoryJournal._commit",
        "self._claims[claim.namespace, claim.key] = claim",
        "pass",
        "api_crash",
        60,
        "a call that is made again with its key starts a second execution",
    ),
    Mutant(
        "token_is_not_spent",
        "weft.limits.memory:MemoryLimits.spend",
        "queue.bucket.spend(now)",
        "pass",
        "limits",
        60,
        "a start of a limited tag takes no token",
    ),
    # -- memory ------------------------------------------------------------------------------------
    Mutant(
        "memory_is_not_given_back",
        f"{_CONFIG_MEMORY}.give_back",
        "self.held_bytes -= weight",
        "pass",
        "memory",
        60,
        "a large config that has ended counts as in flight for ever",
    ),
    Mutant(
        "memory_wakes_nobody",
        f"{_CONFIG_MEMORY}.wake_next",
        "self._wake(wakes)",
        "pass",
        "memory",
        100,
        "a node that waits for the memory of another execution is not woken when it is free",
    ),
    Mutant(
        "memory_turn_is_lost",
        f"{_CONFIG_MEMORY}.leave_queue",
        "self.wake_next()",
        "pass",
        "memory",
        200,
        "a node that goes on to the wait queue of its tag does not pass its turn for memory on",
    ),
    Mutant(
        "own_memory_is_not_queued",
        f"{_CONFIG_MEMORY}.admit",
        "self.waiting.setdefault(execution.row.id)",
        "self._has_own_room(execution, weight) and self.waiting.setdefault(execution.row.id)",
        "memory",
        100,
        "a node that waits for its execution's memory is in no wait queue when others have taken the rest",
    ),
    Mutant(
        "memory_is_unbounded",
        f"{_CONFIG_MEMORY}._has_own_room",
        "return not held or",
        "return True or",
        "memory",
        60,
        "an execution has as many large configs in flight as it likes",
    ),
    # -- parked nodes ------------------------------------------------------------------------------
    Mutant(
        "sleep_begins_again",
        f"{_LEDGER}.fence:fence",
        "if row.parked is not None:\n            # Its time has begun, and does not begin again.",
        "if False:\n            # Its time has begun, and does not begin again.",
        "sleeps_faults",
        100,
        "a sleep that was recorded and not told to the store is started once more, and counts anew",
    ),
    Mutant(
        "sleep_ends_early",
        f"{_LEDGER}.node_events:attempt_parked",
        "due_at = now + micros(event.seconds)",
        "due_at = now",
        "sleeps",
        60,
        "a node completes before its time has passed",
    ),
    Mutant(
        "rebuild_forgets_what_sleeps",
        f"{_STORE}._merge",
        "if row.parked is not None:",
        "if row.parked is not None and execution.row.epoch == 1:",
        "sleeps_faults",
        60,
        "a store that was rebuilt does not know the time of what sleeps",
    ),
    Mutant(
        "sleep_takes_no_slot",
        f"{_STORE}._park",
        "if execution.plan.definition.max_concurrency is None:",
        "if True:",
        "sleeps",
        60,
        "a node that sleeps is not counted under max_concurrency",
    ),
    Mutant(
        "due_sleep_is_taken_out",
        f"{_STORE}.due",
        "self._fire_parked(execution, node_id, node, now + _PARKED_LISTED)",
        "pass",
        "sleeps_faults",
        100,
        "a sweeper that dies with what is due in hand takes it along",
    ),
    Mutant(
        "sleep_begins_while_paused",
        f"{_LEDGER}.fence:fence",
        " and execution.state is not ExecutionState.PAUSED",
        "",
        "sleeps_paused",
        300,
        "a node that was free when its execution was paused begins to sleep all the same",
    ),
    Mutant(
        "parked_due_is_not_told",
        f"{_ORCHESTRATOR}.sweep:sweep",
        "range(0, len(due.parked), _PARKED_AT_ONCE)",
        "()",
        "sleeps",
        60,
        "the sweep does not record the ends of sleeps",
    ),
    # -- waits -------------------------------------------------------------------------------------
    Mutant(
        "mailbox_is_not_read",
        f"{_LEDGER}.waits:wait_started",
        "if event.wait.kind is WaitKind.SIGNAL and change.row.mailbox:",
        "if False:",
        "waits",
        60,
        "the commit that begins a wait does not look for a signal that came before",
    ),
    Mutant(
        "answer_of_what_has_ended",
        f"{_LEDGER}.waits:answer",
        "if row.wait is None or not _is_awaited(row.wait, event):\n            return Verdict.REFUSED, ()\n",
        "if row.started_at is None or row.wait is not None and not _is_awaited(row.wait, event):\n"
        "            return Verdict.REFUSED, ()\n"
        "        if row.wait is None:\n"
        "            return Verdict.ACCEPTED, (_end(changes, event, change, row, event.node_id),)\n",
        "waits",
        60,
        "a second answer to a wait counts, or one that comes after its expiry",
    ),
    Mutant(
        "wait_ends_early",
        f"{_LEDGER}.waits:wait_started",
        "else now + micros(event.seconds)",
        "else now",
        "waits",
        60,
        "a wait is due as soon as it begins",
    ),
    Mutant(
        "wait_begins_again",
        f"{_LEDGER}.fence:fence",
        "if row.parked is not None:\n            # Its time has begun, and does not begin again.",
        "if row.parked is not None and row.wait is None:",
        "waits",
        60,
        "a wait that two orchestrators begin counts its time anew",
    ),
    Mutant(
        "wait_begins_while_paused",
        f"{_LEDGER}.fence:fence",
        " and execution.state is not ExecutionState.PAUSED",
        " and (isinstance(event, WaitStarted) or execution.state is not ExecutionState.PAUSED)",
        "waits_paused",
        700,
        "a node that was free when its execution was paused begins to wait all the same",
    ),
    Mutant(
        "second_wait_is_answered",
        f"{_LEDGER}.waits:_longest_waiting",
        "return min(",
        "return max(",
        "waits",
        120,
        "a signal answers another node than the one that has waited longest",
    ),
    Mutant(
        "misfit_is_taken",
        f"{_LEDGER}.waits:_read_mailbox",
        "if row.node_id in signal.fits:",
        "if True:",
        "waits",
        60,
        "a signal of the mailbox answers a node whose schema it does not fit",
    ),
    Mutant(
        "misfit_answers",
        f"{_LEDGER}.waits:answer",
        "if waiting.node_id not in event.fits:",
        "if False:",
        "waits",
        60,
        "a signal answers a node that waits, whose schema it does not fit",
    ),
    Mutant(
        "end_of_a_child_is_not_told",
        f"{_ORCHESTRATOR}.children.follow:follow",
        "    return [await end_of(row, ports) for row in ended.values()]",
        "    return []",
        "calls",
        20,
        "a child ends, and its parent waits on",
    ),
    Mutant(
        "untold_children_are_not_swept",
        f"{_ORCHESTRATOR}.children.mend:mend_children",
        "    if untold:",
        "    if False:",
        "calls_crash",
        60,
        "whoever ends a child dies before its parent is told, and nobody looks for that",
    ),
    Mutant(
        "children_outlive_their_parent",
        f"{_ORCHESTRATOR}.children.follow:follow",
        "            bereft[execution.id] = None",
        "            pass",
        "calls",
        60,
        "an execution ends, and its children go on",
    ),
    Mutant(
        "cancel_leaves_the_children",
        f"{_ORCHESTRATOR}.control:cancel",
        "        await end_descendants(execution.id, ports)\n",
        "        pass\n",
        "calls_control",
        200,
        "a cancel is answered while children of the execution run",
    ),
    Mutant(
        "retry_makes_a_child_anew",
        f"{_LEDGER}.waits:take_over_child",
        "        reopen(changes, child)",
        "        pass",
        "calls_control",
        100,
        "a retry waits for a child that has failed",
    ),
    Mutant(
        "end_of_another_generation_counts",
        f"{_LEDGER}.waits:_link",
        "generation=parent.generation,",
        "generation=1,",
        "calls_control",
        100,
        "a child that a retry has opened again works for the generation before",
    ),
    Mutant(
        "resume_leaves_the_children",
        f"{_ORCHESTRATOR}.children.mend:mend_children",
        "        elif one.reason is StrayReason.PARENT_RESUMED:",
        "        elif False:",
        "calls_paused",
        60,
        "whoever resumes a parent dies before its children are resumed, and nobody looks for them",
    ),
    Mutant(
        "forgotten_before_the_parent_is_told",
        f"{_ORCHESTRATOR}.children.mend:mend_children",
        "        await advance([await end_of(row, ports) for row in untold], context)\n",
        "        pass\n",
        "calls_crash",
        60,
        "the sweep drops the end of a child before its parent knows it",
    ),
    Mutant(
        "end_of_a_call_is_not_kept",
        f"{_LEDGER}.waits:child_ended",
        "    changes.untold.add((change.row.id, row.node_id))\n",
        "    pass\n",
        "calls_set_back",
        700,
        "whoever ends a call dies, and nobody tells the store of the parent",
    ),
    Mutant(
        "end_by_time_is_not_kept",
        f"{_LEDGER}.waits:wait_due",
        "changes.untold.add((change.row.id, row.node_id))",
        "pass",
        "waits_crash",
        300,
        "an orchestrator that ends a wait by its time dies, and the store is never told",
    ),
    Mutant(
        "answer_is_not_kept",
        f"{_LEDGER}.waits:_end",
        "changes.untold.add((change.row.id, row.node_id))",
        "pass",
        "waits_crash",
        60,
        "the process that answers a wait dies, and the store is never told",
    ),
    Mutant(
        "untold_is_never_told",
        f"{_ORCHESTRATOR}.waits.answers:tell_untold",
        "in by_execution.items()",
        "in ()",
        "waits_crash",
        60,
        "the sweep does not look for ends of waits that the store was not told of",
    ),
    Mutant(
        "forgotten_before_it_is_told",
        f"{_ORCHESTRATOR}.waits.answers:tell",
        "await _apply(execution, recorded_event.plan, rows, ports)\n",
        "await ports.journal.forget_waits(\n"
        "            [EndedWait(execution.id, execution.generation, row.node_id) for row in rows]\n"
        "        )\n"
        "        await _apply(execution, recorded_event.plan, rows, ports)\n",
        "waits_crash",
        300,
        "an answer leaves the index before the store knows it",
    ),
    Mutant(
        "rebuild_orphans_a_wait",
        "weft.core.snapshot:Snapshot.may_be_in_hand",
        "if self.plan.nodes[node_id].is_parked:",
        "if self.plan.nodes[node_id].is_parked and node_id not in self.plan.waits:",
        "waits_faults",
        60,
        "a rebuild takes a node that is to wait for one that a worker has in hand",
    ),
    Mutant(
        "waits_of_peers_are_not_looked_for",
        f"{_ORCHESTRATOR}.waits.timer:WaitTimer.is_due",
        "or now >= self._asked_at + micros(sweep_seconds)",
        "",
        "waits",
        60,
        "an orchestrator looks for due waits only at the times that it knows of itself",
    ),
    Mutant(
        "what_runs_is_evicted",
        "weft.store.memory.execution:OpenExecution.has_nothing_to_do",
        "self.free or self.slots or self.parked or self.delayed",
        "self.free or self.parked or self.delayed",
        "waits",
        60,
        "an execution leaves the hot state while an attempt of it is in hand",
    ),
    Mutant(
        "evicted_may_be_in_hand",
        f"{_LEDGER}.control:hot_state_evicted",
        "execution.halt = Halt(execution.epoch, paused_seq, {})",
        "execution.halt = None",
        "waits",
        60,
        "what follows on the wait of an evicted execution is taken for lost, and gets another attempt",
    ),
    Mutant(
        "evicted_is_rebuilt_twice",
        f"{_ORCHESTRATOR}.advance:apply",
        "seen_epoch=row.epoch",
        "seen_epoch=None",
        "waits",
        120,
        "of two sweeps that end a wait of an evicted execution, the second rebuilds what the first has",
    ),
    # -- events and triggers -----------------------------------------------------------------------
    Mutant(
        "event_counts_again",
        "weft.journal.triggers_in_memory:MemoryTriggers.fire",
        "if known is not None:",
        "if False:",
        "events",
        60,
        "an event that comes a second time starts and answers once more",
    ),
    Mutant(
        "due_time_starts_again",
        "weft.journal.triggers_in_memory:MemoryTriggers._step",
        " or firing.due_at not in (None, row.next_at)",
        "",
        "events",
        60,
        "a start does not compare the due time that it was decided on, and two processes start the same",
    ),
    Mutant(
        "due_time_is_passed_over",
        f"{_ORCHESTRATOR}.triggers.schedule:Scheduler._start",
        "zip(due.starts, [*due.starts[1:], due.next_at], strict=True)",
        "zip(due.starts[:1], [due.next_at])",
        "events_faults",
        200,
        "of several due times that were missed, the trigger moves past all with the start of the first",
    ),
    Mutant(
        "past_event_is_not_read",
        f"{_LEDGER}.waits:wait_started",
        "if event.lookback_seconds > 0 and",
        "if False and",
        "events",
        60,
        "a wait that looks back does not look for an event that came before",
    ),
    Mutant(
        "past_event_is_taken_twice",
        "weft.journal.memory:MemoryJournal.past_event",
        "and execution.id not in [id_ for id_, _ in (*event.answered, *event.answered_later)]",
        "",
        "events",
        120,
        "an event ends a second wait of an execution, which looks back at it",
    ),
)
