"""The finding of one check of ``weft doctor``, with its remedy."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

START_A_WORKER = "start one: `weft worker`, or Celery's where WEFT_TRANSPORT is celery"


class Health(StrEnum):
    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    check: str
    health: Health
    message: str
    advice: str | None = None
