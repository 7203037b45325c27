"""Pages for people: where one is, and the API's documentation. Nothing is fetched from anywhere else."""

from __future__ import annotations

from functools import cache
from html import escape
from pathlib import Path

import msgspec
from fastapi import APIRouter, Request, Response
from starlette.responses import FileResponse, HTMLResponse

from weft.api.gateway import CONTENT_SECURITY_POLICY
from weft.api.problem import CODES, ProblemError
from weft.api.schema import answers

router = APIRouter(tags=["pages"])

_FOLDER = Path(__file__).parent / "pages"
# The npm package swagger-ui-dist, unchanged, without its source maps and its other builds. The version is in
# the path, so that a browser may keep the files for a year and still gets those of the next version.
_SWAGGER_UI = "swagger-ui-5.34.1"
_SWAGGER_UI_FILES = {
    "LICENSE": "text/plain",
    "NOTICE": "text/plain",
    "swagger-ui-bundle.js": "text/javascript",
    "swagger-ui-bundle.js.LICENSE.txt": "text/plain",
    "swagger-ui.css": "text/css",
}
# Swagger UI's stylesheet has its icons as data: URLs. It needs no inline style and no inline script.
_DOCS_HEADERS = {"Content-Security-Policy": CONTENT_SECURITY_POLICY + "; img-src 'self' data:"}


@cache
def _file(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8")


@router.get("/", operation_id="getStartPage", response_class=HTMLResponse)
async def start(request: Request) -> HTMLResponse:
    """Show what runs here, and where to look next."""
    return HTMLResponse(_file("start.html").replace("VERSION", escape(request.app.version)))


@router.get("/docs", operation_id="getDocumentation", response_class=HTMLResponse)
async def docs() -> HTMLResponse:
    """Show this document as a page, with a field for the key and a form for each call."""
    problems = "\n".join(
        f'<tr id="problem-{code}"><td>{code}</td><td>{status}</td><td>{escape(title)}</td></tr>'
        for code, (status, title) in CODES.items()
    )
    return HTMLResponse(_file("docs.html").replace("PROBLEMS", problems), headers=_DOCS_HEADERS)


@router.get("/docs/page.css", include_in_schema=False)
async def style() -> Response:
    return Response(_file("page.css"), media_type="text/css")


@router.get("/docs/docs.js", include_in_schema=False)
async def script() -> Response:
    return Response(_file("docs.js"), media_type="text/javascript")


@router.get(f"/docs/{_SWAGGER_UI}/{{name}}", include_in_schema=False)
async def swagger_ui(name: str) -> FileResponse:
    """Send a file of Swagger UI from the disk, piece by piece: it is large, and few ask for it."""
    if name not in _SWAGGER_UI_FILES:
        raise ProblemError(404, "not_found", f"Swagger UI has no file {name[:200]!r} here")
    return FileResponse(
        _FOLDER / _SWAGGER_UI / name,
        media_type=_SWAGGER_UI_FILES[name],
        headers={"Cache-Control": "public, max-age=31536000, immutable"},
    )


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
