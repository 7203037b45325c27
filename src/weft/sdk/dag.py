"""Graphs built at run time: steps are functions of a context, and run in this process."""

from __future__ import annotations

import asyncio
import inspect
import json
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft.core.state import ExecutionState, NodeState, Reason
from weft.errors import DefinitionError, Failure, Problem
from weft.handlers.contract import is_coroutine_function
from weft.sdk import signature
from weft.sdk.limiter import TokenBucketRateLimiter
from weft.sdk.public import public, public_coroutine
from weft.sdk.session import Session, Step, check_steps
from weft.settings import Settings

if TYPE_CHECKING:
    import os
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence

    from weft.core.payload import Json
    from weft.sdk.result import ExecutionResult, NodeResult
    from weft.sdk.session import Condition, Context, StepFunction
    from weft.sdk.workflow import FailurePolicy, RetryOptions, TriggerRule


class WorkflowDAG:
    """Steps and what they depend on. It may grow until it is executed, and between executions."""

    def __init__(self, name: str | None = None, *, failure_policy: FailurePolicy | None = None) -> None:
        self.name = name
        self.failure_policy = failure_policy
        self._steps: dict[str, Step] = {}

    def __repr__(self) -> str:
        name = "" if self.name is None else f"{self.name!r}, "
        return f"WorkflowDAG({name}steps: {len(self._steps)})"

    @public
    def add_step(
        self,
        id: str,  # noqa: A002 - the word of the interface
        fn: StepFunction,
        *,
        depends_on: Sequence[str] = (),
        condition: Condition | None = None,
        resource_tag: str | None = None,
        max_retries: int = 3,
        timeout_seconds: float = 300,
        retry: RetryOptions | None = None,
        trigger_rule: TriggerRule = "none_failed_min_one_success",
    ) -> None:
        """Add a step that calls ``fn(context)``, a function or coroutine function, and gives its output.

        ``context`` maps what ``execute`` was given, and each step before this one to its output, or None
        where it did not complete; ``context["step_outputs"]`` maps those that completed. What ``fn`` writes
        into it, no other step sees. ``condition`` is an expression over ``input`` (what was given) and the
        steps before this one, or a quick function of the context; where it is false, the step is skipped.
        """
        if id in self._steps:
            raise self._fault(f"step {id!r} is there already")
        if isinstance(depends_on, str):
            raise self._fault(f"step {id!r}: depends_on is a list of ids, not {depends_on!r}")
        for name, function in (("fn", fn), ("condition", condition)):
            if name == "fn" and not callable(function):
                raise self._fault(f"step {id!r}: fn is a function of the context, not {function!r:.80}")
            if callable(function) and not _takes_one_argument(function):
                place = signature.place(function)
                raise self._fault(f"step {id!r}: {name} takes one argument, the context; {place} does not")
        if (what := signature.generator_kind(fn)) is not None:
            raise self._fault(f"step {id!r}: {signature.place(fn)} is {what}, and a step returns one value")
        if callable(condition) and is_coroutine_function(condition):
            place = signature.place(condition)
            raise self._fault(
                f"step {id!r}: a condition is quick and not async; {place} is a coroutine function"
            )
        node: dict[str, Json] = {
            "id": id,
            "handler": "coroutine" if is_coroutine_function(fn) else "function",
            "depends_on": list(depends_on),
            "trigger_rule": trigger_rule,
            "max_retries": max_retries,
            "timeout_seconds": timeout_seconds,
        }
        if resource_tag is not None:
            node["resource_tag"] = resource_tag
        if retry is not None:
            node["retry"] = dict(retry)
        if condition is not None:
            # A function cannot be written down: until it is asked, a string that names it stands for it.
            node["condition"] = json.dumps(signature.place(condition)) if callable(condition) else condition
        self._steps[id] = Step(node, fn, condition)

    @public
    def validate(self) -> None:
        """Raise DefinitionError, with every problem, where the graph could not be executed."""
        check_steps(self._steps, failure_policy=self.failure_policy)

    @public
    def get_execution_layers(self) -> list[list[str]]:
        """Return the ids of the steps by their distance from the roots; raises as ``validate`` does."""
        return check_steps(self._steps, failure_policy=self.failure_policy).graph.layers()

    def steps(self) -> dict[str, Step]:
        """Return the steps added so far, by id."""
        return dict(self._steps)

    def _fault(self, message: str) -> DefinitionError:
        return DefinitionError([Problem(f"/nodes/{len(self._steps)}", message)])


