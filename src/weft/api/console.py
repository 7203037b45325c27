"""The web console: ``/`` is its page, and its files are below ``/console/``.

They are the same for everybody and hold no data, so a browser opens them without a key. The names of the
files are read once, when the application is made: a request is compared with these names, and no path is ever
put together from what a request says.

A wheel's files never change, so a browser keeps them for a year: their digest is in their path. In a checkout
they are edited while the server runs: a browser asks each time whether its copy is still the one.
"""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import dataclass
from importlib.metadata import distribution
from pathlib import Path
from typing import TYPE_CHECKING

from fastapi import APIRouter, FastAPI, Request, Response
from starlette.responses import HTMLResponse
from starlette.routing import Match, Route

from weft.api.answer import accepts_gzip, has_tag
from weft.api.auth import open_to_all
from weft.api.minify import minify_css, minify_js
from weft.errors import NotFoundError

if TYPE_CHECKING:
    from starlette.types import Scope

router = APIRouter(tags=["pages"])

FOLDER = Path(__file__).parent.parent / "console"
_START = "index.html"
# What index.html says where the path of the files belongs.
_PLACEHOLDER = b"/console/VERSION/"
_MEDIA_TYPES = {
    "": "text/plain",  # a licence
    ".css": "text/css",
    ".html": "text/html",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
    ".txt": "text/plain",
}
_MINIFY = {".css": minify_css, ".js": minify_js}
_VENDOR = "vendor"
_KEEP = "public, max-age=31536000, immutable"
# Kept by the browser, and asked for each time.
_ASK = "no-cache"


@dataclass(frozen=True, slots=True)
class ConsoleFile:
    """The content of a file of the console, plain and compressed."""

    content: bytes
    compressed: bytes
    digest: str
    # Of the file when it was read.
    changed_at: int


class ConsoleFiles:
    """The files of the console by their paths in URLs. Contents are read when they are first asked for."""

    def __init__(self, folder: Path, *, edition: str | None) -> None:
        """Find the files of a folder. ``edition`` is in their path; None: they may be edited at any time."""
        self._folder = folder
        self._is_fixed = edition is not None
        self._prefix = f"/console/{edition or 'checkout'}/"
        self._files = {self._prefix + name: folder / name for name in names_of(folder)}
        self._start = self._files.pop(self._prefix + _START)
        self._read: dict[Path, ConsoleFile] = {}

    @property
    def paths(self) -> frozenset[str]:
        """The path of every file but the page itself, which is ``/``."""
        return frozenset(self._files)

    @property
    def cache_control(self) -> str:
        return _KEEP if self._is_fixed else _ASK

    def start(self) -> ConsoleFile:
        """Return the page itself, with the path of the other files filled in."""
        return self._load(self._start)

    def file(self, path: str) -> ConsoleFile:
        """Return the file at a path of ``paths``."""
        return self._load(self._files[path])

    def media_type(self, path: str) -> str:
        return _MEDIA_TYPES[self._files[path].suffix]

    def _load(self, file: Path) -> ConsoleFile:
        known = self._read.get(file)
        if known is not None and self._is_fixed:
            return known
        try:
            changed_at = file.stat().st_mtime_ns
            if known is not None and known.changed_at == changed_at:
                return known
            content = file.read_bytes()
        except FileNotFoundError:
            raise NotFoundError(f"{file.name} was removed after this server had started") from None
        if file is self._start:
            content = content.replace(_PLACEHOLDER, self._prefix.encode())
        elif file.suffix in _MINIFY and _VENDOR not in file.relative_to(self._folder).parts:
            content = _MINIFY[file.suffix](content.decode()).encode()
        # Without the time in its head: the same content is the same bytes.
        compressed = gzip.compress(content, mtime=0)
        known = ConsoleFile(content, compressed, hashlib.sha256(content).hexdigest()[:32], changed_at)
        self._read[file] = known
        return known


def names_of(folder: Path) -> list[str]:
    """List the files of the console that are served, as paths below its folder."""
    return sorted(
        str(file.relative_to(folder))
        for file in folder.rglob("*")
        if file.suffix in _MEDIA_TYPES and not file.name.startswith(".") and file.is_file()
    )


def edition_of(folder: Path, version: str) -> str | None:
    """Return what names the content of the installed files, or None in a checkout."""
    if distribution("weft").locate_file("weft/console") != folder:
        return None
    digest = hashlib.sha256()
    for name in names_of(folder):
        content = (folder / name).read_bytes()
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    return f"{version}-{digest.hexdigest()[:12]}"


class ConsoleRoute(Route):
    """One route for all files: a request is compared with their whole paths, by one look into a table."""

    def __init__(self, files: ConsoleFiles) -> None:
        super().__init__("/console", _file, methods=["GET"], include_in_schema=False)
        self.open_paths = files.paths

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        if scope["type"] != "http" or scope["path"] not in self.open_paths:
            return Match.NONE, {}
        is_get = scope["method"] == "GET"
        return Match.FULL if is_get else Match.PARTIAL, {"endpoint": self.endpoint, "route": self}


def install(app: FastAPI) -> None:
    """Find the console's files, and add their route to an application."""
    files = ConsoleFiles(FOLDER, edition=edition_of(FOLDER, app.version))
    app.state.console = files
    app.router.routes.append(ConsoleRoute(files))


@router.get("/", operation_id="getConsole", response_class=HTMLResponse)
@open_to_all
async def start(request: Request) -> Response:
    """Show the web console. It asks for data by this API, with a key where the server has keys."""
    # The page names the files of one edition, so nobody keeps it without asking.
    return _answer(request, _files_of(request).start(), "text/html", cache_control=_ASK)


@open_to_all
async def _file(request: Request) -> Response:
    files, path = _files_of(request), request.scope["path"]
    return _answer(request, files.file(path), files.media_type(path), cache_control=files.cache_control)


def _answer(request: Request, file: ConsoleFile, media_type: str, *, cache_control: str) -> Response:
    headers = {"ETag": f'W/"{file.digest}"', "Cache-Control": cache_control, "Vary": "Accept-Encoding"}
    if has_tag(request, file.digest):
        return Response(status_code=304, headers=headers)
    body = file.content
    if accepts_gzip(request):
        body = file.compressed
        headers["Content-Encoding"] = "gzip"
    return Response(body, headers=headers, media_type=media_type)


def _files_of(request: Request) -> ConsoleFiles:
    files: ConsoleFiles = request.app.state.console
    return files
