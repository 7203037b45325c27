"""The error that an invariant raises."""

from __future__ import annotations


class Violation(AssertionError):  # noqa: N818 - it is what it is called
    """An invariant does not hold."""
