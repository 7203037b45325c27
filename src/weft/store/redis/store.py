"""Hot state on Redis: the promises of ``memory.py`` across processes, each move one script.

An execution is one hash of plain fields, so that a lost key is a lost execution, and never "nothing left";
``layout.py`` says what lies where. The scripts are given many executions of one partition at a time and
answer in the order of the items; calls go out in one write. A script compares and counts, and decides
nothing: what a row leads to is in its arguments.

A script holds everybody up, so each is short: a call has at most ``MOST_ITEMS`` items, and so many fields and
bytes. What is wide, as the rows of ten thousand parents, is read by plain commands.
"""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

from msgspec.structs import replace

from weft.core.time import micros
from weft.envelope import pack, pack_all
from weft.errors import StoreError, StoreKeyError
from weft.lru import Lru
from weft.redis.health import wrong_keys
from weft.redis.waiting import all_of, all_that_answer
from weft.store.contract import (
    DEFAULT_STORE_OPTIONS,
    FIRST_INSTALL_SECONDS,
    Answer,
    Applied,
    Lease,
    Started,
    StartRequest,
    StoreOptions,
)
from weft.store.redis.calls import (
    Header,
    PlanArguments,
    apply_calls,
    close_calls,
    ended,
    evict_calls,
    free_calls,
    move_calls,
    queue_calls,
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
    read_fence,
    read_plan,
    read_row,
    script,
    with_changes,
)
from weft.store.redis.partitions import MOST_FIELDS, ScriptCall, ScriptCalls, checked
from weft.store.redis.replies import FreeNodesReply, missing_fields
from weft.store.redis.snapshot import install_calls
from weft.store.redis.sweep import Sweep

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from weft.core.attempt import AttemptRef
    from weft.core.rows import ExecutionRow
    from weft.core.snapshot import RowUpdate, Snapshot
    from weft.core.task import Result, Task
    from weft.definition.plan import Plan
    from weft.redis.connection import Redis, Reply
    from weft.redis.keys import Keys
    from weft.redis.script import Script
    from weft.store.redis.calls import Merge, Move
    from weft.store.redis.partitions import Argument

# The tombstone of an execution stays longer than any builder that was under way lives. Most had no other
# than the first, who is refused by then. Of these it stays for some leases, so that every worker has heard of
# the end: half an hour of tombstones is much memory at a thousand a second.
_KEEP_TOMBSTONE_SECONDS = 1800
_KEEP_PLAIN_TOMBSTONE_SECONDS = 60
_FIRST_INSTALL = micros(FIRST_INSTALL_SECONDS)
_LEASES_OF_A_TOMBSTONE = 4
# Plans whose arguments are kept, and bytes of inputs.
_MOST_PLANS = 256
_MOST_INPUT_BYTES = 64 * 1024 * 1024
# What an entry takes beside its input: most inputs are a few bytes, and a large one is kept as none.
_ENTRY_BYTES = 250
_ZERO = ord("0")
_YES = CONSTANTS["YES"]
_QUEUED = _ZERO + int(CONSTANTS["YES"])
_FENCE, _NODE = str(CONSTANTS["FENCE"]), str(CONSTANTS["NODE"])

_INCARNATION = script("incarnation")
_APPLY = script("apply", "guard", "execution", "queueing", "counting")
_INSTALL = script("install", "guard", "execution", "queueing", "counting")
_START, _REPORT = script("start", "guard", "attempts"), script("report")
_RENEW, _ABANDON = script("renew", "guard", "attempts"), script("abandon", "guard", "attempts")
_END_LEASES = script("end_leases", "guard")
_THROTTLE, _RELEASE, _UNQUEUE = (
    script(name, "guard", "execution", "moves") for name in ("throttle", "release", "unqueue")
)


