"""How long a user waits at the prompt."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from bench.figure import Figure, at_most

if TYPE_CHECKING:
    from collections.abc import Iterator

_THREE_NODES = """\
nodes:
  - {id: a, handler: echo, config: {n: 1}}
  - {id: b, handler: echo, dependencies: [a], config: {n: "{{ a.n + 1 }}"}}
  - {id: c, handler: echo, dependencies: [b], config: {n: "{{ b.n + 1 }}"}}
"""


def startup() -> Iterator[Figure]:
    weft = str(Path(sys.executable).with_name("weft"))
    yield Figure(
        workload="start",
        what="weft --help",
        value=_milliseconds(weft, "--help"),
        unit="ms",
        target=at_most(250),
    )
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "three.yaml"
        file.write_text(_THREE_NODES)
        for what, arguments in (("", ()), (" --data", ("--data", f"{folder}/data"))):
            yield Figure(
                workload="start",
                what=f"weft run{what}, three echo nodes",
                value=_milliseconds(weft, "run", *arguments, str(file)),
                unit="ms",
                target=at_most(1000),
            )


def _milliseconds(*command: str) -> float:
    return median(_once(command) for _ in range(5)) * 1000


def _once(command: tuple[str, ...]) -> float:
    begun = time.perf_counter()
    subprocess.run(command, capture_output=True, check=True)
    return time.perf_counter() - begun
