"""One table of all peers, ratios against weft of the same kind, and what weft should reach beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.figure import Figure, Target, at_least, at_most
from bench.peers.peer import CELERY, FLEET, LANGGRAPH, PEERS, RESTATE, WEFT, weft_of_the_same_kind

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from bench.peers.run import Row

_HEADS = (
    "",
    "version",
    "W1 hop p50, ms",
    "chain, ms a node",
    "W2, s (nodes)",
    "W3, nodes/s (nodes)",
    "W4, of the ideal",
    "memory, MB",
    "on disk when a step is done",
)
# What of a workload is shown, and its name in the plot.
HOP, WHOLE, FAN, RATE, SHARE = (
    ("W1", "hop_ms"),
    ("W1", "chain_ms"),
    ("W2", "seconds"),
    ("W3", "rate"),
    ("W4", "share"),
)
_MISSING = "–"


def table(rows: Mapping[str, Row]) -> list[list[str]]:
    """Return the heads and a line of cells for each row. Ratios stand in brackets: weft's figure is 1 ×."""
    return [list(_HEADS), *(_cells(row, rows) for row in rows.values())]


def as_text(lines: Sequence[Sequence[str]]) -> str:
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def as_markdown(lines: Sequence[Sequence[str]]) -> str:
    heads, *rest = lines
    ruled = [heads, ["---"] * len(heads), *rest]
    return "\n".join(f"| {' | '.join(line)} |" for line in ruled)


def ratio(row: Row, figure: tuple[str, str], rows: Mapping[str, Row]) -> float | None:
    """Return a figure as a multiple of that of weft of the same kind, if both are there."""
    weft = rows.get(weft_of_the_same_kind(PEERS[row.name]).name)
    mine, its = row.figure(*figure), None if weft is None else weft.figure(*figure)
    return None if mine is None or not its else mine / its


def verdicts(rows: Mapping[str, Row]) -> list[Figure]:
    """Return what weft should reach beside its peers, of those targets whose rows are there."""
    return [
        *_beside("W3, a fleet beside Celery", FLEET.name, RATE, CELERY.name, rows, at_least(28)),
        *_beside("W3, a fleet beside Restate", FLEET.name, RATE, RESTATE.name, rows, at_least(8)),
        *_beside("W3, embedded beside LangGraph", WEFT.name, RATE, LANGGRAPH.name, rows, at_least(60)),
        *_beside("W3, embedded beside Restate", WEFT.name, RATE, RESTATE.name, rows, at_least(25)),
        *_beside("hop, embedded, of LangGraph's", WEFT.name, HOP, LANGGRAPH.name, rows, at_most(0.2)),
        *_beside("hop, a fleet, of Restate's", FLEET.name, HOP, RESTATE.name, rows, at_most(0.7)),
        *_share("W4, embedded", WEFT.name, rows, at_least(0.95)),
        *_share("W4, a fleet", FLEET.name, rows, at_least(0.9)),
    ]


def _beside(
    what: str,
    weft: str,
    figure: tuple[str, str],
    peer: str,
    rows: Mapping[str, Row],
    target: Target,
) -> Iterator[Figure]:
    ours = rows[weft].figure(*figure) if weft in rows else None
    its = rows[peer].figure(*figure) if peer in rows else None
    if ours is not None and its:
        yield Figure(workload="peers", what=what, value=ours / its, unit="×", target=target)


def _share(what: str, weft: str, rows: Mapping[str, Row], target: Target) -> Iterator[Figure]:
    share = rows[weft].figure(*SHARE) if weft in rows else None
    if share is not None:
        yield Figure(workload="peers", what=what, value=share, unit="of the ideal", target=target)


def _cells(row: Row, rows: Mapping[str, Row]) -> list[str]:
    peer = PEERS[row.name]
    versions = " ".join(list(row.versions.values())[:1])
    if not row.workloads:
        reason = f"not run: {row.failure}"
        return [peer.title, versions, reason, *[""] * (len(_HEADS) - 3)]
    whole = row.figure(*WHOLE)
    nodes = row.figure("W1", "nodes")
    per_node = None if whole is None or not nodes else whole / nodes
    return [
        peer.title,
        versions,
        _cell(row, HOP, rows),
        _MISSING if per_node is None else _number(per_node),
        _cell(row, FAN, rows, nodes=True),
        _cell(row, RATE, rows, nodes=True),
        _cell(row, SHARE, rows),
        f"{row.memory_bytes / 1e6:,.0f}",
        peer.durability + (f"; not run to its end: {row.failure}" if row.failure else ""),
    ]


def _cell(row: Row, figure: tuple[str, str], rows: Mapping[str, Row], *, nodes: bool = False) -> str:
    workload, _ = figure
    value = row.figure(*figure)
    if value is None:
        reason = row.workloads.get(workload, {}).get("cannot")
        return f"cannot: {reason}" if reason else _MISSING
    shown = _number(value)
    if nodes:
        shown += f" ({row.figure(workload, 'nodes'):,.0f})"
    times = ratio(row, figure, rows)
    if times is not None and PEERS[row.name] not in (WEFT, FLEET):
        shown += f" [{_number(times)} ×]"
    return shown


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.2g}" if abs(value) < 10 else f"{value:.1f}"
