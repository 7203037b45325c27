"""``python -m bench [PART …] [--json]``: run the benchmarks and print their figures."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys

from bench import documents, server
from bench.celery import celery
from bench.fleet import fleet
from bench.scale import scale
from bench.startup import startup
from bench.workloads import WORKLOADS

DEFAULT = {**WORKLOADS, "scale": scale, "start": startup, **server.PARTS, "fleet": fleet, "celery": celery}
# These take minutes each: they run where they are asked for.
PARTS = {**DEFAULT, **documents.PARTS}


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench", description="Run the benchmarks.")
    parser.add_argument(
        "parts", nargs="*", metavar="PART", help=f"any of {', '.join(PARTS)}; default: {', '.join(DEFAULT)}"
    )
    parser.add_argument("--json", action="store_true", help="print the figures as one JSON array")
    options = parser.parse_args()
    unknown = [part for part in options.parts if part not in PARTS]
    if unknown:
        parser.error(f"there is no {unknown[0]!r}; there is: {', '.join(PARTS)}")

    if not options.json:
        print(f"Python {platform.python_version()}, {os.cpu_count()} cores, {platform.system()}", flush=True)
    figures = []
    for part in options.parts or DEFAULT:
        for figure in PARTS[part]():
            figures.append(figure)
            if not options.json:
                print(figure, flush=True)
    if options.json:
        print(json.dumps([figure.as_dict() for figure in figures], ensure_ascii=False, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
