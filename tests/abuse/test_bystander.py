"""The bystander itself: in peace it sees nothing, and a server that stands still does not escape it."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING

import pytest
from tests.abuse.bystander import BUDGET_BYTES, Attacker, measure

if TYPE_CHECKING:
    from tests.abuse.bystander import Abused


async def test_without_an_attack_a_neighbour_notices_nothing(abused: Abused) -> None:
    async def attack(attacker: Attacker) -> int:
        status, _ = await attacker.call("GET", "/healthz")
        return status

    async with abused() as target:
        measured = await measure(target, attack)
    assert measured.result == 200
    assert measured.attack["/healthz"].count > 20


async def test_a_server_that_stands_still_for_a_second_is_noticed(abused: Abused) -> None:
    async def freeze(attacker: Attacker) -> None:
        for server in attacker.target.processes:
            server.process.send_signal(signal.SIGSTOP)
        await asyncio.sleep(1.0)
        for server in attacker.target.processes:
            server.process.send_signal(signal.SIGCONT)

    async with abused() as target:
        with pytest.raises(AssertionError, match="/healthz may take"):
            await measure(target, freeze, factor=1.0)


async def test_an_attack_has_a_budget(abused: Abused) -> None:
    async def flood(attacker: Attacker) -> None:
        attacker.spend(BUDGET_BYTES)
        attacker.spend(1)

    async with abused() as target:
        with pytest.raises(AssertionError, match="the attack sends 65,537 bytes"):
            await measure(target, flood)
