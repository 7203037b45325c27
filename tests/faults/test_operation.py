"""Section I of the fault catalogue: embedded mode and operation. What else there is of it: docs/faults.md."""

from __future__ import annotations

import asyncio
import os
import resource
import subprocess
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from tests.faults.scenarios import SCENARIOS
from tests.operation.serving import PATIENCE_SECONDS, ROOT, Api, Server, serving
from tests.support.hold.handler import HANDLER

from weft.definition.validation import check
from weft.engine import Engine
from weft.handlers.registry import Registry, default_registry
from weft.sdk.run import execute
from weft.settings import Settings
from weft.testing.http_server import Answer, Behaviour, ReceivedRequest, json_answer
from weft.testing.recording_service import RecordingService

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence
    from pathlib import Path

    from weft.errors import Failure

# -- F100 ------------------------------------------------------------------------------------------------

# A few in every run of the suite; WEFT_TEST_KILLS=200 for all that the catalogue asks for.
KILLS = int(os.environ.get("WEFT_TEST_KILLS", "40"))


def test_a_writer_killed_in_the_middle_of_its_commits_leaves_a_sound_journal(tmp_path: Path) -> None:
    """F100: kill -9 at any moment between commits and in them; whatever was acknowledged is there."""
    command = [sys.executable, "-m", "tests.faults.dying", str(tmp_path / "data"), str(KILLS), "1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, f"{KILLS}\n"), done.stderr


# -- F104 ------------------------------------------------------------------------------------------------

SETTINGS: dict[str, Any] = {"worker_grace_seconds": 0.05, "worker_heartbeat_interval_seconds": 0.05}


def outcome(shown: Mapping[str, Any]) -> dict[str, Any]:
    """Return what must not depend on where an execution ran."""
    return {
        "state": str(shown["state"]),
        "output": shown["output"],
        "error": shown["error"],
        "nodes": {
            node["id"]: {
                name: node[name] for name in ("state", "output", "error", "reason", "cause", "attempt")
            }
            for node in shown["nodes"]
        },
    }


def told(history: Sequence[Mapping[str, Any]]) -> Counter[tuple[Any, ...]]:
    """Return the events of an execution without their times and their order, which may differ."""
    fields = ("type", "node", "attempt", "state", "reason", "cause")
    return Counter(tuple(event.get(name) for name in fields) for event in history)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Api]:
    settings = {"WEFT_WORKER_GRACE": "50ms", "WEFT_WORKER_HEARTBEAT_INTERVAL": "50ms"}
    async with serving(tmp_path / "served", settings=settings) as (_, api):
        yield api


async def in_engine(
    document: Mapping[str, Any], given: Any, data: Path | None
) -> tuple[dict[str, Any], list[Mapping[str, Any]]]:
    registry = Registry([HANDLER])
    plan = check(document, handlers=registry, named=False).plan
    assert plan is not None
    async with Engine(registry=registry, settings=Settings(**SETTINGS), data=data) as engine:
        execution_id = await engine.submit(plan, document=dict(document), input=given)
        async with asyncio.timeout(PATIENCE_SECONDS):
            await engine.wait(execution_id)
        events = await engine.ports.catalog.events(execution_id, limit=10_000)
        return await engine.describe(execution_id), [
            {name: getattr(event, name, None) for name in event.__struct_fields__} for event in events
        ]


def shown_error(error: Failure | None) -> dict[str, Any] | None:
    """Return the error of a result as the API shows it: without a node where it names none."""
    return None if error is None else {key: value for key, value in dict(error).items() if value is not None}


async def test_every_door_leads_to_the_same_engine(server: Api, tmp_path: Path) -> None:
    """F104: the same workflows end alike in a script, on memory, on SQLite, and over REST."""
    # For the script.
    default_registry().add(HANDLER)
    for name, scenario in SCENARIOS.items():
        document = {field: value for field, value in scenario.items() if field != "input"}
        given = scenario.get("input", {})
        status, started, _ = await server.call(
            "POST", "/v1/executions", {"definition": document, "input": given}
        )
        assert status == 202, (name, started)
        shown = await server.terminal(started["id"])
        events = await server.history(started["id"])
        for data in (None, tmp_path / "embedded"):
            described, recorded = await in_engine(document, given, data)
            assert outcome(described) == outcome(shown), name
            assert told(recorded) == told(events), name
        result = await execute(document, given)
        by_script = {
            node_id: (node.state, node.output, shown_error(node.error), node.reason, node.attempt)
            for node_id, node in result.nodes.items()
        }
        assert (str(result.state), result.output, shown_error(result.error)) == (
            shown["state"],
            shown["output"],
            shown["error"],
        ), name
        assert by_script == {
            node["id"]: (node["state"], node["output"], node["error"], node["reason"], node["attempt"])
            for node in shown["nodes"]
        }, name


