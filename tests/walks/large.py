"""``python -m tests.walks.large SHAPE DATA``: run a large graph on SQLite and say as JSON how it went.

A process of its own, so that the memory it reports is its own.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.tracecheck import DrawnNode, check
from tests.walks.replay import Replay, plain, registry

from weft.definition.validation import check as check_definition
from weft.engine import Engine

if TYPE_CHECKING:
    from collections.abc import Callable


def chain() -> tuple[DrawnNode, ...]:
    """10,000 nodes, one after the other."""
    return tuple(DrawnNode(f"n{i}", (f"n{i - 1}",) if i else ()) for i in range(10_000))


def fan() -> tuple[DrawnNode, ...]:
    """One node, 10,000 behind it, and one behind them all."""
    middle = tuple(f"m{i}" for i in range(10_000))
    return (
        DrawnNode("first", ()),
        *(DrawnNode(name, ("first",)) for name in middle),
        DrawnNode("last", middle),
    )


def layered() -> tuple[DrawnNode, ...]:
    """100 layers of 500 nodes, each node behind two of the layer before."""
    return tuple(
        DrawnNode(
            f"l{layer}_{i}",
            (f"l{layer - 1}_{i}", f"l{layer - 1}_{(i + 1) % 500}") if layer else (),
        )
        for layer in range(100)
        for i in range(500)
    )


SHAPES: dict[str, Callable[[], tuple[DrawnNode, ...]]] = {"chain": chain, "fan": fan, "layered": layered}


async def run(replay: Replay, data: Path) -> dict[str, Any]:
    handlers = registry()
    checked = check_definition(replay.document, handlers=handlers)
    assert checked.plan is not None, checked.problems[:3]
    async with Engine(registry=handlers, data=data) as engine:
        execution_id = await engine.submit(checked.plan, document=replay.document)
        await engine.wait(execution_id)
        return await engine.describe(execution_id)


def peak_megabytes() -> float:
    """Return this process's peak memory; getrusage would count what the parent held at the fork."""
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in line)
    return int(line.split()[1]) / 1024


def main(shape: str, data: Path) -> None:
    replay = plain(SHAPES[shape]())
    execution = asyncio.run(run(replay, data))
    megabytes = peak_megabytes()
    violations = check(replay.graph, replay.trace(execution))
    report = {
        "state": execution["state"],
        "completed": execution["counts"]["COMPLETED"],
        "violations": [str(violation) for violation in violations[:10]],
        "megabytes": megabytes,
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
