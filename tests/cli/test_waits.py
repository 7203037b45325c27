"""``weft waits``, ``answer`` and ``signal``, and what the other commands show of a node that waits."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from tests.background import serving

from weft import Client

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Shell

CHOICE = {"enum": ["approve", "reject"]}


def approval(node_id: str = "approval", **config: Any) -> dict[str, Any]:
    return {"id": node_id, "handler": "wait", "config": config}


def waiting(shell: Shell, name: str, *nodes: dict[str, Any]) -> str:
    """Return the id of an execution of these nodes, once all wait."""
    shell.client.deploy({"name": name, "nodes": list(nodes)})
    execution_id = shell.client.start(name).id
    unseen = len(nodes)
    for event in shell.client.watch(execution_id):
        unseen -= event.type == "node.waiting"
        if not unseen:
            break
    return execution_id


def test_what_waits_is_listed(shell: Shell, fresh: str) -> None:
    assert shell.weft("waits", "--workflow", fresh).err == "weft: nothing waits for an answer\n"
    nodes = [approval(prompt="Apply {{ 1 + 2 }} changes?", expires_seconds=3600), approval("other")]
    execution_id = waiting(shell, fresh, *nodes)
    listed = shell.weft("waits", "--execution", execution_id[:18])
    heading, first, second = listed.out.splitlines()
    assert heading.split() == ["EXECUTION", "NODE", "SIGNAL", "SINCE", "EXPIRES", "PROMPT"]
    assert first.startswith(f"{execution_id}  approval  approval  ")
    assert first.endswith("  Apply 3 changes?")
    assert second.split()[-2:] == ["-", "-"]
    (shown,) = shell.weft("waits", "--workflow", fresh, "--signal", "other", "--json").json["items"]
    assert (shown["execution"], shown["node"], shown["expires_at"]) == (execution_id, "other", None)
    assert len(shell.weft("waits", "--workflow", fresh, "--limit", "1", "--json").json["items"]) == 1
    assert shell.weft("waits", "--limit", "0").code == 2


@pytest.mark.parametrize(
    ("text", "value"), [("approve", "approve"), ("-5", -5), ('{"a": 1}', {"a": 1}), ("null", None)]
)
def test_an_answer_is_read_as_json_or_else_as_text(shell: Shell, fresh: str, text: str, value: Any) -> None:
    execution_id = waiting(shell, fresh, approval())
    answered = shell.weft("answer", execution_id[:18], "approval", text)
    assert (answered.code, answered.out) == (0, "approval is COMPLETED\n")
    ended = shell.client.wait(execution_id, timeout_seconds=60)
    assert ended.node("approval").output["value"] == value


def test_an_answer_that_is_refused_says_why(shell: Shell, fresh: str) -> None:
    execution_id = waiting(shell, fresh, approval(schema=CHOICE))
    misfit = shell.weft("answer", execution_id, "approval", "maybe")
    assert (misfit.code, misfit.out) == (2, "")
    assert "/value" in misfit.err
    misspelled = shell.weft("answer", execution_id, "aproval", "approve")
    assert (misspelled.code, "did you mean 'approval'" in misspelled.err) == (3, True)
    answered = shell.weft("answer", execution_id, "approval", "approve", "--json")
    assert answered.json["output"]["value"] == "approve"
    again = shell.weft("answer", execution_id, "approval", "reject")
    assert (again.code, "does not wait for an answer" in again.err) == (2, True)


def test_a_signal_answers_or_is_kept(shell: Shell, fresh: str) -> None:
    execution_id = waiting(shell, fresh, approval(signal="go"))
    assert shell.weft("signal", execution_id, "later").out == "kept: no node waits for later yet\n"
    sent = shell.weft("signal", execution_id[:18], "go", '{"amount": 7}')
    assert (sent.code, sent.out) == (0, "answered approval\n")
    ended = shell.client.wait(execution_id, timeout_seconds=60)
    assert ended.node("approval").output["value"] == {"amount": 7}
    assert shell.weft("signal", execution_id, "go").code == 2


def test_the_same_key_sends_a_signal_once(shell: Shell, fresh: str) -> None:
    execution_id = waiting(shell, fresh, approval(signal="go"), approval("hold"))
    for _ in range(2):
        sent = shell.weft("signal", execution_id, "go", "1", "--key", fresh, "--json")
        assert sent.json == {"answered": "approval"}
    received = [one for one in shell.client.events(execution_id) if one.type == "signal.received"]
    assert [(one.node, one.signal) for one in received] == [("approval", "go")]
    history = shell.weft("events", execution_id).out
    assert any("signal.received" in line and "signal go, by local" in line for line in history.splitlines())


def test_show_says_since_and_until_when_a_node_waits_and_what_it_asks(shell: Shell, fresh: str) -> None:
    nodes = [approval(prompt="Apply?", schema=CHOICE, expires_seconds=3600), approval("timer", seconds=3600)]
    execution_id = waiting(shell, fresh, *nodes)
    shown = shell.weft("show", execution_id)
    lines = {line.split()[0]: line for line in shown.out.splitlines() if line.strip()}
    assert lines["nodes"].split(maxsplit=1)[1] == "2 waiting"
    assert lines["approval"].split()[1:3] == ["WAITING", "1"]
    assert "waits for an answer, " in lines["approval"]
    assert ", until " in lines["approval"]
    assert lines["approval"].endswith(": Apply?")
    assert "waits, " in lines["timer"]
    node = shell.weft("show", execution_id, "approval")
    facts = dict(line.split(maxsplit=1) for line in node.out.splitlines() if len(line.split()) > 1)
    assert (facts["state"], facts["prompt"]) == ("WAITING", "Apply?")
    assert "due" in facts
    assert (facts["answers"], facts["to"]) == (
        "approve | reject",
        f"answer  weft answer {execution_id} approval VALUE",
    )
    explained = shell.weft("explain", execution_id, "approval")
    assert "waiting_for_signal" in explained.out


def test_watch_says_what_is_waited_for_and_how_it_is_answered(shell: Shell, fresh: str) -> None:
    execution_id = waiting(shell, fresh, approval(prompt="Apply?"))
    watching = subprocess.Popen(
        [sys.executable, "-m", "weft", "watch", execution_id],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with watching:
        assert watching.stderr is not None
        assert watching.stderr.readline() == "WAITING approval for an answer: Apply?\n"
        assert watching.stderr.readline() == f"  weft answer {execution_id} approval VALUE\n"
        assert shell.weft("answer", execution_id, "approval", "yes").code == 0
        out, err = watching.communicate(timeout=30)
    assert (watching.returncode, json.loads(out)["approval"]["value"]) == (0, "yes")
    assert err.startswith("COMPLETED  approval")
    # What has been answered is not told as waiting.
    assert "WAITING" not in shell.weft("watch", execution_id).err


@pytest.mark.parametrize("keeps", [False, True])
def test_run_says_what_it_waits_for_and_ctrl_c_ends_it(tmp_path: Path, keeps: bool) -> None:
    file = tmp_path / "flow.json"
    file.write_text(json.dumps({"name": "flow", "nodes": [approval(prompt="Apply?")]}))
    command = [sys.executable, "-m", "weft", "run", str(file), *(["--data", "kept"] if keeps else [])]
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        assert running.stderr is not None
        assert running.stderr.readline() == "WAITING approval for an answer: Apply?\n"
        how = running.stderr.readline()
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=60)
    assert (running.returncode, out) == (130, "")
    assert "Traceback" not in err
    if keeps:
        assert "weft up --data kept, then weft answer " in how
        assert "waits on; to go on with it: weft up --data kept\n" in err
    else:
        assert "nobody can answer it here" in how
        assert "CANCELLED after" in err


def test_what_run_has_left_waiting_is_answered_by_a_server(tmp_path: Path) -> None:
    file = tmp_path / "flow.json"
    file.write_text(json.dumps({"name": "flow", "nodes": [approval()]}))
    command = [sys.executable, "-m", "weft", "run", str(file), "--data", str(tmp_path / "kept")]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as running:
        assert running.stderr is not None
        running.stderr.readline()
        execution_id = running.stderr.readline().split()[-3]
        running.kill()
    with serving(tmp_path / "kept") as server, Client(server.url) as client:
        assert client.answer(execution_id, "approval", "yes").output["value"] == "yes"
        assert client.wait(execution_id, timeout_seconds=60).state == "COMPLETED"
