"""The doors of a fleet: its commands as real processes, on real servers that come, go and come back."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import aiohttp
import pytest
from tests.operation.serving import PATIENCE_SECONDS, WEFT, Api, Server
from tests.operation.usage import cpu_seconds
from tests.support.servers.redis import RedisServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping
    from pathlib import Path

    from tests.support.servers.postgres import PostgresServer

# Nets and leases as quick as a test wants them.
QUICK = {
    "WEFT_ORCHESTRATOR_SWEEP_INTERVAL": "500ms",
    "WEFT_ORCHESTRATOR_STALE_CLAIM_INTERVAL": "500ms",
    "WEFT_ORCHESTRATOR_STALE_RESULT_TIMEOUT": "2s",
    "WEFT_WORKER_HEARTBEAT_INTERVAL": "500ms",
    "WEFT_WORKER_HEARTBEAT_TIMEOUT": "3s",
    "WEFT_WORKER_PROCESSES": "1",
}
KEY = "a-key-of-some-length-for-tests"

FLOW = """\
name: order
nodes:
  - {id: fetch, handler: echo, config: {number: "{{ input.number }}"}}
  - {id: rest, handler: sleep, dependencies: [fetch], config: {seconds: 0.05}}
  - {id: pack, handler: echo, dependencies: [rest], config: "order {{ fetch.number }}"}
