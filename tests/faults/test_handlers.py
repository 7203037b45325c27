"""Section E of the fault catalogue: handlers, through a server. What else there is of it: docs/faults.md."""

from __future__ import annotations

import asyncio
import gzip
import itertools
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.operation.serving import PATIENCE_SECONDS, serving
from tests.operation.usage import children, descriptors, memory, threads
from tests.worker.test_isolate import EXCEPTIONS, NOT_JSON

from weft.handlers.outcome import MAX_MESSAGE_BYTES
from weft.testing.http_server import Answer, Behaviour, Pieces, ReceivedRequest, Silence, json_answer
from weft.testing.recording_service import RecordingService

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.operation.serving import Api

ALLOW = "tests.worker.lethal:*,tests.walks.untamed:*,tests.faults.misbehaving:*"
CODE = {"WEFT_PYTHON_ALLOW": ALLOW, "WEFT_WORKER_PROCESSES": "2"}
LETHAL, UNTAMED, MISBEHAVING = "tests.worker.lethal", "tests.walks.untamed", "tests.faults.misbehaving"


def function(node_id: str, name: str, /, *, of: str = MISBEHAVING, args: Any = None, **fields: Any) -> Any:
    return {
        "id": node_id,
        "handler": "python",
        "config": {"function": f"{of}:{name}", "args": args or {}},
        "retry": {"base_delay_seconds": 0},
        **fields,
    }


def all_of(*nodes: Any) -> dict[str, Any]:
    return {"failure_policy": "continue", "nodes": list(nodes)}


async def run(api: Api, *nodes: Any) -> dict[str, Any]:
    """Run nodes that have nothing to do with each other; give each by its id."""
    shown = await api.terminal(await api.start(all_of(*nodes)))
    return {node["id"]: node for node in shown["nodes"]}


async def test_functions_that_kill_their_process_hurt_nobody_else(tmp_path: Path) -> None:
    """F52: dead letters after so many deliveries, a hundred neighbours not charged, and the pool recovers."""
    lethal = ("die", "segfault", "run_out_of_memory")
    good = [function(f"good{n}", "add", of=LETHAL, args={"a": n, "b": 1}) for n in range(100)]
    # Among the good ones, as they come.
    bad = {name: function(name, name, of=LETHAL, max_retries=0) for name in lethal}
    mixed = [*good[:20], bad["die"], *good[20:50], bad["segfault"], *good[50:80], bad["run_out_of_memory"]]
    async with serving(tmp_path / "data", settings=CODE) as (server, api):
        ended = await run(api, *mixed, *good[80:])
        for name in lethal:
            node = ended[name]
            assert (node["state"], node["error"]["code"]) == ("FAILED", "deliveries_exhausted"), node
            assert node["attempt"] == 3
        for number in range(100):
            node = ended[f"good{number}"]
            assert (node["output"], node["attempt"]) == (number + 1, 1), node
        letters = (await api.get("/v1/dead-letters"))["items"]
        assert {letter["node"] for letter in letters} == set(lethal)
        assert {letter["error"]["code"] for letter in letters} == {"deliveries_exhausted"}
        again = await run(api, function("after", "add", of=LETHAL, args={"a": 1, "b": 2}))
        assert (again["after"]["output"], again["after"]["attempt"]) == (3, 1)
        assert (await api.call("GET", "/readyz"))[0] == 200
        assert len(children(server.process.pid)) <= 2


async def test_functions_that_do_not_listen_are_stopped_and_hold_nobody_up(tmp_path: Path) -> None:
    """F53, F54, F55: a blocked loop, one that swallows its stop, and one that comes back too late."""
    marks = {name: str(tmp_path / name) for name in ("block", "swallow")}
    fields: dict[str, Any] = {"timeout_seconds": 1, "max_retries": 0}
    settings = {**CODE, "WEFT_WORKER_GRACE": "500ms", "WEFT_WORKER_PROCESSES": "4"}
    async with serving(tmp_path / "data", settings=settings) as (_, api):
        bad = await api.start(
            all_of(
                function("block", "block", of=UNTAMED, args={"mark": marks["block"]}, **fields),
                function("swallow", "swallow", of=UNTAMED, args={"mark": marks["swallow"]}, **fields),
                function("late", "oversleep", args={"seconds": 1.2}, **fields),
            )
        )
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not all(Path(mark).exists() for mark in marks.values()):  # noqa: ASYNC110, ASYNC240
                await asyncio.sleep(0.01)
        # While they do what they should not, everything else goes on.
        beside = await run(
            api,
            {"id": "echo", "handler": "echo"},
            function("add", "add", of=UNTAMED, args={"a": 1, "b": 2}),
        )
        assert (beside["add"]["output"], beside["add"]["attempt"]) == (3, 1)
        assert (await api.get("/healthz"))["alive"] is True
        ended = await api.terminal(bad)
        nodes = {node["id"]: node for node in ended["nodes"]}
        for name, node in nodes.items():
            assert (node["state"], node["error"]["code"]) == ("FAILED", "timeout"), name
            assert (node["attempt"], node["output"]) == (1, None)
        assert not lives(marks["swallow"])
        # The slots are free again.
        async with asyncio.timeout(PATIENCE_SECONDS):
            while (await api.get("/v1/queues"))["items"][0]["in_flight"]:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        # What came late changed nothing.
        assert await api.get(f"/v1/executions/{bad}") == ended


