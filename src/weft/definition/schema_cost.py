"""Computes the work of a schema, to compile it and to check a value, before that work begins.

A schema of a few kilobytes can keep a process busy for minutes: by counted repetition in a pattern, by wide
alternatives over a long array, by references that multiply. The library neither stops half-way nor lets other
threads run meanwhile. So the work is bounded from above first. For each depth below the root, ``SchemaWork``
is the most that all subschemas together may do with one value at that depth, each branch as if it were taken.
With the number of values, objects and bytes of a payload, which are counted without reading it, that is a
bound in nanoseconds. What is quick by this bound is checked at once; the rest is checked where it can be
killed.

The nanoseconds are measured (``./dev fuzz --cost`` looks for inputs that take longer than their bound).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from weft.core.payload import Json, pointer
from weft.definition.pattern_cost import PatternCost, pattern_cost
from weft.errors import Problem

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

SchemaNode: TypeAlias = dict[str, Json]
Path: TypeAlias = tuple[str | int, ...]

# Where other schemas stand in a schema: alone, in a list, by name. First those asked of the same value.
_SAME_ALONE = ("not", "if", "then", "else")
_SAME_LISTS = ("allOf", "anyOf", "oneOf")
_SAME_NAMED = ("dependentSchemas", "dependencies")
_IN_OBJECTS = ("additionalProperties", "unevaluatedProperties", "propertyNames")
_IN_LISTS = ("items", "contains", "unevaluatedItems")
_ALONE = (*_SAME_ALONE, *_IN_OBJECTS, *_IN_LISTS, "contentSchema")
_LISTS = (*_SAME_LISTS, "prefixItems")
_NAMED = (*_SAME_NAMED, "properties", "patternProperties", "$defs", "definitions")
_REFERENCES = ("$ref", "$dynamicRef")
_UNEVALUATED = ("unevaluatedProperties", "unevaluatedItems")

# A schema of thousands of properties has a few per property.
MAX_SUBSCHEMAS = 20_000
# 20 ms to compile. `^.{1,3000}$` has 36,000.
MAX_PATTERN_STATES = 40_000
# All patterns of a schema together, in states: half a second.
MAX_STATES = 1_000_000
# What a schema may ask of one value, references followed and each branch as if it were taken.
MAX_LOOKS_PER_VALUE = 10_000
# Schemas that ask one value on behalf of each other: more of them could exhaust the stack of the library,
# which ends the process.
_MAX_CHAIN = 100
# Levels of values times subschemas: counting the cost must not cost more than the check.
_MAX_STEPS = 50_000
# As deep as a value may be.
_MAX_DEPTH = 100

# What it takes, in nanoseconds.
_LOOK = 60
_REQUIRED_NAME = 1000
_NUMBER = 3000
_OPTION = 400
_FLOAT_OPTION = 5000
_STATE = 30
_BACKTRACKING = 200_000
_HASHING = 60
_READING = 20
_QUOTING = 60
_COMPILED_SUBSCHEMA = 8000
_COMPILED_VALUE = 300
_COMPILED_PATTERN = 80_000
_COMPILED_STATE = 500
_COMPILED_REFERENCE = 15
# To see what is left unevaluated, the others are asked again: more than once, and at each level anew.
_ASKED_AGAIN = 4
_MOST = 1e18


class SchemaWork(NamedTuple):
    """The most work on one value: nanoseconds per value, per object, per byte; and looks."""

    value: float = 0.0
    object: float = 0.0
    byte: float = 0.0
    looks: float = 0.0
    # Bytes of the schema that an error would quote.
    quoted: float = 0.0

    def plus(self, other: SchemaWork, times: float = 1.0) -> SchemaWork:
        if other is _NOTHING:
            return self
        return SchemaWork(
            min(self.value + times * other.value, _MOST),
            min(self.object + times * other.object, _MOST),
            min(self.byte + times * other.byte, _MOST),
            min(self.looks + times * other.looks, _MOST),
            min(self.quoted + times * other.quoted, _MOST),
        )

    def most(self, other: SchemaWork) -> SchemaWork:
        if other is _NOTHING or other is self:
            return self
        return other if self is _NOTHING else SchemaWork(*map(max, self, other))


_NOTHING = SchemaWork()


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of a schema."""

    compile_ns: float
    # So many schemas deep the library goes when it compiles: each takes some of the stack.
    reach: int
    # By the depth of a value: the work at all depths up to it together, and the most of one of them.
    sums: tuple[SchemaWork, ...]
    peaks: tuple[SchemaWork, ...]
    # A reference leads back to a schema that is being asked about the same value. The library stops there,
    # but not before it has followed every other such reference from each of them: no bound of that is known.
    is_circular: bool = False

    def check_seconds(self, payload: bytes) -> float:
        """Return an upper bound of the time that ``is_valid`` takes for a payload of JSON."""
        if self.is_circular:
            return inf
        level, values, objects = self._counts(payload)
        peak, total = self.peaks[level], self.sums[level]
        work = peak.value * values + peak.object * objects + (total.byte + _READING) * len(payload)
        return work / 1e9

    def report_seconds(self, payload: bytes) -> float:
        """Return an upper bound of the time to list all faults: each quotes the value, or the schema."""
        level, values, _ = self._counts(payload)
        peak, total = self.peaks[level], self.sums[level]
        quoted = total.looks * len(payload) + peak.quoted * values
        return self.check_seconds(payload) + (quoted * _QUOTING + peak.looks * values * 1000) / 1e9

    def _counts(self, payload: bytes) -> tuple[int, int, int]:
        """Count levels, values and objects, too many rather than too few: a string may hold brackets."""
        objects, lists = payload.count(b"{"), payload.count(b"[")
        values = 1 + lists + payload.count(b",") + payload.count(b":")
        return min(objects + lists, len(self.sums) - 1), values, objects


