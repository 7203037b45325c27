"""``python -m tests.fleet.crashing ROLE …``: a command of weft that has a flaw, as its environment says.

``WEFT_TEST_CRASH=journal.record:after:3`` lets it die there; ``WEFT_TEST_PAUSE`` lets it stand still there,
as SIGSTOP does, until SIGCONT, at each of several points in turn. ``WEFT_TEST_BATCH=1`` lets an orchestrator
read one message at a time, so that neighbours in a stream go to different orchestrators.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING

from tests.support.crash import VARIABLE, crashing

from weft import fleet
from weft.cli.main import main
from weft.orchestrator import service

if TYPE_CHECKING:
    from weft.ports import ApiPorts
    from weft.settings import Settings

PAUSE = "WEFT_TEST_PAUSE"
BATCH = "WEFT_TEST_BATCH"


class FlawedFleet(fleet.Fleet):
    def _make_ports(self, settings: Settings) -> ApiPorts:
        ports = super()._make_ports(settings)
        if point := os.environ.get(VARIABLE):
            crashing(ports, point)
        for point in filter(None, os.environ.get(PAUSE, "").split(",")):
            # Unlike a crash it returns, and the step goes on.
            crashing(ports, point, crash=stand_still)  # type: ignore[arg-type]
        return ports


def stand_still() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


if __name__ == "__main__":
    fleet.Fleet = FlawedFleet  # type: ignore[misc]
    service.BATCH = int(os.environ.get(BATCH, service.BATCH))
    sys.exit(main())
