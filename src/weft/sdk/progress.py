"""Shows the progress of an execution on stderr, for three nodes and for ten thousand.

The engine is asked for a ``Snapshot`` a few times a second; a view shows it. On a terminal a live line
stays at the bottom; elsewhere plain lines are written. Up to ``SMALL`` nodes each settled node gets a
line; above that only failures do, and the first of those: a log of ten thousand lines helps nobody.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TextIO

from weft.core.state import SETTLED, NodeState
from weft.drawing.escaping import escaped

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rich.console import Console, RenderableType
    from rich.text import Text

SMALL = 30
MAX_FAILURES = 20
MAX_RUNNING = 6
PLAIN_INTERVAL_SECONDS = 5.0
PACE_WINDOW_SECONDS = 10.0
LONGEST_MESSAGE = 300


@dataclass(frozen=True, slots=True)
class SettledNode:
    """One node that has settled, and how."""

    id: str
    state: NodeState
    seconds: float | None = None  # of its latest attempt
    message: str = ""  # the error, or the reason it did not run


class NodeLine(NamedTuple):
    """A line about a node that has not settled: what it printed, or that it is retried."""

    node: str
    text: str
    # When, as the API tells it; "": nobody needs it to put lines in order.
    at: str = ""


@dataclass(frozen=True, slots=True)
class ProgressSnapshot:
    """One look at an execution."""

    elapsed_seconds: float
    counts: Mapping[NodeState, int]
    running: Sequence[str] = ()  # some of the ids
    settled: Sequence[SettledNode] = ()  # since the last look; of a large execution, failures alone
    retried: int = 0
    # How far running nodes say they have come, by id: ``40/100 reading page 4``.
    told: Mapping[str, str] = field(default_factory=dict)
    # What nodes have printed since the last look, and which were retried.
    lines: Sequence[NodeLine] = ()
    # The time left as earlier executions predict it, if they do.
    left_seconds: float | None = None

    @property
    def settled_count(self) -> int:
        return sum(self.counts.get(state, 0) for state in SETTLED)


class ProgressBar(Protocol):
    """Where snapshots are shown."""

    def show(self, snapshot: ProgressSnapshot) -> None:
        """Bring the view up to date."""

    def close(self) -> None:
        """Leave the terminal as it was; what was written stays."""


def open_progress(
    total: int, *, stream: TextIO, quiet: bool, environ: Mapping[str, str], noun: str = "nodes"
) -> ProgressBar | None:
    """Return the view that suits the stream: a live line, plain lines, or None for no progress."""
    if quiet:
        return None
    if stream.isatty() and environ.get("TERM") != "dumb":
        from rich.console import Console

        no_color = bool(environ.get("NO_COLOR"))
        return LiveProgress(total, Console(file=stream, no_color=no_color, highlight=False, markup=False))
    return PlainProgress(total, stream, noun=noun)


@dataclass(slots=True)
class _Failures:
    """Lets the first failures through; the rest are in the counts and in the report at the end."""

    shown: int = 0

    def pick(self, total: int, settled: Sequence[SettledNode]) -> list[SettledNode]:
        if total <= SMALL:
            return list(settled)
        failed = [node for node in settled if node.state is NodeState.FAILED]
        picked = failed[: MAX_FAILURES - self.shown]
        self.shown += len(picked)
        return picked


def _in_order(lines: Sequence[NodeLine], settled: Sequence[SettledNode]) -> Iterator[NodeLine | SettledNode]:
    """Yield lines as they came, and each settled node behind its last line: before what ran because of it."""
    last = {line.node: number for number, line in enumerate(lines)}
    shown = 0
    for node in settled:
        until = max(shown, last.get(node.id, -1) + 1)
        yield from lines[shown:until]
        shown = until
        yield node
    yield from lines[shown:]


@dataclass(slots=True)
class _Pace:
    """The number of nodes that settle per second, over the last ``PACE_WINDOW_SECONDS``."""

    looks: deque[tuple[float, int]] = field(default_factory=lambda: deque([(0.0, 0)]))

    def per_second(self, snapshot: ProgressSnapshot) -> float:
        now = snapshot.elapsed_seconds
        self.looks.append((now, snapshot.settled_count))
        while len(self.looks) > 2 and self.looks[0][0] < now - PACE_WINDOW_SECONDS:
            self.looks.popleft()
        (since, before), (_, after) = self.looks[0], self.looks[-1]
        return (after - before) / (now - since) if now > since else 0.0


class PlainProgress:
    """Lines for a log: one per settled node, or one every few seconds where there are many."""

    def __init__(self, total: int, stream: TextIO, *, noun: str = "nodes") -> None:
        self._total = total
        self._noun = noun
        self._stream = stream
        self._failures = _Failures()
        self._pace = _Pace()
        self._due = PLAIN_INTERVAL_SECONDS
        self._told: dict[str, str] = {}
        self._told_due = 0.0

    def show(self, snapshot: ProgressSnapshot) -> None:
        for one in _in_order(snapshot.lines, self._failures.pick(self._total, snapshot.settled)):
            self._write(one.text if isinstance(one, NodeLine) else f"{one.state.value:<9}  {_describe(one)}")
        self._tell(snapshot)
        if self._total <= SMALL:
            return
        pace = self._pace.per_second(snapshot)
        if snapshot.elapsed_seconds >= self._due:
            self._due = snapshot.elapsed_seconds + PLAIN_INTERVAL_SECONDS
            settled = f"{snapshot.settled_count:,} of {self._total:,} {self._noun} settled"
            words = [settled, *_count_words(snapshot), *_pace_words(snapshot, pace, self._total)]
            self._write(", ".join(words))

    def _tell(self, snapshot: ProgressSnapshot) -> None:
        """Write how far nodes have come, of those that said something new since the last time."""
        if snapshot.told == self._told or snapshot.elapsed_seconds < self._told_due:
            return
        self._told_due = snapshot.elapsed_seconds + PLAIN_INTERVAL_SECONDS
        for node_id in snapshot.running[:MAX_RUNNING]:
            text = snapshot.told.get(node_id)
            if text is not None and text != self._told.get(node_id):
                self._write(f"{NodeState.RUNNING.value:<9}  {node_id}  {text}")
        self._told = dict(snapshot.told)

    def close(self) -> None:
        self._stream.flush()

    def _write(self, line: str) -> None:
        self._stream.write(line + "\n")
        self._stream.flush()


_MARKS = {
    NodeState.COMPLETED: ("✓", "green"),
    NodeState.FAILED: ("✗", "red"),
    NodeState.SKIPPED: ("↷", "dim"),
    NodeState.CANCELLED: ("■", "yellow"),
}


class LiveProgress:
    """A bar at the bottom of a terminal, with what is running; settled nodes scroll away above it."""

    def __init__(self, total: int, console: Console) -> None:
        from rich.live import Live

        self._total = total
        self._console = console
        self._failures = _Failures()
        self._pace = _Pace()
        # Redrawn by `show` alone: a thread of its own would draw between two looks what has not changed.
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._live.start()

    def show(self, snapshot: ProgressSnapshot) -> None:
        from rich.text import Text

        for one in _in_order(snapshot.lines, self._failures.pick(self._total, snapshot.settled)):
            if isinstance(one, NodeLine):
                # Whole, however narrow the terminal is: it breaks the line by itself.
                self._console.print(Text(one.text), soft_wrap=True)
            else:
                mark, style = _MARKS[one.state]
                self._console.print(Text.assemble((mark, style), " ", _describe(one)), soft_wrap=True)
        self._live.update(self._draw(snapshot), refresh=True)

    def close(self) -> None:
        self._live.stop()

    def _draw(self, snapshot: ProgressSnapshot) -> RenderableType:
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table

        pace = self._pace.per_second(snapshot)
        settled = f"{snapshot.settled_count:,}/{self._total:,}"
        line = Table.grid(padding=(0, 1))
        line.add_row(
            ProgressBar(total=self._total, completed=snapshot.settled_count, width=24),
            _one_line(", ".join([settled, *_pace_words(snapshot, pace, self._total)])),
        )
        counts, names = ", ".join(_count_words(snapshot)), _names(snapshot)
        return Group(line, _one_line(f"{counts}: {names}" if names else counts, style="dim"))


def _one_line(text: str, *, style: str = "") -> Text:
    # A line that wraps moves all that is below it, ten times a second.
    from rich.text import Text

    return Text(text, style=style, no_wrap=True, overflow="ellipsis")


def _describe(node: SettledNode) -> str:
    took = f"  {seconds_text(node.seconds)}" if node.seconds is not None else ""
    return f"{node.id}{took}{f'  {shorten(node.message)}' if node.message else ''}"


def _count_words(snapshot: ProgressSnapshot) -> list[str]:
    """Return the node counts that differ from a smooth run, and last the number of running nodes."""
    counts = {state.value.lower(): count for state, count in snapshot.counts.items()}
    counts["retried"] = snapshot.retried
    shown = ("failed", "skipped", "cancelled", "retried", "queued", "waiting", "running")
    return [f"{counts[word]:,} {word}" for word in shown if counts.get(word)]


def _pace_words(snapshot: ProgressSnapshot, pace: float, total: int) -> list[str]:
    """Return the elapsed time, the pace in nodes per second, and the estimated time left."""
    words = [seconds_text(snapshot.elapsed_seconds)]
    predicted = snapshot.left_seconds
    # A handful of nodes has no steady pace to foretell anything from.
    if total > SMALL and pace > 0:
        words.append(f"{pace:,.0f}/s" if pace >= 10 else f"{pace:.1f}/s")
        if predicted is None and (left := total - snapshot.settled_count):
            predicted = left / pace
    if predicted is not None and snapshot.settled_count < total:
        words.append(f"about {seconds_text(predicted)} left")
    return words


def _names(snapshot: ProgressSnapshot) -> str:
    shown = [
        f"{node_id} {snapshot.told[node_id]}" if node_id in snapshot.told else node_id
        for node_id in snapshot.running[:MAX_RUNNING]
    ]
    more = snapshot.counts.get(NodeState.RUNNING, 0) - len(shown)
    return ", ".join(shown) + (f" and {more:,} more" if shown and more > 0 else "")


def progress_text(progress: Mapping[str, Any]) -> str:
    """Write a node's ``progress`` as the API shows it: ``40/100 reading page 4``."""
    amounts = [progress["done"]] if progress["total"] is None else [progress["done"], progress["total"]]
    text = "/".join(f"{amount:,}" if isinstance(amount, int) else f"{amount:g}" for amount in amounts)
    return f"{text} {shorten(progress['message'])}" if progress["message"] else text


def seconds_text(seconds: float) -> str:
    """Write a stretch of time the way people say it."""
    if seconds < 10:
        return f"{seconds:.1f} s" if seconds >= 0.1 else f"{seconds * 1000:.0f} ms"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def moment_text(text: str) -> str:
    """Write a time of the API as a clock on the wall here shows it, with the offset of its zone."""
    return datetime.fromisoformat(text).astimezone().isoformat(sep=" ", timespec="seconds")


def shorten(message: str) -> str:
    """Keep a message to one line of bearable length, and free of control characters."""
    line = escaped(" ".join(message.split()))
    return line if len(line) <= LONGEST_MESSAGE else line[: LONGEST_MESSAGE - 1] + "…"
