"""One child process: started, spoken to, killed if need be, and reaped."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
from functools import partial
from typing import TYPE_CHECKING, cast

import msgspec

from weft.logs import are_json, are_set_up
from weft.worker import wire
from weft.worker.relay import LoggedEvents, LoggedOutput, PipeReader, RawOutput, Relay

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from weft.masking import Mask
    from weft.worker.capture import AttemptOutput

# From the end of a channel to the kill of a child that was asked to go; and from a kill to giving up on a
# channel that somebody else holds open.
EXIT_SECONDS = 1.0
_STDERR = 2


class ChildProcess(asyncio.Protocol):
    """A process that runs ``weft.worker.child``, at the other end of a socket.

    Its end is the end of the socket: whatever a process dies of, the kernel closes its sockets, and what
    it had sent before is still read first.
    """

    def __init__(
        self,
        *,
        max_message_bytes: int,
        mask: Mask,
        environment: Mapping[str, str] | None,
        output: AttemptOutput | None,
        max_log_bytes: int,
        on_message: Callable[[wire.ToParent], None],
        gone: Callable[[str], None],
    ) -> None:
        """Start the process, or raise OSError. ``gone`` is called once, when it has been reaped.

        ``output``: takes what the process writes to stdout and stderr past Python, and the process itself
        catches what its functions print and log. Without it all of that goes to this process's stderr.
        """
        self._loop = asyncio.get_running_loop()
        self._frames = wire.Frames(max_message_bytes)
        self._on_message = on_message
        self._gone = gone
        self._transport: asyncio.Transport | None = None
        self._unsent: list[bytes] = []  # until the transport is there
        self._asked_to_go = False
        self._process, channel, self._relay, self._log_relay = _start(
            mask, environment, output, max_log_bytes
        )
        # Kept, because the loop holds its tasks weakly.
        self._connecting = self._loop.create_task(
            self._loop.create_unix_connection(lambda: self, sock=channel)
        )
        self._reaping: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, message: wire.ToChild) -> None:
        data = wire.frame(message)
        if self._transport is None:
            self._unsent.append(data)
        elif not self._transport.is_closing():
            self._transport.write(data)

    def ask_to_go(self) -> None:
        """Let it end by itself; if it does not, it is killed."""
        self._asked_to_go = True
        if self._transport is not None:
            self._transport.close()

    def after_output(self, then: Callable[[], None]) -> None:
        """Call ``then`` when what the process has written so far is among the lines: most often at once."""
        reader = self._relay
        if isinstance(reader, PipeReader) and reader.has_unread():
            reader.when_read(partial(self._call_back, then))
        else:
            then()

    def _call_back(self, then: Callable[[], None]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(then)

    def kill(self) -> None:
        """Kill it, with every program that it started."""
        self._kill_group()
        if self._transport is not None:
            # A program that left the group may have kept the channel open.
            self._loop.call_later(EXIT_SECONDS, self._transport.abort)

    # The channel.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not subclasses of asyncio's.
        self._transport = cast("asyncio.Transport", transport)
        for data in self._unsent:
            self._transport.write(data)
        self._unsent.clear()
        if self._asked_to_go:
            self._transport.close()

    def data_received(self, data: bytes) -> None:
        try:
            for body in self._frames.feed(data):
                self._on_message(wire.to_parent.decode(body))
        except (ValueError, msgspec.DecodeError):
            # Another process wrote to the channel: no message on it can be trusted any more.
            self.kill()

    def connection_lost(self, error: Exception | None) -> None:
        self._reaping = self._loop.create_task(self._reap())

    async def _reap(self) -> None:
        if self._asked_to_go:
            with contextlib.suppress(subprocess.TimeoutExpired):
                await asyncio.to_thread(self._process.wait, EXIT_SECONDS)
        self._kill_group()
        status = await asyncio.to_thread(self._process.wait)
        for relay in (self._relay, self._log_relay):
            # What it wrote last is read before anybody hears of its end; a program that it left behind may
            # hold the pipe open.
            if relay is not None:
                await asyncio.to_thread(relay.wait, EXIT_SECONDS)
        self._gone(_describe(status))

    def _kill_group(self) -> None:
        # Not once it is reaped: its id may then be that of another process.
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)


def _start(
    mask: Mask, environment: Mapping[str, str] | None, output: AttemptOutput | None, max_log_bytes: int
) -> tuple[subprocess.Popen[bytes], socket.socket, Relay | PipeReader | None, Relay | None]:
    with contextlib.ExitStack() as unless_started, contextlib.ExitStack() as afterwards:
        ours, theirs = socket.socketpair()
        unless_started.callback(ours.close)
        afterwards.callback(theirs.close)
        ours.setblocking(False)
        # -P: the folder this program happens to run in is no place to import from.
        program = [sys.executable, "-P", "-m", "weft.worker.child", str(theirs.fileno()), str(os.getpid())]
        passed = [theirs.fileno()]
        logs: int | None = None
        if are_set_up():
            logs, written = os.pipe()
            unless_started.callback(os.close, logs)
            afterwards.callback(os.close, written)
            program.append(f"logs={written}")
            passed.append(written)
        if output is not None:
            program.append(f"capture={max_log_bytes}")
        # Where there is nothing to hide and nothing to keep, the child has this process's stderr, as a
        # terminal if it is one.
        ends: list[int] = []
        stdout = stderr = _STDERR
        for _ in range(2 if output is not None else 1 if mask or are_json() else 0):
            end, stderr = os.pipe()
            unless_started.callback(os.close, end)
            afterwards.callback(os.close, stderr)
            # What a function prints must not mix with what this program prints.
            stdout = stdout if ends else stderr
            ends.append(end)
        process = subprocess.Popen(  # noqa: S603 - our own program
            program,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            pass_fds=passed,
            # From its first instruction on, so that /proc/PID/environ has no more either.
            env=environment,
            # A group of its own: Ctrl-C in a terminal does not go to it, and a kill reaches the programs it
            # started.
            process_group=0,
        )
        unless_started.callback(process.kill)
        relay: Relay | PipeReader | None = None
        if output is not None:
            relay = PipeReader({ends[0]: "stdout", ends[1]: "stderr"}, output)
        elif ends:
            relay = Relay(ends[0], LoggedOutput(mask, process.pid) if are_json() else RawOutput(mask))
        log_relay = None if logs is None else Relay(logs, LoggedEvents(process.pid))
        unless_started.pop_all()
        return process, ours, relay, log_relay


def _describe(status: int) -> str:
    if status >= 0:
        return f"ended with status {status}"
    try:
        return f"was ended by {signal.Signals(-status).name}"
    except ValueError:
        return f"was ended by signal {-status}"
