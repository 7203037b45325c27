"""An engine for steps, and the executions under way on it.

The steps become a definition whose nodes say no more than "call the step"; the engine does the rest. What
cannot be written down stays here: the functions, their conditions, what the caller put into the context.
It is found by the execution's id. Two graphs with the same definition share a plan, so a plan may hold
nothing of one run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import structs

from weft.core.expression import Scope
from weft.core.payload import Json, decode
from weft.core.state import NodeState
from weft.core.validation import check
from weft.embedded import Engine, new_id
from weft.errors import DefinitionError, EvaluationError
from weft.handlers.contract import Handler, HandlerContext, HandlerKind
from weft.handlers.outcome import described
from weft.handlers.registry import Registry
from weft.limits.memory import MemoryLimits
from weft.sdk.result import ExecutionResult, read_result
from weft.sdk.run import ended

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.core.budget import Budget
    from weft.core.expression import Expression
    from weft.core.graph import Graph
    from weft.core.ledger import Standing
    from weft.core.plan import Plan
    from weft.sdk.limiter import TokenBucketRateLimiter
    from weft.settings import Settings

Context: TypeAlias = Mapping[str, Any]
StepFunction: TypeAlias = Callable[[Context], Any]
Condition: TypeAlias = str | Callable[[Context], bool]


@dataclass(frozen=True, slots=True)
class Step:
    """One step: its node, as far as it can be written down, and the rest."""

    node: Mapping[str, Json]
    function: StepFunction
    condition: Condition | None


class StepContext(Mapping[str, Any]):
    """What a step may know: what was given, and the outputs of the steps before it.

    Outputs are read when they are asked for. In a long chain everything is before everything else, and a
    step mostly wants its parents.
    """

    __slots__ = ("_ancestors", "_given", "_graph", "_outputs", "_parents", "_seen", "_step_id")

    def __init__(self, step_id: str, *, given: Context, graph: Graph, outputs: Mapping[str, bytes]) -> None:
        self._step_id = step_id
        self._given = given
        self._graph = graph
        self._outputs = outputs
        self._parents = frozenset(graph.parents[step_id])
        self._ancestors: frozenset[str] | None = None
        self._seen: dict[str, Json] = {}

    def __getitem__(self, key: str) -> Any:
        if key in self._seen:
            return self._seen[key]
        if key in self._parents or key in self._all_before():
            payload = self._outputs.get(key)
            value = self._seen[key] = None if payload is None else decode(payload)
            return value
        if key in self._given:
            return self._given[key]
        if key in self._graph.parents:
            raise KeyError(f"{key} does not run before {self._step_id}; add it to its depends_on")
        raise KeyError(f"{key} was not given, and is no step; there are: {', '.join(self) or 'none'}")

    def __iter__(self) -> Iterator[str]:
        before = self._all_before()
        yield from (key for key in self._given if key not in before)
        yield from (step_id for step_id in self._graph.ids if step_id in before)

    def __len__(self) -> int:
        return len(self._given.keys() | self._all_before())

    def __contains__(self, key: object) -> bool:
        return key in self._given or key in self._parents or key in self._all_before()

    def __repr__(self) -> str:
        return f"StepContext({dict(self)!r})"

    def _all_before(self) -> frozenset[str]:
        if self._ancestors is None:
            self._ancestors = self._graph.ancestors(self._step_id)
        return self._ancestors


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


class Session:
    def __init__(self, settings: Settings, limiters: Mapping[str, TokenBucketRateLimiter]) -> None:
        # How many executions want it open.
        self.users = 0
        registry = Registry()
        registry.add(Handler("function", HandlerKind.USER, self._call))
        registry.add(Handler("coroutine", HandlerKind.USER, self._call_coroutine))
        self._registry = registry
        self._limiters = limiters
        self._engine = Engine(
            registry=registry,
            settings=settings,
            limits=lambda clock: MemoryLimits(
                {tag: limiter.bucket for tag, limiter in limiters.items()}, now=clock.now
            ),
            listen=self._hear,
        )
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
        self, steps: Mapping[str, Step], given: Context, *, failure_policy: str
    ) -> ExecutionResult:
        """Take one execution to its end; cancelling this cancels it."""
        document = {"failure_policy": failure_policy, "nodes": [step.node for step in steps.values()]}
        checked = check(document, handlers=self._registry, named=False)
        if checked.plan is None:
            raise DefinitionError(checked.problems)
        plan = self._with_conditions(checked.plan)
        execution_id = new_id()
        self._runs[execution_id] = _Run(steps, dict(given), plan.graph, checked.plan.conditions)
        try:
            await self._engine.submit(plan, document=document, execution_id=execution_id)
            await ended(execution_id, self._engine)
            return await read_result(execution_id, plan, self._engine.ports)
        finally:
            del self._runs[execution_id]
            self._engine.forget(execution_id)

    def _with_conditions(self, plan: Plan) -> Plan:
        """Let every condition be asked of the run it is asked in."""
        return replace(
            plan,
            conditions={
                step_id: structs.replace(expression, run=partial(self._wants, step_id))
                for step_id, expression in plan.conditions.items()
            },
        )

    def _wants(self, step_id: str, scope: Scope, budget: Budget) -> Json:
        return self._runs[scope.execution["id"]].wants(step_id, scope, budget)

    def _call(self, config: Json, context: HandlerContext) -> Any:
        run = self._runs[context.execution_id]
        return run.steps[context.node_id].function(run.context(context.node_id))

    async def _call_coroutine(self, config: Json, context: HandlerContext) -> Any:
        return await self._call(config, context)

    def _hear(self, standings: Sequence[Standing]) -> None:
        for standing in standings:
            run = self._runs.get(standing.execution.id) if standing.execution is not None else None
            if run is not None:
                for row in standing.rows:
                    if row.state is NodeState.COMPLETED and row.output is not None:
                        run.outputs[row.node_id] = row.output
