"""Pages for people: where one is, and the API's documentation. Nothing is fetched from anywhere else."""

from __future__ import annotations

from functools import cache
from html import escape
from pathlib import Path

import msgspec
from fastapi import APIRouter, Request, Response
from starlette.responses import HTMLResponse

from weft.api.schema import answers

router = APIRouter(tags=["pages"])

_FOLDER = Path(__file__).parent / "pages"


@cache
def _file(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8")


@router.get("/", operation_id="getStartPage", response_class=HTMLResponse)
async def start(request: Request) -> HTMLResponse:
    """Show what runs here, and where to look next."""
    return HTMLResponse(_file("start.html").replace("VERSION", escape(request.app.version)))


@router.get("/docs", operation_id="getDocumentation", response_class=HTMLResponse)
async def docs() -> HTMLResponse:
    """Show this document as a page."""
    return HTMLResponse(_file("docs.html"))


@router.get("/docs/page.css", include_in_schema=False)
async def style() -> Response:
    return Response(_file("page.css"), media_type="text/css")


@router.get("/docs/page.js", include_in_schema=False)
async def script() -> Response:
    return Response(_file("page.js"), media_type="text/javascript")


@router.get(
    "/openapi.json",
    operation_id="getOpenApi",
    responses=answers(200, None, "this document"),
)
async def document(request: Request) -> Response:
    """Describe every route, as an OpenAPI document."""
    return Response(_written(request), media_type="application/json")


def _written(request: Request) -> bytes:
    """Write the document once: it is the same for everybody."""
    written: bytes | None = getattr(request.app.state, "openapi", None)
    if written is None:
        written = request.app.state.openapi = msgspec.json.encode(request.app.openapi())
    return written
