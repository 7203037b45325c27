"""An engine for steps, and the executions under way on it.

The steps become a definition whose nodes say no more than "call the step"; the engine does the rest. The
functions, their conditions and the caller's context cannot be written into a definition: the session keeps
them by the id of the execution. Two graphs with the same definition share a plan, so a plan may hold nothing
of one run.

With a data folder, an execution has an idempotency key made of its definition and context: executing the same
graph again finds the existing execution.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import structs

from weft.clock import RealClock, new_id
from weft.core.output import output_of
from weft.core.payload import MAX_DOCUMENT_VALUES, Json, canonical, decode, encode
from weft.core.state import ExecutionState, NodeState
from weft.definition.validation import check
from weft.engine import Engine, EngineParts
from weft.errors import ClaimedError, DefinitionError, EvaluationError, NotAllowedError
from weft.expressions.scope import Scope
from weft.handlers.contract import Handler, HandlerContext, HandlerKind
from weft.handlers.outcome import described
from weft.handlers.registry import Registry
from weft.journal.contract import Claim
from weft.limits.memory import MemoryLimits
from weft.orchestrator.recover import rebuild
from weft.orchestrator.submit import ResolvedDefinition, SubmitOptions, make_submission, read_input, submit
from weft.sdk import signature
from weft.sdk.result import ExecutionResult, read_result
from weft.sdk.run import ended
from weft.tracing.opening import open_tracing

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from weft.core.ledger.changes import RecordedEvent
    from weft.definition.graph import Graph
    from weft.definition.plan import Plan
    from weft.definition.validation import Checked
    from weft.expressions.budget import Budget
    from weft.expressions.expression import Expression
    from weft.journal.sqlite.journal import SqliteJournal
    from weft.sdk.limiter import TokenBucketRateLimiter
    from weft.settings import Settings
    from weft.telemetry import Metrics

Context: TypeAlias = Mapping[str, Any]
StepFunction: TypeAlias = Callable[[Any], Any]
Condition: TypeAlias = str | Callable[[Any], bool]

# The key under which a step finds the outputs of all completed steps before it.
STEP_OUTPUTS = "step_outputs"


@dataclass(frozen=True, slots=True)
class Step:
    """One step: its node, as far as it can be written down, and the rest."""

    node: Mapping[str, Json]
    function: StepFunction
    condition: Condition | None


class StepContext(MutableMapping[str, Any]):
    """The context of a step: the input of the run, and the outputs of the steps before it.

    Outputs are read when they are asked for. In a long chain everything is before everything else, and a
    step mostly wants its parents. What a step writes into its context or takes out of it is its own affair:
    every attempt of every step has a new one. ``step_outputs`` is found by its name, and listed nowhere.
    """

    __slots__ = (
        *("_ancestors", "_given", "_graph", "_outputs", "_own", "_parents", "_seen", "_step_id"),
        "_taken_out",
    )

    def __init__(self, step_id: str, *, given: Context, graph: Graph, outputs: Mapping[str, bytes]) -> None:
        self._step_id = step_id
        self._given = given
        self._graph = graph
        self._outputs = outputs
        self._parents = frozenset(graph.parents[step_id])
        self._ancestors: frozenset[str] | None = None
        self._seen: dict[str, Json] = {}
        self._own: dict[str, Any] = {}
        self._taken_out: set[str] = set()

    def __getitem__(self, key: str) -> Any:
        if key in self._own:
            return self._own[key]
        if key in self._taken_out:
            raise KeyError(key)
        if key in self._seen:
            return self._seen[key]
        if key in self._parents or key in self._all_before():
            payload = self._outputs.get(key)
            value = self._seen[key] = None if payload is None else decode(payload)
            return value
        if key == STEP_OUTPUTS:
            return _StepOutputs(self._all_before(), self._graph, self._outputs)
        if key in self._given:
            return self._given[key]
        if key in self._graph.parents:
            raise KeyError(f"{key} does not run before {self._step_id}; add it to its depends_on")
        raise KeyError(f"{key} was not given, and is no step; there are: {', '.join(self) or 'none'}")

    def __setitem__(self, key: str, value: Any) -> None:
        self._own[key] = value
        self._taken_out.discard(key)

    def __delitem__(self, key: str) -> None:
        if key not in self:
            raise KeyError(key)
        self._own.pop(key, None)
        self._taken_out.add(key)

    def __iter__(self) -> Iterator[str]:
        before = self._all_before()
        keys = dict.fromkeys(key for key in self._given if key not in before and key != STEP_OUTPUTS)
        keys |= dict.fromkeys(step_id for step_id in self._graph.ids if step_id in before)
        keys |= dict.fromkeys(self._own)
        yield from (key for key in keys if key not in self._taken_out)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __contains__(self, key: object) -> bool:
        if key in self._own:
            return True
        if key in self._taken_out:
            return False
        return key in self._given or key in self._parents or key == STEP_OUTPUTS or key in self._all_before()

    def __repr__(self) -> str:
        return f"StepContext({dict(self)!r})"

    def _all_before(self) -> frozenset[str]:
        if self._ancestors is None:
            self._ancestors = self._graph.ancestors(self._step_id)
        return self._ancestors


class _StepOutputs(Mapping[str, Json]):
    """The outputs of the completed steps before a step, by their ids, as they are when it looks."""

    __slots__ = ("_before", "_graph", "_outputs")

    def __init__(self, before: frozenset[str], graph: Graph, outputs: Mapping[str, bytes]) -> None:
        self._before = before
        self._graph = graph
        self._outputs = outputs

    def __getitem__(self, key: str) -> Json:
        if key not in self._before or key not in self._outputs:
            raise KeyError(key)
        return decode(self._outputs[key])

    def __iter__(self) -> Iterator[str]:
        return (each for each in self._graph.ids if each in self._before and each in self._outputs)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        return repr(dict(self))


@dataclass(frozen=True, slots=True)
class _Run:
    """One execution, as far as the engine does not know it."""

    steps: Mapping[str, Step]
    given: Context
    graph: Graph
    # The conditions that are expressions.
    expressions: Mapping[str, Expression]
    # The outputs that were accepted so far.
    outputs: dict[str, bytes] = field(default_factory=dict)

    def context(self, step_id: str) -> StepContext:
        return StepContext(step_id, given=self.given, graph=self.graph, outputs=self.outputs)

    def wants(self, step_id: str, scope: Scope, budget: Budget) -> Json:
        """Ask the condition of a step; whatever goes wrong in it is an EvaluationError."""
        condition = self.steps[step_id].condition
        try:
            if callable(condition):
                return bool(condition(self.context(step_id)))
            scope = Scope(self.given, scope.execution, scope.nodes)
            return self.expressions[step_id].run(scope, budget)
        except EvaluationError:
            raise
        except Exception as error:
            raise EvaluationError(described(error)) from error


def check_steps(steps: Mapping[str, Step], *, failure_policy: str | None = None) -> Plan:
    """Return the plan of a graph; raises DefinitionError, with every problem, where it has none."""
    document = _document(steps, failure_policy=failure_policy or "continue")
    return _plan_of(check(document, handlers=_registry_of(None), named=False))


def _document(steps: Mapping[str, Step], *, failure_policy: str) -> dict[str, Json]:
    return {"failure_policy": failure_policy, "nodes": [dict(step.node) for step in steps.values()]}


def _plan_of(checked: Checked) -> Plan:
    if checked.plan is None:
        raise DefinitionError(checked.problems)
    return checked.plan


def _registry_of(session: Session | None) -> Registry:
    """Return the two handlers of steps; without a session nothing is called by them."""

    def nobody(config: Json, context: HandlerContext) -> Any:
        raise NotImplementedError

    registry = Registry()
    plain, coroutine = (nobody, nobody) if session is None else (session.call, session.call_coroutine)
    registry.add(Handler("function", HandlerKind.USER, plain, asks_for_facts=False))
    registry.add(Handler("coroutine", HandlerKind.USER, coroutine, asks_for_facts=False))
    return registry


@cache
def _metrics() -> Metrics:
    """Return where all executors of this process count; whoever shows its Prometheus registry shows them."""
    from prometheus_client import REGISTRY

    from weft.telemetry import Metrics

    metrics = Metrics()
    REGISTRY.register(metrics)
    return metrics


class Session:
    def __init__(
        self,
        settings: Settings,
        limiters: Mapping[str, TokenBucketRateLimiter],
        data: Path | None = None,
    ) -> None:
        # How many executions want it open.
        self.users = 0
        self._registry = _registry_of(self)
        self._limiters = limiters
        self._metrics = _metrics()
        self._keeps = data is not None
        self._engine = Engine(
            registry=self._registry,
            settings=settings,
            # What else is in a folder may be of another program, whose functions are not here.
            recovers=data is None,
            listen=self._on_recorded,
            parts=EngineParts(
                # SQLite in a folder loses no commits, so nobody is told of lost ones.
                journal=None if data is None else lambda _: self._open_journal(data, settings),
                tracing=open_tracing,
                limits=lambda clock: MemoryLimits(
                    {tag: limiter.bucket for tag, limiter in limiters.items()}, now=clock.now
                ),
            ),
        )
        # Outputs are read from the rows that are heard of, so none lies elsewhere.
        self._engine.ports.inline_bytes = settings.bounds().max_payload_bytes
        self._opening = asyncio.Lock()
        self._is_open = False
        self._runs: dict[str, _Run] = {}

    async def open(self) -> None:
        async with self._opening:
            if not self._is_open:
                await self._engine.__aenter__()
                self._is_open = True

    async def close(self) -> None:
        if self._is_open:
            await self._engine.__aexit__()

    async def execute(
        self, steps: Mapping[str, Step], given: Context, *, failure_policy: str, name: str | None = None
    ) -> ExecutionResult:
        """Take one execution to its end; cancelling this cancels it."""
        document = _document(steps, failure_policy=failure_policy)
        checked = check(document, handlers=self._registry, named=False)
        plan = self._with_conditions(_plan_of(checked))
        run = _Run(steps, dict(given), plan.graph, _plan_of(checked).conditions)
        execution_id = new_id()
        self._runs[execution_id] = run
        try:
            if self._keeps:
                execution_id = await self._start_or_go_on(execution_id, run, plan, document, name)
            else:
                await self._engine.submit(plan, document=document, execution_id=execution_id)
            await ended(execution_id, self._engine)
            return await read_result(execution_id, plan, self._engine.ports)
        finally:
            self._runs.pop(execution_id, None)
            self._engine.forget(execution_id)

    async def _start_or_go_on(
        self, execution_id: str, run: _Run, plan: Plan, document: Json, name: str | None
    ) -> str:
        """Start an execution, or go on with the one of the same definition and context; return its id."""
        ports = self._engine.ports
        payload = await read_input(run.given, plan, ports.bounds)
        digest = _digest(name, document, run)
        claim = Claim(key=f"dag:{digest}", request_digest=digest, resource=f"execution/{execution_id}")
        body = encode(document, max_bytes=ports.bounds.max_body_bytes, max_values=MAX_DOCUMENT_VALUES)
        source = ResolvedDefinition(plan=plan, document=body, workflow=None)
        self._engine.watch(execution_id, total=len(plan.nodes))
        try:
            await submit(
                [make_submission(execution_id, source, payload, SubmitOptions())], ports, claim=claim
            )
        except ClaimedError as claimed:
            self._engine.forget(execution_id)
            del self._runs[execution_id]
            execution_id = claimed.resource.removeprefix("execution/")
            await self._go_on(execution_id, run, total=len(plan.nodes))
        return execution_id

    async def _go_on(self, execution_id: str, run: _Run, *, total: int) -> None:
        """Let an execution that is there run to its end: what failed or was cancelled is run again."""
        if execution_id in self._runs:
            return  # it is under way here
        ports = self._engine.ports
        rows = await ports.journal.nodes(execution_id)
        blobs = await ports.journal.blobs([row.blob for row in rows.values() if row.blob is not None])
        for row in rows.values():
            if row.state is NodeState.COMPLETED:
                run.outputs[row.node_id] = output_of(row, blobs.__getitem__)
        self._runs[execution_id] = run
        execution = await ports.journal.execution(execution_id)
        assert execution is not None
        if execution.state in (ExecutionState.FAILED, ExecutionState.CANCELLED):
            with suppress(NotAllowedError):  # somebody else was quicker
                await self._engine.retry(execution_id)
        elif not execution.is_terminal:
            # An earlier process left it so.
            self._engine.watch(execution_id, total=total)
            await rebuild(execution_id, ports)

    def _open_journal(self, data: Path, settings: Settings) -> SqliteJournal:
        from weft.journal.sqlite.journal import SqliteJournal

        session = self

        class StepJournal(SqliteJournal):
            """Conditions that are functions cannot be read from a document, so each plan is given them."""

            async def plan(self, digest: str) -> Plan | None:
                plan = await super().plan(digest)
                return None if plan is None else session._with_conditions(plan)

        return StepJournal(data, now=RealClock().now, new_id=new_id, bounds=settings.bounds())

    def _with_conditions(self, plan: Plan) -> Plan:
        """Let every condition be asked of the run it is asked in."""
        if not plan.conditions:
            return plan
        return replace(
            plan,
            conditions={
                step_id: structs.replace(expression, run=partial(self._wants, step_id))
                for step_id, expression in plan.conditions.items()
            },
        )

    def _wants(self, step_id: str, scope: Scope, budget: Budget) -> Json:
        return self._runs[scope.execution["id"]].wants(step_id, scope, budget)

    def call(self, config: Json, context: HandlerContext) -> Any:
        run = self._runs[context.execution_id]
        return run.steps[context.node_id].function(run.context(context.node_id))

    async def call_coroutine(self, config: Json, context: HandlerContext) -> Any:
        return await self.call(config, context)

    def _on_recorded(self, recorded_events: Sequence[RecordedEvent]) -> None:
        self._metrics.receive(recorded_events)
        for recorded_event in recorded_events:
            run = (
                self._runs.get(recorded_event.execution.id) if recorded_event.execution is not None else None
            )
            if run is not None:
                for row in recorded_event.rows:
                    if row.state is NodeState.COMPLETED and row.output is not None:
                        run.outputs[row.node_id] = row.output


def _digest(name: str | None, document: Mapping[str, Json], run: _Run) -> str:
    """Return what names a graph and its context in a later process, too.

    A function counts by its name: where it stands in a file changes with every line that is added above it.
    """
    nodes = [
        {**step.node, "condition": {"function": signature.name(step.condition)}}
        if callable(step.condition)
        else step.node
        for step in run.steps.values()
    ]
    return hashlib.sha256(canonical([name, {**document, "nodes": nodes}, run.given])).hexdigest()
