"""A connection for batches, on hiredis: many commands out in one write, their replies back in one go.

redis-py spends ten times as much Python on each command of a pipeline (13.7 µs against 1.3): for what happens
several times per node that is the difference. Its sockets cannot be had without reaching into private parts,
so what little there is to an address, a password and TLS is done here.

Every error of a connection is a StoreError, and whatever was on its way may or may not have happened: the
scripts are written so that doing a thing twice changes nothing more.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import deque
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

import hiredis

from weft.core.incarnation import Incarnation
from weft.errors import StoreError
from weft.redis.address import read_url
from weft.redis.keys import PREFIX, Keys
from weft.redis.script import load_script
from weft.redis.slots import read_slots, slot_of, slot_of_key

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence

    from weft.redis.address import Address
    from weft.redis.script import Script

log = logging.getLogger("weft.redis")

Command: TypeAlias = "tuple[bytes | str | float, ...]"
# What hiredis makes of a reply: bytes, numbers, None and lists of these; a refusal is a ReplyError.
Reply: TypeAlias = Any
ReplyError = hiredis.ReplyError

CONNECT_SECONDS = 5.0
# A server that does not answer for so long is taken to be away.
ANSWER_SECONDS = 10.0
# After a connection could not be made, others are not tried for this long: less than two a second.
PAUSE_SECONDS = 0.6
# Connections for blocking reads that are kept for the next one.
_IDLE_CONNECTIONS = 8
# A server that was asked to let go answers at once, or is away.
_LET_GO_SECONDS = 1.0
# More than that is written at once, without waiting for what others may ask.
_TOGETHER_BYTES = 64 * 2**10
# What is in no hurry waits at most so long for a write that it can go with.
_LATER_SECONDS = 0.002
_HELLO = load_script("weft.redis", "hello")


class _Batch:
    """Commands on their way, and the replies that have come so far."""

    __slots__ = ("count", "done", "patience_seconds", "replies")

    def __init__(self, count: int, done: asyncio.Future[list[Reply]], patience_seconds: float) -> None:
        self.count = count
        self.done = done
        self.patience_seconds = patience_seconds
        self.replies: list[Reply] = []

    def again(self) -> asyncio.Future[list[Reply]]:
        """Return the future of the replies anew: a caller that was cancelled has cancelled the first one."""
        self.done = self.done.get_loop().create_future()
        if len(self.replies) == self.count:
            self.done.set_result(self.replies)
        return self.done


class Connection(asyncio.Protocol):
    """One socket. Batches go out in the order of the calls, and their replies come in the same order."""

    def __init__(self, answer_seconds: float = ANSWER_SECONDS) -> None:
        self.loop = asyncio.get_running_loop()
        self._answer_seconds = answer_seconds
        self._reader = hiredis.Reader()
        self._batches: deque[_Batch] = deque()
        # What is not written yet, and who writes it: in this round of the loop, or later.
        self._leaving: list[bytes] = []
        self._leaving_bytes = 0
        self._writing: asyncio.Handle | None = None
        self._writing_later: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport | None = None
        # Whether it can be used, and why it cannot be any more.
        self.is_open = False
        self._lost: str | None = None
        self.writable = asyncio.Event()
        self.writable.set()
        # When the server last said something, or began to owe an answer; and the timer that looks at that.
        self._heard_at = 0.0
        self._watch: asyncio.TimerHandle | None = None
        # What the server calls it: by this a command that makes the server wait is called back.
        self.client_id = 0
        self.run_id = b""
        # Of a cluster: which server it is to, and for which partitions the server's state was looked at.
        self.address: Address | None = None
        self.greeted: frozenset[int] = frozenset()

    # Whether the server speaks on it by itself, of what is said on channels.
    listens = False

    @property
    def is_quiet(self) -> bool:
        """Say whether the next reply would be that to the next command."""
        return self.is_open and not self._batches

    async def run(self, commands: Sequence[Command], *, wait_seconds: float = 0.0) -> list[Reply]:
        """Send commands and give their replies; a refused one is a ReplyError in its place.

        ``wait_seconds``: how long the server may take by itself, as a blocking read does.
        """
        while not self.writable.is_set():
            await self.writable.wait()
        return await self.send(commands, wait_seconds=wait_seconds).done

    def send(self, commands: Sequence[Command], *, wait_seconds: float = 0.0, later: bool = False) -> _Batch:
        """Send commands with all that is sent in this round of the loop; return their replies to come.

        ``later``: or with what is sent next, or soon. A write of its own costs both sides as much as all
        there is to do for a small command.
        """
        if self._lost is not None:
            raise StoreError(self._lost)
        # Packed before anything waits for a reply: of what cannot be packed, nothing is sent.
        packed = _pack(commands[0]) if len(commands) == 1 else b"".join(map(_pack, commands))
        loop, patience = self.loop, wait_seconds + self._answer_seconds
        batch = _Batch(len(commands), loop.create_future(), patience)
        if not self._batches:
            self._heard_at = loop.time()
            # The timer outlives the replies: one for each batch would cost as much as a small command.
            if self._watch is None or self._watch.when() > self._heard_at + patience:
                self._watch_until(self._heard_at + patience)
        self._batches.append(batch)
        self._leaving.append(packed)
        self._leaving_bytes += len(packed)
        if self._leaving_bytes >= _TOGETHER_BYTES:
            self._send()
        elif not later:
            if self._writing is None:
                self._writing = loop.call_soon(self._send)
        elif self._writing is None and self._writing_later is None:
            self._writing_later = loop.call_later(_LATER_SECONDS, self._send)
        return batch

    def close(self) -> None:
        """Close it; this may be called from any thread."""
        why = "the connection was closed"
        if self.loop is _loop_of_this_thread():
            self._send()
            self._lose(why)
        else:
            # A loop that is closed by now has closed it.
            with suppress(RuntimeError):
                self.loop.call_soon_threadsafe(self._lose, why)

    def _send(self) -> None:
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
        """Give it up if the server owes an answer and has said nothing for too long.

        A long reply on a slow line is no silence.
        """
        self._watch = None
        if self._batches:
            patience = self._batches[0].patience_seconds
            if self._heard_at + patience > self.loop.time():
                self._watch_until(self._heard_at + patience)
            else:
                self._lose(f"no answer for {patience:g} s")

    def _lose(self, why: str) -> None:
        if self._lost is None:
            self._lost = f"the store cannot be reached: {why}"
        self.is_open = False
        if self._transport is not None:
            self._transport.abort()
        self.writable.set()
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        while self._batches:
            done = self._batches.popleft().done
            if not done.done():
                done.set_exception(StoreError(self._lost))
                # Whoever was waiting may be gone by now; then nobody asks for it.
                done.exception()

    # -- what the event loop calls -----------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Of uvloop's it is no subclass.
        self._transport = cast("asyncio.Transport", transport)
        self.is_open = self._lost is None

    def data_received(self, data: bytes) -> None:
        reader, batches = self._reader, self._batches
        self._heard_at = self.loop.time()
        try:
            reader.feed(data)
            while batches:
                batch = batches[0]
                reply = reader.gets()
                while reply is not False:
                    batch.replies.append(reply)
                    if len(batch.replies) == batch.count:
                        batches.popleft()
                        if not batch.done.done():
                            batch.done.set_result(batch.replies)
                        break
                    reply = reader.gets()
                else:
                    return
        except hiredis.ProtocolError as error:
            self._lose(f"what answers is not Redis: {error}")

    def connection_lost(self, error: Exception | None) -> None:
        self._lose(str(error) if error is not None else "the server closed the connection")

    def pause_writing(self) -> None:
        self.writable.clear()

    def resume_writing(self) -> None:
        self.writable.set()


# Its type says that a command is one word long.
_pack: Callable[[Command], bytes] = hiredis.pack_command  # type: ignore[assignment]


_Kind = TypeVar("_Kind", bound=Connection)


class Redis:
    """A server, or a cluster, as weft's adapters see it.

    Any number of callers share one connection per event loop and server; a blocking read has one of its own.
    """

    def __init__(
        self,
        url: str,
        *,
        partitions: int = 1,
        prefix: str = PREFIX,
        name: str = "weft",
        answer_seconds: float = ANSWER_SECONDS,
    ) -> None:
        self._target = read_url(url)
        self._name = name
        self._answer_seconds = answer_seconds
        self.prefix = prefix
        self.partitions = [Keys(number, prefix=prefix) for number in range(partitions)]
        self._shared: dict[tuple[asyncio.AbstractEventLoop, Address], Connection] = {}
        self._opening: dict[tuple[asyncio.AbstractEventLoop, Address], asyncio.Task[Connection]] = {}
        self._idle: dict[tuple[asyncio.AbstractEventLoop, Address], list[Connection]] = {}
        self._all: set[Connection] = set()
        self._keepers: dict[asyncio.AbstractEventLoop, AsyncGenerator[None, None]] = {}
        # When a connection to a server could last not be made, and why.
        self._failed: dict[Address, tuple[float, str]] = {}
        self._closed = False
        # Of a cluster: which server has which slot. Empty: there is one server, or nobody has been asked yet.
        self._slots: list[tuple[int, int, Address]] = []
        # Whether that may have changed: somebody is asked before the next call.
        self._is_unsure = False
        # Whom to ask for the slots: the first; the others are asked in turn once it does not answer.
        self._seeds: deque[Address] = deque([self._target.address])
        # How often a server's state was found to be another's and dropped.
        self.wiped = 0
        # The incarnation of the database that this process works on, and whether a server may not know it.
        self._incarnation: Incarnation | None = None
        self._is_untold = False
        # When the incarnation began, on the server's clock; 0: before anything that is there.
        self.began_at = 0

    async def open(self) -> None:
        """Reach the server once; raises StoreError where it cannot be."""
        self._closed = False
        await self.call("PING")

    async def close(self) -> None:
        """Close every connection, also those of other threads. Whoever calls afterwards gets a StoreError."""
        self._closed = True
        for connection in list(self._all):
            connection.close()
        keeper = self._keepers.get(asyncio.get_running_loop())
        if keeper is not None:
            await keeper.aclose()

    # -- commands ----------------------------------------------------------------------------------

    # What a call is about says where it goes: a partition, or a key with a hash slot of its own.

    async def call(self, *command: bytes | str | float, partition: int = 0, key: str | None = None) -> Reply:
        """Send one command; raises ReplyError where the server refuses it."""
        (reply,) = await self.run([command], partition=partition, key=key)
        if isinstance(reply, ReplyError):
            raise reply
        return reply

    async def run(
        self, commands: Sequence[Command], *, partition: int = 0, key: str | None = None
    ) -> list[Reply]:
        """Send commands about one partition or key in one go; a refused one is a ReplyError in its place."""
        if not commands:
            return []
        connection = self._at_hand(partition, key) or await self._connection(partition, key)
        if connection.writable.is_set():
            replies = await connection.send(commands).done
        else:
            replies = await connection.run(commands)
        for reply in replies:
            if isinstance(reply, ReplyError):
                return self.checked(replies)
        return replies

    async def run_later(
        self, commands: Sequence[Command], *, partition: int = 0
    ) -> asyncio.Future[list[Reply]]:
        """Send commands about one partition with what is sent next, or soon; return their replies to come.

        For what may as well not happen: it goes out before anything that is asked for afterwards, or never.
        Nobody has to await the future.
        """
        connection = self._at_hand(partition) or await self._connection(partition)
        return connection.send(commands, later=True).done

    async def scripts(
        self,
        calls: Sequence[tuple[Script, Sequence[str], Sequence[bytes | str | int]]],
        *,
        partition: int = 0,
        key: str | None = None,
    ) -> list[Reply]:
        """Run (script, keys, arguments) in one go, in order. Raises ReplyError at the first refusal.

        A server that has forgotten a script has done nothing of it: it is told the source, and asked again.
        Those calls then come after the others.
        """
        commands: list[Command] = [
            ("EVALSHA", script.sha, len(keys), *keys, *arguments) for script, keys, arguments in calls
        ]
        replies = await self.run(commands, partition=partition, key=key)
        for reply in replies:
            if isinstance(reply, ReplyError):
                break
        else:
            return replies
        if forgotten := _forgotten(replies):
            sources = {calls[index][0].sha: calls[index][0].source for index in forgotten}
            again: list[Command] = [("SCRIPT", "LOAD", source) for source in sources.values()]
            again += [commands[index] for index in forgotten]
            answers = await self.run(again, partition=partition, key=key)
            for index, reply in zip(forgotten, answers[len(sources) :], strict=True):
                replies[index] = reply
        if forgotten := _forgotten(replies):
            # And once more in between. A call that brings its source cannot be refused so; it is long.
            again = [("EVAL", calls[index][0].source, *commands[index][2:]) for index in forgotten]
            answers = await self.run(again, partition=partition, key=key)
            for index, reply in zip(forgotten, answers, strict=True):
                replies[index] = reply
        for reply in replies:
            if isinstance(reply, ReplyError):
                raise reply
        return replies

    async def script(
        self,
        script: Script,
        keys: Sequence[str],
        arguments: Sequence[bytes | str | int],
        *,
        partition: int = 0,
        key: str | None = None,
    ) -> Reply:
        """Run one script."""
        (reply,) = await self.scripts([(script, keys, arguments)], partition=partition, key=key)
        return reply

    def servers(self, keys: Sequence[str]) -> list[list[int]]:
        """Group keys, by their places in the list, so that those of one group may go in one call.

        It is a guess by what is known of the cluster: a call that was led astray raises a StoreError, and
        the next one knows better.
        """
        groups: dict[Address, list[int]] = {}
        for place, key in enumerate(keys):
            groups.setdefault(self._address(key=key), []).append(place)
        return list(groups.values())

    @asynccontextmanager
    async def lend(self, *, partition: int = 0) -> AsyncIterator[Connection]:
        """Lend a connection of its own to one who makes the server wait."""
        connection = await self._borrow(partition)
        try:
            yield connection
        finally:
            self._put_back(connection)

    async def _borrow(self, partition: int) -> Connection:
        # The first connection to a cluster brings the knowledge of where to go.
        shared = self._at_hand(partition) or await self._connection(partition)
        address = shared.address
        assert address is not None
        idle = self._idle.get((asyncio.get_running_loop(), address), [])
        while idle:
            connection = idle.pop()
            if connection.is_open:
                return connection
        return await self._connect(address, Connection)

    def _put_back(self, connection: Connection) -> None:
        assert connection.address is not None
        idle = self._idle.setdefault((connection.loop, connection.address), [])
        # One that was given up may still be answered, and what comes then would be taken for another's.
        if connection.is_quiet and len(idle) < _IDLE_CONNECTIONS:
            idle.append(connection)
        else:
            connection.close()
            self._all.discard(connection)

    async def block(
        self,
        *command: bytes | str | float,
        wait_seconds: float,
        partition: int = 0,
        unwanted: Callable[[Reply], Awaitable[None]] | None = None,
    ) -> Reply:
        """Send a command that makes the server wait, on a connection of its own; raises ReplyError.

        ``unwanted`` is called with what came where this is cancelled: the server is asked to let go then.
        Closing the connection might lose what the server has just given and marked as delivered.
        """
        connection = await self._borrow(partition)
        try:
            batch = connection.send([command], wait_seconds=wait_seconds)
            try:
                (reply,) = self.checked(await batch.done)
            except asyncio.CancelledError:
                if unwanted is not None:
                    reply = await self._call_back(connection, batch, partition)
                    if reply is not None and not isinstance(reply, ReplyError):
                        await unwanted(reply)
                raise
        finally:
            self._put_back(connection)
        if isinstance(reply, ReplyError):
            raise reply
        return reply

    async def _call_back(self, connection: Connection, batch: _Batch, partition: int) -> Reply:
        """Have the server let go of a command that makes it wait; return what it has answered by then."""
        answered = batch.again()
        # Where the server cannot be asked, closing the connection has to do.
        with suppress(StoreError, ReplyError, TimeoutError):
            async with asyncio.timeout(_LET_GO_SECONDS):
                await self.call("CLIENT", "UNBLOCK", connection.client_id, partition=partition)
                (reply,) = await answered
                return reply
        return None

    async def connect(self, kind: type[_Kind]) -> _Kind:
        """Make a connection of another kind, for one who keeps it; it is closed with the rest."""
        # The first connection to a cluster brings the knowledge of where to go.
        await self._connection()
        return await self._connect(self._address(), kind)

    # -- the incarnation of the database -------------------------------------------------------------

    async def incarnation(self) -> Incarnation | None:
        """Return the incarnation of the database that the fleet saw last; None if nothing is kept."""
        names = ("id", "line", "started", "position")
        values = await self.call("HMGET", self.partitions[0].incarnation, *names)
        if None in values:
            return None
        id_, line, started, position = [bytes(value).decode() for value in values]
        return Incarnation(id=id_, line=line, started=started, position=int(position))

    async def enter(self, incarnation: Incarnation) -> None:
        """Drop all hot state unless it belongs to this incarnation of the database.

        A server that is away is told before anything else, by its next connection.
        """
        self._incarnation, self._is_untold = incarnation, True
        try:
            await self._tell()
        except StoreError:
            for connection in list(self._all):
                connection.close()
        else:
            self._is_untold = False

    async def note(self, incarnation: Incarnation) -> None:
        """Keep a later position of the same incarnation."""
        if self._is_untold:
            await self.enter(incarnation)
        else:
            self._incarnation = incarnation
            await self._tell()

    def known_incarnation(self) -> tuple[str, str, str, int, int]:
        """Return what a script is told of it: id, line, started, position, and when it began."""
        now = self._incarnation
        if now is None:
            return "", "", "", 0, 0
        return now.id, now.line, now.started, now.position, self.began_at

    async def _tell(self) -> None:
        for keys in self.partitions:
            connection = await self._connection(keys.partition)
            await self._hello(connection, [keys], connection.run_id)

    # -- connections -------------------------------------------------------------------------------

    def _address(self, partition: int = 0, key: str | None = None) -> Address:
        """Return the server that has a partition, or a key."""
        if self._slots:
            slot = slot_of(f"p{partition}") if key is None else slot_of_key(key)
            for first, last, address in self._slots:
                if first <= slot <= last:
                    return address
        return self._seeds[0]

    def checked(self, replies: list[Reply]) -> list[Reply]:
        """Give replies on; raises StoreError where one says that the server cannot be used."""
        for reply in replies:
            if isinstance(reply, ReplyError):
                word = _word(reply)
                if word in _ELSEWHERE:
                    if self._slots:
                        self._is_unsure = True
                    else:
                        self._forget()
                    raise StoreError(f"the store cannot be reached: {reply}")
                if word in _AWAY:
                    raise StoreError(f"the store cannot be used now: {reply}")
        return replies

    def _forget(self) -> None:
        """Make every connection anew: another server has taken over, or nobody knows where the slots are."""
        self._slots = []
        for connection in list(self._all):
            connection.close()

    def _learn(self, slots: list[tuple[int, int, Address]]) -> None:
        """Take note of where the slots are, and have those connections made anew for which that matters.

        A server that has come to have a partition may have an old state of it: it has to be greeted for it.
        All who listen have to be at one server: each knows its own listeners alone.
        """
        self._slots = slots
        here = {keys.partition: self._address(keys.partition) for keys in self.partitions}
        for connection in list(self._all):
            # What leaves a server may come back to it, and not be what it was.
            connection.greeted = frozenset(
                number for number in connection.greeted if here[number] == connection.address
            )
            if self._not_greeted(connection) or not self._is_in_place(connection):
                connection.close()

    def _not_greeted(self, connection: Connection) -> list[Keys]:
        """Give the partitions that a server has, and whose state there was not looked at."""
        return [
            keys
            for keys in self.partitions
            if keys.partition not in connection.greeted
            and self._address(keys.partition) == connection.address
        ]

    def _is_in_place(self, connection: Connection) -> bool:
        return not connection.listens or connection.address == self._address()

    async def _ask_again(self) -> None:
        """Ask a server of the cluster that can be reached whether the slots are still where they were."""
        self._is_unsure = False
        loop = asyncio.get_running_loop()
        for (of_loop, address), connection in list(self._shared.items()):
            if of_loop is loop and connection.is_open:
                try:
                    (reply,) = await connection.run([("CLUSTER", "SLOTS")])
                except StoreError:
                    continue
                if not isinstance(reply, ReplyError):
                    self._learn(read_slots(reply, address))
                    return
        self._forget()

    def _at_hand(self, partition: int = 0, key: str | None = None) -> Connection | None:
        """Return the connection that all callers of this loop share; None where it has to be made."""
        address = self._address(partition, key) if self._slots else self._seeds[0]
        connection = self._shared.get((asyncio.get_running_loop(), address))
        return None if connection is None or not connection.is_open or self._is_unsure else connection

    async def _connection(self, partition: int = 0, key: str | None = None) -> Connection:
        """Return the connection that all callers of this loop share, to the server of a partition or key."""
        if self._is_unsure:
            await self._ask_again()
        loop = asyncio.get_running_loop()
        while True:
            address = self._address(partition, key) if self._slots else self._seeds[0]
            connection = self._shared.get((loop, address))
            if connection is None or not connection.is_open:
                connection = await self._open(loop, address)
                # With the first connection to a cluster comes the knowledge of where to go instead.
                if self._address(partition, key) != address:
                    continue
            return connection

    async def _open(self, loop: asyncio.AbstractEventLoop, address: Address) -> Connection:
        opening = self._opening.get((loop, address))
        if opening is None:
            opening = loop.create_task(self._connect(address, Connection))
            self._opening[loop, address] = opening
            opening.add_done_callback(lambda done: self._opened(done, (loop, address)))
        try:
            # One who gives up does not take from the others what they wait for.
            return await asyncio.shield(opening)
        except StoreError as error:
            # Each has an error of his own: a shared one would gather the traces of all of them.
            raise StoreError(str(error)) from error.__cause__

    def _opened(
        self, opening: asyncio.Task[Connection], place: tuple[asyncio.AbstractEventLoop, Address]
    ) -> None:
        self._opening.pop(place, None)
        if not opening.cancelled() and opening.exception() is None:
            self._shared[place] = opening.result()

    async def _connect(self, address: Address, kind: type[_Kind]) -> _Kind:
        loop = asyncio.get_running_loop()
        self._refuse_if_closed()
        failed_at, why = self._failed.get(address, (-PAUSE_SECONDS, ""))
        if loop.time() < failed_at + PAUSE_SECONDS:
            raise StoreError(why)
        try:
            async with asyncio.timeout(min(CONNECT_SECONDS, self._answer_seconds)):
                connection = await self._reach(loop, address, kind)
                try:
                    await self._greet(connection, address)
                    self._refuse_if_closed()
                except BaseException:
                    connection.close()
                    raise
        except (OSError, TimeoutError) as error:
            why = f"the store cannot be reached: {str(error) or 'it did not answer in time'}"
            self._note_failure(loop, address, why)
            raise StoreError(why) from error
        except StoreError as error:
            self._note_failure(loop, address, str(error))
            raise
        self._failed.pop(address, None)
        for one in list(self._all):
            if not one.is_open:
                self._all.discard(one)
        self._all.add(connection)
        if loop not in self._keepers:
            self._keepers[loop] = self._keep(loop)
            await anext(self._keepers[loop])
        return connection

    async def _keep(self, loop: asyncio.AbstractEventLoop) -> AsyncGenerator[None, None]:
        """Close the connections of a loop with it: a thread may end long before whoever calls ``close``.

        A loop that ends closes the generators that were begun on it, and that is all it does for anybody.
        """
        try:
            yield
        finally:
            self._keepers.pop(loop, None)
            for connection in [one for one in list(self._all) if one.loop is loop]:
                connection.close()
                self._all.discard(connection)
            for key in [key for key in list(self._shared) if key[0] is loop]:
                del self._shared[key]
                self._idle.pop(key, None)
            # What was closed is gone after the next round of the loop.
            await asyncio.sleep(0)

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise StoreError("the store cannot be reached: its connections were closed")

    def _note_failure(self, loop: asyncio.AbstractEventLoop, address: Address, why: str) -> None:
        self._failed[address] = (loop.time(), why)
        # Another server of the cluster may have taken over its slots, and any but this one can say so.
        self._is_unsure = bool(self._slots)
        if self._seeds[0] == address:
            self._seeds.rotate(-1)

    async def _reach(self, loop: asyncio.AbstractEventLoop, address: Address, kind: type[_Kind]) -> _Kind:
        target = self._target

        def new_connection() -> _Kind:
            return kind(self._answer_seconds)

        if target.path is not None:
            _, connection = await loop.create_unix_connection(new_connection, target.path)
        else:
            _, connection = await loop.create_connection(
                new_connection,
                address.host,
                address.port,
                ssl=target.tls,
                server_hostname=address.host if target.tls else None,
            )
        return connection

    async def _greet(self, connection: Connection, address: Address) -> None:
        """Be let in, and find out whether this is the server whose state we know."""
        target = self._target
        commands: list[Command] = []
        if target.password is not None:
            user = () if target.username is None else (target.username,)
            commands.append(("AUTH", *user, target.password))
        if target.database:
            commands.append(("SELECT", target.database))
        commands += [("CLIENT", "SETNAME", self._name), ("CLIENT", "ID")]
        commands += [("INFO", "server"), ("INFO", "cluster"), ("INFO", "replication")]
        replies = await connection.run(commands)
        for command, reply in zip(commands, replies, strict=True):
            if isinstance(reply, ReplyError):
                # A server that does not know a command repeats what came with it.
                said = str(reply).replace(target.password, "***") if target.password else str(reply)
                raise StoreError(f"the store does not let weft in ({command[0]!s}): {said}")
        connection.client_id = replies[-4]
        connection.run_id = _field(replies[-3], b"run_id")
        if _field(replies[-2], b"cluster_enabled") == b"1":
            (slots,) = await connection.run([("CLUSTER", "SLOTS")])
            if isinstance(slots, ReplyError):
                raise StoreError(f"the store cannot be used now: {slots}")
            self._learn(read_slots(slots, address))
            known = {server: None for _, _, server in self._slots}
            self._seeds = deque({address: None, **known, self._target.address: None})
        connection.address = address
        is_replica = _field(replies[-1], b"slave_read_only") == b"1"
        # Meanwhile another may have heard that this server has more of them.
        while ours := self._not_greeted(connection):
            if is_replica:
                # Found out by a write, it would be left and come back to as fast as one can connect.
                raise StoreError(
                    "the store cannot be used now: READONLY it is a replica, and takes no writes"
                )
            await self._hello(connection, ours, connection.run_id)
            connection.greeted |= {keys.partition for keys in ours}

    async def _hello(self, connection: Connection, ours: Sequence[Keys], run_id: bytes) -> None:
        """Have the state of partitions dropped that was written to another server than this.

        And that of another incarnation of the database, where this process has found it gone.
        """
        hellos: list[Command] = [
            (
                "EVAL",
                _HELLO.source,
                9,
                keys.server,
                keys.token,
                keys.active,
                keys.leases,
                keys.timers,
                keys.free,
                keys.unsettled,
                keys.incarnation,
                keys.lanes,
                run_id,
                keys.execution(""),
                keys.lane_of(""),
                *self.known_incarnation()[:4],
                int(self._is_untold),
            )
            for keys in ours
        ]
        for keys, reply in zip(ours, await connection.run(hellos), strict=True):
            if isinstance(reply, ReplyError):
                raise StoreError(f"the store cannot be used now: {reply}")
            dropped, began_at = reply
            self.began_at = max(self.began_at, int(began_at))
            if dropped:
                self.wiped += 1
                address = connection.address
                assert address is not None
                where = {"server": str(address), "partition": keys.partition}
                log.warning("store.wiped", extra=where)


# What is said of a slot that is on another server of the cluster, and by one that follows another server now.
_ELSEWHERE = frozenset({"MOVED", "CLUSTERDOWN", "READONLY", "MASTERDOWN"})
# What a server says that cannot be used now: it loads, is held up by a script, is full, cannot write to its
# disk, or does not let us in any more; or, of a slot, that it is on its way to another server. A partition
# waits until it is there: its keys go one by one, and a script needs them together.
_AWAY = frozenset(
    {"LOADING", "BUSY", "NOREPLICAS", "OOM", "MISCONF", "NOAUTH", "NOPERM", "WRONGPASS", "ASK", "TRYAGAIN"}
)
# What a script is told whose keys are on their way to another server, and one of them is gone already.
_NOT_HERE = "attempted to access a non local key in a cluster node"
# Before Redis 7, what a command in a script was told stands at the end of what is said of the script.
_IN_SCRIPT = re.compile(r"^ERR Error running script .*@user_script: ?\d+: -([A-Z]+) ", re.DOTALL)


def _word(refusal: ReplyError) -> str:
    text = str(refusal)
    if _NOT_HERE in text:
        return "ASK"
    found = _IN_SCRIPT.match(text)
    return found[1] if found else text.partition(" ")[0]


def _forgotten(replies: Sequence[Reply]) -> list[int]:
    return [
        index
        for index, reply in enumerate(replies)
        if isinstance(reply, ReplyError) and str(reply).startswith("NOSCRIPT")
    ]


def _loop_of_this_thread() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _field(info: bytes, name: bytes) -> bytes:
    for line in info.splitlines():
        key, _, value = line.partition(b":")
        if key == name:
            return value.strip()
    return b""
