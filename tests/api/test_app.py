"""The application as a whole: its pages, and its routes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.api.conftest import Server


async def test_the_start_page_leads_to_what_is_there(server: Server) -> None:
    page = await server.get("/")
    assert page.headers["Content-Type"].startswith("text/html")
    links = re.findall(rb'href="([^"]+)"', page.body)
    assert b"/docs" in links
    for link in links:
        assert (await server.get(link.decode())).status == 200, link


async def test_the_pages_need_nothing_from_elsewhere_and_no_inline_script(server: Server) -> None:
    for path in ("/", "/docs"):
        body = (await server.get(path)).body
        assert b"//" not in body.replace(b"<!doctype html>", b"")
        assert not re.search(rb"<script(?![^>]*src=)|<style| style=| on\w+=", body)
        for source in re.findall(rb'(?:src|href)="(/docs/[^"]+)"', body):
            assert (await server.get(source.decode())).status == 200


async def test_a_stylesheet_and_a_script_are_served_as_what_they_are(server: Server) -> None:
    assert (await server.get("/docs/page.css")).headers["Content-Type"].startswith("text/css")
    assert (await server.get("/docs/page.js")).headers["Content-Type"].startswith("text/javascript")


async def test_websockets_are_not_spoken_here(server: Server) -> None:
    headers = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
    }
    assert (await server.get("/v1/events-of-nothing", headers=headers)).status == 404