class StepError(dict[str, Any]):
    """The error of a step, ``code``, ``message``, ``retryable`` and ``details``; as text, its message."""

    def __str__(self) -> str:
        return str(self["message"])


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """The result of one step."""

    status: NodeState
    output: Json
    # Also of a step that was skipped because another had failed.
    error: StepError | None
    # Why it was skipped or cancelled.
    reason: str | None
    # Seconds of the latest attempt; None where nothing ran.
    duration: float | None
    # Attempts after the first.
    retries: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowResult:
    """The results of all steps. The lists are in the order in which the steps were added."""

    status: ExecutionState
    # Seconds from the start to the end.
    duration: float
    steps: Mapping[str, StepResult]

    @property
    def completed(self) -> list[str]:
        return self._of(NodeState.COMPLETED)

    @property
    def failed(self) -> list[str]:
        return self._of(NodeState.FAILED)

    @property
    def skipped(self) -> list[str]:
        return self._of(NodeState.SKIPPED)

    def _of(self, status: NodeState) -> list[str]:
        return [step_id for step_id, step in self.steps.items() if step.status is status]


class WorkflowExecutor:
    """Executes graphs in this process, any number at once.

    All executions under way share ``max_concurrency`` places for running steps. ``rate_limiters`` are by
    ``resource_tag``; one holds for all executions that were ever given it. The failure policy is that of
    the graph, where it has one. What happens is counted in the process's Prometheus registry.

    ``data``: a folder in which the executions are kept. To execute a graph again with an equal definition
    and context goes on with what did not complete, and runs nothing where all did, in a later process too.
    The context must be JSON then. One executor at a time has the folder.
    """

    def __init__(
        self,
        *,
        max_concurrency: int = 4,
        rate_limiters: Mapping[str, TokenBucketRateLimiter] | None = None,
        failure_policy: FailurePolicy = "continue",
        data: str | os.PathLike[str] | None = None,
    ) -> None:
        if isinstance(max_concurrency, bool) or not isinstance(max_concurrency, int) or max_concurrency < 1:
            raise ValueError(f"max_concurrency needs a whole number from 1 up, not {max_concurrency!r}")
        self._settings = Settings(worker_concurrency=max_concurrency)
        self._limiters = dict(rate_limiters or {})
        for tag, limiter in self._limiters.items():
            if not isinstance(limiter, TokenBucketRateLimiter):
                raise TypeError(f"rate_limiters[{tag!r}] needs a TokenBucketRateLimiter, not {limiter!r:.80}")
        self._failure_policy = failure_policy
        self._data = None if data is None else Path(data)
        # An engine lives as long as anything is under way on its loop.
        self._sessions: dict[asyncio.AbstractEventLoop, Session] = {}

    @public_coroutine
    async def execute(self, dag: WorkflowDAG, context: Context | None = None) -> WorkflowResult:
        """Execute a graph to its end and give its result, also where steps failed.

        What ``context`` holds may be any objects; the outputs of steps are JSON. Cancelling this cancels
        the execution. Raises DefinitionError before anything has run; with ``data``, InputError where the
        context is not JSON.
        """
        async with self._session() as session:
            result = await session.execute(
                dag.steps(),
                context or {},
                failure_policy=dag.failure_policy or self._failure_policy,
                name=dag.name,
            )
        return _workflow_result(result)

    @asynccontextmanager
    async def _session(self) -> AsyncIterator[Session]:
        loop = asyncio.get_running_loop()
        session = self._sessions.get(loop)
        if session is None:
            session = self._sessions[loop] = Session(self._settings, self._limiters, self._data)
        session.users += 1
        try:
            await session.open()
            yield session
        finally:
            session.users -= 1
            if not session.users:
                del self._sessions[loop]
                await session.close()


def _workflow_result(result: ExecutionResult) -> WorkflowResult:
    return WorkflowResult(
        status=result.state,
        duration=result.duration,
        steps={node_id: _step_result(node) for node_id, node in result.nodes.items()},
    )


def _step_result(node: NodeResult) -> StepResult:
    error = node.error
    if error is None and node.reason == Reason.UPSTREAM_FAILED:
        error = Failure(code="dependency_failed", message=f"Dependency failed: {node.cause}")
    return StepResult(
        status=node.state,
        output=node.output,
        error=None
        if error is None
        else StepError(
            code=error.code, message=error.message, retryable=error.retryable, details=error.details
        ),
        reason=node.reason,
        duration=node.duration,
        retries=max(node.attempt - 1, 0),
    )


def _takes_one_argument(function: Callable[..., Any]) -> bool:
    try:
        inspect.signature(function).bind(None)
    except TypeError:
        return False
    except ValueError:  # a builtin that does not tell its signature
        pass
    return True
