"""Workflows drawn from a seed: all rules, both policies, conditions, retries, places, at_most_once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft.core.definition import TriggerRule

if TYPE_CHECKING:
    from random import Random

_RULES = list(TriggerRule)


def draw_definition(rng: Random, number: int) -> dict[str, Any]:
    """Draw a workflow of two to seven nodes. A config names its node's parents, so that data flow shows."""
    nodes: list[dict[str, Any]] = []
    for index in range(rng.randint(2, 7)):
        parents = [node["id"] for node in nodes if rng.random() < 0.45]
        node: dict[str, Any] = {
            "id": f"n{index}",
            "handler": "work",
            "dependencies": parents,
            "config": {
                "node": f"n{index}",
                "parents": {name: f'{{{{ nodes["{name}"].output | default(none) }}}}' for name in parents},
            },
            "max_retries": rng.choice([0, 0, 1, 2]),
            "retry": {"base_delay_seconds": rng.choice([0, 1, 4]), "max_delay_seconds": 8, "jitter": 0.5},
        }
        if parents and rng.random() < 0.5:
            node["trigger_rule"] = str(rng.choice(_RULES))
        if rng.random() < 0.15:
            node["condition"] = rng.choice(["true", "false", "input.draw > 0.5"])
        if rng.random() < 0.1:
            node["delivery"] = "at_most_once"
            node["max_retries"] = 0
        if rng.random() < 0.1:
            node["resource_tag"] = "tag"
        nodes.append(node)
    definition: dict[str, Any] = {
        "name": f"drawn-{number}",
        "failure_policy": rng.choice(["fail_fast", "continue"]),
        "nodes": nodes,
    }
    if rng.random() < 0.4:
        definition["max_concurrency"] = rng.randint(1, 3)
    if rng.random() < 0.1:
        definition["timeout_seconds"] = rng.choice([5, 60])
    return definition
