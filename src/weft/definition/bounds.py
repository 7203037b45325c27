"""Limits on the size of a definition, a payload and a batch."""

from __future__ import annotations

from dataclasses import dataclass

KIB = 1024
MIB = 1024 * KIB


@dataclass(frozen=True, slots=True)
class Bounds:
    """The limits that keep one user's document from costing everybody else: settings of the same names.

    What the evaluation of an expression may cost is in ``expressions/budget.py``.
    """

    max_body_bytes: int = 32 * MIB
    max_nodes: int = 100_000
    max_edges: int = 500_000
    max_depth: int = 100
    max_template_bytes: int = 64 * KIB
    max_payload_bytes: int = 16 * MIB
    max_batch: int = 50_000


DEFAULT_BOUNDS = Bounds()
