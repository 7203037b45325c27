"""Child processes for user code: soft stop, hard kill, and who is to blame.

A plain function has a child to itself for as long as it runs; coroutines share one. A call that is not
done in time, or is cancelled, is first asked to stop. If it is still there after the grace time its child
is killed, and everything in that child with it.

Who is to blame for the end of a child? A call that was alone in it. Of several, only this much can be told
apart: where the child's loop still answers, a call that was asked to stop and did not is the one, and its
neighbours are lost without a charge. Where the loop does not answer, or the child died by itself, any of
them may have done it: none is charged, and each runs alone the next time, where the blame is certain.
The timeout of a call does not count either then: a neighbour may have held up the loop until it passed.

Plain functions may have ``processes`` children, and coroutines as many again, so that neither kind keeps the
other waiting. An idle child serves both, and no more than ``processes`` idle ones are kept. A child that
reports a leak takes no more calls, and ends with its last call; another is started in its stead.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from weft.core.payload import decode
from weft.errors import HandlerError
from weft.handlers.outcome import Completed, Failed, Outcome, classify, timed_out
from weft.handlers.secrets import process_mask
from weft.open_files import OutOfFilesError, is_exhausted
from weft.worker import wire
from weft.worker.call import AttemptLostError, target_of
from weft.worker.code_change import with_code
from weft.worker.process import ChildProcess

if TYPE_CHECKING:
    from collections.abc import Collection, Coroutine, Mapping
    from types import TracebackType

    from weft.handlers.usercode import UserCode
    from weft.masking import Mask
    from weft.worker.call import HandlerCall
    from weft.worker.capture import AttemptOutput
    from weft.worker.code_change import AttemptCode
    from weft.worker.logs import LogWriter

# A child that has not loaded its modules by then never will.
START_SECONDS = 60.0
# How long a loop may take to say that it runs. Too short only means that nobody is charged this time.
PROBE_SECONDS = 1.0
# How long what a process writes past Python waits for more of it.
COLLECT_SECONDS = 0.1
# What a message holds beside an output.
ENVELOPE_BYTES = 1024 * 1024

_log = logging.getLogger("weft.worker")

_End: TypeAlias = Outcome | AttemptLostError | OutOfFilesError


class _Stop(Enum):
    """Why a call was asked to stop."""

    TIMEOUT = auto()
    CANCEL = auto()


@dataclass(slots=True, eq=False)
class _Running:
    """A call in the pool: waiting for a child process, or running in one."""

    number: int
    call: HandlerCall
    # The handler, or the function that ``python`` is asked for.
    target: str
    ended: asyncio.Future[_End]
    child: _Child | None = None
    stop: _Stop | None = None
    # The call was asked to stop, and the grace time is over.
    is_overdue: bool = False
    # Where its function stood when it was asked to stop.
    stood: str | None = None
    # What the attempt before this one ran, until it is compared.
    code_before: AttemptCode | None = None
    # The next thing that happens to it by itself.
    timer: asyncio.TimerHandle | None = None

    def rearm(self, timer: asyncio.TimerHandle | None) -> None:
        if self.timer is not None:
            self.timer.cancel()
        self.timer = timer

    def end(self, end: _End) -> None:
        self.rearm(None)
        if not self.ended.done():
            self.ended.set_result(end)


class ChildPool:
    """Runs user code in child processes, which are started when they are first needed."""

    def __init__(
        self,
        processes: int,
        *,
        code: UserCode,
        grace_seconds: float,
        max_payload_bytes: int,
        mask: Mask | None = None,
        environment: Mapping[str, str] | None = None,
        logs: LogWriter | None = None,
    ) -> None:
        """Start no child yet.

        ``mask``: what the children must not show; by default the secrets of this process. ``environment``:
        that of the children; by default this process's. ``logs``: keeps what users' code prints and logs;
        without it all of that goes to stderr.
        """
        self.code = code
        self.environment = environment
        self.mask = process_mask() if mask is None else mask
        self.grace_seconds = grace_seconds
        self.max_payload_bytes = max_payload_bytes
        self.logs = logs
        self._processes = processes
        self._children: set[_Child] = set()
        self._line: deque[_Running] = deque()
        self._last_number = 0
        # By target. Learned from the children: this process need not import the users' code to know.
        self._is_coroutine: dict[str, bool] = {}
        self._is_closed = False
        # The loop holds its tasks weakly.
        self._replies: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def pids(self) -> list[int]:
        """Return the process ids of the child processes."""
        return sorted(child.pid for child in self._children)

    async def call(self, call: HandlerCall) -> Outcome:
        """Run a call in a child; see ``Caller.call``."""
        if self._is_closed:
            raise AttemptLostError("the worker was closed before the call started", charged=False)
        before = None if call.last_code is None else await call.last_code()
        self._last_number += 1
        ended: asyncio.Future[_End] = asyncio.get_running_loop().create_future()
        running = _Running(self._last_number, call, target_of(call), ended, code_before=before)
        self._line.append(running)
        self._serve_line()
        try:
            await asyncio.wait((ended,))
        except asyncio.CancelledError:
            if running.child is None:
                self._line.remove(running)
            elif not ended.done():
                running.child.stop(running, _Stop.CANCEL)
                # The place is free once the code has really stopped. Who cancels twice does not wait.
                await asyncio.wait((ended,))
            raise
        end = ended.result()
        if isinstance(end, AttemptLostError | OutOfFilesError):
            raise end
        return end

    def functions(self) -> Collection[str]:
        return self.code.allow

    def replace_code(self, code: UserCode) -> None:
        """Load ``code`` in new child processes; those that are there end after the calls in them."""
        self.code = code
        self._is_coroutine.clear()
        for child in tuple(self._children):
            child.should_recycle = True
            if not child.calls and not child.is_leaving:
                child.dismiss()

    async def close(self) -> None:
        """End every child: an idle one in its own way, the others at once."""
        self._is_closed = True
        for running in self._line:
            running.end(AttemptLostError("the worker was closed before the call started", charged=False))
        self._line.clear()
        for reply in self._replies:
            reply.cancel()
        children = tuple(self._children)
        for child in children:
            child.dismiss()
        for child in children:
            await child.gone.wait()

    # What the children report.

    def learn(self, target: str, is_coroutine: bool) -> None:
        self._is_coroutine[target] = is_coroutine
        self._serve_line()

    def answer(self, reply: Coroutine[Any, Any, None]) -> None:
        """Let the reply to a child be made while the loop goes on."""
        task = asyncio.create_task(reply)
        self._replies.add(task)
        task.add_done_callback(self._replies.discard)

    def has_room(self, child: _Child) -> None:
        """A call has ended: the next may start, and a child that is one too many may go."""
        self._serve_line()
        staying = sum(other.takes_calls for other in self._children)
        if not child.calls and (child.should_recycle or staying > self._processes):
            child.dismiss()

    def has_gone(self, child: _Child) -> None:
        self._children.discard(child)
        self._serve_line()

    def may_share(self, running: _Running) -> bool:
        # A function nobody has called yet starts by itself; its child says at once what it is.
        return not running.call.alone and self._is_coroutine.get(running.target, False)

    # Which process gets which call.

    def _serve_line(self) -> None:
        """Start every waiting call for which a child process has room, in the order they came."""
        waiting: deque[_Running] = deque()
        while self._line:
            running = self._line.popleft()
            try:
                child = self._place(running)
            except OSError as error:
                # A file comes free again. Any other reason is as bad as an error of the function.
                running.end(OutOfFilesError("child") if is_exhausted(error) else classify(error))
                continue
            if child is None:
                waiting.append(running)
            else:
                child.take(running)
        self._line = waiting

    def _place(self, running: _Running) -> _Child | None:
        """Find or start a child for a call; None while it has to wait."""
        shares = self.may_share(running)
        idle: _Child | None = None
        least: _Child | None = None
        used = 0
        for child in self._children:
            if not child.takes_calls:
                continue
            if not child.calls:
                idle = child
            elif child.is_shared() is shares:
                used += 1
                if (
                    shares
                    and not child.is_in_doubt()
                    and (least is None or len(child.calls) < len(least.calls))
                ):
                    least = child
        if used >= self._processes:
            return least
        if idle is None:
            idle = _Child(self)
            self._children.add(idle)
        return idle


class _Child:
    """A child process and the calls in it."""

    def __init__(self, pool: ChildPool) -> None:
        self.calls: dict[int, _Running] = {}
        # The process takes no more calls.
        self.is_leaving = False
        # The process holds more than it should, and is to be replaced.
        self.should_recycle = False
        self.gone = asyncio.Event()
        self._pool = pool
        self._loop = asyncio.get_running_loop()
        self._is_ready = False
        self._loop_answers = False
        # By target: the digest of the code that it has loaded.
        self._codes: dict[str, str] = {}
        # Why it was killed, and whether that is the fault of the call in it.
        self._verdict: str | None = None
        self._is_blameless = False
        # What the process writes past Python, as the programs do that a function starts.
        self._written = None if pool.logs is None else pool.logs.new_output(self._fill)
        self._process = ChildProcess(
            max_message_bytes=pool.max_payload_bytes + ENVELOPE_BYTES,
            mask=pool.mask,
            environment=pool.environment,
            output=self._written,
            max_log_bytes=0 if pool.logs is None else pool.logs.max_bytes,
            on_message=self._receive,
            gone=self._lose_all,
        )
        self._process.send(wire.LoadCode.of(pool.code, pool.max_payload_bytes))
        self._start_timer = self._loop.call_later(
            START_SECONDS, self._kill, f"did not load its modules within {START_SECONDS:g} s"
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def takes_calls(self) -> bool:
        return not self.is_leaving and not self.should_recycle

    def is_shared(self) -> bool:
        return all(self._pool.may_share(running) for running in self.calls.values())

    def is_in_doubt(self) -> bool:
        """True if a call in this child process was asked to stop: if it does not, the child is killed."""
        return any(running.stop is not None for running in self.calls.values())

    def take(self, running: _Running) -> None:
        running.child = self
        self.calls[running.number] = running
        if self._is_ready:
            self._run(running)

    def stop(self, running: _Running, why: _Stop) -> None:
        """Ask a call to stop, and see to it that it does."""
        if running.stop is not None:
            return
        running.stop = why
        if running.timer is None:  # it waits for the child to load its modules
            del self.calls[running.number]
            running.end(AttemptLostError("the call was cancelled before it started", charged=False))
            self._pool.has_room(self)
            return
        self._process.send(wire.StopCall(running.number))
        running.rearm(self._loop.call_later(self._pool.grace_seconds, self._insist, running))

    def dismiss(self) -> None:
        """Let the child go; calls still in it are lost, and not charged."""
        if self.calls:
            self._is_blameless = True
            self._kill("was killed because the worker was closed")
        else:
            self.is_leaving = True
            self._process.ask_to_go()

    def _run(self, running: _Running) -> None:
        call = running.call
        self._process.send(
            wire.Run(
                number=running.number,
                handler=call.handler,
                config=call.config,
                execution_id=call.execution_id,
                node_id=call.node_id,
                generation=call.generation,
                attempt=call.attempt,
                timeout_seconds=call.timeout_seconds,
                secrets=dict(call.secrets),
                traceparent=call.traceparent,
                look=call.look,
            )
        )
        self._compare_code(running)
        running.rearm(self._loop.call_later(call.timeout_seconds, self.stop, running, _Stop.TIMEOUT))

    def _insist(self, running: _Running) -> None:
        """The grace time is over."""
        running.is_overdue = True
        if len(self.calls) == 1:
            self._kill("was killed because the call did not stop")
            return
        # Did this call ignore its stop, or has a neighbour kept it from hearing?
        self._process.send(wire.Probe())
        running.rearm(
            self._loop.call_later(PROBE_SECONDS, self._kill, "was killed because its loop was blocked")
        )

    def _receive(self, message: wire.ToParent) -> None:
        match message:
            case wire.Ready():
                self._is_ready = True
                self._start_timer.cancel()
                for running in self.calls.values():
                    self._run(running)
            case wire.CallTarget():
                self._codes[message.name] = message.code
                for running in self.calls.values():
                    self._compare_code(running)
                self._pool.learn(message.name, message.is_coroutine)
            case wire.AskFacts():
                running_or_none = self.calls.get(message.number)
                if running_or_none is not None:
                    self._pool.answer(self._tell_facts(running_or_none))
            case wire.Output():
                speaking = self.calls.get(message.number)
                if speaking is not None and self._pool.logs is not None:
                    self._pool.logs.add(speaking.call, message.lines)
                    self._pool.logs.add_progress(speaking.call, message.progress)
            case wire.Stack():
                asked = self.calls.get(message.number)
                if asked is not None:
                    asked.stood = message.text
            case wire.Ended():
                self._process.after_output(partial(self._end, message))
            case wire.Alive():
                # The probed call may have ended meanwhile: then there is nothing left to insist on.
                if any(running.is_overdue for running in self.calls.values()):
                    self._loop_answers = True
                    self._kill("was killed because another call in it did not stop")

    def _compare_code(self, running: _Running) -> None:
        """Note in the log of an attempt that it runs other code than the attempt before it."""
        before, code = running.code_before, self._codes.get(running.target)
        if before is None or not code:
            return
        running.code_before = None
        if before.digest != code:
            call = running.call
            fields = {"execution": call.execution_id, "node": call.node_id, "attempt": call.attempt}
            _log.info("code.changed", extra={**fields, "since_attempt": before.attempt})
            if self._pool.logs is not None:
                self._pool.logs.note(call, f"code changed since attempt {before.attempt}")

    async def _tell_facts(self, running: _Running) -> None:
        """Send a call what it asked for, unless it has ended meanwhile."""
        reader = running.call.facts
        try:
            payload = None if reader is None else await reader.read()
            reply = wire.Facts(running.number, payload, "this context knows nothing of an execution")
        except HandlerError as error:
            reply = wire.Facts(running.number, problem=str(error))
        if running.number in self.calls and not self.is_leaving:
            self._process.send(reply)

    def _end(self, message: wire.Ended) -> None:
        # A line without an end is of the call that ends, not of the next one in this process.
        self._collect(is_last=len(self.calls) == 1)
        running = self.calls.pop(message.number, None)
        self.should_recycle = self.should_recycle or message.should_recycle
        if running is not None:
            running.end(with_code(_outcome(running, message), self._codes.get(running.target, "")))
            self._pool.has_room(self)

    def _fill(self, output: AttemptOutput) -> None:
        """Hear, from another thread, that the process has written something."""
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._collect_soon)

    def _collect_soon(self) -> None:
        self._loop.call_later(COLLECT_SECONDS, self._collect)

    def _collect(self, *, is_last: bool = False) -> None:
        """Hand over what the process has written. It is that of the call in it, if there is only one."""
        if self._written is not None and (lines := self._written.take(is_last=is_last)):
            assert self._pool.logs is not None
            (alone,) = self.calls.values() if len(self.calls) == 1 else (None,)
            self._pool.logs.add(None if alone is None else alone.call, lines)

    def _kill(self, verdict: str) -> None:
        if self._verdict is None:
            self._verdict = verdict
            self.is_leaving = True
            self._process.kill()

    def _lose_all(self, exit_text: str) -> None:
        """The process has gone, for whatever reason: each call in it learns its fate."""
        self.is_leaving = True
        self._start_timer.cancel()
        self._collect(is_last=True)
        was_alone = len(self.calls) == 1
        text = f"the process that ran the attempt {self._verdict or exit_text}"
        for running in self.calls.values():
            if running.stop is _Stop.TIMEOUT and (was_alone or (self._loop_answers and running.is_overdue)):
                late = timed_out(running.call.timeout_seconds, stood=running.stood)
                running.end(with_code(late, self._codes.get(running.target, "")))
            else:
                running.end(AttemptLostError(text, charged=was_alone and not self._is_blameless))
        self.calls.clear()
        self.gone.set()
        self._pool.has_gone(self)


def _outcome(running: _Running, message: wire.Ended) -> Outcome:
    outcome: Outcome
    if message.output is not None:
        outcome = Completed(message.output)
    else:
        assert message.error is not None, "a call ends with an output or an error"
        outcome = Failed(decode(message.error), message.retry_after_seconds)
    if running.stop is _Stop.TIMEOUT:
        # A value returned after the timeout does not count. The line where the call stood is worth knowing.
        return timed_out(running.call.timeout_seconds, outcome, stood=running.stood)
    return outcome
