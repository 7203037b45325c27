"""Hot state on Redis: the promises of ``memory.py`` across processes, each move one script.

An execution is one hash, so that a lost key is a lost execution, and never "nothing left". The scripts are
given many executions of one partition at a time and answer in the order of the items; calls go out in one
write. What they keep where is said in ``lua/state.lua``.

A script holds everybody up, so each is short: a call has at most ``MOST_ITEMS`` items, and so many fields and
bytes. What is wide, as the rows of ten thousand parents, is read by plain commands.
"""

from __future__ import annotations

from collections import OrderedDict
from itertools import islice
from math import ceil
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from weft.core.envelope import pack
from weft.core.time import micros
from weft.errors import StoreError, StoreKeyError
from weft.redis.health import wrong_keys
from weft.redis.script import Script, load_script
from weft.redis.waiting import all_of, all_that_answer
from weft.store.contract import (
    FIRST_INSTALL_SECONDS,
    Answer,
    Applied,
    Due,
    Held,
    Sight,
    Started,
    StartRequest,
    WorkerSight,
)
from weft.store.redis_apply import ApplyCall, apply_calls
from weft.store.redis_calls import (
    MOST_FIELDS,
    MOST_ITEMS,
    Argument,
    Call,
    Lanes,
    Move,
    in_parts,
    partition_keys,
)
from weft.store.redis_due import DueLooks
from weft.store.redis_free import Given, missing_fields
from weft.store.redis_install import InstallCall, install_calls
from weft.store.redis_places import Places, checked
from weft.store.redis_poison import contained
from weft.store.redis_records import holder, read_execution, read_meta
from weft.store.redis_shape import Shape
from weft.store.redis_sights import Sights

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence

    from weft.core.event import Running
    from weft.core.plan import Plan
    from weft.core.row import ExecutionRow
    from weft.core.snapshot import Settlement, Snapshot
    from weft.core.task import Result, Task
    from weft.redis.connection import Redis, Reply
    from weft.redis.keys import Keys

# The last is a yes to the end of an execution that was not there.
_ANSWERS = {1: Answer.YES, 2: Answer.REFUSED, 3: Answer.NO_PLACE, 4: Answer.UNKNOWN, 7: Answer.YES}
_REFUSED, _WAS_GONE = 2, 7
# It may not start now, and is not taken back yet.
_PAUSED = 6

# The mark of a closed execution stays longer than any builder that was under way lives. Most had no other
# than the first, who is refused by then. Of these it stays for some leases, so that every worker has heard of
# the end: half an hour of marks, of 480 bytes each, is nearly a gigabyte at a thousand a second.
_KEEP_MARK_SECONDS = 1800
_KEEP_PLAIN_MARK_SECONDS = 60
_FIRST_INSTALL = micros(FIRST_INSTALL_SECONDS)
_LEASES_OF_A_MARK = 4
# Plans whose arguments are kept, and bytes of large inputs.
_MOST_SHAPES = 256
_MOST_INPUT_BYTES = 64 * 1024 * 1024


def _script(name: str, *after: str) -> Script:
    return load_script("weft.store", name, after=after)


_TOKEN = _script("token")
_APPLY = _script("apply", "state", "queued", "ahead", "given", "merge", "closed")
_FREE = _script("free", "state", "given")
_INSTALL, _CLOSE = _script("install", "state"), _script("close", "state", "closed")
_QUEUE = _script("queue", "state", "queued")
_START, _UNQUEUE = _script("start", "attempt"), _script("unqueue", "state", "moves")
_REPORT, _BEAT = _script("report", "attempt"), _script("beat", "state", "moves")
_HAND_BACK = _script("hand_back", "state", "moves")
_LINE, _RELEASE = _script("line", "state", "moves"), _script("release", "state", "moves")


