"""``weft batch`` and ``weft batches``: many executions of one workflow, from the lines of a file.

A file is one batch, so that all of it starts or, where one input is bad, nothing. One that is too long for
that is refused; how to cut it is the user's choice.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from weft.cli.main import FAILED, INTERRUPTED
from weft.cli.pairs import Labels, read_labels
from weft.cli.printing import print_json, print_text, say, write_error
from weft.cli.remote import Key, Priority, Version  # noqa: TC001 - the parser reads the annotations
from weft.cli.server import AsJson, on_server
from weft.cli.table import age, elapsed_seconds, table, why
from weft.cli.workflows import Name, ask_workflow, version_of
from weft.core.state import ExecutionState, NodeState
from weft.definition.bounds import DEFAULT_BOUNDS
from weft.definition.document import read_json
from weft.errors import ApiError, DocumentError, WeftError
from weft.sdk import calls
from weft.sdk.loading import read_bytes
from weft.sdk.progress import MAX_FAILURES, ProgressSnapshot, open_progress, seconds_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from weft.cli.server import RemoteServer

# How often the server is asked: at first as people look, later as they glance.
FIRST_LOOK_SECONDS = 0.2
LONGEST_LOOK_SECONDS = 2.0

_POINTER = re.compile(r"/inputs/(?P<index>\d+)(?P<rest>.*)", re.DOTALL)
# An execution that is paused waits, as far as its batch is concerned.
_SHOWN_AS = {ExecutionState.PAUSED: NodeState.PENDING}


def batch(
    name: Name,
    file: Annotated[
        str, Parameter(allow_leading_hyphen=True, help="JSON Lines: one input per line; - is stdin")
    ],
    /,
    *,
    version: Version = None,
    label: Labels = (),
    priority: Priority = None,
    key: Key = None,
    as_json: Annotated[
        bool, Parameter("--json", help="print the result of each input as a line of JSON")
    ] = False,
    quiet: Annotated[bool, Parameter(help="show no progress")] = False,
) -> int:
    """Start an execution for each line of a file, and follow all to their end."""
    lines = read_lines(file)
    key = calls.new_key() if key is None else key
    call = calls.start_batch(
        name,
        [value for _, value in lines],
        version=version_of(version),
        labels=read_labels(label),
        priority=priority,
        key=key,
    )
    started: str | None = None

    async def work(server: RemoteServer) -> int:
        nonlocal started
        try:
            begun = await ask_workflow(name, call, server)
        except ApiError as error:
            raise _in_lines(error, file, lines) from error
        started = begun["id"]
        if not quiet:
            say(f"batch {started}")
        ended = await _stay(begun, server, quiet=quiet)
        if as_json:
            async for result in server.items(calls.batch_results(ended["id"]).sized(500)):
                print_json(result, pretty=False)
        else:
            print_text(f"{started}\n")
        await _report(ended, server, lines, quiet=quiet)
        return 0 if ended["counts"][ExecutionState.COMPLETED] == ended["total"] else FAILED

    try:
        return on_server(work)
    except KeyboardInterrupt:
        if started is None:
            raise
        say(f"batch {started} goes on; the same command with --key {key} follows it again")
        return INTERRUPTED


def batches(
    *,
    limit: Annotated[int, Parameter(metavar="N", help="at most so many (20)")] = 20,
    as_json: AsJson = False,
) -> int:
    """List batches, newest first."""
    if limit < 1:
        raise WeftError(f"--limit needs a number from 1 up, not {limit}")

    async def work(server: RemoteServer) -> int:
        items = [item async for item in server.items(calls.batches(), limit=limit)]
        if as_json:
            print_json({"items": items})
        elif items:
            rows = [
                [
                    item["id"],
                    item["state"],
                    age(item["created_at"]),
                    f"{item['workflow']} v{item['version']}",
                    f"{item['total']:,}",
                    ", ".join(
                        f"{count:,} {state.lower()}" for state, count in item["counts"].items() if count
                    ),
                ]
                for item in items
            ]
            print_text(table(["ID", "STATE", "AGE", "WORKFLOW", "INPUTS", "EXECUTIONS"], rows))
        else:
            say("there are no batches; `weft batch NAME FILE` starts one")
        return 0

    return on_server(work)


def read_lines(file: str) -> list[tuple[int, dict[str, Any]]]:
    """Read the inputs with the number of their lines; empty lines count, and are no inputs."""
    bounds = DEFAULT_BOUNDS
    text = read_bytes(file, max_bytes=bounds.max_body_bytes)
    if len(text) > bounds.max_body_bytes:
        raise DocumentError(
            f"{file}: longer than {bounds.max_body_bytes:,} bytes, the most that one request may hold; "
            f"cut it into several, for example with `split -C 30M {file}`"
        )
    lines: list[tuple[int, dict[str, Any]]] = []
    for number, line in enumerate(text.split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            value = read_json(line, max_bytes=bounds.max_body_bytes, max_depth=bounds.max_depth)
        except DocumentError as error:
            raise DocumentError(f"{file}:{number}: {str(error).removeprefix('line 1, ')}") from error
        if not isinstance(value, dict):
            raise DocumentError(f'{file}:{number}: an input is an object, like {{"order_id": 7}}')
        lines.append((number, value))
    if not lines:
        raise DocumentError(f"{file}: there is no input in it; each line is a JSON object")
    if len(lines) > bounds.max_batch:
        raise DocumentError(
            f"{file}: {len(lines):,} inputs, and a batch holds {bounds.max_batch:,}; "
            f"cut it into several, for example with `split -l {bounds.max_batch} {file}`"
        )
    return lines


def _in_lines(error: ApiError, file: str, lines: Sequence[tuple[int, Any]]) -> ApiError | DocumentError:
    """Return a DocumentError with the file's line of each problem, or ``error`` if one has no line."""
    found = [(_POINTER.fullmatch(problem.pointer), problem.message) for problem in error.problems]
    if not found or not all(match for match, _ in found):
        return error
    places = [
        f"{file}:{lines[int(match['index'])][0]}: {match['rest'] or '/'}: {message}"
        for match, message in found
        if match is not None
    ]
    more = [f"… and {len(places) - MAX_FAILURES:,} more"] if len(places) > MAX_FAILURES else []
    return DocumentError("nothing was started\n  " + "\n  ".join(places[:MAX_FAILURES] + more))


