"""A measured number beside what it should be."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

LOW, HIGH = "at most", "at least"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    bound: str
    value: float

    def met_by(self, value: float) -> bool:
        return value <= self.value if self.bound == LOW else value >= self.value

    def __str__(self) -> str:
        return f"{'≤' if self.bound == LOW else '≥'} {self.value:,g}"


def at_most(value: float) -> Target:
    return Target(bound=LOW, value=value)


def at_least(value: float) -> Target:
    return Target(bound=HIGH, value=value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    workload: str
    what: str
    value: float
    unit: str
    # A figure without a target is there for comparison.
    target: Target | None = None

    @property
    def verdict(self) -> str:
        if self.target is None:
            return ""
        return "ok" if self.target.met_by(self.value) else "missed"

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "verdict": self.verdict or None}

    def __str__(self) -> str:
        number = f"{self.value:,.0f}" if abs(self.value) >= 1000 else f"{self.value:,.3g}"
        target = "" if self.target is None else str(self.target)
        line = f"{self.workload:<6} {self.what:<46} {number:>10} {self.unit:<9} {target:>10} {self.verdict}"
        return line.rstrip()


def quantile(values: Iterable[float], share: float) -> float:
    """Return the value that so large a share of all do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
