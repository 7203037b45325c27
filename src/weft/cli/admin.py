"""The commands that look after a set-up: ``doctor``, ``migrate``, ``bench``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from weft.cli.local import loop_factory
from weft.cli.main import FAILED
from weft.cli.printing import print_json, print_text

if TYPE_CHECKING:
    from weft.settings import Settings

AsJson = Annotated[bool, Parameter("--json", help="print JSON")]
Data = Annotated[Path | None, Parameter(metavar="DIR", help="the data folder (.weft)")]


def doctor(*, as_json: AsJson = False) -> int:
    """Check the set-up, and say what to do about what is wrong with it."""
    from weft.cli.doctor import Health, examine
    from weft.cli.roles import HOST, PORT
    from weft.settings import read_settings

    settings, warnings = read_settings()
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


def migrate(
    *,
    check: Annotated[
        bool, Parameter(help="change nothing; exit code 1 where something is to be done")
    ] = False,
    data: Data = None,
) -> int:
    """Bring the schema of the data folder up to date, as `weft up` does by itself."""
    import asyncio

    from weft.journal.sqlite import FILE_NAME
    from weft.journal.sqlite_schema import pending
    from weft.settings import read_settings

    settings, _ = read_settings(flags={"data": data})
    missing = pending(settings.data / FILE_NAME)
    if missing and not check:
        asyncio.run(_migrate(settings))
    if missing:
        did = "still to be made; run `weft migrate`" if check else "made"
        print_text(f"{settings.data}: {did}: {', '.join(missing)}\n")
    else:
        print_text(f"{settings.data}: up to date\n")
    return FAILED if missing and check else 0


async def _migrate(settings: Settings) -> None:
    from weft.clock import RealClock
    from weft.embedded import new_id
    from weft.journal.sqlite import SqliteJournal

    journal = SqliteJournal(settings.data, now=RealClock().now, new_id=new_id)
    # Whoever opens it holds the folder, and migrates.
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
    from weft.core.plan import compile_plan
    from weft.core.time import MICROSECONDS
    from weft.embedded import Engine
    from weft.handlers.registry import Registry

    plan = compile_plan(_DIAMOND)
    async with Engine(registry=Registry(), settings=settings, data=folder, recovers=False) as engine:
        begun = engine.ports.clock.now()
        ids = await engine.submit_many(plan, document=_DIAMOND, inputs=[{}] * _EXECUTIONS)
        for execution_id in ids:
            await engine.wait(execution_id)
        return (engine.ports.clock.now() - begun) / MICROSECONDS
