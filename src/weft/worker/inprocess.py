"""Calls in this process: handlers that ship with weft, and in a script the user's functions too.

Coroutines run on the loop, plain functions in threads. Nothing here can be killed: a coroutine that
ignores its stop, and a thread, are left behind when their time is over.
"""

from __future__ import annotations

import asyncio
from inspect import isawaitable
from typing import TYPE_CHECKING, Any

from weft.core.payload import decode
from weft.handlers.contract import GrantedSecrets, HandlerContext, HandlerKind, StopSignal, deadline_after
from weft.handlers.outcome import Completed, Failed, classify, completed, timed_out
from weft.worker.facts import LoopFacts
from weft.worker.threads import DaemonThreads

if TYPE_CHECKING:
    from weft.clock import Clock
    from weft.handlers.contract import Invocation
    from weft.handlers.outcome import Outcome
    from weft.handlers.registry import Registry
    from weft.worker.call import HandlerCall


class InProcess:
    def __init__(
        self,
        registry: Registry,
        *,
        clock: Clock,
        grace_seconds: float,
        max_payload_bytes: int,
        threads: DaemonThreads | None = None,
    ) -> None:
        self._registry = registry
        self._clock = clock
        self._grace_seconds = grace_seconds
        self._max_payload_bytes = max_payload_bytes
        self._threads = threads or DaemonThreads()
        # The loop holds its tasks weakly; these did not stop when they were asked to.
        self._left_behind: set[asyncio.Task[Outcome]] = set()

    async def call(self, call: HandlerCall) -> Outcome:
        """Run a call; see ``Caller.call``."""
        stop = StopSignal()
        facts = LoopFacts(call.facts)
        try:
            invocation = self.bind(call, self._context(call, stop, facts))
            if self._registry.get(call.handler).kind is HandlerKind.INSTANT:
                return self._encode(invocation, invocation.call())
        except Exception as error:
            return classify(error)
        task = asyncio.create_task(self._run(invocation, facts))
        try:
            await asyncio.wait((task,), timeout=call.timeout_seconds)
        except asyncio.CancelledError:
            await self._stop(task, stop)
            raise
        if task.done():
            return task.result()
        await self._stop(task, stop)
        return timed_out(
            call.timeout_seconds, task.result() if task.done() and not task.cancelled() else None
        )

    async def close(self) -> None:
        self._threads.close()
        for task in self._left_behind:
            task.cancel()

    def bind(self, call: HandlerCall, context: HandlerContext) -> Invocation:
        return self._registry.bind(call.handler, decode(call.config), context)

    def _context(self, call: HandlerCall, stop: StopSignal, facts: LoopFacts) -> HandlerContext:
        return HandlerContext(
            execution_id=call.execution_id,
            node_id=call.node_id,
            generation=call.generation,
            attempt=call.attempt,
            deadline=deadline_after(self._clock.now(), call.timeout_seconds),
            stop=stop,
            facts=facts,
            secrets=GrantedSecrets(call.secrets),
        )

    async def _run(self, invocation: Invocation, facts: LoopFacts) -> Outcome:
        """Return the outcome of a call, whatever it raises: also SystemExit and its own CancelledError."""

        def in_thread() -> Any:
            try:
                value = invocation.call()
                return value if isawaitable(value) else self._encode(invocation, value)
            except BaseException as error:
                return classify(error)

        try:
            if invocation.takes_context and invocation.is_coroutine:
                await facts.prefetch()
            result = invocation.call() if invocation.is_coroutine else await self._threads.run(in_thread)
            return (
                result if isinstance(result, (Completed, Failed)) else self._encode(invocation, await result)
            )
        except BaseException as error:
            return classify(error)

    async def _stop(self, task: asyncio.Task[Outcome], stop: StopSignal) -> None:
        """Ask a call to stop and wait for its end, but not for ever."""
        stop.requested = True
        # For a plain function this ends the wait for its thread, not the thread.
        task.cancel()
        self._left_behind.add(task)
        task.add_done_callback(self._left_behind.discard)
        await asyncio.wait((task,), timeout=self._grace_seconds)

    def _encode(self, invocation: Invocation, value: Any) -> Outcome:
        return completed(value, target=invocation.target, max_bytes=self._max_payload_bytes)
