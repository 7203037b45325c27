"""``weft triggers``: what starts executions by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from weft.cli.printing import print_json, print_text, say
from weft.cli.server import AsJson, on_server
from weft.cli.table import age, facts, moment, table
from weft.definition.document import read_json, read_yaml
from weft.errors import WeftError
from weft.sdk import calls
from weft.sdk.loading import read_bytes

if TYPE_CHECKING:
    from weft.cli.server import RemoteServer
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
    triggers = _read(file)

    async def work(server: RemoteServer) -> int:
        stored = [await server.ask(calls.put_trigger(one["name"], one)) for one in triggers]
        if as_json:
            print_json({"items": stored})
        else:
            print_text(_listed(stored))
        return 0

    return on_server(work)


def _read(file: str) -> list[dict[str, Any]]:
    text = read_bytes(file, max_bytes=_MAX_BYTES)
    reader = read_json if file.lower().endswith(".json") else read_yaml
    value = reader(text, max_bytes=_MAX_BYTES, max_depth=100)
    triggers = value if isinstance(value, list) else [value]
    for place, one in enumerate(triggers):
        if not isinstance(one, dict) or not isinstance(one.get("name"), str) or not one["name"]:
            raise WeftError(f"{file}: trigger {place + 1} has no name; write name: and what it starts")
    return triggers


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
        found = await server.ask(calls.trigger(name))
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
    return _changed(calls.enable_trigger(name), as_json=as_json)


def disable(name: TriggerName, /, *, as_json: AsJson = False) -> int:
    """Let a trigger start nothing until it is enabled."""
    return _changed(calls.disable_trigger(name), as_json=as_json)


def _changed(call: ApiCall[Any], *, as_json: bool) -> int:
    async def work(server: RemoteServer) -> int:
        found = await server.ask(call)
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
    key: Annotated[str | None, Parameter(metavar="KEY", help="an idempotency key")] = None,
    as_json: AsJson = False,
) -> int:
    """Let a trigger start an execution now, and print its id."""

    async def work(server: RemoteServer) -> int:
        execution = await server.ask(calls.fire_trigger(name, key=key))
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
            plan = await server.ask(calls.backfill_plan(name, start, end))
            if as_json:
                print_json(plan)
            else:
                print_text("".join(f"{at}\n" for at in plan["due"]))
            return 0
        batch = await server.ask(calls.backfill_trigger(name, start, end, max_running=max_running))
        if as_json:
            print_json(batch)
        else:
            print_text(f"{batch['id']}\n")
        return 0

    return on_server(work)


def delete(name: TriggerName, /) -> int:
    """Delete a trigger; its executions stay."""

    async def work(server: RemoteServer) -> int:
        await server.ask(calls.delete_trigger(name))
        say(f"trigger {name} is deleted")
        return 0

    return on_server(work)
