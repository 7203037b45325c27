"""``python -m bench [PART …] [--json] [--nodes N]``: run the benchmarks and print their figures."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from functools import partial

from bench import documents, server
from bench.beside import beside
from bench.celery import celery
from bench.console.measure import console
from bench.costs import costs
from bench.fleet import fleet
from bench.hops import hops
from bench.live import live
from bench.logs import logs
from bench.makespan import makespan
from bench.queueing import queueing
from bench.scale import scale
from bench.soak import NODES, soak
from bench.startup import startup
from bench.waits import wait_fleet, wait_times, waits
from bench.workloads import WORKLOADS

DEFAULT = {**WORKLOADS, "scale": scale, "start": startup, **server.PARTS, "fleet": fleet, "celery": celery}
# These take minutes each: they run where they are asked for.
PARTS = {**DEFAULT, **documents.PARTS, "soak": soak, "beside": beside, "costs": costs, "queueing": queueing}
PARTS |= {"hops": hops, "makespan": makespan, "logs": logs, "console": console, "live": live}
PARTS |= {"waits": waits, "wait-times": wait_times, "wait-fleet": wait_fleet}


def main() -> int:
    if sys.argv[1:2] == ["peers"]:
        from bench.peers.command import main as peers

        return peers(sys.argv[2:])
    parser = argparse.ArgumentParser(prog="bench", description="Run the benchmarks.")
    parser.add_argument(
        "parts", nargs="*", metavar="PART", help=f"any of {', '.join(PARTS)}; default: {', '.join(DEFAULT)}"
    )
    parser.add_argument("--json", action="store_true", help="print the figures as one JSON array")
    parser.add_argument(
        "--nodes", type=int, default=NODES, help=f"how many node executions `soak` runs ({NODES:,})"
    )
    options = parser.parse_args()
    unknown = [part for part in options.parts if part not in PARTS]
    if unknown:
        parser.error(f"there is no {unknown[0]!r}; there is: {', '.join(PARTS)}")

    if not options.json:
        print(f"Python {platform.python_version()}, {os.cpu_count()} cores, {platform.system()}", flush=True)
    parts = {**PARTS, "soak": partial(soak, options.nodes)}
    figures = []
    for part in options.parts or DEFAULT:
        for figure in parts[part]():
            figures.append(figure)
            if not options.json:
                print(figure, flush=True)
    if options.json:
        print(json.dumps([figure.as_dict() for figure in figures], ensure_ascii=False, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
