"""The faults of a chaotic run, all drawn from one seed before it begins: which, whom, when, how long.

The same seed gives the same faults. What runs when one of them strikes is up to the machine.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

MEMBERS = ("api 1", "api 2", "orchestrator 1", "orchestrator 2", "worker 1", "worker 2")
REDIS, POSTGRES = "Redis", "PostgreSQL"
EVERYBODY = "everybody"

# Between one fault and the next.
INTERVAL_SECONDS = (0.5, 3.0)


class Kind(StrEnum):
    """What is done to a fleet."""

    KILL = "kill -9 of a member"
    FREEZE = "SIGSTOP of a member"
    FLUSH = "FLUSHALL"
    REDIS = "restart of Redis"
    POSTGRES = "restart of PostgreSQL"
    LATENCY = "a slow line"
    RESET = "a line reset"
    SILENCE = "a silent line"


# How often each is drawn, beside the others.
_WEIGHTS: Mapping[Kind, int] = {
    Kind.KILL: 8,
    Kind.FREEZE: 3,
    Kind.FLUSH: 1,
    Kind.REDIS: 1,
    Kind.POSTGRES: 1,
    Kind.LATENCY: 2,
    Kind.RESET: 2,
    Kind.SILENCE: 2,
}
# From shorter than a lease to longer than one.
_LASTS_SECONDS: Mapping[Kind, tuple[float, float]] = {
    Kind.KILL: (0.0, 3.0),
    Kind.FREEZE: (0.5, 8.0),
    Kind.FLUSH: (0.0, 0.0),
    Kind.REDIS: (0.0, 3.0),
    Kind.POSTGRES: (0.0, 3.0),
    Kind.LATENCY: (1.0, 5.0),
    Kind.RESET: (0.0, 0.0),
    Kind.SILENCE: (0.5, 8.0),
}
_MANNERS: Mapping[Kind, tuple[str, ...]] = {
    Kind.REDIS: ("stopped", "killed", "killed and emptied"),
    Kind.POSTGRES: ("stopped", "stopped as in a crash", "killed"),
    Kind.LATENCY: ("0.02", "0.2", "1.0"),
    Kind.SILENCE: ("both ways", "to the server", "to the client"),
}
# What was ended needs about so long to be at work again: until then it is left alone.
_RECOVERY_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class Fault:
    """``whom``: a member, or everybody (a line to ``server`` has two ends), or a server itself."""

    at_seconds: float
    kind: Kind
    whom: str
    server: str = ""
    options: str = ""
    lasts_seconds: float = 0.0

    def __str__(self) -> str:
        lasts = f"{self.lasts_seconds:.1f} s"
        match self.kind:
            case Kind.KILL:
                return f"{self.whom} is killed, and started again after {lasts}"
            case Kind.FREEZE:
                return f"{self.whom} stands still for {lasts}"
            case Kind.FLUSH:
                return "Redis is emptied"
            case Kind.REDIS | Kind.POSTGRES:
                return f"{self.whom} is {self.options}, and started again after {lasts}"
            case Kind.LATENCY:
                return f"{self.whom}: {self.server} is {float(self.options):g} s late for {lasts}"
            case Kind.RESET:
                return f"{self.whom}: connections to {self.server} are reset"
            case Kind.SILENCE:
                return f"{self.whom}: {self.server} is silent for {lasts}, {self.options}"


def draw_faults(seed: int, seconds: float) -> list[Fault]:
    """Draw what happens in so many seconds: first one of each kind, then as their weights say.

    Nobody is struck twice at once, so that every fault comes to its own end.
    """
    draw = random.Random(seed)
    kinds = _kinds(draw)
    free_at: dict[str, float] = {}
    faults: list[Fault] = []
    kind = next(kinds)
    at = draw.uniform(*INTERVAL_SECONDS)
    while at < seconds:
        # What strikes at the end is over at the end.
        lasts = min(draw.uniform(*_LASTS_SECONDS[kind]), seconds - at)
        options = draw.choice(_MANNERS.get(kind, ("",)))
        whom, server = _victim(draw, kind)
        struck = _struck(kind, whom, server)
        if all(free_at.get(one, 0.0) <= at for one in struck):
            faults.append(Fault(at, kind, whom, server, options, lasts))
            ends = kind in (Kind.KILL, Kind.REDIS, Kind.POSTGRES)
            free_at |= dict.fromkeys(struck, at + lasts + (_RECOVERY_SECONDS if ends else 0.0))
            kind = next(kinds)
            at += draw.uniform(*INTERVAL_SECONDS)
        else:
            # Somebody else, or a moment later.
            at += 0.1
    return faults


def _kinds(draw: random.Random) -> Iterator[Kind]:
    yield from draw.sample(tuple(Kind), len(Kind))
    while True:
        yield draw.choices(tuple(_WEIGHTS), tuple(_WEIGHTS.values()))[0]


def _victim(draw: random.Random, kind: Kind) -> tuple[str, str]:
    match kind:
        case Kind.KILL | Kind.FREEZE:
            return draw.choice(MEMBERS), ""
        case Kind.FLUSH | Kind.REDIS:
            return REDIS, ""
        case Kind.POSTGRES:
            return POSTGRES, ""
        case Kind.LATENCY | Kind.RESET | Kind.SILENCE:
            return draw.choice((*MEMBERS, EVERYBODY, EVERYBODY)), draw.choice((REDIS, POSTGRES))


def _struck(kind: Kind, whom: str, server: str) -> Sequence[str]:
    if kind in (Kind.KILL, Kind.FREEZE) or whom in (REDIS, POSTGRES):
        return (whom,)
    return [f"{member} to {server}" for member in (MEMBERS if whom == EVERYBODY else (whom,))]
