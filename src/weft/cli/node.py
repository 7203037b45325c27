"""``weft show ID NODE``: one node, with its attempts, its resolved config and its output."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from weft.cli.table import facts, moment, payload, table, took, why
from weft.sdk.progress import progress_text
from weft.sdk.report import MAX_TRACEBACKS, traceback_lines

if TYPE_CHECKING:
    from collections.abc import Mapping


def describe_node(node: Mapping[str, Any], wait: Mapping[str, Any] | None = None) -> str:
    """Return one node as text for people; ``wait``: what the API says of it while it waits for an answer."""
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
            "prompt": wait and wait["prompt"],
            "answers": wait and _answers(wait["schema"]),
            "to answer": wait and f"weft answer {wait['execution']} {wait['node']} VALUE",
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
    return text + _tracebacks(node)


def _answers(schema: Any) -> str | None:
    """Return which answers fit a schema: all its values, or the schema itself; None: any."""
    if schema in (None, True, {}):
        return None
    values = schema.get("enum") if isinstance(schema, dict) else None
    if isinstance(values, list):
        return " | ".join(value if isinstance(value, str) else json.dumps(value) for value in values)
    return json.dumps(schema, ensure_ascii=False)


def _tracebacks(node: Mapping[str, Any]) -> str:
    """Return the tracebacks of the last attempts that failed, each with its attempts if there are several."""
    groups: list[tuple[list[str], list[int]]] = []
    for attempt in node["attempts"]:
        lines = list(traceback_lines(attempt["error"]))
        if lines and groups and groups[-1][0] == lines:
            groups[-1][1].append(attempt["number"])
        elif lines:
            groups.append((lines, [attempt["number"]]))
    if not groups and (lines := list(traceback_lines(node["error"]))):
        groups = [(lines, [])]
    text = ""
    for lines, numbers in groups[-MAX_TRACEBACKS:]:
        named = ", ".join(map(str, numbers))
        heading = [f"attempt {named}:"] if len(node["attempts"]) > 1 else []
        text += "\n" + "\n".join([*heading, *lines]) + "\n"
    return text
