"""``weft changes``: who stored and deleted workflows, moved aliases and dropped dead letters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from weft.cli.printing import print_json, print_text, say
from weft.cli.server import AsJson, on_server
from weft.cli.table import moment, table
from weft.errors import WeftError
from weft.sdk import calls

if TYPE_CHECKING:
    from collections.abc import Mapping

    from weft.cli.server import RemoteServer


def changes(
    *,
    limit: Annotated[int, Parameter(metavar="N", help="at most so many (20)")] = 20,
    as_json: AsJson = False,
) -> int:
    """List who changed workflows and aliases and dropped dead letters, newest first.

    Who submitted, cancelled or retried an execution is in the events of that execution.
    """
    if limit < 1:
        raise WeftError(f"--limit needs a number from 1 up, not {limit}")

    async def work(server: RemoteServer) -> int:
        items = [item async for item in server.items(calls.changes(), limit=limit)]
        if as_json:
            print_json({"items": items})
        elif items:
            rows = [[moment(item["at"]), item["actor"], item["action"], _object(item)] for item in items]
            print_text(table(["AT", "ACTOR", "ACTION", "OF"], rows))
        else:
            say("nothing was changed yet")
        return 0

    return on_server(work)


def _object(item: Mapping[str, Any]) -> str:
    """Return what was changed: ``report@production = 2``, ``report 3``, or the id of a dead letter."""
    if item["dead_letter"] is not None:
        return str(item["dead_letter"])
    name = item["workflow"]
    if item["alias"] is not None:
        version = "" if item["version"] is None else f" = {item['version']}"
        return f"{name}@{item['alias']}{version}"
    return name if item["version"] is None else f"{name} {item['version']}"
