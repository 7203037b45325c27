"""What the processes do: the real movers, in the loops that the services run them in."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace
from tests.support.simulation import pace
from tests.support.simulation.drawing import QUEUES
from tests.support.simulation.faults import PortError
from tests.support.simulation.scheduler import Step

from weft.core.payload import encode
from weft.core.task import Result, Task
from weft.core.time import MICROSECONDS, micros
from weft.errors import JournalError
from weft.orchestrator.children.mend import mend_children
from weft.orchestrator.collect import collect
from weft.orchestrator.context import begin_step
from weft.orchestrator.recover import rebuild, recover
from weft.orchestrator.service import Orchestrator
from weft.orchestrator.sweep import reclaim, sweep
from weft.orchestrator.triggers.lanes import release_stalled
from weft.orchestrator.triggers.schedule import Scheduler
from weft.orchestrator.waits.answers import tell_untold
from weft.orchestrator.waits.evict import evict
from weft.worker.lease import renew
from weft.worker.service import begin

if TYPE_CHECKING:
    from tests.support.simulation.scheduler import Actor
    from tests.support.simulation.world import World

    from weft.orchestrator.context import Context
    from weft.ports import Ports
    from weft.store.contract import Lease


async def collects(world: World, actor: Actor) -> None:
    """Run one collector of an orchestrator; the other collectors of its process share the orchestrator."""
    process = actor.process
    if process.memory is None:
        process.memory = Orchestrator(world.ports(actor), name=actor.name, grace_seconds=pace.GRACE_SECONDS)
    orchestrator: Orchestrator = process.memory
    takes_over = world.profile.takes_over
    while takes_over:
        begin_step(orchestrator.ports)
        world.invariants.takes_over(actor)
        try:
            await orchestrator.take_over()
            takes_over = False
        except (JournalError, PortError):
            await Step("sleep", pace.PAUSE_AFTER_ERROR_SECONDS)
    while True:
        if orchestrator.context.reading.locked():
            # The lock would wait on an event loop, and there is none.
            await Step("idle", pace.WAIT_TO_READ_SECONDS)
            continue
        begin_step(orchestrator.ports)
        try:
            await collect(orchestrator.context, limit=world.batch, wait_seconds=0)
        except (JournalError, PortError):
            await Step("sleep", pace.PAUSE_AFTER_ERROR_SECONDS)
        if not world.transport.has_messages and not orchestrator.context.fair_queue:
            await Step("idle", 30.0, "messages")
        elif orchestrator.context.fair_queue and not orchestrator.context.fair_queue.is_ready:
            # All of it waits for a definition that another collector brings.
            await Step("idle", pace.WAIT_TO_READ_SECONDS)


async def sweeps(world: World, actor: Actor) -> None:
    actor.process.memory = Orchestrator(world.ports(actor), name=actor.name)
    context = actor.process.memory.context
    ports, nets = context.ports, world.profile.nets
    look_back_at = 0
    while True:
        wait_seconds = pace.SWEEP_SECONDS
        begin_step(ports)
        try:
            next_at = await sweep(context)
            if next_at is not None:
                until = (next_at - world.scheduler.now) / MICROSECONDS
                wait_seconds = min(wait_seconds, max(until, pace.SHORTEST_SWEEP_SECONDS))
            if world.scheduler.now >= look_back_at:
                look_back_at = world.scheduler.now + micros(pace.LOOK_BACK_SECONDS)
                await _look_back(world, context, nets)
            await _rebuild_by_mistake(world, ports)
        except (JournalError, PortError):
            world.hits["sweep met an error"] += 1
        await Step("idle", wait_seconds, "timers")


async def schedules(world: World, actor: Actor) -> None:
    """Start what schedules have due by the clock of this process, up to the last time of the run."""
    ports = world.ports(actor)
    scheduler = Scheduler(ports, grace_seconds=pace.TRIGGER_GRACE_SECONDS)
    while True:
        begin_step(ports)
        now = min(ports.clock.now(), world.triggers.last_at)
        try:
            for row in await ports.journal.due_triggers(now=now, limit=10):
                await scheduler.fire_one(row, now)
        except (JournalError, PortError):
            world.hits["a schedule met an error"] += 1
        await Step("idle", pace.TRIGGER_LOOK_SECONDS)


async def _look_back(world: World, context: Context, nets: frozenset[str]) -> None:
    if "reclaim" in nets:
        await reclaim(context)
    if "rebuild" in nets:
        rebuilt = await recover(context.ports, grace_seconds=pace.GRACE_SECONDS)
        if rebuilt:
            world.hits["sweep: executions the store does not have"] += rebuilt
        if world.profile.waits or world.profile.calls:
            await tell_untold(context.ports)
        if world.profile.groups:
            await release_stalled(context.ports)
        if world.profile.calls:
            await mend_children(context)
    if world.profile.waits or world.profile.calls:
        await evict(context.ports, idle_seconds=pace.EVICT_SECONDS)


async def _rebuild_by_mistake(world: World, ports: Ports) -> None:
    """Rebuild what the store has: a look at the store that failed, or was out of date, leads to that."""
    if world.draw_fault() >= world.amounts["mistaken_rebuild"]:
        return
    active = [row.id for row in world.journal._executions.values() if not row.is_terminal]
    if active:
        world.fault("mistaken rebuild")
        world.losses += 1
        await rebuild(world.rng.choice(active), ports)


async def carry(world: World, actor: Actor) -> None:
    """Bring the messages that are late."""
    while True:
        await Step("idle", world.transport.deliver(), "network")


class _InHand:
    """An attempt that a worker has started."""

    __slots__ = ("ends_at", "held", "is_large", "result", "task")

    def __init__(self, task: Task, held: Lease, ends_at: int, *, is_large: bool) -> None:
        self.task = task
        self.held = held
        self.ends_at = ends_at
        self.is_large = is_large
        # Once its handler has ended; kept until it is reported.
        self.result: Result | None = None


async def work(world: World, actor: Actor) -> None:
    """Take tasks, start them, run them, keep their leases, and report how they ended."""
    ports = world.ports(actor)
    name = f"{actor.name}.{actor.lives}"
    queues = None
    if "queues" in world.profile.more:
        # Each queue has a worker of its own, and that of the second is slow to come: its tasks wait.
        index = int(actor.name[-1]) % len(QUEUES)
        queues = (QUEUES[index],)
        await Step("idle", index * world.rng.choice(pace.LATE_SECONDS))
    hand: list[_InHand] = []
    beat_at = world.scheduler.now + micros(pace.HEARTBEAT_SECONDS)
    while True:
        try:
            if len(hand) < pace.SLOTS:
                deliveries = await ports.transport.fetch(
                    name, queues=queues, limit=pace.SLOTS - len(hand), wait_seconds=0
                )
                for started, held, _ in await begin(deliveries, ports, worker=name):
                    task = await _whole(world, ports, started)
                    if task is None:
                        continue
                    world.invariants.took(task, held)
                    seconds = min(world.rng.choice(pace.WORK_SECONDS), task.timeout_seconds)
                    ends_at = world.scheduler.now + micros(seconds)
                    is_large = world.profile.has_blobs and world.rng.random() < world.large
                    hand.append(_InHand(task, held, ends_at, is_large=is_large))
            await _report(world, ports, hand)
            if world.scheduler.now >= beat_at:
                beat_at = world.scheduler.now + micros(pace.HEARTBEAT_SECONDS)
                lost = {held.nonce for held in await renew([item.held for item in hand], ports.store)}
                hand[:] = [item for item in hand if item.held.nonce not in lost]
            if world.amounts["stop.worker"] and world.draw_fault() < world.amounts["stop.worker"]:
                world.fault("a worker stops in good order")
                await _report(world, ports, hand)
                await ports.store.abandon([item.held for item in hand])
                return
        except PortError:
            await Step("sleep", pace.PAUSE_AFTER_ERROR_SECONDS)
        ends = [item.ends_at for item in hand]
        is_free = len(hand) < pace.SLOTS
        if is_free and world.transport.has_tasks(queues):
            continue
        wake_at = min([*ends, beat_at]) if hand else None
        wait_seconds = 30.0 if wake_at is None else max(0.0, (wake_at - world.scheduler.now) / MICROSECONDS)
        await Step("idle", wait_seconds, "tasks" if is_free else None)


async def _whole(world: World, ports: Ports, task: Task) -> Task | None:
    """Return a task with its config, which may be in the journal; None where that cannot be read now."""
    if task.config_blob is None:
        return task
    try:
        blobs = await ports.journal.blobs([task.config_blob])
    except JournalError:
        world.fault("a large config could not be read")
        return None
    # It is there for as long as the attempt is not over.
    return replace(task, config=blobs[task.config_blob])


async def _report(world: World, ports: Ports, hand: list[_InHand]) -> None:
    """Publish what has ended. What cannot be put into the journal is let go: its lease runs out."""
    now = world.scheduler.now
    for item in [item for item in hand if item.ends_at <= now and item.result is None]:
        result = _result(world, ports, item)
        if item.is_large and result.output is not None:
            try:
                blob = await ports.journal.put_blob(result.output)
            except JournalError:
                world.fault("a large output could not be stored")
                hand.remove(item)
                continue
            result = replace(result, output=None, blob=blob, output_bytes=len(result.output))
        item.result = result
    done = [item for item in hand if item.result is not None]
    if done:
        results = [item.result for item in done if item.result is not None]
        configs = [item.task.config_blob for item in done if item.task.config_blob is not None]
        if configs:
            with suppress(JournalError):
                await ports.journal.drop_blobs(configs)
        await ports.store.report(results)
        hand[:] = [item for item in hand if item not in done]


def _result(world: World, ports: Ports, item: _InHand) -> Result:
    """End an attempt: with an output, an error, too late, or lost with the process that ran it."""
    task, held, rng = item.task, item.held, world.rng
    took_seconds = (item.ends_at - held.started_at) / MICROSECONDS
    output = retry_after_seconds = None
    error: dict[str, Any] | None = None
    is_lost, is_charged = False, True
    if task.timeout_seconds <= pace.SHORT_TIMEOUT_SECONDS and took_seconds >= task.timeout_seconds:
        error = {"code": "timeout", "message": "drawn", "retryable": True}
    elif rng.random() < world.failures:
        error = {"code": "handler_error", "message": "drawn", "retryable": rng.random() < 0.8}
        if rng.random() < 0.2:
            error["details"] = {"type": "RetryAfter"}
            retry_after_seconds = rng.choice([1.0, 6.0])
    elif rng.random() < world.failures / 4:
        is_lost, is_charged = True, rng.random() < 0.5
    else:
        token = f"{task.node_id}/{task.generation}/{task.attempt}/{world.new_id()}"
        output = encode(token, max_bytes=1000)
    result = Result(
        execution_id=task.execution_id,
        generation=task.generation,
        node_id=task.node_id,
        attempt=task.attempt,
        digest=task.digest,
        failures=task.failures,
        losses=task.losses,
        worker=held.worker,
        queued_at=task.queued_at,
        started_at=held.started_at,
        finished_at=ports.clock.now(),
        output=output,
        error=error,
        retry_after_seconds=retry_after_seconds,
        cache_key=task.cache_key if output is not None else None,
        lost=is_lost,
        charged=is_charged,
    )
    world.invariants.ended_attempt(result, task)
    return result
