"""How much work a schema may make of a value, counted before the work is begun.

A schema that refers to itself from two branches asks every branch of every level: ``anyOf`` with two such
branches looks at a value that is twenty levels deep a million times. No time limit helps, for the library
does not stop half-way. So the looks are counted first, each branch as if it were taken. Counting is cheap
where looking is not: what one subschema costs at one place is the same however often it is asked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from weft.core.payload import Json, pointer
from weft.errors import Problem

SchemaNode: TypeAlias = dict[str, Json]

# Where other schemas stand in a schema: alone, in a list, by name.
_ALONE_HERE = ("not", "if", "then", "else")
_ALONE_IN_OBJECTS = ("additionalProperties", "unevaluatedProperties")
_ALONE_IN_LISTS = ("items", "contains", "unevaluatedItems")
_ALONE = (*_ALONE_HERE, *_ALONE_IN_OBJECTS, *_ALONE_IN_LISTS, "propertyNames", "contentSchema")
_LISTS = ("allOf", "anyOf", "oneOf", "prefixItems")
_NAMED = ("properties", "patternProperties", "dependentSchemas", "$defs", "definitions")
_REFERENCES = ("$ref", "$dynamicRef")

# A schema of the usual kind looks at a value a few times.
_LOOKS_PER_VALUE = 50
_LOOKS_AT_LEAST = 100_000


@dataclass(frozen=True, slots=True)
class Cost:
    """What is needed to count: the schema, and what its references mean."""

    schema: SchemaNode
    targets: dict[str, Json]

    def is_bounded(self, value: Json) -> bool:
        """True if the cost of checking a value against the schema stays in proportion to the value."""
        count = _Count(self.targets)
        try:
            looks = count.looks(self.schema, value)
        except RecursionError:
            return False
        return looks <= _LOOKS_AT_LEAST or looks <= _LOOKS_PER_VALUE * _size(value)


def cost_of(schema: Json) -> tuple[Cost | None, list[Problem]]:
    """Make a schema ready to be counted; None where it has no references, and so needs no counting.

    A reference must lead to a place in the same schema; where it does not, that is a problem.
    """
    if not isinstance(schema, dict):
        return None, []
    places = _places(schema)
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
    return (Cost(schema, targets) if targets else None), problems


class _Count:
    def __init__(self, targets: dict[str, Json]) -> None:
        self._targets = targets
        # By subschema and value; None while it is being counted: a reference in a circle asks nothing new.
        self._known: dict[tuple[int, int], int | None] = {}

    def looks(self, schema: Json, value: Json) -> int:
        if not isinstance(schema, dict):
            return 1
        key = (id(schema), id(value))
        if key in self._known:
            return self._known[key] or 0
        self._known[key] = None
        looks = 1 + self._here(schema, value) + self._below(schema, value)
        self._known[key] = looks
        return looks

    def _here(self, schema: SchemaNode, value: Json) -> int:
        """Count what other subschemas ask of the same value."""
        others = [schema[key] for key in _ALONE_HERE if key in schema]
        others += [other for key in ("allOf", "anyOf", "oneOf") for other in schema.get(key, ())]
        others += schema.get("dependentSchemas", {}).values()
        others += [self._targets[schema[key]] for key in _REFERENCES if key in schema]
        return sum(self.looks(other, value) for other in others)

    def _below(self, schema: SchemaNode, value: Json) -> int:
        """Count what subschemas ask of the values in this one."""
        if isinstance(value, dict):
            named = schema.get("properties", {})
            looks = sum(self.looks(named[name], item) for name, item in value.items() if name in named)
            every = [*schema.get("patternProperties", {}).values()]
            every += [schema[key] for key in _ALONE_IN_OBJECTS if key in schema]
            looks += sum(self.looks(other, item) for other in every for item in value.values())
            if "propertyNames" in schema:
                looks += sum(self.looks(schema["propertyNames"], name) for name in value)
            return looks
        if isinstance(value, list):
            looks = sum(map(self.looks, schema.get("prefixItems", ()), value))
            every = [schema[key] for key in _ALONE_IN_LISTS if key in schema]
            return looks + sum(self.looks(other, item) for other in every for item in value)
        return 0


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


def _places(schema: SchemaNode) -> dict[tuple[str | int, ...], Json]:
    """Find every schema in a schema, by its path."""
    places: dict[tuple[str | int, ...], Json] = {}
    open_places: list[tuple[tuple[str | int, ...], Json]] = [((), schema)]
    while open_places:
        path, node = open_places.pop()
        places[path] = node
        if not isinstance(node, dict):
            continue
        open_places += [((*path, key), node[key]) for key in _ALONE if key in node]
        open_places += [
            ((*path, key, index), item) for key in _LISTS for index, item in enumerate(node.get(key, ()))
        ]
        open_places += [
            ((*path, key, name), item) for key in _NAMED for name, item in node.get(key, {}).items()
        ]
    return places


def _path(reference: str) -> tuple[str | int, ...] | None:
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
