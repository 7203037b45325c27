"""Plans that were compiled not long ago, by the digest of their definitions."""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from weft.core.plan import Plan

# Many small workflows, or two of the largest: a plan takes about 1.7 kB a node.
MAX_NODES = 200_000


class PlanCache:
    """Keeps the plans used last, up to a number of nodes in all. Any thread may ask it."""

    def __init__(self, max_nodes: int = MAX_NODES) -> None:
        self._max_nodes = max_nodes
        self._nodes = 0
        self._plans: OrderedDict[str, Plan] = OrderedDict()
        self._lock = Lock()

    def get(self, digest: str) -> Plan | None:
        with self._lock:
            plan = self._plans.get(digest)
            if plan is not None:
                self._plans.move_to_end(digest)
            return plan

    def put(self, plan: Plan) -> None:
        """Keep a plan, in the place of those that were not used for longest."""
        with self._lock:
            if plan.digest not in self._plans:
                self._nodes += len(plan.nodes)
                self._plans[plan.digest] = plan
            while self._nodes > self._max_nodes and len(self._plans) > 1:
                _, dropped = self._plans.popitem(last=False)
                self._nodes -= len(dropped.nodes)

    def drop(self, digest: str) -> None:
        """Let go of a plan whose definition is gone."""
        with self._lock:
            dropped = self._plans.pop(digest, None)
            if dropped is not None:
                self._nodes -= len(dropped.nodes)
