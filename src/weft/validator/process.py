"""A few processes that check values, each with a thread of this process that waits for it.

A process is started when there is a value to check, and ends when it was idle for a while. A process that
takes too long is killed, and the next check gets another. A thread that waits for a process holds up nobody,
because Python's lock is held in the other process.

Askers share the processes: a caller of the API, or an execution whose attempt has a reply to check. An asker
has half of the processes at most, and askers that wait have turns: the costly checks of one asker do not
delay those of another.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
from collections import Counter, deque
from concurrent.futures import Future
from typing import TypeAlias

from weft.validator import wire
from weft.validator.asker import current_asker

# On two cores; the rest waits. A question takes two seconds of CPU at most.
_PROCESSES = 2
_PROCESSES_OF_ONE = _PROCESSES // 2
# Questions that wait for a process. One asker has no more of these places than are left free, so half at
# most. Whoever finds none waits outside: a request or an attempt, which have bounds of their own.
MAX_WAITING = 64
_IDLE_SECONDS = 30.0
_START_SECONDS = 60.0
# On the clock, and not of the CPU: for a machine that has much else to do.
_WAIT_SECONDS = 10 * wire.CPU_SECONDS
# What these processes need of the environment: nothing that is secret.
_VARIABLES = ("HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "PATH", "VIRTUAL_ENV")

_Job: TypeAlias = tuple[wire.CheckRequest, "Future[wire.Faults]"]


class CheckTookTooLongError(Exception):
    """A process that checked a value used up its CPU, its memory or its time."""


class Checkers:
    """The processes, and the questions that wait for one."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: dict[str, deque[_Job]] = {}
        # The askers that wait, the one whose turn is next first; and how many processes each has.
        self._turns: deque[str] = deque()
        self._running: Counter[str] = Counter()
        self._threads = 0
        self._idle = 0

    def has_room(self) -> bool:
        """True if the current asker may have one more question wait."""
        with self._changed:
            total = sum(map(len, self._waiting.values()))
            return len(self._waiting.get(current_asker.get(), ())) < MAX_WAITING - total

    def ask(self, question: wire.CheckRequest) -> Future[wire.Faults]:
        """Queue a check; the future may raise CheckTookTooLongError."""
        future: Future[wire.Faults] = Future()
        asker = current_asker.get()
        with self._changed:
            if asker not in self._waiting:
                self._waiting[asker] = deque()
                self._turns.append(asker)
            self._waiting[asker].append((question, future))
            if len(self._ready()) > self._idle and self._threads < _PROCESSES:
                self._threads += 1
                # A daemon: it waits for nobody at exit, and its process ends with the channel.
                threading.Thread(target=self._serve, name="weft-validator", daemon=True).start()
            self._changed.notify()
        return future

    def _ready(self) -> list[str]:
        """Return the askers whose next question may be answered now, in turn."""
        return [asker for asker in self._turns if self._running[asker] < _PROCESSES_OF_ONE]

    def _take(self) -> tuple[str, _Job] | None:
        """Wait for the next check and begin it; None: there was none for a while."""
        with self._changed:
            self._idle += 1
            ready = self._changed.wait_for(self._ready, timeout=_IDLE_SECONDS)
            self._idle -= 1
            if not ready:
                self._threads -= 1
                return None
            asker = ready[0]
            self._turns.remove(asker)
            job = self._waiting[asker].popleft()
            if self._waiting[asker]:
                self._turns.append(asker)
            else:
                del self._waiting[asker]
            self._running[asker] += 1
            return asker, job

    def _serve(self) -> None:
        checker: _Checker | None = None
        while (taken := self._take()) is not None:
            asker, job = taken
            checker = _answer(job, checker)
            with self._changed:
                self._running[asker] -= 1
                if not self._running[asker]:
                    del self._running[asker]
                self._changed.notify()
        if checker is not None:
            checker.end()


def _answer(job: _Job, checker: _Checker | None) -> _Checker | None:
    """Answer one question, and return the process if it can answer more."""
    question, future = job
    if not future.set_running_or_notify_cancel():
        return checker  # nobody waits for it any more
    try:
        checker = checker or _Checker()
        answer = checker.answer(question)
    except BaseException as error:
        if checker is not None:
            checker.end()
        future.set_exception(error)
        return None
    future.set_result(answer)
    return checker


class _Checker:
    """One process."""

    def __init__(self) -> None:
        self._channel, theirs = socket.socketpair()
        with theirs:
            # -P: the folder this program happens to run in is no place to import from.
            program = [sys.executable, "-P", "-m", "weft.validator.child", str(theirs.fileno())]
            self._process = subprocess.Popen(  # noqa: S603 - our own program
                program,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                env=child_environment(),
                # Ctrl-C in a terminal does not go to it.
                process_group=0,
            )
        self._channel.settimeout(_START_SECONDS)
        wire.receive(self._channel, wire.ready)

    def answer(self, question: wire.CheckRequest) -> wire.Faults:
        self._channel.settimeout(_WAIT_SECONDS)
        try:
            wire.send(self._channel, question)
            return wire.receive(self._channel, wire.answers)
        except (OSError, EOFError) as error:
            raise CheckTookTooLongError from error

    def end(self) -> None:
        self._channel.close()
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        self._process.wait()


def child_environment() -> dict[str, str]:
    """Return what a process needs of the environment to start."""
    return {
        name: value for name, value in os.environ.items() if name in _VARIABLES or name.startswith("PYTHON")
    }


_checkers = Checkers()


def checkers() -> Checkers:
    """Return the processes of this process."""
    return _checkers


def _forget() -> None:
    # The threads stay with the parent; the channels are closed with their last copies.
    global _checkers
    _checkers = Checkers()


os.register_at_fork(after_in_child=_forget)
