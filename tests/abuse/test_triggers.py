"""Triggers, webhooks and events that are costly: to compile, to fill in, to list, or by their number."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import io
import json
from typing import TYPE_CHECKING, Any

import aiohttp
from tests.abuse.bystander import Attacker, measure
from tests.abuse.many_connections import keep_open
from tests.faults.raw import request

if TYPE_CHECKING:
    from tests.abuse.bystander import Abused, Target

SECRET = "the-secret-of-a-webhook-123456"
# As much as a trigger may have with expressions, and as many of them as fit.
COSTLY = "{{" + "+".join(["1"] * 1900) + "}}"
WAITS = 400


def flow(*nodes: Any, name: str = "flow", **fields: Any) -> dict[str, Any]:
    return {"name": name, "nodes": [*nodes] or [{"id": "a", "handler": "echo"}], **fields}


async def put(attacker: Attacker, name: str, **trigger: Any) -> None:
    status, shown = await attacker.call("PUT", f"/v1/triggers/{name}", {"workflow": "flow", **trigger})
    assert status == 201, shown


async def send(attacker: Attacker, number: int, **event: Any) -> tuple[int, Any]:
    given = {"type": "t", "source": "attack", "id": str(number), **event}
    return await attacker.call("POST", "/v1/events", given)


async def in_peace(target: Target, prepare: Any) -> Any:
    """Let an attacker prepare something, with nobody beside it; return what came of it."""
    timeout = aiohttp.ClientTimeout(total=120)
    async with aiohttp.ClientSession(target.url, headers=target.headers, timeout=timeout) as session:
        return await prepare(Attacker(target, session))


async def waiting(attacker: Attacker) -> int:
    """Return how many executions have a node that waits."""
    found, path = 0, "/v1/executions?limit=500"
    while path:
        _, page = await attacker.call("GET", path)
        found += sum(1 for item in page["items"] if item["counts"].get("WAITING"))
        path = page["next_cursor"] and f"/v1/executions?limit=500&cursor={page['next_cursor']}"
    return found


def signed(body: bytes) -> dict[str, str]:
    return {"X-Hub-Signature-256": "sha256=" + hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()}


async def test_templates_that_take_long_to_compile_are_not_noticed_by_others(abused: Abused) -> None:
    """Two webhooks and two triggers of an event, each called again and again."""

    async def prepare(attacker: Attacker) -> None:
        await attacker.call("POST", "/v1/workflows", flow())
        given = [COSTLY] * 4
        for number in range(2):
            hook = {"webhook": {"secret": "HOOK", "scheme": "github"}}
            await put(attacker, f"hook{number}", input={"a": [*given, number]}, **hook)
            await put(attacker, f"event{number}", input={"a": [*given, number]}, event={"type": "t"})

    async def attack(attacker: Attacker) -> set[int]:
        statuses = set()
        for number in range(30):
            hooks = [
                attacker.call("POST", f"/v1/hooks/hook{one}", b"{}", headers=signed(b"{}"))
                for one in range(2)
            ]
            statuses |= {status for status, _ in await asyncio.gather(*hooks, send(attacker, number))}
        return statuses

    async with abused(WEFT_SECRET_HOOK=SECRET) as target:
        await in_peace(target, prepare)
        assert (await measure(target, attack)).result == {202}


async def test_bodies_of_webhooks_that_drip_keep_nobody_out(abused: Abused) -> None:
    """Nobody who sends them has a key, and each head looks as if it were signed."""

    async def prepare(attacker: Attacker) -> None:
        await attacker.call("POST", "/v1/workflows", flow())
        await put(attacker, "hook", webhook={"secret": "HOOK", "scheme": "github"})

    async def attack(attacker: Attacker) -> None:
        lines = ["POST /v1/hooks/hook HTTP/1.1", "Host: localhost", "Content-Length: 9999"]
        head = "\r\n".join([*lines, f"X-Hub-Signature-256: sha256={'0' * 64}", "", ""])
        await keep_open(attacker.target.url, 300, head.encode(), b"x")

    async with abused(WEFT_SECRET_HOOK=SECRET) as target:
        await in_peace(target, prepare)
        await measure(target, attack)


async def test_an_event_that_many_wait_for_is_not_noticed_by_others(abused: Abused) -> None:
    """Two thousand executions wait for it, and one commit answers them all."""
    wait = {"id": "a", "handler": "wait", "config": {"event": "t"}}

    async def prepare(attacker: Attacker) -> None:
        await attacker.call("POST", "/v1/workflows", flow(wait))
        await attacker.call("POST", "/v1/batches", {"workflow": "flow", "inputs": [{}] * 2000})
        async with asyncio.timeout(60):
            while await waiting(attacker) < 2000:  # noqa: ASYNC110 - it is another process
                await asyncio.sleep(0.5)

    async def attack(attacker: Attacker) -> int:
        status, shown = await send(attacker, 1)
        assert status == 202, shown
        return len(shown["answered"])

    async with abused() as target:
        await in_peace(target, prepare)
        # The commits of all wait for the one of two thousand.
        assert (await measure(target, attack, factor=10)).result == 2000


async def test_many_waits_for_one_signal_are_not_noticed_by_others(abused: Abused) -> None:
    """Each signal is checked for all of them, and all of them read the mailbox when they begin."""
    gate = {"id": "gate", "handler": "wait", "config": {}}
    schema = {"type": "object", "properties": {"a": {"items": {"anyOf": [{"const": 1}, {"const": 2}]}}}}
    nodes = [
        {
            "id": f"n{number}",
            "handler": "wait",
            "config": {
                "signal": "s",
                "schema": schema if number % 2 else {**schema, "maxProperties": number},
            },
            "dependencies": ["gate"],
        }
        for number in range(WAITS // 2)
    ]

    async def attack(attacker: Attacker) -> set[int]:
        _, started = await attacker.call("POST", "/v1/executions", {"definition": flow(gate, *nodes)})
        path = f"/v1/executions/{started['id']}"
        statuses: set[int] = set()
        for _ in range(10):
            calls = [
                attacker.call("POST", f"{path}/signals/s", {"value": {"a": [1] * 20}}) for _ in range(20)
            ]
            statuses |= {status for status, _ in await asyncio.gather(*calls)}
        statuses.add((await attacker.call("POST", f"{path}/nodes/gate/answer", {"value": 1}))[0])
        await attacker.call("GET", f"{path}?nodes=none&wait=10")
        return statuses

    async with abused() as target:
        assert (await measure(target, attack)).result == {202}


async def test_ends_of_polls_that_are_costly_are_not_noticed_by_others(abused: Abused) -> None:
    expression = "output.x"
    for _ in range(10):
        expression = f"({expression}|replace('a','aa') ~ output.x)"
    poll = {"until": f"({expression}|length) == 1", "every_seconds": 1, "timeout_seconds": 6}
    nodes = [
        {"id": f"n{number}", "handler": "echo", "config": {"x": "{{ input.x }}"}, "poll": poll}
        for number in range(30)
    ]

    async def attack(attacker: Attacker) -> tuple[int, Any]:
        body = {"definition": flow(*nodes, failure_policy="continue"), "input": {"x": "a" * 900}}
        return await attacker.call("POST", "/v1/executions?wait=60", body)

    async with abused() as target:
        status, shown = (await measure(target, attack)).result
    assert status == 200
    assert {node["error"]["code"] for node in shown["nodes"]} == {"expired"}


async def test_large_inputs_of_many_schedules_are_not_noticed_by_others(abused: Abused) -> None:
    """Fifty triggers are due at the same moments, and each fills in two megabytes."""
    grown = "('" + "a" * 120 + "'" + "|replace('a','aaaaaaaaaaaaaaaa')" * 3 + ")"

    async def attack(attacker: Attacker) -> None:
        await attacker.call("POST", "/v1/workflows", flow())
        for number in range(50):
            await put(
                attacker,
                f"t{number}",
                schedule={"cron": "*/2 * * * * *"},
                overlap="skip",
                input={"a": [f"{{{{ {grown} }}}}"] * 4},
            )
        await asyncio.sleep(6)
        for number in range(50):
            await attacker.call("POST", f"/v1/triggers/t{number}/disable")

    async with abused() as target:
        # Each start is a commit of two megabytes, and the commits of all wait for the same disk.
        await measure(target, attack, factor=10)


async def test_callers_who_read_lists_of_large_events_keep_nobody_waiting(abused: Abused) -> None:
    async with abused(WEFT_API_RATE_LIMIT="off") as target:
        await store_events(target)

        async def attack(attacker: Attacker) -> None:
            # From a process of its own: what it reads would hold up the probes.
            read = request("GET", "/v1/events/inbound?limit=500", b"", "Connection: close")
            await keep_open(attacker.target.url, 20, read)

        await measure(target, attack)


async def store_events(target: Target) -> None:
    """Store what an attacker can by and by: 100 events of a megabyte."""
    timeout = aiohttp.ClientTimeout(total=120)
    async with aiohttp.ClientSession(target.url, headers=target.headers, timeout=timeout) as session:
        for number in range(100):
            event = {"type": "t", "source": "s", "id": str(number), "data": [[]] * 340_000}
            data = io.BytesIO(json.dumps(event, separators=(",", ":")).encode())
            headers = {"Content-Type": "application/json"}
            async with session.post("/v1/events", data=data, headers=headers) as response:
                assert response.status == 202, await response.text()
