"""``celery -A tests.celery.crashing worker``: weft's app, with the flaw that its environment names."""

from __future__ import annotations

from tests.fleet.crashing import FlawedFleet

from weft.celery import app, process

__all__ = ["app"]

process.Fleet = FlawedFleet  # type: ignore[attr-defined]
