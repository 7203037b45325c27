"""The API's documentation as a page. Nothing is fetched from anywhere else.

The page is the same for everybody and holds no data, so a browser opens it without a key. Where the server
has keys, the page has a form for one, and what it calls is called with it.
"""

from __future__ import annotations

from functools import cache
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from fastapi import APIRouter, Request, Response
from starlette.responses import FileResponse, HTMLResponse

from weft.api.auth import open_to_all
from weft.api.gateway import CONTENT_SECURITY_POLICY
from weft.api.problem import CODES
from weft.api.schema import answers

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from weft.api.service import Service

router = APIRouter(tags=["pages"])

_FOLDER = Path(__file__).parent / "pages"
_OWN_FILES = {
    "docs.js": "text/javascript",
    "key.js": "text/javascript",
}
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


@router.get("/docs", operation_id="getDocumentation", response_class=HTMLResponse)
@open_to_all
async def docs(request: Request) -> HTMLResponse:
    """Show this document as a page, with a field for the key and a form for each call."""
    problems = "\n".join(
        f'<tr id="problem-{code}"><td>{code}</td><td>{status}</td><td>{escape(title)}</td></tr>'
        for code, (status, title) in CODES.items()
    )
    page = _file("docs.html").replace("PROBLEMS", problems)
    return HTMLResponse(_with_key_form(page, request), headers=_DOCS_HEADERS)


def _with_key_form(page: str, request: Request) -> str:
    """Put the form for an API key in its place; a server without keys asks for none."""
    service: Service = request.app.state.service
    return page.replace("KEY_FORM", _file("key.html") if service.settings.api_keys else "")


def _own_file(name: str, media_type: str) -> Callable[[], Awaitable[Response]]:
    async def own_file() -> Response:
        return Response(_file(name), media_type=media_type)

    return own_file


def _swagger_ui_file(name: str, media_type: str) -> Callable[[], Awaitable[Response]]:
    async def swagger_ui_file() -> Response:
        # From the disk, piece by piece: it is large, and few ask for it.
        return FileResponse(
            _FOLDER / _SWAGGER_UI / name,
            media_type=media_type,
            headers={"Cache-Control": "public, max-age=31536000, immutable"},
        )

    return swagger_ui_file


# A route for each file, so that what needs no key is a list of paths and not all that begins like one.
for _name, _type in _OWN_FILES.items():
    router.get(f"/docs/{_name}", include_in_schema=False)(open_to_all(_own_file(_name, _type)))
for _name, _type in _SWAGGER_UI_FILES.items():
    router.get(f"/docs/{_SWAGGER_UI}/{_name}", include_in_schema=False)(
        open_to_all(_swagger_ui_file(_name, _type))
    )


@router.get(
    "/openapi.json",
    operation_id="getOpenApi",
    responses=answers(200, None, "this document"),
)
@open_to_all
async def document(request: Request) -> Response:
    """Describe every route, as an OpenAPI document."""
    return Response(_written(request), media_type="application/json")


def _written(request: Request) -> bytes:
    """Write the document once: it is the same for everybody."""
    written: bytes | None = getattr(request.app.state, "openapi", None)
    if written is None:
        written = request.app.state.openapi = msgspec.json.encode(request.app.openapi())
    return written
