"""Reports the end of an execution in a few lines for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft.core.state import ExecutionState, NodeState
from weft.drawing.escaping import escaped
from weft.sdk.progress import seconds_text, shorten

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

MAX_FAILURES = 20
# The first failures are the ones to read; ten pages of tracebacks would hide them.
MAX_TRACEBACKS = 3
MAX_NAMES = 6


def report(execution: Mapping[str, Any], *, elapsed_seconds: float, retry: str | None = None) -> str:
    """Return how an execution ended; unless it completed, also what failed, why, and what did not run.

    ``retry``: the command that runs again what failed, told last.
    """
    lines = [f"{execution['state']} after {seconds_text(elapsed_seconds)}: {_counts(execution['counts'])}"]
    error = execution["error"]
    if error is not None and error["code"] != "node_failed":
        lines.append(f"  {error['code']}: {shorten(error['message'])}")
    if execution["state"] != ExecutionState.COMPLETED:
        nodes = execution["nodes"]
        lines += _failures([node for node in nodes if node["state"] == NodeState.FAILED])
        lines += _not_run(nodes)
        if retry is not None:
            lines.append(f"  retry: {retry}")
    return "\n".join(lines)


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {state.lower()}" for state, count in counts.items() if count) or "no nodes"


def _failures(nodes: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for position, node in enumerate(nodes[:MAX_FAILURES]):
        error = node["error"] or {"code": "failed", "message": ""}
        attempts = f" (attempt {node['attempt']})" if node["attempt"] > 1 else ""
        yield f"  failed: {node['id']}{attempts}: {error['code']}: {shorten(error['message'])}"
        if position < MAX_TRACEBACKS:
            yield from traceback_lines(error, indent="    ")
    if len(nodes) > MAX_FAILURES:
        yield f"  … and {len(nodes) - MAX_FAILURES:,} more failed"


def traceback_lines(error: Mapping[str, Any] | None, *, indent: str = "") -> Iterator[str]:
    """Yield the lines of an error's traceback."""
    details = (error or {}).get("details")
    text = details.get("traceback") if isinstance(details, dict) else None
    if isinstance(text, str):
        for line in text.split("\n"):
            yield indent + escaped(line)


def _not_run(nodes: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Group what was skipped or cancelled by its reason and cause."""
    groups: dict[tuple[str, str, str], list[str]] = {}
    for node in nodes:
        if node["state"] in (NodeState.SKIPPED, NodeState.CANCELLED):
            key = (node["state"].lower(), node["reason"] or "", node["cause"] or "")
            groups.setdefault(key, []).append(node["id"])
    for (state, reason, cause), names in groups.items():
        why = ", ".join(filter(None, (reason, cause)))
        yield f"  {state}{f' ({why})' if why else ''}: {_some(names)}"


def _some(names: Sequence[str]) -> str:
    more = len(names) - MAX_NAMES
    return ", ".join(names[:MAX_NAMES]) + (f" and {more:,} more" if more > 0 else "")
