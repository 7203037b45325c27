"""The files of the console: which are served, and how long a browser keeps them."""

from __future__ import annotations

import gzip
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from yarl import URL

from weft.api.app import create_app
from weft.api.console import FOLDER, ConsoleFiles, edition_of, names_of
from weft.api.minify import minify_css, minify_js
from weft.errors import NotFoundError

if TYPE_CHECKING:
    from tests.api.conftest import Serve, Server

MINIFY = {".js": minify_js, ".css": minify_css}
# What the files may weigh: compressed together, and each by itself, as a browser loads those of a page.
MOST_BYTES_TOGETHER, MOST_BYTES = 120_000, 160_000


def files_of(server: Server) -> ConsoleFiles:
    files: ConsoleFiles = create_app(server.service).state.console
    return files


def raw(server: Server, path: str) -> Any:
    return server.session.get(URL(server.url + path, encoded=True))


class TestThePage:
    async def test_a_browser_that_asks_for_the_root_gets_html(self, server: Server) -> None:
        page = await server.get("/", headers={"Accept": "text/html,*/*;q=0.8"})
        assert (page.status, page.headers["Content-Type"]) == (200, "text/html; charset=utf-8")
        assert page.body.startswith(b"<!doctype html>")
        assert "default-src 'self'" in page.headers["Content-Security-Policy"]

    async def test_its_links_lead_to_files_and_pages_of_this_server(self, server: Server) -> None:
        body = (await server.get("/")).body.decode()
        assert "VERSION" not in body
        linked = re.findall(r'(?:src|href)="(/[^"#]+)"', body)
        assert any(link.startswith("/console/checkout/") for link in linked)
        for link in linked:
            assert (await server.get(link)).status == 200, link

    async def test_a_head_has_the_headers_and_nothing_else(self, server: Server) -> None:
        whole, head = await server.get("/"), await server.call("HEAD", "/")
        assert (head.status, head.body) == (200, b"")
        for name in ("Content-Type", "ETag", "Cache-Control", "Content-Length"):
            assert head.headers[name] == whole.headers[name]

    async def test_it_is_never_kept_without_asking(self, server: Server) -> None:
        assert (await server.get("/")).headers["Cache-Control"] == "no-cache"


