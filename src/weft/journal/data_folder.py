"""The folder with the journal of an embedded engine. One process at a time owns the folder."""

from __future__ import annotations

import errno
import fcntl
import os
from typing import TYPE_CHECKING

from weft.errors import DataFolderError

if TYPE_CHECKING:
    from pathlib import Path

LOCK_NAME = "weft.lock"


class DataFolder:
    """A data folder, made where it is missing, and this process's hold on it.

    The hold is a lock of the operating system on a file in the folder: it ends with the process, however that
    dies. The file stays, because removing it would let two processes hold two files of the same name.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: int | None = None

    def acquire(self) -> None:
        """Hold the folder; raises DataFolderError where another process does, or it cannot be written."""
        try:
            # What flows through workflows is nobody else's business on a shared machine.
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            # Python opens files so that child processes do not inherit them: a child that outlives this
            # process must not keep the folder from the next one.
            lock = os.open(self.path / LOCK_NAME, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise DataFolderError(f"the data folder {self.path} cannot be used: {error.strerror}") from error
        try:
            self._claim(lock)
        except BaseException:
            os.close(lock)
            raise
        self._lock = lock

    def release(self) -> None:
        """Release the folder; does nothing where this process does not hold it."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _claim(self, lock: int) -> None:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(lock, 0)
            os.pwrite(lock, b"%d\n" % os.getpid(), 0)
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise DataFolderError(
                    f"the data folder {self.path} cannot be locked: {error.strerror}"
                ) from error
            raise DataFolderError(
                f"the data folder {self.path} is in use by process {_holder(lock)}; "
                "stop that process, or choose another folder"
            ) from error


def holder(path: Path) -> str | None:
    """Return the process that holds a data folder; None where nobody does, or there is no folder."""
    try:
        lock = os.open(path / LOCK_NAME, os.O_RDONLY)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DataFolderError(f"the data folder {path} cannot be used: {error.strerror}") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return _holder(lock)
    finally:
        os.close(lock)
    return None


def _holder(lock: int) -> str:
    return os.pread(lock, 20, 0).strip().decode(errors="replace") or "unknown"
