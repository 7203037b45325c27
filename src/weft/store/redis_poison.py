"""Containment of executions whose hash cannot be read: garbage, or a key of another type.

One script call is about many executions, and one bad hash makes the whole call fail. Such a call is repeated
for fewer executions, until the bad one is alone. Its hash is dropped, and the next answer about the execution
is UNKNOWN, which leads to a rebuild from the journal. To repeat a call is safe: no script changes anything
more the second time.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, TypeVar

from weft.errors import StoreError, StoreKeyError
from weft.redis.health import wrong_keys

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from weft.redis.connection import Redis
    from weft.redis.keys import Keys

log = logging.getLogger("weft.store")

Item = TypeVar("Item")


async def contained(
    redis: Redis,
    keys: Keys,
    items: Sequence[Item],
    execution_of: Callable[[Item], str],
    run: Callable[[Sequence[Item]], Awaitable[None]],
) -> None:
    """Run a step for items of one partition; an execution with a bad hash is dropped, the others go on."""
    try:
        await run(items)
    except StoreError:
        raise
    except Exception as error:
        names = list(dict.fromkeys([execution_of(item) for item in items]))
        if len(names) > 1:
            first = frozenset(names[: len(names) // 2])
            for is_first in (True, False):
                half = [item for item in items if (execution_of(item) in first) is is_first]
                await contained(redis, keys, half, execution_of, run)
            return
        # A key that all executions share says nothing about this one.
        if wrong := await wrong_keys(redis, keys):
            raise StoreKeyError(wrong[0].message) from error
        if not names:
            raise
        log.warning("execution.dropped", extra={"execution": names[0], "error": str(error)})
        await redis.call("UNLINK", keys.execution(names[0]), partition=keys.partition)
        await run(items)