def cost_of(schema: Json) -> Cost | list[Problem]:
    """Count the cost of a schema that fits the meta-schema, or list what makes it cost too much.

    A reference must lead to a place in the same schema; where it does not, that is a problem, too.
    """
    if not isinstance(schema, dict):
        return Cost(_COMPILED_SUBSCHEMA, 1, (_BOOLEAN,), (_BOOLEAN,))
    places = _places(schema)
    if len(places) > MAX_SUBSCHEMAS:
        return [Problem("", f"more than {MAX_SUBSCHEMAS:,} schemas within this one; make it smaller")]
    targets, problems = _targets(places)
    states, patterns_ns, more = _states(places)
    problems += more
    if problems:
        return problems
    count = _Count(schema, targets, states)
    try:
        sums, peaks = count.levels()
        looks = {path: count.same(node).looks for path, node in places.items()}
    except RecursionError:
        message = f"asks one value through more than {_MAX_CHAIN} schemas that refer to each other"
        return [Problem("", message)]
    if count.is_finite:
        looks[()] = max(looks[()], peaks[-1].looks)
    # The narrowest of those that are too wide: what holds it is too wide, too.
    too_wide = [path for path in places if looks[path] > MAX_LOOKS_PER_VALUE]
    if too_wide:
        where = min(too_wide, key=lambda path: (looks[path], -len(path)))
        message = (
            f"asks up to {looks[where]:,.0f} questions about one value, branches and references multiplied; "
            f"the limit is {MAX_LOOKS_PER_VALUE:,}"
        )
        return [Problem(pointer(where), message)]
    compile_ns = (
        len(places) * _COMPILED_SUBSCHEMA
        + _size(schema) * _COMPILED_VALUE
        + len(targets) ** 2 * _COMPILED_REFERENCE
        + patterns_ns
    )
    return Cost(compile_ns, count.reach(), tuple(sums), tuple(peaks), count.is_circular)


