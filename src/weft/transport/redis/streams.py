"""Tasks and results on Redis streams, one group of consumers each.

Entries are not trusted: anybody who reaches Redis may write them. An entry has its message in the field
``m``, first; that of a task has the time at which the task was queued in ``q`` behind it.

What is acknowledged is deleted, so a stream holds exactly what nobody took yet and what is in hand; nothing
is ever trimmed. Each partition has one stream of results, and one of tasks for each lane. A worker is given
no more than it asked for, by a script that goes through its lanes; where there is nothing it waits on all of
them.

Delivery is not receipt: an entry that was on its way when a connection broke belongs to this consumer, and
nobody else gets it before it is stale. So at its start, after an error, and after an acknowledgement that
Redis did not take, a consumer first asks for its own pending entries.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, defaultdict
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

from msgspec.structs import replace

from weft.envelope import pack, unpack_all, unpack_message, unpack_task
from weft.errors import StoreError
from weft.redis.connection import ReplyError
from weft.redis.keys import partition_of
from weft.redis.script import load_script
from weft.redis.waiting import all_of, all_that_answer, answers_of
from weft.transport.contract import Message, MessageDelivery, QueueStatus, TaskDelivery
from weft.transport.redis.lanes import (
    OLDEST_EVERY,
    ORCHESTRATORS,
    WORKERS,
    Lane,
    Served,
    Source,
    member,
    read_lanes,
)

if TYPE_CHECKING:
    from collections.abc import (
        AsyncIterator,
        Awaitable,
        Callable,
        Collection,
        Container,
        Coroutine,
        Iterator,
        Mapping,
        Sequence,
    )

    from weft.core.task import Task
    from weft.redis.connection import Command, Redis, Reply
    from weft.redis.keys import Keys
    from weft.redis.script import Script
    from weft.transport.contract import DeliveryId

log = logging.getLogger("weft.transport")

# A worker that waits looks so often whether there are new lanes.
LOOK_SECONDS = 1.0
# A reader of results asks anew so often: that a connection is dead is found out by asking.
_READ_SECONDS = 5.0
# A reader whose stream was deleted, again, waits so long.
_PAUSE_SECONDS = 0.1
# Entries of a consumer's own that are read at a time.
_PAGE = 256
# So many entries are read in the script that looks for them; of more, it only says where they are.
_FEW = 4
# Pages of a claim in one script; each looks through ten times as many entries as are wanted.
_CLAIM_PAGES = 20
# What is put aside is for people to look at: the last so many, and the beginning of each.
_QUARANTINED = 1000
_QUARANTINED_BYTES = 64 * 1024
# Consumers that were not seen for so long and hold nothing are gone. They are looked for so often.
GONE_SECONDS = 3600.0
TIDY_SECONDS = 600.0
# Ids that are remembered as in hand. Those that are never acknowledged here, because another has claimed
# them, fall out in time.
_MAX_UNACKNOWLEDGED = 100_000
# The latest time that Lua keeps exactly.
_LATEST = 2**53
# In place of the number of a message in its entry: it is the only one.
ALONE = -1

# [id, [name, value, …]]; no values where the entry was deleted while a consumer had it.
Entry: TypeAlias = "list[Any]"
# Partition, stream, id in the stream, and which of the entry's messages.
EntryId: TypeAlias = tuple[int, str, bytes, int]
# Of a message that cannot be read: the id of its entry, its bytes, and why.
Garbage: TypeAlias = tuple[bytes, bytes, str]
Delivery = TypeVar("Delivery", bound=TaskDelivery | MessageDelivery)

_TAKE = load_script("weft.transport.redis", "take")
_CLAIM = load_script("weft.transport.redis", "claim")
_GIVE_BACK = load_script("weft.transport.redis", "give_back")
_LEAVE = load_script("weft.transport.redis", "leave")
_TIDY = load_script("weft.transport.redis", "tidy")
_INSPECT = load_script("weft.transport.redis", "inspect")


class RedisStreams:
    joint = True

    def __init__(self, redis: Redis, *, gone_seconds: float = GONE_SECONDS) -> None:
        self._redis = redis
        self._gone_seconds = gone_seconds
        self._tidied_at: float | None = None
        self._results = [Source(keys.partition, keys.results) for keys in redis.partitions]
        self._result_streams = {one.partition: {one.stream.encode(): one} for one in self._results}
        self._served: dict[str, Served] = {}
        self._turn = 0
        # When a wait was last refused, because a stream or its group was not there.
        self._refused_at = -LOOK_SECONDS
        # (group, consumer, partition): who need not ask for what is its own before it asks for more.
        self._sure: set[tuple[str, str, int]] = set()
        # Lanes whose key is no stream, as far as that was said.
        self._unreadable: set[Lane] = set()
        # By stream: entries that were handed out here and are not acknowledged. They are among what is one's
        # own, and did come. Of each the messages that are not acknowledged, as bits: with the last of them
        # the entry is.
        self._unacknowledged: defaultdict[str, dict[bytes, int]] = defaultdict(dict)
        # How many messages an entry of results had of late.
        self._per_entry = 1.0

    # -- tasks -------------------------------------------------------------------------------------

    async def send(self, tasks: Sequence[Task]) -> None:
        commands: dict[int, list[Command]] = {}
        lanes: dict[int, dict[str, None]] = {}
        for task in tasks:
            keys = self._keys_of(task.execution_id)
            stream = keys.lane(task.queue, task.handler, task.priority)
            sending: Command = ("XADD", stream, "*", "m", pack(task), "q", task.queued_at)
            commands.setdefault(keys.partition, []).append(sending)
            lanes.setdefault(keys.partition, {})[member(task)] = None
        for partition, members in lanes.items():
            commands[partition].append(("SADD", self._redis.partitions[partition].lanes, *members))
        await self._run(commands)

    async def fetch(
        self,
        consumer: str,
        *,
        queues: Collection[str] | None,
        limit: int,
        wait_seconds: float,
        handlers: Container[str] | None = None,
    ) -> Sequence[TaskDelivery]:
        served = self._served.get(consumer)
        if served is None or served.queues != queues or served.handlers is not handlers:
            served = self._served[consumer] = Served(queues, handlers)
            served.expect(self._redis.partitions)
        loop = asyncio.get_running_loop()
        until = loop.time() + wait_seconds
        taken: list[TaskDelivery] = []
        # A task that came alone, to one who would have taken two, left nothing behind to look for. But there
        # may be new lanes by now.
        is_fresh = loop.time() < served.read_at + LOOK_SECONDS
        if not served.is_drained or wait_seconds <= 0 or not is_fresh:
            taken = await self._whole(self._look(consumer, served, limit))
        served.is_drained = False
        while not taken and (left := until - loop.time()) > 0:
            waits = served.waits or served.make_waits()
            taken = await self._wait(WORKERS, consumer, waits, limit, min(left, LOOK_SECONDS))
            served.is_drained = len(taken) == 1 < limit
            taken = taken or await self._whole(self._look(consumer, served, limit))
        return taken

    async def ack_tasks(self, consumer: str, ids: Sequence[DeliveryId]) -> None:
        await self._acknowledge(WORKERS, consumer, ids)

    # -- results -----------------------------------------------------------------------------------

    async def publish(self, messages: Sequence[Message]) -> None:
        commands: dict[int, list[Command]] = {}
        for message in messages:
            keys = self._keys_of(message.execution_id)
            commands.setdefault(keys.partition, []).append(("XADD", keys.results, "*", "m", pack(message)))
        await self._run(commands)

    async def read(self, consumer: str, *, limit: int, wait_seconds: float) -> Sequence[MessageDelivery]:
        async def take(partition: int, wanted: int) -> tuple[int, list[MessageDelivery]]:
            return await self._take_results(consumer, self._results[partition], wanted)

        async def look() -> list[MessageDelivery]:
            return await self._whole(self._share_out(range(len(self._results)), limit, take))

        loop = asyncio.get_running_loop()
        until = loop.time() + wait_seconds
        # Where there is one stream, waiting for it is a look as well.
        is_sure = len(self._results) == 1 and (ORCHESTRATORS, consumer, 0) in self._sure
        taken = [] if is_sure and wait_seconds > 0 else await look()
        while not taken and (left := until - loop.time()) > 0:
            waits = self._result_streams
            taken = await self._wait(ORCHESTRATORS, consumer, waits, limit, min(left, _READ_SECONDS))
            taken = taken or await look()
        return taken

    async def ack(self, consumer: str, ids: Sequence[DeliveryId]) -> None:
        await self._acknowledge(ORCHESTRATORS, consumer, ids)

    # -- both --------------------------------------------------------------------------------------

    async def claim(
        self, consumer: str, *, idle_seconds: float, limit: int
    ) -> tuple[Sequence[MessageDelivery], Sequence[TaskDelivery]]:
        idle = round(idle_seconds * 1000)
        messages: list[MessageDelivery] = []
        tasks: list[TaskDelivery] = []
        away: StoreError | None = None
        for results in self._results:
            try:
                lanes = await self._lanes(results.partition)
                messages += await self._claim([results], consumer, idle, limit - len(messages))
                tasks += await self._claim(lanes, consumer, idle, limit - len(tasks))
            except StoreError as error:
                away = error
        if away is not None and not messages and not tasks:
            raise away
        await self._tidy()
        return messages, tasks

    async def unacknowledged(self, consumer: str, *, limit: int) -> Sequence[MessageDelivery]:
        again: list[MessageDelivery] = []
        for results in self._results:
            async for entries in self._own_entries(results, consumer):
                await self._deliver(results, entries[: limit - len(again)], again)
                if len(again) >= limit:
                    return again
        return again

    async def leave(self, consumer: str) -> None:
        served = self._served.pop(consumer, None)
        for results in self._results:
            partition = results.partition
            streams = await self._task_streams(partition, [] if served is None else [served])
            calls: list[tuple[Script, Sequence[str], Sequence[str | int]]] = [
                (_LEAVE, streams, [WORKERS, consumer, 1]),
                (_LEAVE, [results.stream], [results.group, consumer, 0]),
            ]
            await self._redis.scripts(calls, partition=partition)
            self._sure -= {(WORKERS, consumer, partition), (results.group, consumer, partition)}

    async def queues(self) -> Sequence[QueueStatus]:
        seen: dict[str, tuple[int, int, int | None]] = {}
        for keys in self._redis.partitions:
            lanes = await self._lanes(keys.partition)
            statuses = await self._redis.script(
                _INSPECT, [lane.stream for lane in lanes], [WORKERS], partition=keys.partition
            )
            for lane, (waiting, in_hand, oldest) in zip(lanes, statuses, strict=True):
                depth, in_flight, oldest_at = seen.get(lane.queue, (0, 0, None))
                if oldest:
                    oldest_at = int(oldest) if oldest_at is None else min(oldest_at, int(oldest))
                seen[lane.queue] = (depth + waiting, in_flight + in_hand, oldest_at)
        return [QueueStatus(name, *about) for name, about in sorted(seen.items())]

    async def close(self) -> None:
        """Let go of what is its own: the connection is its giver's."""

    # -- taking ------------------------------------------------------------------------------------

    async def _whole(self, taking: Coroutine[Any, Any, list[Delivery]]) -> list[Delivery]:
        """Return what is taken. One who gives this up has nothing in hand: what was taken goes back."""
        task = asyncio.ensure_future(taking)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            with suppress(StoreError, ReplyError):
                await self._give_back(await task)
            raise

    async def _share_out(
        self,
        partitions: Sequence[int],
        limit: int,
        take: Callable[[int, int], Awaitable[tuple[int, list[Delivery]]]],
    ) -> list[Delivery]:
        """Take up to so many from partitions: an equal share of each, and again from those that had it.

        All are asked at once: one after the other, eight of them made a look longer than a commit. What is in
        hand when a server is found to be away is given all the same; raises StoreError where none can be
        reached.
        """
        self._turn += 1
        start: int = self._turn % len(partitions) if partitions else 0
        waiting = [*partitions[start:], *partitions[:start]]
        taken: list[Delivery] = []
        failed: list[BaseException] = []
        while waiting and len(taken) < limit:
            left = limit - len(taken)
            # Where fewer are wanted than there are partitions, the others are asked if these have nothing.
            asked, waiting = waiting[:left], waiting[left:]
            share = left // len(asked)
            answers = await answers_of([take(partition, share) for partition in asked])
            for partition, answer in zip(asked, answers, strict=True):
                if isinstance(answer, BaseException):
                    failed.append(answer)
                    continue
                came, deliveries = answer
                taken += deliveries
                if came == share:
                    waiting.append(partition)
        if failed and not taken:
            for failure in failed:
                if len(failed) == len(partitions) or not isinstance(failure, StoreError):
                    raise failure
        return taken

    async def _look(self, consumer: str, served: Served, limit: int) -> list[TaskDelivery]:
        """Take what is there, at most so many. Where that is nothing, all lanes are known by now."""

        async def take(partition: int, wanted: int) -> tuple[int, list[TaskDelivery]]:
            return await self._take_tasks(consumer, served, partition, wanted)

        # Whether the lanes were read a moment ago.
        is_fresh = asyncio.get_running_loop().time() < served.read_at + LOOK_SECONDS
        if not is_fresh or served.may_have_more:
            await self._read_lanes(served)
        taken = await self._share_out(served.partitions, limit, take)
        if not taken and is_fresh and served.may_have_more and await self._read_lanes(served):
            taken = await self._share_out(served.partitions, limit, take)
        return taken

    async def _read_lanes(self, served: Served) -> bool:
        """Read the lanes that there are; True: there are new ones."""
        served.read_at = asyncio.get_running_loop().time()
        partitions = self._redis.partitions
        found = await all_that_answer(
            [self._redis.call("SMEMBERS", keys.lanes, partition=keys.partition) for keys in partitions]
        )
        is_new = False
        for keys, members in zip(partitions, found, strict=True):
            if not isinstance(members, StoreError):
                is_new |= served.learn(keys, members)
        await self._tidy()
        return is_new

    async def _take_tasks(
        self, consumer: str, served: Served, partition: int, limit: int
    ) -> tuple[int, list[TaskDelivery]]:
        """Take tasks of a partition; also say how many entries came, garbage among them."""
        lanes = served.lanes(partition)
        own = await self._own(consumer, lanes, limit)
        if own:
            return len(own), own
        with self._asking((WORKERS, consumer, partition)):
            keys = self._redis.partitions[partition]
            came, reads, bad, lane_count = await self._redis.script(
                _TAKE,
                [*(lane.stream for lane in lanes), keys.lanes],
                [WORKERS, consumer, limit, OLDEST_EVERY, _FEW, *served.turns(lanes)],
                partition=partition,
            )
            if reads:
                group = ("XREADGROUP", "GROUP", WORKERS, consumer, "COUNT")
                replies = await self._redis.run(
                    [(*group, count, "STREAMS", lanes[number - 1].stream, ">") for number, count in reads],
                    partition=partition,
                )
                # Others may have been quicker, and a stream may be gone by now.
                came += [
                    (number, reply[0][1])
                    for (number, _), reply in zip(reads, replies, strict=True)
                    if reply is not None and not isinstance(reply, ReplyError)
                ]
        counts: Counter[str] = Counter()
        taken: list[TaskDelivery] = []
        for number, entries in came:
            lane = lanes[number - 1]
            counts[lane.queue] += len(entries)
            self._unreadable.discard(lane)
            await self._deliver(lane, entries, taken)
        for number in bad:
            lane = lanes[number - 1]
            if lane not in self._unreadable:
                log.warning("lane.unreadable", extra={"stream": lane.stream})
            self._unreadable.add(lane)
            served.drop(lane)
        served.count(counts)
        served.note(partition, lane_count)
        return counts.total(), taken

    async def _take_results(
        self, consumer: str, results: Source, limit: int
    ) -> tuple[int, list[MessageDelivery]]:
        own = await self._own(consumer, [results], limit)
        if own:
            return len(own), own
        # So many entries have about as many messages as are wanted.
        count = max(1, int(limit / self._per_entry))
        reading = ("XREADGROUP", "GROUP", results.group, consumer, "COUNT", count)
        command: Command = (*reading, "STREAMS", results.stream, ">")
        with self._asking((results.group, consumer, results.partition)):
            (reply,) = await self._redis.run([command], partition=results.partition)
            if isinstance(reply, ReplyError):
                await self._make_groups([results], reply)
                (reply,) = await self._redis.run([command], partition=results.partition)
        if isinstance(reply, ReplyError):
            raise reply
        if reply is None:
            return 0, []
        ((_, entries),) = reply
        taken: list[MessageDelivery] = []
        await self._deliver(results, entries, taken)
        return limit if len(entries) == count else 0, taken

    async def _wait(
        self,
        group: str,
        consumer: str,
        sources: Mapping[int, Mapping[bytes, Source]],
        limit: int,
        wait_seconds: float,
    ) -> list[Any]:
        """Wait on streams, by partition, until something comes to one of them or the time is over.

        One who gives this up has nothing in hand.
        """
        taken: list[Any] = []
        away: list[StoreError] = []
        reading = self._blocking_read(group, consumer, sources, limit, wait_seconds)

        async def wait_in(partition: int) -> bool:
            """Wait in a partition; True if something came, or its streams were not there."""
            streams = sources[partition]

            async def unwanted(reply: Reply) -> None:
                with suppress(StoreError, ReplyError):
                    for stream, entries in reply:
                        await self._deliver(streams[stream], entries, taken)

            command: Command = (*reading, "STREAMS", *streams, *([">"] * len(streams)))
            try:
                reply = await self._redis.block(
                    *command, wait_seconds=wait_seconds, partition=partition, unwanted=unwanted
                )
                for stream, entries in reply or ():
                    await self._deliver(streams[stream], entries, taken)
            except ReplyError as refusal:
                await self._refused(list(streams.values()), refusal)
                return True
            except StoreError as error:
                self._sure.discard((group, consumer, partition))
                away.append(error)
            return bool(taken)

        try:
            if len(sources) == 1:
                await wait_in(*sources)
            elif sources:
                await self._until_first([wait_in(partition) for partition in sources], away)
            else:
                await asyncio.sleep(wait_seconds)
            if group == WORKERS and len(taken) > limit:
                # Others get the rest.
                await self._give_back(taken[limit:])
                return taken[:limit]
        except asyncio.CancelledError:
            # Also what was given back by then: doing that twice changes nothing.
            with suppress(StoreError, ReplyError):
                await self._give_back(taken)
            raise
        if away and not taken and len(away) == len(sources):
            raise away[0]
        return taken

    def _blocking_read(
        self,
        group: str,
        consumer: str,
        sources: Mapping[int, Mapping[bytes, Source]],
        limit: int,
        wait_seconds: float,
    ) -> Command:
        """Return the start of the command that waits on streams."""
        # One that waits is given of a single stream; one that comes when they have some, of all of them.
        count = max(min(2, limit), limit // max(1, sum(map(len, sources.values()))))
        if group != WORKERS:
            count = max(1, int(count / self._per_entry))
        # For Redis, no time at all is for ever.
        milliseconds = max(1, round(wait_seconds * 1000))
        return "XREADGROUP", "GROUP", group, consumer, "COUNT", count, "BLOCK", milliseconds

    async def _until_first(
        self, waits: Sequence[Coroutine[Any, Any, bool]], away: Sequence[StoreError]
    ) -> None:
        """Wait in several partitions until one of the waits returns True; the others are called back."""
        waiting = {asyncio.ensure_future(wait) for wait in waits}
        try:
            while waiting:
                # While a server is away the others are waited for no longer: then it is looked for again.
                timeout = LOOK_SECONDS if away else None
                done, waiting = await asyncio.wait(
                    waiting, timeout=timeout, return_when=asyncio.FIRST_COMPLETED
                )
                if not done or any(task.result() for task in done):
                    return
        finally:
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)

    async def _refused(self, sources: Sequence[Source], refusal: ReplyError) -> None:
        """Make the groups that are missing. Somebody may be deleting streams as fast as they are made."""
        await self._make_groups(sources, refusal)
        loop = asyncio.get_running_loop()
        if loop.time() < self._refused_at + LOOK_SECONDS:
            await asyncio.sleep(_PAUSE_SECONDS)
        self._refused_at = loop.time()

    @contextmanager
    def _asking(self, who: tuple[str, str, int]) -> Iterator[None]:
        """Ask for more: where that goes wrong, what came may be lost on the way."""
        try:
            yield
        except BaseException:
            self._sure.discard(who)
            raise

    async def _own(self, consumer: str, sources: Sequence[Source], limit: int) -> list[Any]:
        """Take what was given to this consumer of one partition and never came."""
        own: list[Any] = []
        if not sources or (who := (sources[0].group, consumer, sources[0].partition)) in self._sure:
            return own
        with self._asking(who):
            # First: an acknowledgement that is refused meanwhile takes it back.
            self._sure.add(who)
            for source in sources:
                unacknowledged = self._unacknowledged[source.stream]
                async for entries in self._own_entries(source, consumer):
                    lost = [entry for entry in entries if entry[0] not in unacknowledged]
                    await self._deliver(source, lost[: limit - len(own)], own)
                    if len(own) >= limit:
                        self._sure.discard(who)
                        return own
        return own

    async def _own_entries(self, source: Source, consumer: str) -> AsyncIterator[list[Entry]]:
        """Yield the pending entries of a consumer, also those that never reached it."""
        reading: Command = ("XREADGROUP", "GROUP", source.group, consumer, "COUNT", _PAGE, "STREAMS")
        after = b"0"
        while True:
            (reply,) = await self._redis.run([(*reading, source.stream, after)], partition=source.partition)
            # There is no such group yet, or no stream: then there is nothing of its own.
            entries = [] if reply is None or isinstance(reply, ReplyError) else reply[0][1]
            if not entries:
                return
            yield entries
            after = entries[-1][0]

    # -- what was taken ----------------------------------------------------------------------------

    async def _deliver(self, source: Source, entries: Sequence[Entry], taken: list[Any]) -> None:
        """Read entries into ``taken``; a message that cannot be read is put aside."""
        garbage: list[Garbage] = []
        # Entries that need no acknowledgement by anybody else.
        done: list[bytes] = []
        before = len(taken)
        unacknowledged = self._unacknowledged[source.stream]
        read = _read_task if isinstance(source, Lane) else _read_messages
        for entry, values in entries:
            # An entry without values was deleted while a consumer had it.
            left = 0 if values is None else read(source, entry, values, taken, garbage)
            if left:
                unacknowledged[entry] = left
            else:
                done.append(entry)
        while len(unacknowledged) > _MAX_UNACKNOWLEDGED:
            del unacknowledged[next(iter(unacknowledged))]
        if entries and source.group != WORKERS:
            self._per_entry = max(1.0, (len(taken) - before) / len(entries))
        if garbage or done:
            await self._put_aside(source, garbage, done)

    async def _put_aside(self, source: Source, garbage: Sequence[Garbage], done: Sequence[bytes]) -> None:
        """Keep messages that cannot be read for people to look at; acknowledge the entries in ``done``."""
        commands: list[Command] = []
        for identity, raw, why in garbage:
            where: Command = ("stream", source.stream, "entry", identity, "why", why)
            quarantine = self._redis.partitions[source.partition].quarantine
            adding: Command = ("XADD", quarantine, "MAXLEN", "~", _QUARANTINED, "*", *where)
            commands.append((*adding, "m", raw[:_QUARANTINED_BYTES]))
            about = {"stream": source.stream, "entry": identity.decode(), "why": why}
            log.warning("message.quarantined", extra=about)
        if done:
            commands.append(("XDEL", source.stream, *done))
            commands.append(("XACK", source.stream, source.group, *done))
        await self._redis.run(commands, partition=source.partition)

    async def _acknowledge(self, group: str, consumer: str, ids: Sequence[DeliveryId]) -> None:
        done: dict[tuple[int, str], list[bytes]] = {}
        for partition, stream, entry, index in cast("Sequence[EntryId]", ids):
            unacknowledged = self._unacknowledged[stream]
            if index != ALONE:
                # One of several messages of an entry, which may have come again and be acknowledged by now.
                left = unacknowledged.get(entry, 0) & ~(1 << index)
                if left:
                    unacknowledged[entry] = left
                if left or entry not in unacknowledged:
                    continue
            unacknowledged.pop(entry, None)
            done.setdefault((partition, stream), []).append(entry)
        commands: dict[int, list[Command]] = {}
        for (partition, stream), entries in done.items():
            # Deleted first: where only that happens, a claim finds the id without an entry. The other way
            # round, an entry would be left that nobody is ever given.
            deleting: Command = ("XDEL", stream, *entries)
            commands.setdefault(partition, []).append(deleting)
            commands[partition].append(("XACK", stream, group, *entries))
        # What Redis does not take comes again, and is known by then: nobody has to wait for this.
        for partition, some in commands.items():
            who = (group, consumer, partition)
            try:
                acknowledged = await self._redis.run_later(some, partition=partition)
            except StoreError:
                self._sure.discard(who)
            else:
                acknowledged.add_done_callback(partial(self._acknowledged, who))

    def _acknowledged(self, who: tuple[str, str, int], done: asyncio.Future[list[Any]]) -> None:
        """Have the consumer ask for its own entries again if Redis did not take an acknowledgement."""
        if done.exception() is None:
            for reply in done.result():
                if isinstance(reply, ReplyError):
                    break
            else:
                return
        self._sure.discard(who)

    async def _give_back(self, deliveries: Sequence[Delivery]) -> None:
        """Let others have what was taken here and is not wanted."""
        unwanted: dict[tuple[int, str], dict[bytes, None]] = {}
        for partition, stream, entry, _ in cast("list[EntryId]", [one.id for one in deliveries]):
            unwanted.setdefault((partition, stream), {})[entry] = None
        for (partition, stream), entries in unwanted.items():
            arguments: list[bytes | str] = [self._group_of(partition, stream), *entries]
            await self._redis.script(_GIVE_BACK, [stream], arguments, partition=partition)
            for entry in entries:
                self._unacknowledged[stream].pop(entry, None)

    async def _claim(self, sources: Sequence[Source], consumer: str, idle: int, limit: int) -> list[Delivery]:
        """Claim from streams of one partition and group; also what is behind pages that are empty."""
        claimed: list[Delivery] = []
        streams = [source.stream for source in sources]
        at, cursor = 1, b"0-0"
        while at <= len(sources) and len(claimed) < limit:
            at, cursor, found = await self._redis.script(
                _CLAIM,
                streams,
                [sources[0].group, consumer, idle, limit - len(claimed), _CLAIM_PAGES, at, cursor],
                partition=sources[0].partition,
            )
            for number, identity, values in found:
                await self._deliver(sources[number - 1], [[identity, values]], claimed)
        return claimed

    async def _tidy(self) -> None:
        """Now and then, remove the consumers that are gone."""
        now = asyncio.get_running_loop().time()
        if self._tidied_at is not None and now < self._tidied_at + TIDY_SECONDS:
            return
        self._tidied_at = now
        idle = round(self._gone_seconds * 1000)
        for results in self._results:
            streams = await self._task_streams(results.partition, list(self._served.values()))
            await self._redis.scripts(
                [(_TIDY, [results.stream], [results.group, idle]), (_TIDY, streams, [WORKERS, idle])],
                partition=results.partition,
            )

    async def _task_streams(self, partition: int, served: Sequence[Served]) -> list[str]:
        """Name the streams of tasks: of all lanes, and of those where nothing was sent so far."""
        lanes = await self._lanes(partition)
        expected = [lane for one in served for lane in one.lanes(partition)]
        return list(dict.fromkeys(lane.stream for lane in (*lanes, *expected)))

    # -- streams -----------------------------------------------------------------------------------

    def _keys_of(self, execution_id: str) -> Keys:
        partitions = self._redis.partitions
        return partitions[partition_of(execution_id, len(partitions))]

    def _group_of(self, partition: int, stream: str) -> str:
        results = self._results[partition]
        return results.group if stream == results.stream else WORKERS

    async def _lanes(self, partition: int) -> list[Lane]:
        keys = self._redis.partitions[partition]
        return read_lanes(keys, await self._redis.call("SMEMBERS", keys.lanes, partition=partition))

    async def _make_groups(self, sources: Sequence[Source], refusal: ReplyError) -> None:
        """Make the groups that a flush or a deletion has taken; raises any other refusal."""
        if not str(refusal).startswith(("NOGROUP", "UNBLOCKED")):
            raise _unusable(refusal) from refusal
        making: list[Command] = [
            ("XGROUP", "CREATE", source.stream, source.group, "0", "MKSTREAM") for source in sources
        ]
        # One that is there is left as it is.
        await self._redis.run(making, partition=sources[0].partition)

    async def _run(self, commands: Mapping[int, Sequence[Command]]) -> None:
        replies = await all_of(
            [self._redis.run(some, partition=partition) for partition, some in commands.items()]
        )
        for reply in (reply for some in replies for reply in some):
            if isinstance(reply, ReplyError):
                raise _unusable(reply) from reply


