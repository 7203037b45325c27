"""The embedded engine: all parts in one process, on memory adapters, with or without a journal on disk."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any, Self

import msgspec

from weft.clock import RealClock, new_id
from weft.core.event import RetryRequested
from weft.core.payload import MAX_DOCUMENT_VALUES, encode
from weft.core.state import SETTLED, TERMINAL, ExecutionState, NodeState
from weft.errors import NotFoundError
from weft.feed.memory import MemoryFeed
from weft.handlers.http.outbound import Outbound
from weft.handlers.http.webhook import Webhooks
from weft.handlers.secrets import process_mask
from weft.journal.contract import LOCAL_ACTOR
from weft.journal.memory import MemoryJournal
from weft.limits.contract import Rate
from weft.limits.memory import MemoryLimits
from weft.logs import log_failed_executions
from weft.lru import Lru
from weft.orchestrator import control
from weft.orchestrator.recover import rebuild
from weft.orchestrator.service import Orchestrator
from weft.orchestrator.submit import ResolvedDefinition, SubmitOptions, make_submission, read_input, submit
from weft.ports import ApiPorts, Ports
from weft.settings import Settings
from weft.store.contract import StoreOptions
from weft.store.memory import MemoryStore
from weft.transport.inprocess import InProcessTransport
from weft.views.describe import describe_execution, describe_node, explain_node
from weft.worker.inprocess import InProcess
from weft.worker.logs import make_log_writer
from weft.worker.run import Runner
from weft.worker.service import Worker, worker_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from weft.clock import Clock
    from weft.core.ledger.changes import RecordedEvent
    from weft.core.payload import Json
    from weft.core.rows import ExecutionRow, NodeRow
    from weft.definition.plan import Plan
    from weft.handlers.registry import Registry
    from weft.handlers.usercode import UserCode
    from weft.journal.contract import JournalAdapter
    from weft.limits.contract import Limits
    from weft.masking import Mask
    from weft.telemetry import Metrics
    from weft.tracing.contract import Tracing
    from weft.worker.call import Caller
    from weft.worker.logs import LogWriter, ShownLine


_UNSETTLED = tuple(state for state in NodeState if state not in SETTLED)
_SHOWN_RUNNING = 10
# Of so many executions, each of so many bytes at most, the end is remembered.
_REMEMBERED_ENDS = 10_000
_REMEMBERED_BYTES = 4096
# Larger outputs of settled nodes are read from the data folder where a node needs them.
_INLINE_OUTPUT_BYTES = 16 * 1024
# While an engine drains, what has ended is recorded this often.
_DRAIN_SECONDS = 0.2


class Progress:
    """The progress of an execution, kept beside the loop: a hint, and cheap to read."""

    def __init__(self, total: int) -> None:
        self.counts = dict.fromkeys(NodeState, 0)
        self.counts[NodeState.PENDING] = total
        self.retried = 0
        self.failures: list[tuple[str, str]] = []
        # A few of those that run now.
        self.running: Sequence[str] = ()
        self._settled: dict[str, NodeState] = {}
        self._waiting: set[str] = set()

    def show_in_flight(self, running: Sequence[str], in_flight: int) -> None:
        unsettled = sum(self.counts[state] for state in _UNSETTLED)
        self.running = running[:_SHOWN_RUNNING]
        self.counts[NodeState.RUNNING] = len(running)
        self.counts[NodeState.QUEUED] = in_flight - len(running)
        self.counts[NodeState.PENDING] = unsettled - in_flight - self.counts[NodeState.WAITING]

    def see(self, rows: Sequence[NodeRow]) -> None:
        for row in rows:
            if row.state is None:
                self.retried += row.ended == row.attempt - 1 and row.ended > 0
                if row.wait is not None and row.node_id not in self._waiting:
                    self._waiting.add(row.node_id)
                    self.counts[NodeState.PENDING] -= 1
                    self.counts[NodeState.WAITING] += 1
            elif row.node_id not in self._settled:
                self._settled[row.node_id] = row.state
                before = NodeState.WAITING if row.node_id in self._waiting else NodeState.PENDING
                self.counts[before] -= 1
                self.counts[row.state] += 1
                if row.state is NodeState.FAILED:
                    self.failures.append((row.node_id, str((row.error or {}).get("message", ""))))


class EngineParts(msgspec.Struct, frozen=True):
    """Parts that an engine is given in place of its own."""

    # Another time than the real one, which passes on the loop alone.
    clock: Clock | None = None
    # Makes the rates for the engine's clock; without it they are the settings'.
    limits: Callable[[Clock], Limits] | None = None
    # Runs tasks.
    runner: Callable[[Ports], Runner] | None = None
    # Makes another journal than ``data`` says; this process has to be the only one on it. It is given what
    # the journal calls when its database has lost commits.
    journal: Callable[[Callable[[], None]], JournalAdapter] | None = None
    # Of the child processes; without it, that of this process.
    environment: Mapping[str, str] | None = None
    # Whether it notifies those who asked (NOTIFY, and the ``notify`` of a workflow), as servers do with a
    # journal on disk.
    notifies: bool = False
    # Is given what nodes print and log, as it comes.
    show: Callable[[Sequence[ShownLine]], None] | None = None
    # Opens what exports spans, for the engine's time; without it, or where it returns None, nobody does.
    tracing: Callable[[Callable[[], int]], Tracing | None] | None = None


NO_PARTS = EngineParts()


class Engine:
    """Runs executions in this process.

    ``data``: a folder for the journal; without one nothing is kept. ``code``: users' code runs in child
    processes, which load this; without it users' code runs in this process. ``listen``: hears what is
    recorded. ``recovers``: whether it takes up all that an earlier process left in the folder, as a server
    does. A script does not: it may lack the functions of another's workflow, and would fail it. ``metrics``:
    counts what happens, and notices when the loop stands still.
    """

    def __init__(
        self,
        *,
        registry: Registry,
        settings: Settings | None = None,
        data: Path | None = None,
        code: UserCode | None = None,
        listen: Callable[[Sequence[RecordedEvent]], None] | None = None,
        recovers: bool = True,
        metrics: Metrics | None = None,
        parts: EngineParts = NO_PARTS,
    ) -> None:
        self.settings = settings = settings or Settings()
        # Futures of callers that wait for an end, and the last ends: most callers ask soon after an end.
        self._waiting: dict[str, asyncio.Future[ExecutionRow]] = {}
        self._ended: Lru[str, ExecutionRow] = Lru(_REMEMBERED_ENDS)
        self._progress: dict[str, Progress] = {}
        self._listen = listen
        self.metrics = metrics
        self._watching: asyncio.Task[None] | None = None
        self._drained = False
        # When the database last lost commits; 0: not since this process has it.
        self._began_at = 0
        self.ports = self._make_ports(settings, data, parts)
        if metrics is not None:
            self.ports.committed = metrics.committed
            self.ports.out_of_files = metrics.out_of_files
        self.orchestrator = Orchestrator(
            self.ports,
            name="orchestrator",
            recovers=recovers,
            retention_seconds=settings.retention_seconds,
            trigger_grace_seconds=settings.trigger_grace_seconds,
            event_retention_seconds=settings.event_retention_seconds,
        )
        self.ports.timers_changed = self.orchestrator.nudge
        self.ports.trigger_changed = self.orchestrator.trigger_changed
        mask = process_mask(settings.secrets())
        # In this process, with nothing kept, nobody could read the lines: then they are not caught.
        is_read = code is not None or data is not None or bool(parts.journal or parts.show)
        self._logs = self._make_logs(mask, parts, echoes=code is not None) if is_read else None
        self._caller = self._make_caller(registry, settings, code, mask=mask, environment=parts.environment)
        name = worker_name(new_id)
        runner = parts.runner
        self.worker = Worker(
            self.ports,
            runner(self.ports)
            if runner
            else Runner(self.ports, registry, self._caller, worker=name, mask=mask, logs=self._logs),
            name=name,
            concurrency=settings.worker_concurrency,
            heartbeat_seconds=settings.worker_heartbeat_interval_seconds,
            grace_seconds=settings.worker_grace_seconds,
            max_bytes=settings.process_bytes,
        )

    def _make_logs(self, mask: Mask, parts: EngineParts, *, echoes: bool) -> LogWriter | None:
        ports = self.ports
        return make_log_writer(
            self.settings,
            ports.journal,
            ports.clock,
            mask=mask,
            show=parts.show,
            echoes=echoes,
            feed=ports.feed,
        )

    def _make_ports(self, settings: Settings, data: Path | None, parts: EngineParts) -> ApiPorts:
        clock = parts.clock or RealClock()
        transport = self._transport = InProcessTransport(now=clock.now)
        self._store = MemoryStore(
            now=clock.now,
            new_id=new_id,
            publish=transport.append,
            send=transport.put,
            wake=transport.append,
            options=StoreOptions(
                window=settings.execution_window,
                execution_bytes=settings.execution_bytes,
                process_bytes=settings.process_bytes,
                # The journal of a data folder reads them again where they are needed.
                inline_output_bytes=_INLINE_OUTPUT_BYTES if data and parts.journal is None else None,
                lease_seconds=settings.worker_heartbeat_timeout_seconds,
                reported_seconds=settings.reaper_idle_timeout_seconds,
                # One process owns the data folder, so nothing of an earlier process is still running.
                orphaned_seconds=0,
            ),
        )
        self._outbound = Outbound(settings, clock)
        self._webhooks = Webhooks(settings, clock) if parts.notifies else None
        bounds = settings.bounds()
        if parts.journal is None:
            journal = self._open_journal(data, clock, settings, notifies=parts.notifies)
        else:
            journal = parts.journal(self._lose_hot_state)
        ports = ApiPorts(
            store=self._store,
            journal=journal,
            catalog=journal,
            transport=transport,
            limits=self._make_limits(settings, clock) if parts.limits is None else parts.limits(clock),
            clock=clock,
            draw=random.random,
            new_id=new_id,
            bounds=bounds,
            max_deliveries=settings.max_deliveries,
            max_backlog=settings.max_backlog,
            max_child_depth=settings.max_child_depth,
            max_retry_after_seconds=settings.max_retry_after_seconds,
            stale_result_seconds=settings.orchestrator_stale_result_timeout_seconds,
            sweep_seconds=settings.orchestrator_sweep_interval_seconds,
            feed=MemoryFeed(),
            outbound=self._outbound,
            announce=self._on_recorded,
            rows_at_hand=self._store.rows_at_hand,
            tracing=None if parts.tracing is None else parts.tracing(clock.now),
            incarnation=None if parts.journal is None else lambda: str(self._began_at),
            incarnation_began=lambda: self._began_at,
            send_notification=None if self._webhooks is None else self._webhooks.send,
            notifies_of_all=self._webhooks is not None and bool(settings.notify),
        )
        if data is None and parts.journal is None:
            # In memory a blob would lie no farther away than the row that names it.
            ports.inline_bytes = bounds.max_payload_bytes
            ports.stores_configs = False
        return ports

    @staticmethod
    def _make_limits(settings: Settings, clock: Clock) -> Limits:
        rates = {
            tag: Rate(limit.rate_per_second, limit.burst) for tag, limit in settings.resource_limits.items()
        }
        return MemoryLimits(rates, now=clock.now)

    @staticmethod
    def _open_journal(
        data: Path | None, clock: Clock, settings: Settings, *, notifies: bool
    ) -> JournalAdapter:
        if data is None:
            return MemoryJournal(now=clock.now, new_id=new_id, bounds=settings.bounds())
        from weft.journal.sqlite.journal import SqliteJournal

        return SqliteJournal(
            data,
            now=clock.now,
            new_id=new_id,
            bounds=settings.bounds(),
            relaxed=settings.durability == "relaxed",
            notify=settings.notify_targets() if notifies else None,
        )

    def _make_caller(
        self,
        registry: Registry,
        settings: Settings,
        code: UserCode | None,
        *,
        mask: Mask,
        environment: Mapping[str, str] | None,
    ) -> Caller:
        if code is None:
            return InProcess(
                registry,
                clock=self.ports.clock,
                max_payload_bytes=settings.bounds().max_payload_bytes,
                grace_seconds=settings.worker_grace_seconds,
                logs=self._logs,
            )
        from weft.worker.isolate import ChildPool

        return ChildPool(
            settings.worker_processes,
            code=code,
            grace_seconds=settings.worker_grace_seconds,
            max_payload_bytes=settings.bounds().max_payload_bytes,
            mask=mask,
            environment=environment,
            logs=self._logs,
        )

    async def __aenter__(self) -> Self:
        await self.ports.journal.open()
        await self.worker.start()
        await self.orchestrator.start()
        if self.metrics is not None:
            from weft.telemetry import watch_loop

            clock = self.ports.clock
            self._watching = asyncio.create_task(
                watch_loop(self.metrics, now=clock.now, sleep=clock.sleep), name="watch_loop"
            )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._watching is not None:
            self._watching.cancel()
        await self.drain()
        await self.ports.journal.close()

    async def drain(self) -> None:
        """Hand nothing more out, let what runs end within the grace time, and record all that has ended.

        The journal stays open: it may still be read, and written. Once more does nothing.
        """
        if self._drained:
            return
        self._drained = True
        await self.orchestrator.stop()
        stopping = asyncio.create_task(self.worker.stop())
        while not stopping.done():
            # What has ended is recorded while the others end: a kill during the grace time loses none of it.
            await self.orchestrator.drain()
            await asyncio.wait((stopping,), timeout=_DRAIN_SECONDS)
        await stopping
        await self.orchestrator.drain()
        await self.orchestrator.observe_stop()
        await self._caller.close()
        if self._logs is not None:
            await self._logs.close()
        await self._outbound.close()
        if self._webhooks is not None:
            await self._webhooks.close()
        if self.ports.tracing is not None:
            await self.ports.tracing.close()

    def replace_code(self, code: UserCode) -> None:
        """Run users' functions as ``code`` has them now: child processes are replaced after what they run.

        Only an engine that was given code can do that: functions in this process stay what they are.
        """
        from weft.worker.isolate import ChildPool

        assert isinstance(self._caller, ChildPool)
        self._caller.replace_code(code)

    async def started(self) -> None:
        """Announce the worker to the API and the console; it takes tasks already."""
        await self.worker.announce()

    def faults(self) -> Mapping[str, str | None]:
        """Return what keeps the orchestrator and the worker from their work, by name; None: nothing does."""
        return {"orchestrator": self.orchestrator.fault(), "worker": self.worker.fault()}

    def _lose_hot_state(self) -> None:
        """Drop what runs ahead of a database that has lost commits; recovery rebuilds it from the journal.

        Nothing here waits, so no call finds a part of it. What the workers have in hand goes on, and its
        heartbeats and results are judged as in a fleet (``without_orphans`` in ``orchestrator/collect.py``).
        """
        self._began_at = self.ports.clock.now()
        self._store.begin_incarnation()
        self._transport.drop_tasks()
        self.worker.drop_deferred()
        self._ended.clear()
        self.orchestrator.forget()

    # -- executions --------------------------------------------------------------------------------

    async def submit(
        self,
        plan: Plan,
        *,
        document: Json,
        input: Json = None,  # noqa: A002 - the word of the interface
        labels: Mapping[str, str] | None = None,
        priority: str = "normal",
        execution_id: str | None = None,
    ) -> str:
        """Accept an execution and give its id, a new one where none is given.

        Raises InputError where the input does not fit.
        """
        execution_id = execution_id or new_id()
        self.watch(execution_id, total=len(plan.nodes))
        await self.submit_many(
            plan,
            document=document,
            inputs=[input],
            labels=labels,
            priority=priority,
            execution_ids=[execution_id],
        )
        return execution_id

    async def submit_many(
        self,
        plan: Plan,
        *,
        document: Json,
        inputs: Sequence[Json],
        labels: Mapping[str, str] | None = None,
        priority: str = "normal",
        execution_ids: Sequence[str] | None = None,
    ) -> list[str]:
        """Accept many executions of one plan in one commit: one bad input, none of them."""
        body = encode(document, max_bytes=self.ports.bounds.max_body_bytes, max_values=MAX_DOCUMENT_VALUES)
        source = ResolvedDefinition(plan=plan, document=body, workflow=plan.definition.name)
        options = SubmitOptions(labels=dict(labels or {}), priority=priority)
        submissions = [
            make_submission(execution_id, source, await self._input(given, plan), options)
            for execution_id, given in zip(execution_ids or [new_id() for _ in inputs], inputs, strict=True)
        ]
        return [row.id for row in await submit(submissions, self.ports)]

    async def _input(self, given: Json, plan: Plan) -> bytes:
        return await read_input({} if given is None else given, plan, self.ports.bounds)

    def watch(self, execution_id: str, *, total: int) -> None:
        """Keep the progress of an execution, from now on."""
        self._progress[execution_id] = Progress(total)

    async def wait(self, execution_id: str) -> ExecutionRow:
        """Return once the execution is terminal."""
        row = self._ended.get(execution_id)
        if row is None:
            # Listen first, then look: the end may come while the journal is being asked.
            end = self._waiting.get(execution_id)
            if end is None:
                end = self._waiting[execution_id] = asyncio.get_running_loop().create_future()
            row = await self._row(execution_id)
            if not row.is_terminal:
                return await asyncio.shield(end)
            self._waiting.pop(execution_id, None)
        return row

    def forget(self, execution_id: str) -> None:
        """Let go of what is kept in memory of an execution that is terminal and needed no more."""
        self._ended.drop(execution_id)
        self._progress.pop(execution_id, None)
        if isinstance(self.ports.journal, MemoryJournal):
            self.ports.journal.forget(execution_id)

    def progress(self, execution_id: str) -> Progress:
        """Return the progress of an execution that was submitted or watched here."""
        progress = self._progress[execution_id]
        running, in_flight = self._store.in_hand(execution_id)
        progress.show_in_flight(running, in_flight)
        return progress

    async def go_on(self, plan: Plan, *, input: Json = None) -> str | None:  # noqa: A002 - as in submit
        """Take up an execution of the same definition and input that an earlier process did not finish.

        Gives its id, or None where there is none.
        """
        given = await self._input(input, plan)
        journal = self.ports.journal
        active = await journal.active(not_updated_since=self.ports.clock.now())
        for execution_id in [*(one.id for one in active), *await journal.evicted()]:
            row = await self._row(execution_id)
            if row.digest == plan.digest and row.input == given:
                self.watch(row.id, total=len(plan.nodes))
                (epoch,) = await self.ports.store.epochs([row.id])
                if epoch is None:
                    await rebuild(row.id, self.ports)
                return row.id
        return None

    async def describe(self, execution_id: str) -> dict[str, Any]:
        return await describe_execution(execution_id, self.ports)

    async def describe_node(self, execution_id: str, node_id: str) -> dict[str, Any]:
        return await describe_node(execution_id, node_id, self.ports)

    async def explain(self, execution_id: str, node_id: str) -> dict[str, Any]:
        return await explain_node(execution_id, node_id, self.ports, workers=None)

    async def cancel(self, execution_id: str) -> None:
        await control.cancel(execution_id, self.ports, actor=LOCAL_ACTOR)

    async def pause(self, execution_id: str) -> None:
        await control.pause(execution_id, self.ports, actor=LOCAL_ACTOR)

    async def resume(self, execution_id: str) -> None:
        await control.resume(execution_id, self.ports, actor=LOCAL_ACTOR)

    async def retry(self, execution_id: str, *, nodes: Sequence[str] = ()) -> None:
        row = await control.retry(execution_id, self.ports, nodes=tuple(nodes), actor=LOCAL_ACTOR)
        plan = await self.ports.journal.plan(row.digest)
        assert plan is not None
        self.watch(execution_id, total=len(plan.nodes))

    async def _row(self, execution_id: str) -> ExecutionRow:
        row = await self.ports.journal.execution(execution_id)
        if row is None:
            raise NotFoundError(f"there is no execution {execution_id}")
        return row

    def _on_recorded(self, recorded_events: Sequence[RecordedEvent]) -> None:
        if self._listen is not None:
            self._listen(recorded_events)
        if self.metrics is not None:
            self.metrics.receive(recorded_events)
            # A process that counts is a server.
            log_failed_executions(recorded_events, trace_id=self.ports.trace_id)
        if self.ports.tracing is not None:
            self.ports.tracing.receive(recorded_events)
        feed = self.ports.feed
        if feed is not None and not feed.has_listeners:
            feed = None
        watched = self._progress
        for recorded_event in recorded_events:
            execution = recorded_event.execution
            if execution is None:
                continue
            if feed is not None and recorded_event.history:
                feed.publish(recorded_event.history, namespace=execution.namespace)
            if watched and (progress := watched.get(execution.id)) is not None:
                progress.see(recorded_event.rows)
            if execution.state in TERMINAL:
                self._end(execution)
                if execution.state is not ExecutionState.COMPLETED:
                    # What still runs of it is told to stop with the next heartbeat: that may as well be now,
                    # or rather when the process that recorded this has closed it in the store.
                    asyncio.get_running_loop().call_soon(self.worker.beat)
            elif isinstance(recorded_event.event, RetryRequested):
                self._ended.drop(execution.id)

    def _end(self, execution: ExecutionRow) -> None:
        end = self._waiting.pop(execution.id, None)
        if end is not None and not end.done():
            end.set_result(execution)
        if len(execution.input) + len(execution.output or b"") <= _REMEMBERED_BYTES:
            self._ended.put(execution.id, execution)
