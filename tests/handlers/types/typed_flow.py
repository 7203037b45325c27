"""A workflow that sends values of every type from one function to another; each node runs in some process."""

from __future__ import annotations

from functools import cache
from typing import Any, TypedDict

from hypothesis import HealthCheck, Phase, given, seed, settings
from tests.handlers.types.samples import TYPES

from weft import Workflow

flow = Workflow("typed", failure_policy="continue")


@cache
def examples(name: str) -> list[Any]:
    """Return a few values of a type: the same in every process."""
    drawn: list[Any] = []

    @seed(0)
    @settings(max_examples=5, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(TYPES[name][1])
    def draw(value: Any) -> None:
        drawn.append(value)

    draw()
    return drawn


# One node for all types: each process that runs one loads all the libraries of the samples first.
Everything = TypedDict(  # type: ignore[misc]
    "Everything",
    {name: list[hint] for name, (hint, _) in TYPES.items()},  # type: ignore[valid-type]
)


def make() -> Any:
    return {name: examples(name) for name in TYPES}


async def compare(make: Any) -> list[str]:
    return [
        f"{name}: {received!r} is not {sent!r}"
        for name in TYPES
        for received, sent in zip(make[name], examples(name), strict=True)
        if received != sent or type(received) is not type(sent)
    ]


make.__annotations__["return"] = Everything
compare.__annotations__["make"] = Everything
flow.node(make)
flow.node(compare)

EXPECTED: dict[str, list[str]] = {"compare": []}
