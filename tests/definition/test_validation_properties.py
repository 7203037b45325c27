from __future__ import annotations

import copy
from itertools import pairwise
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from weft.definition.bounds import Bounds
from weft.definition.fields import DEFINITION_FIELDS, NODE_FIELDS
from weft.definition.plan import compile_plan
from weft.definition.validation import Checked, check
from weft.errors import Problem

FIELDS = [*DEFINITION_FIELDS, *NODE_FIELDS, "ttl_seconds", "jitter", "base_delay_seconds", "a", "~", "/", "%"]
WORDS = [
    *["a", "b", "c", "d", "nodes", "input", "secrets", "echo", "nothing"],
    *["continue", "one_failed", "one_success", "all_done", "at_most_once"],
    *["{{a.x}}", "{{nodes['b'].output}}", "{{d}}", "{{secrets.S}}", "{{", "a.x", "a == b"],
]

names = st.sampled_from(FIELDS) | st.text(max_size=3)
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-2, 200)
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(WORDS)
    | st.text(max_size=5)
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=5),
    max_leaves=15,
)


class Catalogue:
    def names(self) -> list[str]:
        return ["echo", "input", "output"]

    def knows(self, name: str) -> bool:
        return name in self.names()

    def problems(self, name: str, config: Any) -> list[Problem]:
        return [Problem("", "input has no config")] if name == "input" and config != {} else []


@st.composite
def valid_definitions(draw: st.DrawFn) -> dict[str, Any]:
    count = draw(st.integers(1, 7))
    order = draw(st.permutations(range(count)))
    ancestors: dict[int, set[int]] = {}
    nodes: list[dict[str, Any]] = [{} for _ in range(count)]
    for place, index in enumerate(order):
        before = list(order[:place])
        parents = draw(st.lists(st.sampled_from(before), unique=True, max_size=3)) if before else []
        ancestors[index] = set(parents).union(*(ancestors[parent] for parent in parents))
        node: dict[str, Any] = {"id": f"n{index}", "handler": "echo"}
        if parents:
            node["dependencies"] = [f"n{parent}" for parent in parents]
            node["trigger_rule"] = draw(st.sampled_from(["all_done", "one_failed", "none_failed"]))
        if ancestors[index]:
            named = draw(st.sampled_from(sorted(ancestors[index])))
            node["config"] = {"x": [f"{{{{ n{named}.y | default(1) }}}}"]}
            node["condition"] = f"n{named}.y"
        nodes[index] = node
    return {"name": "flow", "nodes": nodes, "output": "{{ n0 }}"}


def checked(document: Any) -> Checked:
    bounds = Bounds(max_nodes=5, max_edges=8, max_depth=12, max_template_bytes=200)
    return check(document, handlers=Catalogue(), bounds=bounds, resource_limits=["a"])


def is_sound(found: Checked, document: Any) -> None:
    """Hold a result against what is true of every result."""
    assert (found.plan is None) == bool(found.problems)
    assert (found.layers == []) == bool(found.problems)
    for problem in found.problems + found.warnings:
        assert resolves(problem.pointer, document), problem
        assert problem.message
        assert len(problem.message) < 2000
        assert "\n" not in problem.message
    if found.plan is not None:
        again = compile_plan(document)
        assert again.definition == found.plan.definition
        assert again.digest == found.plan.digest
        assert again.references == found.plan.references


def resolves(pointer: str, document: Any) -> bool:
    """Follow a pointer (RFC 6901) to what is there."""
    assert pointer == "" or pointer.startswith("/")
    value = document
    for token in pointer.split("/")[1:]:
        key = token.replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict) and key in value:
            value = value[key]
        elif isinstance(value, list) and key.isdecimal() and int(key) < len(value):
            value = value[int(key)]
        else:
            return False
    return True


@given(values)
def test_no_json_makes_a_check_fail(document: Any) -> None:
    is_sound(checked(document), document)


@given(
    st.fixed_dictionaries(
        {"name": values, "nodes": st.lists(values, max_size=6)}, optional={"output": values}
    )
)
def test_no_definition_of_about_the_right_shape_makes_a_check_fail(document: Any) -> None:
    is_sound(checked(document), document)


@given(
    st.lists(
        st.fixed_dictionaries(
            {"id": st.sampled_from("abc"), "handler": st.just("echo")},
            optional={
                "dependencies": st.lists(st.sampled_from("abcd"), max_size=3),
                "config": st.sampled_from(WORDS) | st.lists(st.sampled_from(WORDS)),
                "condition": st.sampled_from(["a.x", "b", "c.x == 1", "d"]),
                "trigger_rule": st.sampled_from(["one_failed", "all_done"]),
                "resource_tag": st.sampled_from("ab"),
            },
        ),
        max_size=4,
    )
)
def test_no_tangle_of_nodes_makes_a_check_fail(nodes: Any) -> None:
    document = {"name": "flow", "nodes": nodes}
    is_sound(checked(document), document)


@given(valid_definitions(), st.data())
@settings(max_examples=200)
def test_a_valid_definition_with_one_change_is_checked_soundly(document: Any, data: st.DataObject) -> None:
    changed = copy.deepcopy(document)
    places: list[tuple[Any, Any]] = []
    stack = [changed]
    while stack:
        holder = stack.pop()
        keys: list[Any] = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
        places += [(holder, key) for key in keys]
        stack += [holder[key] for key in keys if isinstance(holder[key], (dict, list))]
    holder, key = data.draw(st.sampled_from(places))
    if data.draw(st.booleans()):
        holder[key] = data.draw(values)
    else:
        del holder[key]
    is_sound(checked(changed), changed)


@given(valid_definitions())
def test_a_valid_definition_has_no_problems_and_layers_that_respect_its_dependencies(document: Any) -> None:
    found = check(document, handlers=Catalogue())
    assert found.problems == []
    assert found.plan is not None
    layer_of = {node_id: depth for depth, layer in enumerate(found.layers) for node_id in layer}
    assert sorted(layer_of) == sorted(node["id"] for node in document["nodes"])
    for node in document["nodes"]:
        parents = node.get("dependencies", [])
        assert layer_of[node["id"]] == max((layer_of[parent] + 1 for parent in parents), default=0)


@given(valid_definitions(), st.data())
def test_a_dependency_that_closes_a_cycle_is_always_found(document: Any, data: st.DataObject) -> None:
    plan = check(document, handlers=Catalogue()).plan
    assert plan is not None
    ends = [node_id for node_id in plan.graph.ids if plan.graph.ancestors(node_id)]
    if not ends:
        return
    last = data.draw(st.sampled_from(ends))
    first = data.draw(st.sampled_from(sorted(plan.graph.ancestors(last))))
    changed = copy.deepcopy(document)
    node = next(node for node in changed["nodes"] if node["id"] == first)
    node["dependencies"] = [*node.get("dependencies", []), last]
    (problem,) = check(changed, handlers=Catalogue()).problems
    members = problem.message.removeprefix("a cycle: ").split(" -> ")
    assert members[0] == members[-1]
    for parent, child in pairwise(members):
        fields = next(node for node in changed["nodes"] if node["id"] == child)
        assert parent in fields["dependencies"]
