"""A connection for batches, on hiredis: many commands out in one write, their replies back in one go.

redis-py spends ten times as much Python on each command of a pipeline (13.7 µs against 1.3), and weft sends
several commands for each node.

Every error of a connection is a StoreError. The server may have executed the commands that were under way, or
not: the scripts are written so that doing a thing twice changes nothing more.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import hiredis

from weft.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from weft.redis.address import Address

Command: TypeAlias = "tuple[bytes | str | float, ...]"
# What hiredis makes of a reply: bytes, numbers, None and lists of these; a refusal is a ReplyError.
Reply: TypeAlias = Any
ReplyError = hiredis.ReplyError

# A server that does not answer for so long is taken to be away.
ANSWER_SECONDS = 10.0
# More than that is written at once, without waiting for what others may ask.
_TOGETHER_BYTES = 64 * 2**10
# What is in no hurry waits at most so long for a write that it can go with.
_LATER_SECONDS = 0.002

# Its type says that a command is one word long.
_pack: Callable[[Command], bytes] = hiredis.pack_command  # type: ignore[assignment]


class CommandBatch:
    """Commands on their way, and the replies that have come so far; ``send`` fills it in."""

    __slots__ = ("count", "done", "patience_seconds", "replies")

    count: int
    done: asyncio.Future[list[Reply]]
    patience_seconds: float
    replies: list[Reply]

    def again(self) -> asyncio.Future[list[Reply]]:
        """Return the future of the replies anew: a caller that was cancelled has cancelled the first one."""
        self.done = self.done.get_loop().create_future()
        if len(self.replies) == self.count:
            self.done.set_result(self.replies)
        return self.done


class BatchConnection(asyncio.Protocol):
    """One socket. Batches go out in the order of the calls, and their replies come in the same order."""

    def __init__(self, answer_seconds: float = ANSWER_SECONDS) -> None:
        self.loop = asyncio.get_running_loop()
        self._answer_seconds = answer_seconds
        self._reader = hiredis.Reader()
        # What the server owes an answer to.
        self.owed: deque[CommandBatch] = deque()
        # What is not written yet, and who writes it: in this round of the loop, or later.
        self._leaving: list[bytes] = []
        self._leaving_bytes = 0
        self._writing: asyncio.Handle | None = None
        self._writing_later: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport | None = None
        # Whether it can be used, and why it cannot be any more.
        self.is_open = False
        self._lost: str | None = None
        # Whether it can be used at once: what was written to it is not more than the server can take.
        self.can_send = False
        self.writable = asyncio.Event()
        self.writable.set()
        # When the server last said something, or began to owe an answer; and the timer that looks at that.
        self._heard_at = 0.0
        self._watch: asyncio.TimerHandle | None = None
        # What the server calls it: by this a command that makes the server wait is called back.
        self.client_id = 0
        self.run_id = ""
        # Which server it is to, and for which partitions the server's state was looked at.
        self.address: Address | None = None
        self.greeted: frozenset[int] = frozenset()

    # Whether the server speaks on it by itself, of what is said on channels.
    listens = False

    async def run(self, commands: Sequence[Command]) -> list[Reply]:
        """Send commands and return their replies; a refused one is a ReplyError in its place."""
        while not self.writable.is_set():
            await self.writable.wait()
        return await self.send(commands).done

    def send(
        self, commands: Sequence[Command], *, wait_seconds: float = 0.0, later: bool = False
    ) -> CommandBatch:
        """Send commands with all that is sent in this round of the loop; return their replies to come.

        ``wait_seconds``: how long the server may take by itself, as a blocking read does. ``later``: or with
        what is sent next, or soon. A write of its own costs both sides as much as all there is to do for a
        small command.
        """
        if self._lost is not None:
            raise StoreError(self._lost)
        # Packed before anything waits for a reply: of what cannot be packed, nothing is sent.
        packed = _pack(commands[0]) if len(commands) == 1 else b"".join(map(_pack, commands))
        loop = self.loop
        batch = CommandBatch()
        batch.count, batch.replies = len(commands), []
        batch.done = loop.create_future()
        batch.patience_seconds = patience = wait_seconds + self._answer_seconds
        if not self.owed:
            self._heard_at = loop.time()
            # The timer outlives the replies: one for each batch would cost as much as a small command.
            if self._watch is None or self._watch.when() > self._heard_at + patience:
                self._watch_until(self._heard_at + patience)
        self.owed.append(batch)
        self._leaving.append(packed)
        self._leaving_bytes += len(packed)
        if self._leaving_bytes >= _TOGETHER_BYTES:
            self._write()
        elif not later:
            if self._writing is None:
                self._writing = loop.call_soon(self._write)
        elif self._writing is None and self._writing_later is None:
            self._writing_later = loop.call_later(_LATER_SECONDS, self._write)
        return batch

    def close(self) -> None:
        """Close it; this may be called from any thread."""
        why = "the connection was closed"
        if self.loop is _loop_of_this_thread():
            self._write()
            self._lose(why)
        else:
            # A loop that is closed by now has closed it.
            with suppress(RuntimeError):
                self.loop.call_soon_threadsafe(self._lose, why)

    def _write(self) -> None:
        """Write what was asked for in this round of the loop: many small calls are one write."""
        if self._writing is not None:
            self._writing.cancel()
            self._writing = None
        if self._writing_later is not None:
            self._writing_later.cancel()
            self._writing_later = None
        if self._leaving and self._lost is None:
            assert self._transport is not None
            self._transport.write(b"".join(self._leaving))
        self._leaving.clear()
        self._leaving_bytes = 0

    def _watch_until(self, at: float) -> None:
        """Schedule the check whether the server still answers, at ``at`` of the loop's clock."""
        if self._watch is not None:
            self._watch.cancel()
        self._watch = self.loop.call_at(at, self._look)

    def _look(self) -> None:
        """Close the connection if the server owes a reply and has sent nothing for too long.

        A long reply on a slow line is no silence.
        """
        self._watch = None
        if self.owed:
            patience = self.owed[0].patience_seconds
            if self._heard_at + patience > self.loop.time():
                self._watch_until(self._heard_at + patience)
            else:
                self._lose(f"no answer for {patience:g} s")

    def _lose(self, why: str) -> None:
        if self._lost is None:
            self._lost = f"the store cannot be reached: {why}"
        self.is_open = self.can_send = False
        if self._transport is not None:
            self._transport.abort()
        self.writable.set()
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        while self.owed:
            done = self.owed.popleft().done
            if not done.done():
                done.set_exception(StoreError(self._lost))
                # The caller may be cancelled by now: mark the error as retrieved, or asyncio logs it.
                done.exception()

    # -- what the event loop calls -----------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transport does not subclass asyncio.Transport.
        self._transport = cast("asyncio.Transport", transport)
        self.is_open = self.can_send = self._lost is None

    def data_received(self, data: bytes) -> None:
        reader, owed = self._reader, self.owed
        self._heard_at = self.loop.time()
        try:
            reader.feed(data)
            while (owed or self.listens) and (reply := reader.gets()) is not False:
                batch = owed[0]
                batch.replies.append(reply)
                if len(batch.replies) == batch.count:
                    owed.popleft()
                    if not batch.done.done():
                        batch.done.set_result(batch.replies)
        except hiredis.ProtocolError as error:
            self._lose(f"what answers is not Redis: {error}")

    def connection_lost(self, error: Exception | None) -> None:
        self._lose(str(error) if error is not None else "the server closed the connection")

    def pause_writing(self) -> None:
        self.can_send = False
        self.writable.clear()

    def resume_writing(self) -> None:
        self.can_send = self.is_open
        self.writable.set()


def _loop_of_this_thread() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
