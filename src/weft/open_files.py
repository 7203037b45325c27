"""The limit on open files of this process: raised at start, and recognised when it is hit."""

from __future__ import annotations

import errno
import os
import resource

from weft.errors import WeftError

_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE})


class OutOfFilesError(WeftError):
    """An attempt could not do its work because the worker has no free file. This is no failure of its node.

    ``where``: what the file was for, ``call`` or ``child``. ``began``: whether the attempt has had an effect
    outside before that.
    """

    def __init__(self, where: str, *, began: bool = False) -> None:
        self.where = where
        self.began = began
        super().__init__(
            "this worker has no free file; raise its limit on open files (LimitNOFILE=, ulimit -n)"
        )


def file_limit() -> int | None:
    """Return how many files this process may have open; None: any number."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft


def raise_file_limit(wanted: int) -> None:
    """Raise the soft limit on open files to ``wanted``, or as far as the hard limit allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (OSError, ValueError):
        # The kernel's own limit is lower, as macOS has one. The limit stays as it is.
        return


def is_exhausted(error: BaseException) -> bool:
    """True if an operation failed because this process, or the whole system, has no free file."""
    return isinstance(error, OSError) and error.errno in _EXHAUSTED


def has_free_file() -> bool:
    """True if a file can be opened now."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        return not is_exhausted(error)
    return True
