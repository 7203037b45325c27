"""Real graphs through a server's REST API: deployed, started, waited for, and checked against what it tells.

The trace of every node and the data on every edge are checked by ``tests.tracecheck``, the history and that
it leads to what is shown by ``weft.views.history_check``.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any

from tests.tracecheck import check

from weft.cli.trace import of_answers
from weft.definition.plan import compile_plan

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.operation.serving import Api
    from tests.walks.replay import Replay

_NOT_IN_A_NAME = re.compile(r"[^a-z0-9._-]")


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
    history = await api.history(started["id"])
    violations = of_answers(compile_plan(document), execution, history).check()
    return [*_wrong_in_execution(replay, execution, slots), *map(str, violations)]


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
