"""``AsyncClient`` and ``Client``: a server's REST API as methods.

The calls themselves, their arguments and what they mean are in ``calls.py``. ``AsyncClient`` sends them;
``Client`` is the same for code without a loop, and runs the methods of an ``AsyncClient`` in a thread.
"""

from __future__ import annotations

import asyncio
import inspect
import weakref
from contextlib import aclosing
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar

import msgspec

from weft.errors import WeftError
from weft.sdk import calls
from weft.sdk.background import BackgroundLoop
from weft.sdk.http import RETRY_SECONDS, TIMEOUT_SECONDS, HttpConnection
from weft.sdk.public import public, public_coroutine, public_generator
from weft.sdk.shapes import Event, Execution, LoggedLine, Page
from weft.sdk.stream import follow, follow_logs

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator

    from weft.sdk.calls import ApiCall

P = ParamSpec("P")
T = TypeVar("T")

# How long one call is held back by the server while an execution is waited for. The wait goes on after it; a
# shorter one is lost less often to a proxy that thinks nobody is there.
_HELD_SECONDS = 50.0


def _sends(build: Callable[P, ApiCall[T]]) -> Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]]:
    """Make a method that sends the call which ``build`` describes."""

    @public_coroutine
    @wraps(build)
    async def method(self: AsyncClient, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._connection.ask(build(*args, **kwargs))

    return _described(method, build)


def _lists(
    build: Callable[P, ApiCall[Page[T]]],
) -> Callable[Concatenate[AsyncClient, P], AsyncGenerator[T, None]]:
    """Make a method that gives the items of all pages, fetching each page when it is needed."""

    @public_generator
    @wraps(build)
    async def method(self: AsyncClient, /, *args: P.args, **kwargs: P.kwargs) -> AsyncGenerator[T, None]:
        call: ApiCall[Page[T]] | None = build(*args, **kwargs)
        while call is not None:
            page = await self._connection.ask(call)
            for item in page.items:
                yield item
            call = call.at(page.next_cursor) if page.next_cursor else None

    return _described(method, build)


def _described(method: Callable[P, T], build: Callable[..., Any]) -> Callable[P, T]:
    """Let ``help`` show the arguments of ``build`` behind ``self``, and what is inside its ``Call[…]``."""
    signature = inspect.signature(build)
    itself = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    method.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[itself, *signature.parameters.values()],
        return_annotation=signature.return_annotation.removeprefix("ApiCall[").removesuffix("]"),
    )
    return method


