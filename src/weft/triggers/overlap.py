"""Decides on a start while executions of the same trigger are not terminal."""

from __future__ import annotations

from enum import StrEnum

from weft.triggers.model import Overlap

# More than this do not wait for their turn.
MAX_QUEUED = 1_000


class Step(StrEnum):
    """The decision on a start, which its commit carries out."""

    START = "started"
    QUEUE = "queued"
    SKIP = "skipped"
    # Nothing is written: the executions that run are cancelled first, and the start comes again.
    CANCEL = "cancel"


def decide(overlap: Overlap, *, running: int, queued: int) -> Step:
    """Return what becomes of a start beside ``running`` executions, and ``queued`` that wait for a turn."""
    if overlap is Overlap.ALLOW or running + queued == 0:
        return Step.START
    match overlap:
        case Overlap.SKIP:
            return Step.SKIP
        case Overlap.CANCEL_RUNNING:
            return Step.CANCEL
        case Overlap.QUEUE:
            return Step.QUEUE if queued < MAX_QUEUED else Step.SKIP