class _Count:
    """The work of a schema and of all within it."""

    def __init__(
        self, schema: SchemaNode, targets: Mapping[str, Json], states: Mapping[str, PatternCost]
    ) -> None:
        self._schema = schema
        self._targets = targets
        self._states = states
        # By subschema; None while it is being counted: a reference in a circle asks nothing new.
        self._same: dict[int, tuple[SchemaWork, int] | None] = {}
        self._others: dict[int, list[SchemaNode]] = {}
        # True if no reference leads back to where it stands: then no value makes more work than counted.
        self.is_finite = False
        # True if a reference leads back to a schema that asks it about the same value.
        self.is_circular = False

    def same(self, schema: Json) -> SchemaWork:
        """Count what a subschema, and those it asks about the same value, do with that value.

        Raises RecursionError where those are more than ``_MAX_CHAIN`` deep.
        """
        return self._chain(schema)[0]

    def _chain(self, schema: Json, above: int = 0) -> tuple[SchemaWork, int]:
        if not isinstance(schema, dict):
            return _BOOLEAN, 1
        key = id(schema)
        if key in self._same:
            self.is_circular = self.is_circular or self._same[key] is None
            return self._same[key] or (_NOTHING, 0)
        if above >= _MAX_CHAIN:
            raise RecursionError
        self._same[key] = None
        work, length = self._own(schema), 0
        times = _times(schema)
        for other in self.asked_too(schema):
            asked, further = self._chain(other, above + 1)
            work, length = work.plus(asked, times), max(length, further)
        if length >= _MAX_CHAIN:
            raise RecursionError
        self._same[key] = work, length + 1
        return work, length + 1

    def reach(self) -> int:
        """Return how deep a walk over all schemas goes that follows every reference once."""
        deepest = 0
        seen: set[int] = set()
        open_nodes: list[tuple[SchemaNode, int]] = [(self._schema, 1)]
        while open_nodes:
            node, depth = open_nodes.pop()
            if id(node) in seen:
                continue
            seen.add(id(node))
            deepest = max(deepest, depth)
            open_nodes += [(other, depth + 1) for other in self._within(node)]
        return deepest

    def levels(self) -> tuple[list[SchemaWork], list[SchemaWork]]:
        """Count the work at each depth, as sums and as peaks over all depths up to it."""
        nodes = self._reachable()
        below = {key: self.same(node) for key, node in nodes.items()}
        sums, peaks = [below[id(self._schema)]], [below[id(self._schema)]]
        steps = 0
        while len(sums) <= _MAX_DEPTH:
            steps += len(nodes)
            is_first = len(sums) == 1
            level = _Level(self, below, is_first).all(nodes) if steps <= _MAX_STEPS else None
            if level is not None and not any(map(any, level.values())):
                self.is_finite = True
                break
            work = _UNKNOWN if level is None else level[id(self._schema)]
            steady = level == below
            sums.append(sums[-1].plus(work))
            peaks.append(peaks[-1].most(work))
            while (steady or level is None) and len(sums) <= _MAX_DEPTH:
                sums.append(sums[-1].plus(work))
                peaks.append(peaks[-1])
            below = level or below
        return sums, peaks

    def asked_too(self, schema: SchemaNode) -> list[SchemaNode]:
        """List the subschemas that are asked about the same value."""
        known = self._others.get(id(schema))
        if known is None:
            others = [schema[key] for key in _SAME_ALONE if key in schema]
            others += [other for key in _SAME_LISTS for other in schema.get(key, ())]
            others += [other for key in _SAME_NAMED for other in schema.get(key, {}).values()]
            others += [self._targets[schema[key]] for key in _REFERENCES if key in schema]
            known = self._others[id(schema)] = [other for other in others if isinstance(other, dict)]
        return known

    def keys(self, schema: SchemaNode) -> SchemaWork:
        """Count what the patterns for names do with one name."""
        work = _NOTHING
        for name in schema.get("patternProperties", ()):
            # Once for the pattern's own schema, and once to see what is left for additionalProperties.
            work = work.plus(self._matching(name), 2)
        return work

    def _matching(self, pattern: str) -> SchemaWork:
        cost = self._states[pattern]
        return SchemaWork(_LOOK, 0.0, _BACKTRACKING if cost.backtracks else _STATE * cost.states, 1)

    def _own(self, schema: SchemaNode) -> SchemaWork:
        value = float(_LOOK * len(schema))
        names = len(schema.get("required", ()))
        for needed in schema.get("dependentRequired", {}).values():
            names += 1 + len(needed)
        options = [*schema.get("enum", ()), *([schema["const"]] if "const" in schema else [])]
        if options:
            value += _options(options)
        if "multipleOf" in schema:
            value += _NUMBER
        byte = float(_HASHING if schema.get("uniqueItems") is True else 0)
        byte += 2 * ("minLength" in schema or "maxLength" in schema)
        looks = 1.0 + len(schema) + names
        work = SchemaWork(value, float(names * _REQUIRED_NAME), byte, looks, float(_size(options) * 20))
        return work.plus(self._matching(schema["pattern"])) if "pattern" in schema else work

    def _reachable(self) -> dict[int, SchemaNode]:
        nodes: dict[int, SchemaNode] = {}
        open_nodes: list[SchemaNode] = [self._schema]
        while open_nodes:
            node = open_nodes.pop()
            if id(node) not in nodes:
                nodes[id(node)] = node
                open_nodes += self._within(node)
        return nodes

    def _within(self, schema: SchemaNode) -> list[SchemaNode]:
        """List the subschemas that are asked about a value, or about what it holds."""
        found = [*schema.get("properties", {}).values(), *schema.get("prefixItems", ())]
        found += schema.get("patternProperties", {}).values()
        found += [schema[key] for key in (*_IN_OBJECTS, *_IN_LISTS) if key in schema]
        return [*self.asked_too(schema), *(other for other in found if isinstance(other, dict))]


