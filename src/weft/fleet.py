"""The share of one process in a fleet: the same parts as in the embedded engine, on Redis and PostgreSQL."""

from __future__ import annotations

import asyncio
import logging
import os
import random
from contextlib import suppress
from math import ceil
from typing import TYPE_CHECKING, Self

from weft.clock import ServerClock, new_id
from weft.core.time import MICROSECONDS
from weft.envelope import make_signer
from weft.errors import JournalError, SchemaError, StoreError
from weft.feed.redis import RedisFeed
from weft.handlers.http.outbound import Outbound
from weft.handlers.http.webhook import Webhooks
from weft.handlers.secrets import process_mask
from weft.handlers.usercode import UserCode
from weft.journal.postgres.incarnation import Watch
from weft.journal.postgres.journal import PostgresJournal
from weft.limits.contract import Rate
from weft.limits.redis import RedisLimits
from weft.logs import log_failed_executions
from weft.orchestrator.service import Orchestrator
from weft.ports import ApiPorts
from weft.redis.connection import Redis
from weft.settings import Settings, child_environment
from weft.store.contract import StoreOptions
from weft.store.redis import RedisStore
from weft.tracing.opening import open_tracing
from weft.transport.redis.streams import RedisStreams
from weft.worker.isolate import ChildPool
from weft.worker.logs import LogWriter, make_log_writer
from weft.worker.run import Runner
from weft.worker.service import Worker, worker_name

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

    from weft.core.ledger.changes import RecordedEvent
    from weft.handlers.registry import Registry
    from weft.telemetry import Metrics
    from weft.transport.celery import CeleryTransport

log = logging.getLogger("weft.fleet")

ROLES = frozenset({"api", "orchestrator", "worker"})

# How often a server that is away, or a schema that is behind, is looked for.
_LOOK_SECONDS = 1.0
# How often the time is taken from the server, and how often it is asked for it then: one answer may be late.
_FOLLOW_SECONDS = 10.0
_FOLLOW_QUESTIONS = 5
# An orchestrator that stops has at least this long for the results it has read.
_FINISH_SECONDS = 2.0
_OPENING = "it is not open yet"
_AWAY = "it cannot be reached now; the log says why"


