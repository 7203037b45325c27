"""Section G of the fault catalogue, what runs: names and templates over REST. The rest: docs/faults.md.

What is refused before anything is stored is the corpus of tests/api/bad_input.py.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.api.conftest import Server


async def run(server: Server, *nodes: Any, **given: Any) -> dict[str, Any]:
    """Run a definition to its end; give its nodes by their ids."""
    definition = {"nodes": list(nodes), "failure_policy": "continue", "defaults": {"max_retries": 0}}
    answer = await server.post("/v1/executions?wait=30", json={"definition": definition, **given})
    assert answer.status == 200, answer.json
    return {node["id"]: node for node in answer.json["nodes"]}


def echo(node_id: str, config: Any = None, *parents: str, **fields: Any) -> dict[str, Any]:
    return {"id": node_id, "handler": "echo", "config": config, "dependencies": list(parents), **fields}


NAMES = [
    "__proto__",
    "constructor",
    "prototype",
    "toString",
    "__class__",
    "self",
    "None",
    "true",
    "and",
    "x" * 128,
]


async def test_ids_that_mean_something_elsewhere_are_ids_like_any_other(server: Server) -> None:
    """F71: names of JavaScript, Python and the language of templates."""
    first = [echo(name, {"value": name}) for name in NAMES]
    behind = [
        echo(f"behind{number}", f'{{{{ nodes["{name}"].output.value }}}}', name)
        for number, name in enumerate(NAMES)
    ]
    ended = await run(server, *first, *behind)
    assert {name: ended[name]["output"] for name in NAMES} == {name: {"value": name} for name in NAMES}
    assert [ended[f"behind{number}"]["output"] for number in range(len(NAMES))] == NAMES


UNDEFINED = [
    ("a missing field", "{{ a.nothing }}", "a.nothing"),
    ("a field of a field", "{{ a.list.nothing }}", "a.list.nothing"),
    ("a position", "{{ a.list[7] }}", "a.list[7]"),
    ("inside text", "before {{ a.nothing }} behind", "a.nothing"),
    ("a failed node", "{{ failed.output }}", "failed.output"),
    ("a field of a failed node", "{{ failed.x }}", "failed.x"),
    ("a skipped node", "{{ skipped.output }}", "skipped.output"),
    ("a field of the input", "{{ input.nothing }}", "input.nothing"),
    ("deep in a config", {"x": [{"y": "{{ a.nothing }}"}]}, "a.nothing"),
]


async def test_what_a_template_does_not_find_fails_its_node_and_is_named(server: Server) -> None:
    """F73: what cannot be known at submit is a typed failure, and never an empty string."""
    settled = [
        echo("a", {"list": [1, 2]}),
        echo("failed", "{{ a.nothing }}", "a"),
        echo("skipped", None, "a", condition="false"),
    ]
    parents = ("a", "failed", "skipped")
    asking = [
        echo(f"n{number}", config, *parents, trigger_rule="all_done")
        for number, (_, config, _) in enumerate(UNDEFINED)
    ]
    mended = echo("mended", "{{ failed.x | default('none') }}", *parents, trigger_rule="all_done")
    told = echo(
        "told", "{{ nodes.failed.state }} {{ nodes.skipped.state }}", *parents, trigger_rule="all_done"
    )
    condition = echo("condition", None, *parents, trigger_rule="all_done", condition="a.nothing == 1")
    ended = await run(server, *settled, *asking, mended, told, condition)
    for number, (name, _, path) in enumerate(UNDEFINED):
        node = ended[f"n{number}"]
        assert (node["state"], node["output"], node["attempt"]) == ("FAILED", None, 0), (name, node)
        assert (node["error"]["code"], node["error"]["retryable"]) == ("template_error", False), name
        assert path in node["error"]["message"], (name, node["error"]["message"])
    assert ended["mended"]["output"] == "none"
    assert ended["told"]["output"] == "FAILED SKIPPED"
    assert (ended["condition"]["state"], ended["condition"]["error"]["code"]) == ("FAILED", "condition_error")


LONG = "{{ input.text }}"
BOMBS = [
    "{{ 'a' * 50000000 }}",
    "{{ [1] * 50000000 }}",
    "{{ input.text * 100000 }}",
    "{{ input.text ~ input.text ~ input.text * 5000 }}",
    "{{ input.list | join(input.text) }}",
    "{{ input.text | replace('', input.text) }}",
    "{{ 9 ** (9 ** 9) }}",
    "{{ 2 ** 100000000 }}",
    "{{ (10 ** 4000) * (10 ** 4000) * (10 ** 4000) }}",
    "{{ input.list | tojson * 100000 }}",
    "{{ (input.list * 1000) | sort | unique | join(',') | upper | lower | length * 10000000 * 'x' }}",
    ["{{ input.text }}"] * 400,
]


@pytest.mark.parametrize("bomb", BOMBS, ids=lambda bomb: str(bomb)[:40])
async def test_a_template_that_would_grow_without_bound_is_cut_and_holds_up_nobody(
    bomb: Any, server: Server
) -> None:
    """F74: at run time, with values that nobody knew at submit; others are answered meanwhile."""
    given = {"text": "x" * 100_000, "list": list(range(1000))}
    execution = {"definition": {"nodes": [echo("a", bomb)]}, "input": given}
    running = asyncio.create_task(server.post("/v1/executions?wait=30", json=execution))
    slowest = 0.0
    while not running.done():
        began = time.monotonic()
        assert (await server.get("/healthz")).status == 200
        slowest = max(slowest, time.monotonic() - began)
    answer = await running
    if answer.status == 422:
        assert answer.json["problems"][0]["pointer"].startswith("/definition/nodes/0/config")
    else:
        (node,) = answer.json["nodes"]
        assert (node["state"], node["error"]["code"]) == ("FAILED", "template_error"), node
        assert len(node["error"]["message"]) < 2000
    assert slowest < 2


VALUES: list[Any] = [
    *(0, -1, 2**31, 2**53 + 1, 2**63, -(2**63) - 1, 2**64, 10**30, 10**4000),
    *(0.1, -0.0, 1e-300, 1.7976931348623157e308, 5e-324, 1.0, 1e22),
    *(
        True,
        False,
        None,
        "",
        "7",
        "true",
        "null",
        ' \n\t\\"/\u2028 \U0001f600 \x7f',
        "{{ input.x }}",
        "{% raw %}",
    ),
    *([], {}, [[]], [None, True, "x", {"a": [1.5]}], {"": 1, "a b": {"\u00e9": [0]}, "items": 1, "keys": []}),
]


async def test_a_value_keeps_its_type_to_the_last_digit_on_its_way_through_nodes(server: Server) -> None:
    """F76: from the input through two templates into the answer."""
    nodes = []
    for number in range(len(VALUES)):
        nodes.append(echo(f"a{number}", f"{{{{ input.values[{number}] }}}}"))
        nodes.append(echo(f"b{number}", {"deep": [f"{{{{ a{number}.output }}}}"]}, f"a{number}"))
    # The key ``output`` goes before the whole output, so no value has one.
    ended = await run(server, *nodes, input={"values": VALUES})
    for number, value in enumerate(VALUES):
        for found in (ended[f"a{number}"]["output"], ended[f"b{number}"]["output"]["deep"][0]):
            assert found == value
            assert type(found) is type(value)
            assert repr(found) == repr(value)
