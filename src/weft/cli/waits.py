"""``weft waits``, ``weft answer`` and ``weft signal``: nodes that wait for an answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from weft.cli.identify import execution_id
from weft.cli.pairs import value_of
from weft.cli.printing import print_json, print_text, say
from weft.cli.remote import Id, Key, ask_node
from weft.cli.server import AsJson, on_server
from weft.cli.table import age, moment, table
from weft.definition.bounds import DEFAULT_BOUNDS
from weft.errors import WeftError
from weft.sdk import calls

if TYPE_CHECKING:
    from collections.abc import Mapping

    from weft.cli.server import RemoteServer

Value = Annotated[str, Parameter(allow_leading_hyphen=True, help="read as JSON, or else as text")]


def waits(
    *,
    workflow: Annotated[str | None, Parameter(metavar="NAME", help="of this workflow")] = None,
    execution: Annotated[str | None, Parameter(metavar="ID", help="of this execution")] = None,
    signal: Annotated[str | None, Parameter(metavar="NAME", help="for this signal")] = None,
    limit: Annotated[int, Parameter(metavar="N", help="at most so many (20)")] = 20,
    as_json: AsJson = False,
) -> int:
    """List the nodes that wait for an answer, those that have waited longest first."""
    if limit < 1:
        raise WeftError(f"--limit needs a number from 1 up, not {limit}")

    async def work(server: RemoteServer) -> int:
        found = None if execution is None else await execution_id(execution, server)
        call = calls.waits(workflow=workflow, execution=found, signal=signal)
        items = [item async for item in server.items(call, limit=limit)]
        if as_json:
            print_json({"items": items})
        elif items:
            headings = ["EXECUTION", "NODE", "SIGNAL", "SINCE", "EXPIRES", "PROMPT"]
            print_text(table(headings, [_row(item) for item in items]))
        else:
            say("nothing waits for an answer")
        return 0

    return on_server(work)


def answer(
    execution: Id,
    node: Annotated[str, Parameter(help="the id of a node that waits")],
    value: Value,
    /,
    *,
    key: Key = None,
    as_json: AsJson = False,
) -> int:
    """Answer a node that waits for an answer; the first answer counts."""

    async def work(server: RemoteServer) -> int:
        found = await execution_id(execution, server)
        call = calls.answer(found, node, value_of(value, DEFAULT_BOUNDS), key=key)
        answered = await ask_node(found, node, call, server)
        if as_json:
            print_json(answered)
        else:
            print_text(f"{node} is {answered['state']}\n")
        return 0

    return on_server(work)


def signal(
    execution: Id,
    name: Annotated[str, Parameter(help="the name of the signal")],
    value: Value = "null",
    /,
    *,
    key: Key = None,
    as_json: AsJson = False,
) -> int:
    """Send a signal: it answers a node that waits for it, or is kept for one that will."""

    async def work(server: RemoteServer) -> int:
        found = await execution_id(execution, server)
        sent = await server.ask(calls.signal(found, name, value_of(value, DEFAULT_BOUNDS), key=key))
        if as_json:
            print_json(sent)
        elif sent["answered"] is None:
            print_text(f"kept: no node waits for {name} yet\n")
        else:
            print_text(f"answered {sent['answered']}\n")
        return 0

    return on_server(work)


def _row(wait: Mapping[str, Any]) -> list[object]:
    return [
        wait["execution"],
        wait["node"],
        wait["signal"],
        age(wait["since"]),
        moment(wait["expires_at"]),
        wait["prompt"],
    ]
