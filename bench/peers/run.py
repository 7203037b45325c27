"""Runs one peer: its environment, its servers, its program, and what came out.

Whatever goes wrong with a peer becomes a row that says so. All processes are ended with it.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support.servers.postgres import PostgresServer
from tests.support.servers.process import NoServerError
from tests.support.servers.redis import RedisServer

from bench.peers.environment import ROOT, CannotInstallError, python_of
from bench.peers.memory import PeakMemory

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bench.peers.peer import Peer

# Twice of what any peer should need.
_MOST_SECONDS = 240.0
_END_SECONDS = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What one peer did."""

    name: str
    versions: Mapping[str, str] = field(default_factory=dict)
    # Workload → what its program said of it: see programs/contract.py.
    workloads: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    memory_bytes: int = 0
    seconds: float = 0.0
    measured_at: str = ""
    notes: tuple[str, ...] = ()
    # Why it was not run, or not to its end.
    failure: str | None = None

    def figure(self, workload: str, what: str) -> float | None:
        value = self.workloads.get(workload, {}).get(what)
        return None if value is None else float(value)


def run(peer: Peer, *, budget: float) -> Row:
    """Run all workloads of a peer. One that has taken ``budget`` seconds is not repeated."""
    measured_at = time.strftime("%Y-%m-%d %H:%M")
    try:
        return _run(peer, python_of(peer), budget, measured_at)
    except (CannotInstallError, NoServerError) as error:
        return Row(name=peer.name, measured_at=measured_at, failure=str(error).splitlines()[0])


def _run(peer: Peer, python: Path, budget: float, measured_at: str) -> Row:
    with ExitStack() as ends:
        # Beside the sources and not in /tmp, which may be a file system in memory.
        folder = Path(tempfile.mkdtemp(prefix=".bench-", dir=ROOT / "bench"))
        ends.callback(shutil.rmtree, folder, ignore_errors=True)
        environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("WEFT_", "PREFECT_", "RESTATE_", "DBOS_", "LANGSMITH_", "LANGCHAIN_"))
        }
        environment |= {
            "PEER_ROOT": str(ROOT),
            "PEER_FOLDER": str(folder),
            "PEER_BUDGET": str(budget),
            "PYTHONPATH": str(ROOT),
        }
        watched = []
        if "redis" in peer.needs:
            redis = ends.enter_context(RedisServer(appendonly=True))
            environment["PEER_REDIS_URL"] = redis.url_of(0).removesuffix("/0")
            watched.append(redis.controlled.pid)
        if "postgres" in peer.needs:
            postgres = ends.enter_context(PostgresServer(durable=True))
            environment["PEER_POSTGRES_URL"] = postgres.create_database("peer")
            watched.append(postgres.controlled.pid)
        errors = ends.enter_context((folder / "errors").open("w+"))
        begun = time.monotonic()
        process = subprocess.Popen(
            [str(python), "-m", f"bench.peers.programs.{peer.program}"],
            env=environment,
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,
        )
        ends.callback(_end, process)
        late = threading.Timer(_MOST_SECONDS, process.terminate)
        late.start()
        ends.callback(late.cancel)
        memory = ends.enter_context(PeakMemory([process.pid, *watched]))
        assert process.stdout is not None
        lines = [json.loads(line) for line in process.stdout]
        code = process.wait()
        failure = None
        if code != 0:
            timed_out = time.monotonic() - begun >= _MOST_SECONDS
            failure = f"took more than {_MOST_SECONDS:.0f} s" if timed_out else _last_line(errors.name, code)
        return Row(
            name=peer.name,
            versions=next((line["versions"] for line in lines if "versions" in line), {}),
            workloads={line["workload"]: line for line in lines if "workload" in line},
            memory_bytes=memory.bytes,
            seconds=time.monotonic() - begun,
            measured_at=measured_at,
            notes=tuple(line["note"] for line in lines if "note" in line),
            failure=failure,
        )


def _last_line(path: str, code: int) -> str:
    text = Path(path).read_text(errors="replace")
    # What is said while the interpreter goes down is about that, and not why it did.
    lines = [line.strip() for line in text.split("Exception ignored in")[0].splitlines() if line.strip()]
    return lines[-1] if lines else f"ended with {code}"


def _end(process: subprocess.Popen[str]) -> None:
    """End a program and what it has started, by their group: no other process is in it."""
    if process.poll() is None:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(_END_SECONDS)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
