"""The metrics and the service level over HTTP."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from fastapi import FastAPI, Response

from paperwork import exposition, metrics

app = FastAPI(title="Documents, measured")


@app.get("/sla")
def sla(hours: float = 24.0) -> dict[str, Any]:
    """Return whether the service level was kept."""
    level = metrics.check_sla(hours=hours)
    return {**asdict(level), "kept": level.is_kept}


@app.get("/metrics")
def prometheus() -> Response:
    """Return the metrics for Prometheus."""
    return Response(exposition.as_text(), media_type="text/plain; version=0.0.4; charset=utf-8")
