"""``weft open``: the server's page, in a browser."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from weft.cli.identify import execution_id
from weft.cli.printing import print_json, print_text, say
from weft.cli.server import on_server

if TYPE_CHECKING:
    from weft.cli.server import RemoteServer


def open_(
    execution: Annotated[
        str | None, Parameter(help="an execution's id, or the first characters of it")
    ] = None,
    /,
    *,
    url: Annotated[bool, Parameter("--url", help="print the address, and open nothing")] = False,
    as_json: Annotated[bool, Parameter("--json", help="print the address as JSON, and open nothing")] = False,
) -> int:
    """Open the server's page, or that of one execution, in a browser."""

    async def work(server: RemoteServer) -> int:
        page = f"{server.connection.url.rstrip('/')}/"
        if execution is not None:
            page += f"#/executions/{await execution_id(execution, server)}"
        if as_json:
            print_json({"url": page})
            return 0
        print_text(f"{page}\n")
        if not url and not _opened(page):
            say("no browser was found here: open the address above")
        return 0

    return on_server(work)


def _opened(page: str) -> bool:
    """True if a browser was asked to open the page. Not without a terminal: a script wants the address."""
    import webbrowser

    return not sys.stdout.isatty() or webbrowser.open(page)
