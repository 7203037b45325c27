"""The document pipeline of ``examples/documents`` on a fleet: an API, an orchestrator and two workers.

``documents``: a model that takes three seconds a call, and may be called ten times a second; it counts.
``batch``: 5,000 documents with a model that takes no time and has no limit, to see what the rest takes.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support.servers.postgres import PostgresServer
from tests.support.servers.redis import RedisServer

from bench.figure import Figure, at_least, at_most
from bench.run import run_loop
from bench.server import free_port, wait_until_ready

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from weft.testing.fake_llm import FakeLLM

_EXAMPLE = Path(__file__).parent.parent / "examples" / "documents"
_MODEL_SECONDS = 3.0
_LIMIT_PER_SECOND = 10
# Calls leave 0.1 s apart; by a hair's breadth of delay, the eleventh comes within a second of the first.
_MOST_WITHIN_A_SECOND = _LIMIT_PER_SECOND + 1
# At the limit, three minutes and a half; one in a hundred is a scanned page.
_LIMITED, _LIMITED_SCANS = 2_100, 21
_MANY = 5_000
_WORKERS = 2


@dataclass(frozen=True, slots=True)
class _Pipeline:
    environment: Mapping[str, str]
    folder: Path
    model: FakeLLM

    def fill(self, count: int, *, scans: int) -> None:
        self._python("-m", "paperwork", "samples", "--count", str(count), "--scans", str(scans))
        # Nobody answers here: a review expires at once, and the batch ends.
        inputs = self.folder / "documents.jsonl"
        lines = [json.loads(line) | {"review_seconds": 0} for line in inputs.read_text("utf-8").splitlines()]
        inputs.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")

    def batch(self) -> float:
        """Run all documents of the inbox as one batch, and give how long it took."""
        weft = [sys.executable, "-m", "weft.cli.main"]
        subprocess.run([*weft, "deploy", str(_EXAMPLE / "documents.yaml")], env=self.environment, check=True)
        begun = time.perf_counter()
        subprocess.run(
            [*weft, "batch", "documents", "documents.jsonl"],
            env=self.environment,
            cwd=self.folder,
            check=True,
            stdout=subprocess.DEVNULL,
        )
        return time.perf_counter() - begun

    def saved(self) -> int:
        return len(list((self.folder / "dataset" / "parquet").iterdir()))

    def _python(self, *arguments: str) -> None:
        subprocess.run([sys.executable, *arguments], env=self.environment, cwd=self.folder, check=True)


@contextmanager
def _running(*, model_seconds: float, **settings: str) -> Iterator[_Pipeline]:
    """Start the servers, the model and a fleet in a folder of its own, and end them all."""
    sys.path.insert(0, str(_EXAMPLE))
    from paperwork.model import make

    with ExitStack() as ends:
        redis = ends.enter_context(RedisServer(appendonly=True))
        postgres = ends.enter_context(PostgresServer(durable=True))
        model = ends.enter_context(make(delay_seconds=model_seconds))
        folder = Path(ends.enter_context(tempfile.TemporaryDirectory()))
        environment = {name: value for name, value in os.environ.items() if not name.startswith("WEFT_")}
        environment |= {
            "PYTHONPATH": str(_EXAMPLE),
            "WEFT_CONFIG": str(_EXAMPLE / "weft.toml"),
            "WEFT_REDIS_URL": redis.url,
            "WEFT_DATABASE_URL": postgres.create_database("weft"),
            "WEFT_LLM_BASE_URL": model.base_url,
            **settings,
        }
        weft = [sys.executable, "-m", "weft.cli.main"]
        subprocess.run([*weft, "migrate"], env=environment, check=True, stdout=subprocess.DEVNULL)
        for role in ("orchestrator", *["worker"] * _WORKERS, "api"):
            port = free_port()
            process = subprocess.Popen(
                [*weft, role, *(("--port", str(port)) if role == "api" else ())],
                env={**environment, "WEFT_METRICS_PORT": str(port)},
                cwd=folder,
                stderr=subprocess.DEVNULL,
            )
            ends.callback(_end, process)
            environment["WEFT_URL"] = f"http://127.0.0.1:{port}"
            run_loop(wait_until_ready(environment["WEFT_URL"], process))
        yield _Pipeline(environment, folder, model)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    process.wait(60)


def documents() -> Iterator[Figure]:
    """Documents an hour with a model of three seconds and a limit, and the calls as the model sees them."""
    with _running(model_seconds=_MODEL_SECONDS) as one:
        one.fill(_LIMITED, scans=_LIMITED_SCANS)
        took = one.batch()
        calls = [request.at / 1e6 for request in one.model.requests]
        yield Figure(
            workload="docs",
            what=f"measured over, {_WORKERS} workers",
            value=took,
            unit="s",
            target=at_least(180),
        )
        yield Figure(
            workload="docs",
            what=f"documents an hour, {_MODEL_SECONDS:g} s a call",
            value=_LIMITED / took * 3600,
            unit="/h",
            target=at_least(5000),
        )
        yield Figure(
            workload="docs",
            what="calls a second, on average",
            value=(len(calls) - 1) / (max(calls) - min(calls)),
            unit="/s",
            target=at_most(_LIMIT_PER_SECOND),
        )
        yield Figure(
            workload="docs",
            what="most calls within any second",
            value=one.model.most_within(1.0),
            unit="calls",
            target=at_most(_MOST_WITHIN_A_SECOND),
        )


def batch() -> Iterator[Figure]:
    """A batch of 5,000 documents, and the same once more, when every reply is known."""
    with _running(model_seconds=0.0, WEFT_RESOURCE_LIMITS="{}") as one:
        one.fill(_MANY, scans=0)
        for what in (f"{_MANY:,} documents", f"the same {_MANY:,} again"):
            calls = len(one.model.requests)
            took = one.batch()
            yield Figure(workload="batch", what=what, value=_MANY / took, unit="docs/s")
            calls = len(one.model.requests) - calls
            yield Figure(workload="batch", what=f"{what}, calls of the model", value=calls, unit="calls")


PARTS: Mapping[str, Any] = {"documents": documents, "batch": batch}
