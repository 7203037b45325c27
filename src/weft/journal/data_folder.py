"""The folder with the journal of an embedded engine. One process at a time owns the folder."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from contextlib import suppress
from typing import TYPE_CHECKING

from weft.errors import DataFolderError

if TYPE_CHECKING:
    from pathlib import Path

LOCK_NAME = "weft.lock"


class DataFolder:
    """A data folder, made where it is missing, and this process's hold on it.

    Its files belong to their owner alone (0600), also in a folder that others may read.

    The hold is a lock of the operating system on a file in the folder: it ends with the process, however that
    dies. The file stays, because removing it would let two processes hold two files of the same name.
    """

    def __init__(self, path: Path, *, file_name: str) -> None:
        """``file_name``: the journal in the folder; files beside it begin with the same name."""
        self.path = path
        self._file_name = file_name
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
            _make_private(self.path, self._file_name)
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


def _make_private(path: Path, file_name: str) -> None:
    """Take the rights of group and others from the folder's files, and make a missing journal without them.

    Only weft's own files are changed: a folder may hold files of others (``--data .``). Bits are only
    removed, so that a journal made read-only on purpose stays read-only.
    """
    # SQLite would make the file by the umask, mostly for everybody to read, and its log and index with the
    # mode of the file.
    with suppress(FileExistsError, PermissionError):
        os.close(os.open(path / file_name, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    with os.scandir(path) as entries:
        own = [entry.path for entry in entries if entry.name.startswith((file_name, LOCK_NAME))]
    for name in own:
        # A file of another owner cannot be changed, and one may vanish: SQLite removes its log itself.
        with suppress(PermissionError, FileNotFoundError):
            mode = stat.S_IMODE(os.stat(name).st_mode)
            if mode & 0o077:
                os.chmod(name, mode & 0o700)


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
