"""Real graphs through REST, as ``./dev dags`` runs them; more than a tenth of those it was made for."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from tests.operation.serving import ROOT, Api
from tests.rest_replay import replay_over_rest
from tests.tracecheck import DrawnNode
from tests.walks.replay import FILES, FOLDER, plain, read, structural, with_rules
from tests.walks.replay import registry as replay_registry

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.api.conftest import Serve

    from weft.handlers.registry import Registry

SLOTS = 8
GROUPS = sorted({file.partition("/")[0] for file in FILES})


@pytest.fixture
def registry() -> Registry:
    return replay_registry()


@pytest.mark.parametrize("group", GROUPS)
async def test_the_real_graphs_of_a_group_run_over_rest_as_they_are_drawn(group: str, serve: Serve) -> None:
    wrong: dict[str, list[str]] = {}
    async with serve(worker_concurrency=SLOTS) as server, Api(server.url) as api:
        for file in FILES:
            if file.startswith(f"{group}/"):
                dag = read(file)
                for replay, name in ((structural(dag), "graph"), (with_rules(dag, seed=2), "rules")):
                    found = await replay_over_rest(replay, f"{dag['name']}-{name}", api, slots=SLOTS)
                    wrong |= {f"{file} ({name})": found} if found else {}
    assert wrong == {}


# --- The checks themselves: each kind of wrong answer is seen for what it is.


class Liar(Api):
    """Speaks to a real server, and changes what it says."""

    def __init__(self, url: str, lie: Callable[[str, Any], Any]) -> None:
        super().__init__(url)
        self._lie = lie

    async def get(self, path: str) -> Any:
        return self._lie(path.partition("?")[0].rpartition("/")[2], await super().get(path))


def without_an_event(what: str, said: Any) -> Any:
    return {**said, "items": said["items"][:2] + said["items"][3:]} if what == "events" else said


def with_another_output(what: str, said: Any) -> Any:
    if what != "events":
        said["nodes"][1]["output"] = "0000"
    return said


def with_another_time(what: str, said: Any) -> Any:
    if what == "events":
        said["items"][2]["started_at"] = "2024-01-01T00:00:00.000000Z"
    return said


def settled_twice(what: str, said: Any) -> Any:
    if what == "events":
        said["items"].insert(4, {**said["items"][3], "seq": 5})
        for number, event in enumerate(said["items"], 1):
            event["seq"] = number
    return said


def with_other_counts(what: str, said: Any) -> Any:
    if what != "events":
        said["counts"]["SKIPPED"] += 1
    return said


def not_at_the_end(what: str, said: Any) -> Any:
    return {**said, "items": said["items"][:-1]} if what == "events" else said


@pytest.mark.parametrize(
    ("lie", "word"),
    [
        (without_an_event, "I18 event 4: it follows event 2"),
        (with_another_output, "I7 stored: b: its output is stored as"),
        (with_another_time, "a: its started_at is stored as"),
        (settled_twice, "b: two results were accepted in generation 1"),
        (with_other_counts, "I11 stored: its counts add up to 4 of 3 nodes"),
        (not_at_the_end, "I18 stored: its state is stored as COMPLETED, its history says RUNNING"),
    ],
)
async def test_a_wrong_answer_is_seen(lie: Callable[[str, Any], Any], word: str, serve: Serve) -> None:
    replay = plain((DrawnNode("a", ()), DrawnNode("b", ("a",)), DrawnNode("c", ("a", "b"))))
    async with serve(data=None) as server:
        async with Api(server.url) as api:
            assert await replay_over_rest(replay, "told", api, slots=SLOTS) == []
        async with Liar(server.url, lie) as api:
            wrong = await replay_over_rest(replay, "lied", api, slots=SLOTS)
    assert any(word in sentence for sentence in wrong), wrong


def dags(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.dags_command", str(folder)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)


def test_the_command_runs_every_graph_of_a_folder_through_a_server(tmp_path: Path) -> None:
    folder = tmp_path / "some"
    folder.mkdir()
    for file in FILES[:2]:
        shutil.copy(FOLDER / file, folder)

    ended = dags(tmp_path)

    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "2 DAGs, 4 executions" in ended.stdout
    assert "all as drawn" in ended.stdout


def test_the_command_fails_where_a_graph_does(tmp_path: Path) -> None:
    folder = tmp_path / "some"
    folder.mkdir()
    dag = {"name": "ring", "nodes": [{"id": "a", "depends_on": ["b"]}, {"id": "b", "depends_on": ["a"]}]}
    (folder / "ring.json").write_text(json.dumps(dag))

    ended = dags(tmp_path)

    assert ended.returncode == 1, ended.stdout + ended.stderr
    assert "some/ring.json (graph)\n  deploying gave 422" in ended.stdout


def test_the_command_needs_a_folder_with_graphs(tmp_path: Path) -> None:
    assert dags(tmp_path).returncode == 2
