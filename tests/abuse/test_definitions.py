"""Definitions that are costly to read and to compile."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import aiohttp
from tests.abuse.bystander import measure

if TYPE_CHECKING:
    from tests.abuse.bystander import Abused, Attacker

# As many signs as an expression may have, in as few bytes.
EXPRESSION = "+".join(["1"] * 1900)


def definition(expressions: int) -> dict[str, Any]:
    """Draw a definition of few bytes that takes long to compile."""
    template = "".join(f"{{{{{EXPRESSION}+{i}}}}}" for i in range(expressions))
    return {"name": "costly", "nodes": [{"id": "a", "handler": "echo", "config": template}]}


async def test_a_definition_that_takes_long_to_compile_is_refused_and_not_noticed_by_others(
    abused: Abused,
) -> None:
    async def attack(attacker: Attacker) -> list[tuple[int, Any]]:
        body = definition(5)
        return [
            await attacker.call("POST", path, sent)
            for path, sent in (
                ("/v1/workflows", body),
                ("/v1/workflows/validate", body),
                ("/v1/executions", {"definition": body}),
            )
        ]

    async with abused(WEFT_MAX_COMPILE_CPU="0.05") as target:
        # The first expression loads the parser.
        async with (
            aiohttp.ClientSession(target.url) as session,
            session.post("/v1/workflows/validate", json=definition(1)) as response,
        ):
            await response.read()
        (stored, shown), (validated, verdict), (submitted, _) = (await measure(target, attack)).result
    assert (stored, validated, submitted) == (422, 200, 422)
    for problems in (shown["problems"], verdict["problems"]):
        assert [problem["pointer"] for problem in problems] == ["/nodes/0"]
        assert "WEFT_MAX_COMPILE_CPU" in problems[0]["message"]


async def test_yaml_that_takes_long_to_read_is_refused_and_not_noticed_by_others(abused: Abused) -> None:
    body = b"name: costly\nnodes:\n" + b"- - - - - - - - x\n" * 3000

    async def attack(attacker: Attacker) -> tuple[int, Any]:
        return await attacker.call(
            "POST", "/v1/workflows/validate", body, headers={"Content-Type": "application/yaml"}
        )

    async with abused(WEFT_MAX_COMPILE_CPU="0.02") as target:
        status, shown = (await measure(target, attack)).result
    assert status == 422
    assert "WEFT_MAX_COMPILE_CPU" in shown["problems"][0]["message"]
