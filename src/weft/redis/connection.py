"""A Redis server, or the servers of a cluster, as weft's adapters see them: connections, scripts, failovers.

redis-py has clients for the same purpose, but their pipelines cost ten times as much Python, and they
reconnect without a word to the caller. Here each connection is greeted before it is used (``_greet``), and a
connection that is lost fails every call that waits on it.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import defaultdict, deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from weft.errors import StoreError
from weft.incarnation import Incarnation
from weft.redis.address import Address, read_url
from weft.redis.batch import ANSWER_SECONDS, BatchConnection, Command, Reply, ReplyError
from weft.redis.keys import PREFIX, Keys
from weft.redis.script import load_script
from weft.redis.slots import read_slots, slot_of, slot_of_key

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence

    from weft.redis.batch import CommandBatch
    from weft.redis.script import Script

__all__ = ["PAUSE_SECONDS", "Command", "Redis", "Reply", "ReplyError", "read_info"]

log = logging.getLogger("weft.redis")

CONNECT_SECONDS = 5.0
# After a connection could not be made, others are not tried for this long: less than two a second.
PAUSE_SECONDS = 0.6
# Connections for blocking reads that are kept for the next one.
_IDLE_CONNECTIONS = 8
# A Sentinel that does not say for so long where the master is: another one is asked.
_SENTINEL_SECONDS = 1.0
# A server that was asked to let go answers at once, or is away.
_LET_GO_SECONDS = 1.0
_HELLO = load_script("weft.redis", "hello")


_Kind = TypeVar("_Kind", bound=BatchConnection)
# Connections belong to an event loop: a worker renews its leases on a thread of its own.
_Place: TypeAlias = tuple[asyncio.AbstractEventLoop, Address]


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
        self._shared: dict[_Place, BatchConnection] = {}
        self._opening: dict[_Place, asyncio.Task[BatchConnection]] = {}
        self._idle: defaultdict[_Place, list[BatchConnection]] = defaultdict(list)
        # The shared connection of each partition; empty where ``_connection`` has to find out which it is.
        self._ready: dict[tuple[asyncio.AbstractEventLoop, int], BatchConnection] = {}
        self._all: set[BatchConnection] = set()
        self._keepers: dict[asyncio.AbstractEventLoop, AsyncGenerator[None, None]] = {}
        # When a connection to a server could last not be made, and why.
        self._failed: dict[Address, tuple[float, str]] = {}
        self._closed = False
        # Of a cluster: which server has which slot. Empty: there is one server, or nobody has been asked yet.
        self._slots: list[tuple[int, int, Address]] = []
        # Whether the slots may have moved: a server is asked before the next call.
        self._is_unsure = False
        # Whom to ask for the slots: the first; the others are asked in turn once it does not answer.
        self._seeds: deque[Address] = deque([self._target.address])
        # Whom to ask where the master is, in the same way.
        sentinels = self._target.sentinels
        self._sentinels: deque[Address] = deque(sentinels.addresses if sentinels is not None else ())
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
        replies = await self._send(commands, partition, key)
        for reply in replies:
            if isinstance(reply, ReplyError):
                return self.checked(replies)
        return replies

    def _send(self, commands: Sequence[Command], partition: int, key: str | None) -> Awaitable[list[Reply]]:
        """Send commands on the shared connection, which may have to be made or waited for.

        No coroutine where it is at hand: this is called several times for each node.
        """
        if key is None or not self._slots:
            connection = self._ready.get((asyncio.get_running_loop(), partition))
            if connection is not None and connection.can_send:
                return connection.send(commands).done
        return self._connect_and_run(commands, partition, key)

    async def _connect_and_run(
        self, commands: Sequence[Command], partition: int, key: str | None
    ) -> list[Reply]:
        return await (await self._connection(partition, key)).run(commands)

    async def run_later(
        self, commands: Sequence[Command], *, partition: int = 0
    ) -> asyncio.Future[list[Reply]]:
        """Send commands about one partition with what is sent next, or soon; return their replies to come.

        For what may as well not happen: it goes out before anything that is asked for afterwards, or never.
        Nobody has to await the future.
        """
        connection = self._ready.get((asyncio.get_running_loop(), partition))
        if connection is None or not connection.is_open:
            connection = await self._connection(partition)
        return connection.send(commands, later=True).done

    async def scripts(
        self,
        calls: Sequence[tuple[Script, Sequence[str], Sequence[bytes | str | int]]],
        *,
        partition: int = 0,
        key: str | None = None,
    ) -> list[Reply]:
        """Run (script, keys, arguments) in one go, in order. Raises ReplyError at the first refusal.

        A server that has forgotten a script has done nothing of it: it is asked again with the source, which
        it keeps. Those calls then come after the others.
        """
        if not calls:
            return []
        commands: list[Command] = [
            ("EVALSHA", script.sha, len(keys), *keys, *arguments) for script, keys, arguments in calls
        ]
        replies = await self._send(commands, partition, key)
        for reply in replies:
            if isinstance(reply, ReplyError):
                break
        else:
            return replies
        if forgotten := _forgotten(self.checked(replies)):
            # All bring the source: others may have the server forget it between one call and the next.
            again: list[Command] = [
                ("EVAL", calls[index][0].source, *commands[index][2:]) for index in forgotten
            ]
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
        loop = asyncio.get_running_loop()
        shared = self._ready.get((loop, partition))
        if shared is None or not shared.is_open:
            # The first connection to a cluster brings the knowledge of where to go.
            shared = await self._connection(partition)
        assert shared.address is not None
        idle = self._idle[loop, shared.address]
        connection = idle.pop() if idle else None
        if connection is None or not connection.is_open:
            connection = await self._connect(shared.address, BatchConnection)
        try:
            batch = connection.send([command], wait_seconds=wait_seconds)
            try:
                (reply,) = await batch.done
            except asyncio.CancelledError:
                if unwanted is not None:
                    reply = await self._call_back(connection, batch, partition)
                    if reply is not None and not isinstance(reply, ReplyError):
                        await unwanted(reply)
                raise
        finally:
            # One that was given up may still be answered, and what comes then would be taken for another's.
            if connection.is_open and not connection.owed and len(idle) < _IDLE_CONNECTIONS:
                idle.append(connection)
            else:
                connection.close()
                self._all.discard(connection)
        if isinstance(reply, ReplyError):
            self.checked([reply])
            raise reply
        return reply

    async def _call_back(self, connection: BatchConnection, batch: CommandBatch, partition: int) -> Reply:
        """Have the server end a blocking command; return what it has answered by then."""
        answered = batch.again()
        # Where the server cannot be asked, closing the connection has to do.
        with suppress(StoreError, ReplyError, TimeoutError):
            async with asyncio.timeout(_LET_GO_SECONDS):
                await self.call("CLIENT", "UNBLOCK", connection.client_id, partition=partition)
                (reply,) = await answered
                return reply
        return None

    async def connect(self, kind: type[_Kind]) -> _Kind:
        """Open a connection of another kind for one caller; ``close`` closes it with the rest."""
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
            await self._hello(connection, [keys])

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
        """Return the replies unchanged; raises StoreError if a reply says that the server cannot be used."""
        for reply in replies:
            if isinstance(reply, ReplyError):
                word = _word(reply)
                if word in _ELSEWHERE:
                    if self._slots:
                        self._doubt()
                    else:
                        self._forget()
                    raise StoreError(f"the store cannot be reached: {reply}")
                if word in _AWAY:
                    raise StoreError(f"the store cannot be used now: {reply}")
        return replies

    def _doubt(self) -> None:
        """Have the map of slots read again before the next call."""
        self._is_unsure = True
        self._ready.clear()

    def _forget(self) -> None:
        """Close every connection: another server has taken over, or the map of slots is unknown."""
        self._slots = []
        for connection in list(self._all):
            connection.close()

    def _learn(self, slots: list[tuple[int, int, Address]]) -> None:
        """Keep the map of slots, and close the connections that it affects.

        A server that has come to have a partition may have an old state of it: it has to be greeted for it.
        All who listen have to be at one server: each knows its own listeners alone.
        """
        self._slots = slots
        self._ready.clear()
        here = {keys.partition: self._address(keys.partition) for keys in self.partitions}
        for connection in list(self._all):
            # What leaves a server may come back to it, and not be what it was.
            connection.greeted = frozenset(
                number for number in connection.greeted if here[number] == connection.address
            )
            if self._not_greeted(connection) or not self._is_in_place(connection):
                connection.close()

    def _not_greeted(self, connection: BatchConnection) -> list[Keys]:
        """Return the partitions of a connection's server whose state there was not checked yet."""
        return [
            keys
            for keys in self.partitions
            if keys.partition not in connection.greeted
            and self._address(keys.partition) == connection.address
        ]

    def _is_in_place(self, connection: BatchConnection) -> bool:
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

    async def _connection(self, partition: int = 0, key: str | None = None) -> BatchConnection:
        """Return the connection that all callers of this loop share, to the server of a partition or key."""
        if self._is_unsure:
            await self._ask_again()
        loop = asyncio.get_running_loop()
        while True:
            address = self._address(partition, key)
            connection = self._shared.get((loop, address))
            if connection is None or not connection.is_open:
                connection = await self._open((loop, address))
                # With the first connection to a cluster comes the knowledge of where to go instead.
                if self._address(partition, key) != address:
                    continue
            if key is None and not self._is_unsure:
                self._ready[loop, partition] = connection
            return connection

    async def _open(self, place: _Place) -> BatchConnection:
        opening = self._opening.get(place)
        if opening is None:
            opening = self._opening[place] = place[0].create_task(self._connect_shared(place))
        try:
            # One who gives up does not take from the others what they wait for.
            return await asyncio.shield(opening)
        except StoreError as error:
            # Each caller has an error of its own: a shared one would gather the tracebacks of all of them.
            raise StoreError(str(error)) from error.__cause__

    async def _connect_shared(self, place: _Place) -> BatchConnection:
        try:
            connection = self._shared[place] = await self._connect(place[1], BatchConnection)
        finally:
            del self._opening[place]
        return connection

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
        except OSError as error:
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
            kept: tuple[dict[Any, Any], ...] = (self._shared, self._idle, self._ready)
            for connections in kept:
                for key in [key for key in list(connections) if key[0] is loop]:
                    del connections[key]
            # What was closed is gone after the next round of the loop.
            await asyncio.sleep(0)

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise StoreError("the store cannot be reached: its connections were closed")

    def _note_failure(self, loop: asyncio.AbstractEventLoop, address: Address, why: str) -> None:
        self._failed[address] = (loop.time(), why)
        # Another server of the cluster may have taken over its slots, and any but this one can say so.
        if self._slots:
            self._doubt()
        if self._seeds[0] == address:
            self._seeds.rotate(-1)
        # A Sentinel that was cut off from the others names a server that is no longer the master.
        self._sentinels.rotate(-1)

    async def _reach(self, loop: asyncio.AbstractEventLoop, address: Address, kind: type[_Kind]) -> _Kind:
        target = self._target
        if target.path is not None:
            _, connection = await loop.create_unix_connection(lambda: kind(self._answer_seconds), target.path)
            return connection
        return await self._dial(loop, await self._master(loop) if self._sentinels else address, kind)

    async def _dial(self, loop: asyncio.AbstractEventLoop, address: Address, kind: type[_Kind]) -> _Kind:
        tls = self._target.tls
        _, connection = await loop.create_connection(
            lambda: kind(self._answer_seconds),
            address.host,
            address.port,
            ssl=tls,
            server_hostname=address.host if tls else None,
        )
        return connection

    async def _master(self, loop: asyncio.AbstractEventLoop) -> Address:
        """Return where the master is, by the first Sentinel that says so; raises StoreError: none does.

        A Sentinel may be wrong. What it names is greeted like any server, and a replica is refused then.
        """
        sentinels, service = self._target.sentinels, self._target.address.host
        assert sentinels is not None
        commands = [
            *_auth(sentinels.username, sentinels.password),
            ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", service),
        ]
        failures = []
        for _ in sentinels.addresses:
            sentinel = self._sentinels[0]
            try:
                async with asyncio.timeout(_SENTINEL_SECONDS):
                    connection = await self._dial(loop, sentinel, BatchConnection)
                    try:
                        named = _accepted(commands, await connection.run(commands), sentinels.password)[-1]
                    finally:
                        connection.close()
                if named is not None:
                    return Address(named[0].decode(), int(named[1]))
                failures.append(f"{sentinel} knows no such master")
            except (OSError, StoreError) as error:
                failures.append(f"{sentinel}: {str(error) or 'it did not answer in time'}")
            self._sentinels.rotate(-1)
        raise StoreError(
            f"the store cannot be reached: no Sentinel says where {service} is ({'; '.join(failures)})"
        )

    async def _greet(self, connection: BatchConnection, address: Address) -> None:
        """Authenticate, and check whether this is the server whose state this process knows."""
        target = self._target
        commands: list[Command] = _auth(target.username, target.password)
        if target.database:
            commands.append(("SELECT", target.database))
        commands += [("CLIENT", "SETNAME", self._name), ("CLIENT", "ID")]
        commands += [("INFO", "server"), ("INFO", "cluster"), ("INFO", "replication")]
        replies = _accepted(commands, await connection.run(commands), target.password)
        connection.client_id = replies[-4]
        server, cluster, replication = map(read_info, replies[-3:])
        connection.run_id = server.get("run_id", "")
        if cluster.get("cluster_enabled") == "1":
            (slots,) = await connection.run([("CLUSTER", "SLOTS")])
            if isinstance(slots, ReplyError):
                raise StoreError(f"the store cannot be used now: {slots}")
            self._learn(read_slots(slots, address))
            known = {server: None for _, _, server in self._slots}
            self._seeds = deque({address: None, **known, self._target.address: None})
        connection.address = address
        is_replica = replication.get("slave_read_only") == "1"
        # Meanwhile another may have heard that this server has more of them.
        while ours := self._not_greeted(connection):
            if is_replica:
                # Found out by a write, it would be left and come back to as fast as one can connect.
                raise StoreError(
                    "the store cannot be used now: READONLY it is a replica, and takes no writes"
                )
            await self._hello(connection, ours)
            connection.greeted |= {keys.partition for keys in ours}

    async def _hello(self, connection: BatchConnection, ours: Sequence[Keys]) -> None:
        """Drop the state of partitions that was written to another server.

        And that of another incarnation of the database, where this process has found it gone.
        """
        hellos: list[Command] = [
            (
                "EVAL",
                _HELLO.source,
                9,
                keys.server,
                keys.incarnation_id,
                keys.active,
                keys.leases,
                keys.timers,
                keys.free,
                keys.unsettled,
                keys.incarnation,
                keys.lanes,
                connection.run_id,
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
                where = {"server": str(connection.address), "partition": keys.partition}
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


def _auth(username: str | None, password: str | None) -> list[Command]:
    if password is None:
        return []
    return [("AUTH", password) if username is None else ("AUTH", username, password)]


def _accepted(commands: Sequence[Command], replies: list[Reply], password: str | None) -> list[Reply]:
    """Return the replies to what is said first; raises StoreError where the server refuses any of it."""
    for command, reply in zip(commands, replies, strict=True):
        if isinstance(reply, ReplyError):
            # A server that does not know a command repeats what came with it.
            said = str(reply).replace(password, "***") if password else str(reply)
            raise StoreError(f"the store does not let weft in ({command[0]!s}): {said}")
    return replies


def _forgotten(replies: Sequence[Reply]) -> list[int]:
    return [
        index
        for index, reply in enumerate(replies)
        if isinstance(reply, ReplyError) and str(reply).startswith("NOSCRIPT")
    ]


def read_info(info: bytes) -> dict[str, str]:
    """Return the fields of an answer to INFO."""
    pairs = (line.partition(":") for line in info.decode(errors="replace").splitlines())
    return {name: value.strip() for name, colon, value in pairs if colon}
