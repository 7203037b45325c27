"""Graphs whose nodes call a service that writes down every call, and pass on what they were answered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.tracecheck import DrawnNode

if TYPE_CHECKING:
    from collections.abc import Sequence


def layered(count: int, width: int) -> list[DrawnNode]:
    """Draw a root, layers behind it with up to two parents a node, and a join."""
    nodes = [DrawnNode("root", ())]
    above = ["root"]
    for layer in range(count):
        names = [f"n{layer}_{i}" for i in range(width)]
        for i, name in enumerate(names):
            nodes.append(DrawnNode(name, tuple(sorted({above[(i * k + k) % len(above)] for k in (1, 2)}))))
        above = names
    return [*nodes, DrawnNode("join", tuple(above))]


def calling(graph: Sequence[DrawnNode], url: str, **fields: Any) -> list[dict[str, Any]]:
    """Return nodes that post their parents' tokens to the service, and put out the token they are given."""
    return [
        {
            "id": node.id,
            "handler": "call_external_service",
            "dependencies": list(node.parents),
            "trigger_rule": node.rule,
            "config": {
                "url": f"{url}/{node.id}",
                "body": {"parents": [f"{{{{ {parent}.body.token }}}}" for parent in node.parents]},
            },
            **fields,
        }
        for node in graph
    ]
