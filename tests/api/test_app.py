"""The application as a whole: its pages, and its routes."""

from __future__ import annotations

import re
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from yarl import URL

import weft.api
from weft.api.problem import CODES

if TYPE_CHECKING:
    from tests.api.conftest import Serve, Server

PAGES = Path(weft.api.__file__).parent / "pages"
(SWAGGER_UI,) = (folder.name for folder in PAGES.iterdir() if folder.is_dir())


async def test_a_page_asks_for_no_key_where_the_server_has_none(server: Server) -> None:
    page = (await server.get("/docs")).body
    assert b"key-form" not in page
    assert b"KEY_FORM" not in page


async def test_a_page_asks_for_a_key_where_the_server_has_keys(serve: Serve) -> None:
    async with serve(api_keys=("a-key-of-this-server-for-tests-01",)) as closed:
        page = (await closed.get("/docs")).body
        assert b'<form id="key-form">' in page
        assert b'src="/docs/key.js"' in page
        assert b"KEY_FORM" not in page


async def test_the_pages_need_nothing_from_elsewhere_and_no_inline_script(server: Server) -> None:
    for path in ("/", "/docs"):
        body = (await server.get(path)).body
        assert b"//" not in body.replace(b"<!doctype html>", b"")
        assert not re.search(rb"<script(?![^>]*src=)|<style| style=| on\w+=", body)
        for source in re.findall(rb'(?:src|href)="(/[^"]+)"', body):
            assert (await server.get(source.decode())).status == 200


async def test_a_stylesheet_and_a_script_are_served_as_what_they_are(server: Server) -> None:
    styles = await server.get(f"/docs/{SWAGGER_UI}/swagger-ui.css")
    assert styles.headers["Content-Type"].startswith("text/css")
    for path in ("/docs/docs.js", f"/docs/{SWAGGER_UI}/swagger-ui-bundle.js"):
        assert (await server.get(path)).headers["Content-Type"].startswith("text/javascript")


async def test_the_page_of_the_api_is_drawn_from_the_document_of_this_server(server: Server) -> None:
    assert b'src="/docs/docs.js"' in (await server.get("/docs")).body
    script = (await server.get("/docs/docs.js")).body
    assert b'url: "/openapi.json"' in script
    # Swagger UI would send the document's address to a validator on the internet.
    assert b"validatorUrl: null" in script


async def test_the_type_of_every_problem_leads_to_a_row_of_that_page(server: Server) -> None:
    page = (await server.get("/docs")).body.decode()
    path, _, fragment = (await server.get("/nosuch")).json["type"].partition("#")
    assert path == "/docs"
    assert fragment == "problem-not_found"
    for code, (status, title) in CODES.items():
        row = f'<tr id="problem-{code}"><td>{code}</td><td>{status}</td><td>{escape(title)}</td></tr>'
        assert row in page


async def test_swagger_ui_is_served_whole_with_its_licence_and_kept_by_browsers(server: Server) -> None:
    files = {path.name: path.read_bytes() for path in (PAGES / SWAGGER_UI).iterdir()}
    assert {"LICENSE", "NOTICE", "swagger-ui-bundle.js.LICENSE.txt"} < files.keys()
    for name, content in files.items():
        answer = await server.get(f"/docs/{SWAGGER_UI}/{name}")
        assert answer.body == content
        assert answer.headers["Cache-Control"] == "public, max-age=31536000, immutable"


@pytest.mark.parametrize(
    "name", ["x", "", "..%2Fdocs.html", "%2e%2e%2fdocs.html", "%2Fetc%2Fpasswd", "LICENSE%00"]
)
async def test_nothing_else_is_served_beside_swagger_ui(server: Server, name: str) -> None:
    async with server.session.get(URL(f"{server.url}/docs/{SWAGGER_UI}/{name}", encoded=True)) as answer:
        assert answer.status == 404
        assert (await answer.json(content_type=None))["code"] == "not_found"


async def test_websockets_are_not_spoken_here(server: Server) -> None:
    headers = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
    }
    assert (await server.get("/v1/events-of-nothing", headers=headers)).status == 404
