"""``./dev fuzz --cost --minutes N --seed S``: looks for the costliest input per byte.

Three kinds of input: a schema with a value, an expression with a value, and a document. Each is drawn at
random; the costliest are kept and changed. What is measured is the CPU that a server spends in its own
process: what it gives to a process that can be killed is not counted. The inputs run in a child process,
because one that is found to hang, or to end the process, is a finding like any other.

An input is broken if a check of a schema that was held to be quick takes more than 50 ms. The worst of each
kind is printed; the exit code is 1 if one is broken. What is broken is measured once more, in a process of
its own, and printed whole: the first time may have been that of a machine that stood still.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from tests.support.cost_fuzz.drawing import Drawing

from weft.core.payload import canonical, decode, encode
from weft.definition.bounds import DEFAULT_BOUNDS
from weft.definition.document import read_json, read_yaml
from weft.definition.schema import Schema, compile_schema, quick_problems
from weft.definition.validation import check
from weft.errors import WeftError
from weft.expressions.expression import compile_expression
from weft.expressions.scope import NodeValue, Scope
from weft.handlers.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.connection import Connection

# So long the library may hold up everybody else.
HELD_SECONDS = 0.05
# An input of a few kilobytes that takes longer, of CPU, is a finding by itself.
HANGING_SECONDS = 30.0
MAX_BYTES = 48 * 1024
_LEAST_BYTES = 1024
KEPT = 30
SHOWN_CHARACTERS = 400

KINDS = ("schemas", "expressions", "documents")


@dataclass(frozen=True, slots=True)
class Found:
    """One input, what it took, and the longest that nobody else could run meanwhile."""

    kind: str
    text: str
    size: int
    seconds: float
    held_seconds: float = 0.0
    note: str = ""

    @property
    def per_byte(self) -> float:
        # What the smallest inputs take is what any input takes.
        return self.seconds / max(self.size, _LEAST_BYTES)

    def __str__(self) -> str:
        shown = self.text if len(self.text) <= SHOWN_CHARACTERS else self.text[:SHOWN_CHARACTERS] + "…"
        held = f", of them {self.held_seconds * 1000:.1f} ms in one piece" if self.held_seconds else ""
        took = f"{self.size:,} bytes, {self.seconds * 1000:.1f} ms{held}"
        return f"{self.kind}: {self.per_byte * 1e6:.2f} µs a byte ({took}) {self.note}\n    {shown}"


def took(work: Callable[[], Any]) -> tuple[float, Any]:
    begun = time.thread_time()
    try:
        result = work()
    except (WeftError, RecursionError) as error:
        result = error
    return time.thread_time() - begun, result


class Prober:
    """Draws and measures inputs of one kind, and remembers the costliest."""

    def __init__(self, kind: str, seed: int) -> None:
        self.kind = kind
        self._drawing = Drawing(Random(seed))
        self._best: list[tuple[float, Any]] = []

    def draw(self) -> Any:
        drawing = self._drawing
        if self._best and drawing.random.random() < 0.6:
            chosen = drawing.random.choice(self._best)[1]
            if isinstance(chosen, str):
                return drawing.changed(chosen)
            first, second = chosen
            if drawing.random.random() < 0.6:
                return [drawing.changed(first), second]
            return [first, drawing.changed(second)]
        if self.kind == "schemas":
            return [drawing.whole_schema(), drawing.value()]
        if self.kind == "expressions":
            return [drawing.expression(), drawing.value()]
        return drawing.one_of([drawing.yaml, lambda: json.dumps(drawing.value())])

    def measure(self, drawn: Any) -> Found | None:
        """Measure an input; None for one that is too large, or none any more."""
        size = len(canonical(drawn))
        if size > MAX_BYTES:
            return None
        text = drawn if isinstance(drawn, str) else canonical(drawn).decode()
        measured = {"schemas": self._schema, "expressions": self._expression, "documents": self._document}
        found = measured[self.kind](drawn, text, size)
        self._best.append((found.per_byte, drawn))
        self._best.sort(key=lambda item: item[0], reverse=True)
        del self._best[KEPT:]
        return found

    def _schema(self, drawn: Any, text: str, size: int) -> Found:
        counting, made = took(lambda: compile_schema(drawn[0]))
        if not isinstance(made, Schema):
            return Found(self.kind, text, size, counting, note="refused")
        payload = canonical(drawn[1])
        checking, problems = took(lambda: quick_problems(made, drawn[1], payload))
        note = "given to another process" if problems is None else ""
        return Found(self.kind, text, size, counting + checking, checking, note)

    def _expression(self, drawn: Any, text: str, size: int) -> Found:
        source, value = drawn
        if not isinstance(source, str) or len(source) > DEFAULT_BOUNDS.max_template_bytes:
            return Found(self.kind, text, size, 0.0)
        compiling, made = took(lambda: compile_expression(source))
        if isinstance(made, Exception):
            return Found(self.kind, text, size, compiling, note="refused")
        scope = Scope(value, {}, {"a": NodeValue("COMPLETED", value)})
        evaluating, _ = took(lambda: encode(made.evaluate(scope), max_bytes=DEFAULT_BOUNDS.max_payload_bytes))
        return Found(self.kind, text, size, compiling + evaluating)

    def _document(self, drawn: Any, text: str, size: int) -> Found:
        bounds = DEFAULT_BOUNDS
        read = read_json if text.startswith(("[", "{", '"')) else read_yaml
        reading, value = took(
            lambda: read(text.encode(), max_bytes=bounds.max_body_bytes, max_depth=bounds.max_depth)
        )
        if isinstance(value, Exception):
            return Found(self.kind, text, size, reading, note="refused")
        if read is read_json:
            # What was stored is read again, by another reader.
            reading += took(lambda: decode(text.encode()))[0]
        node = {"id": "a", "handler": "echo", "config": value}
        checking, _ = took(lambda: check({"nodes": [node]}, handlers=Registry(), named=False))
        return Found(self.kind, text, size, reading + checking)


def _probe(kind: str, seed: int, channel: Connection) -> None:
    """Measure inputs for ever, and tell the parent of each before and after."""
    prober = Prober(kind, seed)
    while True:
        drawn = prober.draw()
        channel.send(("drawn", drawn if isinstance(drawn, str) else canonical(drawn).decode()[:MAX_BYTES]))
        channel.send(("found", prober.measure(drawn)))


def _cpu_seconds(pid: int | None) -> float:
    """Return the CPU time that a process has used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@dataclass(slots=True)
