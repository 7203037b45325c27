"""``weft cancel --offline``: an execution is cancelled in the data folder of a server that cannot start."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from weft.cli.main import main
from weft.definition.plan import compile_plan
from weft.engine import Engine
from weft.handlers.registry import Registry
from weft.settings import Settings

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

NO_ID = "0198c5a2-6f1e-7c3a-9d2b-5e8f0a1b2c3d"
LONG: dict[str, Any] = {
    "name": "long",
    "nodes": [
        {"id": "wait", "handler": "sleep", "config": {"seconds": 200}},
        {"id": "after", "handler": "echo", "dependencies": ["wait"]},
    ],
}
SHORT: dict[str, Any] = {"name": "short", "nodes": [{"id": "a", "handler": "echo"}]}


def _engine(folder: Path) -> Engine:
    return Engine(registry=Registry(), settings=Settings(worker_grace_seconds=0.0), data=folder)


async def _submitted(folder: Path, definition: dict[str, Any], *, to_its_end: bool) -> str:
    """Submit an execution, and stop the engine: at its end, or in the midst of it."""
    async with _engine(folder) as engine:
        execution_id = await engine.submit(compile_plan(definition), document=definition, input={"x": 1})
        if to_its_end:
            await engine.wait(execution_id)
        return execution_id


def _weft(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    capsys.readouterr()
    code = main(arguments)
    shown = capsys.readouterr()
    assert "Traceback" not in shown.err
    return code, shown.out, shown.err


def test_an_execution_of_a_stopped_server_is_cancelled(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    execution_id = asyncio.run(_submitted(tmp_path, LONG, to_its_end=False))
    arguments = ("cancel", "--offline", "--data", str(tmp_path))
    # The random end of an id alone tells it from another of the same millisecond.
    code, out, err = _weft(capsys, *arguments, execution_id[:-2])
    assert (code, out, err) == (0, f"{execution_id} is CANCELLED\n", "")
    code, out, _ = _weft(capsys, *arguments, execution_id, "--json")
    shown = json.loads(out)
    assert (code, shown["state"], shown["input"], shown["live"]) == (0, "CANCELLED", {"x": 1}, True)
    assert shown["counts"]["CANCELLED"] == 2

    async def started_again() -> tuple[str, str | None]:
        async with _engine(tmp_path) as engine:
            row = await engine.wait(execution_id)
            events = await engine.ports.catalog.events(execution_id, after=0, limit=100)
            (cancelled,) = [event for event in events if event.type == "execution.cancelled"]
            return row.state, cancelled.actor

    assert asyncio.run(started_again()) == ("CANCELLED", "offline")


def test_what_cannot_be_cancelled_offline_is_refused_as_on_a_server(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    completed = asyncio.run(_submitted(tmp_path, SHORT, to_its_end=True))
    arguments = ("cancel", "--offline", "--data", str(tmp_path))
    for text, code, message in (
        (completed, 2, "is COMPLETED and cannot be cancelled"),
        (NO_ID, 3, "there is no execution"),
        ("abc", 2, "too short"),
    ):
        ended = _weft(capsys, *arguments, text)
        assert ended[:2] == (code, "")
        assert message in ended[2]


def test_a_folder_with_a_server_on_it_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def beside_a_server() -> str:
        async with _engine(tmp_path) as engine:
            execution_id = await engine.submit(compile_plan(LONG), document=LONG)
            arguments = ("cancel", "--offline", "--data", str(tmp_path), execution_id)
            code, _, err = await asyncio.to_thread(_weft, capsys, *arguments)
            row = await engine.ports.journal.execution(execution_id)
            assert row is not None
            return f"{code} {row.state} {err}"

    ended = asyncio.run(beside_a_server())
    assert ended.startswith("2 RUNNING weft: the data folder")
    assert "is in use by process" in ended


def test_a_folder_without_a_journal_is_refused_and_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = _weft(capsys, "cancel", "--offline", "--data", str(tmp_path), NO_ID)
    assert (code, list(tmp_path.iterdir())) == (2, [])
    assert "is no data folder of weft" in err
    code, _, err = _weft(capsys, "cancel", "--data", str(tmp_path), NO_ID)
    assert code == 2
    assert "--offline" in err
