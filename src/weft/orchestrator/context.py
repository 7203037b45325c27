"""What every step of an orchestrator is given: the ports, and what the steps share in memory."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from weft.orchestrator.cascades import Cascades
from weft.orchestrator.fair_queue import FairQueue
from weft.orchestrator.payloads import Payloads

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.ports import Ports
    from weft.transport.contract import MessageDelivery


@dataclass(frozen=True, slots=True)
class Context:
    ports: Ports
    # By which the transport knows what this orchestrator has read.
    name: str
    payloads: Payloads = field(default_factory=Payloads)
    cascades: Cascades = field(default_factory=Cascades)
    # Messages that were read and not taken up yet, and the turn to read more.
    fair_queue: FairQueue = field(default_factory=FairQueue)
    reading: asyncio.Lock = field(default_factory=asyncio.Lock)
    # Batches that were read while the journal was away.
    unfinished: list[Sequence[MessageDelivery]] = field(default_factory=list)
