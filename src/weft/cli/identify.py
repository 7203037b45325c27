"""Resolves what a user typed: ids from their first characters, names with suggestions for near misses.

The API has no search by prefix, and needs none: ids are UUIDv7, whose first 48 bits are the milliseconds of
their making. So a prefix is a stretch of time, and the list of what was made in it is short.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeAlias

from weft.definition.suggestion import Suggester
from weft.errors import ApiError, NotFoundError, WeftError
from weft.sdk import calls

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from weft.cli.server import RemoteServer

SHORTEST_PREFIX = 4
MAX_CANDIDATES = 5

_WHOLE = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_DIGITS_OF_TIME = 12
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_MILLISECOND = int((datetime(9999, 12, 31, tzinfo=UTC) - _EPOCH) / timedelta(milliseconds=1))
# An id is made a little before or after the moment that is recorded as the making of what it names.
_SLACK = timedelta(seconds=5)


# The executions or dead letters that were made between two times, newest first.
MadeIn: TypeAlias = "Callable[[datetime, datetime], AsyncIterator[dict[str, Any]]]"


async def execution_id(text: str, server: RemoteServer) -> str:
    """Return the id of the one execution whose id begins with ``text``."""

    async def made_in(begin: datetime, end: datetime) -> AsyncIterator[dict[str, Any]]:
        call = calls.executions(created_after=begin, created_before=end)
        async for item in server.items(call):
            yield item

    return await unique_id(text, "execution", made_in)


async def letter_id(text: str, server: RemoteServer) -> str:
    """Return the id of the one dead letter whose id begins with ``text``."""

    async def made_in(begin: datetime, end: datetime) -> AsyncIterator[dict[str, Any]]:
        # The API does not filter dead letters by time; newest come first, so stop at the begin.
        async for item in server.items(calls.dead_letters()):
            if datetime.fromisoformat(item["created_at"]) < begin:
                return
            yield item

    return await unique_id(text, "dead letter", made_in)


async def unique_id(text: str, kind: str, made_in: MadeIn) -> str:
    """Return the one id that begins with ``text``, among those of a stretch of time."""
    prefix = text.strip().lower()
    if _WHOLE.fullmatch(prefix):
        return prefix
    digits = prefix.replace("-", "")
    if not re.fullmatch(r"[0-9a-f]{0,32}", digits):
        raise NotFoundError(f"there is no {kind} {text!r}")
    if len(digits) < SHORTEST_PREFIX:
        raise WeftError(f"{text!r} is too short for an id: give at least {SHORTEST_PREFIX} characters of it")
    found: list[str] = []
    if (stretch := _stretch(digits)) is not None:
        async for item in made_in(*stretch):
            if item["id"].replace("-", "").startswith(digits):
                found.append(item["id"])
                if len(found) > MAX_CANDIDATES:
                    break
    if not found:
        raise NotFoundError(f"there is no {kind} {text!r}")
    if len(found) > 1:
        more = ["…"] if len(found) > MAX_CANDIDATES else []
        shown = "\n  ".join([*found[:MAX_CANDIDATES], *more])
        raise WeftError(f"several {kind}s begin with {text!r}; give more characters:\n  {shown}")
    return found[0]


def _stretch(digits: str) -> tuple[datetime, datetime] | None:
    """Return the period in which ids with these first digits are created; None if there is no such period."""
    known = digits[:_DIGITS_OF_TIME]
    step = 16 ** (_DIGITS_OF_TIME - len(known))
    begin = int(known, 16) * step
    if begin > _LAST_MILLISECOND:
        return None
    end = min(begin + step, _LAST_MILLISECOND)
    return (
        max(_EPOCH, _EPOCH + timedelta(milliseconds=begin) - _SLACK),
        _EPOCH + timedelta(milliseconds=end) + _SLACK,
    )


async def workflow_missing(name: str, error: ApiError, server: RemoteServer) -> WeftError:
    """Return an error that suggests a similar workflow, or ``error`` if something else is missing."""
    if error.code != "not_found":
        return error
    known = {item["name"] async for item in server.items(calls.workflows())}
    if name in known:  # then what is missing is something else, such as a version
        return error
    return NotFoundError(f"there is no workflow {name!r}{Suggester().hint(name, known)}")


async def nodes_missing(
    execution: str, nodes: Sequence[str], error: ApiError, server: RemoteServer
) -> WeftError:
    """Return an error that suggests a node like the first unknown one, or ``error`` if all are known."""
    if error.code not in ("not_found", "invalid_request") or not nodes:
        return error
    try:
        described = await server.ask(calls.execution(execution, nodes="brief"))
    except ApiError:  # it is the execution that is missing
        return error
    known = {item["id"] for item in described["nodes"]}
    for node in nodes:
        if node not in known:
            hint = Suggester().hint(node, known)
            return NotFoundError(f"execution {execution} has no node {node!r}{hint}")
    return error
