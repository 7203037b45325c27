"""Mocks of a node: a value, an error, a function, or one after the other."""

from __future__ import annotations

import dataclasses
import inspect
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from weft.core.payload import Json, decode
from weft.definition.suggestion import Suggester
from weft.handlers.contract import PYTHON, Invocation, is_coroutine_function
from weft.sdk.signature import place
from weft.worker.call import HandlerCall
from weft.worker.inprocess import InProcess
from weft.worker.run import Runner

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from weft.core.task import Task
    from weft.definition.model import Node
    from weft.definition.plan import Plan
    from weft.handlers.contract import HandlerContext
    from weft.handlers.outcome import Outcome


@dataclass(frozen=True, slots=True)
class InTurn:
    mocks: tuple[Any, ...]


def sequence(*mocks: Any) -> InTurn:
    """Mock one attempt after the other; the last mock stands for all further attempts."""
    if not mocks:
        raise ValueError("sequence() needs at least one mock")
    return InTurn(mocks)


class Mocks:
    """The mocks of one execution, by node id, and what they were called with."""

    def __init__(self, given: Mapping[str, Any], plan: Plan) -> None:
        unknown = [node_id for node_id in given if node_id not in plan.nodes]
        if unknown:
            hints = (f"{node_id!r}{Suggester().hint(node_id, plan.nodes)}" for node_id in unknown)
            raise ValueError(f"there is no node to mock: {', '.join(hints)}")
        self._mocks = {
            node_id: mock.mocks if isinstance(mock, InTurn) else (mock,) for node_id, mock in given.items()
        }
        self._nodes = {node_id: plan.nodes[node_id] for node_id in given}
        self.calls: dict[str, list[Json]] = {node_id: [] for node_id in given}
        for node_id, mocks in self._mocks.items():
            for mock in mocks:
                if _is_function(mock):
                    _check_parameters(mock, self._nodes[node_id])

    def __contains__(self, node_id: str) -> bool:
        return node_id in self._mocks

    def handed_out(self, plan: Plan) -> Plan:
        """Return the plan with every mocked node as one that a worker runs: a mock is a call."""
        nodes = {name: replace(node, is_parked=False) for name, node in self._nodes.items()}
        return dataclasses.replace(plan, nodes={**plan.nodes, **nodes})

    def bind(self, node_id: str, config: bytes, context: HandlerContext) -> Invocation:
        """Return the invocation of a node's mock in place of its handler, and record the call."""
        calls, mocks = self.calls[node_id], self._mocks[node_id]
        mock = mocks[min(len(calls), len(mocks) - 1)]
        calls.append(_shown(self._nodes[node_id], config))
        if _is_function(mock):
            given = {**_arguments(self._nodes[node_id], decode(config)), "context": context}
            call = partial(mock, **_taken(mock, given))
            return Invocation(node_id, is_coroutine_function(mock), call, takes_context=True)
        return Invocation(node_id, True, partial(_answer, mock))


class MockingCaller(InProcess):
    """Calls in this process, except those of mocked nodes."""

    def __init__(self, *arguments: Any, mocks: Mocks, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._mocks = mocks

    def bind(self, call: HandlerCall, context: HandlerContext) -> Invocation:
        if call.node_id in self._mocks:
            return self._mocks.bind(call.node_id, call.config, context)
        return super().bind(call, context)


class MockingRunner(Runner):
    """Runs mocked nodes as users' functions, whatever their handler; the rest as ever."""

    def __init__(self, *arguments: Any, mocks: Mocks, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._mocks = mocks

    def __contains__(self, handler: object) -> bool:
        return True  # a mocked node needs no handler

    def instant(self, task: Task) -> bool:
        return task.node_id not in self._mocks and super().instant(task)

    async def outcome(self, task: Task) -> Outcome:
        if task.node_id not in self._mocks:
            return await super().outcome(task)
        # Secrets stay hidden: a test needs none for a call that does not go out.
        return await self._caller.call(
            HandlerCall(
                handler=PYTHON,
                config=task.config,
                execution_id=task.execution_id,
                node_id=task.node_id,
                generation=task.generation,
                attempt=task.attempt,
                look=task.look,
                timeout_seconds=task.timeout_seconds,
                facts=self.facts(task),
            )
        )


async def _answer(mock: Any) -> Json:
    if isinstance(mock, BaseException) or _is_exception_type(mock):
        raise mock
    return mock


def _is_function(mock: Any) -> bool:
    return callable(mock) and not _is_exception_type(mock)


def _is_exception_type(mock: Any) -> bool:
    return isinstance(mock, type) and issubclass(mock, BaseException)


def _shown(node: Node, config: bytes) -> Json:
    """Return what a test wants to see of a call: a function's arguments, or another handler's config."""
    value = decode(config)
    return value.get("args", {}) if node.handler == PYTHON else value


def _arguments(node: Node, config: Json) -> dict[str, Json]:
    return dict(config.get("args", {})) if node.handler == PYTHON else {"config": config}


def _parameters(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter] | None:
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):  # a few builtins do not tell
        return None


def _taken(function: Callable[..., Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of the given arguments that a function has parameters for."""
    parameters = _parameters(function)
    if parameters is None or any(one.kind is one.VAR_KEYWORD for one in parameters.values()):
        return dict(given)
    return {name: value for name, value in given.items() if name in parameters}


def _check_parameters(function: Callable[..., Any], node: Node) -> None:
    if node.handler == PYTHON:
        args = node.config.get("args", {}) if isinstance(node.config, dict) else {}
        if not isinstance(args, dict):
            return  # a template, known when it is filled
        known = [*args, "context"]
    else:
        known = ["config", "context"]
    for name, parameter in (_parameters(function) or {}).items():
        if parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
            continue
        is_needed = parameter.default is parameter.empty
        if is_needed and (name not in known or parameter.kind is parameter.POSITIONAL_ONLY):
            raise TypeError(
                f"the mock {place(function)} of node {node.id!r} is called by keyword, and asks for "
                f"{name!r}; there is: {', '.join(known)}"
            )