async def _stay(begun: Mapping[str, Any], server: RemoteServer, *, quiet: bool) -> Mapping[str, Any]:
    """Show a batch until all its executions are terminal, and give it then."""
    loop = asyncio.get_running_loop()
    since = loop.time()
    progress = open_progress(
        begun["total"], stream=sys.stderr, quiet=quiet, environ=os.environ, noun="executions"
    )
    now, pause = begun, FIRST_LOOK_SECONDS
    try:
        while True:
            if progress is not None:
                progress.show(
                    ProgressSnapshot(loop.time() - since, _counts(now), retried=now.get("retried", 0))
                )
            if now["finished_at"] is not None:
                return now
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, LONGEST_LOOK_SECONDS)
            now = await server.ask(calls.batch(begun["id"]))
    finally:
        if progress is not None:
            progress.close()


def _counts(batch: Mapping[str, Any]) -> dict[NodeState, int]:
    counts: dict[NodeState, int] = {}
    for name, count in batch["counts"].items():
        state = _SHOWN_AS.get(ExecutionState(name)) or NodeState(name)
        counts[state] = counts.get(state, 0) + count
    return counts


async def _report(
    ended: Mapping[str, Any], server: RemoteServer, lines: Sequence[tuple[int, Any]], *, quiet: bool
) -> None:
    counts = {name: count for name, count in ended["counts"].items() if count}
    missing = ended["total"] - counts.get(ExecutionState.COMPLETED, 0)
    if quiet and not missing:
        return
    took = seconds_text(elapsed_seconds(ended["created_at"], ended["finished_at"]))
    words = [f"{count:,} {name.lower()}" for name, count in counts.items()]
    if retried := ended.get("retried", 0):
        words.append(f"{retried:,} retried")
    shown = ", ".join(words)
    write_error(f"{ended['total']:,} executions after {took}: {shown}\n")
    left = min(missing, MAX_FAILURES)
    if left == 0:
        return
    async for result in server.items(calls.batch_results(ended["id"]).sized(500)):
        if result["state"] != ExecutionState.COMPLETED:
            number, _ = lines[result["index"]]
            because = f": {why(result)}" if result["error"] else ""
            write_error(f"  line {number}: {result['execution']} {result['state']}{because}\n")
            left -= 1
            if left == 0:
                break
    if missing > MAX_FAILURES:
        write_error(f"  … and {missing - MAX_FAILURES:,} more\n")
