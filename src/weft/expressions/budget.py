"""Limits the work and the memory of one evaluation.

The language has no loops, so an expression takes no more turns than it has tokens; what can run away is a
single operation on large data. Each such operation says here what it will cost *before* it runs: a step per
element it touches, a step per 32 characters it reads or makes, and the length of a text it is about to make.
A million steps are some tenths of a second.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.errors import EvaluationError

if TYPE_CHECKING:
    from weft.core.payload import Json

MAX_STEPS = 1_000_000
MAX_TEXT = 16 * 1024 * 1024
MAX_INTEGER_BITS = 14_280  # just under 4,300 digits, the most that Python converts to and from text

_CHARACTERS_PER_STEP_LOG2 = 5


class LongEvaluationError(Exception):
    """An evaluation takes more steps than its caller waits for: evaluate again where it holds up nobody."""


class Allowance:
    """Steps that several evaluations may take together where they hold up others, such as an event loop."""

    __slots__ = ("steps",)

    def __init__(self, steps: int) -> None:
        self.steps = steps

    def spend(self, steps: int) -> None:
        """Take these steps, or raise LongEvaluationError: not one of them has been taken yet."""
        self.steps -= steps
        if self.steps < 0:
            raise LongEvaluationError


class Budget:
    """The remaining budget of one evaluation, or of filling one template value.

    ``multiplied`` says that a list or an object was built: it may hold the same large value many times over,
    so that few allocations make a tree without end. Before such a tree is written out, its size is counted
    (``spend_tree``); that of plain data is not, it was checked where the data entered.

    ``allowance``: what the caller waits for, which is less than what an evaluation may take.
    """

    __slots__ = ("allowance", "max_text", "multiplied", "steps")

    def __init__(self, max_text: int = MAX_TEXT, allowance: Allowance | None = None) -> None:
        self.steps = MAX_STEPS
        self.allowance = allowance
        self.max_text = max_text
        self.multiplied = False

    def spend(self, steps: int) -> None:
        self.steps -= steps
        if self.steps < 0:
            raise EvaluationError(f"this takes more than {MAX_STEPS:,} steps; the data is too large for it")
        if self.allowance is not None:
            self.allowance.spend(steps)

    def spend_text(self, characters: int) -> None:
        """Pay for reading a text of this length."""
        if characters >> _CHARACTERS_PER_STEP_LOG2:
            self.spend(characters >> _CHARACTERS_PER_STEP_LOG2)

    def make_text(self, characters: int) -> None:
        """Pay for a text that is about to be made."""
        if characters > self.max_text:
            raise EvaluationError(
                f"a text of {amount(characters)} characters would be made; the most is {self.max_text:,}"
            )
        self.spend_text(characters)

    def make_list(self, elements: int) -> None:
        """Pay for a list or object that is about to be built."""
        self.spend(elements)
        self.multiplied = True

    def spend_tree(self, value: Json) -> None:
        """Pay for writing a built value out as JSON, with all the repetitions of its parts."""
        self.make_text(self._written(value, {}))

    def _written(self, value: Json, known: dict[int, int]) -> int:
        """The least number of characters that a value takes; a part that repeats is looked at once."""
        if isinstance(value, str):
            return len(value)
        if not isinstance(value, (list, dict)):
            return 2
        characters = known.get(id(value))
        if characters is None:
            self.spend(len(value))
            characters = 2
            if isinstance(value, dict):
                characters += sum(map(len, value))
            for item in value.values() if isinstance(value, dict) else value:
                characters += self._written(item, known)
            known[id(value)] = characters
        return characters


def amount(number: int) -> str:
    """A whole number for a message: one with thousands of digits would drown it."""
    return f"{number:,}" if number.bit_length() < 64 else "over 10^19"
