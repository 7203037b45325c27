"""Finds the nodes that can no longer run behind a failure or a skip, as far as the graph alone decides.

A node whose rule is broken by *one* failed (or skipped) parent needs no look at its other parents, so
a whole cascade is found in one walk and settled in one commit, not a level at a time. The rules that
ask about all parents (``one_success``, ``one_failed``, all parents skipped) are left to ``decide``.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import TYPE_CHECKING, TypeAlias

from weft.core.event import Skip
from weft.core.readiness import SKIPPED_BY_FAILURE
from weft.core.state import Reason
from weft.definition.model import TriggerRule

if TYPE_CHECKING:
    from weft.definition.plan import Plan

# Names the nodes of an execution's generation that are known to be settled: where a cascade of skips ends.
SettledNodes: TypeAlias = Callable[[str, int], Container[str]]

_BY_SKIP = frozenset({TriggerRule.ALL_SUCCESS})


def no_nodes(execution_id: str, generation: int) -> Container[str]:
    """Return no node: nothing is known."""
    return ()


def skips_behind_failure(
    plan: Plan,
    node_id: str,
    *,
    cause: str,
    settled: Container[str] = (),
    among: Container[str] | None = None,
) -> tuple[Skip, ...]:
    """List every node that can no longer run because ``node_id`` failed.

    The walk ends at the ``settled`` ones and, where ``among`` is given, at all others than those.
    """
    return _walk(plan, node_id, SKIPPED_BY_FAILURE, Reason.UPSTREAM_FAILED, cause, settled, among)


def skips_behind_skip(
    plan: Plan, node_id: str, *, cause: str, settled: Container[str] = ()
) -> tuple[Skip, ...]:
    """List every node that can no longer run because ``node_id`` was skipped."""
    return _walk(plan, node_id, _BY_SKIP, Reason.UPSTREAM_SKIPPED, cause, settled)


def _walk(
    plan: Plan,
    node_id: str,
    broken: frozenset[TriggerRule],
    reason: Reason,
    cause: str,
    settled: Container[str],
    among: Container[str] | None = None,
) -> tuple[Skip, ...]:
    nodes, dependents = plan.nodes, plan.graph.dependents
    skips: dict[str, Skip] = {}
    frontier = [node_id]
    while frontier:
        for dependent in dependents[frontier.pop()]:
            if (
                dependent not in skips
                and dependent not in settled
                and nodes[dependent].trigger_rule in broken
                and (among is None or dependent in among)
            ):
                skips[dependent] = Skip(dependent, reason, cause)
                frontier.append(dependent)
    return tuple(skips.values())
