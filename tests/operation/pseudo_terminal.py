"""Commands in a pseudo-terminal, and what its screen shows in the end."""

from __future__ import annotations

import codecs
import fcntl
import os
import re
import struct
import subprocess
import termios
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_CONTROL = re.compile(r"\x1b\[([?\d;]*)([A-Za-z])|\x1b\][^\x07]*\x07|\x1b[=>]|([\r\n\b\x07])")


class Screen:
    """A screen without a lower end: moves up, erases, and breaks long lines, as a terminal does."""

    def __init__(self, columns: int) -> None:
        self._columns = columns
        self._rows: list[list[str]] = [[]]
        # Rows that go on with the line above.
        self._continued: set[int] = set()
        self._row = self._column = 0

    def feed(self, text: str) -> None:
        at = 0
        for found in _CONTROL.finditer(text):
            self._put(text[at : found.start()])
            at = found.end()
            self._obey(found[1] or "", found[2] or "", found[3] or "")
        self._put(text[at:])

    def lines(self) -> list[str]:
        """Return the lines as they were written: what the screen broke is whole again."""
        lines: list[str] = []
        for number, row in enumerate(self._rows):
            text = "".join(row)
            if number in self._continued:
                lines[-1] += text
            else:
                lines.append(text)
        return [line.rstrip() for line in lines]

    def _put(self, text: str) -> None:
        for character in text:
            if self._column == self._columns:
                self._down()
                self._continued.add(self._row)
            row = self._rows[self._row]
            row += " " * (self._column + 1 - len(row))
            row[self._column] = character
            self._column += 1

    def _down(self) -> None:
        self._row += 1
        self._column = 0
        if self._row == len(self._rows):
            self._rows.append([])
        self._continued.discard(self._row)

    def _obey(self, numbers: str, letter: str, control: str) -> None:
        if control == "\n":
            self._down()
        elif control == "\r":
            self._column = 0
        elif letter == "A":
            self._row = max(0, self._row - int(numbers or 1))
        elif letter == "K":
            # As rich uses it: the whole line.
            assert numbers == "2", numbers
            self._rows[self._row] = []
            self._continued.discard(self._row)
        else:
            assert letter in "mhl" or control in "\b\x07", (numbers, letter, control)


class Terminal:
    """One command: in a pseudo-terminal of so many columns, or with pipes where ``columns`` is None."""

    def __init__(
        self, command: Sequence[str], *, columns: int | None, folder: Path, environment: Mapping[str, str]
    ) -> None:
        ours, theirs = os.pipe() if columns is None else os.openpty()
        if columns is not None:
            fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        self.process = subprocess.Popen(
            command,
            cwd=folder,
            env={**environment, "TERM": "xterm-256color"},
            stdin=subprocess.DEVNULL if columns is None else theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        self._screen = Screen(columns or 1_000_000)
        self._changed = threading.Condition()
        self._reading = threading.Thread(target=self._read, args=(ours,), daemon=True)
        self._reading.start()

    def _read(self, end: int) -> None:
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        held = ""
        while True:
            try:
                data = os.read(end, 65536)
            except OSError:  # the other end of a pseudo-terminal is closed
                data = b""
            if not data:
                break
            text = held + decoder.decode(data)
            # A control sequence may come in two parts.
            last = text.rfind("\x1b")
            cut = last if last >= 0 and not _CONTROL.match(text, last) else len(text)
            held = text[cut:]
            with self._changed:
                self._screen.feed(text[:cut])
                self._changed.notify_all()
        os.close(end)

    def until(self, text: str, *, seconds: float) -> str:
        """Return the line that has this text, once there is one."""

        def found() -> str | None:
            return next((line for line in self._screen.lines() if text in line), None)

        with self._changed:
            assert self._changed.wait_for(lambda: found() is not None, seconds), self._screen.lines()
            line = found()
        assert line is not None
        return line

    def ended(self, *, seconds: float) -> tuple[int, list[str]]:
        """Return the exit code and the lines on the screen, once the command has ended."""
        code = self.process.wait(seconds)
        self._reading.join(seconds)
        return code, self._screen.lines()
