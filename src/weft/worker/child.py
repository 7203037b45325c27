"""The program of a child process: ``python -m weft.worker.child SOCKET PARENT [logs] [capture=BYTES]``.

One thread reads the messages of the parent, so that a stop arrives while a function runs, and the end of the
parent is noticed. Another thread sends what the functions print and log. The main thread runs the functions:
coroutines on its loop, and plain functions between two spells of the loop, when none is running, so that they
may start one of their own.

The parent decides who shares this process. It is killed from outside when it does not answer, so nothing
here tries to survive bad code; it only tries to report well.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import faulthandler
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections import deque
from functools import partial
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, NoReturn

from weft.clock import RealClock
from weft.core.payload import decode, encode
from weft.errors import HandlerError, NonRetryable
from weft.handlers.code_digest import CodeDigests
from weft.handlers.contract import (
    FactsSource,
    FunctionNotAllowed,
    GrantedSecrets,
    HandlerContext,
    StopSignal,
    UnknownHandler,
    deadline_after,
)
from weft.handlers.outcome import Completed, Outcome, classify, completed, where_it_stands
from weft.handlers.registry import default_registry
from weft.handlers.secrets import known
from weft.handlers.usercode import UserCode, load
from weft.logs import set_up_logs
from weft.worker import wire
from weft.worker.capture import AttemptOutput, enter, install, is_uncaught
from weft.worker.recycling import LeakDetector

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from weft.core.rows import NodeProgress
    from weft.handlers.contract import Invocation
    from weft.journal.contract import LogLine

# The parent checks what it sends; this only has to be a number at all.
_MAX_FRAME_BYTES = 2**32 - 1
# A message, details and a traceback, each within its own bound, with every character escaped.
_MAX_ERROR_BYTES = 256 * 1024
# How long lines wait for others to be sent with, and what one message holds of them: with four bytes to a
# character, less than what the parent takes beside an output.
_FLUSH_SECONDS = 0.1
_MAX_CHARACTERS = 192 * 1024
# What may take place after the parent has gone: exit handlers, and threads that do not end by themselves.
_EXIT_SECONDS = 1.0

_log = logging.getLogger("weft.worker.child")


class ChildFacts(FactsSource):
    """Facts for a call in this child process: the parent reads them from the journal."""

    def __init__(self, number: int, send: Callable[[wire.ToParent], None]) -> None:
        super().__init__()
        self._number = number
        self._send = send
        self._reply: wire.Facts | None = None
        self._received = threading.Event()

    def load(self) -> bytes:
        self._send(wire.AskFacts(self._number))
        self._received.wait()
        assert self._reply is not None
        if self._reply.payload is None:
            raise HandlerError(self._reply.problem)
        return self._reply.payload

    def receive(self, reply: wire.Facts) -> None:
        self._reply = reply
        self._received.set()


class Child:
    def __init__(self, channel: socket.socket, *, max_log_bytes: int | None = None) -> None:
        """``max_log_bytes``: what an attempt may log; None: nothing of it is kept."""
        self._channel = channel
        self._max_log_bytes = max_log_bytes
        self._outputs: dict[int, AttemptOutput] = {}
        self._filled = threading.Event()
        self._registry = default_registry()
        self._clock = RealClock()
        self._loop = asyncio.new_event_loop()
        self._between: deque[Callable[[], None]] = deque()
        self._stops: dict[int, StopSignal] = {}
        self._facts: dict[int, ChildFacts] = {}
        # A function may ask for facts in a thread of its own.
        self._sending = threading.Lock()
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._announced: set[str] = set()
        self._digests = CodeDigests()
        self._load_problems: list[str] = []
        self._max_payload_bytes = 0
        self._leaks: LeakDetector | None = None
        self._closing = False

    def serve(self) -> None:
        """Run what the parent sends until it closes the channel."""
        if self._max_log_bytes is not None:
            threading.Thread(target=self._flush, name="weft-output", daemon=True).start()
        threading.Thread(target=self._read, name="weft-channel", daemon=True).start()
        while not self._closing:
            # A task that the user's code started may end in SystemExit; asyncio lets that out of the loop.
            with contextlib.suppress(SystemExit, KeyboardInterrupt):
                self._loop.run_forever()
            while self._between:
                self._between.popleft()()
        self._loop.close()

    def only_output(self) -> AttemptOutput | None:
        """Return the output of the only call in this process: whatever is written here is of that call."""
        outputs = self._outputs
        try:
            return next(iter(outputs.values())) if len(outputs) == 1 else None
        except (StopIteration, RuntimeError):  # it ends in this moment
            return None

    # The thread that sends what is printed and logged.

    def _fill(self, output: AttemptOutput) -> None:
        self._filled.set()

    def _flush(self) -> NoReturn:
        while True:
            self._filled.wait()
            time.sleep(_FLUSH_SECONDS)
            self._filled.clear()
            for number, output in list(self._outputs.items()):
                self._send_output(number, output.take(), output.take_progress())

    def _send_output(self, number: int, lines: Sequence[LogLine], progress: NodeProgress | None) -> None:
        start = size = 0
        for index, line in enumerate(lines):
            size += len(line.message)
            if size > _MAX_CHARACTERS:
                self._send(wire.Output(number, lines[start:index]))
                start, size = index, len(line.message)
        if start < len(lines) or progress is not None:
            self._send(wire.Output(number, lines[start:], progress))

    # The channel's thread.

    def _read(self) -> NoReturn:
        frames = wire.Frames(_MAX_FRAME_BYTES)
        with contextlib.suppress(OSError, RuntimeError):
            while data := self._channel.recv(256 * 1024):
                for body in frames.feed(data):
                    self._receive(wire.to_child.decode(body))
        # The parent is gone, or wants this process to go.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._close)
        time.sleep(_EXIT_SECONDS)
        os._exit(0)

    def _receive(self, message: wire.ToChild) -> None:
        match message:
            case wire.LoadCode():
                self._loop.call_soon_threadsafe(self._pause_for, partial(self._load, message))
            case wire.Run():
                self._stops[message.number] = StopSignal()
                self._loop.call_soon_threadsafe(self._pause_for, partial(self._run, message))
            case wire.StopCall():
                # Set here, not on the loop: a plain function that runs now holds the loop up.
                stop = self._stops.get(message.number)
                if stop is not None:
                    stop.requested = True
                    self._tell_stack(message.number)
                self._loop.call_soon_threadsafe(self._cancel, message.number)
            case wire.Facts():
                # Here, not on the loop: the function that waits for it may hold the loop up.
                source = self._facts.get(message.number)
                if source is not None:
                    source.receive(message)
            case wire.Probe():
                self._loop.call_soon_threadsafe(self._send, wire.Alive())

    def _tell_stack(self, number: int) -> None:
        """Send the parent process the stack of the only call, for the error if the parent kills this process.

        With several calls the stack of the main thread does not tell which call it belongs to.
        """
        ident = threading.main_thread().ident
        if len(self._stops) == 1 and ident is not None and (text := where_it_stands(ident)):
            self._send(wire.Stack(number, text))

    # The main thread, on the loop.

    def _pause_for(self, step: Callable[[], None]) -> None:
        self._between.append(step)
        self._loop.stop()

    def _cancel(self, number: int) -> None:
        task = self._tasks.get(number)
        if task is not None:
            task.cancel()

    def _close(self) -> None:
        self._closing = True
        self._loop.stop()

    async def _finish(self, number: int, target: str, value: Awaitable[Any]) -> None:
        outcome: Outcome
        try:
            outcome = completed(await value, target=target, max_bytes=self._max_payload_bytes)
        except BaseException as error:
            outcome = classify(error)
        self._end(number, outcome)

    # The main thread, between two spells of the loop.

    def _load(self, message: wire.LoadCode) -> None:
        self._max_payload_bytes = message.max_payload_bytes
        # What the parent can import, its children can.
        sys.path[:] = message.path
        code = UserCode(message.modules, message.folders, message.files, message.allow, message.sources)
        self._load_problems = load(code, self._registry)
        for problem in self._load_problems:
            _log.error("%s", problem)
        self._digests.note_imported()
        self._leaks = LeakDetector()
        self._send(wire.Ready())

    def _run(self, run: wire.Run) -> None:
        context = contextvars.copy_context()
        if self._max_log_bytes is not None:
            output = self._outputs[run.number] = AttemptOutput(
                now=self._clock.now, max_bytes=self._max_log_bytes, filled=self._fill
            )
            context.run(enter, output)
        try:
            invocation = context.run(self._bind, run)
            self._announce(run.handler, invocation)
            value = context.run(invocation.call)
            if not isawaitable(value):
                target = invocation.target
                self._end(run.number, completed(value, target=target, max_bytes=self._max_payload_bytes))
                return
        except BaseException as error:
            self._end(run.number, classify(error))
            return
        # Also where a plain function gave something to await, as a decorator around a coroutine does.
        task = self._loop.create_task(self._finish(run.number, invocation.target, value), context=context)
        self._tasks[run.number] = task
        if self._stops[run.number].requested:
            task.cancel()

    def _bind(self, run: wire.Run) -> Invocation:
        facts = self._facts[run.number] = ChildFacts(run.number, self._send)
        output = self._outputs.get(run.number)
        context = HandlerContext(
            execution_id=run.execution_id,
            node_id=run.node_id,
            generation=run.generation,
            attempt=run.attempt,
            deadline=deadline_after(self._clock.now(), run.timeout_seconds),
            stop=self._stops[run.number],
            facts=facts,
            secrets=GrantedSecrets(run.secrets),
            show_progress=None if output is None else output.report,
            traceparent=run.traceparent,
            look=run.look,
        )
        try:
            return self._registry.bind(run.handler, decode(run.config), context)
        except (UnknownHandler, FunctionNotAllowed) as error:
            if not self._load_problems:
                raise
            # The likely reason. It may be mended without a new definition, so this one retries.
            problems = [_in_one_line(problem) for problem in self._load_problems]
            raise HandlerError(f"{error}; at the start, {'; '.join(problems)}") from None

    def _announce(self, handler: str, invocation: Invocation) -> None:
        if invocation.target not in self._announced:
            self._announced.add(invocation.target)
            code = self._digests.of(self._registry.module_of(handler, invocation.target))
            self._send(wire.CallTarget(invocation.target, invocation.is_coroutine, code))

    def _end(self, number: int, outcome: Outcome) -> None:
        self._stops.pop(number, None)
        self._tasks.pop(number, None)
        self._facts.pop(number, None)
        should_recycle = self._leaks is not None and self._leaks.should_recycle()
        output = self._outputs.pop(number, None)
        if output is not None:
            self._send_output(number, output.take(is_last=True), output.take_progress())
        if isinstance(outcome, Completed):
            self._send(wire.Ended(number, output=outcome.output, should_recycle=should_recycle))
        else:
            error = encode(outcome.error, max_bytes=_MAX_ERROR_BYTES)
            floor = outcome.retry_after_seconds
            self._send(
                wire.Ended(number, error=error, retry_after_seconds=floor, should_recycle=should_recycle)
            )

    def _send(self, message: wire.ToParent) -> None:
        # The child may wait here for the parent, which always reads.
        try:
            with self._sending:
                self._channel.sendall(wire.frame(message))
        except OSError:
            os._exit(0)


def _end_with(parent: int) -> None:
    """Ask the kernel to end this process with the parent, even while a function holds the interpreter.

    Only Linux can; elsewhere the end of the channel has to do. The kernel goes by the thread that started
    this process: that of the parent's loop, which closes its pool before it ends.
    """
    if sys.platform != "linux":
        return
    import ctypes

    set_parent_death_signal = 1
    ctypes.CDLL(None, use_errno=True).prctl(set_parent_death_signal, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(0)


def _leave_signals_to_parent() -> None:
    """Outlive Ctrl-C and a service manager's SIGTERM: the parent decides when to stop, and how gently."""
    # A function that does nothing, not SIG_IGN, which would be passed on to every program started here.
    inherited = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in inherited:
        signal.signal(number, lambda *_: None)

    # A process forked here has to end when the user's code terminates it. Until its signals are as they
    # were they wait, because Python drops those that arrive while it forks.
    def hold() -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, inherited)

    def release() -> None:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, inherited)

    def restore() -> None:
        for number, action in inherited.items():
            signal.signal(number, action)
        release()

    os.register_at_fork(before=hold, after_in_parent=release, after_in_child=restore)


