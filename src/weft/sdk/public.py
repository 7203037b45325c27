"""Errors of weft end at the function that a user called: no frame of weft's inside stands in a traceback."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from weft.errors import WeftError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine

P = ParamSpec("P")
T = TypeVar("T")


def public(function: Callable[P, T]) -> Callable[P, T]:
    """Raise the errors of a function without the frames and causes inside of it."""

    @wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except WeftError as error:
            raise error.with_traceback(None) from None

    return called


def public_coroutine(
    function: Callable[P, Coroutine[Any, Any, T]],
) -> Callable[P, Coroutine[Any, Any, T]]:
    """Do for a coroutine function what ``public`` does."""

    @wraps(function)
    async def called(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return await function(*args, **kwargs)
        except WeftError as error:
            raise error.with_traceback(None) from None

    return called


def public_generator(
    function: Callable[P, AsyncGenerator[T, None]],
) -> Callable[P, AsyncGenerator[T, None]]:
    """Do for an async generator function what ``public`` does."""

    @wraps(function)
    async def called(*args: P.args, **kwargs: P.kwargs) -> AsyncGenerator[T, None]:
        items = function(*args, **kwargs)
        try:
            async for item in items:
                yield item
        except WeftError as error:
            raise error.with_traceback(None) from None
        finally:
            await items.aclose()

    return called
