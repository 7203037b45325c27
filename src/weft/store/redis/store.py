"""Hot state on Redis: the promises of ``memory.py`` across processes, each move one script.

An execution is one hash of plain fields, so that a lost key is a lost execution, and never "nothing left";
``layout.py`` says what lies where. The scripts are given many executions of one partition at a time and
answer in the order of the items; calls go out in one write. A script compares and counts, and decides
nothing: what a row leads to is in its arguments.

A script holds everybody up, so each is short: a call has at most ``MOST_ITEMS`` items, and so many fields and
bytes. What is wide, as the rows of ten thousand parents, is read by plain commands.
"""

from __future__ import annotations

from collections import OrderedDict
from math import ceil
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from weft.core.envelope import pack
from weft.core.time import micros
from weft.errors import StoreError, StoreKeyError
from weft.redis.health import wrong_keys
from weft.redis.waiting import all_of, all_that_answer
from weft.store.contract import (
    FIRST_INSTALL_SECONDS,
    Answer,
    Applied,
    Held,
    Started,
    StartRequest,
)
from weft.store.redis.calls import (
    MOST_FIELDS,
    Argument,
    Move,
    ScriptCall,
    apply_calls,
    close_call,
    free_calls,
    move_calls,
    queue_calls,
    report_arguments,
)
from weft.store.redis.inspect import Inspector
from weft.store.redis.layout import (
    ANSWERS,
    CONSTANTS,
    PAUSED,
    REFUSED,
    UNKNOWN,
    WAS_GONE,
    PoisonError,
    holder,
    lease_member,
    node_field,
    partition_keys,
    read_mark,
    read_plan,
    read_row,
    read_started,
    script,
    with_changes,
)
from weft.store.redis.partitions import PartitionLocator, checked, run_scripts
from weft.store.redis.plan_arguments import PlanArguments
from weft.store.redis.replies import FreeNodesReply, missing_fields
from weft.store.redis.snapshot import InstallCall, install_calls
from weft.store.redis.sweep import Sweep

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from weft.core.plan import Plan
    from weft.core.row import ExecutionRow
    from weft.core.snapshot import Settlement, Snapshot
    from weft.core.task import Result, Task
    from weft.redis.connection import Redis, Reply
    from weft.redis.keys import Keys
    from weft.redis.script import Script
    from weft.store.redis.calls import ApplyCall

# The mark of a closed execution stays longer than any builder that was under way lives. Most had no other
# than the first, who is refused by then. Of these it stays for some leases, so that every worker has heard of
# the end: half an hour of marks is much memory at a thousand a second.
_KEEP_MARK_SECONDS = 1800
_KEEP_PLAIN_MARK_SECONDS = 60
_FIRST_INSTALL = micros(FIRST_INSTALL_SECONDS)
_LEASES_OF_A_MARK = 4
# Plans whose arguments are kept, and bytes of large inputs.
_MOST_PLANS = 256
_MOST_INPUT_BYTES = 64 * 1024 * 1024
_ZERO = ord("0")
_QUEUED = _ZERO + int(CONSTANTS["YES"])

_TOKEN = script("token")
_APPLY = script("apply", "guard", "execution", "queueing", "counting")
_INSTALL = script("install", "guard", "execution", "queueing", "counting")
_START, _REPORT = script("start", "guard", "attempts"), script("report")
_BEAT, _HAND_BACK = script("beat", "guard", "attempts"), script("hand_back", "guard", "attempts")
_LINE, _RELEASE = (
    script("line", "guard", "execution", "moves"),
    script("release", "guard", "execution", "moves"),
)
_UNQUEUE = script("unqueue", "guard", "execution", "moves")


