"""Services that answer a few kilobytes which become very many, or ask for a week."""

from __future__ import annotations

import gzip
import zlib
from typing import TYPE_CHECKING, Any

import pytest
from tests.abuse.bystander import BUDGET_BYTES, measure

from weft.testing.http_server import Answer
from weft.testing.recording_service import RecordingService

if TYPE_CHECKING:
    from tests.abuse.bystander import Abused, Attacker

MIB = 2**20
GZIP, DEFLATE = {"Content-Encoding": "gzip"}, {"Content-Encoding": "deflate"}
JSON = {"Content-Type": "application/json"}
CALLS = 8

# Each is a few kilobytes on the wire. Made on the loop, ten megabytes of brackets held it for seconds.
BOMBS: dict[str, Answer] = {
    "zeros of gzip": Answer(200, gzip.compress(bytes(40 * MIB), 9), GZIP),
    "zeros of deflate": Answer(200, zlib.compress(bytes(40 * MIB), 9), DEFLATE),
    "empty parts": Answer(200, b"\x03\x00" * 20_000, DEFLATE),
    "numbers of JSON": Answer(200, gzip.compress(b"[" + b"0," * (4 * MIB) + b"0]", 9), GZIP | JSON),
    "layers of gzip": Answer(
        200, gzip.compress(gzip.compress(bytes(40 * MIB))), {"Content-Encoding": "gzip, gzip"}
    ),
}


@pytest.mark.parametrize("bomb", BOMBS)
async def test_a_response_that_grows_holds_up_nobody(abused: Abused, bomb: str) -> None:
    answer = BOMBS[bomb]
    assert len(answer.body) < BUDGET_BYTES
    with RecordingService() as service:
        service.script(*[answer] * CALLS)

        async def attack(attacker: Attacker) -> tuple[int, Any]:
            nodes = [
                {
                    "id": f"n{number}",
                    "handler": "call_external_service",
                    "config": {"url": f"{service.url}/{number}"},
                    "max_retries": 0,
                    "timeout_seconds": 30,
                }
                for number in range(CALLS)
            ]
            # Its own output has nothing of theirs: that is the cost of another attack.
            definition = {"nodes": nodes, "failure_policy": "continue", "output": "done"}
            return await attacker.call("POST", "/v1/executions?wait=50", {"definition": definition})

        async with abused() as target:
            status, shown = (await measure(target, attack)).result
    assert status == 200
    assert {node["state"] for node in shown["nodes"]} <= {"COMPLETED", "FAILED"}
    assert len(service.calls) == CALLS