class RedisStore(Inspector, Sweep):
    def __init__(
        self,
        redis: Redis,
        *,
        plans: Callable[[str], Awaitable[Plan | None]],
        new_id: Callable[[], str],
        now: Callable[[], int] | None = None,
        joint: bool = True,
        options: StoreOptions = DEFAULT_STORE_OPTIONS,
    ) -> None:
        """``plans`` is the journal's read of a plan.

        Without ``now`` the time is the server's. ``joint``: as the transport says.
        """
        super().__init__(redis, now=now, lease_seconds=options.lease_seconds)
        self._plans = plans
        self._new_id = new_id
        self._window = options.window
        self._keep_seconds = options.ttl_seconds
        self._queued = 0 if options.queued_seconds is None else micros(options.queued_seconds)
        self._reported = micros(options.reported_seconds)
        self._joint = joint
        plain = max(_KEEP_PLAIN_TOMBSTONE_SECONDS, ceil(_LEASES_OF_A_TOMBSTONE * options.lease_seconds))
        # What every call of ``apply`` is told.
        self._apply_told = (self._queued, int(joint), _KEEP_TOMBSTONE_SECONDS, plain)
        self._inline_input_bytes = options.inline_input_bytes
        self._arguments: Lru[str, PlanArguments] = Lru(_MOST_PLANS)
        self._inputs: Lru[str, bytes] = Lru(_MOST_INPUT_BYTES, lambda given: len(given) + _ENTRY_BYTES)

    # -- install and close -------------------------------------------------------------------------

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

    async def incarnation_id(self) -> str:
        # Each partition has an incarnation of its own, and may be lost by itself. One that is away has none:
        # nothing can be installed there now.
        incarnation_ids = await all_that_answer([self._begin(keys) for keys in self._redis.partitions])
        return " ".join(
            [
                "" if isinstance(incarnation_id, StoreError) else incarnation_id
                for incarnation_id in incarnation_ids
            ]
        )

    async def _begin(self, keys: Keys) -> str:
        """Return the id of a partition's incarnation, and begin one where none has begun."""
        incarnation_id = await self._redis.script(
            *(_INCARNATION, [*keys.shared, keys.server, keys.incarnation]),
            [self._new_id(), *self._redis.known_incarnation()],
            partition=keys.partition,
        )
        return bytes(incarnation_id).decode()

    async def install(
        self,
        snapshots: Sequence[Snapshot],
        *,
        incarnation_id: str,
        fresh: bool,
        ahead: Sequence[Task] = (),
    ) -> Sequence[Answer]:
        answers = [Answer.REFUSED] * len(snapshots)
        epochs = {row.id: (row.generation, row.epoch) for row in [one.execution for one in snapshots]}
        behind: dict[str, list[tuple[Task, bytes]]] = {}
        for task in ahead:
            if epochs.get(task.execution_id) == (task.generation, task.epoch):
                wire = pack(task) if self._joint else b""
                behind.setdefault(task.execution_id, []).append((task, wire))
        calls, large = install_calls(
            *(snapshots, self._keys_of_row, self._arguments_of),
            ahead=behind,
            incarnation_ids=incarnation_id.split(" "),
            inline_input_bytes=self._inline_input_bytes,
        )
        orphaned_for = 0 if fresh else self._lease

        async def run(calls: Sequence[ScriptCall], *, first: bool = True, last: bool = True) -> None:
            told = (self._queued, int(self._joint), int(first), int(last), orphaned_for, _FIRST_INSTALL)
            await self._run(_INSTALL, calls, *told, self._keep_seconds)
            for call in calls:
                for index, number in zip(call.about, call.reply, strict=True):
                    answers[index] = ANSWERS[number]

        if calls:
            await run(calls)
        for parts in large:
            (index,) = parts[0].about
            for number, part in enumerate(parts):
                # One after the other: a part that is refused is the last.
                await run([part], first=number == 0, last=number == len(parts) - 1)
                if answers[index] is not Answer.YES:
                    break
        return answers

    async def close(
        self, execution_id: str, *, generation: int, epoch: int, plan: Plan | None = None
    ) -> Answer:
        sleeps = () if plan is None else self._arguments_of(plan).sleeps
        header = ended(execution_id, generation, epoch)
        drawn = self._keys_of(execution_id)
        number = await self._close(header, sleeps, drawn)
        answer = ANSWERS[number]
        if number == WAS_GONE:
            # The execution may be in another partition, or on its way there: so must the tombstone.
            for keys in self._redis.partitions:
                if keys is not drawn:
                    other = await self._close(header, sleeps, keys)
                    answer = Answer.REFUSED if other == REFUSED else answer
        return answer

    async def evict(self, evicted: Sequence[ExecutionRow]) -> None:
        # Of a partition that has lost its incarnation nothing is left to drop, and every install is refused.
        await self._run(_APPLY, evict_calls(evicted, self._keys_of_row), *self._apply_told)

    async def _close(self, header: Header, sleeps: Sequence[str], keys: Keys) -> int:
        calls = close_calls(header, sleeps, keys)
        await self._run(_APPLY, calls, *self._apply_told)
        while calls[0].reply[0] == UNKNOWN:
            # A tombstone belongs to one incarnation of the store: it is the first thing of a new one.
            await self._begin(keys)
            await self._run(_APPLY, calls, *self._apply_told)
        return int(calls[0].reply[0])

    # -- merging what the journal recorded ---------------------------------------------------------

    async def apply(self, row_updates: Sequence[RowUpdate], ahead: Sequence[Task] = ()) -> Sequence[Applied]:
        calls = apply_calls(row_updates, ahead, self._keys_of_row, self._arguments_of, sent=self._joint)
        await self._run(_APPLY, calls, *self._apply_told)
        applied = [_PLAIN[UNKNOWN]] * len(row_updates)
        answers, free = _read_applied(calls)
        lost = set()
        for merge, number in answers.items():
            if number == UNKNOWN and merge.row.is_terminal:
                lost.add(self._keys_of_row(merge.row))
        if lost:
            # A tombstone belongs to one incarnation of the store: it is the first thing of a new one.
            await all_of([self._begin(keys) for keys in lost])
            await self._run(_APPLY, [call for call in calls if call.keys in lost], *self._apply_told)
            answers, free = _read_applied(calls)
        for merge, number in answers.items():
            answer = _PLAIN[number]
            if number == WAS_GONE and len(self._redis.partitions) > 1:
                # The execution may be in another partition, or on its way there.
                row = merge.row
                answer = Applied(await self.close(row.id, generation=row.generation, epoch=row.epoch))
            for index in merge.indexes:
                applied[index] = answer
        replies: dict[int, FreeNodesReply] = {}
        for merge, keys, queued, (packed, *nodes) in free.values():
            if answers[merge] == _YES:
                index = merge.indexes[-1]
                applied[index] = Applied(Answer.YES, queued=queued)
                if nodes:
                    rows = {row.node_id: row for row in merge.rows if row.state is not None}
                    replies[index] = FreeNodesReply(keys, merge.row, merge.plan, nodes, packed, rows, queued)
        if replies:
            for index, made in zip(replies, await self._complete([*replies.values()]), strict=True):
                applied[index] = made
        return applied

    # -- free nodes --------------------------------------------------------------------------------

    async def free(self, execution_ids: Sequence[str]) -> Sequence[Applied]:
        found: dict[str, Applied] = {}
        names = list(dict.fromkeys(execution_ids))
        while names:
            calls = free_calls(names, self._keys_of)
            await self._run(_APPLY, calls, *self._apply_told)
            given = []
            for call in calls:
                for name, said in zip(call.about, call.reply, strict=True):
                    found[name] = _PLAIN[said if isinstance(said, int) else said[0]]
                    if isinstance(said, int):
                        continue
                    try:
                        reply = await self._listed(call.keys, name, said)
                    except PoisonError:
                        await self._drop(call.keys, name)
                        found[name] = _PLAIN[UNKNOWN]
                    else:
                        given += [] if reply is None else [reply]
            for reply, applied in zip(given, await self._complete(given), strict=True):
                found[reply.row.id] = applied
            # Also what is closed: a tombstone may lie where the id draws it, an execution where the row says.
            names = await self._seek([name for name in names if found[name].answer is not Answer.YES])
        return [found[execution_id] for execution_id in execution_ids]

    async def _listed(self, keys: Keys, execution_id: str, said: Sequence[Reply]) -> FreeNodesReply | None:
        """Read the reply of a script about an execution and its free nodes; None: its plan is gone."""
        packed, about, kept, fixed, *nodes = said[2:]
        _, digest = read_plan(about)
        plan = await self._plans(digest)
        if plan is None:
            return None
        given = await self._input(execution_id, kept)
        row = read_row(execution_id, packed, fixed, digest=digest, given=given)
        return FreeNodesReply(keys, row, plan, nodes)

    async def _complete(self, replies: Sequence[FreeNodesReply]) -> list[Applied]:
        """Make the free nodes, with the rows they see that did not come with them.

        An execution with an unreadable row is dropped, and unknown.
        """
        asked: dict[Keys, list[tuple[FreeNodesReply, list[tuple[str, bool]]]]] = {}
        poisoned: list[FreeNodesReply] = []
        for reply in replies:
            try:
                if reply.packed:
                    reply.row = with_changes(reply.row, reply.packed)
                if not reply.row.input:
                    # A journal need not read the input with every row.
                    reply.row = replace(reply.row, input=await self._input(reply.row.id, None))
                missing = reply.missing()
            except PoisonError:
                poisoned.append(reply)
                continue
            for start in range(0, len(missing), MOST_FIELDS // 2):
                asked.setdefault(reply.keys, []).append((reply, missing[start : start + MOST_FIELDS // 2]))

        async def read(keys: Keys) -> None:
            commands = [
                ("HMGET", keys.execution(reply.row.id), _FENCE, *missing_fields(names))
                for reply, names in asked[keys]
            ]
            values = checked(await self._redis.run(commands, partition=keys.partition))
            for (reply, names), (fence, *fields) in zip(asked[keys], values, strict=True):
                try:
                    known = None if fence is None else read_fence(fence)
                    # Closed or rebuilt meanwhile: without its rows none of them is given.
                    if known is not None and known.is_same_epoch(reply.row):
                        reply.add(names, fields)
                except PoisonError:
                    poisoned.append(reply)

        if asked:
            await all_of([read(keys) for keys in asked])
        for reply in poisoned:
            await self._drop(reply.keys, reply.row.id)
        return [_PLAIN[UNKNOWN] if reply in poisoned else reply.applied() for reply in replies]

    # -- moves -------------------------------------------------------------------------------------

    async def admit(self, attempt: AttemptRef, *, epoch: int, weight: int) -> Answer:
        return Answer.YES

    async def queue(self, tasks: Sequence[Task]) -> Sequence[Answer]:
        answers = [Answer.UNKNOWN] * len(tasks)
        chosen: Sequence[int] = range(len(tasks))
        while chosen:
            unknown: list[int] = []
            calls = queue_calls(tasks, chosen, self._keys_of, sent=self._joint)
            await self._run(_APPLY, calls, *self._apply_told)
            for call in calls:
                for indexes, said in zip(call.about, call.reply, strict=True):
                    if said == UNKNOWN:
                        unknown += indexes
                        continue
                    for place, index in enumerate(indexes):
                        answers[index] = ANSWERS[said if isinstance(said, int) else said[1][place] - _ZERO]
            chosen = await self._moved(unknown, [task.execution_id for task in tasks]) if unknown else ()
        return answers

    async def throttle(
        self, execution_id: str, *, generation: int, node_id: str, attempt: int, was_queued: bool = False
    ) -> Answer:
        moves = [(execution_id, generation, _NODE + node_id, str(attempt))]
        return ANSWERS[(await self._move(_THROTTLE, moves, self._reported, int(was_queued)))[0]]

    async def release(self, execution_id: str, *, generation: int, node_id: str, attempt: int) -> Answer:
        moves = [(execution_id, generation, _NODE + node_id, str(attempt))]
        return ANSWERS[(await self._move(_RELEASE, moves))[0]]

    async def start(self, requests: Sequence[StartRequest]) -> Sequence[Started]:
        moves: list[Move] = []
        for one in requests:
            held = holder(one.nonce, one.worker)
            moves.append((one.execution_id, one.generation, _NODE + one.node_id, f"{one.attempt}:", held))
        replies = await self._move(_START, moves, self._lease)
        while PAUSED in replies:
            paused = [index for index, reply in enumerate(replies) if reply == PAUSED]
            freed = await self._unqueue([requests[index] for index in paused])
            for index, is_free in zip(paused, freed, strict=True):
                if is_free:
                    replies[index] = REFUSED
                    continue
                # The execution was resumed meanwhile, and the task is the one in hand: the attempt starts.
                (replies[index],) = await self._move(_START, [moves[index]], self._lease)
        started: list[Started] = []
        for reply in replies:
            if isinstance(reply, int):
                started.append(Started(ANSWERS[reply]))
                continue
            _, _, queued_at, started_at, _ = reply.split(b":", 4)  # of the field of a running node
            started.append(Started(Answer.YES, int(started_at), int(queued_at)))
        return started

    async def _unqueue(self, requests: Sequence[StartRequest]) -> list[bool]:
        """Set nodes free that may not start while their execution is paused; return of which that is so."""
        moves = [
            (one.execution_id, one.generation, _NODE + one.node_id, str(one.attempt)) for one in requests
        ]
        return [answer == _YES for answer in await self._move(_UNQUEUE, moves)]

    async def renew(self, leases: Sequence[Lease]) -> Sequence[Answer]:
        moves = [_lease_move(one) for one in leases]
        return [
            ANSWERS[number] for number in await self._move(_RENEW, moves, self._lease, self._keep_seconds)
        ]

    async def abandon(self, leases: Sequence[Lease]) -> None:
        await self._move(_ABANDON, [_lease_move(one) for one in leases])

    async def report(self, results: Sequence[Result]) -> None:
        calls = ScriptCalls()
        for result in results:
            wire = pack(result)
            # Appended wherever its execution should be: it is not sought, or it would be appended twice.
            call = calls.room(self._keys_of(result.execution_id), size=len(wire))
            call.about.append(wire)
            call.arguments.append(lease_member(result.execution_id, result.node_id, result.attempt))
        for call in calls:
            call.streams[call.keys.results] = 1
            call.arguments.insert(0, pack_all(call.about))
        await self._run(_REPORT, calls, self._reported)

    async def end_leases(self, attempts: Sequence[tuple[str, str, int]]) -> None:
        calls = ScriptCalls()
        groups: dict[tuple[ScriptCall, str], list[Argument]] = {}
        for execution_id, node_id, attempt in attempts:
            keys = self._keys_of(execution_id)
            own = groups.setdefault((calls.room(keys), keys.executions + execution_id), [])
            own += (_NODE + node_id, f"{attempt}:")
        for (call, key), own in groups.items():
            call.hashes.append(key)
            call.arguments += (len(own) // 2, *own)
        await self._run(_END_LEASES, calls)

    async def _move(self, script: Script, moves: Sequence[Move], *told: Argument) -> list[Reply]:
        """Make moves by a script; return the answer to each, in their order."""
        replies: list[Reply] = [UNKNOWN] * len(moves)
        chosen: Sequence[int] = range(len(moves))
        while chosen:
            unknown: list[int] = []
            calls = move_calls(moves, chosen, self._keys_of)
            await self._run(script, calls, *told)
            for call in calls:
                for index, answer in zip(call.about, call.reply, strict=True):
                    replies[index] = answer
                    if answer == UNKNOWN:
                        unknown.append(index)
            chosen = await self._moved(unknown, [move[0] for move in moves]) if unknown else ()
        return replies

    async def _moved(self, unknown: Sequence[int], execution_ids: Sequence[str]) -> list[int]:
        """Return the positions of the unknown executions that were found in another partition."""
        found = set(await self._seek([execution_ids[index] for index in unknown]))
        return [index for index in unknown if execution_ids[index] in found]

    # -- plans and inputs ----------------------------------------------------------------------------

    def _arguments_of(self, plan: Plan) -> PlanArguments:
        found = self._arguments.get(plan.digest)
        if found is None:
            found = PlanArguments(plan, self._window)
            self._arguments.put(plan.digest, found)
        return found

    async def _input(self, execution_id: str, kept: bytes | None) -> bytes:
        """Return an execution's input from its hash; ``b""`` where it is large: whoever needs that reads it.

        The executions of a batch may have more than fits into memory.
        """
        if kept is not None:
            return kept
        known = self._inputs.get(execution_id)
        if known is not None:
            return known
        keys = self._keys_of(execution_id)
        given: bytes | None = await self._redis.call(
            "HGET", keys.execution(execution_id), CONSTANTS["INPUT"], partition=keys.partition
        )
        given = given or b""
        self._inputs.put(execution_id, given)
        return given


_PLAIN = {number: Applied(answer) for number, answer in ANSWERS.items()}


def _read_applied(
    calls: Sequence[ScriptCall],
) -> tuple[dict[Merge, int], dict[str, tuple[Merge, Keys, list[str], Sequence[Reply]]]]:
    """Read the answer to each merge: of one in several parts, the first that is not a yes.

    Return with it what is given of each execution, once, with the last merge that was made: the nodes that
    were queued, the row that is kept, and the free nodes.
    """
    answers: dict[Merge, int] = {}
    given: dict[str, tuple[Merge, Keys, list[str], Sequence[Reply]]] = {}
    for call in calls:
        for (merge, tasks), said in zip(call.about, call.reply, strict=True):
            answer, digits, *rest = (said, None, b"") if isinstance(said, int) else said
            if answers.get(merge, _YES) == _YES:
                answers[merge] = answer
            row = merge.row
            if answer == _YES and (tasks or digits is not None):
                queued = []
                for place, (task, _) in enumerate(tasks):
                    if digits is None or digits[place] == _QUEUED:
                        queued.append(task.node_id)
                given[row.id] = merge, call.keys, queued, rest
            elif ANSWERS[answer] is Answer.YES and row.is_terminal:
                given.pop(row.id, None)  # what an earlier row update of this call was given is over
    return answers, given


def _lease_move(one: Lease) -> Move:
    """Make the move of an attempt that was started."""
    return (
        *(one.execution_id, one.generation, _NODE + one.node_id, f"{one.attempt}:"),
        f"{max(0, one.queued_at)}:{max(0, one.started_at)}{holder(one.nonce, one.worker)}",
    )