class TestTheFiles:
    async def test_each_is_served_as_what_it_is(self, server: Server) -> None:
        files = files_of(server)
        assert len(files.paths) == len(names_of(FOLDER)) - 1
        for path in files.paths:
            answer = await server.get(path)
            name = path.removeprefix("/console/checkout/")
            written = (FOLDER / name).read_bytes()
            if not name.startswith("vendor/") and (minify := MINIFY.get(Path(name).suffix)):
                written = minify(written.decode()).encode()
            assert answer.body == written
            expected = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
            assert answer.headers["Content-Type"].startswith(expected.get(Path(name).suffix, "text/plain"))
            assert answer.headers["X-Content-Type-Options"] == "nosniff"

    async def test_they_come_compressed_to_those_who_read_that(self, server: Server) -> None:
        for path in ("/", *files_of(server).paths):
            url = server.url + path
            plain = await server.get(path, headers={"Accept-Encoding": "identity"})
            assert "Content-Encoding" not in plain.headers
            async with server.session.get(url, headers={"Accept-Encoding": "gzip"}) as answer:
                assert answer.headers["Content-Encoding"] == "gzip"
                assert answer.headers["Vary"] == "Accept-Encoding"
                assert await answer.read() == plain.body

    async def test_whoever_has_one_is_not_sent_it_again(self, server: Server) -> None:
        for path in ("/", *files_of(server).paths):
            tag = (await server.get(path)).headers["ETag"]
            again = await server.get(path, headers={"If-None-Match": tag})
            assert (again.status, again.body, again.headers["ETag"]) == (304, b"", tag)
            assert (await server.get(path, headers={"If-None-Match": '"other"'})).status == 200

    @pytest.mark.parametrize(
        "path",
        [
            "/console",
            "/console/",
            "/console/checkout",
            "/console/checkout/",
            "/console/checkout/index.html",
            "/console/checkout/../index.html",
            "/console/checkout/styles/../../../__init__.py",
            "/console/checkout/styles/..%2f..%2f..%2f__init__.py",
            "/console/checkout/%2e%2e/%2e%2e/settings.py",
            "/console/checkout//etc/passwd",
            "/console/checkout/%2Fetc%2Fpasswd",
            "/console/checkout/..\\..\\settings.py",
            "/console/checkout/icon.svg%00",
            "/console/checkout/icon.svg/",
            "/console/other/icon.svg",
            "/Console/checkout/icon.svg",
        ],
    )
    async def test_nothing_else_is_served(self, server: Server, path: str) -> None:
        async with raw(server, path) as answer:
            assert answer.status == 404
            assert (await answer.json(content_type=None))["code"] == "not_found"

    async def test_they_are_read_and_not_written(self, server: Server) -> None:
        for path in ("/", "/console/checkout/icon.svg"):
            for method in ("POST", "PUT", "DELETE"):
                refused = await server.call(method, path)
                assert (refused.status, refused.json["code"]) == (405, "method_not_allowed"), (method, path)

    async def test_they_are_one_row_among_the_metrics(self, server: Server) -> None:
        for path in files_of(server).paths:
            await server.get(path)
        routes = set(re.findall(rb'route="(/console[^"]*)"', (await server.get("/metrics")).body))
        assert routes == {b"/console"}

    async def test_they_need_no_key(self, serve: Serve) -> None:
        async with serve(api_keys=("a-key-of-this-server-for-tests-01",)) as closed:
            for path in ("/", *files_of(closed).paths):
                assert (await closed.get(path)).status == 200

    def test_they_are_small(self) -> None:
        files = ConsoleFiles(FOLDER, edition="1")
        # Nobody's browser loads the licences.
        served = [files.start(), *(files.file(path) for path in sorted(files.paths) if "LICENSE" not in path)]
        assert len(gzip.compress(b"".join(file.content for file in served))) <= MOST_BYTES_TOGETHER
        assert sum(len(file.compressed) for file in served) <= MOST_BYTES


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A console of three files, and some that are none of its."""
    (tmp_path / "pages").mkdir()
    (tmp_path / "index.html").write_text('<link href="/console/VERSION/a.css">')
    (tmp_path / "a.css").write_text("a {}")
    (tmp_path / "pages" / "home.js").write_text("home")
    for name in (".hidden.js", "notes.md", "pages/home.js.swp", "x.py", "jsconfig.json"):
        (tmp_path / name).write_text("not served")
    return tmp_path


def test_only_files_of_a_known_kind_are_files_of_the_console(folder: Path) -> None:
    assert names_of(folder) == ["a.css", "index.html", "pages/home.js"]


class TestInstalled:
    def test_a_browser_keeps_them_under_the_path_of_their_edition(self, folder: Path) -> None:
        files = ConsoleFiles(folder, edition="1.0-abc")
        assert files.paths == {"/console/1.0-abc/a.css", "/console/1.0-abc/pages/home.js"}
        assert files.cache_control == "public, max-age=31536000, immutable"
        assert files.start().content == b'<link href="/console/1.0-abc/a.css">'

    def test_another_content_is_another_edition(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        class Wheel:
            def locate_file(self, name: str) -> Path:
                assert name == "weft/console"
                return folder

        monkeypatch.setattr("weft.api.console.distribution", lambda name: Wheel())
        first = edition_of(folder, "1.0")
        assert first is not None
        assert re.fullmatch(r"1\.0-[0-9a-f]{12}", first)
        assert edition_of(folder, "1.0") == first
        (folder / "a.css").write_text("b {}")
        assert edition_of(folder, "1.0") not in (first, None)

    def test_each_is_read_once(self, folder: Path) -> None:
        files = ConsoleFiles(folder, edition="1.0-abc")
        read = files.file("/console/1.0-abc/a.css")
        (folder / "a.css").unlink()
        assert files.file("/console/1.0-abc/a.css") is read


class TestInACheckout:
    def test_this_is_one(self) -> None:
        assert edition_of(FOLDER, "1.0") is None

    def test_an_edited_file_is_served_as_it_is_now(self, folder: Path) -> None:
        files = ConsoleFiles(folder, edition=None)
        assert files.cache_control == "no-cache"
        before = files.file("/console/checkout/a.css")
        (folder / "a.css").write_text("b {}")
        os.utime(folder / "a.css", ns=(1, 1))
        after = files.file("/console/checkout/a.css")
        assert (before.content, after.content) == (b"a{}", b"b{}")
        assert before.digest != after.digest

    def test_a_file_that_was_removed_is_not_found(self, folder: Path) -> None:
        files = ConsoleFiles(folder, edition=None)
        (folder / "a.css").unlink()
        with pytest.raises(NotFoundError, match=r"a\.css"):
            files.file("/console/checkout/a.css")

    def test_a_file_that_came_later_is_not_served_until_the_next_start(self, folder: Path) -> None:
        files = ConsoleFiles(folder, edition=None)
        (folder / "later.js").write_text("later")
        assert "/console/checkout/later.js" not in files.paths
