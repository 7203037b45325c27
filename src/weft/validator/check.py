"""Checks values against schemas: at once where that is quick, else in a process that can be killed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from weft.definition.schema import quick_problems
from weft.errors import Problem
from weft.validator import wire
from weft.validator.process import CheckTookTooLongError, checkers

if TYPE_CHECKING:
    from collections.abc import Sequence
    from concurrent.futures import Future

    from weft.core.payload import Json
    from weft.definition.schema import Schema

_MANY = 3
# How often a caller looks for room while too many questions wait.
_ROOM_SECONDS = 0.05

TOO_LONG = (
    f"this value cannot be checked against its schema within {wire.CPU_SECONDS:g} s of CPU and "
    f"{wire.MEMORY_BYTES // 1024**2} MiB; make the schema simpler, or the value smaller"
)


async def problems_of(schema: Schema, value: Json, payload: bytes) -> list[Problem]:
    """List what a value does not keep of a schema, with pointers into it. ``payload``: the value as JSON."""
    quick = quick_problems(schema, value, payload)
    return (await problems_in_process(schema, [payload]))[0] if quick is None else quick


async def problems_in_process(schema: Schema, payloads: Sequence[bytes]) -> list[list[Problem]]:
    """List what payloads do not keep of a schema, in a process that can be killed; others go on meanwhile."""
    while not checkers().has_room():  # noqa: ASYNC110 - threads make the room
        await asyncio.sleep(_ROOM_SECONDS)
    try:
        answer = await asyncio.wrap_future(_asked(wire.CheckKind.VALUE, schema, payloads))
    except CheckTookTooLongError:
        return [[Problem("", TOO_LONG)] for _ in payloads]
    return _problems(answer)


def faults_in_process(kind: wire.CheckKind, schema: Schema, payload: bytes) -> list[Problem]:
    """List the faults of one payload; for a caller who may wait: a command, or a thread of its own."""
    try:
        return _problems(_asked(kind, schema, [payload]).result())[0]
    except CheckTookTooLongError:
        return [Problem("", TOO_LONG)]


def _asked(kind: wire.CheckKind, schema: Schema, payloads: Sequence[bytes]) -> Future[wire.Faults]:
    # Many payloads, such as the inputs of a batch, have more time in all, and less each.
    seconds = wire.CPU_SECONDS if len(payloads) == 1 else _MANY * wire.CPU_SECONDS
    return checkers().ask(wire.CheckRequest(kind, schema.text, list(payloads), seconds))


def _problems(answer: wire.Faults) -> list[list[Problem]]:
    return [[Problem(where, message) for where, message in faults] for faults in answer.faults]