class RedisStore(Inspector, Sweep):
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
        about = (redis, PartitionLocator(redis))
        lease, clock = micros(lease_seconds), now or _server_time
        Inspector.__init__(self, *about, plans=plans, now=clock, lease=lease, keep_seconds=ttl_seconds)
        queued = 0 if queued_seconds is None else micros(queued_seconds)
        Sweep.__init__(self, *about, now=clock, lease=lease, queued=queued)
        self._journal_executions = executions
        self._new_id = new_id
        self._window = window
        plain = max(_KEEP_PLAIN_MARK_SECONDS, ceil(_LEASES_OF_A_MARK * lease_seconds))
        self._keep_marks = (_KEEP_MARK_SECONDS, plain)
        self._reported = micros(reported_seconds)
        self._joint = joint
        self._inline_input_bytes = inline_input_bytes
        self._arguments: OrderedDict[str, PlanArguments] = OrderedDict()
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
        # A server that runs no scripts for us is of no use either.
        await self._begin(keys)
        # A write that changes nothing, and that a server without memory or disk refuses as any other.
        await self._redis.call("APPEND", keys.swept, "", partition=keys.partition)

    async def token(self) -> str:
        # Where there are several partitions each has a token of its own, and each may be lost by itself. One
        # that is away has none: nothing can be installed there now.
        tokens = await all_that_answer([self._begin(keys) for keys in self._redis.partitions])
        return " ".join(["" if isinstance(token, StoreError) else token for token in tokens])

    async def _begin(self, keys: Keys) -> str:
        """Return the token of a partition's incarnation, and begin one where none has begun."""
        token = await self._redis.script(
            *(_TOKEN, [*partition_keys(keys), keys.server, keys.incarnation]),
            [self._new_id(), *self._redis.known_incarnation()],
            partition=keys.partition,
        )
        return bytes(token).decode()

    async def install(
        self,
        snapshots: Sequence[Snapshot],
        *,
        token: str,
        fresh: bool,
        ahead: Sequence[tuple[Task, int]] = (),
    ) -> Sequence[Answer]:
        tokens = token.split(" ")
        answers = [Answer.REFUSED] * len(snapshots)
        lives = {row.id: (row.generation, row.epoch) for row in [one.execution for one in snapshots]}
        behind: dict[str, list[tuple[Task, bytes]]] = {}
        for task, epoch in ahead:
            if lives.get(task.execution_id) == (task.generation, epoch):
                wire = pack(task) if self._joint else b""
                behind.setdefault(task.execution_id, []).append((task, wire))
        by_partition: dict[int, list[int]] = {}
        for index, snapshot in enumerate(snapshots):
            by_partition.setdefault(self._partitions.of_row(snapshot.execution), []).append(index)

        async def in_partition(partition: int, indexes: Sequence[int]) -> None:
            own = tokens[partition] if partition < len(tokens) else ""
            given: list[Argument] = [own, 0 if fresh else self._lease, _FIRST_INSTALL, self._keep_seconds]
            some = [snapshots[index] for index in indexes]
            installed = await self._install(partition, some, behind, given)
            for index, answer in zip(indexes, installed, strict=True):
                answers[index] = answer

        await all_of([in_partition(partition, indexes) for partition, indexes in by_partition.items()])
        return answers

    async def _install(
        self,
        partition: int,
        snapshots: Sequence[Snapshot],
        ahead: Mapping[str, Sequence[tuple[Task, bytes]]],
        given: Sequence[Argument],
    ) -> list[Answer]:
        """Put executions into one partition; ``given``: what the script is told of all of them."""
        keys = self._redis.partitions[partition]
        answers = [Answer.REFUSED] * len(snapshots)
        calls, large = install_calls(
            snapshots, self._arguments_of, ahead=ahead, inline_input_bytes=self._inline_input_bytes
        )

        async def run(calls: Sequence[InstallCall], *, first: bool = True, last: bool = True) -> None:
            replies = await self._run(_INSTALL, keys, calls, int(first), int(last), *given)
            for call, reply in zip(calls, replies, strict=True):
                for index, number in zip(call.items, reply, strict=True):
                    answers[index] = ANSWERS[number]

        if calls:
            await run(calls)
        for parts in large:
            (index,) = parts[0].items
            for number, part in enumerate(parts):
                # One after the other: a part that is refused is the last.
                await run([part], first=number == 0, last=number == len(parts) - 1)
                if answers[index] is not Answer.YES:
                    break
        return answers

    async def _run(
        self, script: Script, keys: Keys, calls: Sequence[ScriptCall], *told: Argument
    ) -> list[Reply]:
        """Run a script that may queue tasks; ``told``: what it is told besides the lanes."""
        now = self._now()
        scripts = []
        for call in calls:
            own = [*call.lanes.arguments(self._queued, sent=self._joint), *told]
            scripts.append((script, call.keys(keys, call.lanes.keys(keys)), call.all_arguments(now, own)))
        return await run_scripts(self._redis, keys, scripts)

    async def close(self, execution_id: str, *, generation: int, epoch: int) -> Answer:
        drawn = self._partitions.where(execution_id)
        number = await self._close(execution_id, generation, epoch, drawn)
        answer = ANSWERS[number]
        if number == WAS_GONE:
            # It may be elsewhere, or be on its way there: then the mark has to be where it comes to lie.
            for keys in self._redis.partitions:
                if keys.partition != drawn:
                    other = await self._close(execution_id, generation, epoch, keys.partition)
                    answer = Answer.REFUSED if other == REFUSED else answer
        return answer

    async def _close(self, execution_id: str, generation: int, epoch: int, partition: int) -> int:
        keys = self._redis.partitions[partition]
        calls = [close_call(execution_id, generation, epoch)]
        ((answer,),) = await self._run(_APPLY, keys, calls, *self._keep_marks)
        while answer == UNKNOWN:
            # A mark belongs to one incarnation of the store: it is the first thing of a new one.
            await self._begin(keys)
            ((answer,),) = await self._run(_APPLY, keys, calls, *self._keep_marks)
        return int(answer)

    # -- merging what the journal recorded ---------------------------------------------------------

    async def apply(
        self, settlements: Sequence[Settlement], ahead: Sequence[tuple[Task, int]] = ()
    ) -> Sequence[Applied]:
        behind: dict[str, list[tuple[Task, int]]] = {}
        for one in ahead:
            behind.setdefault(one[0].execution_id, []).append(one)
        by_partition: dict[int, list[tuple[int, Settlement]]] = {}
        for index, settlement in enumerate(settlements):
            partition = self._partitions.of_row(settlement.execution)
            by_partition.setdefault(partition, []).append((index, settlement))
        applied = [Applied(Answer.UNKNOWN)] * len(settlements)
        await all_of(
            [self._apply(partition, own, behind, applied) for partition, own in by_partition.items()]
        )
        return applied

    async def _apply(
        self,
        partition: int,
        settlements: Sequence[tuple[int, Settlement]],
        behind: Mapping[str, Sequence[tuple[Task, int]]],
        applied: list[Applied],
    ) -> None:
        keys = self._redis.partitions[partition]
        calls = apply_calls(settlements, self._arguments_of, ahead=behind, sent=self._joint)
        replies = await self._run(_APPLY, keys, calls, *self._keep_marks)
        answers, free = self._read_applied(calls, replies)
        ended = {index: one.execution for index, one in settlements if one.execution.is_terminal}
        if any(answers[index] == UNKNOWN for index in ended):
            # A mark belongs to one incarnation of the store: it is the first thing of a new one.
            await self._begin(keys)
            replies = await self._run(_APPLY, keys, calls, *self._keep_marks)
            answers, free = self._read_applied(calls, replies)
        for index, number in answers.items():
            applied[index] = Applied(ANSWERS[number])
            if number == WAS_GONE and len(self._redis.partitions) > 1:
                # It may be elsewhere, or be on its way there.
                row = ended[index]
                applied[index] = Applied(await self.close(row.id, generation=row.generation, epoch=row.epoch))
        # The free nodes of an execution once, with the last settlement of this call that was merged.
        given = await self._complete(list(free.values()), keys)
        for index, one in zip(free, given, strict=True):
            applied[index] = one

    def _read_applied(
        self, calls: Sequence[ApplyCall], replies: Sequence[Reply]
    ) -> tuple[dict[int, int], dict[int, _Given]]:
        """Read the answer to each settlement: of one in several parts, the first that is not a yes.

        Return with it the free nodes of each execution, by the settlement that they are given with.
        """
        answers: dict[int, int] = {}
        free: dict[str, tuple[int, _Given]] = {}
        for call, reply in zip(calls, replies, strict=True):
            for (merge, tasks), said in zip(call.merged, reply, strict=True):
                assert merge is not None
                answer: int = said if isinstance(said, int) else said[0]
                for index in merge.indexes:
                    if answers.get(index, _YES) == _YES:
                        answers[index] = answer
                row = merge.row
                if row.is_terminal and ANSWERS[answer] is Answer.YES:
                    free.pop(row.id, None)  # what an earlier settlement of this call was given is over
                if answer != _YES or row.is_terminal or (said is answer and not tasks):
                    continue
                if said is answer:
                    queued = [task.node_id for task, _ in tasks]
                    free[row.id] = merge.indexes[-1], _Given(row, merge.plan, b"", {}, (), queued)
                    continue
                digits, packed, *nodes = said[1:]
                queued = [
                    task.node_id for (task, _), digit in zip(tasks, digits, strict=True) if digit == _QUEUED
                ]
                rows = {row.node_id: row for row in merge.rows if row.state is not None}
                given = _Given(row, merge.plan, packed, rows, nodes, queued)
                free[row.id] = merge.indexes[-1], given
        return answers, {index: given for index, given in free.values() if answers[index] == _YES}

    # -- free nodes --------------------------------------------------------------------------------

    async def free(self, execution_ids: Sequence[str]) -> Sequence[Applied]:
        found: dict[str, Applied] = {}
        await self._free(list(dict.fromkeys(execution_ids)), found)
        # Also what is closed: a mark may lie where an id draws it, and a later life of it where its row says.
        lost = [name for name, applied in found.items() if applied.answer is not Answer.YES]
        await self._free(await self._partitions.seek(lost), found)
        return [found[execution_id] for execution_id in execution_ids]

    async def _free(self, execution_ids: Sequence[str], found: dict[str, Applied]) -> None:
        by_partition = self._partitions.grouped(execution_ids)
        await all_of([self._free_in(partition, names, found) for partition, names in by_partition.items()])

    async def _free_in(self, partition: int, execution_ids: Sequence[str], found: dict[str, Applied]) -> None:
        keys = self._redis.partitions[partition]
        calls = free_calls(execution_ids)
        replies = await self._run(_APPLY, keys, calls, *self._keep_marks)
        given: dict[str, _Given] = {}
        for execution_id, said in zip(
            execution_ids, [one for reply in replies for one in reply], strict=True
        ):
            found[execution_id] = Applied(ANSWERS[said if isinstance(said, int) else said[0]])
            if isinstance(said, int):
                continue
            packed, about, kept, fixed, *nodes = said[2:]
            try:
                _, digest = read_plan(about)
                plan = await self._plans(digest)
                if plan is None:
                    continue
                own_input = await self._input(execution_id, kept)
                row = read_row(execution_id, packed, fixed, digest=digest, given=own_input)
            except PoisonError:
                await self._partitions.drop(keys, execution_id)
                found[execution_id] = Applied(Answer.UNKNOWN)
                continue
            given[execution_id] = _Given(row, plan, b"", {}, nodes, ())
        found.update(zip(given, await self._complete(list(given.values()), keys), strict=True))

    async def _complete(self, given: Sequence[_Given], keys: Keys) -> list[Applied]:
        """Make the free nodes, with the rows they see that did not come with them.

        An execution with an unreadable row is dropped, and unknown.
        """
        made: list[Applied] = [Applied(Answer.YES, queued=one.queued) for one in given]
        waiting: list[tuple[int, FreeNodesReply]] = []
        commands: list[tuple[Any, ...]] = []
        asked: list[tuple[int, FreeNodesReply, list[tuple[str, bool]]]] = []
        for index, one in enumerate(given):
            if not one.nodes:
                continue
            try:
                row = await self._row(one)
                reply = FreeNodesReply(row, one.plan, one.rows, one.nodes, one.queued)
            except PoisonError:
                await self._partitions.drop(keys, one.row.id)
                made[index] = Applied(Answer.UNKNOWN)
                continue
            waiting.append((index, reply))
            missing = reply.missing()
            for start in range(0, len(missing), MOST_FIELDS // 2):
                names = missing[start : start + MOST_FIELDS // 2]
                commands.append(("HMGET", keys.execution(one.row.id), _MARK, *missing_fields(names)))
                asked.append((index, reply, names))
        poisoned = set()
        if commands:
            values = checked(await self._redis.run(commands, partition=keys.partition))
            for (index, reply, names), (mark, *fields) in zip(asked, values, strict=True):
                # Closed or rebuilt meanwhile: without its rows none of them is given.
                life = None if mark is None else read_mark(mark)
                if life is None or (life.generation, life.epoch) != (reply.row.generation, reply.row.epoch):
                    continue
                try:
                    reply.add(names, fields)
                except PoisonError:
                    await self._partitions.drop(keys, reply.row.id)
                    poisoned.add(index)
        for index, reply in waiting:
            made[index] = Applied(Answer.UNKNOWN) if index in poisoned else reply.applied()
        return made

    async def _row(self, given: _Given) -> ExecutionRow:
        """Return the row that the store has: the given one, or a later one."""
        row = given.row
        if given.packed:
            row = with_changes(row, given.packed)
        if not row.input:
            # A journal need not read the input with every row.
            row = replace(row, input=await self._input(row.id, None))
        return row

    # -- moves -------------------------------------------------------------------------------------

    async def queue(self, tasks: Sequence[tuple[Task, int]]) -> Sequence[Answer]:
        async def in_partition(keys: Keys, chosen: Sequence[int], replies: list[Reply]) -> None:
            calls = queue_calls(tasks, chosen, sent=self._joint)
            answers = await self._run(_APPLY, keys, calls, *self._keep_marks)
            for call, reply in zip(calls, answers, strict=True):
                indexes = iter(call.items)
                for (_, own), said in zip(call.merged, reply, strict=True):
                    given = (
                        [said] * len(own) if isinstance(said, int) else [digit - _ZERO for digit in said[1]]
                    )
                    for answer, index in zip(given, indexes, strict=False):
                        replies[index] = answer

        return self._answers(await self._everywhere([task.execution_id for task, _ in tasks], in_partition))

    async def line(self, execution_id: str, *, generation: int, node_id: str, attempt: int) -> Answer:
        moves = [(execution_id, generation, node_field(node_id), str(attempt))]
        return self._answers(await self._move(_LINE, moves, self._reported))[0]

    async def release(self, execution_id: str, *, generation: int, node_id: str, attempt: int) -> Answer:
        moves = [(execution_id, generation, node_field(node_id), str(attempt))]
        return self._answers(await self._move(_RELEASE, moves))[0]

    async def start(self, requests: Sequence[StartRequest]) -> Sequence[Started]:
        moves = [
            (
                *(one.execution_id, one.generation, _NODE + one.node_id, f"{one.attempt}:"),
                holder(one.nonce, one.worker),
            )
            for one in requests
        ]
        replies = await self._move(_START, moves, self._lease)
        while paused := [index for index, answer in enumerate(replies) if answer == PAUSED]:
            freed = await self._unqueue([requests[index] for index in paused])
            for index, is_free in zip(paused, freed, strict=True):
                if is_free:
                    replies[index] = REFUSED
                    continue
                # Somebody has let it run on meanwhile, and its task is the one in hand: it is to start.
                (replies[index],) = await self._move(_START, [moves[index]], self._lease)
        return [reply if isinstance(reply, Started) else Started(ANSWERS[reply]) for reply in replies]

    async def _unqueue(self, requests: Sequence[StartRequest]) -> list[bool]:
        """Set nodes free that may not start while their execution is paused; return of which that is so."""
        moves = [
            (one.execution_id, one.generation, node_field(one.node_id), str(one.attempt)) for one in requests
        ]
        return [answer == _YES for answer in await self._move(_UNQUEUE, moves)]

    async def beat(self, held: Sequence[Held]) -> Sequence[Answer]:
        moves = [_held(one) for one in held]
        return self._answers(await self._move(_BEAT, moves, self._lease, self._keep_seconds))

    async def report(self, results: Sequence[Result]) -> None:
        by_partition: dict[int, list[Result]] = {}
        for result in results:
            # Appended wherever its execution should be: it is not sought, or it would be appended twice.
            by_partition.setdefault(self._partitions.where(result.execution_id), []).append(result)
        await all_of([self._report(partition, own) for partition, own in by_partition.items()])

    async def _report(self, partition: int, results: Sequence[Result]) -> None:
        keys, now = self._redis.partitions[partition], self._now()
        own = [keys.results, keys.leases]
        scripts = [(_REPORT, own, [now, self._reported, *told]) for told in report_arguments(results)]
        await run_scripts(self._redis, keys, scripts)

    async def end_leases(self, attempts: Sequence[tuple[str, str, int]]) -> None:
        by_partition: dict[int, list[str]] = {}
        for execution_id, node_id, attempt in attempts:
            own = by_partition.setdefault(self._partitions.where(execution_id), [])
            own.append(lease_member(execution_id, node_id, attempt))
        for partition, members in by_partition.items():
            keys = self._redis.partitions[partition]
            for start in range(0, len(members), MOST_FIELDS):
                part = members[start : start + MOST_FIELDS]
                await self._redis.call("ZREM", keys.leases, *part, partition=partition)

    async def hand_back(self, held: Sequence[Held]) -> None:
        await self._move(_HAND_BACK, [_held(one) for one in held])

    @staticmethod
    def _answers(replies: Sequence[Reply]) -> list[Answer]:
        return [ANSWERS[number] for number in replies]

    async def _move(self, script: Script, moves: Sequence[Move], *told: Argument) -> list[Reply]:
        """Have a script make moves; return what it answered to each, in their order."""

        async def in_partition(keys: Keys, chosen: Sequence[int], replies: list[Reply]) -> None:
            now = self._now()
            calls = move_calls(moves, chosen)
            scripts = [(script, call.keys(keys), call.all_arguments(now, told)) for call in calls]
            for call, reply in zip(calls, await run_scripts(self._redis, keys, scripts), strict=True):
                if script is _START:
                    reply = _started(reply)
                for index, answer in zip(call.items, reply, strict=True):
                    replies[index] = answer

        return await self._everywhere([move[0] for move in moves], in_partition)

    async def _everywhere(
        self,
        execution_ids: Sequence[str],
        in_partition: Callable[[Keys, Sequence[int], list[Reply]], Awaitable[None]],
    ) -> list[Reply]:
        """Let each partition answer for its own of these executions, by their place in the sequence.

        Those that are unknown there are sought in the other partitions.
        """
        replies: list[Reply] = [UNKNOWN] * len(execution_ids)
        partitions = self._redis.partitions
        if len(partitions) == 1:
            await in_partition(partitions[0], range(len(execution_ids)), replies)
            return replies

        async def ask(indexes: Sequence[int]) -> None:
            chosen: dict[int, list[int]] = {}
            for index in indexes:
                chosen.setdefault(self._partitions.where(execution_ids[index]), []).append(index)
            await all_of([in_partition(partitions[number], own, replies) for number, own in chosen.items()])

        await ask(range(len(execution_ids)))
        unknown = [index for index, reply in enumerate(replies) if reply == UNKNOWN]
        elsewhere = set(await self._partitions.seek([execution_ids[index] for index in unknown]))
        await ask([index for index in unknown if execution_ids[index] in elsewhere])
        return replies

    # -- plans and inputs ----------------------------------------------------------------------------

    def _arguments_of(self, plan: Plan) -> PlanArguments:
        found = self._arguments.get(plan.digest)
        if found is None:
            found = self._arguments[plan.digest] = PlanArguments(plan, self._window)
            if len(self._arguments) > _MOST_PLANS:
                self._arguments.popitem(last=False)
        return found

    async def _input(self, execution_id: str, kept: bytes | None) -> bytes:
        """Return an execution's input: from its hash where it is small, else as the journal has it."""
        if kept is not None:
            return kept
        known = self._inputs.get(execution_id)
        if known is not None:
            self._inputs.move_to_end(execution_id)
            return known
        keys = self._redis.partitions[self._partitions.where(execution_id)]
        given: bytes | None = await self._redis.call(
            "HGET", keys.execution(execution_id), CONSTANTS["INPUT"], partition=keys.partition
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


class _Given:
    """What a script has said of the free nodes of an execution, with the rows that are at hand."""

    __slots__ = ("nodes", "packed", "plan", "queued", "row", "rows")

    def __init__(
        self,
        row: ExecutionRow,
        plan: Plan,
        packed: bytes,
        rows: dict[str, Any],
        nodes: Sequence[Reply],
        queued: Sequence[str],
    ) -> None:
        self.row = row
        self.plan = plan
        # The store's row, where it is not the given one.
        self.packed = packed
        self.rows = rows
        self.nodes = nodes
        self.queued = queued


_YES = CONSTANTS["YES"]
_MARK, _NODE = str(CONSTANTS["MARK"]), str(CONSTANTS["NODE"])


def _held(one: Held) -> Move:
    """Make the move of an attempt that was started."""
    return (
        *(one.execution_id, one.generation, _NODE + one.node_id, f"{one.attempt}:"),
        f"{max(0, one.queued_at)}:{max(0, one.started_at)}{holder(one.nonce, one.worker)}",
    )


def _started(reply: Reply) -> list[Reply]:
    """Read what was answered to starts: the node's field before it, or an answer."""
    now, answers = reply
    read = []
    for answer in answers:
        if isinstance(answer, bytes):
            queued_at, started_at = read_started(answer)
            answer = Started(Answer.YES, int(now) if started_at is None else started_at, queued_at)
        read.append(answer)
    return read


def _server_time() -> int:
    """Leave the time to the server."""
    return 0
