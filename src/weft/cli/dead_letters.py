"""``weft dlq``: the nodes that failed for good."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from weft.cli.identify import letter_id
from weft.cli.printing import print_json, print_text, say
from weft.cli.server import AsJson, on_server
from weft.cli.table import age, facts, moment, table, took, why
from weft.errors import WeftError
from weft.sdk import calls
from weft.sdk.report import traceback_lines

if TYPE_CHECKING:
    from weft.cli.server import RemoteServer
    from weft.sdk.calls import ApiCall

Id = Annotated[str, Parameter(help="a dead letter's id, or the first characters of it")]


def list_(
    *,
    workflow: Annotated[str | None, Parameter(metavar="NAME", help="of this workflow")] = None,
    state: Annotated[
        Literal["open", "retried", "handled", "dropped", "all"], Parameter(help="in this state (open)")
    ] = "open",
    code: Annotated[str | None, Parameter(metavar="CODE", help="with this error code")] = None,
    node: Annotated[str | None, Parameter(metavar="NODE", help="of this node")] = None,
    q: Annotated[str | None, Parameter(metavar="TEXT", help="with this text: see weft list")] = None,
    groups: Annotated[bool, Parameter(help="how many there are of each workflow, node and error")] = False,
    limit: Annotated[int, Parameter(metavar="N", help="at most so many (20)")] = 20,
    as_json: AsJson = False,
) -> int:
    """List dead letters, newest first; or groups of them."""
    if limit < 1:
        raise WeftError(f"--limit needs a number from 1 up, not {limit}")
    if groups:
        if state == "all" or code or node or q:
            raise WeftError(
                "--groups are of one --state and, if you like, one --workflow: leave out the others"
            )
        return _list_groups(calls.dead_letter_groups(workflow=workflow, state=state), limit, as_json=as_json)
    call = calls.dead_letters(
        workflow=workflow, state=None if state == "all" else state, code=code, node=node, q=q
    )

    async def work(server: RemoteServer) -> int:
        items = [item async for item in server.items(call, limit=limit)]
        if as_json:
            print_json({"items": items})
        elif items:
            rows = [[item["id"], age(item["created_at"]), item["node"], why(item)] for item in items]
            print_text(table(["ID", "AGE", "NODE", "WHY"], rows))
        else:
            say("there are no such dead letters")
        return 0

    return on_server(work)


def _list_groups(call: ApiCall[Any], limit: int, *, as_json: bool) -> int:
    async def work(server: RemoteServer) -> int:
        items = [item async for item in server.items(call, limit=limit)]
        if as_json:
            print_json({"items": items})
        elif items:
            rows = [
                [item["count"], age(item["last_at"]), item["workflow"], item["node"], why(item["sample"])]
                for item in items
            ]
            print_text(table(["COUNT", "LAST", "WORKFLOW", "NODE", "WHY"], rows))
        else:
            say("there are no such dead letters")
        return 0

    return on_server(work)


def show(letter: Id, /, *, as_json: AsJson = False) -> int:
    """Show one dead letter with its attempts."""

    async def work(server: RemoteServer) -> int:
        found = await server.ask(calls.dead_letter(await letter_id(letter, server)))
        if as_json:
            print_json(found)
            return 0
        named = ("execution", "workflow", "node", "generation", "handler", "queue", "state")
        print_text(
            facts(
                {
                    "dead letter": found["id"],
                    **{name: found[name] for name in named},
                    "created": moment(found["created_at"]),
                    "error": why(found),
                }
            )
        )
        rows = [
            [
                attempt["number"],
                attempt["outcome"],
                moment(attempt["started_at"]),
                took(attempt),
                why(attempt),
            ]
            for attempt in found["attempts"]
        ]
        print_text("\n" + table(["ATTEMPT", "OUTCOME", "STARTED", "TOOK", "WHY"], rows))
        if lines := list(traceback_lines(found["error"])):
            print_text("\n" + "\n".join(lines) + "\n")
        return 0

    return on_server(work)


def retry(letter: Id, /, *, as_json: AsJson = False) -> int:
    """Retry the execution of a dead letter, with all its letters."""

    async def work(server: RemoteServer) -> int:
        execution = await server.ask(calls.retry_dead_letter(await letter_id(letter, server)))
        if as_json:
            print_json(execution)
        else:
            print_text(f"{execution['id']} is {execution['state']}, generation {execution['generation']}\n")
        return 0

    return on_server(work)


def drop(letter: Id, /, *, as_json: AsJson = False) -> int:
    """Mark a dead letter as one that nobody will retry."""

    async def work(server: RemoteServer) -> int:
        found = await letter_id(letter, server)
        await server.ask(calls.drop_dead_letter(found))
        if as_json:
            print_json(await server.ask(calls.dead_letter(found)))
        else:
            print_text(f"{found} is dropped\n")
        return 0

    return on_server(work)
