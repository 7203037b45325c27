"""The graph of a definition as columns: what a drawing needs, once for every node and dependency.

Columns of numbers take a fifth of the text that an object for each node takes, and a browser reads 50,000
nodes of them in a few milliseconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from weft.definition.plan import Plan


def topology_of(plan: Plan) -> dict[str, Any]:
    """Return the nodes in the order of the definition, and each dependency as a pair of node indexes."""
    ids = plan.graph.ids
    index_of = {node_id: index for index, node_id in enumerate(ids)}
    handlers: dict[str, int] = {}
    handler = [handlers.setdefault(plan.nodes[node_id].handler, len(handlers)) for node_id in ids]
    sources: list[int] = []
    targets: list[int] = []
    for index, node_id in enumerate(ids):
        for parent in plan.graph.parents[node_id]:
            sources.append(index_of[parent])
            targets.append(index)
    return {
        "version": plan.digest,
        "nodes": ids,
        "handlers": list(handlers),
        "handler": handler,
        "from": sources,
        "to": targets,
    }
