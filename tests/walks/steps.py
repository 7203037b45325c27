"""The work of a workflow that is killed: every call leaves a line behind before it does anything."""

from __future__ import annotations

import hashlib
import os
from typing import Any


def step(log: str, node: str, parents: list[str], context: Any) -> str:
    """Report that this attempt has started, and return a hash of the node and its parents' outputs."""
    _note(log, node, context)
    return hashlib.sha256(f"{node}|{','.join(parents)}".encode()).hexdigest()[:16]


def stumble(log: str, node: str, parents: list[str], context: Any) -> str:
    """Fail in the first attempt."""
    if context.attempt == 1:
        _note(log, node, context)
        raise RuntimeError("the first attempt fails")
    return step(log, node, parents, context)


def _note(log: str, node: str, context: Any) -> None:
    # One write to a file opened for appending: lines of two processes never mix.
    file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, f"{context.execution_id} {node} {context.attempt}\n".encode())
    finally:
        os.close(file)
