"""Real graphs through a server's REST API: deployed, started, waited for, and checked against what it tells.

The trace of every node and the data on every edge are checked by ``tests.tracecheck``, the history here.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any

from tests.tracecheck import EARLY, check

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tests.operation.serving import Api
    from tests.walks.replay import Replay

_NOT_IN_A_NAME = re.compile(r"[^a-z0-9._-]")
_SETTLING = ("node.completed", "node.failed", "node.skipped", "node.cancelled")


async def replay_over_rest(replay: Replay, name: str, api: Api, *, slots: int) -> list[str]:
    """Run a graph under a workflow's name, and list all that is wrong with how it went."""
    workflow = _NOT_IN_A_NAME.sub("-", name.lower())[:120]
    document = {**replay.document, "name": workflow}
    status, stored, _ = await api.call("POST", "/v1/workflows", document)
    if status not in (200, 201):
        return [f"deploying gave {status}: {stored}"]
    status, started, headers = await api.call("POST", f"/v1/workflows/{workflow}/executions")
    if status != 202:
        return [f"starting gave {status}: {started}"]
    if headers["Location"] != f"/v1/executions/{started['id']}":
        return [f"Location is {headers['Location']!r}"]
    execution = await api.terminal(started["id"])
    history = await read_history(api, started["id"])
    return [*_wrong_in_execution(replay, execution, slots), *_wrong_in_history(replay, execution, history)]


async def read_history(api: Api, execution_id: str) -> list[dict[str, Any]]:
    """Give all recorded events of an execution, page by page."""
    events: list[dict[str, Any]] = []
    while True:
        after = events[-1]["seq"] if events else 0
        page = await api.get(f"/v1/executions/{execution_id}/events?limit=500&after={after}")
        events += page["items"]
        if page["next_cursor"] is None:
            return events


def _wrong_in_execution(replay: Replay, execution: Mapping[str, Any], slots: int) -> Iterator[str]:
    fates = {node["id"]: node["config"]["fate"] for node in replay.document["nodes"]}
    for violation in check(replay.graph, replay.trace(execution), slots=slots, max_attempts=2):
        yield f"{violation.code}: {violation.node_id} {violation.why}"
    for node in execution["nodes"]:
        if node["state"] in ("COMPLETED", "FAILED"):
            fate = fates[node["id"]]
            if (node["state"] == "FAILED") != (fate == "fails"):
                yield f"fate: {node['id']} is {node['state']} and {fate or 'completes'}"
            if node["attempt"] != (2 if fate == "stumbles" else 1):
                yield f"fate: {node['id']} took {node['attempt']} attempts and {fate or 'completes'}"
    states = Counter(node["state"] for node in execution["nodes"])
    if Counter({state: n for state, n in execution["counts"].items() if n}) != states:
        yield f"counts: {execution['counts']} for {dict(states)}"
    if [node["id"] for node in execution["nodes"]] != list(fates):
        yield "nodes: not in the order of the definition"
    if not any(fates.values()) and execution["state"] != "COMPLETED":
        yield f"state: {execution['state']}, and no node fails"


def _wrong_in_history(
    replay: Replay, execution: Mapping[str, Any], history: Sequence[Mapping[str, Any]]
) -> Iterator[str]:
    if [event["seq"] for event in history] != list(range(1, len(history) + 1)):
        yield "history: its numbers have gaps"
    types = [event["type"] for event in history]
    last = f"execution.{execution['state'].lower()}"
    if types[:2] != ["execution.created", "execution.started"] or types[-1:] != [last]:
        yield f"history: begins with {types[:2]} and ends with {types[-1:]}"
    settled: dict[str, Mapping[str, Any]] = {}
    for event in history:
        if event["type"] in _SETTLING:
            if event["node"] in settled:
                yield f"history: {event['node']} settles twice"
            settled[event["node"]] = event
    retries = Counter(event["node"] for event in history if event["type"] == "node.retrying")
    for node in execution["nodes"]:
        event = settled.get(node["id"], {"type": "nothing"})
        if event["type"] != f"node.{node['state'].lower()}":
            yield f"history: {node['id']} is {node['state']}, and the event is {event['type']}"
        elif any(event.get(key) != node[key] for key in ("queued_at", "started_at", "finished_at")):
            yield f"history: {node['id']} has other times than its event"
        if retries[node["id"]] != max(node["attempt"] - 1, 0):
            yield f"history: {node['id']} retries {retries[node['id']]} times"
    yield from _wrong_order(replay, settled)


def _wrong_order(replay: Replay, settled: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """A node that ran was recorded after all that it waited for."""
    shorts = {name: short for short, name in replay.names.items()}
    for node in replay.graph:
        event = settled.get(shorts[node.id])
        if event is None or event["type"] not in ("node.completed", "node.failed") or node.rule in EARLY:
            continue
        for parent in node.parents:
            before = settled.get(shorts[parent])
            if before is not None and before["seq"] > event["seq"]:
                yield f"history: {node.id} is recorded before {parent}"
