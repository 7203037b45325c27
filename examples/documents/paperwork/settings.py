"""Where the pipeline reads and writes: from the environment, so that every process finds the same."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

PREFIX = "DOCUMENTS_"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    # Documents are read from here, and from nowhere else: whoever starts an execution names a path.
    inbox: Path
    # What comes of them: ``parquet/`` and ``json/``, a file for each document.
    dataset: Path
    # The cache of extractions, what reviewers decided, and the measurements.
    database: Path
    # The service level: this share of the documents, within so many seconds.
    sla_seconds: float
    sla_share: float


def settings() -> Settings:
    return Settings(
        inbox=Path(_get("INBOX", "inbox")),
        dataset=Path(_get("DATASET", "dataset")),
        database=_database(_get("DATABASE_URL", "sqlite:///documents.db")),
        sla_seconds=float(_get("SLA_SECONDS", "60")),
        sla_share=float(_get("SLA_SHARE", "0.95")),
    )


def _get(name: str, default: str) -> str:
    return os.environ.get(PREFIX + name) or default


def _database(url: str) -> Path:
    scheme, separator, path = url.partition(":///")
    if scheme != "sqlite" or not separator or not path:
        raise ValueError(
            f"{PREFIX}DATABASE_URL needs sqlite:///PATH (four slashes: from the root), not {url}"
        )
    return Path(path)
