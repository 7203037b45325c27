"""Waiting for calls to several servers at once."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from weft.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

T = TypeVar("T")


async def all_of(calls: Sequence[Awaitable[T]]) -> Sequence[T]:
    """Wait for all calls at once. One alone is waited for as it is: a task for it would only cost time."""
    return [await calls[0]] if len(calls) == 1 else await asyncio.gather(*calls)


async def answers_of(calls: Sequence[Awaitable[T]]) -> Sequence[T | BaseException]:
    """Wait for all calls at once; give what each answered, or what went wrong with it."""
    if len(calls) > 1:
        return await asyncio.gather(*calls, return_exceptions=True)
    try:
        return [await calls[0]]
    except Exception as error:
        return [error]


async def all_that_answer(calls: Sequence[Awaitable[T]]) -> list[T | StoreError]:
    """Wait for calls to several servers at once; raises StoreError where none of them can be reached.

    One server of a cluster that is away is no reason to leave the others' work undone.
    """
    answers = await answers_of(calls)
    failed = [answer for answer in answers if isinstance(answer, BaseException)]
    for failure in failed:
        if len(failed) == len(answers) or not isinstance(failure, StoreError):
            raise failure
    return [
        answer
        for answer in answers
        if isinstance(answer, StoreError) or not isinstance(answer, BaseException)
    ]