# -- F105 ------------------------------------------------------------------------------------------------


def nap(seconds: float) -> dict[str, Any]:
    return {"nodes": [{"id": "nap", "handler": "hold", "config": {"seconds": seconds, "word": "awake"}}]}


def let_write(server: Server, *, allowed: bool) -> None:
    """Take from a running process every right to write to a file, as a full disk does, or give it back."""
    _, hard = resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (hard if allowed else 0, hard))


async def test_without_a_disk_to_write_to_a_server_lives_says_so_and_recovers(tmp_path: Path) -> None:
    """F105 and F103: alive, not ready for a reason, submits refused; then all goes on, nothing is lost."""
    async with serving(tmp_path / "data") as (server, api):
        before = await api.terminal(await api.start(nap(0)))
        under_way = await api.start(nap(1))
        async with asyncio.timeout(PATIENCE_SECONDS):
            while (await api.get(f"/v1/executions/{under_way}/nodes/nap"))["state"] != "RUNNING":  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        let_write(server, allowed=False)
        assert (await api.get("/healthz")) == {"alive": True}
        status, ready, _ = await api.call("GET", "/readyz")
        assert (status, ready["ready"]) == (503, False)
        failing = {name: check["message"] for name, check in ready["checks"].items() if not check["ok"]}
        assert list(failing) == ["journal"]
        assert str(tmp_path) not in failing["journal"]
        for path, body in (
            ("/v1/executions", {"definition": nap(0)}),
            ("/v1/workflows", {"name": "flow", **nap(0)}),
            (f"/v1/executions/{under_way}/cancel", None),
        ):
            status, problem, headers = await api.call("POST", path, body)
            assert (status, problem["code"]) == (503, "unavailable"), (path, problem)
            assert int(headers["Retry-After"]) >= 1
            assert str(tmp_path) not in str(problem)
        # What is there can be read.
        assert await api.get(f"/v1/executions/{before['id']}") == before
        # The nap ends meanwhile, and its result waits for a journal that takes it.
        await asyncio.sleep(1.5)
        assert (await api.get(f"/v1/executions/{under_way}"))["state"] == "RUNNING"
        let_write(server, allowed=True)
        assert (await api.call("GET", "/readyz"))[0] == 200
        # It need not be found by those who look for what somebody else has left.
        async with asyncio.timeout(5):
            shown = await api.terminal(under_way)
        # No attempt was burned by the outage.
        assert (shown["state"], shown["nodes"][0]["attempt"]) == ("COMPLETED", 1)
        after = await api.terminal(await api.start(nap(0)))
        listed = (await api.get("/v1/executions"))["items"]
        # What was refused has left nothing.
        assert [one["id"] for one in listed] == [after["id"], under_way, before["id"]]
        said = {"server.ready", "journal.unavailable", "api.unavailable"}
        assert {line["event"] for line in server.log} == said
        assert await server.stop() == 0
    async with serving(tmp_path / "data") as (_, api):
        assert await api.get(f"/v1/executions/{under_way}") == shown


# -- F108 ------------------------------------------------------------------------------------------------