async def test_a_cancelled_function_that_does_not_listen_is_killed_and_its_slot_comes_back(
    tmp_path: Path,
) -> None:
    """F54 after a cancel: killed at the end of the grace time, and the only slot is free."""
    mark = tmp_path / "swallow"
    settings = {**CODE, "WEFT_WORKER_GRACE": "300ms", "WEFT_WORKER_HEARTBEAT_INTERVAL": "200ms"}
    async with serving(tmp_path / "data", "--concurrency", "1", settings=settings) as (_, api):
        execution_id = await api.start(
            all_of(function("swallow", "swallow", of=UNTAMED, args={"mark": str(mark)}))
        )
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not mark.exists() or not mark.read_text():  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        status, cancelled, _ = await api.call("POST", f"/v1/executions/{execution_id}/cancel")
        assert (status, cancelled["state"]) == (202, "CANCELLED")
        after = await run(api, function("after", "add", of=UNTAMED, args={"a": 1, "b": 2}))
        assert after["after"]["output"] == 3
        assert not lives(str(mark))


async def test_whatever_a_function_raises_is_recorded_in_bounded_text(tmp_path: Path) -> None:
    """F56: the zoo of exceptions, in functions and coroutines; each ends its own node and no other."""
    nodes = [
        function(f"{kind}{number}", kind, of=LETHAL, args={"what": what}, max_retries=1)
        for kind in ("raised", "raised_in_coroutine")
        for number, what in enumerate(EXCEPTIONS)
    ]
    async with serving(tmp_path / "data", settings=CODE) as (server, api):
        ended = await run(api, *nodes)
        for number, kind in enumerate(EXCEPTIONS.values()):
            for name in ("raised", "raised_in_coroutine"):
                node = ended[f"{name}{number}"]
                assert (node["state"], node["error"]["code"], node["attempt"]) == (
                    "FAILED",
                    "handler_error",
                    2,
                ), node
                assert len(node["error"]["message"].encode()) <= MAX_MESSAGE_BYTES
                if name == "raised" or kind not in ("StopIteration", "CancelledError"):
                    assert node["error"]["details"]["type"] == kind
        letters = (await api.get("/v1/dead-letters?limit=100"))["items"]
        assert len(letters) == len(nodes)
        assert len(str(letters)) < len(nodes) * 2 * MAX_MESSAGE_BYTES
        assert [line for line in server.log if "event" not in line] == []


async def test_whatever_is_no_json_fails_its_node_for_good(tmp_path: Path) -> None:
    """F57 and F64: values that JSON does not have, or that are too large, are typed and not retried."""
    nodes = [
        function(f"n{number}", "returned", of=LETHAL, args={"what": what})
        for number, what in enumerate(NOT_JSON)
    ]
    nodes.append(function("deep", "returned", of=LETHAL, args={"what": "deep"}))
    async with serving(tmp_path / "data", settings=CODE) as (server, api):
        ended = await run(api, *nodes)
        for number in range(len(NOT_JSON)):
            node = ended[f"n{number}"]
            assert (node["state"], node["attempt"]) == ("FAILED", 1), NOT_JSON[number]
            assert (node["error"]["code"], node["error"]["retryable"]) == ("output_not_json", False)
        assert (ended["deep"]["error"]["code"], ended["deep"]["attempt"]) == ("output_too_large", 1)
        before = memory(server.process.pid)
        huge = await run(api, function("huge", "large", args={"megabytes": 100}))
        assert (huge["huge"]["error"]["code"], huge["huge"]["attempt"]) == ("output_too_large", 1)
        # It never came here: its own process measured it.
        assert memory(server.process.pid) < before + 16 * 2**20
        assert (await api.call("GET", "/readyz"))[0] == 200


async def test_functions_that_leak_do_not_wear_the_server_out(tmp_path: Path) -> None:
    """F58: a file, a thread and 100 kB kept with each of 1,000 calls; processes are replaced in time."""
    async with serving(tmp_path / "data", settings=CODE) as (server, api):
        pid = server.process.pid
        definition = {"name": "leaks", "nodes": [function("a", "leak", args={"number": "{{ input.n }}"})]}
        assert (await api.call("POST", "/v1/workflows", definition))[0] == 201

        async def leak(count: int) -> None:
            batch = {"workflow": "leaks", "inputs": [{"n": n} for n in range(count)]}
            status, started, _ = await api.call("POST", "/v1/batches", batch)
            assert status == 202
            async with asyncio.timeout(PATIENCE_SECONDS):
                while (shown := await api.get(f"/v1/batches/{started['id']}"))["state"] != "COMPLETED":
                    worst.extend(usage_of_children(pid))
                    await asyncio.sleep(0.05)
            assert shown["counts"]["COMPLETED"] == count

        worst: list[tuple[int, int]] = []
        await leak(100)
        early = descriptors(pid), threads(pid), memory(pid)
        first_children = set(children(pid))
        await leak(1000)
        late = descriptors(pid), threads(pid), memory(pid)
        assert late[0] <= early[0] + 8
        assert late[1] <= early[1] + 4
        assert late[2] < early[2] + 32 * 2**20
        # No child was near the 1,024 files that it may have open, and none of the first is left.
        assert max(files for files, _ in worst) < 400
        assert max(count for _, count in worst) < 400
        assert not first_children & set(children(pid))
        assert len(children(pid)) <= 4


