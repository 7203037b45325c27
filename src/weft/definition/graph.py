"""Order, layers, dependents, ancestors and cycles: the shape of a workflow alone, without states.

Every algorithm is a loop over integer positions with a stack or a queue of its own, so that a chain of 10^5
nodes is as safe as a short one. All are linear in nodes plus dependencies, except the ancestor check, which
says so itself.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

# How many targets one sweep of the ancestor check follows: a mask has a bit for each, so this also bounds its
# memory, at 512 bytes for each node of the graph.
_TARGETS_PER_SWEEP = 4096


class Graph:
    """The shape of an acyclic workflow; where nothing else decides, all is in the order of the definition."""

    __slots__ = ("dependents", "ids", "leaves", "parents", "roots")

    def __init__(self, ids: Iterable[str], dependencies: Mapping[str, Iterable[str]]) -> None:
        self.ids: tuple[str, ...] = tuple(ids)
        self.parents: Mapping[str, tuple[str, ...]] = {i: tuple(dependencies[i]) for i in self.ids}
        behind: dict[str, list[str]] = {i: [] for i in self.ids}
        for node_id, parents in self.parents.items():
            for parent in parents:
                behind[parent].append(node_id)
        self.dependents: Mapping[str, tuple[str, ...]] = {i: tuple(nodes) for i, nodes in behind.items()}
        self.roots: tuple[str, ...] = tuple([i for i, parents in self.parents.items() if not parents])
        self.leaves: tuple[str, ...] = tuple([i for i, nodes in behind.items() if not nodes])

    def layers(self) -> list[list[str]]:
        """Group the ids by their distance from the roots, along the longest path."""
        waiting = {node_id: len(parents) for node_id, parents in self.parents.items()}
        position = {node_id: index for index, node_id in enumerate(self.ids)}
        layers = []
        layer = list(self.roots)
        while layer:
            layers.append(layer)
            freed = []
            for node_id in layer:
                for dependent in self.dependents[node_id]:
                    waiting[dependent] -= 1
                    if not waiting[dependent]:
                        freed.append(dependent)
            freed.sort(key=position.__getitem__)
            layer = freed
        return layers

    def order(self) -> list[str]:
        """List the ids so that each comes after all it depends on."""
        return [node_id for layer in self.layers() for node_id in layer]

    def ancestors(self, node_id: str) -> frozenset[str]:
        """Find everything the node runs after, directly or not."""
        reached: set[str] = set()
        stack = [node_id]
        while stack:
            for parent in self.parents[stack.pop()]:
                if parent not in reached:
                    reached.add(parent)
                    stack.append(parent)
        return frozenset(reached)


def find_cycles(parents: Sequence[Sequence[int]]) -> list[list[int]]:
    """Find a shortest cycle through the first member of each knot of nodes that depend on each other."""
    knots = [
        knot for knot in map(sorted, components(parents)) if len(knot) > 1 or knot[0] in parents[knot[0]]
    ]
    return [_cycle_in(knot, parents) for knot in sorted(knots)]


def components(parents: Sequence[Sequence[int]]) -> list[list[int]]:
    """Split the graph into its strongly connected components, each after all it depends on.

    Without a cycle every component is a single node, and Kahn's algorithm finds them all. What it leaves over
    lies on a cycle or behind one; there Tarjan's takes over, for those nodes alone.
    """
    order = _kahn(parents)
    found = [[index] for index in order]
    if len(order) < len(parents):
        left = set(range(len(parents))).difference(order)
        found += _tarjan(sorted(left), parents, left)
    return found


def not_ancestors(parents: Sequence[Sequence[int]], pairs: Iterable[tuple[int, int]]) -> set[tuple[int, int]]:
    """Pick those pairs of (node, another) where the node does not run after the other. Cycles are allowed.

    Direct parents, nearly all pairs in practice, cost one look. For the others the targets are followed
    through the graph together, a bit for each: one sweep over the nodes for every 4,096 targets. Sets of
    ancestors would be quadratic for a long chain whose nodes all name the first.
    """
    as_sets: dict[int, frozenset[int]] = {}
    open_pairs: list[tuple[int, int]] = []
    for node, target in pairs:
        if node not in as_sets:
            as_sets[node] = frozenset(parents[node])
        if target not in as_sets[node]:
            open_pairs.append((node, target))
    if not open_pairs:
        return set()

    order = components(parents)
    place = [0] * len(parents)
    for position, component in enumerate(order):
        for index in component:
            place[index] = position

    # A target after its node in the order is settled without a sweep.
    failed = {(node, target) for node, target in open_pairs if place[target] > place[node]}
    by_target: dict[int, list[int]] = {}
    for node, target in open_pairs:
        if place[target] <= place[node]:
            by_target.setdefault(target, []).append(node)
    targets = sorted(by_target, key=place.__getitem__)
    for start in range(0, len(targets), _TARGETS_PER_SWEEP):
        batch = targets[start : start + _TARGETS_PER_SWEEP]
        bits = {target: 1 << bit for bit, target in enumerate(batch)}
        last = max(place[node] for target in batch for node in by_target[target])
        masks = _sweep(parents, order[place[batch[0]] : last + 1], bits)
        for target in batch:
            failed.update((node, target) for node in by_target[target] if not masks[node] & bits[target])
    return failed


def _sweep(
    parents: Sequence[Sequence[int]], order: Sequence[Sequence[int]], bits: Mapping[int, int]
) -> dict[int, int]:
    """Return for each node in a stretch of the order the bits of the targets it runs after, and its own."""
    masks: dict[int, int] = {}
    for component in order:
        mask = 0
        for index in component:
            for parent in parents[index]:
                mask |= masks.get(parent, 0)
            mask |= bits.get(index, 0)
        for index in component:
            masks[index] = mask
    return masks


def _kahn(parents: Sequence[Sequence[int]]) -> list[int]:
    """Order the nodes that lie neither on a cycle nor behind one."""
    dependents: list[list[int]] = [[] for _ in parents]
    waiting = [len(of_node) for of_node in parents]
    for index, of_node in enumerate(parents):
        for parent in of_node:
            dependents[parent].append(index)
    order = [index for index, count in enumerate(waiting) if not count]
    for index in order:  # grows while it is read
        for dependent in dependents[index]:
            waiting[dependent] -= 1
            if not waiting[dependent]:
                order.append(dependent)
    return order


def _tarjan(starts: Sequence[int], parents: Sequence[Sequence[int]], within: set[int]) -> list[list[int]]:
    """Find the strongly connected components within a set of nodes, parents first."""
    found: list[list[int]] = []
    number: dict[int, int] = {}
    lowest: dict[int, int] = {}
    path: list[int] = []
    on_path: set[int] = set()
    for start in starts:
        if start in number:
            continue
        number[start] = lowest[start] = len(number)
        path.append(start)
        on_path.add(start)
        calls = [(start, iter(parents[start]))]
        while calls:
            index, rest = calls[-1]
            for parent in rest:
                if parent not in within:
                    continue
                if parent not in number:
                    number[parent] = lowest[parent] = len(number)
                    path.append(parent)
                    on_path.add(parent)
                    calls.append((parent, iter(parents[parent])))
                    break
                if parent in on_path:
                    lowest[index] = min(lowest[index], number[parent])
            else:
                calls.pop()
                if calls:
                    caller = calls[-1][0]
                    lowest[caller] = min(lowest[caller], lowest[index])
                if lowest[index] == number[index]:
                    component = [path.pop()]
                    while component[-1] != index:
                        component.append(path.pop())
                    on_path.difference_update(component)
                    found.append(component)
    return found


def _cycle_in(knot: Sequence[int], parents: Sequence[Sequence[int]]) -> list[int]:
    """Find a shortest way from the first node of a component back to itself."""
    first = knot[0]
    members = set(knot)
    came_from: dict[int, int] = {}
    queue = deque([first])
    while True:
        index = queue.popleft()
        for parent in parents[index]:
            if parent == first:
                # Walked from dependents to parents, so the way back reads in the direction of the work.
                cycle = [first]
                while index != first:
                    cycle.append(index)
                    index = came_from[index]
                return [*cycle, first]
            if parent in members and parent not in came_from:
                came_from[parent] = index
                queue.append(parent)
