"""``weft logs``: what the nodes of an execution printed and logged, and where they failed."""

from __future__ import annotations

import json
from contextlib import aclosing
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter, Token, convert

from weft.cli.identify import execution_id, nodes_missing
from weft.cli.main import INTERRUPTED
from weft.cli.notices import line_texts
from weft.cli.printing import print_text, say
from weft.cli.server import AsJson, on_server
from weft.cli.watch import for_report
from weft.core.state import NodeState
from weft.drawing.escaping import escaped
from weft.errors import ApiError
from weft.sdk import calls
from weft.sdk.report import MAX_FAILURES, traceback_lines
from weft.sdk.stream import follow_logs

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping, Sequence

    from weft.cli.server import RemoteServer


def _in_either_case(choices: type, tokens: Sequence[Token]) -> Any:
    return convert(choices, [tokens[0].evolve(value=tokens[0].value.upper())])


def logs(
    execution: Annotated[str, Parameter(help="its id, or the first characters of it")],
    node: Annotated[str | None, Parameter(help="of this node alone, with all its attempts")] = None,
    /,
    *,
    follow: Annotated[
        bool, Parameter(name=["--follow", "-f"], help="go on with new lines until the execution has ended")
    ] = False,
    attempt: Annotated[int | None, Parameter(metavar="N", help="of this attempt alone")] = None,
    level: Annotated[
        Literal["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"] | None,
        Parameter(converter=_in_either_case, help="logged at this level or above; printed lines have none"),
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Show what the nodes of an execution printed and logged, oldest first, and where they failed."""
    wanted: dict[str, Any] = {"node": node, "attempt": attempt, "level": level}

    async def work(server: RemoteServer) -> int:
        found = await execution_id(execution, server)
        try:
            await _print(found, wanted, server, follow=follow, as_json=as_json)
        except ApiError as error:
            if node is None:
                raise
            raise await nodes_missing(found, [node], error, server) from error
        return 0

    try:
        return on_server(work)
    except KeyboardInterrupt:
        return INTERRUPTED


async def _print(
    found: str, wanted: dict[str, Any], server: RemoteServer, *, follow: bool, as_json: bool
) -> None:
    count = 0
    # What has failed already stands between the lines, by its time; what fails later, behind them.
    failures = [] if as_json else await _failures(found, wanted, server)
    shown = len(failures)
    async with aclosing(_lines(found, wanted, server, follow=follow)) as lines:
        async for line in lines:
            while failures and failures[0]["finished_at"] <= line["at"]:
                print_text(_failure_text(failures.pop(0)))
            print_text(json.dumps(line, ensure_ascii=False) + "\n" if as_json else _line_text(line))
            count += 1
    if follow and not as_json:
        failures += (await _failures(found, wanted, server))[shown:]
    for failure in failures:
        print_text(_failure_text(failure))
    if not (count or as_json) and (wanted["level"] is not None or not (shown or failures)):
        say(_nothing(wanted))


def _nothing(wanted: Mapping[str, Any]) -> str:
    """Return the message for a reader whose choice of lines is empty."""
    node, attempt, level = wanted["node"], wanted["attempt"], wanted["level"]
    text = "the nodes have" if node is None else f"{node} has"
    text += " printed and logged nothing" if level is None else f" logged nothing at {level} or above"
    return text if attempt is None else f"{text} in attempt {attempt}"


async def _lines(
    found: str, wanted: dict[str, Any], server: RemoteServer, *, follow: bool
) -> AsyncGenerator[dict[str, Any], None]:
    if follow:
        async with aclosing(follow_logs(server.connection, calls.live_logs(found, **wanted))) as events:
            async for event in events:
                yield json.loads(event.data)
    else:
        async for item in server.items(calls.logs(found, **wanted)):
            yield item


async def _failures(found: str, wanted: Mapping[str, Any], server: RemoteServer) -> list[dict[str, Any]]:
    """List failed attempts by their ends: all of one node, or of all nodes.

    Of a node that failed only the last one: the others are most often the same.
    """
    failed: list[dict[str, Any]]
    if wanted["node"] is not None:
        failed = _failed_attempts(await server.ask(calls.node(found, wanted["node"])))
    else:
        execution = await for_report(found, server)
        nodes = execution["nodes"]
        failed = [
            {**node, "node": node["id"], "number": node["attempt"]}
            for node in nodes
            if node["state"] == NodeState.FAILED
        ]
        again = [node["id"] for node in nodes if node["attempt"] > 1 and node["state"] != NodeState.FAILED]
        for name in again[:MAX_FAILURES]:
            failed += _failed_attempts(await server.ask(calls.node(found, name)))
    chosen = [each for each in failed if wanted["attempt"] in (None, each["number"]) and each["finished_at"]]
    return sorted(chosen, key=lambda each: str(each["finished_at"]))


def _failed_attempts(node: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{**each, "node": node["id"]} for each in node["attempts"] if each["error"]]


def _failure_text(failure: Mapping[str, Any]) -> str:
    error = failure["error"] or {"code": "failed", "message": ""}
    lines = [f"FAILED {error['code']}: {error['message']}", *traceback_lines(error)]
    return _prefixed(failure["finished_at"], failure["node"], failure["number"], lines)


def _line_text(line: Mapping[str, Any]) -> str:
    return _prefixed(line["at"], line["node"], line["attempt"], line_texts(line))


def _prefixed(at: str, node: str, attempt: int, lines: Sequence[str]) -> str:
    """Write lines with the time, its zone and the node before each; attempts from the second on numbered."""
    moment = datetime.fromisoformat(at).astimezone().timetz().isoformat(timespec="milliseconds")
    head = f"{moment} {node}{f' #{attempt}' if attempt > 1 else ''} │ "
    return "".join(f"{head}{escaped(line)}\n" for line in lines)
