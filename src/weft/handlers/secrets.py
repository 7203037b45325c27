"""Secrets live in the worker's environment, and nowhere else."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from weft.handlers.contract import BadConfig
from weft.masking import SHORTEST, Mask

if TYPE_CHECKING:
    from collections.abc import Iterable

PREFIX = "WEFT_SECRET_"
MAX_SECRET_BYTES = 64 * 1024

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}\Z")


def lookup(name: str) -> str:
    """Return the value of ``WEFT_SECRET_<NAME>``, or the content of the file that ``…_FILE`` names."""
    variable = PREFIX + name.upper()
    if not _NAME.match(name):
        raise BadConfig("a secret is named by letters, digits and underscores")
    if variable.endswith("_FILE"):
        # A variable of this name holds the path of another secret's file.
        raise BadConfig(f"a secret's name cannot end in _FILE, as in {variable}")
    value = os.environ.get(variable)
    if value is not None:
        return value
    path = os.environ.get(f"{variable}_FILE")
    if path is None:
        raise BadConfig(f"this worker has no secret {name!r}: set {variable} or {variable}_FILE")
    return _read(Path(path), f"{variable}_FILE")


def known() -> list[str]:
    """Return every readable secret of this process: the values that must not be shown anywhere."""
    return list(_readable().values())


def short_ones() -> list[str]:
    """Return the names of the secrets whose values are too short to be masked, as warnings at the start."""
    return [
        f"the secret {name} has under {SHORTEST} characters, so it is not masked anywhere; set a longer one"
        for name, value in _readable().items()
        if len(value.strip()) < SHORTEST
    ]


def _readable() -> dict[str, str]:
    values = {}
    for variable in os.environ:
        if variable.startswith(PREFIX):
            name = variable.removeprefix(PREFIX).removesuffix("_FILE")
            with suppress(BadConfig):
                values[name] = lookup(name)
    return values


def process_mask(others: Iterable[str] = ()) -> Mask:
    """Return the mask of every secret of this process; ``others``: those among its settings."""
    return Mask([*known(), *others])


def _read(path: Path, variable: str) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_SECRET_BYTES + 1)
        if len(data) > MAX_SECRET_BYTES:
            raise BadConfig(f"the file that {variable} names is over {MAX_SECRET_BYTES:,} bytes")
        # Editors and `echo` end a file with a newline that is no part of the secret.
        return data.decode().removesuffix("\n").removesuffix("\r")
    except OSError as error:
        raise BadConfig(f"the file that {variable} names cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        # Not chained: the exception holds the bytes.
        raise BadConfig(f"the file that {variable} names is not UTF-8 text") from None
