"""A service for tests that writes down every call it gets, and answers each with a token of its own.

::

    with RecordingService() as service:
        service.script(Answer(503, headers={"Retry-After": "1"}))    # the first call; then a token for each
        ...
        assert [call.node for call in service.calls] == ["pay", "pay"]

``python -m weft.testing.recording_service`` runs it in a process of its own, for a measurement.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter, deque
from typing import TYPE_CHECKING

import msgspec

from weft.testing.http_server import (
    Answer,
    Behaviour,
    HttpServer,
    ReceivedRequest,
    Respond,
    settled,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable

IDEMPOTENCY_KEY = "idempotency-key"
_PATIENCE_SECONDS = 30.0


class RecordedCall(msgspec.Struct, gc=False):
    """One call, and who made it: read from its idempotency key, empty where that is not one of weft's."""

    execution: str
    node: str
    generation: int
    # The n-th call with this key, from 1. A key is the same for every attempt of a node in a generation.
    number: int
    key: str
    # Unlike that of any other call; its answer holds it.
    token: str
    request: ReceivedRequest

    @property
    def at(self) -> int:
        return self.request.at


class RecordingService(HttpServer):
    """``respond`` answers in place of the tokens; a ``script`` goes before both."""

    def __init__(self, respond: Respond | None = None, *, host: str = "127.0.0.1", port: int = 0) -> None:
        super().__init__(self._take, host=host, port=port)
        # In the order in which they came. Read it from any thread.
        self.calls: list[RecordedCall] = []
        # Every answer waits so long; may be changed at any time.
        self.delay_seconds = 0.0
        self._answer = respond
        self._script: deque[Behaviour] = deque()
        self._numbers: Counter[str] = Counter()
        self._came = threading.Condition()
        self._waiting = 0
        self._released: asyncio.Event | None = None

    def script(self, *behaviours: Behaviour) -> None:
        """Answer the next calls like this, one each."""
        self._script.extend(behaviours)

    def hold(self) -> None:
        """Let every call from now on wait until ``release``."""
        self._released = asyncio.Event()

    def release(self) -> None:
        released, self._released = self._released, None
        if released is not None:
            self.call(released.set)

    def wait_for(self, count: int, *, timeout_seconds: float = _PATIENCE_SECONDS) -> list[RecordedCall]:
        """Return once so many calls have come; raises TimeoutError where they do not."""
        with self._came:
            self._waiting += 1
            try:
                if not self._came.wait_for(lambda: len(self.calls) >= count, timeout_seconds):
                    raise TimeoutError(f"{len(self.calls)} calls came, not {count}")
            finally:
                self._waiting -= 1
        return self.calls[:count]

    async def came(self, count: int, *, timeout_seconds: float = _PATIENCE_SECONDS) -> list[RecordedCall]:
        """Do what ``wait_for`` does without holding up the loop."""
        return await asyncio.to_thread(self.wait_for, count, timeout_seconds=timeout_seconds)

    def _take(self, request: ReceivedRequest) -> Behaviour | Awaitable[Behaviour]:
        call = self._record(request)
        released = self._released
        if released is not None or self.delay_seconds:
            return self._later(call, released)
        return self._reply(call)

    def _record(self, request: ReceivedRequest) -> RecordedCall:
        key = request.headers.get(IDEMPOTENCY_KEY, "")
        self._numbers[key] += 1
        # A node's id has no slash, and neither has an execution's.
        execution, node, generation = parts if len(parts := key.split("/")) == 3 else ("", "", "0")
        call = RecordedCall(
            execution,
            node,
            int(generation) if generation.isdecimal() else 0,
            self._numbers[key],
            key,
            f"token-{len(self.calls) + 1}",
            request,
        )
        self.calls.append(call)
        if self._waiting:
            with self._came:
                self._came.notify_all()
        return call

    def _reply(self, call: RecordedCall) -> Behaviour | Awaitable[Behaviour]:
        if self._script:
            return self._script.popleft()
        if self._answer is not None:
            return self._answer(call.request)
        return Answer(200, b'{"token":"%b","number":%d}' % (call.token.encode(), call.number), _JSON)

    async def _later(self, call: RecordedCall, released: asyncio.Event | None) -> Behaviour:
        if released is not None:
            await released.wait()
        await asyncio.sleep(self.delay_seconds)
        return await settled(self._reply(call))


_JSON = {"Content-Type": "application/json"}


def main(arguments: list[str] | None = None) -> None:
    from weft.testing.standalone import serve

    serve(
        lambda host, port: RecordingService(host=host, port=port),
        arguments,
        description="A service that answers every call with a token.",
    )


if __name__ == "__main__":
    main()
