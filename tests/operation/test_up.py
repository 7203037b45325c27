"""``weft up``: how it starts, what it refuses, how it stops."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import re
import signal
import socket
import sqlite3
import subprocess
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from tests.operation.serving import PATIENCE_SECONDS, WEFT, Server, serving

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def sleeper(seconds: float, **fields: Any) -> dict[str, Any]:
    """A node that sleeps, and one behind it."""
    return {
        "nodes": [
            {"id": "nap", "handler": "hold", "config": {"seconds": seconds, "word": "awake"}, **fields},
            {"id": "after", "handler": "echo", "dependencies": ["nap"], "config": "{{ nap.word }}"},
        ]
    }


def refused(
    folder: Path, *flags: str, settings: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run ``weft up`` where it must end by itself."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("WEFT_")}
    return subprocess.run(
        [*WEFT, "up", *flags],
        cwd=folder,
        env={**environment, **(settings or {})},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )


# -- starting --------------------------------------------------------------------------------------------


async def test_a_server_is_ready_runs_what_it_is_given_and_stops_with_code_0(tmp_path: Path) -> None:
    data = tmp_path / "data"
    async with serving(data) as (server, api):
        status, ready, _ = await api.call("GET", "/readyz")
        assert (status, ready["ready"]) == (200, True)
        shown = await api.terminal(await api.start(sleeper(0)))
        assert (shown["state"], shown["output"]) == ("COMPLETED", {"after": "awake"})
        assert await server.stop() == 0
        # One line says that it is ready, and names what people need; no line tells of a node.
        (line,) = server.events("server.ready")
        assert (line["url"], line["data"], line["level"]) == (server.url, str(data), "info")
        assert [line["event"] for line in server.log] == ["server.ready", "server.draining", "server.stopped"]
        assert "nap" not in json.dumps(server.log)


async def test_a_worker_is_announced_under_a_name_of_its_own_life(tmp_path: Path) -> None:
    names = set()
    for _ in range(2):
        async with serving(tmp_path / "data", "--concurrency", "7") as (server, api):
            (worker,) = (await api.get("/v1/workers"))["items"]
            assert (worker["state"], worker["pid"], worker["concurrency"]) == ("alive", server.process.pid, 7)
            assert worker["host"] == socket.gethostname()
            assert worker["id"].startswith(f"{worker['host']}-{worker['pid']}-")
            shown = await api.terminal(await api.start(sleeper(0)))
            assert shown["nodes"][0]["worker"] == worker["id"]
            names.add(worker["id"])
    assert len(names) == 2


async def test_a_second_process_on_the_data_folder_is_refused_and_the_first_goes_on(tmp_path: Path) -> None:
    data = tmp_path / "data"
    async with serving(data) as (server, api):
        second = await asyncio.to_thread(refused, tmp_path, "--port", "0", "--data", str(data))
        assert second.returncode == 2
        assert f"is in use by process {server.process.pid}" in second.stderr
        assert (await api.terminal(await api.start(sleeper(0))))["state"] == "COMPLETED"


def test_a_port_that_is_taken_is_named_and_so_is_the_flag(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = refused(tmp_path, "--port", str(port))
    assert ended.returncode == 2
    assert ended.stderr == (
        f"weft: port {port} of 127.0.0.1 is taken by another process; choose one with --port\n"
    )
    # What cannot succeed touches nothing.
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_an_open_door_without_keys_is_refused(host: str, tmp_path: Path) -> None:
    ended = refused(tmp_path, "--host", host, "--port", "0")
    assert ended.returncode == 2
    assert "WEFT_API_KEYS" in ended.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"WEFT_REDIS_URL": "redis://localhost"}, "WEFT_DATABASE_URL is not"),
        ({"WEFT_TRANSPORT": "celery", "WEFT_CELERY_BROKER_URL": "redis://:hunter2@h"}, "WEFT_TRANSPORT"),
        ({"WEFT_WORKER_GRACE": "soon"}, "WEFT_WORKER_GRACE needs seconds"),
        ({"WEFT_IMPORTS": "no_such_module"}, "'no_such_module' cannot be imported"),
        ({"WEFT_PYTHON_ALLOW": "what?"}, "WEFT_PYTHON_ALLOW needs module:name"),
    ],
)
def test_a_setting_that_cannot_be_used_is_refused(
    settings: dict[str, str], said: str, tmp_path: Path
) -> None:
    ended = refused(tmp_path, "--port", "0", settings=settings)
    assert ended.returncode == 2, ended.stderr
    assert said in ended.stderr
    assert "hunter2" not in ended.stderr
    assert "Traceback" not in ended.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("port", ["-1", "65536", "99999"])
def test_a_number_that_is_no_port_is_refused_and_no_other_port_is_taken_for_it(
    port: str, tmp_path: Path
) -> None:
    ended = refused(tmp_path, "--port", port)
    assert ended.returncode == 2
    assert ended.stderr == f"weft: --port needs a number from 0 to 65535, not {port}\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("host", ["192.0.2.1", "no host"])
def test_an_address_that_is_not_of_this_machine_is_refused(host: str, tmp_path: Path) -> None:
    settings = {"WEFT_API_KEYS": "a-key-of-twenty-four-chars"}
    ended = refused(tmp_path, "--host", host, "--port", "0", settings=settings)
    assert ended.returncode == 2
    assert host in ended.stderr
    assert "Traceback" not in ended.stderr


async def test_a_setting_comes_from_the_flag_before_the_environment_and_the_file(tmp_path: Path) -> None:
    (tmp_path / "weft.toml").write_text("worker_concurrency = 3\nodd = 1\n")
    settings = {"WEFT_WORKER_CONCURRENCY": "4"}
    async with serving(tmp_path / "data", "--concurrency", "5", settings=settings) as (server, api):
        (worker,) = (await api.get("/v1/workers"))["items"]
        assert worker["concurrency"] == 5
        (warning,) = server.events("settings.unknown")
        assert "odd is not a setting of weft" in warning["problem"]


async def test_short_keys_and_open_files_are_warned_about_at_the_start(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("opensesame\n")
    keys.chmod(0o644)
    server = await Server.start(
        tmp_path / "data", settings={"WEFT_API_KEYS_FILE": str(keys)}, folder=tmp_path
    )
    try:
        await server.ready()
        short, exposed = (event["problem"] for event in server.events("settings.exposed"))
    finally:
        await server.kill()
    assert "fewer than 16 characters" in short
    assert "can be read by every user of this machine: chmod 600" in exposed
    assert "opensesame" not in str(server.log)


async def test_modules_and_functions_of_the_settings_are_there(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "import os\nimport weft\n\n"
        "@weft.handler('mine')\ndef mine(config, context):\n    return os.getpid()\n\n"
        "def double(number):\n    return 2 * number\n"
    )
    settings = {"WEFT_IMPORTS": "mine", "WEFT_PYTHON_ALLOW": "mine:double"}
    definition = {
        "nodes": [
            {"id": "own", "handler": "mine"},
            {"id": "two", "handler": "python", "config": {"function": "mine:double", "args": {"number": 1}}},
        ]
    }
    async with serving(tmp_path / "data", settings=settings) as (server, api):
        shown = await api.terminal(await api.start(definition))
        assert shown["output"]["two"] == 2
        # Users' code runs in a child process, never in the server's own.
        assert shown["output"]["own"] != server.process.pid


async def test_work_whose_handler_is_gone_waits_for_a_process_that_has_it(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "import weft\n\n@weft.handler('mine')\ndef mine(config, context):\n    return 'ran'\n"
    )
    data, settings = tmp_path / "data", {"WEFT_IMPORTS": "mine"}
    definition = {
        "nodes": [
            {"id": "nap", "handler": "hold", "config": {"seconds": 0.5}},
            {"id": "own", "handler": "mine", "dependencies": ["nap"]},
            {"id": "lane", "handler": "mine", "dependencies": ["nap"], "queue": "echo"},
            {"id": "other", "handler": "echo", "dependencies": ["nap"]},
        ]
    }
    async with serving(data, settings=settings) as (server, api):
        execution_id = await api.start(definition)
        await server.kill()
    async with serving(data) as (_, api):
        path = f"/v1/executions/{execution_id}"
        async with asyncio.timeout(PATIENCE_SECONDS):
            while (await api.get(f"{path}/nodes/other"))["state"] != "COMPLETED":
                pass
        for node in ("own", "lane"):
            explained = await api.get(f"{path}/nodes/{node}/explain")
            assert explained["state"] == "QUEUED"
            assert [reason["code"] for reason in explained["reasons"]] == ["no_worker"]
        depths = {queue["name"]: queue["depth"] for queue in (await api.get("/v1/queues"))["items"]}
        assert (depths["mine"], depths["echo"]) == (1, 1)
    async with serving(data, settings=settings) as (_, api):
        shown = await api.terminal(execution_id)
        assert shown["output"] == {"own": "ran", "lane": "ran", "other": {}}
        assert not any(event["type"] == "node.retrying" for event in await api.history(execution_id))


async def test_a_copy_made_while_the_server_runs_can_be_gone_on_from(tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    async with serving(tmp_path / "data") as (_, api):
        done = await api.terminal(await api.start(sleeper(0)))
        under_way = await api.start(sleeper(2))
        await running(api, under_way, "nap")
        with closing(sqlite3.connect(tmp_path / "data" / "weft.db")) as journal:
            journal.execute("VACUUM INTO ?", [str(copy / "weft.db")])
        assert (await api.terminal(under_way))["state"] == "COMPLETED"
    async with serving(copy) as (_, api):
        assert await api.get(f"/v1/executions/{done['id']}") == done
        assert (await api.terminal(under_way))["state"] == "COMPLETED"


# -- stopping --------------------------------------------------------------------------------------------


async def test_a_short_task_ends_within_the_grace_time_and_counts(tmp_path: Path) -> None:
    async with serving(tmp_path / "data") as (server, api):
        execution_id = await api.start(sleeper(1))
        await running(api, execution_id, "nap")
        assert await server.stop() == 0
    async with serving(tmp_path / "data") as (_, api):
        shown = await api.terminal(execution_id)
        assert shown["state"] == "COMPLETED"
        nap, _ = shown["nodes"]
        # It ended in its first attempt, before the restart: nothing settled ran again.
        assert nap["attempt"] == 1


async def test_a_long_task_is_handed_back_after_the_grace_time_and_runs_again_at_once(tmp_path: Path) -> None:
    settings = {"WEFT_WORKER_GRACE": "300ms", "WEFT_WORKER_HEARTBEAT_TIMEOUT": "300"}
    loop = asyncio.get_running_loop()
    async with serving(tmp_path / "data", settings=settings) as (server, api):
        execution_id = await api.start(sleeper(60))
        await running(api, execution_id, "nap")
        asked = loop.time()
        assert await server.stop() == 0
        assert loop.time() - asked < 10
    async with serving(tmp_path / "data", settings=settings) as (_, api):
        # No lease is waited for.
        async with asyncio.timeout(10):
            await running(api, execution_id, "nap", attempt=2)
        node = await api.get(f"/v1/executions/{execution_id}/nodes/nap")
        assert node["attempts"][0]["outcome"] == "lost"


async def test_what_ends_while_it_drains_is_recorded_before_the_rest_has_ended(tmp_path: Path) -> None:
    nodes = [
        {"id": name, "handler": "hold", "config": {"seconds": seconds}}
        for name, seconds in (("nap", 1), ("long", 60))
    ]
    async with serving(tmp_path / "data", settings={"WEFT_WORKER_GRACE": "60s"}) as (server, api):
        execution_id = await api.start({"nodes": nodes})
        await running(api, execution_id, "nap")
        server.process.send_signal(signal.SIGTERM)
        await server.logged("server.draining")
        await reached(api, execution_id, "nap", state="COMPLETED")
        # Whoever loses patience now has lost only what had not ended.
        await server.kill()
    async with serving(tmp_path / "data") as (_, api):
        await running(api, execution_id, "long", attempt=2)
        nap = await api.get(f"/v1/executions/{execution_id}/nodes/nap")
        assert (nap["state"], nap["attempt"]) == ("COMPLETED", 1)


async def test_a_paused_execution_keeps_its_attempts_however_often_the_server_is_restarted(
    tmp_path: Path,
) -> None:
    """One node was queued before the pause, one became ready after it; nobody has started either."""
    definition = {
        "nodes": [
            {"id": "nap", "handler": "hold", "config": {"seconds": 1}},
            {"id": "once", "handler": "hold", "config": {"seconds": 0}, "delivery": "at_most_once"},
            {"id": "after", "handler": "echo", "dependencies": ["nap"], "delivery": "at_most_once"},
        ]
    }
    async with serving(tmp_path / "data", "--concurrency", "1") as (server, api):
        execution_id = await api.start(definition)
        await running(api, execution_id, "nap")
        assert (await api.call("POST", f"/v1/executions/{execution_id}/pause"))[0] == 202
        await reached(api, execution_id, "nap", state="COMPLETED")
        assert await server.stop() == 0
    for _ in range(3):
        async with serving(tmp_path / "data", "--concurrency", "1") as (server, api):
            assert (await api.get(f"/v1/executions/{execution_id}"))["state"] == "PAUSED"
            assert await server.stop() == 0
    async with serving(tmp_path / "data") as (_, api):
        assert (await api.call("POST", f"/v1/executions/{execution_id}/resume"))[0] == 202
        shown = await api.terminal(execution_id)
        assert shown["state"] == "COMPLETED"
        assert {node["id"]: node["attempt"] for node in shown["nodes"]} == {"nap": 1, "once": 1, "after": 1}
        assert "node.lost" not in [event["type"] for event in await api.history(execution_id)]


async def test_while_it_drains_it_answers_is_not_ready_and_turns_new_work_away(tmp_path: Path) -> None:
    async with serving(tmp_path / "data") as (server, api):
        execution_id = await api.start(sleeper(2))
        await running(api, execution_id, "nap")
        waiting = asyncio.create_task(api.call("GET", f"/v1/executions/{execution_id}?wait=60"))
        server.process.send_signal(signal.SIGTERM)
        await server.logged("server.draining")
        status, ready, _ = await api.call("GET", "/readyz")
        assert (status, ready["ready"]) == (503, False)
        assert (await api.call("GET", "/healthz"))[0] == 200
        status, problem, headers = await api.call("POST", "/v1/executions", {"definition": sleeper(0)})
        assert (status, problem["code"]) == (503, "unavailable")
        assert int(headers["Retry-After"]) >= 1
        (worker,) = (await api.get("/v1/workers"))["items"]
        assert worker["state"] == "draining"
        # A call that waits gets its answer now, not a broken connection later.
        status, shown, _ = await waiting
        assert (status, shown["state"]) == (200, "RUNNING")
        assert await server.ended() == 0


async def test_the_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    settings = {"WEFT_WORKER_GRACE": "60s"}
    async with serving(tmp_path / "data", settings=settings) as (server, api):
        execution_id = await api.start(sleeper(60))
        await running(api, execution_id, "nap")
        server.process.send_signal(signal.SIGTERM)
        await server.logged("server.draining")
        loop = asyncio.get_running_loop()
        asked = loop.time()
        assert await server.stop() == 128 + signal.SIGTERM
        assert loop.time() - asked < 5


async def running(api: Any, execution_id: str, node_id: str, *, attempt: int = 1) -> None:
    """Return once this attempt of a node runs."""
    await reached(api, execution_id, node_id, state="RUNNING", attempt=attempt)


async def reached(api: Any, execution_id: str, node_id: str, *, state: str, attempt: int = 1) -> None:
    """Return once this attempt of a node stands like this."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            node = await api.get(f"/v1/executions/{execution_id}/nodes/{node_id}")
            if (node["state"], node["attempt"]) == (state, attempt):
                return
            await asyncio.sleep(0.01)


# -- people ----------------------------------------------------------------------------------------------


def test_on_a_terminal_people_are_told_in_words_and_ctrl_c_ends_with_code_130(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("WEFT_")}
    with os.fdopen(ours, "rb", buffering=0) as terminal:
        process = subprocess.Popen([*WEFT, "up", "--port", "0"], cwd=tmp_path, env=environment, stderr=theirs)
        os.close(theirs)
        try:
            first = terminal.readline().decode().strip()
            assert re.fullmatch(r"weft is ready at http://127\.0\.0\.1:\d+ \(data: \.weft\)", first)
            process.send_signal(signal.SIGINT)
            assert "Press Ctrl-C again" in terminal.readline().decode()
            assert process.wait(PATIENCE_SECONDS) == 130
        finally:
            process.kill()
            process.wait()