class _Level:
    """The work one level further down than ``below``, by subschema.

    A value is an object or an array: what is asked of its members is counted for each by itself, or two
    alternatives of which one is for objects and one for arrays would double with every level.
    """

    def __init__(self, count: _Count, below: Mapping[int, SchemaWork], is_first: bool) -> None:
        self._count = count
        self._below = below
        # The names of an object are matched once, for its own members.
        self._is_first = is_first
        self._known: dict[int, tuple[SchemaWork, SchemaWork] | None] = {}

    def all(self, nodes: Mapping[int, SchemaNode]) -> dict[int, SchemaWork]:
        found = {key: self._of(node) for key, node in nodes.items()}
        return {key: in_object.most(in_list) for key, (in_object, in_list) in found.items()}

    def _of(self, schema: SchemaNode) -> tuple[SchemaWork, SchemaWork]:
        key = id(schema)
        if key in self._known:
            return self._known[key] or (_NOTHING, _NOTHING)
        self._known[key] = None
        in_object, in_list = self._members(schema)
        times = _times(schema)
        for other in self._count.asked_too(schema):
            first, second = self._of(other)
            in_object, in_list = in_object.plus(first, times), in_list.plus(second, times)
        self._known[key] = in_object, in_list
        return in_object, in_list

    def _members(self, schema: SchemaNode) -> tuple[SchemaWork, SchemaWork]:
        in_object = in_list = _NOTHING
        # Of `properties` one is asked, of the rest all.
        for other in schema.get("properties", {}).values():
            in_object = in_object.most(self._work(other))
        for other in schema.get("prefixItems", ()):
            in_list = in_list.most(self._work(other))
        named = schema.get("patternProperties")
        if named:
            if self._is_first:
                in_object = in_object.plus(self._count.keys(schema))
            for other in named.values():
                in_object = in_object.plus(self._work(other))
        for key in _IN_OBJECTS:
            if key in schema:
                in_object = in_object.plus(self._work(schema[key]))
        for key in _IN_LISTS:
            if key in schema:
                in_list = in_list.plus(self._work(schema[key]))
        return in_object, in_list

    def _work(self, schema: Json) -> SchemaWork:
        return self._below[id(schema)] if isinstance(schema, dict) else _NOTHING


_BOOLEAN = SchemaWork(_LOOK, 0.0, 0.0, 1.0)
_UNKNOWN = SchemaWork(_MOST, _MOST, _MOST, _MOST, _MOST)


def _times(schema: SchemaNode) -> int:
    return _ASKED_AGAIN if any(key in schema for key in _UNEVALUATED) else 1


def _options(options: Sequence[Json]) -> float:
    """Return what it takes to find a value among options; strings alone, or integers alone, are hashed."""
    kinds = set(map(type, options))
    if len(options) > 1 and (kinds == {str} or kinds == {int}):
        return _OPTION
    return sum(_FLOAT_OPTION if isinstance(option, float) else _OPTION * _size(option) for option in options)


