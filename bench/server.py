"""A server in a process of its own, asked over REST, and what it costs at rest."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp

from bench import graphs
from bench.figure import Figure, at_least, at_most
from bench.run import run, run_loop

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_READY_SECONDS = 30.0
_CLIENTS = 64
_IDLE_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Server:
    url: str
    pid: int

    def memory_mb(self) -> float:
        """Return the memory of the process and its children."""
        return sum(resident_bytes(pid) for pid in (self.pid, *children(self.pid))) / 1e6

    def cpu_seconds(self) -> float:
        return sum(cpu_seconds(pid) for pid in (self.pid, *children(self.pid)))

    def written_bytes(self) -> int:
        lines = Path(f"/proc/{self.pid}/io").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("write_bytes:"))


@contextmanager
def running(**settings: str) -> Iterator[Server]:
    """Run ``weft up`` on a folder of its own, as a user would."""
    # Beside the sources and not in /tmp, which may be a file system in memory.
    folder = Path(tempfile.mkdtemp(prefix=".bench-", dir=Path(__file__).parent))
    port = free_port()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("WEFT_")}
    environment |= {f"WEFT_{name}": value for name, value in settings.items()}
    process = subprocess.Popen(
        [sys.executable, "-m", "weft.cli.main", "up", "--port", str(port), "--data", str(folder)],
        env=environment,
        cwd=folder,
        stderr=subprocess.DEVNULL,
    )
    try:
        server = Server(f"http://127.0.0.1:{port}", process.pid)
        run_loop(wait_until_ready(server.url, process))
        yield server
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)
        shutil.rmtree(folder)


def rest() -> Iterator[Figure]:
    """Submits one by one and in batches, and W3 by batches beside the same in one process."""
    with running() as server:
        singles = run_loop(_submit_singly(server.url, 6000))
        yield Figure(
            workload="rest",
            what=f"single submits, {_CLIENTS} clients",
            value=singles,
            unit="/s",
            target=at_least(1500),
        )
    with running() as server:
        accepted, _ = run_loop(run_batches(server.url, graphs.chain(1), sizes=[5000] * 3))
        yield Figure(
            workload="rest", what="batch submits", value=accepted, unit="exec/s", target=at_least(5000)
        )
    document = graphs.diamond()
    within = max(run(document, executions=5000).nodes_per_second for _ in range(2))
    with running() as server:
        _, nodes = run_loop(run_batches(server.url, document, sizes=[5000, 5000]))
    yield Figure(workload="rest", what="W3 by batches, 5,000 executions", value=nodes, unit="nodes/s")
    yield Figure(workload="rest", what="W3 within one process", value=within, unit="nodes/s")
    yield Figure(
        workload="rest",
        what="W3 by batches, of the same within one process",
        value=nodes / within,
        unit="×",
        target=at_least(0.6),
    )


def http() -> Iterator[Figure]:
    """Nodes that call the recording service, 200 at a time."""
    from weft.testing.recording_service import RecordingService

    with (
        RecordingService() as service,
        running(WORKER_CONCURRENCY="200", HTTP_ALLOW="127.0.0.1") as server,
    ):
        document = _callers(service.url, 4000)
        best = max(run_loop(_execute(server.url, document)) for _ in range(3))
    yield Figure(
        workload="http",
        what="calls, 200 at a time",
        value=best,
        unit="calls/s",
        target=at_least(3000),
    )


def idle() -> Iterator[Figure]:
    """What a server costs that has nothing to do."""
    with running() as server:
        time.sleep(2)  # what the start has left to do
        cpu, written = server.cpu_seconds(), server.written_bytes()
        time.sleep(_IDLE_SECONDS)
        share = (server.cpu_seconds() - cpu) / _IDLE_SECONDS * 100
        written = server.written_bytes() - written
        yield Figure(workload="idle", what="memory", value=server.memory_mb(), unit="MB", target=at_most(120))
        yield Figure(workload="idle", what="CPU", value=share, unit="%", target=at_most(1))
        yield Figure(workload="idle", what="written", value=written, unit="bytes", target=at_most(0))


# --- What the clients do.


async def _submit_singly(url: str, count: int) -> float:
    """Start executions one by one, from many clients at once; give how many a second were accepted."""
    async with aiohttp.ClientSession(url) as session:
        await _deploy(session, graphs.chain(1))
        left = iter(range(count))

        async def submit() -> None:
            for _ in left:
                async with session.post("/v1/workflows/bench/executions", json={"input": {}}) as answer:
                    assert answer.status == 202, await answer.text()
                    await answer.read()

        begun = time.perf_counter()
        await asyncio.gather(*(submit() for _ in range(_CLIENTS)))
        return count / (time.perf_counter() - begun)


async def run_batches(url: str, document: dict[str, Any], *, sizes: list[int]) -> tuple[float, float]:
    """Run batches one after the other; give the best rate of accepted executions, and of nodes run."""
    async with aiohttp.ClientSession(url) as session:
        await _deploy(session, document)
        accepted, ran = 0.0, 0.0
        for size in sizes:
            begun = time.perf_counter()
            body = {"workflow": document["name"], "inputs": [{"n": n} for n in range(size)]}
            async with session.post("/v1/batches", json=body) as answer:
                assert answer.status == 202, await answer.text()
                batch = await answer.json()
            accepted = max(accepted, size / (time.perf_counter() - begun))
            while batch["state"] != "COMPLETED":
                await asyncio.sleep(0.1)
                async with session.get(f"/v1/batches/{batch['id']}") as answer:
                    batch = await answer.json()
            ran = max(ran, size * len(document["nodes"]) / (time.perf_counter() - begun))
            assert batch["counts"]["COMPLETED"] == size
        return accepted, ran


async def _execute(url: str, document: dict[str, Any]) -> float:
    """Run one execution; give its nodes a second, by its own times."""
    async with aiohttp.ClientSession(url) as session:
        begun = time.perf_counter()
        async with session.post("/v1/executions?wait=120", json={"definition": document}) as answer:
            execution = await answer.json()
        assert execution["state"] == "COMPLETED", execution.get("error")
        return len(document["nodes"]) / (time.perf_counter() - begun)


async def _deploy(session: aiohttp.ClientSession, document: dict[str, Any]) -> None:
    async with session.post("/v1/workflows", json=document) as answer:
        assert answer.status in (200, 201), await answer.text()


def _callers(url: str, count: int) -> dict[str, Any]:
    config = {"url": f"{url}/call", "method": "POST", "body": {"n": 1}}
    nodes = [{"id": f"c{i}", "handler": "call_external_service", "config": config} for i in range(count)]
    return {"name": "callers", "nodes": nodes, "output": None}


# --- The process.


async def wait_until_ready(url: str, process: subprocess.Popen[bytes]) -> None:
    async with aiohttp.ClientSession(url) as session, asyncio.timeout(_READY_SECONDS):
        while True:
            assert process.poll() is None, "weft up has ended; run it by hand to see why"
            try:
                async with session.get("/readyz") as answer:
                    if answer.status == 200:
                        return
            except aiohttp.ClientConnectionError:
                pass
            await asyncio.sleep(0.05)


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def children(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task")
    return [int(child) for task in tasks.iterdir() for child in (task / "children").read_text().split()]


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


PARTS: Mapping[str, Any] = {"rest": rest, "http": http, "idle": idle}
