"""``./dev fleet``: a whole fleet on this machine, without Docker.

Private servers of Redis and PostgreSQL, the schema, one API, two orchestrators, two workers: each a process.
Ctrl-C ends all of them and leaves nothing behind.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.servers.postgres import PostgresServer
from tests.support.servers.process import NoServerError, ServerProcess
from tests.support.servers.redis import RedisServer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

WEFT = Path(sys.executable).with_name("weft")
ORCHESTRATORS = 2
WORKERS = 2
# How often it is looked whether one of them has ended.
LOOK_SECONDS = 0.5

READY = """\
weft is ready at {url}: one API, {orchestrators} orchestrators, {workers} workers

  {weft} deploy examples/quickstart.yaml
  {weft} start quickstart --wait
  {weft} workers

{processes}
  {redis}
  {postgres}

End one with kill -9 while something runs, and see that it completes. Ctrl-C ends them all."""


@dataclass(frozen=True, slots=True)
class Role:
    """One process of the fleet."""

    name: str
    process: ServerProcess

    @classmethod
    def make(cls, name: str, arguments: Sequence[str], settings: Mapping[str, str]) -> Role:
        """``{port}`` in an argument or a setting stands for the port on which it tells of its health."""

        def command(port: int, _folder: Path) -> list[str]:
            given = [f"{key}={value}" for key, value in settings.items()]
            return ["env", *(part.format(port=port) for part in (*given, str(WEFT), *arguments))]

        return cls(
            name,
            ServerProcess(name.replace(" ", "-"), command, is_ready=is_ready, last_signal=signal.SIGTERM),
        )


def is_ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=2) as answer:
            return bool(answer.status == 200)
    except OSError:
        # To ask is work for who is asked, and a role takes a second or two.
        time.sleep(0.1)
        return False


def run(port: int, ended: threading.Event) -> None:
    with ExitStack() as ends:
        redis = ends.enter_context(RedisServer(appendonly=True))
        postgres = ends.enter_context(PostgresServer())
        settings = {
            "WEFT_REDIS_URL": redis.url,
            "WEFT_DATABASE_URL": postgres.create_database("weft"),
            "PYTHONPATH": os.pathsep.join(filter(None, [os.getcwd(), os.environ.get("PYTHONPATH")])),
        }
        subprocess.run([WEFT, "migrate"], env={**os.environ, **settings}, check=True)
        api = Role.make("api", ["api", "--host", "127.0.0.1", "--port", "{port}"], settings)
        mover = {**settings, "WEFT_METRICS_PORT": "{port}"}
        orchestrators = [
            Role.make(f"orchestrator {number}", ["orchestrator"], mover)
            for number in range(1, ORCHESTRATORS + 1)
        ]
        workers = [Role.make(f"worker {number}", ["worker"], mover) for number in range(1, WORKERS + 1)]
        api.process.port = port
        roles = [api, *orchestrators, *workers]
        for role in roles:
            ends.callback(role.process.end_for_good)
        # All at once: none waits for another.
        with ThreadPoolExecutor(len(roles)) as pool:
            list(pool.map(lambda role: role.process.start(), roles))
        print(described(api, roles, redis, postgres), flush=True)
        watch(roles, ended)
        print("ending the fleet", flush=True)


def described(api: Role, roles: Sequence[Role], redis: RedisServer, postgres: PostgresServer) -> str:
    url = f"http://127.0.0.1:{api.process.port}"
    default = api.process.port == 8700
    weft = os.path.relpath(WEFT) if default else f"WEFT_URL={url} {os.path.relpath(WEFT)}"
    processes = [f"  {role.name:<15} pid {role.process.pid:<8} log {role.process.log_file}" for role in roles]
    return READY.format(
        url=url,
        orchestrators=ORCHESTRATORS,
        workers=WORKERS,
        weft=weft,
        processes="\n".join(processes),
        redis=f"{redis.url}  (Redis {redis.version}, {redis.source})",
        postgres=f"{postgres.url_of('weft')}  (PostgreSQL {postgres.version}, {postgres.source})",
    )


def watch(roles: Sequence[Role], ended: threading.Event) -> None:
    """Report each process that ends by itself or was killed, until all are asked to end."""
    running = list(roles)
    while not ended.wait(LOOK_SECONDS):
        for role in list(running):
            if not role.process.is_running:
                running.remove(role)
                print(f"{role.name} has ended; the rest goes on", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev fleet", description=(__doc__ or "").partition("\n\n")[2])
    parser.add_argument("--port", type=int, default=8700, help="of the API (8700); 0: any that is free")
    given = parser.parse_args()
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    try:
        run(given.port, ended)
    except (NoServerError, subprocess.CalledProcessError) as error:
        print(f"./dev fleet: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