async def test_a_retry_calls_again_what_failed_and_nothing_else(tmp_path: Path) -> None:
    """F108: the service counts; tokens of what completed are passed on unchanged, attempts go on counting."""
    is_mended = False

    def respond(request: ReceivedRequest) -> Behaviour:
        if request.target == "/pay" and not is_mended:
            return Answer(400)
        return json_answer({"token": f"{request.target} {len(service.calls)}"})

    def call(name: str, *parents: str, **fields: Any) -> dict[str, Any]:
        tokens = [f"{{{{ {parent}.body.token }}}}" for parent in parents]
        config = {"url": f"{service.url}/{name}", "body": {"parents": tokens}}
        return {
            "id": name,
            "handler": "call_external_service",
            "config": config,
            "dependencies": list(parents),
            **fields,
        }

    service = RecordingService(respond)
    settings = {"WEFT_HTTP_ALLOW": "127.0.0.1"}
    with service:
        nodes = [
            call("reserve"),
            call("other"),
            call("pay", "reserve"),
            call("ship", "pay", "reserve"),
            call("report", "other"),
        ]
        async with serving(tmp_path / "data", settings=settings) as (_, api):
            failed = await api.terminal(await api.start({"failure_policy": "continue", "nodes": nodes}))
            assert failed["state"] == "FAILED"
            first = {node["id"]: node for node in failed["nodes"]}
            assert (first["pay"]["state"], first["ship"]["state"]) == ("FAILED", "SKIPPED")
            calls = Counter(call.node for call in service.calls)
            is_mended = True
            path = f"/v1/executions/{failed['id']}/retry"
            status, plan, _ = await api.call("POST", path, {"dry_run": True})
            assert (status, plan["run"], plan["reuse"]) == (
                200,
                ["pay", "ship"],
                ["reserve", "other", "report"],
            )
            assert (await api.call("POST", path))[0] == 202
            shown = await api.terminal(failed["id"])
        assert (shown["state"], shown["generation"]) == ("COMPLETED", 2)
        second = {node["id"]: node for node in shown["nodes"]}
        assert Counter(call.node for call in service.calls) - calls == {"pay": 1, "ship": 1}
        for name in ("reserve", "other", "report"):
            assert second[name] == first[name]
        assert (second["pay"]["attempt"], second["ship"]["attempt"]) == (2, 1)
        last = {call.node: call for call in service.calls}
        assert [last[name].generation for name in ("pay", "ship", "reserve")] == [2, 2, 1]
        tokens = {name: node["output"]["body"]["token"] for name, node in second.items()}
        assert last["pay"].request.json() == {"parents": [tokens["reserve"]]}
        assert last["ship"].request.json() == {"parents": [tokens["pay"], tokens["reserve"]]}


# -- F109 ------------------------------------------------------------------------------------------------

SLOTS = 64


async def test_after_a_cancel_is_answered_nothing_of_a_wide_fan_out_starts(tmp_path: Path) -> None:
    """F109: a thousand calls, as many under way as there are slots; not one more comes after the answer."""
    settings = {
        "WEFT_HTTP_ALLOW": "127.0.0.1",
        "WEFT_WORKER_GRACE": "1s",
        "WEFT_WORKER_HEARTBEAT_INTERVAL": "200ms",
    }
    loop = asyncio.get_running_loop()
    async with RecordingService() as service:
        call = {"handler": "call_external_service", "config": {"url": service.url}, "dependencies": ["root"]}
        nodes = [{"id": "root", "handler": "echo"}, *({"id": f"call{i}", **call} for i in range(1000))]
        # All slots are taken by calls that have no answer: only a freed one could start another.
        service.hold()
        async with serving(tmp_path / "data", "--concurrency", str(SLOTS), settings=settings) as (_, api):
            execution_id = await api.start({"nodes": nodes})
            await service.came(SLOTS)
            status, answer, _ = await api.call("POST", f"/v1/executions/{execution_id}/cancel")
            answered = loop.time()
            assert (status, answer["state"]) == (202, "CANCELLED")
            assert (answer["counts"]["COMPLETED"], answer["counts"]["CANCELLED"]) == (1, 1000)
            # The slots come free within the grace time and a heartbeat, and somebody else gets them.
            others = [{"id": "a", "handler": "hold", "config": {"seconds": 0}}]
            other = await api.terminal(await api.start({"nodes": others}))
            assert other["state"] == "COMPLETED"
            assert loop.time() - answered < 1.2 + 3
            service.release()
            async with asyncio.timeout(PATIENCE_SECONDS):
                while (await api.get("/v1/workers"))["items"][0]["running"]:  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
            assert len(service.calls) == SLOTS
            shown = await api.get(f"/v1/executions/{execution_id}")
            started = [node for node in shown["nodes"] if node["started_at"] is not None]
            assert len(started) == SLOTS + 1
            assert all(node["started_at"] <= shown["finished_at"] for node in started)
            history = await api.history(execution_id)
            ended = next(event["seq"] for event in history if event["type"] == "execution.cancelled")
            # What still came is noted, and changes nothing.
            assert {event["type"] for event in history if event["seq"] > ended} <= {"result.discarded"}
