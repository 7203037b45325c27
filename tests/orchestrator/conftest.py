"""An orchestrator's ports in memory, on a clock of their own."""

from __future__ import annotations

import itertools

import pytest

from weft.clock import VirtualClock
from weft.journal.memory import MemoryJournal
from weft.limits.memory import MemoryLimits
from weft.ports import Ports
from weft.store.memory import MemoryStore
from weft.transport.inprocess import InProcessTransport


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def ports(clock: VirtualClock) -> Ports:
    numbers = itertools.count(1)

    def new_id() -> str:
        return f"{next(numbers):04d}"

    transport = InProcessTransport(now=clock.now)
    return Ports(
        store=MemoryStore(now=clock.now, new_id=new_id, publish=transport.append, send=transport.put),
        journal=MemoryJournal(now=clock.now, new_id=new_id),
        transport=transport,
        limits=MemoryLimits({}, now=clock.now),
        clock=clock,
        draw=lambda: 0.5,
        new_id=new_id,
    )