"""


def naps(count: int, seconds: float) -> dict[str, Any]:
    """Nodes that sleep side by side, and one behind them all."""
    nodes = [{"id": f"nap{n}", "handler": "hold", "config": {"seconds": seconds}} for n in range(count)]
    last = {"id": "end", "handler": "echo", "dependencies": [node["id"] for node in nodes], "config": "done"}
    return {"nodes": [*nodes, last]}


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


class Place:
    """Where a fleet is: a folder, its two servers, and the processes that were started on them."""

    def __init__(self, folder: Path, redis_url: str, postgres_url: str) -> None:
        self.folder = folder
        self.settings = {**QUICK, "WEFT_REDIS_URL": redis_url, "WEFT_DATABASE_URL": postgres_url}
        self._started: list[tuple[str, Server]] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """End every process that is left, and show what went wrong in any, for a test that failed."""
        for name, server in self._started:
            await server.kill()
            for line in server.log:
                if line.get("level") != "info":
                    print(name, json.dumps(line).replace("\\n", "\n"))

    async def start(self, *arguments: str, **settings: str) -> Server:
        """Start a process of the fleet and return at once."""
        server = await Server.launch(*arguments, folder=self.folder, settings={**self.settings, **settings})
        self._started.append((arguments[0], server))
        return server

    def weft(self, *arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("WEFT_")}
        return subprocess.run(
            [*WEFT, *arguments],
            cwd=self.folder,
            env={**environment, **self.settings, **settings},
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )

    async def ask(self, *arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
        return await asyncio.to_thread(self.weft, *arguments, **settings)

    @asynccontextmanager
    async def fleet(self, **settings: str) -> AsyncIterator[Running]:
        """Have an API, an orchestrator and a worker that are ready, on a schema that is current."""
        migrated = await self.ask("migrate")
        assert migrated.returncode == 0, migrated.stderr
        api = await self.start("api", "--port", "0", **settings)
        orchestrator = await self.start("orchestrator", **settings)
        worker = await self.start("worker", **settings)
        for server in (orchestrator, worker):
            await server.ready()
        async with Api(await api.ready()) as client:
            yield Running(api, orchestrator, worker, client)


@dataclass(frozen=True)
class Running:
    api_process: Server
    orchestrator: Server
    worker: Server
    api: Api


@pytest.fixture
async def place(tmp_path: Path, redis_url: str, postgres_url: str) -> AsyncIterator[Place]:
    async with Place(tmp_path, redis_url, postgres_url) as place:
        yield place


@pytest.fixture
async def private_place(
    tmp_path: Path, private_redis: RedisServer, private_postgres: PostgresServer
) -> AsyncIterator[Place]:
    async with Place(tmp_path, private_redis.url, private_postgres.url) as place:
        yield place


async def faults(api: Api) -> dict[str, str]:
    """Ask why a process is not ready; nothing: it is."""
    status, body, _ = await api.call("GET", "/readyz")
    wrong = {name: check["message"] for name, check in body["checks"].items() if not check["ok"]}
    assert (status, body["ready"]) == ((503, False) if wrong else (200, True))
    return wrong


async def until_ready(api: Api) -> None:
    await until(api, "/readyz", lambda status, _: status == 200)


async def until_not_ready(api: Api, name: str, said: str = "") -> dict[str, str]:
    """Return once a check fails and says this, with all that fail."""
    await until(
        api,
        "/readyz",
        lambda _, body: not body["checks"][name]["ok"] and said in body["checks"][name]["message"],
    )
    return await faults(api)


async def until_state(api: Api, execution_id: str, node_id: str, state: str) -> None:
    path = f"/v1/executions/{execution_id}/nodes/{node_id}"
    await until(api, path, lambda _, body: body["state"] == state)


async def until(api: Api, path: str, is_so: Callable[[int, Any], bool]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            status, body, _ = await api.call("GET", path)
            if is_so(status, body):
                return
            await asyncio.sleep(0.05)


# -- commands --------------------------------------------------------------------------------------------


async def test_a_fleet_does_all_that_the_commands_ask_of_it(place: Place) -> None:
    (place.folder / "order.yaml").write_text(FLOW)
    async with place.fleet() as running:
        url = {"WEFT_URL": running.api_process.url}
        deployed = await place.ask("deploy", "order.yaml", **url)
        assert (deployed.returncode, deployed.stdout) == (0, "order version 1\n")
        started = await place.ask("start", "order", "--input", "number=7", "--wait", **url)
        assert started.returncode == 0, started.stderr
        assert json.loads(started.stdout) == {"pack": "order 7"}
        listed = json.loads((await place.ask("list", "--json", **url)).stdout)
        (shown,) = listed if isinstance(listed, list) else listed["items"]
        assert (shown["state"], shown["live"]) == ("COMPLETED", True)
        watched = await place.ask("watch", shown["id"], **url)
        assert watched.returncode == 0, watched.stderr

        forked = await place.ask("fork", shown["id"], "--from", "pack", **url)
        assert forked.returncode == 0, forked.stderr
        watched = await place.ask("watch", forked.stdout.strip(), **url)
        assert (watched.returncode, json.loads(watched.stdout)) == (0, {"pack": "order 7"}), watched.stderr
        fork = await running.api.get(f"/v1/executions/{forked.stdout.strip()}")
        assert (fork["forked_from"], fork["nodes"][0]["reused"], fork["nodes"][-1]["reused"]) == (
            shown["id"],
            True,
            False,
        )

        slow = await running.api.start(naps(1, 60))
        await until_state(running.api, slow, "nap0", "RUNNING")
        explained = await running.api.get(f"/v1/executions/{slow}/nodes/end/explain")
        assert [reason["code"] for reason in explained["reasons"]] == ["waiting_for_parents"]
        cancelled = await place.ask("cancel", slow, **url)
        assert cancelled.returncode == 0, cancelled.stderr
        assert (await running.api.get(f"/v1/executions/{slow}"))["state"] == "CANCELLED"

        (worker,) = (await running.api.get("/v1/workers"))["items"]
        assert (worker["state"], worker["pid"]) == ("alive", running.worker.process.pid)
        assert "echo" in worker["handlers"]
        assert (await place.ask("workers", **url)).stdout.count(worker["id"]) == 1
        queues = {queue["name"]: queue for queue in (await running.api.get("/v1/queues"))["items"]}
        assert queues["echo"]["depth"] == 0
        assert queues["echo"]["workers"] == 1
        assert (await place.ask("queues", **url)).returncode == 0
        metrics = await (await running.api._session.get("/metrics")).text()
        assert "weft_store_up 1.0\n" in metrics
        assert "weft_journal_up 1.0\n" in metrics


async def test_up_on_both_servers_is_a_whole_fleet_in_one_process_and_migrates_by_itself(
    place: Place,
) -> None:
    server = await place.start("up", "--port", "0")
    async with Api(await server.ready()) as api:
        assert (await api.terminal(await api.start(naps(3, 0.01))))["output"] == {"end": "done"}
        assert await faults(api) == {}
        # Another one shares the work.
        other = await place.start("up", "--port", "0")
        async with Api(await other.ready()) as second:
            assert len((await second.get("/v1/workers"))["items"]) == 2
        assert await other.stop() == 0
    assert await server.stop() == 0
    assert not (place.folder / ".weft").exists()
    # At first there was no schema, and then it was made.
    assert {line["event"] for line in server.log if line["level"] != "info"} <= {
        "fleet.waiting",
        "server.waiting",
    }
    assert server.events("schema.migrated")


async def test_up_on_postgresql_alone_is_one_process_and_a_second_is_refused(place: Place) -> None:
    del place.settings["WEFT_REDIS_URL"]
    server = await place.start("up", "--port", "0")
    async with Api(await server.ready()) as api:
        execution_id = await api.start(naps(2, 0.01))
        assert (await api.terminal(execution_id))["state"] == "COMPLETED"
        second = await place.ask("up", "--port", "0")
        assert second.returncode == 2, second.stderr
        assert "in use by another weft" in second.stderr
        assert await faults(api) == {}
    assert await server.stop() == 0
    # What the first kept, the next has.
    again = await place.start("up", "--port", "0")
    async with Api(await again.ready()) as api:
        assert (await api.get(f"/v1/executions/{execution_id}"))["state"] == "COMPLETED"


async def test_a_worker_serves_the_queues_it_was_given(place: Place) -> None:
    assert (await place.ask("migrate")).returncode == 0
    api_process = await place.start("api", "--port", "0")
    await place.start("orchestrator")
    await place.start("worker", "--queues", "slow, echo", "--concurrency", "3")
    async with Api(await api_process.ready()) as api:
        nodes = [
            {"id": "mine", "handler": "hold", "queue": "slow", "config": {"seconds": 0.01}},
            {"id": "other", "handler": "hold", "config": {"seconds": 0.01}},
        ]
        execution_id = await api.start({"nodes": nodes})
        await until_state(api, execution_id, "mine", "COMPLETED")
        (worker,) = (await api.get("/v1/workers"))["items"]
        assert (worker["queues"], worker["concurrency"]) == (["echo", "slow"], 3)
        path = f"/v1/executions/{execution_id}/nodes/other/explain"
        assert [one["code"] for one in (await api.get(path))["reasons"]] == ["no_worker"]
        examined = await place.ask("doctor", "--json")
        (found,) = [one for one in json.loads(examined.stdout)["checks"] if one["check"] == "workers"]
        assert (found["state"], found["advice"]) == ("warn", "start one: weft worker --queues hold")
        await place.start("worker")
        assert (await api.terminal(execution_id))["state"] == "COMPLETED"


async def test_of_several_that_migrate_at_once_one_does_it(place: Place) -> None:
    ended = await asyncio.gather(*(place.ask("migrate") for _ in range(3)))
    assert [one.returncode for one in ended] == [0, 0, 0]
    said = sorted(one.stdout for one in ended)
    assert [text.startswith("the database: made: ") for text in said] == [True, False, False]
    assert said[1:] == ["the database: up to date\n"] * 2


# -- what is refused -------------------------------------------------------------------------------------

NO_REDIS = {"WEFT_DATABASE_URL": "postgresql://u:hunter2@127.0.0.1:1/x"}
NO_DATABASE = {"WEFT_REDIS_URL": "redis://:hunter2@127.0.0.1:1"}


@pytest.mark.parametrize(
    ("command", "settings", "code", "said"),
    [
        ("up", NO_DATABASE, 2, "WEFT_DATABASE_URL is not"),
        ("up", NO_REDIS, 4, "PostgreSQL cannot be reached"),
        *(
            (role, settings, 2, said)
            for role in ("api", "orchestrator", "worker")
            for settings, said in (
                ({}, "set WEFT_REDIS_URL and WEFT_DATABASE_URL"),
                (NO_DATABASE, "WEFT_DATABASE_URL is not"),
                (NO_REDIS, "WEFT_REDIS_URL is not set"),
            )
        ),
        ("worker", {**NO_REDIS, **NO_DATABASE, "WEFT_TRANSPORT": "celery"}, 2, "celery -A weft.celery"),
        ("migrate", NO_REDIS, 4, "PostgreSQL cannot be reached"),
    ],
)
def test_a_set_up_that_cannot_be_is_refused_with_what_to_set(
    command: str, settings: Mapping[str, str], code: int, said: str, tmp_path: Path
) -> None:
    place = Place(tmp_path, "", "")
    place.settings = dict(settings)
    ended = place.weft(command, *(("--port", "0") if command in ("up", "api") else ()))
    assert ended.returncode == code, ended.stderr
    assert said in ended.stderr
    assert "hunter2" not in ended.stderr
    assert "Traceback" not in ended.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["up", "api", "orchestrator", "worker"])
def test_a_redis_that_evicts_keys_is_refused_with_the_remedy(
    command: str, private_redis: RedisServer, postgres_url: str, tmp_path: Path
) -> None:
    private_redis.execute("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    place = Place(tmp_path, private_redis.url, postgres_url)
    ended = place.weft(command, *(("--port", "0") if command in ("up", "api") else ()))
    assert ended.returncode == 2, ended.stderr
    assert "CONFIG SET maxmemory-policy noeviction" in ended.stderr


async def test_a_redis_that_evicts_keys_is_refused_also_when_it_comes_later(
    postgres_url: str, tmp_path: Path
) -> None:
    with RedisServer(options={"maxmemory-policy": "allkeys-lru"}) as redis:
        redis.stop()
        async with Place(tmp_path, redis.url, postgres_url) as place:
            worker = await place.start("worker")
            await worker.logged("server.waiting")
            redis.start()
            assert await worker.ended() == 2
            assert "CONFIG SET maxmemory-policy noeviction" in str(worker.log[-1])


async def test_a_worker_whose_metrics_port_is_taken_is_refused(place: Place) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        ended = await place.ask("worker", WEFT_METRICS_PORT=port)
    assert ended.returncode == 2
    assert "choose one with WEFT_METRICS_PORT" in ended.stderr


# -- health ----------------------------------------------------------------------------------------------


async def test_roles_wait_for_the_schema_and_name_the_command_that_makes_it(place: Place) -> None:
    port = free_port()
    api_process = await place.start("api", "--port", "0")
    worker = await place.start("worker", WEFT_METRICS_PORT=str(port))
    url = (await api_process.logged("server.listening"))["url"]
    await worker.logged("server.listening")
    async with Api(url) as api, Api(f"http://127.0.0.1:{port}") as inside:
        for one in (api, inside):
            assert (await one.call("GET", "/healthz"))[0] == 200
            await until_not_ready(one, "journal", "weft migrate")
        assert "weft migrate" in json.dumps(await api_process.logged("server.waiting"))
        status, problem, headers = await api.call("GET", "/v1/executions")
        assert (status, problem["code"]) == (503, "unavailable")
        assert int(headers["Retry-After"]) >= 1
        checked = await place.ask("migrate", "--check")
        assert checked.returncode == 1
        assert "run `weft migrate`" in checked.stdout
        examined = await place.ask("doctor", "--json")
        assert examined.returncode == 1
        (schema,) = [one for one in json.loads(examined.stdout)["checks"] if one["check"] == "schema"]
        assert (schema["state"], schema["advice"]) == ("fail", "run `weft migrate`")
        assert (await place.ask("migrate")).returncode == 0
        await until_ready(api)
        await until_ready(inside)
        again = await place.ask("migrate", "--check")
        assert (again.returncode, again.stdout) == (0, "the database: up to date\n")
        examined = await place.ask("doctor", "--json")
        assert examined.returncode == 0, examined.stdout
    assert await api_process.stop() == 0
    assert await worker.stop() == 0


@pytest.mark.parametrize("role", ["orchestrator", "worker"])
async def test_a_role_without_the_api_shows_its_health_and_metrics_on_a_port_of_their_own(
    role: str, place: Place
) -> None:
    assert (await place.ask("migrate")).returncode == 0
    port = free_port()
    server = await place.start(role, WEFT_METRICS_PORT=str(port), WEFT_API_KEYS=KEY)
    ready = await server.logged("server.ready")
    # With keys it can be reached from outside, as a probe does; without, from this machine alone.
    assert (ready["url"], ready["role"]) == (f"http://0.0.0.0:{port}", role)
    async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
        for path, status in (
            ("/healthz", 200),
            ("/readyz", 200),
            ("/metrics", 401),
            ("/v1/workers", 401),
        ):
            async with session.get(path) as response:
                assert response.status == status, path
        headers = {"Authorization": f"Bearer {KEY}"}
        async with session.get("/metrics", headers=headers) as response:
            text = await response.text()
            assert response.status == 200
            assert "weft_build_info" in text
            # What is true of the whole fleet, the API tells, once.
            assert "weft_executions_active{" not in text
        async with session.get("/v1/workers", headers=headers) as response:
            assert response.status == 404
    assert await server.stop() == 0
    alone = await place.start(role, WEFT_METRICS_PORT=str(port))
    assert (await alone.logged("server.ready"))["url"] == f"http://127.0.0.1:{port}"


async def test_what_is_away_is_named_without_its_address_and_liveness_stays(
    private_place: Place, private_redis: RedisServer, private_postgres: PostgresServer
) -> None:
    async with private_place.fleet(WEFT_API_KEYS=KEY) as running:
        for server, name in ((private_redis, "store"), (private_postgres, "journal")):
            await asyncio.to_thread(server.stop)
            wrong = await until_not_ready(running.api, name)
            assert str(server.port) not in json.dumps(wrong)
            assert "127.0.0.1" not in json.dumps(wrong)
            assert (await running.api.call("GET", "/healthz"))[0] == 200
            examined = await private_place.ask("doctor", "--json")
            assert examined.returncode == 1
            check = {"store": "redis", "journal": "postgres"}[name]
            (found,) = [one for one in json.loads(examined.stdout)["checks"] if one["check"] == check]
            assert (found["state"], found["advice"].split(",")[0]) == ("fail", "start it")
            await asyncio.to_thread(server.start)
            await until_ready(running.api)


# -- while a server is away ------------------------------------------------------------------------------


async def test_without_redis_work_is_accepted_and_shown_control_is_recorded_and_all_goes_on_after(
    private_place: Place, private_redis: RedisServer
) -> None:
    async with private_place.fleet() as running:
        api = running.api
        under_way = await api.start(naps(2, 3))
        await until_state(api, under_way, "nap0", "RUNNING")
        doomed = await api.start(naps(1, 60))
        await until_state(api, doomed, "nap0", "RUNNING")
        await asyncio.to_thread(private_redis.stop)

        status, accepted, _ = await api.call("POST", "/v1/executions", {"definition": naps(1, 0.01)})
        assert (status, accepted["live"], accepted["state"]) == (202, False, "PENDING")
        shown = await api.get(f"/v1/executions/{under_way}")
        assert (shown["live"], shown["state"]) == (False, "RUNNING")
        assert sum(shown["counts"].values()) == 3
        assert (await api.get(f"/v1/executions/{under_way}?nodes=none"))["live"] is False
        assert all(item["live"] is False for item in (await api.get("/v1/executions"))["items"])
        for node in ("nap0", "end"):
            explained = await api.get(f"/v1/executions/{under_way}/nodes/{node}/explain")
            assert [one["code"] for one in explained["reasons"]] == ["recovering"]
        for path in ("/v1/workers", "/v1/queues"):
            status, problem, headers = await api.call("GET", path)
            assert (status, problem["code"]) == (503, "unavailable")
            assert int(headers["Retry-After"]) >= 1
            assert str(private_redis.port) not in json.dumps(problem)
        metrics = await (await api._session.get("/metrics")).text()
        assert "weft_store_up 0.0\n" in metrics
        assert "weft_journal_up 1.0\n" in metrics

        status, problem, headers = await api.call("POST", f"/v1/executions/{doomed}/cancel")
        assert (status, problem["code"]) == (503, "unavailable")
        assert "recorded" in problem["detail"]
        assert "repeat" in problem["detail"]
        assert int(headers["Retry-After"]) >= 1
        assert (await api.get(f"/v1/executions/{doomed}"))["state"] == "CANCELLED"

        await asyncio.to_thread(private_redis.start)
        await until_ready(api)
        assert (await api.call("POST", f"/v1/executions/{doomed}/cancel"))[0] == 202
        for execution_id in (under_way, accepted["id"]):
            ended = await api.terminal(execution_id)
            assert (ended["state"], ended["live"]) == ("COMPLETED", True)
        assert (await api.terminal(doomed))["state"] == "CANCELLED"


async def test_an_api_without_a_living_worker_is_ready_and_says_so(place: Place) -> None:
    assert (await place.ask("migrate")).returncode == 0
    process = await place.start("api", "--port", "0")
    async with Api(await process.ready()) as api:
        await until_ready(api)
        shown = (await api.get("/readyz"))["checks"]["workers"]
        assert shown == {"ok": True, "message": "no living worker"}
        doctor = await place.ask("doctor", "--json", WEFT_URL=api.url)
        found = {each["check"]: each for each in json.loads(doctor.stdout)["checks"]}
        assert doctor.returncode == 0
        for name in ("server", "workers"):
            assert found[name]["state"] == "warn"
            assert "no living worker" in found[name]["message"]
        await place.start("worker")
        await until(api, "/readyz", lambda _, body: body["checks"]["workers"]["message"] == "1 living worker")
        doctor = await place.ask("doctor", "--json", WEFT_URL=api.url)
        found = {each["check"]: each for each in json.loads(doctor.stdout)["checks"]}
        assert [found[name]["state"] for name in ("server", "workers")] == ["ok", "ok"]


async def test_an_api_that_starts_without_redis_accepts_work_all_the_same(
    private_redis: RedisServer, postgres_url: str, tmp_path: Path
) -> None:
    await asyncio.to_thread(private_redis.stop)
    async with Place(tmp_path, private_redis.url, postgres_url) as place:
        assert (await place.ask("migrate")).returncode == 0
        api_process = await place.start("api", "--port", "0")
        async with Api((await api_process.logged("server.listening"))["url"]) as api:
            await until(api, "/readyz", lambda _, body: body["checks"]["journal"]["ok"])
            assert list(await faults(api)) == ["store"]
            status, accepted, _ = await api.call("POST", "/v1/executions", {"definition": naps(1, 0.01)})
            assert (status, accepted["live"]) == (202, False)
            await asyncio.to_thread(private_redis.start)
            for role in ("orchestrator", "worker"):
                await place.start(role)
            assert (await api.terminal(accepted["id"]))["state"] == "COMPLETED"
            await until_ready(api)


async def test_a_redis_that_is_away_is_tried_twice_a_second_at_most_and_no_core_is_busy(
    private_place: Place, private_redis: RedisServer
) -> None:
    async with private_place.fleet() as running:
        execution_id = await running.api.start(naps(3, 1))
        await until_state(running.api, execution_id, "nap0", "RUNNING")
        await asyncio.to_thread(private_redis.stop)
        callers: list[int] = []

        def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            callers.append(writer.get_extra_info("peername")[1])
            writer.close()

        processes = [one.process.pid for one in (running.api_process, running.orchestrator, running.worker)]
        async with await asyncio.start_server(hang_up, "127.0.0.1", private_redis.port):
            await asyncio.sleep(1)
            callers.clear()
            used = [cpu_seconds(pid) for pid in processes]
            await asyncio.sleep(6)
            tried = len(callers)
            busy = [cpu_seconds(pid) - before for pid, before in zip(processes, used, strict=True)]
        assert 3 <= tried <= 6 * 2 * len(processes)
        # Of six seconds; what it takes to write a line of log a second is far less.
        assert max(busy) < 0.6, busy
        await asyncio.to_thread(private_redis.start)
        assert (await running.api.terminal(execution_id))["state"] == "COMPLETED"


async def test_without_postgresql_calls_are_503_and_nothing_is_lost(
    private_place: Place, private_postgres: PostgresServer
) -> None:
    async with private_place.fleet() as running:
        api = running.api
        under_way = await api.start(naps(3, 2))
        await until_state(api, under_way, "nap0", "RUNNING")
        await asyncio.to_thread(private_postgres.stop, immediate=True)
        for method, path, body in (
            ("POST", "/v1/executions", {"definition": naps(1, 0.01)}),
            ("GET", f"/v1/executions/{under_way}", None),
            ("GET", "/v1/executions", None),
            ("POST", f"/v1/executions/{under_way}/cancel", None),
        ):
            status, problem, headers = await api.call(method, path, body)
            assert (status, problem["code"]) == (503, "unavailable"), path
            assert int(headers["Retry-After"]) >= 1
            assert str(private_postgres.port) not in json.dumps(problem)
        # Longer than a lease: what has ended meanwhile waits for its commit, and is not done again.
        await asyncio.sleep(4)
        await asyncio.to_thread(private_postgres.start)
        await until_ready(api)
        ended = await api.terminal(under_way)
        assert ended["state"] == "COMPLETED"
        assert {node["attempt"] for node in ended["nodes"]} == {1}


async def test_who_waits_hears_of_an_end_that_no_hint_told(place: Place, redis_server: RedisServer) -> None:
    async with place.fleet() as running:
        execution_id = await running.api.start(naps(1, 2))
        await until_state(running.api, execution_id, "nap0", "RUNNING")
        async with asyncio.timeout(15):
            waiting = asyncio.create_task(running.api.get(f"/v1/executions/{execution_id}?wait=60"))
            streaming = asyncio.create_task(stream(running.api, execution_id))
            # Whoever listened is cut off again and again, and hears what is told in between or does not.
            while not (waiting.done() and streaming.done()):
                redis_server.execute("CLIENT", "KILL", "TYPE", "pubsub")
                await asyncio.sleep(0.05)
        assert (await waiting)["state"] == "COMPLETED"
        assert (await streaming)[-1] == "execution.completed"


async def stream(api: Api, execution_id: str) -> list[str]:
    """Read the events of an execution as they are told, to the end, and give their types."""
    headers = {"Accept": "text/event-stream"}
    async with api._session.get(f"/v1/executions/{execution_id}/events", headers=headers) as response:
        lines = [line.decode().strip() async for line in response.content]
    return [line.removeprefix("event: ") for line in lines if line.startswith("event: ")]


# -- stopping --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("role", ["api_process", "orchestrator", "worker"])
async def test_a_role_stops_with_code_0_under_load_and_a_successor_ends_the_work(
    role: str, place: Place
) -> None:
    async with place.fleet() as running:
        ids = [await running.api.start(naps(5, 0.3)) for _ in range(10)]
        stopped: Server = getattr(running, role)
        assert await stopped.stop() == 0
        events = [line["event"] for line in stopped.log]
        assert events[-2:] == ["server.draining", "server.stopped"]
        assert not {"orchestrator.broken", "worker.broken", "server.failed"} & set(events)
        flags = ("--port", "0") if role == "api_process" else ()
        successor = await place.start(role.removesuffix("_process"), *flags)
        url = await successor.ready() if role == "api_process" else running.api_process.url
        async with Api(url) as api:
            for execution_id in ids:
                ended = await api.terminal(execution_id)
                assert ended["state"] == "COMPLETED"
                # What was in hand when it was asked to stop could end: nothing was lost.
                assert {node["attempt"] for node in ended["nodes"]} == {1}
        await successor.logged("server.ready")
        assert await successor.stop() == 0
