"""``weft show ID NODE``: one node, with its attempts, its resolved config and its output."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft.cli.report import traceback_lines
from weft.cli.table import facts, moment, payload, table, took, why
from weft.sdk.progress import progress_text

if TYPE_CHECKING:
    from collections.abc import Mapping


def describe_node(node: Mapping[str, Any]) -> str:
    """Return one node as text for people."""
    text = facts(
        {
            "node": node["id"],
            "handler": node["handler"],
            "state": node["state"],
            "attempt": node["attempt"],
            "queued": moment(node["queued_at"]),
            "started": moment(node["started_at"]),
            "finished": moment(node["finished_at"]),
            "took": took(node),
            "due": moment(node["due_at"]),
            "worker": node["worker"],
            "progress": progress_text(node["progress"]) if node.get("progress") else None,
            "from the cache": "yes" if node["cached"] else None,
            "reused": "yes, from the execution that was forked" if node["reused"] else None,
            "why": why(node),
        }
    )
    text += payload("config", node["config"]) + payload("output", node["output"])
    attempts = node["attempts"]
    if attempts:
        rows = [
            [
                attempt["number"],
                attempt["outcome"],
                moment(attempt["started_at"]),
                took(attempt),
                attempt["worker"],
                why(attempt),
            ]
            for attempt in attempts
        ]
        text += "\n" + table(["ATTEMPT", "OUTCOME", "STARTED", "TOOK", "WORKER", "WHY"], rows)
    if lines := list(traceback_lines(node["error"])):
        text += "\n" + "\n".join(lines) + "\n"
    return text