def _unusable(refusal: ReplyError) -> StoreError:
    """Make an outage of a refusal: a key of another type is in the place of a stream until it is deleted."""
    return StoreError(f"a stream cannot be used now: {refusal}")


def _read_task(
    lane: Source, entry: bytes, values: Sequence[bytes], taken: list[Any], garbage: list[Garbage]
) -> int:
    """Add the task of an entry to ``taken``, or to ``garbage``; return how many were read."""
    assert isinstance(lane, Lane)
    try:
        message, wire, queued, time, *_ = values
        if message != b"m" or queued != b"q":
            raise ValueError("an entry without a message, or without a time")
        task = unpack_task(wire)
        if task.handler != lane.handler or task.queue != lane.queue or task.priority != lane.priority:
            # A worker would be given what it cannot run.
            raise ValueError("a task of another lane")
        # When it was queued, by the server's clock.
        queued_at = int(time)
        if not 0 <= queued_at < _LATEST:
            raise ValueError(f"a task that was queued at {queued_at}")
    except ValueError as error:
        garbage.append((entry, _raw(values), _why(error)))
        return 0
    if task.queued_at != queued_at:
        task = replace(task, queued_at=queued_at)
    taken.append(TaskDelivery((lane.partition, lane.stream, entry, ALONE), task))
    return 1


def _read_messages(
    results: Source, entry: bytes, values: Sequence[bytes], taken: list[Any], garbage: list[Garbage]
) -> int:
    """Add the messages of an entry to ``taken``, or to ``garbage``; return which were read, as bits."""
    try:
        if values[0] != b"m":
            raise ValueError("an entry without a message")
        wires = unpack_all(values[1])
    except (ValueError, IndexError) as error:
        garbage.append((entry, _raw(values), _why(error)))
        return 0
    left = 0
    for index, wire in enumerate(wires):
        try:
            message = unpack_message(wire)
        except ValueError as error:
            garbage.append((entry, wire, _why(error)))
            continue
        identity = (results.partition, results.stream, entry, index if len(wires) > 1 else ALONE)
        taken.append(MessageDelivery(identity, message))
        left |= 1 << index
    return left


def _raw(values: Sequence[bytes]) -> bytes:
    """Return the bytes of an entry's message, or of all there is where it has none."""
    return dict(zip(values[::2], values[1::2], strict=False)).get(b"m", b" ".join(values))


def _why(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:500]
