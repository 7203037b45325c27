"""``weft events``: the history of an execution, event by event."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from weft.cli.identify import execution_id
from weft.cli.printing import print_json, print_text
from weft.cli.remote import Id  # noqa: TC001 - the parser reads the annotations
from weft.cli.server import AsJson, on_server
from weft.cli.table import moment, table, why
from weft.errors import WeftError
from weft.sdk import calls

if TYPE_CHECKING:
    from collections.abc import Mapping

    from weft.cli.server import RemoteServer

# So many rows are laid out together: the columns of a long history need not wait for its end.
_ROWS_AT_ONCE = 500


def events(
    execution: Id,
    /,
    *,
    after: Annotated[int, Parameter(metavar="SEQ", help="only what came behind this event")] = 0,
    as_json: Annotated[AsJson, Parameter("--json", help="print each event as a line of JSON")] = False,
) -> int:
    """Show the history of an execution, the first event first."""
    if after < 0:
        raise WeftError(f"--after needs a number from 0 up, not {after}")

    async def work(server: RemoteServer) -> int:
        found = await execution_id(execution, server)
        rows: list[list[object]] = []
        async for item in server.items(calls.events(found, after=after)):
            if as_json:
                print_json(item, pretty=False)
                continue
            rows.append(_row(item))
            if len(rows) == _ROWS_AT_ONCE:
                _print(rows)
                rows = []
        if rows:
            _print(rows)
        return 0

    return on_server(work)


def _print(rows: list[list[object]]) -> None:
    print_text(table(["SEQ", "AT", "EVENT", "NODE", "ATTEMPT", "WHY"], rows))


def _row(event: Mapping[str, Any]) -> list[object]:
    signal = f"signal {event['signal']}" if event.get("signal") else ""
    reasons = [why(event), signal, f"by {event['actor']}" if event.get("actor") else "", _due(event)]
    text = ", ".join(filter(None, reasons))
    return [event["seq"], moment(event["at"]), event["type"], event.get("node"), event.get("attempt"), text]


def _due(event: Mapping[str, Any]) -> str:
    if not event.get("due_at"):
        return ""
    until = "until" if event["type"] == "node.waiting" else "next at"
    return f"{until} {moment(event['due_at'])}"
