"""Inputs drawn at random, of the kinds that can be costly, and changed at random to be costlier."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from weft.expressions.filters import FILTERS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random

_ATOMS = [
    "a",
    "x",
    "[ab]",
    "[a-z0-9]",
    ".",
    r"\d",
    r"\w",
    r"\s",
    r"\p{L}",
    "[^a]",
    "(?:a|b)",
    "ab",
    "é",
    r"\S",
]
_AROUND = ["^", "^(?=a)", "(?!b)", "(?<=a)", ""]
_ALPHABETS = ["a", "ab", "x", "0", "aé", "ab01-", "{", ","]
# Slow to read for some readers: beyond the tables of powers of ten, or half-way between two floats.
_COSTLY_NUMBERS = [1e300, 5e-324, 2.2250738585072011e-308, 1.7976931348623157e308, 1e23, 0.1 + 0.2]
# Of a value, and of a schema, about.
ROOM = 16 * 1024
_COUNTED = re.compile(r"\d+")


class Drawing:
    """Draws schemas, values, expressions and documents from one seed."""

    def __init__(self, random: Random) -> None:
        self.random = random

    def count(self, most: int) -> int:
        """Draw a number that is small more often than large."""
        return int(self.random.random() ** 3 * most) + 1

    def one_of(self, options: Sequence[Callable[[], Any]]) -> Any:
        return self.random.choice(options)()

    # -- schemas and values ----------------------------------------------------------------------------

    def pattern(self, depth: int = 3) -> str:
        random = self.random
        if depth == 0 or random.random() < 0.3:
            return random.choice(_ATOMS)
        inner = "".join(self.pattern(depth - 1) for _ in range(random.randint(1, 3)))
        shape = random.choice(["({0}){1}", "(?:{0}|{2}){1}", "{0}"])
        low = self.count(60)
        times = random.choice(
            ["*", "+", "?", f"{{{low}}}", f"{{0,{low}}}", f"{{{low},}}", f"{{1,{self.count(300)}}}"]
        )
        text = shape.format(inner, times, self.pattern(depth - 1))
        return random.choice(_AROUND) + text + random.choice(["$", "", "x"]) if depth == 3 else text

    def schema(self, depth: int = 3, room: int = ROOM) -> Any:
        """Draw a schema without definitions, of about ``room`` bytes at most; ``whole_schema`` adds those."""
        random = self.random
        if depth == 0 or random.random() < 0.2:
            return self._leaf(room)
        count = self.count(min(200 if random.random() < 0.3 else 12, room // 50 + 1))
        one = self.schema(depth - 1, room // count)
        # The same many times, or as many different ones.
        many = [one] * count
        if count <= 12:
            many = [one, *(self.schema(depth - 1, room // count) for _ in range(count - 1))]
        return self.one_of(
            [
                lambda: {random.choice(["allOf", "anyOf", "oneOf"]): many},
                lambda: {"not": one},
                lambda: {"if": one, "then": many[-1], "else": self._leaf(room)},
                lambda: {"properties": {f"k{i}": item for i, item in enumerate(many)}},
                lambda: {"patternProperties": {self.pattern(2): item for item in many}},
                lambda: {"additionalProperties": one, "propertyNames": self._leaf(room)},
                lambda: {random.choice(["items", "contains", "unevaluatedItems"]): one},
                lambda: {"prefixItems": many, "items": one, "uniqueItems": True},
                lambda: {"anyOf": many, random.choice(["unevaluatedProperties", "unevaluatedItems"]): one},
                lambda: {"dependentSchemas": {f"k{i}": item for i, item in enumerate(many)}},
                lambda: {"$ref": random.choice(["#", "#/$defs/d0", "#/$defs/d1"]), **self._leaf(room)},
            ]
        )

    def whole_schema(self) -> Any:
        return {**self.schema(), "$defs": {"d0": self.schema(2, ROOM // 4), "d1": self.schema(2, ROOM // 4)}}

    def _leaf(self, room: int) -> Any:
        random = self.random
        n = self.count(min(400, room // 8 + 1))
        return self.one_of(
            [
                lambda: {"pattern": self.pattern()},
                lambda: {"const": random.choice([n, n + 0.5, "a" * n, [n] * 5, {"a": n}])},
                lambda: {
                    "enum": [random.choice([i, i + 0.5, f"v{i}", [i], {"a": i}, None]) for i in range(n)]
                },
                lambda: {"enum": [i + 0.5 for i in range(n)]},
                lambda: {"type": random.choice(["string", "integer", "object", ["array", "null"]])},
                lambda: {"minLength": n, "maxLength": n + 5},
                lambda: {"multipleOf": random.choice([3, 0.1, 1e-9, 1e300])},
                lambda: {"minimum": -n, "exclusiveMaximum": n},
                lambda: {"required": [f"k{i}" for i in range(n)]},
                lambda: {"dependentRequired": {"k0": [f"k{i}" for i in range(n)]}},
                lambda: {"uniqueItems": True, "minItems": n},
                lambda: {"format": random.choice(["email", "uri", "regex", "date-time", "idn-hostname"])},
            ]
        )

    def value(self, depth: int = 3, room: int = ROOM) -> Any:
        """Draw a value of about ``room`` bytes at most."""
        random = self.random
        if depth == 0 or random.random() < 0.4:
            n = self.count(min(3000, room + 1))
            alphabet = random.choice(_ALPHABETS)
            return self.one_of(
                [
                    lambda: alphabet * n,
                    lambda: "".join(random.choice(alphabet) for _ in range(n)),
                    lambda: random.choice([n, n + 0.5, -n, 10**40, 1e300, True, None]),
                    lambda: [random.choice(_COSTLY_NUMBERS)] * min(n, room // 24 + 1),
                ]
            )
        count = self.count(min(3000, room // 8 + 1))
        inner = self.value(depth - 1, room // count)
        return self.one_of(
            [
                lambda: [inner] * count,
                lambda: [self.value(depth - 1, room // 12) for _ in range(self.count(12))],
                lambda: {f"k{i}": inner for i in range(count)},
                lambda: self._deep(inner),
            ]
        )

    def _deep(self, value: Any) -> Any:
        for _ in range(self.count(60)):
            value = {"k0": value} if self.random.random() < 0.5 else [value]
        return value

    # -- expressions -----------------------------------------------------------------------------------

    def expression(self, depth: int = 4) -> Any:
        random = self.random
        if depth == 0 or random.random() < 0.2:
            return random.choice(
                ["input", "input.k0", "input[0]", "a.k1", "1.5", f"{self.count(10**6)}", "'ab'", "[]"]
            )
        left, right = self.expression(depth - 1), self.expression(depth - 1)
        return self.one_of(
            [
                lambda: f"({left} {random.choice(['+', '*', '~', '-', '/', '//', '%', '**'])} {right})",
                lambda: f"({left} {random.choice(['==', '<', 'in', 'and', 'or', 'not in'])} {right})",
                lambda: f"({left} | {random.choice(sorted(FILTERS))})",
                lambda: f"({left} | replace({right}, {self.expression(0)}))",
                lambda: f"({left} | join({right}))",
                lambda: f"({left} if {right} else {self.expression(depth - 1)})",
                lambda: "[" + ", ".join([left] * self.count(40)) + "]",
                lambda: f"{left}[{right}]",
                lambda: f"({left} " + f"~ {right} " * self.count(60) + ")",
            ]
        )

    # -- documents -------------------------------------------------------------------------------------

    def yaml(self) -> Any:
        """Draw a text that may be YAML."""
        random = self.random
        n = self.count(3000)
        return self.one_of(
            [
                lambda: "a: &a [x, x]\nb: &b [*a, *a]\nc: [" + "*b, " * n + "]\n",
                lambda: "[" * min(n, 150) + "]" * min(n, 150),
                lambda: "{a: " * min(n, 150) + "}" * min(n, 150),
                lambda: "".join(
                    f"k{i}: {self.random.choice(['1', 'x', '1e5', '~', '0x1F'])}\n" for i in range(n)
                ),
                lambda: "- " * min(n, 90) + "x\n",
                lambda: "? " * min(n, 90) + "x\n",
                lambda: "a: |\n" + "  x\n" * n,
                lambda: 'a: "' + random.choice(["\\x41", "\\n", "é", "a\n\n "]) * n + '"',
                lambda: "a: " + "x " * n + "\n",
                lambda: "# " + "x" * n + "\na: 1\n" + "#\n" * n,
                lambda: "- !!int 1" * n,
                lambda: "- {" + "a: 1, " * n + "}",
            ]
        )

    # -- changes ---------------------------------------------------------------------------------------

    def changed(self, value: Any) -> Any:
        """Change one place of a value at random; the value itself stays as it was."""
        random = self.random
        if isinstance(value, str):
            if "{" in value and random.random() < 0.7:
                return _COUNTED.sub(
                    lambda found: str(max(1, self.count(2 * int(found[0]) + 2))), value, count=1
                )
            return random.choice([value * 2, value[: len(value) // 2], value + random.choice(_ATOMS)])
        if isinstance(value, list) and value:
            index = random.randrange(len(value))
            change = random.random()
            if change < 0.3:
                return value + value[: max(1, len(value) // 2)]
            if change < 0.5:
                return value[: len(value) // 2 + 1]
            return [*value[:index], self.changed(value[index]), *value[index + 1 :]]
        if isinstance(value, dict) and value:
            name = random.choice(sorted(value))
            return {**value, name: self.changed(value[name])}
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return value * 2 + 1
        return value
