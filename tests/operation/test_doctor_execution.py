"""``weft doctor --execution``: the history of an execution, on a server and in its folder."""

from __future__ import annotations

import asyncio
import json
import shutil
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

from tests.operation.serving import serving
from tests.operation.test_admin import weft

from weft.cli.trace import read_folder
from weft.journal.sqlite.journal import FILE_NAME

if TYPE_CHECKING:
    from pathlib import Path
    from subprocess import CompletedProcess

DEFINITION: dict[str, Any] = {
    "name": "examined",
    "failure_policy": "continue",
    "nodes": [
        {"id": "a", "handler": "echo", "config": {"text": "ä 1.0", "numbers": [1, 2.5, 1e300, None]}},
        {"id": "bad", "handler": "echo", "dependencies": ["a"], "config": "{{ a.missing }}"},
        {"id": "behind", "handler": "echo", "dependencies": ["bad"]},
        {"id": "handler", "handler": "echo", "dependencies": ["bad"], "trigger_rule": "one_failed"},
        {"id": "unasked", "handler": "echo", "dependencies": ["a"], "condition": "a.text == 'b'"},
    ],
}
LONG: dict[str, Any] = {"name": "long", "nodes": [{"id": "a", "handler": "sleep", "config": {"seconds": 60}}]}


async def doctor(folder: Path, *arguments: str, **variables: str) -> CompletedProcess[str]:
    return await asyncio.to_thread(weft, folder, "doctor", *arguments, **variables)


async def test_an_execution_is_checked_on_the_server_and_in_its_folder(tmp_path: Path) -> None:
    (tmp_path / "examined.json").write_text(json.dumps(DEFINITION))
    async with serving(tmp_path / "data") as (server, api):
        url = {"WEFT_URL": api.url}
        assert (await api.call("POST", "/v1/workflows", DEFINITION))[0] == 201
        _, by_name, _ = await api.call("POST", "/v1/workflows/examined/executions")
        inline = await api.start(DEFINITION)
        for execution_id in (by_name["id"], inline):
            assert (await api.terminal(execution_id))["state"] == "COMPLETED"

        ended = await doctor(tmp_path, "--execution", by_name["id"], **url)
        assert (ended.returncode, ended.stderr) == (0, "")
        assert ended.stdout == f"ok    execution {by_name['id']}: 8 events, 5 nodes\n"

        ended = await doctor(tmp_path, "--execution", by_name["id"][:18], "--json", **url)
        report = json.loads(ended.stdout)
        assert report == {"ok": True, "execution": by_name["id"], "events": 8, "violations": []}

        # Of a definition that came with its execution the server shows nothing.
        ended = await doctor(tmp_path, "--execution", inline, **url)
        assert ended.returncode == 2
        assert "name its file with --file" in ended.stderr
        ended = await doctor(tmp_path, "--execution", inline, "--file", "examined.json", **url)
        assert (ended.returncode, ended.stderr) == (0, "")

        other = by_name["id"][:-1] + ("0" if by_name["id"][-1] != "0" else "1")
        assert (await doctor(tmp_path, "--execution", other, **url)).returncode == 3

        # The folder is the server's while it runs.
        ended = await doctor(tmp_path, "--execution", inline, "--data", "data")
        assert ended.returncode == 2
        assert "is in use by process" in ended.stderr
        await server.stop()

    ended = await doctor(tmp_path, "--execution", inline, "--data", "data")
    assert (ended.returncode, ended.stderr) == (0, "")
    ended = await doctor(tmp_path, "--execution", inline, "--data", "elsewhere")
    assert ended.returncode == 2
    assert not (tmp_path / "elsewhere").exists()


async def test_an_execution_that_runs_and_one_that_was_cancelled_are_in_order(tmp_path: Path) -> None:
    (tmp_path / "long.json").write_text(json.dumps(LONG))
    async with serving(tmp_path / "data") as (_, api):
        arguments = ("--execution", await api.start(LONG), "--file", "long.json")
        ended = await doctor(tmp_path, *arguments, WEFT_URL=api.url)
        assert (ended.returncode, ended.stderr) == (0, "")
        await api.call("POST", f"/v1/executions/{arguments[1]}/cancel")
        ended = await doctor(tmp_path, *arguments, WEFT_URL=api.url)
        assert (ended.returncode, ended.stderr) == (0, "")


FORGERIES = {
    "UPDATE nodes SET state = 'COMPLETED' WHERE node_id = 'bad'": "I18 stored: bad: its state is stored as",
    "UPDATE nodes SET attempt = 2 WHERE node_id = 'a'": "I5 event 3: a: attempt 2 ended, and 1 was",
    "UPDATE progress SET skipped = 1": "I11 stored: 1 nodes are counted as SKIPPED, its history has 2",
    "UPDATE nodes SET recorded_at = NULL WHERE node_id = 'a'": "I18 event 4: it follows event 2",
    "DELETE FROM events WHERE seq = 5": "I18 event 6: it follows event 4",
    "DELETE FROM dead_letters": "I23 stored: bad: its failure in generation 1 left no dead letter",
}


async def test_what_was_changed_behind_its_back_is_found(tmp_path: Path) -> None:
    async with serving(tmp_path / "data") as (server, api):
        execution_id = await api.start(DEFINITION)
        await api.terminal(execution_id)
        await server.stop()
    for number, (statement, sentence) in enumerate(FORGERIES.items()):
        data = tmp_path / str(number)
        shutil.copytree(tmp_path / "data", data)
        with closing(sqlite3.connect(data / FILE_NAME)) as connection, connection:
            assert connection.execute(statement).rowcount
        found = [*map(str, (await read_folder(data, execution_id)).check())]
        assert any(line.startswith(sentence) for line in found), found
    ended = await doctor(tmp_path, "--execution", execution_id, "--data", str(data))
    assert ended.returncode == 1
    assert ended.stdout == f"fail  execution {execution_id}: 8 events, 5 nodes\n      {sentence}\n"
