"""Computes the size of a compiled regular expression without compiling it.

A counted repetition multiplies what it repeats: ``(a{1,100}){1,100}`` has twenty characters and ten thousand
states, and each character of a text may be held against each state. The count is in states of one ASCII
character; a class is larger, and a class of Unicode much larger. It is an upper bound in practice and not by
proof: a pattern that is small by this count and slow all the same still runs where it can be killed.
"""

from __future__ import annotations

from dataclasses import dataclass

# What one piece of a pattern counts, in states of one ASCII character.
_CLASS = 4
_NEGATED = 12
_UNICODE_CLASS = 600
_WIDE_CHARACTER = 4
# Case-insensitive matching doubles letters, and more than doubles some classes.
_FOLDED = 4

_MOST = 10**12


@dataclass(frozen=True, slots=True)
class PatternCost:
    states: int
    # The pattern looks around or back: matched by backtracking, whose steps are bounded and not few.
    backtracks: bool


def pattern_cost(pattern: str) -> PatternCost:
    """Count the states of a pattern; one that does not parse gets a count all the same."""
    reading = _Reading(pattern)
    states = reading.states()
    if reading.folds:
        states *= _FOLDED
    return PatternCost(min(states, _MOST), reading.backtracks)


class _Reading:
    """One walk over a pattern, from left to right, with the groups that are open."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0
        self.backtracks = False
        self.folds = False

    def states(self) -> int:
        open_groups: list[int] = []
        total = 1
        last = 0  # what a quantifier here would repeat
        while self._at < len(self._pattern):
            character = self._pattern[self._at]
            self._at += 1
            if character == "(":
                self._read_group_start()
                open_groups.append(total)
                total, last = 1, 0
                continue
            if character == ")":
                last = total
                total = (open_groups.pop() if open_groups else 0) + last
                continue
            if character in "*+?{":
                more = self._repetitions(character)
                if more is not None:
                    total = min(total + last * (more - 1) + 1, _MOST)
                    last = min(last * more + 1, _MOST)
                    continue
            last = self._atom(character)
            total += last
        return sum(open_groups, total)

    def _read_group_start(self) -> None:
        rest = self._pattern[self._at : self._at + 24]
        if not rest.startswith("?"):
            return
        if rest[1:2] in ("=", "!", ">", "(") or rest[1:3] in ("<=", "<!"):
            self.backtracks = True
        flags = rest[1:].partition(":")[0].partition(")")[0]
        if "i" in flags and flags.replace("-", "").isalpha():
            self.folds = True

    def _repetitions(self, character: str) -> int | None:
        """Return how many copies a quantifier makes; None where a brace is only a brace."""
        if character == "{":
            end = self._pattern.find("}", self._at, self._at + 24)
            low, comma, high = self._pattern[self._at : end].partition(",") if end >= 0 else ("x", "", "")
            numbers = [number.strip() for number in (low, high) if number.strip()]
            if not numbers or not all(number.isdecimal() for number in numbers):
                return None
            self._at = end + 1
            copies = max(map(int, numbers)) + (1 if comma and not high.strip() else 0)
        else:
            copies = 2 if character == "+" else 1
        if self._pattern[self._at : self._at + 1] == "+":
            self.backtracks = True  # possessive
        return max(copies, 1)

    def _atom(self, character: str) -> int:
        if character == ".":
            return _NEGATED
        if character == "[":
            return self._class()
        if character == "\\":
            return self._escape()
        return 1 if character.isascii() else _WIDE_CHARACTER

    def _class(self) -> int:
        pattern, start = self._pattern, self._at
        if pattern[self._at : self._at + 1] == "^":
            self._at += 1
        states = _CLASS if self._at == start else _NEGATED
        depth, first = 1, True
        while self._at < len(pattern) and depth:
            character = pattern[self._at]
            self._at += 1
            if character == "\\":
                states += self._escape()
            elif character == "[":
                depth += 1
                states += _NEGATED
            elif character == "]" and not first:
                depth -= 1
            elif not character.isascii():
                states += _WIDE_CHARACTER
            first = False
        return states

    def _escape(self) -> int:
        character = self._pattern[self._at : self._at + 1]
        self._at += 1
        if character in ("p", "P"):
            if self._pattern[self._at : self._at + 1] == "{":
                end = self._pattern.find("}", self._at)
                self._at = end + 1 if end >= 0 else len(self._pattern)
            return _UNICODE_CLASS
        if character.isdecimal() or character in ("k", "K", "G"):
            self.backtracks = True
        return _NEGATED if character in ("W", "D", "S", "w", "s") else _CLASS