def _states(places: Mapping[Path, Json]) -> tuple[dict[str, PatternCost], int, list[Problem]]:
    """Count the states of each pattern and the nanoseconds to compile all; report those with too many."""
    states: dict[str, PatternCost] = {}
    problems: list[Problem] = []
    total = count = 0
    for path, pattern in _patterns(places):
        cost = states.get(pattern)
        if cost is None:
            cost = states[pattern] = pattern_cost(pattern)
        total += cost.states
        count += 1
        if cost.states > MAX_PATTERN_STATES:
            message = (
                f"the pattern has about {cost.states:,} states, repetitions multiplied; "
                f"the limit is {MAX_PATTERN_STATES:,}"
            )
            problems.append(Problem(pointer(path), message))
    if total > MAX_STATES and not problems:
        message = f"its patterns have about {total:,} states together; the limit is {MAX_STATES:,}"
        problems.append(Problem("", message))
    return states, count * _COMPILED_PATTERN + total * _COMPILED_STATE, problems


def patterns_of(schema: Json) -> dict[str, Path]:
    """Return the patterns in a schema, each with a place where it stands."""
    places = _places(schema) if isinstance(schema, dict) else {}
    return {pattern: path for path, pattern in _patterns(places)}


def _patterns(places: Mapping[Path, Json]) -> Iterator[tuple[Path, str]]:
    for path, node in places.items():
        if isinstance(node, dict):
            if "pattern" in node:
                yield (*path, "pattern"), node["pattern"]
            for name in node.get("patternProperties", ()):
                yield (*path, "patternProperties", name), name


def _targets(places: Mapping[Path, Json]) -> tuple[dict[str, Json], list[Problem]]:
    """Find the schema that each reference leads to, and report those that lead nowhere."""
    anchors = {
        f"#{node[key]}": node
        for node in places.values()
        if isinstance(node, dict)
        for key in ("$anchor", "$dynamicAnchor")
        if isinstance(node.get(key), str)
    }
    targets: dict[str, Json] = {}
    problems = []
    for path, node in places.items():
        if not isinstance(node, dict):
            continue
        if path and "$id" in node:
            problems.append(Problem(pointer((*path, "$id")), "a schema within a schema may not have an $id"))
        for key in _REFERENCES:
            reference = node.get(key)
            if not isinstance(reference, str):
                continue
            path_to = _path(reference)
            target = anchors.get(reference) if path_to is None else places.get(path_to)
            if target is None:
                message = f"must lead to a schema within this one, as in #/$defs/name, not {reference!r}"
                problems.append(Problem(pointer((*path, key)), message))
            else:
                targets[reference] = target
    return targets, problems


def _size(value: Json) -> int:
    """Count the values in a value."""
    size, open_values = 0, [value]
    while open_values:
        item = open_values.pop()
        size += 1
        if isinstance(item, dict):
            open_values.extend(item.values())
        elif isinstance(item, list):
            open_values.extend(item)
    return size


def _places(schema: SchemaNode) -> dict[Path, Json]:
    """Find every schema in a schema, by its path; one more than ``MAX_SUBSCHEMAS`` at most."""
    places: dict[Path, Json] = {}
    open_places: list[tuple[Path, Json]] = [((), schema)]
    while open_places and len(places) <= MAX_SUBSCHEMAS:
        path, node = open_places.pop()
        places[path] = node
        if not isinstance(node, dict):
            continue
        open_places += [((*path, key), node[key]) for key in _ALONE if key in node]
        open_places += [
            ((*path, key, index), item) for key in _LISTS for index, item in enumerate(node.get(key, ()))
        ]
        open_places += [
            ((*path, key, name), item)
            for key in _NAMED
            for name, item in node.get(key, {}).items()
            # `dependencies` may also list names.
            if isinstance(item, (dict, bool))
        ]
    return places


def _path(reference: str) -> Path | None:
    """Read a reference as a path into the schema; None where it is none."""
    if reference == "#":
        return ()
    if not reference.startswith("#/"):
        return None
    from urllib.parse import unquote

    steps = unquote(reference[2:]).split("/")
    plain = [step.replace("~1", "/").replace("~0", "~") for step in steps]
    # The only numbers on the way are places in a list.
    return tuple(
        int(step) if step.isdecimal() and before in _LISTS else step
        for before, step in zip(["", *plain], plain, strict=False)
    )
