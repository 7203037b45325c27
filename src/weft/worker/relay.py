"""Reads in this process what a child process writes to the file descriptors of stdout and stderr.

A function writes in many ways: by ``print``, by a logger, by a C library, by a program that it starts. With
``WEFT_LOGS=on`` the child itself catches the first two; the others end in the two descriptors, as all of them
do with ``off``. Secrets are masked behind the descriptors and nowhere earlier.

Where this process logs JSON, what was written becomes the ``text`` of an event ``function.printed``: a
function can print what looks like an event, and never write one. What the child itself logs, and what no
attempt has caught, comes by a pipe of its own as JSON, and this process logs it again with the process id of
the child.
"""

from __future__ import annotations

import array
import codecs
import fcntl
import json
import logging
import os
import selectors
import termios
import threading
import time
from typing import TYPE_CHECKING, Protocol

from weft.logs import MAX_TEXT, PRINTED, log_again, log_printed
from weft.masking import MaskedLines

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from weft.journal.contract import Stream
    from weft.masking import Mask
    from weft.worker.capture import AttemptOutput

_READ_BYTES = 64 * 1024
# A longer event is no event: the formatter of a child bounds every text, and functions do not have so many.
_MAX_EVENT_CHARACTERS = 1024 * 1024
_STDERR = 2
# A program that writes faster than its lines are kept waits this long for each read.
_PAUSE_SECONDS = 0.01


_log = logging.getLogger("weft.worker.child")


class Sink(Protocol):
    """Takes what was read from a pipe, in pieces of any size."""

    def feed(self, text: str) -> None: ...

    def finish(self) -> None: ...


class Relay:
    """Passes on what a child writes to a pipe, in a thread of its own.

    Not on the loop: a terminal that takes nothing for a while must hold up the child that writes, not every
    other attempt of this worker.
    """

    def __init__(self, pipe: int, sink: Sink) -> None:
        self._pipe = pipe
        self._sink = sink
        # A daemon: a program that outlives the child may keep the pipe open for ever.
        self._thread = threading.Thread(target=self._pass_on, name="weft-relay", daemon=True)
        self._thread.start()

    def wait(self, seconds: float) -> None:
        """Return when everything is passed on, or after so many seconds."""
        self._thread.join(seconds)

    def _pass_on(self) -> None:
        # Bytes that are no UTF-8 go through as they came; a character may come in two reads.
        decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
        try:
            while data := os.read(self._pipe, _READ_BYTES):
                self._sink.feed(decoder.decode(data))
            self._sink.feed(decoder.decode(b"", final=True))
            self._sink.finish()
        except OSError:
            # This process has no stderr any more. The child must not wait for a reader, so its pipe breaks.
            pass
        finally:
            os.close(self._pipe)


class RawOutput:
    """Writes to stderr what a child wrote: where people read it, and functions share the terminal."""

    def __init__(self, mask: Mask) -> None:
        self._lines = MaskedLines(mask)

    def feed(self, text: str) -> None:
        _write(self._lines.feed(text))

    def finish(self) -> None:
        _write(self._lines.rest())


class LoggedOutput:
    """Logs what a child wrote, as many lines an event as came at once."""

    def __init__(self, mask: Mask, pid: int) -> None:
        self._lines = MaskedLines(mask)
        self._pid = pid

    def feed(self, text: str) -> None:
        log_printed(_log, PRINTED, self._lines.feed(text), child=self._pid)

    def finish(self) -> None:
        log_printed(_log, PRINTED, self._lines.rest(), child=self._pid)


class LoggedEvents:
    """Logs again what a child logged."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._rest = ""

    def feed(self, text: str) -> None:
        *lines, self._rest = (self._rest + text).split("\n")
        for line in lines:
            self._log(line)
        if len(self._rest) > _MAX_EVENT_CHARACTERS:
            self.finish()

    def finish(self) -> None:
        if self._rest:
            self._log(self._rest)
        self._rest = ""

    def _log(self, line: str) -> None:
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            event = None
        if isinstance(event, dict):
            log_again(_log, event, child=self._pid)
        else:
            # Another process wrote to the pipe.
            log_printed(_log, PRINTED, line[:MAX_TEXT], child=self._pid)


class PipeReader:
    """Reads what a child writes as lines, in a thread of its own."""

    def __init__(self, pipes: Mapping[int, Stream], output: AttemptOutput) -> None:
        self._pipes = dict(pipes)
        # A character may arrive in two pieces.
        self._decoders = {pipe: codecs.getincrementaldecoder("utf-8")("replace") for pipe in pipes}
        self._output = output
        self._is_busy = False
        self._has_ended = False
        self._lock = threading.Lock()
        self._wanted: list[Callable[[], None]] = []
        self._wake, self._waker = os.pipe()
        # A daemon, as above.
        self._thread = threading.Thread(target=self._read, name="weft-relay", daemon=True)
        self._thread.start()

    def wait(self, seconds: float) -> None:
        """Return when everything is read, or after so many seconds."""
        self._thread.join(seconds)

    def has_unread(self) -> bool:
        """True if the child has written something that is not among the lines yet."""
        # In this order: the thread says that it is busy before it takes anything out of a pipe.
        return any(_unread_bytes(pipe) for pipe in list(self._pipes)) or self._is_busy

    def when_read(self, then: Callable[[], None]) -> None:
        """Call ``then``, in the thread, when what was written so far is among the lines."""
        with self._lock:
            if not self._has_ended:
                self._wanted.append(then)
                os.write(self._waker, b".")
                return
        then()

    def _read(self) -> None:
        with selectors.DefaultSelector() as selector:
            for pipe, stream in [*self._pipes.items(), (self._wake, None)]:
                selector.register(pipe, selectors.EVENT_READ, stream)
            while self._pipes:
                ready = selector.select()
                self._is_busy = True
                for key, _ in ready:
                    if key.data is None:
                        os.read(self._wake, _READ_BYTES)
                    elif not self._take(key.fd, key.data):
                        selector.unregister(key.fd)
                        del self._pipes[key.fd]
                        os.close(key.fd)
                self._is_busy = False
                if self._wanted and not any(map(_unread_bytes, self._pipes)):
                    self._answer()
        with self._lock:
            self._has_ended = True
            os.close(self._wake)
            os.close(self._waker)
        self._answer()

    def _answer(self) -> None:
        wanted, self._wanted = self._wanted, []
        for then in wanted:
            then()

    def _take(self, pipe: int, stream: Stream) -> bool:
        """Read once; False at the end of the pipe."""
        data = os.read(pipe, _READ_BYTES)
        if not data:
            return False
        if self._output.write(stream, self._decoders[pipe].decode(data)):
            time.sleep(_PAUSE_SECONDS)
        return True


def _unread_bytes(pipe: int) -> int:
    count = array.array("i", [0])
    try:
        fcntl.ioctl(pipe, termios.FIONREAD, count)
    except OSError:  # the thread has just closed it
        return 0
    return count[0]


def _write(text: str) -> None:
    data = memoryview(text.encode("utf-8", "surrogateescape"))
    while data:
        data = data[os.write(_STDERR, data) :]