def lives(mark: str) -> bool:
    """True if the process that wrote its number down still runs."""
    return Path(f"/proc/{Path(mark).read_text()}").exists()


def usage_of_children(pid: int) -> list[tuple[int, int]]:
    """Return the open files and threads of each child process; a child that ends meanwhile is left out."""
    usage = []
    for child in children(pid):
        with suppress(FileNotFoundError, ProcessLookupError, KeyError, PermissionError):
            usage.append((descriptors(child), threads(child)))
    return usage


# -- Services that answer badly --------------------------------------------------------------------------

MIB = 2**20
BOMB = gzip.compress(bytes(50 * MIB), 1)
CHUNK = b"10000\r\n" + bytes(0x10000) + b"\r\n"
CHUNKED = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
# By the first part of the path: what the service does, and how the node ends.
SERVICES: Mapping[str, tuple[Any, str, int]] = {
    "bomb": (
        lambda: Answer(200, BOMB, {"Content-Encoding": "gzip"}),
        "response_too_large",
        1,
    ),
    "endless": (
        lambda: Pieces(itertools.chain([CHUNKED], itertools.repeat(CHUNK))),
        "response_too_large",
        1,
    ),
    "drip": (
        lambda: Pieces((bytes([byte]) for byte in CHUNKED + b"1\r\nx\r\n" * 1000), pause_seconds=0.05),
        "timeout",
        2,
    ),
    "silence": (Silence, "timeout", 2),
    "cut": (lambda: Pieces([CHUNKED + b"5\r\nhel"]), "network_error", 2),
    "refused": (lambda: Answer(401), "http_status", 1),
    "broken": (lambda: Answer(500), "http_status", 2),
}
HTTP_ONLY: Mapping[str, tuple[Any, str, int]] = {
    "loop": (lambda: Answer(302, headers={"Location": "/loop"}), "http_status", 1),
}
LLM_ONLY: Mapping[str, tuple[Any, str, int]] = {
    "error": (lambda: json_answer({"error": {"message": "overloaded"}}), "bad_response", 2),
    "nonsense": (lambda: Answer(200, b"<html>"), "bad_response", 2),
}


async def test_services_that_answer_badly_are_told_apart_and_cost_a_bounded_time(tmp_path: Path) -> None:
    """F59, F60: bombs, endless bodies, drips, silence, loops and nonsense, for HTTP and for LLM calls."""
    every = {**SERVICES, **HTTP_ONLY, **LLM_ONLY}

    def respond(request: ReceivedRequest) -> Behaviour:
        behaviour: Behaviour = every[request.target.split("/")[1]][0]()
        return behaviour

    settings = {
        "WEFT_HTTP_ALLOW": "127.0.0.1",
        "WEFT_MAX_RESPONSE_BYTES": str(MIB),
        "WEFT_LLM_MODEL": "any",
    }
    fields = {"timeout_seconds": 2, "max_retries": 1, "retry": {"base_delay_seconds": 0}}
    loop = asyncio.get_running_loop()
    with RecordingService(respond) as service:
        nodes = [
            {
                "id": f"http-{name}",
                "handler": "call_external_service",
                "config": {"url": f"{service.url}/{name}"},
                **fields,
            }
            for name in {**SERVICES, **HTTP_ONLY}
        ] + [
            {
                "id": f"llm-{name}",
                "handler": "llm_service",
                "config": {"prompt": "x", "base_url": f"{service.url}/{name}"},
                **fields,
            }
            for name in {**SERVICES, **LLM_ONLY}
        ]
        async with serving(tmp_path / "data", settings=settings) as (server, api):
            assert (await run(api, {"id": "a", "handler": "echo"}))["a"]["state"] == "COMPLETED"
            before = memory(server.process.pid)
            began = loop.time()
            ended = await run(api, *nodes)
            assert loop.time() - began < 30
            assert memory(server.process.pid) < before + 48 * MIB
            for name, node in ended.items():
                _, code, attempts = every[name.partition("-")[2]]
                assert (name, node["error"]["code"], node["attempt"]) == (name, code, attempts)
            # Not more calls than attempts and redirects: nothing is sent again behind the engine's back.
            calls = [call.request.target for call in service.calls]
            assert calls.count("/loop") == 6
            assert calls.count("/broken") == 2
