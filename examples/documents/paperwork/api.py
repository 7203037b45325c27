"""The review queue, the metrics and the service level over HTTP."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any, Literal

from fastapi import FastAPI, Query, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from paperwork import exposition, metrics, review

StateName = Literal["open", "approved", "corrected", "rejected", "all"]


class Decision(BaseModel):
    model_config = ConfigDict(extra="forbid")

    by: str = Field(min_length=1, description="who decides")
    note: str = ""


class Correction(Decision):
    fields: dict[str, str | None] = Field(min_length=1, description="the right values, by field")


app = FastAPI(title="Review of documents")


@app.get("/reviews")
def list_reviews(
    state: StateName = "open", limit: Annotated[int, Query(ge=1, le=500)] = 50
) -> list[dict[str, Any]]:
    """List items, those that wait longest first."""
    found = review.listed(state=None if state == "all" else state, limit=limit)
    return [asdict(item) for item in found]


@app.get("/reviews/{item_id}")
def show_review(item_id: int) -> dict[str, Any]:
    """Show an item: its fields with their confidence, and who decided what, and when."""
    return asdict(review.show(item_id))


@app.post("/reviews/{item_id}/approve")
def approve(item_id: int, decision: Decision) -> dict[str, Any]:
    """Approve all fields."""
    return asdict(review.approve(item_id, by=decision.by, note=decision.note))


@app.post("/reviews/{item_id}/correct")
def correct(item_id: int, correction: Correction) -> dict[str, Any]:
    """Correct fields; they are locked from then on."""
    return asdict(review.correct(item_id, correction.fields, by=correction.by, note=correction.note))


@app.post("/reviews/{item_id}/reject")
def reject(item_id: int, decision: Decision) -> dict[str, Any]:
    """Reject the whole document: nothing of it can be used."""
    return asdict(review.reject(item_id, by=decision.by, note=decision.note))


@app.get("/sla")
def sla(hours: float = 24.0) -> dict[str, Any]:
    """Return whether the service level was kept."""
    level = metrics.check_sla(hours=hours)
    return {**asdict(level), "kept": level.is_kept}


@app.get("/metrics")
def prometheus() -> Response:
    """Return the metrics for Prometheus."""
    return Response(exposition.as_text(), media_type="text/plain; version=0.0.4; charset=utf-8")


@app.exception_handler(review.ReviewError)
def refuse(_: Request, error: Exception) -> JSONResponse:
    status = 404 if isinstance(error, review.NoSuchItemError) else 422
    return JSONResponse({"detail": str(error)}, status_code=status)