class Tally:
    """What a run has found of one kind."""

    kind: str
    inputs: int = 0
    costliest: Found | None = None
    longest_held: Found | None = None
    broken: list[Found] | None = None

    def add(self, found: Found | None) -> None:
        self.inputs += 1
        if found is None:
            return
        if self.costliest is None or found.per_byte > self.costliest.per_byte:
            self.costliest = found
        if self.longest_held is None or found.held_seconds > self.longest_held.held_seconds:
            self.longest_held = found
        if found.held_seconds > HELD_SECONDS:
            self.broken = [*(self.broken or []), found]


def run(kind: str, seed: int, seconds: float) -> Tally:
    """Probe one kind for so long; a child that hangs or dies is a finding, and the next has another seed."""
    context = multiprocessing.get_context("fork")
    tally = Tally(kind)
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        ours, theirs = context.Pipe()
        child = context.Process(target=_probe, args=(kind, seed, theirs), daemon=True)
        child.start()
        theirs.close()
        drawn = ""
        try:
            while time.monotonic() < ends:
                before = _cpu_seconds(child.pid)
                if not ours.poll(HANGING_SECONDS):
                    if _cpu_seconds(child.pid) - before < HANGING_SECONDS / 2:
                        continue  # the machine has other work to do
                    tally.add(Found(kind, drawn, len(drawn), HANGING_SECONDS, HANGING_SECONDS, "hangs"))
                    break
                what, message = ours.recv()
                if what == "drawn":
                    drawn = message
                else:
                    tally.add(message)
        except EOFError:
            tally.add(Found(kind, drawn, len(drawn), HANGING_SECONDS, HANGING_SECONDS, "ends the process"))
        child.kill()
        child.join()
        ours.close()
        seed += 1_000_003
    return tally


def _measure(found: Found, channel: Connection) -> None:
    drawn = found.text if found.kind == "documents" else json.loads(found.text)
    measured = Prober(found.kind, 0).measure(drawn)
    channel.send(0.0 if measured is None else measured.held_seconds)


def again(found: Found) -> float:
    """Measure an input once more; return the seconds that nobody else could run."""
    ours, theirs = multiprocessing.get_context("fork").Pipe()
    child = multiprocessing.get_context("fork").Process(target=_measure, args=(found, theirs), daemon=True)
    child.start()
    theirs.close()
    try:
        return float(ours.recv()) if ours.poll(10 * HANGING_SECONDS) else HANGING_SECONDS
    except EOFError:
        return HANGING_SECONDS
    finally:
        child.kill()
        child.join()


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="./dev fuzz", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cost", action="store_true", required=True, help="the costliest input per byte")
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args(arguments)
    broken = 0
    for kind in KINDS:
        tally = run(kind, given.seed, given.minutes * 60 / len(KINDS))
        print(f"{kind}: {tally.inputs:,} inputs, seed {given.seed}")
        for found in dict.fromkeys((tally.costliest, tally.longest_held)):
            print(f"  {found}")
        for found in tally.broken or []:
            seconds = again(found)
            is_broken = seconds > HELD_SECONDS
            verdict = "BROKEN" if is_broken else "not again"
            print(f"  {verdict}, {seconds * 1000:.1f} ms the second time: {found}")
            if is_broken:
                print(f"  WHOLE {found.text}")
            broken += is_broken
        sys.stdout.flush()
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
