"""``weft triggers``: what starts executions by itself."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from weft.cli.printing import definition_error, print_json, print_text, say
from weft.cli.remote import Key  # noqa: TC001 - the parser reads the annotations
from weft.cli.server import AsJson, on_server
from weft.cli.table import age, facts, moment, table
from weft.definition.bounds import DEFAULT_BOUNDS
from weft.definition.source_lines import with_lines
from weft.definition.suggestion import Suggester
from weft.errors import ApiError, DocumentError, NotFoundError
from weft.sdk import calls
from weft.sdk.loading import parse, read_bytes
from weft.triggers.definition import read_trigger

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from weft.cli.server import RemoteServer
    from weft.errors import Problem
    from weft.sdk.calls import ApiCall

TriggerName = Annotated[str, Parameter(help="the name of a trigger")]

_MAX_BYTES = 256 * 1024
_KINDS = ("schedule", "event", "webhook")


def apply(
    file: Annotated[
        str,
        Parameter(allow_leading_hyphen=True, help="YAML or JSON: a trigger, or a list of them; - is stdin"),
    ],
    /,
    *,
    as_json: AsJson = False,
) -> int:
    """Store the triggers of a file; one that is stored already stays as it is."""
    written = _read(file)

    async def work(server: RemoteServer) -> int:
        stored: list[dict[str, Any]] = []
        for one in written:
            try:
                stored.append(await server.ask(calls.put_trigger(one.document["name"], one.document)))
            except ApiError as error:
                raise _refused(one, error, file, stored) from error
        if as_json:
            print_json({"items": stored})
        else:
            print_text(_listed(stored))
        return 0

    return on_server(work)


@dataclass(frozen=True, slots=True)
class _Written:
    """A trigger of a file."""

    document: dict[str, Any]
    # Its place in the file's document.
    pointer: str
    text: bytes

    def located(self, problems: Sequence[Problem]) -> list[Problem]:
        """Return problems of the trigger, with their lines in the file."""
        moved = [replace(problem, pointer=self.pointer + problem.pointer) for problem in problems]
        return with_lines(moved, self.text)


def _read(file: str) -> list[_Written]:
    """Read the triggers of a file, or raise DocumentError with all that is wrong with them."""
    text = read_bytes(file, max_bytes=_MAX_BYTES)
    value = parse(file, text, replace(DEFAULT_BOUNDS, max_body_bytes=_MAX_BYTES))
    documents = value if isinstance(value, list) else [value]
    written = []
    problems: list[Problem] = []
    for place, document in enumerate(documents):
        one = _Written(document, f"/{place}" if isinstance(value, list) else "", text)
        checked = read_trigger(document, name=None, bounds=DEFAULT_BOUNDS)
        if isinstance(checked, list):
            problems += one.located(checked)
        written.append(one)
    if problems:
        raise definition_error(file, problems)
    return written


def _refused(
    one: _Written, error: ApiError, file: str, stored: Sequence[Mapping[str, Any]]
) -> DocumentError | ApiError:
    """Return the server's problems of a trigger with their lines, and what was stored before it."""
    if error.code != "invalid_request":
        return error
    text = str(definition_error(file, one.located(error.problems)))
    if stored:
        text += f"\nstored before that: {', '.join(each['name'] for each in stored)}"
    return DocumentError(text)


def list_(
    *,
    workflow: Annotated[str | None, Parameter(metavar="NAME", help="of this workflow")] = None,
    as_json: AsJson = False,
) -> int:
    """List triggers by name."""

    async def work(server: RemoteServer) -> int:
        items = [item async for item in server.items(calls.triggers(workflow=workflow))]
        if as_json:
            print_json({"items": items})
        elif items:
            print_text(_listed(items))
        else:
            say("there are no triggers")
        return 0

    return on_server(work)


def _listed(items: list[dict[str, Any]]) -> str:
    rows = [
        [
            one["name"],
            one["workflow"],
            _starts_at(one),
            moment(one["next_at"]) if one["enabled"] else "disabled",
            "" if one["error"] is None else one["error"]["code"],
        ]
        for one in items
    ]
    return table(["NAME", "WORKFLOW", "STARTS AT", "NEXT", "ERROR"], rows)


def _starts_at(trigger: dict[str, Any]) -> str:
    """Return in a few words what a trigger starts at."""
    kind = next(name for name in _KINDS if name in trigger)
    said = trigger[kind]
    if kind == "event":
        return f"event {said['type']}"
    if kind == "webhook":
        return f"webhook ({said['scheme']})"
    if "cron" in said:
        return f"{said['cron']} {said['timezone']}"
    return f"every {said['every_seconds']:g} s"


