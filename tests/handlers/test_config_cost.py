"""The configs of handlers that ship with weft are checked at once, up to the size that a worker relies on."""

from __future__ import annotations

import contextlib
import time
from typing import Any

import pytest

from weft.core.payload import canonical
from weft.handlers.config_schema import ConfigSchema
from weft.handlers.contract import BadConfig, HandlerKind
from weft.handlers.registry import Registry
from weft.worker.run import BOUND_AT_ONCE_BYTES

NATIVE = sorted(Registry().shipped(HandlerKind.NATIVE))


@pytest.mark.parametrize("name", NATIVE)
@pytest.mark.parametrize("key", ["headers", "query", "body", "messages", "prompt", "extra"])
def test_a_config_of_the_size_that_is_checked_at_once_takes_milliseconds(name: str, key: str) -> None:
    schema = Registry().get(name).config_schema
    checked = ConfigSchema(schema, is_own=True)
    names = {f"k{{{i}": "x" for i in range(5_000)}
    values: list[Any] = ["x{{" * 20_000, [1] * 30_000, [{}] * 20_000, names, {"x" * 60_000: 1}]
    for value in values:
        config = {"url": "http://example.org", key: value}
        assert len(canonical(config)) >= BOUND_AT_ONCE_BYTES - 10_000
        assert checked.is_quick(canonical(config))
        begun = time.thread_time()
        with contextlib.suppress(BadConfig):
            checked.require(config)
        assert time.thread_time() - begun < 0.3


def test_a_user_schema_that_costs_too_much_is_refused_where_it_is_registered() -> None:
    with pytest.raises(ValueError, match="/pattern: the pattern has about"):
        ConfigSchema({"pattern": "^((a{1,100}){1,100}){1,100}$"})


def test_a_schema_within_a_config_is_checked_with_the_definition() -> None:
    registry = Registry()
    for schema, where in (
        ({"properties": {"a": {"type": 3}}}, "/response_schema/properties/a/type"),
        ({"items": {"pattern": "^(a{1,1000}){1,1000}$"}}, "/response_schema/items/pattern"),
        (5, "/response_schema"),
    ):
        found = registry.problems("llm_service", {"prompt": "x", "response_schema": schema})
        assert [problem.pointer for problem in found] == [where]
    assert registry.problems("llm_service", {"prompt": "x", "response_schema": "{{ input.schema }}"}) == []
