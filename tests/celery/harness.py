"""A fleet whose workers are Celery's: real processes, on a broker that is Redis or RabbitMQ."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from celery import Celery
from kombu import Connection
from tests.fleet.harness import Member, RunningFleet
from tests.operation.serving import PATIENCE_SECONDS
from tests.support.servers.redis import RedisServer

from weft.handlers.registry import default_registry
from weft.transport.celery import celery_queue

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.support.servers.postgres import PostgresServer

# A session of its own, so that all its processes can be killed at once.
CELERY = ("setsid", str(Path(sys.executable).with_name("celery")))
QUIET = ("--without-mingle", "--without-gossip", "--without-heartbeat", "-l", "INFO")
# Beside the handlers' own.
QUEUES = ("mortal", "frail", "slow")

_LOOK_SECONDS = 0.02


class CeleryWorker(Member):
    """``celery worker``, with the processes that it forked."""

    role = "celery"

    async def ready(self) -> str:
        await self.said(" ready.")
        return ""

    async def said(self, words: str, *, times: int = 1) -> None:
        """Return once it has logged a line with these words, so many times."""
        async with asyncio.timeout(PATIENCE_SECONDS), self._wrote:
            await self._wrote.wait_for(lambda: self._ended or self.count(words) >= times)
        assert self.count(words) >= times, f"it ended: {self.log}"

    def count(self, words: str) -> int:
        return sum(words in str(line.get("text", "")) for line in self.log)

    async def kill(self) -> None:
        """End all its processes as a power cut does."""
        if self.process.returncode is None:
            os.killpg(self.pid, signal.SIGKILL)
        await self.ended()

    def has(self, pid: int) -> bool:
        """True if a process is one of those that it forked."""
        try:
            status = Path(f"/proc/{pid}/status").read_text()
        except FileNotFoundError:
            return False
        return f"PPid:\t{self.pid}\n" in status


class CeleryFleet(RunningFleet):
    """Members as in any fleet, and Celery's workers beside them."""

    def __init__(self, redis_url: str, database_url: str, folder: Path, *, broker_url: str) -> None:
        self.broker_url = broker_url
        self.celery: list[CeleryWorker] = []
        self.client = Celery("client", broker=broker_url, backend=redis_url, set_as_current=False)
        settings = {"WEFT_TRANSPORT": "celery", "WEFT_CELERY_BROKER_URL": broker_url}
        super().__init__(redis_url, database_url, folder, settings=settings)

    async def work(
        self,
        *queues: str,
        app: str = "weft.celery",
        pool: str = "prefork",
        concurrency: int = 2,
        **settings: str,
    ) -> CeleryWorker:
        """Start a worker of Celery, for these queues alone or for all it has handlers for."""
        worker = await self.launch_celery(*queues, app=app, pool=pool, concurrency=concurrency, **settings)
        await worker.ready()
        return worker

    async def launch_celery(
        self,
        *queues: str,
        app: str = "weft.celery",
        pool: str = "prefork",
        concurrency: int = 2,
        **settings: str,
    ) -> CeleryWorker:
        flags = ["-A", app, "worker", "--pool", pool, "-c", str(concurrency), *QUIET]
        flags += ["-n", f"w{len(self.celery)}@localhost"]
        if queues:
            flags += ["-Q", ",".join(f"weft.{name}" for name in queues)]
        given = {**self._settings, "PYTHONWARNINGS": "ignore", **settings}
        worker = await CeleryWorker.launch(*flags, command=CELERY, settings=given, folder=self._folder)
        self.celery.append(worker)
        return worker

    def environment(self) -> dict[str, str]:
        """Return the environment of whoever is to find this fleet."""
        return {**os.environ, **self._settings}

    def state_of(self, attempt: str) -> str:
        """Return what Celery says of an attempt: EXECUTION:NODE:ATTEMPT."""
        return str(self.client.AsyncResult(attempt).state)

    async def running_in(self, execution_id: str, node_id: str) -> int:
        """Return the process that runs a node, once one does."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                shown = await self.api.get(f"/v1/executions/{execution_id}/nodes/{node_id}")
                if shown["state"] == "RUNNING":
                    return int(shown["worker"].rsplit("-", 2)[1])
                await asyncio.sleep(_LOOK_SECONDS)

    def tell(self) -> None:
        super().tell()
        for worker in self.celery:
            print(f"--- celery {worker.pid}: {worker.process.returncode}")
            for line in worker.log:
                print(f"    {line.get('text', line)}")

    async def _end(self) -> None:
        for worker in self.celery:
            await worker.kill()
        await super()._end()


@asynccontextmanager
async def celery_fleet(
    postgres: PostgresServer, template: str, folder: Path, *, broker_url: str | None = None
) -> AsyncIterator[CeleryFleet]:
    """Have a fleet without members yet, with a Redis and a database of its own.

    Its broker is another database of that Redis, or a server that others use too.
    """
    name = f"{template}_{folder.name}"
    database_url = postgres.create_database(name, template=template)
    if broker_url is not None:
        named = map(celery_queue, (*default_registry().names(), *QUEUES))
        empty(broker_url, *(queue.name for queue in named), "weft-batches")
    try:
        with RedisServer() as server:
            fleet = CeleryFleet(server.url, database_url, folder, broker_url=broker_url or server.url_of(1))
            async with fleet:
                yield fleet
    finally:
        postgres.drop_database(name)


def empty(broker_url: str, *queues: str) -> None:
    """Remove queues from a broker: another test has left them."""
    with Connection(broker_url) as connection, connection.channel() as channel:
        for name in queues:
            channel.queue_delete(name)
