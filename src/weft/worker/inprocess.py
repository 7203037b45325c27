"""Calls in this process: handlers that ship with weft, and in a script the user's functions too.

Coroutines run on the loop, plain functions in threads. Nothing here can be killed: a coroutine that
ignores its stop, and a thread, are left behind when their time is over.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from contextlib import suppress
from inspect import isawaitable
from typing import TYPE_CHECKING, Any

from weft.core.payload import decode
from weft.handlers.contract import GrantedSecrets, HandlerContext, HandlerKind, StopSignal, deadline_after
from weft.handlers.outcome import Completed, Failed, classify, completed, timed_out, where_it_stands
from weft.worker.capture import enter, install, uninstall
from weft.worker.facts import LoopFacts
from weft.worker.threads import DaemonThreads

if TYPE_CHECKING:
    from collections.abc import Collection

    from weft.clock import Clock
    from weft.handlers.contract import Invocation
    from weft.handlers.outcome import Outcome
    from weft.handlers.registry import Registry
    from weft.worker.call import HandlerCall
    from weft.worker.capture import AttemptOutput
    from weft.worker.logs import LogWriter

# How long lines wait for others to be handed over with.
_COLLECT_SECONDS = 0.1


class InProcess:
    def __init__(
        self,
        registry: Registry,
        *,
        clock: Clock,
        grace_seconds: float,
        max_payload_bytes: int,
        threads: DaemonThreads | None = None,
        logs: LogWriter | None = None,
    ) -> None:
        """``logs``: keeps what users' code prints and logs, which goes where it always went, too."""
        self._registry = registry
        self._clock = clock
        self._grace_seconds = grace_seconds
        self._max_payload_bytes = max_payload_bytes
        self._threads = threads or DaemonThreads()
        self._logs = logs
        self._is_capturing = False
        # The loop holds its tasks weakly; these did not stop when they were asked to.
        self._left_behind: set[asyncio.Task[Outcome]] = set()

    async def call(self, call: HandlerCall) -> Outcome:
        """Run a call; see ``Caller.call``."""
        stop = StopSignal()
        facts = LoopFacts(call.facts)
        # Made before the context, which reports progress to it; nothing is caught for it yet.
        output = self._new_output(call)
        try:
            invocation = self.bind(call, self._context(call, stop, facts, output))
            if self._registry.get(call.handler).kind is HandlerKind.INSTANT:
                return self._encode(invocation, invocation.call())
        except Exception as error:
            return classify(error)
        context = contextvars.copy_context()
        if output is not None:
            self._catch(context, output)
        threads: list[int] = []
        task = asyncio.create_task(self._run(invocation, facts, threads), context=context)
        try:
            await asyncio.wait((task,), timeout=call.timeout_seconds)
        except asyncio.CancelledError:
            await self._stop(task, stop)
            raise
        finally:
            if output is not None and self._logs is not None:
                self._logs.add(call, output.take(is_last=True))
                self._logs.add_progress(call, output.take_progress())
        if task.done():
            return task.result()
        # Asked now: the thread of a function that does not stop is left to itself.
        stood = where_it_stands(threads[0]) if threads else None
        await self._stop(task, stop)
        stopped = task.result() if task.done() and not task.cancelled() else None
        return timed_out(call.timeout_seconds, stopped, stood=stood)

    def _catch(self, context: contextvars.Context, output: AttemptOutput) -> None:
        """Let what a context prints and logs go to an attempt's output."""
        if not self._is_capturing:
            self._is_capturing = True
            install(tees=True)
        context.run(enter, output)

    def _new_output(self, call: HandlerCall) -> AttemptOutput | None:
        """Return the output that collects the lines of a call; None: they are not kept."""
        logs = self._logs
        if logs is None:
            return None
        loop = asyncio.get_running_loop()

        def collect(output: AttemptOutput) -> None:
            logs.add(call, output.take())
            logs.add_progress(call, output.take_progress())

        def filled(output: AttemptOutput) -> None:
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(loop.call_later, _COLLECT_SECONDS, collect, output)

        return logs.new_output(filled)

    def functions(self) -> Collection[str]:
        return ()

    async def close(self) -> None:
        if self._is_capturing:
            self._is_capturing = False
            uninstall()
        self._threads.close()
        for task in self._left_behind:
            task.cancel()

    def bind(self, call: HandlerCall, context: HandlerContext) -> Invocation:
        return self._registry.bind(call.handler, decode(call.config), context)

    def _context(
        self, call: HandlerCall, stop: StopSignal, facts: LoopFacts, output: AttemptOutput | None
    ) -> HandlerContext:
        return HandlerContext(
            execution_id=call.execution_id,
            node_id=call.node_id,
            generation=call.generation,
            attempt=call.attempt,
            deadline=deadline_after(self._clock.now(), call.timeout_seconds),
            stop=stop,
            facts=facts,
            secrets=GrantedSecrets(call.secrets),
            show_progress=None if output is None else output.report,
            traceparent=call.traceparent,
            look=call.look,
        )

    async def _run(self, invocation: Invocation, facts: LoopFacts, threads: list[int]) -> Outcome:
        """Return the outcome of a call, whatever it raises: also SystemExit and its own CancelledError.

        ``threads`` is given the id of the thread that a plain function runs in.
        """

        def in_thread() -> Any:
            threads.append(threading.get_ident())
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