class RedisStore:
    def __init__(
        self,
        redis: Redis,
        *,
        plans: Callable[[str], Awaitable[Plan | None]],
        executions: Callable[[str], Awaitable[ExecutionRow | None]],
        new_id: Callable[[], str],
        now: Callable[[], int] | None = None,
        window: int = 1000,
        lease_seconds: float = 15.0,
        reported_seconds: float = 300.0,
        queued_seconds: float | None = None,
        joint: bool = True,
        inline_input_bytes: int = 16 * 1024,
        ttl_seconds: int = 7 * 86_400,
    ) -> None:
        """``plans`` and ``executions`` are the journal's reads, for what is not here: plans, large inputs.

        Without ``now`` the time is the server's. ``ttl_seconds`` is the net under executions that nobody
        closes: a hash that is not touched for so long is gone. ``queued_seconds`` is given where a task may
        be lost on its way: after it the task is sent again. ``joint``: as the transport says.
        """
        self._redis = redis
        self._plans = plans
        self._journal_executions = executions
        self._new_id = new_id
        self._now = now or _server_time
        self._window = window
        self._lease = micros(lease_seconds)
        plain = max(_KEEP_PLAIN_MARK_SECONDS, ceil(_LEASES_OF_A_MARK * lease_seconds))
        self._keep_marks = (_KEEP_MARK_SECONDS, plain)
        self._reported = micros(reported_seconds)
        self._queued = 0 if queued_seconds is None else micros(queued_seconds)
        self._joint = joint
        self._inline_input_bytes = inline_input_bytes
        self._ttl = ttl_seconds
        self._places = Places(redis)
        self._sights = Sights(
            *(redis, self._places), plans=plans, now=self._now, lease=self._lease, keep_seconds=ttl_seconds
        )
        self._due = DueLooks(
            *(redis, self._places),
            now=self._now,
            lease=self._lease,
            queued=self._queued,
            keep_seconds=ttl_seconds,
        )
        self._shapes: OrderedDict[str, Shape] = OrderedDict()
        self._inputs: OrderedDict[str, bytes] = OrderedDict()
        self._input_bytes = 0

    # -- life of an execution ----------------------------------------------------------------------

    async def check(self) -> None:
        # One server of a cluster that is away is no reason to say that nothing works.
        answers = await all_that_answer([self._check(keys) for keys in self._redis.partitions])
        for answer in answers:
            if isinstance(answer, StoreKeyError):
                raise answer

    async def _check(self, keys: Keys) -> None:
        for wrong in await wrong_keys(self._redis, keys):
            raise StoreKeyError(wrong.message)
        # A write that changes nothing, and that a server without memory or disk refuses as any other.
        await self._redis.call("APPEND", keys.swept, "", partition=keys.partition)

    async def token(self) -> str:
        # Where there are several partitions each has a word of its own, and each may be lost by itself. One
        # that is away has none: nothing can be installed there now.
        words = await all_that_answer([self._begin(keys) for keys in self._redis.partitions])
        return " ".join(["" if isinstance(word, StoreError) else word for word in words])

    async def _begin(self, keys: Keys) -> str:
        """Give the word for this life of a partition, and begin one where none has begun."""
        word = await self._redis.script(
            *(_TOKEN, [*partition_keys(keys), keys.server, keys.incarnation]),
            [self._new_id(), *self._redis.known_incarnation()],
            partition=keys.partition,
        )
        return bytes(word).decode()

    async def install(self, snapshots: Sequence[Snapshot], *, token: str, fresh: bool) -> Sequence[Answer]:
        words = token.split(" ")
        answers = [Answer.REFUSED] * len(snapshots)
        by_partition: dict[int, list[int]] = {}
        for index, snapshot in enumerate(snapshots):
            by_partition.setdefault(self._places.of_row(snapshot.execution), []).append(index)

        async def in_partition(partition: int, indexes: Sequence[int]) -> None:
            word = words[partition] if partition < len(words) else ""
            given: list[Argument] = [word, 0 if fresh else self._lease, _FIRST_INSTALL]

            async def run(indexes: Sequence[int]) -> None:
                own = [snapshots[index] for index in indexes]
                for index, answer in zip(indexes, await self._install(partition, own, given), strict=True):
                    answers[index] = answer

            keys = self._redis.partitions[partition]
            await contained(self._redis, keys, indexes, lambda index: snapshots[index].execution.id, run)

        await all_of([in_partition(partition, indexes) for partition, indexes in by_partition.items()])
        return answers

    async def _install(
        self, partition: int, snapshots: Sequence[Snapshot], given: Sequence[Argument]
    ) -> list[Answer]:
        """Put executions into one partition; ``given``: what the script is told of all of them."""
        keys = self._redis.partitions[partition]
        answers = [Answer.REFUSED] * len(snapshots)
        calls, large = install_calls(
            snapshots, self._shape, window=self._window, inline_input_bytes=self._inline_input_bytes
        )

        async def run(calls: Sequence[InstallCall], *, first: bool = True, last: bool = True) -> None:
            now = self._now()
            scripts: list[tuple[Script, list[str], list[Argument]]] = []
            for call in calls:
                told = [*call.arguments(now, self._ttl), int(first), int(last), *given, *call.told]
                scripts.append((_INSTALL, call.keys(keys), told))
            replies = await self._redis.scripts(scripts, partition=partition)
            for call, reply in zip(calls, replies, strict=True):
                for index, number in zip(call.indexes, reply, strict=True):
                    answers[index] = _ANSWERS[number]

        if calls:
            await run(calls)
        for parts in large:
            (index,) = parts[0].indexes
            for number, part in enumerate(parts):
                # One after the other: a part that is refused is the last.
                await run([part], first=number == 0, last=number == len(parts) - 1)
                if answers[index] is not Answer.YES:
                    break
        return answers

    async def close(self, execution_id: str, *, generation: int, epoch: int) -> Answer:
        drawn = self._places.where(execution_id)
        answer, known = await self._close(execution_id, generation, epoch, drawn)
        if not known and len(self._redis.partitions) > 1:
            # It may be elsewhere, or be on its way there: then the mark has to be where it comes to lie.
            others = [keys.partition for keys in self._redis.partitions if keys.partition != drawn]
            for partition in others:
                other, is_there = await self._close(execution_id, generation, epoch, partition)
                if is_there and other is not Answer.YES:
                    answer = other
        return answer

    async def _close(
        self, execution_id: str, generation: int, epoch: int, partition: int
    ) -> tuple[Answer, bool]:
        keys = self._redis.partitions[partition]
        call = Call()
        call.place(execution_id)
        arguments = [*call.arguments(self._now(), self._ttl), generation, epoch, *self._keep_marks]
        reply = [0, 0]

        async def run(_: Sequence[str]) -> None:
            reply[:] = await self._redis.script(_CLOSE, call.keys(keys), arguments, partition=partition)

        await contained(self._redis, keys, [execution_id], str, run)
        while _ANSWERS[reply[0]] is Answer.UNKNOWN:
            # A mark belongs to a life of the store, as all it holds: this is the first thing of a new one.
            await self._begin(keys)
            await contained(self._redis, keys, [execution_id], str, run)
        return _ANSWERS[reply[0]], bool(reply[1])

    # -- merging what the journal recorded ---------------------------------------------------------

    async def apply(
        self, settlements: Sequence[Settlement], ahead: Sequence[tuple[Task, int]] = ()
    ) -> Sequence[Applied]:
        answers = [Answer.UNKNOWN] * len(settlements)
        behind = _by_execution(ahead)
        by_partition: dict[int, list[int]] = {}
        for index, settlement in enumerate(settlements):
            by_partition.setdefault(self._places.of_row(settlement.execution), []).append(index)
        free: dict[str, Given] = {}

        async def in_partition(partition: int, indexes: Sequence[int]) -> None:
            async def run(indexes: Sequence[int]) -> None:
                free.update(await self._apply(partition, settlements, indexes, behind, answers))

            keys = self._redis.partitions[partition]
            await contained(self._redis, keys, indexes, lambda index: settlements[index].execution.id, run)

        await all_of([in_partition(partition, indexes) for partition, indexes in by_partition.items()])
        # The free nodes of an execution once, with the last settlement of this call that was merged.
        last = {
            settlement.execution.id: index
            for index, settlement in enumerate(settlements)
            if answers[index] is Answer.YES
        }
        return [
            free[settlement.execution.id].applied()
            if last.get(settlement.execution.id) == index and settlement.execution.id in free
            else Applied(answer)
            for index, (settlement, answer) in enumerate(zip(settlements, answers, strict=True))
        ]

    async def _apply(
        self,
        partition: int,
        settlements: Sequence[Settlement],
        indexes: Sequence[int],
        behind: Mapping[str, Sequence[tuple[Task, int]]],
        answers: list[Answer],
    ) -> dict[str, Given]:
        keys, joint = self._redis.partitions[partition], self._joint
        own = [(index, settlements[index]) for index in indexes]
        calls = apply_calls(own, self._shape, ahead=behind, sent=joint)
        now = self._now()
        told = [
            call.all_arguments(now, self._ttl, marks=self._keep_marks, queued=self._queued, sent=joint)
            for call in calls
        ]
        scripts = [
            (_APPLY, call.all_keys(keys), arguments) for call, arguments in zip(calls, told, strict=True)
        ]
        replies = await self._redis.scripts(scripts, partition=partition)
        _note_answers(calls, replies, answers)
        ended = {index: one.execution for index, one in own if one.execution.is_terminal}
        if any(answers[index] is Answer.UNKNOWN for index in ended):
            # A mark belongs to a life of the store, as all it holds: this is the first thing of a new one.
            await self._begin(keys)
            replies = await self._redis.scripts(scripts, partition=partition)
            _note_answers(calls, replies, answers)
        free: dict[str, Given] = {}
        await self._seek_ended(ended, calls, replies, answers)
        for call, reply in zip(calls, replies, strict=True):
            await self._read_applied(call, iter(reply[len(call.indexes) :]), settlements, answers, free)
        await self._complete(list(free.values()), partition)
        merged = [
            settlement.execution.id
            for index, settlement in own
            if answers[index] is Answer.YES and index not in ended
        ]
        await self._add_left_out(merged, free, partition)
        return free

    async def _seek_ended(
        self,
        ended: Mapping[int, ExecutionRow],
        calls: Sequence[ApplyCall],
        replies: Sequence[Reply],
        answers: list[Answer],
    ) -> None:
        """Let those go that have ended and are not where their rows say: elsewhere, or on their way there."""
        if not ended or len(self._redis.partitions) == 1:
            return
        for call, reply in zip(calls, replies, strict=True):
            for index, number in zip(call.indexes, reply, strict=False):
                if number == _WAS_GONE:
                    row = ended[index]
                    answers[index] = await self.close(row.id, generation=row.generation, epoch=row.epoch)

    async def _add_left_out(self, merged: Sequence[str], free: dict[str, Given], partition: int) -> None:
        """Read the free nodes of executions whose last call merged nothing, and an earlier one something."""
        left_out = [name for name in dict.fromkeys(merged) if name not in free]
        found: dict[str, Answer | Given] = {}
        await self._free_in(partition, left_out, found)
        free.update({name: one for name, one in found.items() if isinstance(one, Given)})

    async def _read_applied(
        self,
        call: ApplyCall,
        replies: Iterator[Reply],
        settlements: Sequence[Settlement],
        answers: Sequence[Answer],
        free: dict[str, Given],
    ) -> None:
        """Read the free nodes of a call's executions, each with the row that the store now has."""
        ids = call.execution_ids
        for place in replies:
            execution_id = ids[place - 1]
            seq, packed = next(replies), next(replies)
            merged = [
                settlements[index]
                for index in call.of_execution[execution_id]
                if answers[index] is Answer.YES
            ]
            row, plan = merged[-1].execution, merged[-1].plan
            if packed:
                row = read_execution(execution_id, packed, digest=row.digest, given=row.input)
            else:
                row = next(one.execution for one in reversed(merged) if one.execution.seq == seq)
            if not row.input:
                # A journal need not read the input with every row.
                row = replace(row, input=await self._input(execution_id, None))
            rows = {node.node_id: node for one in merged for node in one.rows if node.state is not None}
            given = free[execution_id] = Given(row, self._shape(plan), rows)
            given.queued = _names(replies)
            given.read(replies)

    # -- free nodes --------------------------------------------------------------------------------

    async def free(self, execution_ids: Sequence[str]) -> Sequence[Applied]:
        found: dict[str, Answer | Given] = {}
        await self._free(list(dict.fromkeys(execution_ids)), found)
        # Also what is closed: a mark may lie where an id draws it, and a later life of it where its row says.
        lost = [name for name in found if isinstance(found[name], Answer)]
        elsewhere = await self._places.seek(lost)
        if elsewhere:
            await self._free(elsewhere, found)
        return [
            one.applied() if isinstance(one, Given) else Applied(one)
            for one in [found[execution_id] for execution_id in execution_ids]
        ]

    async def _free(self, execution_ids: Sequence[str], found: dict[str, Answer | Given]) -> None:
        async def in_partition(partition: int, names: Sequence[str]) -> None:
            async def run(names: Sequence[str]) -> None:
                await self._free_in(partition, names, found)

            await contained(self._redis, self._redis.partitions[partition], names, str, run)

        by_partition = self._places.grouped(execution_ids)
        await all_of([in_partition(partition, names) for partition, names in by_partition.items()])

    async def _free_in(
        self, partition: int, execution_ids: Sequence[str], found: dict[str, Answer | Given]
    ) -> None:
        keys = self._redis.partitions[partition]
        now = self._now()
        calls = []
        for start in range(0, len(execution_ids), MOST_ITEMS):
            call = Call()
            for execution_id in execution_ids[start : start + MOST_ITEMS]:
                call.place(execution_id, ("x", "h", "i"))
            calls.append(call)
        replies = await self._redis.scripts(
            [(_FREE, call.keys(keys), [*call.arguments(now, self._ttl), *call.fields()]) for call in calls],
            partition=partition,
        )
        given = []
        for call, reply in zip(calls, replies, strict=True):
            values = iter(reply)
            for execution_id in call.execution_ids:
                answer = _ANSWERS[next(values)]
                found[execution_id] = answer
                if answer is not Answer.YES:
                    continue
                _, packed, digest, kept = next(values), next(values), next(values).decode(), next(values)
                plan = await self._plans(digest)
                if plan is None:
                    _pass_over(values)
                    continue
                row = read_execution(
                    execution_id, packed, digest=digest, given=await self._input(execution_id, kept)
                )
                one = Given(row, self._shape(plan), {})
                one.read(values)
                given.append(one)
                found[execution_id] = one
        await self._complete(given, partition)

    async def _complete(self, given: Sequence[Given], partition: int) -> None:
        """Read the rows that free nodes see and that did not come with them."""
        keys = self._redis.partitions[partition]
        commands: list[tuple[Any, ...]] = []
        asked: list[tuple[Given, list[tuple[str, bool]]]] = []
        for one in given:
            missing = one.missing()
            for start in range(0, len(missing), MOST_FIELDS // 2):
                names = missing[start : start + MOST_FIELDS // 2]
                commands.append(("HMGET", keys.execution(one.row.id), "!", *missing_fields(names)))
                asked.append((one, names))
        if not commands:
            return
        for (one, names), reply in zip(
            asked, checked(await self._redis.run(commands, partition=partition)), strict=True
        ):
            meta = None if reply[0] is None else read_meta(reply[0])
            # Closed or rebuilt meanwhile: without its rows none of them is given.
            if meta is None or not meta.is_live:
                continue
            if (meta.generation, meta.epoch) == (one.row.generation, one.row.epoch):
                one.add(names, reply[1:])

    # -- moves -------------------------------------------------------------------------------------

    async def queue(self, tasks: Sequence[tuple[Task, int]]) -> Sequence[Answer]:
        moves = []
        of_move: dict[int, Task] = {}
        for task, epoch in tasks:
            wire = pack(task) if self._joint else b""
            numbers = (task.generation, task.attempt, epoch, 0)
            move = Move(task.execution_id, task.node_id, wire, numbers=numbers, size=len(wire))
            of_move[id(move)] = task
            moves.append(move)

        def own(keys: Keys, part: Sequence[Move]) -> tuple[list[str], list[Argument]]:
            lanes = Lanes()
            for move in part:
                move.numbers = (*move.numbers[:3], lanes.place(of_move[id(move)]))
            return lanes.keys(keys), lanes.arguments(self._queued, sent=self._joint)

        replies = await self._moved(_QUEUE, moves, own, reads_all=True)
        return [_ANSWERS[answer] for (answer,) in replies]

    async def line(self, execution_id: str, *, generation: int, node_id: str, attempt: int) -> Answer:
        moves = [Move(execution_id, node_id, numbers=(generation, attempt))]
        ((answer,),) = await self._moved(_LINE, moves, _told(self._reported))
        return _ANSWERS[answer]

    async def release(self, execution_id: str, *, generation: int, node_id: str, attempt: int) -> Answer:
        moves = [Move(execution_id, node_id, numbers=(generation, attempt))]
        ((answer,),) = await self._moved(_RELEASE, moves, _told())
        return _ANSWERS[answer]

    async def start(self, requests: Sequence[StartRequest]) -> Sequence[Started]:
        moves = [
            Move(
                *(one.execution_id, one.node_id, holder(one.nonce, one.worker)),
                numbers=(one.generation, one.attempt),
            )
            for one in requests
        ]
        replies = await self._moved(_START, moves, _told(self._lease), width=3)
        while paused := [index for index, (answer, _, _) in enumerate(replies) if answer == _PAUSED]:
            freed = await self._unqueue([requests[index] for index in paused])
            for index, is_free in zip(paused, freed, strict=True):
                if is_free:
                    replies[index] = [_REFUSED, 0, 0]
                    continue
                # Somebody has let it run on meanwhile, and its task is the one in hand: it is to start.
                (replies[index],) = await self._moved(_START, [moves[index]], _told(self._lease), width=3)
        return [Started(_ANSWERS[answer], at, queued_at) for answer, at, queued_at in replies]

    async def _unqueue(self, requests: Sequence[StartRequest]) -> list[bool]:
        """Set nodes free that may not start while their execution is paused; say of which that is so."""
        moves = [
            Move(one.execution_id, one.node_id, numbers=(one.generation, one.attempt)) for one in requests
        ]
        return [_ANSWERS[answer] is Answer.YES for (answer,) in await self._moved(_UNQUEUE, moves, _told())]

    async def beat(self, held: Sequence[Held]) -> Sequence[Answer]:
        moves = [
            Move(
                *(one.execution_id, one.node_id, one.nonce, one.worker),
                numbers=(one.generation, one.attempt, one.queued_at, one.started_at),
            )
            for one in held
        ]
        return [_ANSWERS[answer] for (answer,) in await self._moved(_BEAT, moves, _told(self._lease))]

    async def report(self, results: Sequence[Result], nonces: Sequence[str]) -> None:
        moves = []
        for result, nonce in zip(results, nonces, strict=True):
            wire = pack(result)
            move = Move(
                *(result.execution_id, result.node_id, holder(nonce, result.worker), wire),
                numbers=(result.generation, result.attempt, result.queued_at, result.started_at),
                size=len(wire),
            )
            moves.append(move)

        def own(keys: Keys, _: Sequence[Move]) -> tuple[list[str], list[Argument]]:
            return [keys.results], [self._reported]

        # Appended wherever its execution should be: it is not sought, or it would be appended twice.
        await self._moved(_REPORT, moves, own, seek=False)

    async def hand_back(self, held: Sequence[Held]) -> None:
        moves = [
            Move(one.execution_id, one.node_id, one.nonce, numbers=(one.generation, one.attempt))
            for one in held
        ]
        await self._moved(_HAND_BACK, moves, _told())

    async def _moved(
        self,
        script: Script,
        moves: Sequence[Move],
        own: Callable[[Keys, Sequence[Move]], tuple[list[str], list[Argument]]],
        *,
        width: int = 1,
        seek: bool = True,
        reads_all: bool = False,
    ) -> list[list[int]]:
        """Have a script make moves; give what it answered to each, in their order."""
        answers: list[list[int]] = [[]] * len(moves)
        await self._move(script, moves, range(len(moves)), own, width, answers, reads_all)
        if seek and len(self._redis.partitions) > 1:
            unknown = [index for index, answer in enumerate(answers) if answer[0] == 4]
            elsewhere = set(await self._places.seek([moves[index].execution_id for index in unknown]))
            again = [index for index in unknown if moves[index].execution_id in elsewhere]
            await self._move(script, moves, again, own, width, answers, reads_all)
        return answers

    async def _move(
        self,
        script: Script,
        moves: Sequence[Move],
        indexes: Sequence[int],
        own: Callable[[Keys, Sequence[Move]], tuple[list[str], list[Argument]]],
        width: int,
        answers: list[list[int]],
        reads_all: bool,
    ) -> None:
        by_partition: dict[int, list[int]] = {}
        if len(self._redis.partitions) == 1:
            by_partition[0] = list(indexes)
        else:
            for index in indexes:
                by_partition.setdefault(self._places.where(moves[index].execution_id), []).append(index)
        now = self._now()

        async def in_partition(partition: int, indexes: Sequence[int]) -> None:
            async def run(chosen: Sequence[int]) -> None:
                await make(partition, chosen)

            keys = self._redis.partitions[partition]
            await contained(self._redis, keys, indexes, lambda index: moves[index].execution_id, run)

        async def make(partition: int, chosen: Sequence[int]) -> None:
            keys = self._redis.partitions[partition]
            calls = []
            for part in in_parts([moves[index] for index in chosen]):
                own_keys, own_arguments = own(keys, part)
                call = Call()
                items: list[Argument] = [len(part)]
                for move in part:
                    fields = (move.field,) if reads_all else ()
                    items += move.arguments(call.place(move.execution_id, fields))
                read = call.fields() if reads_all else ()
                arguments = [*call.arguments(now, self._ttl), *own_arguments, *read, *items]
                calls.append((script, call.keys(keys, own_keys), arguments))
            replies = await self._redis.scripts(calls, partition=partition)
            flat = [value for reply in replies for value in reply]
            for place, index in enumerate(chosen):
                answers[index] = flat[place * width : (place + 1) * width]

        await all_of([in_partition(partition, chosen) for partition, chosen in by_partition.items()])

    # -- time, and those who look on -----------------------------------------------------------------

    async def due(self, *, idle_seconds: float) -> Due:
        return await self._due.look(idle_seconds=idle_seconds)

    async def epochs(self, execution_ids: Sequence[str]) -> Sequence[int | None]:
        return await self._sights.epochs(execution_ids)

    async def unchanged(self, since: int) -> Mapping[str, int]:
        return await self._sights.unchanged(since)

    async def running(self, execution_id: str) -> dict[str, Running]:
        return await self._sights.running(execution_id)

    async def look(self, execution_id: str, *, names: Collection[str] | None = None) -> Sight | None:
        return await self._sights.look(execution_id, names=names)

    async def in_flight(self, execution_ids: Sequence[str]) -> Sequence[tuple[int, int] | None]:
        return await self._sights.in_flight(execution_ids)

    async def running_by_queue(self) -> Mapping[str, int]:
        return await self._sights.running_by_queue()

    async def backlog(self) -> int:
        return await self._sights.backlog()

    async def announce_worker(self, worker: WorkerSight) -> None:
        await self._sights.announce_worker(worker)

    async def remove_worker(self, worker_id: str) -> None:
        await self._sights.remove_worker(worker_id)

    async def workers(self) -> Sequence[WorkerSight]:
        return await self._sights.workers()

    # -- plans and inputs ----------------------------------------------------------------------------

    def _shape(self, plan: Plan) -> Shape:
        shape = self._shapes.get(plan.digest)
        if shape is None:
            shape = self._shapes[plan.digest] = Shape(plan)
            if len(self._shapes) > _MOST_SHAPES:
                self._shapes.popitem(last=False)
        return shape

    async def _input(self, execution_id: str, kept: bytes | None) -> bytes:
        """Give an execution's input: from its hash where it is small, else as the journal has it."""
        if kept is not None:
            return kept
        known = self._inputs.get(execution_id)
        if known is not None:
            self._inputs.move_to_end(execution_id)
            return known
        keys = self._redis.partitions[self._places.where(execution_id)]
        given: bytes | None = await self._redis.call(
            "HGET", keys.execution(execution_id), "i", partition=keys.partition
        )
        if given is None:
            row = await self._journal_executions(execution_id)
            given = b"null" if row is None else row.input
        self._inputs[execution_id] = given
        self._input_bytes += len(given)
        while self._input_bytes > _MOST_INPUT_BYTES and len(self._inputs) > 1:
            _, old = self._inputs.popitem(last=False)
            self._input_bytes -= len(old)
        return given


def _told(*arguments: Argument) -> Callable[[Keys, Sequence[Move]], tuple[list[str], list[Argument]]]:
    """Make what a script is told before its moves, which needs no keys of its own."""
    return lambda _keys, _part: ([], list(arguments))


def _note_answers(calls: Sequence[ApplyCall], replies: Sequence[Reply], answers: list[Answer]) -> None:
    """Note what was answered to each item: of one in several parts, the first answer that is not a yes."""
    refused: set[int] = set()
    for call, reply in zip(calls, replies, strict=True):
        for index, number in zip(call.indexes, reply, strict=False):
            if index not in refused:
                answers[index] = _ANSWERS[number]
                if answers[index] is not Answer.YES:
                    refused.add(index)


def _by_execution(ahead: Sequence[tuple[Task, int]]) -> dict[str, list[tuple[Task, int]]]:
    behind: dict[str, list[tuple[Task, int]]] = {}
    for task, epoch in ahead:
        behind.setdefault(task.execution_id, []).append((task, epoch))
    return behind


def _names(values: Iterator[Reply]) -> list[str]:
    """Take the names of nodes out of a script's reply."""
    return [name[1:].decode() for name in islice(values, next(values))]


def _pass_over(values: Iterator[Reply]) -> None:
    """Pass over free nodes that cannot be made: their plan is not known."""
    for _ in range(next(values)):
        for _ in range(3):
            next(values)
        for _ in range(next(values)):
            next(values)


def _server_time() -> int:
    """Leave the time to the server."""
    return 0