def show(name: TriggerName, /, *, as_json: AsJson = False) -> int:
    """Show a trigger with its next due time, its last error and its last executions."""

    async def work(server: RemoteServer) -> int:
        found = await _ask(name, calls.trigger(name), server)
        if as_json:
            print_json(found)
            return 0
        error = found["error"]
        said = {
            "trigger": found["name"],
            "workflow": f"{found['workflow']} ({found['version']})",
            "starts at": _starts_at(found),
            "enabled": "yes" if found["enabled"] else "no",
            "next": moment(found["next_at"]),
            "overlap": found["overlap"],
            "skipped": f"{found['skipped']}, last {moment(found['skipped_at'])}"
            if found["skipped"]
            else None,
            "error": f"{error['code']}, {moment(error['at'])}: {error['message']}" if error else None,
        }
        print_text(facts(said))
        rows = [[one["id"], one["state"], age(one["created_at"])] for one in found["executions"]]
        if rows:
            print_text("\n" + table(["EXECUTION", "STATE", "AGE"], rows))
        return 0

    return on_server(work)


def enable(name: TriggerName, /, *, as_json: AsJson = False) -> int:
    """Let a trigger start executions from now on."""
    return _changed(name, calls.enable_trigger(name), as_json=as_json)


def disable(name: TriggerName, /, *, as_json: AsJson = False) -> int:
    """Let a trigger start nothing until it is enabled."""
    return _changed(name, calls.disable_trigger(name), as_json=as_json)


def _changed(name: str, call: ApiCall[Any], *, as_json: bool) -> int:
    async def work(server: RemoteServer) -> int:
        found = await _ask(name, call, server)
        if as_json:
            print_json(found)
        else:
            print_text(_listed([found]))
        return 0

    return on_server(work)


def fire(
    name: TriggerName,
    /,
    *,
    key: Key = None,
    as_json: AsJson = False,
) -> int:
    """Let a trigger start an execution now, and print its id."""

    async def work(server: RemoteServer) -> int:
        execution = await _ask(name, calls.fire_trigger(name, key=key), server)
        if as_json:
            print_json(execution)
        else:
            print_text(f"{execution['id']}\n")
        return 0

    return on_server(work)


def backfill(
    name: TriggerName,
    /,
    *,
    start: Annotated[str, Parameter("--from", metavar="TIME", help="due times at or after this (RFC 3339)")],
    end: Annotated[str, Parameter("--to", metavar="TIME", help="and before this")],
    max_running: Annotated[int | None, Parameter(metavar="N", help="so many run at once")] = None,
    dry_run: Annotated[bool, Parameter(help="list the due times, and start nothing")] = False,
    as_json: AsJson = False,
) -> int:
    """Start a batch over the due times of a span, and print its id."""

    async def work(server: RemoteServer) -> int:
        if dry_run:
            plan = await _ask(name, calls.backfill_plan(name, start, end), server)
            if as_json:
                print_json(plan)
            else:
                print_text("".join(f"{at}\n" for at in plan["due"]))
            return 0
        call = calls.backfill_trigger(name, start, end, max_running=max_running)
        batch = await _ask(name, call, server)
        if as_json:
            print_json(batch)
        else:
            print_text(f"{batch['id']}\n")
        return 0

    return on_server(work)


def delete(name: TriggerName, /, *, as_json: AsJson = False) -> int:
    """Delete a trigger; its executions stay."""

    async def work(server: RemoteServer) -> int:
        found = await _ask(name, calls.trigger(name), server)
        await _ask(name, calls.delete_trigger(name), server)
        if as_json:
            print_json(found)
        else:
            print_text(f"{name} is deleted\n")
        return 0

    return on_server(work)


async def _ask(name: str, call: ApiCall[Any], server: RemoteServer) -> Any:
    """Ask something of a trigger by its name; one that is unknown may have been spelled wrong."""
    try:
        return await server.ask(call)
    except ApiError as error:
        if error.code != "not_found":
            raise
        known = {item["name"] async for item in server.items(calls.triggers())}
        if name in known:  # what is missing is its workflow
            raise
        hint = Suggester().hint(name, known)
        raise NotFoundError(f"there is no trigger {name!r}{hint}") from error
