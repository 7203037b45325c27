"""The commands that look after a set-up: ``doctor``, ``migrate``, ``bench``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from weft.cli.local import Trust, loop_factory
from weft.cli.main import FAILED
from weft.cli.printing import print_json, print_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.cli.server import RemoteServer
    from weft.journal.postgres.schema import Unfinished
    from weft.settings import Settings

AsJson = Annotated[bool, Parameter("--json", help="print JSON")]
Data = Annotated[Path | None, Parameter(metavar="DIR", help="the data folder (.weft)")]


def doctor(
    *,
    execution: Annotated[
        str | None,
        Parameter(metavar="ID", help="check the history of this execution, not the set-up"),
    ] = None,
    file: Annotated[
        str | None,
        Parameter(metavar="FILE", help="with --execution: its definition, where it was not stored by name"),
    ] = None,
    data: Data = None,
    trust: Trust = False,
    as_json: AsJson = False,
) -> int:
    """Check the set-up, and say what to do about what is wrong with it.

    With `--execution`: check what is stored of an execution against what weft promises, on the server, or
    with `--data` in the folder of a server that is stopped.
    """
    if execution is not None:
        return _examine(execution, file=file, data=data, as_json=as_json)
    from weft.cli.doctor.examine import examine
    from weft.cli.doctor.finding import Health
    from weft.cli.roles import HOST, PORT
    from weft.settings import read_settings

    settings, warnings = read_settings(flags={"data": data}, trusts_folder=trust)
    findings = list(examine(settings, warnings, url=os.environ.get("WEFT_URL") or f"http://{HOST}:{PORT}"))
    if as_json:
        checks = [
            {"check": one.check, "state": one.health, "message": one.message, "advice": one.advice}
            for one in findings
        ]
        print_json({"ok": all(one.health is not Health.FAIL for one in findings), "checks": checks})
    else:
        for one in findings:
            print_text(f"{one.health:<4}  {one.check:<9} {one.message}\n")
            if one.advice and one.health is not Health.OK:
                print_text(f"{'':16}→ {one.advice}\n")
    return FAILED if any(one.health is Health.FAIL for one in findings) else 0


def _examine(execution: str, *, file: str | None, data: Path | None, as_json: bool) -> int:
    import asyncio

    from weft.cli.identify import execution_id
    from weft.cli.server import on_server
    from weft.cli.trace import Trace, read_folder, read_server
    from weft.sdk.loading import read_value

    document = None if file is None else read_value(file)

    def report(trace: Trace) -> int:
        violations = trace.check()
        if as_json:
            found = [{name: getattr(one, name) for name in one.__struct_fields__} for one in violations]
            events = len(trace.history)
            print_json({"ok": not found, "execution": trace.execution, "events": events, "violations": found})
        else:
            of = f"execution {trace.execution}: {len(trace.history)} events, {len(trace.plan.nodes)} nodes"
            checked = "" if trace.stored is not None else "; it goes on, so its history alone was checked"
            print_text(f"{'fail' if violations else 'ok':<4}  {of}{checked}\n")
            print_text("".join(f"      {violation}\n" for violation in violations))
        return FAILED if violations else 0

    if data is not None:
        return report(asyncio.run(read_folder(data, execution)))

    async def work(server: RemoteServer) -> int:
        return report(await read_server(server, await execution_id(execution, server), document))

    return on_server(work)


def migrate(
    *,
    check: Annotated[
        bool, Parameter(help="change nothing; exit code 1 where something is to be done")
    ] = False,
    data: Data = None,
    as_json: AsJson = False,
) -> int:
    """Bring the schema of the journal up to date: of the data folder, or of WEFT_DATABASE_URL.

    `weft up` does it by itself. The roles of a fleet never do: they wait for it.
    """
    from weft.settings import read_settings

    settings, _ = read_settings(flags={"data": data})
    if settings.database_url is None:
        where, missing = str(settings.data), _migrate_folder(settings, check=check)
    else:
        where, missing = "the database", _migrate_database(settings.database_url, check=check)
    if as_json:
        described: dict[str, Any] = {"migrations": list(missing), "made": bool(missing) and not check}
        if check:
            _, unfinished = _unfinished(settings, limit=_ALL)
            described["unfinished"] = [
                {"execution": id_, "workflow": workflow, "state": state}
                for id_, workflow, state in unfinished
            ]
        print_json(described)
        return FAILED if missing and check else 0
    if missing:
        did = "still to be made; run `weft migrate`" if check else "made"
        print_text(f"{where}: {did}: {', '.join(missing)}\n")
    else:
        print_text(f"{where}: up to date\n")
    if check:
        print_text(_describe_unfinished(settings, missing))
    return FAILED if missing and check else 0


# Executions that `weft migrate --check` names as text; the others it counts. As JSON it names all.
_NAMED = 20
# More than there can be: the largest number of both databases.
_ALL = 2**63 - 1


def _describe_unfinished(settings: Settings, missing: Sequence[str]) -> str:
    """Describe the executions that are not terminal: they are in flight while the schema changes."""
    from weft.journal.postgres.schema import is_incompatible

    total, some = _unfinished(settings, limit=_NAMED)
    stop = ""
    if settings.database_url is not None and any(map(is_incompatible, missing)):
        stop = "stop every process of the fleet before you migrate: the older release cannot go on\n"
    if not total:
        return stop
    lines = [f"  {id_}  {state:<7}  {workflow or '-'}\n" for id_, workflow, state in some]
    if total > len(some):
        lines.append(f"  and {total - len(some):,} more\n")
    later = "; they go on after the migration" if missing else ""
    return f"{stop}not terminal: {total:,} executions{later}\n{''.join(lines)}"


def _unfinished(settings: Settings, *, limit: int) -> tuple[int, Sequence[Unfinished]]:
    """Count the executions that are not terminal, and list so many of them."""
    import asyncio

    from weft.journal.postgres import schema as postgres_schema
    from weft.journal.sqlite import schema as sqlite_schema
    from weft.journal.sqlite.journal import FILE_NAME

    if settings.database_url is None:
        return sqlite_schema.unfinished(settings.data / FILE_NAME, limit=limit)
    return asyncio.run(postgres_schema.unfinished(settings.database_url, limit=limit))


def _migrate_database(url: str, *, check: bool) -> list[str]:
    import asyncio

    from weft.errors import JournalError, SchemaError, UnreachableError
    from weft.journal.postgres import schema as postgres_schema

    try:
        return asyncio.run(postgres_schema.pending(url) if check else postgres_schema.migrate(url))
    except SchemaError:
        raise
    except JournalError as error:
        raise UnreachableError(f"WEFT_DATABASE_URL: {error}") from error


def _migrate_folder(settings: Settings, *, check: bool) -> list[str]:
    import asyncio

    from weft.journal.sqlite.journal import FILE_NAME
    from weft.journal.sqlite.schema import pending

    missing = pending(settings.data / FILE_NAME)
    if missing and not check:
        asyncio.run(_open_once(settings))
    return missing


async def _open_once(settings: Settings) -> None:
    from weft.clock import RealClock, new_id
    from weft.journal.sqlite.journal import SqliteJournal

    journal = SqliteJournal(settings.data, now=RealClock().now, new_id=new_id)
    # Opening a journal locks the folder and migrates the schema.
    await journal.open()
    await journal.close()


# --- A short benchmark: what this machine does with the smallest nodes there are.

_EXECUTIONS = 500
_DIAMOND: dict[str, Any] = {
    "name": "bench",
    "nodes": [
        {"id": "a", "handler": "echo", "config": {"value": 1}},
        *({"id": x, "handler": "echo", "dependencies": ["a"], "config": "{{ a.value }}"} for x in "bcd"),
        {"id": "e", "handler": "echo", "dependencies": ["b", "c", "d"], "config": "{{ b.output }}"},
    ],
}


def bench(*, as_json: AsJson = False) -> int:
    """Measure this machine: 500 executions of a → b, c, d → e, each result committed to the disk."""
    import asyncio
    import tempfile

    from weft.settings import read_settings

    settings, _ = read_settings()
    with tempfile.TemporaryDirectory() as folder, asyncio.Runner(loop_factory=loop_factory()) as runner:
        for _ in range(2):  # the first run pays for what is made once
            seconds = runner.run(_measure(settings, Path(folder)))
    figures = {
        "executions": _EXECUTIONS,
        "seconds": round(seconds, 4),
        "executions_per_second": round(_EXECUTIONS / seconds),
        "nodes_per_second": round(_EXECUTIONS * len(_DIAMOND["nodes"]) / seconds),
    }
    if as_json:
        print_json(figures)
    else:
        print_text("".join(f"{name.replace('_', ' '):<22} {value:>10,}\n" for name, value in figures.items()))
    return 0


async def _measure(settings: Settings, folder: Path) -> float:
    from weft.core.time import MICROSECONDS
    from weft.definition.plan import compile_plan
    from weft.engine import Engine
    from weft.handlers.registry import Registry

    plan = compile_plan(_DIAMOND)
    async with Engine(registry=Registry(), settings=settings, data=folder, recovers=False) as engine:
        begun = engine.ports.clock.now()
        ids = await engine.submit_many(plan, document=_DIAMOND, inputs=[{}] * _EXECUTIONS)
        for execution_id in ids:
            await engine.wait(execution_id)
        return (engine.ports.clock.now() - begun) / MICROSECONDS
