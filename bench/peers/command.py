"""``./dev bench peers [PEER …]``: run weft and its peers, print the table, draw it.

Each row is kept in ``.peers/results`` as soon as it is there. ``--kept`` shows what was kept of those that
are not run now, with the time of its measuring; ``--kept`` with the name of no peer runs none.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from bench.peers.environment import CACHE
from bench.peers.peer import FLEET, PEERS, WEFT
from bench.peers.plot import Panel, svg
from bench.peers.run import Row, run
from bench.peers.table import FAN, HOP, RATE, SHARE, as_markdown, as_text, ratio, table, verdicts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_RESULTS = CACHE / "results"


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="bench peers", description="Run weft beside its peers.")
    parser.add_argument("peers", nargs="*", metavar="PEER", help=f"any of {', '.join(PEERS)}; default: all")
    parser.add_argument("--kept", action="store_true", help="show kept rows of peers that are not run now")
    parser.add_argument("--budget", type=float, default=10.0, help="seconds that a workload may take (10)")
    parser.add_argument("--plot", type=Path, default=CACHE / "peers.svg", help="where the picture goes")
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    parser.add_argument("--markdown", action="store_true", help="print the table as Markdown")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.peers if name not in PEERS]
    if unknown:
        parser.error(f"there is no {unknown[0]!r}; there is: {', '.join(PEERS)}")

    # Told to stop, it still ends what it has started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    _RESULTS.mkdir(parents=True, exist_ok=True)
    names = options.peers or ([] if options.kept else list(PEERS))
    rows: dict[str, Row] = {}
    for name in PEERS:
        if name in names:
            print(f"{name} …", end=" ", file=sys.stderr, flush=True)
            rows[name] = run(PEERS[name], budget=options.budget)
            _keep(rows[name])
            print(rows[name].failure or f"{rows[name].seconds:.0f} s", file=sys.stderr, flush=True)
        elif options.kept and (kept := _kept(name)) is not None:
            rows[name] = kept
    options.plot.write_text(svg(_panels(rows), caption=f"{_machine()}; scales are logarithmic"))
    if options.json:
        print(json.dumps(_as_json(rows), ensure_ascii=False, indent=2))
    else:
        _print(rows, as_markdown if options.markdown else as_text)
        print(f"drawn in {options.plot}")
    return 0


def _print(rows: Mapping[str, Row], form: Callable[[Sequence[Sequence[str]]], str]) -> None:
    print(f"{_machine()}\n")
    print(form(table(rows)))
    print("\n[n ×]: as a multiple of weft of the same kind, embedded or with servers.\n")
    for figure in verdicts(rows):
        print(figure)
    print()
    for row in rows.values():
        versions = ", ".join(f"{name} {version}" for name, version in row.versions.items())
        print(f"{PEERS[row.name].title}: {versions}; measured {row.measured_at} in {row.seconds:.0f} s")
        for note in row.notes:
            print(f"  {note}")


def _machine() -> str:
    return f"Python {platform.python_version()}, {os.cpu_count()} cores, {platform.system()}"


def _panels(rows: Mapping[str, Row]) -> list[Panel]:
    ours = frozenset({WEFT.title, FLEET.title})
    return [
        Panel(
            title=title,
            unit=unit,
            bars={PEERS[name].title: row.figure(*figure) for name, row in rows.items()},
            ours=ours,
        )
        for title, unit, figure in (
            ("W3: nodes a second, many a → b, c, d → e at once (more is better)", "nodes/s", RATE),
            ("W1: the hop from a node's end to the next one's start, p50 (less is better)", "ms", HOP),
            ("W2: 1 → 1000 → 1, start to end (less is better)", "s", FAN),
        )
    ]


def _as_json(rows: Mapping[str, Row]) -> dict[str, object]:
    return {
        "machine": _machine(),
        "rows": [
            {
                **asdict(row),
                "durable": PEERS[name].durable,
                "durability": PEERS[name].durability,
                "kind": PEERS[name].kind,
                "ratios": {
                    f"{workload}.{what}": ratio(row, (workload, what), rows)
                    for workload, what in (HOP, FAN, RATE, SHARE)
                },
            }
            for name, row in rows.items()
        ],
        "targets": [figure.as_dict() for figure in verdicts(rows)],
    }


def _keep(row: Row) -> None:
    (_RESULTS / f"{row.name}.json").write_text(json.dumps(asdict(row), indent=2))


def _kept(name: str) -> Row | None:
    file = _RESULTS / f"{name}.json"
    if not file.exists():
        return None
    kept = json.loads(file.read_text())
    return Row(**{**kept, "notes": tuple(kept["notes"])})
