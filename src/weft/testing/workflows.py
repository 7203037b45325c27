"""Run a workflow in a test: in this process, in no time, with some of its nodes mocked."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from weft.definition.suggestion import Suggester
from weft.engine import Engine, EngineParts
from weft.errors import SettingsError
from weft.handlers.http.outbound import Outbound
from weft.sdk.result import ExecutionResult, read_result
from weft.sdk.run import effective_settings, ended, make_plan, registry_of, run_to_end
from weft.settings import Settings, setting_names
from weft.testing.answers import GivenAnswers
from weft.testing.mocks import MockingCaller, MockingRunner, Mocks
from weft.testing.virtual_time import LoopClock, OrderlyThreads, VirtualLoop

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from weft.core.payload import Json
    from weft.ports import Ports
    from weft.sdk.run import Runnable

# Nothing is lost in one process, so the nets need not be looked at for every few seconds of a virtual year.
_LOOKING_SECONDS = 86_400.0
# How often it is checked that an execution does not wait for answers alone that a test does not have.
_STUCK_SECONDS = 3_600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MockedResult(ExecutionResult):
    """The result of an execution; all its times are virtual."""

    _calls: Mapping[str, Sequence[Json]] = field(repr=False)

    def calls(self, node_id: str) -> Sequence[Json]:
        """Return what a mocked node was called with, once per attempt.

        That is its resolved config, or where the node is a function, its arguments by name.
        """
        if node_id not in self._calls:
            mocked = ", ".join(self._calls) or "none"
            raise ValueError(f"node {node_id!r} is not mocked, so its calls are not kept; mocked: {mocked}")
        return self._calls[node_id]


class WeftRun(Protocol):
    """The type of the fixture ``weft_run``, for annotations: see ``run``."""

    def __call__(
        self,
        workflow: Runnable,
        input: Json = None,  # noqa: A002 - the word of the interface
        *,
        mocks: Mapping[str, Any] | None = None,
        answers: Mapping[str, Json] | None = None,
        settings: Mapping[str, object] | None = None,
    ) -> MockedResult: ...


def run(
    workflow: Runnable,
    input: Json = None,  # noqa: A002 - the word of the interface
    *,
    mocks: Mapping[str, Any] | None = None,
    answers: Mapping[str, Json] | None = None,
    settings: Mapping[str, object] | None = None,
) -> MockedResult:
    """Run a workflow to its end in virtual time: waits, retry delays, sleeps and timeouts cost nothing.

    ``mocks``: by node id, what stands in for the node's handler. A value is its output; an exception is
    raised, and retries as ever; a function is called, with those of the handler's arguments that it has
    parameters for (``config`` and ``context``; for a node that is a function, its own and ``context``);
    ``sequence(…)`` mocks one attempt after the other. ``answers``: by the id of a node that waits, or the
    name of its signal, the value that it is answered with at once; a wait without an answer expires.
    ``settings``: by name in lower case, as in ``weft.toml``; they go before those of the environment and the
    file.

    Can be called with a loop running or without; the execution has a loop of its own. Raises DefinitionError
    or InputError before anything has run, ValueError or TypeError for a mock or an answer that fits no node,
    and ValueError where a node waits without end and has no answer.
    """
    given = _Given(mocks or {}, answers or {}, settings or {})
    return run_to_end(_run(workflow, input, given), new_loop=VirtualLoop)


class _Given(NamedTuple):
    mocks: Mapping[str, Any]
    answers: Mapping[str, Json]
    settings: Mapping[str, object]


async def _run(workflow: Runnable, value: Json, given: _Given) -> MockedResult:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    settings = _patient(_settings(given.settings))
    registry = registry_of(settings)
    document, plan = make_plan(workflow, registry, settings)
    mocked = Mocks(given.mocks, plan)
    answers = GivenAnswers(given.answers, plan)
    plan = mocked.handed_out(plan)
    clock = LoopClock(loop)
    caller = MockingCaller(
        registry,
        clock=clock,
        max_payload_bytes=settings.bounds().max_payload_bytes,
        grace_seconds=settings.worker_grace_seconds,
        threads=OrderlyThreads(loop),
        mocks=mocked,
    )

    def runner(ports: Ports) -> MockingRunner:
        return MockingRunner(ports, registry, caller, worker="test", mocks=mocked)

    parts = EngineParts(clock=clock, runner=runner)
    engine = Engine(registry=registry, settings=settings, listen=answers.receive, parts=parts)
    answers.begin(engine)
    # The jitter of retries is the only chance in an execution.
    engine.ports.draw = random.Random(0).random  # noqa: S311 - the same every time is what is wanted
    # A connection that is kept for the next call would hold up the time until then.
    engine.ports.outbound = outbound = Outbound(settings, clock, keep_alive=False)
    try:
        async with engine:
            execution_id = await engine.submit(plan, document=document, input=value)
            await _ended(execution_id, engine, answers)
            result = await read_result(execution_id, plan, engine.ports)
    finally:
        await caller.close()
        await outbound.close()
    known = {item.name: getattr(result, item.name) for item in fields(result)}
    return MockedResult(**known, _calls=mocked.calls)


async def _ended(execution_id: str, engine: Engine, answers: GivenAnswers) -> None:
    """Return once an execution is terminal; raises where that would never be."""
    ending = asyncio.ensure_future(ended(execution_id, engine))
    stuck = asyncio.ensure_future(answers.unanswered(execution_id, engine, look_seconds=_STUCK_SECONDS))
    try:
        done, _ = await asyncio.wait((ending, stuck, answers.failed), return_when=asyncio.FIRST_COMPLETED)
        for one in done:
            one.result()
    finally:
        for task in (ending, stuck):
            task.cancel()
        await asyncio.wait((ending, stuck))
        answers.failed.cancel()


def _settings(wanted: Mapping[str, object]) -> Settings:
    known = setting_names()
    for name in wanted:
        if name not in known:
            raise SettingsError(f"{name!r} is not a setting of weft{Suggester().hint(name, known)}")
    return effective_settings(wanted)


def _patient(settings: Settings) -> Settings:
    return replace(
        settings,
        worker_heartbeat_interval_seconds=_LOOKING_SECONDS,
        worker_heartbeat_timeout_seconds=3 * _LOOKING_SECONDS,
        orchestrator_sweep_interval_seconds=_LOOKING_SECONDS,
    )
