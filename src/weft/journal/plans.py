"""Plans that were compiled not long ago, by the digest of their definitions."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING

from weft.core.lru import Lru

if TYPE_CHECKING:
    from weft.core.plan import Plan

# Many small workflows, or two of the largest: a plan takes about 1.7 kB a node.
MAX_NODES = 200_000


class PlanCache:
    """Keeps the plans used last, up to a number of nodes in all. Any thread may ask it."""

    def __init__(self, max_nodes: int = MAX_NODES) -> None:
        self._plans: Lru[str, Plan] = Lru(max_nodes, lambda plan: len(plan.nodes))
        self._lock = Lock()

    def get(self, digest: str) -> Plan | None:
        with self._lock:
            return self._plans.get(digest)

    def put(self, plan: Plan) -> None:
        """Keep a plan in the place of those used longest ago; a plan that is kept stays the same object."""
        with self._lock:
            if plan.digest not in self._plans:
                self._plans.put(plan.digest, plan)

    def drop(self, digest: str) -> None:
        """Forget a plan whose definition is gone."""
        with self._lock:
            self._plans.drop(digest)