class Fleet:
    """Opens the ports and takes up its roles as soon as both servers are there and the schema is current.

    Any number of these share the two servers. ``queues``: those its worker serves; None: every one that it
    has handlers for.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        registry: Registry,
        roles: Collection[str] = ROLES,
        queues: Collection[str] | None = None,
        code: UserCode | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        assert settings.redis_url is not None
        assert settings.database_url is not None
        self.settings = settings
        self.metrics = metrics
        self._clock = ServerClock()
        name = worker_name(new_id)
        self._redis = Redis(settings.redis_url, partitions=settings.partitions, name=f"weft-{name}")
        self._feed = RedisFeed(self._redis)
        self._outbound = Outbound(settings, self._clock)
        self._watch = Watch(self._redis, new_id=new_id, changed=self._forget)
        self._journal = PostgresJournal(
            settings.database_url,
            new_id=new_id,
            bounds=settings.bounds(),
            relaxed=settings.durability == "relaxed",
            watch=self._watch,
            notify=settings.notify_targets(),
        )
        self._webhooks = Webhooks(settings, self._clock) if "orchestrator" in roles else None
        self._transport = self._make_transport(settings)
        self.ports = self._make_ports(settings)
        if metrics is not None:
            self.ports.committed = metrics.committed
            self.ports.out_of_files = metrics.out_of_files
        self.orchestrator = self._make_orchestrator(name) if "orchestrator" in roles else None
        self.worker: Worker | None = None
        self._children: ChildPool | None = None
        self._logs: LogWriter | None = None
        if "worker" in roles:
            self._make_worker(registry, code or UserCode(), name, queues)
        # What keeps each of the two servers from being used, in words for anybody.
        self._faults: dict[str, str | None] = {"journal": _OPENING, "store": _OPENING}
        self._opened = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._drained = False

    def _make_worker(
        self, registry: Registry, code: UserCode, name: str, queues: Collection[str] | None
    ) -> None:
        settings = self.settings
        mask = process_mask(settings.secrets())
        self._logs = make_log_writer(
            settings, self._journal, self._clock, mask=mask, echoes=True, feed=self._feed
        )
        self._children = ChildPool(
            settings.worker_processes,
            code=code,
            grace_seconds=settings.worker_grace_seconds,
            max_payload_bytes=settings.bounds().max_payload_bytes,
            mask=mask,
            environment=child_environment(os.environ),
            logs=self._logs,
        )
        self.worker = Worker(
            self.ports,
            Runner(self.ports, registry, self._children, worker=name, mask=mask, logs=self._logs),
            name=name,
            concurrency=settings.worker_concurrency,
            queues=queues,
            heartbeat_seconds=settings.worker_heartbeat_interval_seconds,
            grace_seconds=settings.worker_grace_seconds,
            max_bytes=settings.process_bytes,
        )

    def _make_orchestrator(self, name: str) -> Orchestrator:
        settings = self.settings
        orchestrator = Orchestrator(
            self.ports,
            name=name,
            # An execution that changed so lately may be on its way into the store, by a living peer.
            grace_seconds=2 * settings.orchestrator_sweep_interval_seconds,
            claim_seconds=settings.orchestrator_stale_claim_interval_seconds,
            retention_seconds=settings.retention_seconds,
            trigger_grace_seconds=settings.trigger_grace_seconds,
            event_retention_seconds=settings.event_retention_seconds,
        )
        self.ports.timers_changed = orchestrator.nudge
        self.ports.trigger_changed = orchestrator.trigger_changed
        return orchestrator

    def _make_transport(self, settings: Settings) -> RedisStreams | CeleryTransport:
        if settings.transport == "auto":
            return RedisStreams(self._redis)
        from weft.transport.celery import CeleryTransport

        return CeleryTransport(
            self._redis,
            broker_url=settings.celery_broker_url,
            grace_seconds=settings.worker_grace_seconds,
        )

    def _make_ports(self, settings: Settings) -> ApiPorts:
        rates = {
            tag: Rate(limit.rate_per_second, limit.burst) for tag, limit in settings.resource_limits.items()
        }
        journal = self._journal
        return ApiPorts(
            store=RedisStore(
                self._redis,
                plans=journal.plan,
                new_id=new_id,
                joint=self._transport.joint,
                options=StoreOptions(
                    window=settings.execution_window,
                    execution_bytes=settings.execution_bytes,
                    lease_seconds=settings.worker_heartbeat_timeout_seconds,
                    reported_seconds=settings.reaper_idle_timeout_seconds,
                    queued_seconds=settings.reaper_idle_timeout_seconds,
                    ttl_seconds=ceil(settings.hot_state_ttl_seconds),
                ),
            ),
            journal=journal,
            catalog=journal,
            transport=self._transport,
            limits=RedisLimits(self._redis, rates),
            clock=self._clock,
            draw=random.random,
            new_id=new_id,
            bounds=settings.bounds(),
            max_deliveries=settings.max_deliveries,
            max_backlog=settings.max_backlog,
            max_child_depth=settings.max_child_depth,
            max_retry_after_seconds=settings.max_retry_after_seconds,
            stale_result_seconds=settings.orchestrator_stale_result_timeout_seconds,
            sweep_seconds=settings.orchestrator_sweep_interval_seconds,
            partitions=settings.partitions,
            dispatches_speculatively=self._transport.joint,
            feed=self._feed,
            outbound=self._outbound,
            send_notification=None if self._webhooks is None else self._webhooks.send,
            notifies_of_all=bool(settings.notify),
            announce=self._on_recorded,
            tracing=open_tracing(self._clock.now),
            incarnation=lambda: None if self._watch.current is None else self._watch.current.id,
            incarnation_began=lambda: self._redis.began_at,
        )

    def replace_code(self, code: UserCode) -> None:
        """Run users' functions as ``code`` has them now: child processes are replaced after what they run."""
        if self._children is not None:
            self._children.replace_code(code)

    # -- start and stop ----------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        self._tasks = [asyncio.create_task(self._open(), name="open")]
        if self.metrics is not None:
            from weft.telemetry import watch_loop

            watching = watch_loop(self.metrics, now=self._clock.monotonic, sleep=self._clock.sleep)
            self._tasks.append(asyncio.create_task(watching, name="watch_loop"))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.drain()
        for task in self._tasks:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        await self._transport.close()
        await self._feed.close()
        await self._journal.close()
        await self._redis.close()

    async def started(self) -> None:
        """Return once it is open and its roles are taken up."""
        await self._opened.wait()

    def faults(self) -> Mapping[str, str | None]:
        """Return what keeps each part of the process from its work, by name; None: nothing does."""
        faults = dict(self._faults)
        waits = None if self._opened.is_set() else "it waits for the servers"
        if self.orchestrator is not None:
            faults["orchestrator"] = waits or self.orchestrator.fault()
        if self.worker is not None:
            faults["worker"] = waits or self.worker.fault()
        return faults

    async def drain(self) -> None:
        """Stop in good order: what runs may end within the grace time, what was read is recorded.

        Redis that refuses writes or does not answer is given up at the end of the grace time. The ports stay
        open: the journal may still be read, and written. Once more does nothing.
        """
        if self._drained:
            return
        self._drained = True
        grace_ends_at = asyncio.get_running_loop().time() + self.settings.worker_grace_seconds
        opening = self._tasks[0]
        if not self._opened.is_set():
            opening.cancel()
            with suppress(asyncio.CancelledError):
                await opening
        if self.worker is not None and self.worker.is_started:
            # First: what it ends meanwhile is recorded here, or by a peer.
            await self.worker.stop()
        if self.orchestrator is not None and self.orchestrator.is_started:
            left_seconds = grace_ends_at - asyncio.get_running_loop().time()
            await self.orchestrator.finish(within_seconds=max(left_seconds, _FINISH_SECONDS))
        if self._children is not None:
            await self._children.close()
        if self._logs is not None:
            await self._logs.close()
        await self._outbound.close()
        if self._webhooks is not None:
            await self._webhooks.close()
        if self.ports.tracing is not None:
            await self.ports.tracing.close()

    async def _open(self) -> None:
        # Each by itself: without the store an API can still do most of its work.
        await asyncio.gather(
            self._reach(self._open_journal, "journal"), self._reach(self._open_store, "store")
        )
        # Each start by itself, and all or nothing: what is repeated has left nothing behind.
        if self.orchestrator is not None:
            await self._reach(self.orchestrator.start, "journal", "store")
        if self.worker is not None:
            await self._reach(self.worker.start)
            await self._announce(self.worker)
        self._opened.set()
        if self.orchestrator is not None:
            self._tasks.append(asyncio.create_task(self._note_position(), name="note_position"))
        while True:
            await asyncio.sleep(_FOLLOW_SECONDS)
            with suppress(StoreError):
                await self._follow()

    async def _note_position(self) -> None:
        """Keep how far the database's log has come: a copy restored later is known by an earlier position."""
        while True:
            await asyncio.sleep(self.settings.orchestrator_sweep_interval_seconds)
            with suppress(JournalError, StoreError):
                await self._journal.note_position()

    def _forget(self) -> None:
        if self.orchestrator is not None:
            self.orchestrator.forget()

    async def _reach(self, step: Callable[[], Awaitable[None]], *names: str) -> None:
        """Do a step of the opening as often as it takes; meanwhile it is said which server is in its way."""
        told = ""
        while True:
            try:
                await step()
            except (JournalError, StoreError) as error:
                if told != str(error):
                    log.warning("fleet.waiting", extra={"error": str(error)})
                told = str(error)
                # The message of most errors may name an address, which is not for anybody who asks.
                fault = told if isinstance(error, SchemaError) else _AWAY
                self._faults["store" if isinstance(error, StoreError) else "journal"] = fault
                await asyncio.sleep(_LOOK_SECONDS)
            except Exception:
                # Our own bug, or a port's: said loudly, or the process would wait and nobody know for what.
                log.exception("fleet.broken")
                await asyncio.sleep(_LOOK_SECONDS)
            else:
                self._faults |= dict.fromkeys(names)
                return

    async def _open_journal(self) -> None:
        await self._journal.open()
        self.ports.sign = make_signer(await self._journal.signing_key())

    async def _open_store(self) -> None:
        await self._redis.open()
        await self._follow()
        await self._feed.open()

    @staticmethod
    async def _announce(worker: Worker) -> None:
        """Show the worker now; where that fails, its first heartbeat does."""
        try:
            await worker.announce()
        except StoreError as error:
            log.warning("store.unavailable", extra={"error": str(error)})
        except Exception:
            log.exception("fleet.broken")

    async def _follow(self) -> None:
        """Take the time from the server."""
        for _ in range(_FOLLOW_QUESTIONS):
            asked_at = self._clock.monotonic()
            seconds, micros = await self._redis.call("TIME")
            self._clock.follow(int(seconds) * MICROSECONDS + int(micros), asked_at=asked_at)

    def _on_recorded(self, recorded_events: Sequence[RecordedEvent]) -> None:
        if self.metrics is not None:
            self.metrics.receive(recorded_events)
            # A process that counts is a server.
            log_failed_executions(recorded_events, trace_id=self.ports.trace_id)
        if self.ports.tracing is not None:
            self.ports.tracing.receive(recorded_events)
        if not self._feed.has_listeners:
            return
        for recorded_event in recorded_events:
            if recorded_event.execution is not None and recorded_event.history:
                self._feed.publish(recorded_event.history, namespace=recorded_event.execution.namespace)
