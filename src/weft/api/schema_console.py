"""The shapes of the answers that were made for the console: graphs, live states, sessions.

As in ``schema``: the OpenAPI document shows them, and tests compare what is sent with them.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

_DIGEST = "3a7bd3e2360a3d29eea436fcfb7e44c735d117c42d1c1835420b6b9942dd4f1b"


def _example(value: Any) -> ConfigDict:
    return ConfigDict(json_schema_extra={"examples": [value]}, populate_by_name=True)


class Topology(BaseModel):
    """The graph of a definition as columns; a node is named by its index in `nodes`."""

    model_config = _example(
        {
            "version": _DIGEST,
            "nodes": ["fetch", "report"],
            "handlers": ["call_external_service", "echo"],
            "handler": [0, 1],
            "from": [0],
            "to": [1],
        }
    )

    version: str = Field(description="the digest of the definition")
    nodes: list[str] = Field(description="the ids of the nodes, in the order of the definition")
    handlers: list[str] = Field(description="the names of the handlers, each once")
    handler: list[int] = Field(description="of each node: the index of its handler")
    from_: list[int] = Field(alias="from", description="of each dependency: the node that runs first")
    to: list[int] = Field(description="of each dependency: the node that runs after it")
