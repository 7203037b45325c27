"""What a child process writes to stdout and stderr, passed on to this process's stderr without secrets.

A function writes in many ways: by ``print``, by a logger, by a C library, by a program that it starts. All of
them end in the two file descriptors of the child, so secrets are masked behind those and nowhere earlier.
"""

from __future__ import annotations

import codecs
import os
import threading
from typing import TYPE_CHECKING

from weft.masking import MaskedLines

if TYPE_CHECKING:
    from weft.masking import Mask

_READ_BYTES = 64 * 1024
_STDERR = 2


class Relay:
    """Reads the end of a pipe that a child writes to, in a thread of its own.

    Not on the loop: a terminal that takes nothing for a while must hold up the child that writes, not every
    other attempt of this worker.
    """

    def __init__(self, pipe: int, mask: Mask) -> None:
        self._pipe = pipe
        self._lines = MaskedLines(mask)
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
                _write(self._lines.feed(decoder.decode(data)))
            _write(self._lines.feed(decoder.decode(b"", final=True)) + self._lines.rest())
        except OSError:
            # This process has no stderr any more. The child must not wait for a reader, so its pipe breaks.
            pass
        finally:
            os.close(self._pipe)


def _write(text: str) -> None:
    data = memoryview(text.encode("utf-8", "surrogateescape"))
    while data:
        data = data[os.write(_STDERR, data) :]