class AsyncClient:
    """A weft server. Close it after use, or use it in ``async with``.

    ``url`` and ``api_key`` default to ``WEFT_URL`` and ``WEFT_API_KEY`` (or the file ``WEFT_API_KEY_FILE``).
    A call that got no answer, or one of "not now", is sent again for up to ``retry_seconds``; nothing is
    started twice by it. ``timeout_seconds``: how long one answer may take.

    Raises ApiError where the server refuses (``.status, .code, .problems``), and UnreachableError where there
    is none.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        api_key: str | None = None,
        timeout_seconds: float = TIMEOUT_SECONDS,
        retry_seconds: float = RETRY_SECONDS,
    ) -> None:
        self._connection = HttpConnection(
            url,
            api_key=api_key,
            timeout_seconds=timeout_seconds,
            retry_seconds=retry_seconds,
            waits=False,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._connection.close()

    deploy = _sends(calls.deploy)
    validate = _sends(calls.validate)
    workflows = _lists(calls.workflows)
    workflow = _sends(calls.workflow)
    versions = _lists(calls.versions)
    set_alias = _sends(calls.set_alias)
    delete_alias = _sends(calls.delete_alias)
    delete_workflow = _sends(calls.delete_workflow)
    changes = _lists(calls.changes)

    start = _sends(calls.start)
    start_definition = _sends(calls.start_definition)
    execution = _sends(calls.execution)
    executions = _lists(calls.executions)
    nodes = _lists(calls.nodes)
    node = _sends(calls.node)
    explain = _sends(calls.explain)
    events = _lists(calls.events)
    logs = _lists(calls.logs)
    cancel = _sends(calls.cancel)
    pause = _sends(calls.pause)
    resume = _sends(calls.resume)
    retry = _sends(calls.retry)
    retry_plan = _sends(calls.retry_plan)
    fork = _sends(calls.fork)

    waits = _lists(calls.waits)
    children = _lists(calls.children)
    answer = _sends(calls.answer)
    signal = _sends(calls.signal)

    start_batch = _sends(calls.start_batch)
    batches = _lists(calls.batches)
    batch = _sends(calls.batch)
    batch_results = _lists(calls.batch_results)
    cancel_batch = _sends(calls.cancel_batch)

    triggers = _lists(calls.triggers)
    trigger = _sends(calls.trigger)
    put_trigger = _sends(calls.put_trigger)
    delete_trigger = _sends(calls.delete_trigger)
    enable_trigger = _sends(calls.enable_trigger)
    disable_trigger = _sends(calls.disable_trigger)
    fire_trigger = _sends(calls.fire_trigger)
    backfill_trigger = _sends(calls.backfill_trigger)
    backfill_plan = _sends(calls.backfill_plan)
    send_event = _sends(calls.send_event)
    inbound_events = _lists(calls.inbound_events)

    dead_letters = _lists(calls.dead_letters)
    dead_letter = _sends(calls.dead_letter)
    retry_dead_letter = _sends(calls.retry_dead_letter)
    drop_dead_letter = _sends(calls.drop_dead_letter)
    dead_letter_groups = _lists(calls.dead_letter_groups)
    retry_dead_letters = _sends(calls.retry_dead_letters)
    drop_dead_letters = _sends(calls.drop_dead_letters)
    overview = _sends(calls.overview)
    statistics = _sends(calls.statistics)

    workers = _lists(calls.workers)
    queues = _lists(calls.queues)
    ready = _sends(calls.ready)

    @public_coroutine
    async def wait(self, execution_id: str, *, timeout_seconds: float | None = None) -> Execution:
        """Wait until an execution is terminal; return it with its nodes, or raise TimeoutError."""
        loop = asyncio.get_running_loop()
        ends = None if timeout_seconds is None else loop.time() + timeout_seconds
        while True:
            left = _HELD_SECONDS if ends is None else min(_HELD_SECONDS, max(0.0, ends - loop.time()))
            # Without nodes until there is something to see: a large execution is sent once.
            held = await self._connection.ask(
                calls.execution(execution_id, nodes="none", wait_seconds=round(left, 3))
            )
            if held.is_terminal:
                whole = await self.execution(execution_id)
                if whole.is_terminal:  # a retry may have opened it again
                    return whole
            elif ends is not None and loop.time() >= ends:
                raise TimeoutError(
                    f"execution {execution_id} is {held.state} after {timeout_seconds:g} seconds"
                )

    @public_generator
    async def watch(self, execution_id: str, *, after: int = 0) -> AsyncGenerator[Event, None]:
        """Yield the events of an execution to its end, each once, waiting for those that are to come.

        A connection that breaks is opened again behind the last event. ``node.queued``, ``node.started`` and
        ``node.progress`` have no ``seq`` and come only while they happen.
        """
        async with aclosing(follow(self._connection, execution_id, after=after)) as events:
            async for event in events:
                yield msgspec.json.decode(event.data, type=Event)

    @public_generator
    async def watch_logs(
        self,
        execution_id: str,
        *,
        node: str | None = None,
        attempt: int | None = None,
        level: str | None = None,
        after: int = 0,
    ) -> AsyncGenerator[LoggedLine, None]:
        """Yield the lines of an execution to its end, each once, waiting for those that are to come."""
        call = calls.live_logs(execution_id, node=node, attempt=attempt, level=level)
        async with aclosing(follow_logs(self._connection, call, after=after)) as lines:
            async for line in lines:
                yield msgspec.json.decode(line.data, type=LoggedLine)

    @public_generator
    async def watch_all(self) -> AsyncGenerator[Event, None]:
        """Yield the events of all executions from now on, without end; missed events are not repeated."""
        async with aclosing(follow(self._connection, None)) as events:
            async for event in events:
                yield msgspec.json.decode(event.data, type=Event)


def _blocks(
    method: Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Client, P], T]:
    """Make a method that waits for the one of ``AsyncClient``."""

    @public
    @wraps(method)
    def blocking(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._loop.run(method(self._client, *args, **kwargs))

    return blocking


def _iterates(
    method: Callable[Concatenate[AsyncClient, P], AsyncGenerator[T, None]],
) -> Callable[Concatenate[Client, P], Iterator[T]]:
    """Make a method that gives, one by one, what the one of ``AsyncClient`` gives."""

    @wraps(method)
    def iterating(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        items = method(self._client, *args, **kwargs)
        end: Any = object()
        try:
            while (item := self._loop.run(_next(items, end))) is not end:
                yield item
        except WeftError as error:
            raise error.with_traceback(None) from None
        finally:
            self._loop.run(items.aclose())

    return iterating


async def _next(items: AsyncIterator[T], end: T) -> T:
    # As a coroutine of its own: StopAsyncIteration would not get across.
    return await anext(items, end)


class Client:
    """A weft server for code without a loop: in scripts, in notebooks, in any thread. See ``AsyncClient``."""

    def __init__(
        self,
        url: str | None = None,
        *,
        api_key: str | None = None,
        timeout_seconds: float = TIMEOUT_SECONDS,
        retry_seconds: float = RETRY_SECONDS,
    ) -> None:
        self._client = AsyncClient(
            url, api_key=api_key, timeout_seconds=timeout_seconds, retry_seconds=retry_seconds
        )
        self._loop = BackgroundLoop()
        # One that nobody closed, as in a notebook, closes itself: when it is forgotten, or with the process.
        weakref.finalize(self, self._loop.stop, self._client.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._loop.stop(self._client.close)

    deploy = _blocks(AsyncClient.deploy)
    validate = _blocks(AsyncClient.validate)
    workflows = _iterates(AsyncClient.workflows)
    workflow = _blocks(AsyncClient.workflow)
    versions = _iterates(AsyncClient.versions)
    set_alias = _blocks(AsyncClient.set_alias)
    delete_alias = _blocks(AsyncClient.delete_alias)
    delete_workflow = _blocks(AsyncClient.delete_workflow)
    changes = _iterates(AsyncClient.changes)

    start = _blocks(AsyncClient.start)
    start_definition = _blocks(AsyncClient.start_definition)
    execution = _blocks(AsyncClient.execution)
    executions = _iterates(AsyncClient.executions)
    nodes = _iterates(AsyncClient.nodes)
    node = _blocks(AsyncClient.node)
    explain = _blocks(AsyncClient.explain)
    events = _iterates(AsyncClient.events)
    logs = _iterates(AsyncClient.logs)
    watch_logs = _iterates(AsyncClient.watch_logs)
    watch = _iterates(AsyncClient.watch)
    watch_all = _iterates(AsyncClient.watch_all)
    wait = _blocks(AsyncClient.wait)
    cancel = _blocks(AsyncClient.cancel)
    pause = _blocks(AsyncClient.pause)
    resume = _blocks(AsyncClient.resume)
    retry = _blocks(AsyncClient.retry)
    retry_plan = _blocks(AsyncClient.retry_plan)
    fork = _blocks(AsyncClient.fork)

    waits = _iterates(AsyncClient.waits)
    children = _iterates(AsyncClient.children)
    answer = _blocks(AsyncClient.answer)
    signal = _blocks(AsyncClient.signal)

    start_batch = _blocks(AsyncClient.start_batch)
    batches = _iterates(AsyncClient.batches)
    batch = _blocks(AsyncClient.batch)
    batch_results = _iterates(AsyncClient.batch_results)
    cancel_batch = _blocks(AsyncClient.cancel_batch)

    triggers = _iterates(AsyncClient.triggers)
    trigger = _blocks(AsyncClient.trigger)
    put_trigger = _blocks(AsyncClient.put_trigger)
    delete_trigger = _blocks(AsyncClient.delete_trigger)
    enable_trigger = _blocks(AsyncClient.enable_trigger)
    disable_trigger = _blocks(AsyncClient.disable_trigger)
    fire_trigger = _blocks(AsyncClient.fire_trigger)
    backfill_trigger = _blocks(AsyncClient.backfill_trigger)
    backfill_plan = _blocks(AsyncClient.backfill_plan)
    send_event = _blocks(AsyncClient.send_event)
    inbound_events = _iterates(AsyncClient.inbound_events)

    dead_letters = _iterates(AsyncClient.dead_letters)
    dead_letter = _blocks(AsyncClient.dead_letter)
    retry_dead_letter = _blocks(AsyncClient.retry_dead_letter)
    drop_dead_letter = _blocks(AsyncClient.drop_dead_letter)
    dead_letter_groups = _iterates(AsyncClient.dead_letter_groups)
    retry_dead_letters = _blocks(AsyncClient.retry_dead_letters)
    drop_dead_letters = _blocks(AsyncClient.drop_dead_letters)
    overview = _blocks(AsyncClient.overview)
    statistics = _blocks(AsyncClient.statistics)

    workers = _iterates(AsyncClient.workers)
    queues = _iterates(AsyncClient.queues)
    ready = _blocks(AsyncClient.ready)
