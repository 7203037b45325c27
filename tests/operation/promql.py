"""A parser of the PromQL that our dashboards and alerts use: what it cannot read, a test refuses."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TypeAlias

# These take a range of time, and nothing else does.
OVER_TIME = {"rate", "increase"}
FUNCTIONS = {"histogram_quantile"}
AGGREGATIONS = {"sum", "min", "max", "count", "topk"}
# These have a parameter before the vector.
_WITH_PARAMETER = {"topk", "histogram_quantile"}
_BINARY = {"+", "-", "*", "/", "==", "!=", ">", "<", ">=", "<=", "and", "or", "unless"}

_TOKEN = re.compile(
    r"\s*(?:(?P<duration>\d+(?:ms|[smhdwy]))|(?P<number>\d+(?:\.\d+)?)|(?P<text>\"[^\"\n]*\")"
    r"|(?P<name>[A-Za-z_:][\w:]*)|(?P<variable>\$__\w+)|(?P<sign>=~|!~|==|!=|>=|<=|[-+*/=<>(){}\[\],]))"
)


@dataclass(frozen=True, slots=True)
class Selector:
    """The time series that an expression reads: a metric, and what its labels have to be."""

    metric: str
    matchers: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True, slots=True)
class Grouping:
    """Labels that an aggregation keeps, of the series that it reads."""

    labels: tuple[str, ...]
    selectors: tuple[Selector, ...]


_Token: TypeAlias = tuple[str, str]


class Expression:
    """One expression: ``selectors`` are all that it reads, ``groupings`` the labels that it keeps of them."""

    def __init__(self, text: str) -> None:
        """Read the text; raises ValueError where it is none."""
        self._text = text
        self._tokens = list(self._split())
        self._at = 0
        self.selectors: list[Selector] = []
        self.groupings: list[Grouping] = []
        self._vector()
        if self._at < len(self._tokens):
            raise self._unexpected("the end")

    def _split(self) -> list[_Token]:
        tokens, at, text = [], 0, self._text.rstrip()
        while at < len(text):
            match = _TOKEN.match(text, at)
            if match is None:
                raise ValueError(f"not PromQL at {text[at:]!r}: {text}")
            assert match.lastgroup is not None
            tokens.append((match.lastgroup, match[match.lastgroup]))
            at = match.end()
        return tokens

    def _next(self) -> _Token:
        return self._tokens[self._at] if self._at < len(self._tokens) else ("end", "")

    def _take(self, kind: str, *values: str) -> str:
        found, value = self._next()
        if found != kind or (values and value not in values):
            raise self._unexpected(" or ".join(values) or kind)
        self._at += 1
        return value

    def _is(self, value: str) -> bool:
        return self._next()[1] == value

    def _unexpected(self, wanted: str) -> ValueError:
        return ValueError(f"{self._next()[1]!r} where {wanted} should be: {self._text}")

    def _vector(self) -> None:
        self._operand()
        while self._next()[1] in _BINARY:
            self._at += 1
            self._operand()

    def _operand(self) -> None:
        kind, value = self._next()
        if kind == "number":
            self._at += 1
        elif value == "(":
            self._arguments("")
        elif value in AGGREGATIONS:
            self._at += 1
            self._aggregation(value)
        elif value in OVER_TIME:
            self._at += 1
            self._take("sign", "(")
            self._selector(has_range=True)
            self._take("sign", ")")
        elif value in FUNCTIONS:
            self._at += 1
            self._arguments(value)
        else:
            self._selector(has_range=False)

    def _aggregation(self, name: str) -> None:
        labels: tuple[str, ...] = ()
        if self._is("by"):
            self._at += 1
            labels = self._labels()
        selectors = self._arguments(name)
        self.groupings.append(Grouping(labels, tuple(selectors)))

    def _arguments(self, function: str) -> list[Selector]:
        first = len(self.selectors)
        self._take("sign", "(")
        if function in _WITH_PARAMETER:
            self._take("number")
            self._take("sign", ",")
        self._vector()
        self._take("sign", ")")
        return self.selectors[first:]

    def _labels(self) -> tuple[str, ...]:
        self._take("sign", "(")
        labels = [self._take("name")]
        while self._is(","):
            self._at += 1
            labels.append(self._take("name"))
        self._take("sign", ")")
        return tuple(labels)

    def _selector(self, *, has_range: bool) -> None:
        metric, matchers = self._take("name"), []
        if self._is("("):
            raise ValueError(f"{metric} is no function that is known here: {self._text}")
        if self._is("{"):
            self._at += 1
            while not self._is("}"):
                label, sign = self._take("name"), self._take("sign", "=", "!=", "=~", "!~")
                matchers.append((label, sign, self._take("text")[1:-1]))
                if not self._is("}"):
                    self._take("sign", ",")
            self._at += 1
        if has_range:
            self._take("sign", "[")
            self._take("variable" if self._next()[0] == "variable" else "duration")
            self._take("sign", "]")
        if self._is("offset"):
            self._at += 1
            self._take("duration")
        self.selectors.append(Selector(metric, tuple(matchers)))
