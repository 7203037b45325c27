"""Workflows, payloads and small mistakes, drawn."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from weft.definition.model import TriggerRule
from weft.testing.walk import node, workflow

MOST_NODES = 6

# Every byte there is, what trips up those who take payloads for text, and more than is kept in one piece.
PAYLOADS = st.binary(max_size=12) | st.sampled_from(
    [b"null", bytes(range(256)), b"\r\n$-1\r\n\x00\xc3\x28,.n0,", b"\xff" * 3000]
)
# Nearly always what is right.
OFFSETS = st.sampled_from([0, 0, 0, 0, 0, 0, 1, -1])
# Which execution, or which node, modulo how many there are: of those for which a step makes a difference, or,
# from ``ANY`` on, of all.
ANY = 10
INDEXES = st.sampled_from(range(ANY + 2))
SOME = st.lists(INDEXES, min_size=1, max_size=4)
MOSTLY = st.sampled_from([True, True, True, False])
RARELY = st.sampled_from([False, False, False, True])


@st.composite
def documents(draw: st.DrawFn) -> Any:
    """Draw a small workflow: every trigger rule, references past parents, tags, lanes, and limits."""
    nodes: list[Any] = []
    before: list[set[int]] = []
    for index in range(draw(st.sampled_from([1, 2, 3, 4, 4, 5, 5, MOST_NODES, MOST_NODES]))):
        parents = draw(st.sets(st.integers(0, index - 1), max_size=3)) if index else set()
        reached = parents.union(*[before[parent] for parent in parents])
        before.append(reached)
        fields: dict[str, Any] = {
            "queue": draw(st.sampled_from(["echo", "other"])),
            "max_retries": draw(st.sampled_from([0, 3])),
        }
        if reached:
            names = sorted(draw(st.sets(st.sampled_from(sorted(reached)), max_size=2)))
            fields["config"] = [f"{{{{ n{name}.output | default(0) }}}}" for name in names]
            if draw(st.booleans()):
                name = draw(st.sampled_from(sorted(reached)))
                fields["config"].append(f"{{{{ nodes.n{name}.state | default('?') }}}}")
        if draw(st.booleans()):
            fields["resource_tag"] = "api"
        if draw(RARELY):
            fields["delivery"] = "at_most_once"
            del fields["max_retries"]
        rule = draw(st.sampled_from([None, *TriggerRule])) if parents else None
        depends_on = [f"n{parent}" for parent in sorted(parents)]
        nodes.append(node(f"n{index}", *depends_on, rule=None if rule is None else str(rule), **fields))
    top: dict[str, Any] = {"failure_policy": draw(st.sampled_from(["continue", "continue", "fail_fast"]))}
    if draw(RARELY):
        top["max_concurrency"] = draw(st.integers(1, 3))
    if draw(RARELY):
        top["timeout_seconds"] = draw(st.integers(5, 60))
    return workflow(*nodes, **top)
