"""Commands that make servers wait, one for each partition, and that can be called back.

Giving up a blocking read by closing its connection may lose what it was just given: the server has marked
that as delivered, and nobody sees it before it is stale. So the server is asked to let go, and what came is
taken.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from weft.errors import StoreError
from weft.redis.connection import ReplyError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterable, Mapping, Sequence

    from weft.redis.connection import Command, Connection, Redis, Reply

# A server that was asked to let go answers at once, or is away.
_LET_GO_SECONDS = 1.0
# While a server is away the others are waited for no longer than this: then it is looked for again.
_LOOK_SECONDS = 1.0

T = TypeVar("T")
# By partition: what the server said, or why it could not be asked.
Answers: TypeAlias = "dict[int, Reply | StoreError]"
_Answer: TypeAlias = "asyncio.Task[list[Reply]]"


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


async def first_answers(
    redis: Redis,
    commands: Mapping[int, Command],
    *,
    wait_seconds: float,
    given_up: asyncio.Future[None],
) -> Answers:
    """Wait until one command brings something, or all have ended, or ``given_up`` is done; give all answers.

    Those that are still waiting then are called back.
    """
    if len(commands) == 1:
        ((partition, command),) = commands.items()
        return await _only_answer(redis, partition, command, wait_seconds=wait_seconds, given_up=given_up)
    answers: Answers = {}
    async with AsyncExitStack() as stack:
        running: dict[_Answer, tuple[int, Connection]] = {}
        for partition, command in commands.items():
            try:
                connection = await stack.enter_async_context(redis.lend(partition=partition))
            except StoreError as error:
                answers[partition] = error
                continue
            answer = asyncio.create_task(connection.run([command], wait_seconds=wait_seconds))
            running[answer] = (partition, connection)
        waiting = set(running)
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_SECONDS if answers else None):
                    await _first(waiting, given_up)
        finally:
            await _call_back(redis, [running[answer] for answer in waiting])
            if waiting:
                await asyncio.wait(waiting, timeout=_LET_GO_SECONDS)
        for answer, (partition, connection) in running.items():
            if not answer.done():
                connection.close()
            try:
                (reply,) = redis.checked(await answer)
            except StoreError as error:
                answers[partition] = error
            else:
                if reply is not None:
                    answers[partition] = reply
    return answers


async def _only_answer(
    redis: Redis, partition: int, command: Command, *, wait_seconds: float, given_up: asyncio.Future[None]
) -> Answers:
    """Wait for the only command: as nearly all do, and without a task that would wake another."""
    calling_back: list[asyncio.Task[None]] = []
    try:
        async with redis.lend(partition=partition) as connection:

            def let_go(_: asyncio.Future[None]) -> None:
                calling_back.append(asyncio.create_task(_let_go(redis, partition, connection)))

            given_up.add_done_callback(let_go)
            try:
                (reply,) = redis.checked(await connection.run([command], wait_seconds=wait_seconds))
            finally:
                given_up.remove_done_callback(let_go)
                for task in calling_back:
                    task.cancel()
    except StoreError as error:
        return {partition: error}
    return {} if reply is None else {partition: reply}


async def _let_go(redis: Redis, partition: int, connection: Connection) -> None:
    await _call_back(redis, [(partition, connection)])
    await asyncio.sleep(_LET_GO_SECONDS)
    connection.close()


async def _first(waiting: set[_Answer], given_up: asyncio.Future[None]) -> None:
    """Wait for the first that brings something, and leave those that are waiting still."""
    while waiting and not given_up.done():
        either: set[asyncio.Future[Any]] = {*waiting, given_up}
        done, _ = await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        answers = [answer for answer in waiting if answer in done]
        waiting.difference_update(answers)
        if any(answer.exception() is not None or answer.result() != [None] for answer in answers):
            break


async def _call_back(redis: Redis, waiting: Iterable[tuple[int, Connection]]) -> None:
    for partition, connection in waiting:
        # Where it cannot be asked, closing the connection has to do.
        with suppress(StoreError, ReplyError):
            await redis.call("CLIENT", "UNBLOCK", connection.client_id, partition=partition)
