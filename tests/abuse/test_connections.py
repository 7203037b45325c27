"""Connections, bodies and streams of an attacker, and what a caller with a key notices of them."""

from __future__ import annotations

import asyncio
import os
import re
import resource
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from tests.abuse.bystander import measure
from tests.abuse.many_connections import keep_open
from tests.faults.raw import request

from weft.testing.http_server import Answer
from weft.testing.recording_service import RecordingService

if TYPE_CHECKING:
    from tests.abuse.bystander import Abused, Attacker, Target

OURS, THEIRS = "the-key-of-the-bystander-1234", "the-key-of-the-attacker-12345"
# Few enough that an attack is cheap, and enough for the bystander.
CONNECTIONS = 200
SETTINGS = {"WEFT_API_KEYS": f"{OURS},{THEIRS}", "WEFT_MAX_CONNECTIONS": str(CONNECTIONS)}
BEARER = f"Authorization: Bearer {THEIRS}"


def bystander_of(target: Target) -> Target:
    return replace(target, headers={"Authorization": f"Bearer {OURS}"})


async def count(target: Target, metric: str) -> dict[str, float]:
    """Read a counter of the server, by its label."""
    async with (
        aiohttp.ClientSession(headers={"Authorization": f"Bearer {OURS}"}) as session,
        session.get(f"{target.url}/metrics") as response,
    ):
        text = await response.text()
    return {
        label: float(value) for label, value in re.findall(rf'^{metric}{{\w+="(\w+)"}} (\S+)$', text, re.M)
    }


HEAD = b"POST /v1/executions HTTP/1.1\r\nHost: localhost\r\n"


@pytest.mark.parametrize(
    ("first", "drip"),
    [
        pytest.param(b"", b"", id="idle"),
        pytest.param(HEAD, b"X", id="heads that drip"),
        pytest.param(HEAD + b"Content-Length: 9999\r\n\r\n", b"x", id="bodies that drip behind a 401"),
        pytest.param(
            HEAD + f"{BEARER}\r\nContent-Length: 9999\r\n\r\n".encode(), b" ", id="bodies that drip"
        ),
    ],
)
async def test_slow_connections_keep_nobody_out(abused: Abused, first: bytes, drip: bytes) -> None:
    """F78: more of them than the server may have connections."""
    async with abused(**SETTINGS) as target:

        async def attack(attacker: Attacker) -> None:
            await keep_open(target.url, CONNECTIONS + 50, first, drip)

        await measure(bystander_of(target), attack)
        refused = await count(target, "weft_connections_closed_total")
        refused |= await count(target, "weft_http_requests_refused_total")
        assert refused.get("evicted") or refused.get("requests"), refused
        logged = [line["event"] for server in target.processes for line in server.log]
        assert {"connection.closed", "request.refused"} & set(logged)
        assert len(logged) < 100, "the log does not grow with the attack"


async def test_the_streams_of_one_caller_keep_nobody_out(abused: Abused) -> None:
    """F97: a caller that subscribes more often than there are connections, and never reads."""
    async with abused(**SETTINGS) as target:

        async def attack(attacker: Attacker) -> None:
            await keep_open(target.url, CONNECTIONS + 50, request("GET", "/v1/events", b"", BEARER))

        await measure(bystander_of(target), attack)
        refused = await count(target, "weft_http_requests_refused_total")
        assert refused["streams"] > 100, refused
        # A neighbour's stream is let in while they last, and after it.
        async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {OURS}"}) as session:
            attacking = asyncio.create_task(
                keep_open(target.url, CONNECTIONS + 50, request("GET", "/v1/events", b"", BEARER))
            )
            await asyncio.sleep(1)
            async with session.get(f"{target.url}/v1/events") as response:
                assert response.status == 200
            await attacking


async def test_calls_that_wait_keep_nobody_out(abused: Abused) -> None:
    async with abused(**SETTINGS) as target:

        async def attack(attacker: Attacker) -> None:
            _, started = await attacker.call(
                "POST",
                "/v1/executions",
                {"definition": {"nodes": [{"id": "a", "handler": "sleep", "config": {"seconds": 30}}]}},
                headers={"Authorization": f"Bearer {THEIRS}"},
            )
            wait = request("GET", f"/v1/executions/{started['id']}?wait=60", b"", BEARER)
            await keep_open(target.url, CONNECTIONS + 50, wait)

        await measure(bystander_of(target), attack)
        refused = await count(target, "weft_http_requests_refused_total")
        assert refused["waiting"] > 0, refused


async def test_a_server_without_a_free_file_fails_no_node(abused: Abused) -> None:
    """The limit on files is below what a process was started with: the engine's reserve is gone."""
    calls = [
        {
            "id": f"n{number}",
            "handler": "call_external_service",
            "max_retries": 0,
            "config": {"url": "{{ input.url }}"},
            "dependencies": [f"n{number - 1}"] if number else [],
        }
        for number in range(200)
    ]
    # Each call needs a connection of its own.
    close = Answer(200, b"", {"Connection": "close"})
    with RecordingService(lambda _: close) as service:
        async with abused(**SETTINGS) as target:
            await starve(target, calls, service.url)


def limit_files(pid: int, free: int) -> None:
    """Let a process open so many more files than it has."""
    used = len(os.listdir(f"/proc/{pid}/fd"))
    _, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (used + free, hard))


async def starve(target: Target, calls: list[dict[str, Any]], url: str) -> None:
    headers = {"Authorization": f"Bearer {OURS}"}
    async with aiohttp.ClientSession(target.url, headers=headers) as session:
        for server in target.processes:
            limit_files(server.process.pid, 40)
        body = {"definition": {"nodes": calls}, "input": {"url": url}}
        async with session.post("/v1/executions", json=body) as response:
            started = await response.json()
        # The connections of callers are those of the API alone: a worker of a fleet gets no file at all.
        for server in target.processes[1:]:
            limit_files(server.process.pid, 0)
        await keep_open(target.url, CONNECTIONS)
        for server in target.processes[1:]:
            limit_files(server.process.pid, 40)
    # The session's connection may have been closed for want of a file.
    async with (
        aiohttp.ClientSession(target.url, headers=headers) as session,
        session.get(f"/v1/executions/{started['id']}?wait=60") as response,
    ):
        shown = await response.json()
    assert shown["state"] == "COMPLETED", shown
    assert {node["attempt"] for node in shown["nodes"]} == {1}
    assert (await count(target, "weft_out_of_files_total"))["server"] >= 1
    # The API says so, and so does the process that runs the nodes.
    assert target.processes[0].events("files.exhausted")
    assert target.processes[-1].events("files.exhausted")