def _refuse_breakpoint(*_: object, **__: object) -> NoReturn:
    raise NonRetryable(
        "breakpoint() needs a terminal, and this function runs in a child process without one: call the "
        "workflow from your own script with weft.run(), or set PYTHONBREAKPOINT to a debugger that listens "
        "on a port"
    )


def _in_one_line(problem: str) -> str:
    """Return what could not be imported, without the frames of its traceback: a sentence and the error."""
    first, *frames = problem.splitlines()
    return f"{first} {frames[-1]}" if frames else first


def main() -> None:
    channel = socket.socket(fileno=int(sys.argv[1]))
    # Nor may a program that it starts.
    channel.set_inheritable(False)
    _end_with(int(sys.argv[2]))
    _leave_signals_to_parent()
    # A process forked by the user's code must not keep the channel open, or this one's end goes unseen.
    os.register_at_fork(after_in_child=channel.close)
    faulthandler.enable()
    if os.environ.get("PYTHONBREAKPOINT") in (None, "", "pdb.set_trace"):
        # pdb would read the end of stdin, and end the function with an error that says nothing.
        sys.breakpointhook = _refuse_breakpoint
    with contextlib.suppress(AttributeError):
        sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    captured = [word.partition("=")[2] for word in sys.argv if word.startswith("capture=")]
    child = Child(channel, max_log_bytes=int(captured[0]) if captured else None)
    if captured:
        install(tees=False, fallback=child.only_output)
    logs = [word.partition("=")[2] for word in sys.argv if word.startswith("logs=")]
    if logs:
        # Its parent logs it again. A pipe of its own: what a function prints cannot pass for an event.
        stream = os.fdopen(int(logs[0]), "w", encoding="utf-8", errors="backslashreplace")
        os.set_inheritable(stream.fileno(), False)
        set_up_logs(stream=stream, terminal=False, secrets=known(), others=logging.INFO)
    else:
        logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s %(message)s")
    for handler in logging.getLogger().handlers:
        # What an attempt has caught is shown by the parent.
        handler.addFilter(is_uncaught)
    child.serve()


if __name__ == "__main__":
    main()
