"""Large graphs: time per node against a graph of the same shape with fifty nodes, and memory.

Every graph is run in a process of its own, so that its memory is its own. Called as
``python -m bench.scale SHAPE SIZE``, it prints the seconds per node and the megabytes as JSON.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from bench import graphs
from bench.figure import Figure, at_most
from bench.run import run

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

SMALL = 50
LARGE = (("chain", 10_000), ("fan", 10_000), ("layered", 50_000))
# A small graph is over too soon to be timed once; a large one may meet a bad moment of the disk.
_SMALL_RUNS = 21
_LARGE_RUNS = 2


def scale() -> Iterator[Figure]:
    """Compare each large graph with a small one of its shape."""
    for shape, size in LARGE:
        small, large = _measure(shape, SMALL), _measure(shape, size)
        yield Figure(
            workload="scale",
            what=f"{shape} of {SMALL}: per node",
            value=small["seconds_per_node"] * 1e6,
            unit="µs",
        )
        yield Figure(
            workload="scale",
            what=f"{shape} of {size:,}: per node",
            value=large["seconds_per_node"] * 1e6,
            unit="µs",
        )
        yield Figure(
            workload="scale",
            what=f"{shape} of {size:,} : {shape} of {SMALL}",
            value=large["seconds_per_node"] / small["seconds_per_node"],
            unit="×",
            target=at_most(1.5),
        )
        yield Figure(
            workload="scale",
            what=f"{shape} of {size:,}: memory",
            value=large["megabytes"],
            unit="MB",
            target=at_most(1000),
        )


def _measure(shape: str, size: int) -> Mapping[str, float]:
    done = subprocess.run(
        [sys.executable, "-m", "bench.scale", shape, str(size)],
        cwd=Path(__file__).parent.parent,
        stdout=subprocess.PIPE,
        check=True,
    )
    measured: dict[str, float] = json.loads(done.stdout)
    return measured


def _graph(shape: str, size: int) -> dict[str, Any]:
    if shape == "chain":
        return graphs.chain(size)
    if shape == "fan":
        return graphs.fan(size - 2)
    width = 10 if size == SMALL else 500
    return graphs.layered(size // width, width)


def _peak_megabytes() -> float:
    """Return the most memory this process ever held.

    Not by getrusage: after an exec it still counts what the parent held at the fork.
    """
    status = Path("/proc/self/status")
    if status.exists():
        (line,) = (line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) / 1024
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2  # bytes, on macOS


def main(shape: str, size: int) -> None:
    document = _graph(shape, size)
    if size == SMALL:
        run(document)  # the first run pays for what a process makes once
        seconds = median(run(document).seconds for _ in range(_SMALL_RUNS))
    else:
        seconds = min(run(document).seconds for _ in range(_LARGE_RUNS))
    nodes = len(document["nodes"])
    print(json.dumps({"seconds_per_node": seconds / nodes, "megabytes": _peak_megabytes()}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
