"""The definitions that are run: echo nodes that pass a number on, in shapes of any size."""

from __future__ import annotations

from typing import Any


def chain(length: int) -> dict[str, Any]:
    """One node after the other."""
    return _workflow([_echo(f"n{i}", [f"n{i - 1}"] if i else []) for i in range(length)])


def fan(width: int) -> dict[str, Any]:
    """One node, ``width`` nodes behind it, and one behind them all."""
    middle = [f"m{i}" for i in range(width)]
    return _workflow(
        [_echo("first", []), *(_echo(name, ["first"]) for name in middle), _echo("last", middle)]
    )


def diamond() -> dict[str, Any]:
    """a → b, c, d → e."""
    return _workflow([_echo("a", []), *(_echo(name, ["a"]) for name in "bcd"), _echo("e", ["b", "c", "d"])])


def layered(layers: int, width: int) -> dict[str, Any]:
    """Layers of equal width; every node behind the first layer has two parents in the layer before."""
    return _workflow(
        [
            _echo(
                f"l{layer}_{i}",
                sorted({f"l{layer - 1}_{i}", f"l{layer - 1}_{(i * 7 + 1) % width}"}) if layer else [],
            )
            for layer in range(layers)
            for i in range(width)
        ]
    )


def sleepers(count: int, seconds: float) -> dict[str, Any]:
    """Independent nodes that each take the same time, in a worker's slot."""
    return _workflow(
        [{"id": f"s{i}", "handler": "hold", "config": {"seconds": seconds}} for i in range(count)]
    )


def _echo(node_id: str, parents: list[str]) -> dict[str, Any]:
    value: Any = f"{{{{ {parents[0]}.value }}}}" if parents else 1
    return {"id": node_id, "handler": "echo", "dependencies": parents, "config": {"value": value}}


def _workflow(nodes: list[dict[str, Any]]) -> dict[str, Any]:
    # One small output, so that what is measured is the nodes and not a table of all their outputs.
    return {"name": "bench", "nodes": nodes, "output": None}
