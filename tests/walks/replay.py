"""Real graphs as workflows: every node computes a hash of what it was given, some fail as a seed says."""

from __future__ import annotations

import asyncio
import gzip
import json
import random
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.tracecheck import EARLY, DrawnNode, merkle

from weft.errors import NonRetryable
from weft.handlers.contract import Handler, HandlerContext, HandlerKind
from weft.handlers.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Mapping

    from weft.core.payload import Json

FOLDER = Path(__file__).parent.parent / "dags"
FILES = sorted(str(path.relative_to(FOLDER)) for path in FOLDER.glob("*/*.json*"))

RULES = frozenset({"all_success", "all_done", "one_success", "one_failed"})

_NOT_IN_AN_ID = re.compile(r"[^A-Za-z0-9_-]")
_RESERVED = frozenset({"input", "nodes", "execution", "secrets"})


@dataclass(frozen=True, slots=True)
class Replay:
    """A real graph, and the definition that runs it."""

    graph: tuple[DrawnNode, ...]
    # Id in the definition → id in the file.
    names: Mapping[str, str]
    document: dict[str, Any]

    def trace(self, execution: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the nodes of an execution as the records of a trace, under the names of the file."""
        return [
            {
                "id": self.names[node["id"]],
                "attempts": node["attempt"],
                **{key: node[key] for key in ("state", "reason", "output")},
                **{key: node[key] for key in ("queued_at", "started_at", "finished_at")},
            }
            for node in execution["nodes"]
        ]


def read(file: str) -> dict[str, Any]:
    """Read a graph's file."""
    path = FOLDER / file
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    dag: dict[str, Any] = json.loads(data)
    return dag


def structural(dag: Mapping[str, Any]) -> Replay:
    """Replay the graph alone: every edge means that the parent must succeed, and every node does."""
    graph = tuple(DrawnNode(node["id"], tuple(node["depends_on"])) for node in dag["nodes"])
    return plain(graph)


def with_rules(dag: Mapping[str, Any], *, seed: int) -> Replay:
    """Replay it with its own trigger rules; some nodes fail for good, some fail and succeed when retried."""
    draw = random.Random(f"{dag['name']}/{seed}")
    fates = {node["id"]: draw.choices(["", "fails", "stumbles"], [10, 1, 1])[0] for node in dag["nodes"]}
    graph = tuple(DrawnNode(node["id"], tuple(node["depends_on"]), _rule(node)) for node in dag["nodes"])
    return _replay(graph, fates)


def plain(graph: tuple[DrawnNode, ...]) -> Replay:
    """Replay a graph that was drawn for the test; every node succeeds."""
    return _replay(graph, fates={})


def registry() -> Registry:
    """Return a registry that has the handler of the replays."""
    return Registry([Handler("merkle", HandlerKind.NATIVE, replay_node)])


async def replay_node(config: Json, context: HandlerContext) -> Json:
    """Do what the seed says, and give the hash of what it was given."""
    # Long enough for others to run beside it, and no longer.
    await asyncio.sleep(0)
    if config["fate"] == "fails":
        raise NonRetryable("as the seed says")
    if config["fate"] == "stumbles" and context.attempt == 1:
        raise RuntimeError("once, as the seed says")
    return merkle(config["id"], config["parents"])


def _replay(graph: tuple[DrawnNode, ...], fates: Mapping[str, str]) -> Replay:
    ids = _ids(graph)
    # Among failures a parent may have no output.
    output = "{{{{ nodes['{}'].output | default('') }}}}" if fates else "{{{{ nodes['{}'].output }}}}"
    nodes = [
        {
            "id": ids[node.id],
            "handler": "merkle",
            "dependencies": [ids[parent] for parent in node.parents],
            "trigger_rule": node.rule,
            "max_retries": 1,
            "retry": {"base_delay_seconds": 0.001, "jitter": 0},
            "config": {
                "id": node.id,
                "fate": fates.get(node.id, ""),
                "parents": [] if node.rule in EARLY else [output.format(ids[name]) for name in node.parents],
            },
        }
        for node in graph
    ]
    document = {"name": "replay", "failure_policy": "continue", "nodes": nodes}
    return Replay(graph, {short: name for name, short in ids.items()}, document)


def _rule(node: Mapping[str, Any]) -> str:
    """Return the node's rule, where weft has the same one; without parents there is nothing to wait for."""
    rule = node.get("trigger_rule")
    return rule if rule in RULES and node["depends_on"] else "all_success"


def _ids(graph: tuple[DrawnNode, ...]) -> dict[str, str]:
    """Return an id for each node that a definition allows: unique, and as near to its name as can be."""
    ids: dict[str, str] = {}
    taken = set(_RESERVED)
    for number, node in enumerate(graph):
        short = _NOT_IN_AN_ID.sub("_", node.id)[:120]
        if not short[:1].isalpha() and short[:1] != "_":
            short = f"_{short}"
        if short in taken:
            short = f"{short}_{number}"
        taken.add(short)
        ids[node.id] = short
    return ids
