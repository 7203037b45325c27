from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from weft.cli.table import facts, table

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Shell

GOOD = "name: {name}\nnodes:\n  - {{id: a, handler: echo, config: {config}}}\n"
BAD = "name: bad\nnodes:\n  - {id: a, handler: ecko}\n  - {id: b, handler: echo, dependencies: [c]}\n"
NO_ID = "0198c5a2-6f1e-7c3a-9d2b-5e8f0a1b2c3d"


# --- deploy


def test_a_file_is_deployed_and_its_version_printed(shell: Shell, tmp_path: Path, fresh: str) -> None:
    file = tmp_path / "flow.yaml"
    file.write_text(GOOD.format(name=fresh, config=1))
    assert shell.weft("deploy", str(file)).out == f"{fresh} version 1\n"
    assert shell.weft("deploy", str(file), "--alias", "prod").out == f"{fresh} version 1, prod\n"
    file.write_text(GOOD.format(name=fresh, config=2))
    ended = shell.weft("deploy", str(file), "--json")
    assert (ended.code, ended.err) == (0, "")
    assert (ended.json["name"], ended.json["version"]) == (fresh, 2)
    assert shell.client.workflow(fresh, version="prod").version == 1


def test_the_problems_of_a_definition_are_those_of_validate(shell: Shell, tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text(BAD)
    deployed, validated = shell.weft("deploy", str(file)), shell.weft("validate", str(file))
    assert (deployed.code, deployed.out, validated.code) == (2, "", 2)
    for line, pointer in ((3, "/nodes/0/handler: "), (4, "/nodes/1/dependencies/0: ")):
        assert f"{file}:{line}: {pointer}" in deployed.err
        assert f"bad.yaml:{line}: {pointer}" in validated.err


def test_deploy_names_the_functions_that_no_worker_may_call(shell: Shell, tmp_path: Path, fresh: str) -> None:
    file = tmp_path / f"flow_{fresh}.py"
    file.write_text(
        f"""
from weft import Workflow

flow = Workflow("f{fresh}")


@flow.node
def fetch():
    return 1


@flow.node
def store(fetch):
    return 2
"""
    )
    ended = shell.weft("deploy", f"{file}:flow")
    assert (ended.code, ended.out) == (0, f"f{fresh} version 1\n")
    first, second = ended.err.splitlines()
    assert first == (
        f"weft: {file}:flow: warning: /nodes/0/config/function: "
        f"no living worker may call 'flow_{fresh}:fetch': "
        "serve the file that has it (`weft up FILE.py` or `weft dev FILE.py`), or name it in "
        "WEFT_PYTHON_ALLOW and its module in WEFT_IMPORTS"
    )
    assert f"'flow_{fresh}:store'" in second


@pytest.mark.parametrize("text", ["{", "nodes: [", "a: 1\na: 2", ""])
def test_text_that_is_no_definition_is_exit_code_2(text: str, shell: Shell, tmp_path: Path) -> None:
    for name in ("flow.json", "flow.yaml", "flow"):
        (tmp_path / name).write_text(text)
        for command in ("deploy", "validate"):
            ended = shell.weft(command, str(tmp_path / name))
            assert (ended.code, ended.out) == (2, "")
            assert ended.err.startswith("weft: ")


def test_a_file_that_does_not_exist_is_exit_code_2(shell: Shell) -> None:
    ended = shell.weft("deploy", "no-such-file.yaml")
    assert (ended.code, ended.err) == (2, "weft: no-such-file.yaml: no such file\n")


# --- start


def test_start_prints_the_id_alone(shell: Shell, fresh: str, tmp_path: Path) -> None:
    (tmp_path / "input.json").write_text('{"number": 1, "other": 2}')
    flags = ["--input-file", str(tmp_path / "input.json"), "--input", "number=7", "--input", "text=a b"]
    ended = shell.weft("start", "order", *flags, "--label", f"test={fresh}", "--priority", "low")
    assert (ended.code, ended.err) == (0, "")
    execution = shell.client.wait(ended.out.strip())
    assert execution.input == {"number": 7, "other": 2, "text": "a b"}
    assert (execution.labels, execution.priority) == ({"test": fresh}, "low")


def test_start_and_wait_prints_the_output_and_shows_progress_on_stderr(shell: Shell) -> None:
    ended = shell.weft("start", "order", "--input", "number=7", "--wait")
    assert (ended.code, ended.json) == (0, {"label": "parcel 7"})
    assert "COMPLETED  order" in ended.err
    assert ": 2 completed" in ended.err
    quiet = shell.weft("start", "order", "--input", "number=7", "--wait", "--quiet")
    assert (quiet.code, quiet.err) == (0, "")
    whole = shell.weft("start", "order", "--input", "number=7", "--wait", "--json").json
    assert (whole["state"], [node["id"] for node in whole["nodes"]]) == ("COMPLETED", ["order", "label"])


def test_an_execution_that_fails_is_exit_code_1_and_says_why(shell: Shell, fresh: str) -> None:
    ended = shell.weft("start", "fragile", "--input", f'gate="{fresh}"', "--wait")
    assert (ended.code, ended.out) == (1, "")
    assert f"failed: crack: handler_error: it cracked at {fresh}" in ended.err
    assert "skipped (upstream_failed, crack): last" in ended.err
    assert '    raise NonRetryable(f"it cracked at {config}")\n' in ended.err


def test_the_same_key_starts_nothing_anew(shell: Shell, fresh: str) -> None:
    first, second = (
        shell.weft("start", "order", "--input", "number=7", "--key", fresh).out for _ in range(2)
    )
    assert first == second
    conflict = shell.weft("start", "order", "--input", "number=8", "--key", fresh)
    assert conflict.code == 2


def test_a_name_that_is_nearly_right_is_pointed_out(shell: Shell) -> None:
    ended = shell.weft("start", "ordr")
    assert (ended.code, ended.out) == (3, "")
    assert ended.err == "weft: there is no workflow 'ordr'; did you mean 'order'?\n"
    assert "did you mean" not in shell.weft("start", "order", "--version", "99").err
    assert shell.weft("start", "order", "--version", "99").code == 3


@pytest.mark.parametrize(
    "flags",
    [["--input", "number"], ["--label", "x"], ["--priority", "urgent"], ["--label", "A=b"], ["--key", ""]],
)
def test_bad_flags_are_exit_code_2(flags: list[str], shell: Shell) -> None:
    ended = shell.weft("start", "order", *flags)
    assert (ended.code, ended.out) == (2, "")


# --- list and show


def test_executions_are_listed_newest_first_and_by_filter(shell: Shell, fresh: str) -> None:
    label = f"test={fresh}"
    ids = [
        shell.weft("start", "order", "--input", "number=1", "--label", label).out.strip() for _ in range(3)
    ]
    for one in ids:
        shell.client.wait(one)
    ended = shell.weft("list", "--label", label, "--workflow", "order", "--state", "completed")
    heading, *rows = ended.out.splitlines()
    assert heading.split() == ["ID", "STATE", "AGE", "WORKFLOW"]
    assert [row.split()[0] for row in rows] == ids[::-1]
    assert all(len(row) <= 80 for row in rows)
    listed = shell.weft("list", "--label", label, "--limit", "2", "--json").json
    assert [item["id"] for item in listed["items"]] == ids[:0:-1]
    nothing = shell.weft("list", "--label", label, "--state", "FAILED")
    assert (nothing.code, nothing.out, nothing.err) == (0, "", "weft: there are no such executions\n")
    assert shell.weft("list", "--state", "DONE").code == 2
    assert shell.weft("list", "--limit", "0").code == 2


def test_show_tells_what_happened_in_few_lines_and_as_the_api_says_it(shell: Shell, fresh: str) -> None:
    execution_id = shell.failed(fresh)
    shown = shell.weft("show", execution_id)
    assert f"execution  {execution_id}\n" in shown.out
    assert "nodes      1 completed, 1 failed, 1 skipped\n" in shown.out
    assert f"it cracked at {fresh}" in shown.out
    assert "upstream_failed, crack" in shown.out
    assert "\ncrack, attempt 1:\n  Traceback (most recent call last):\n" in shown.out
    assert '    raise NonRetryable(f"it cracked at {config}")\n' in shown.out
    answer = shell.weft("show", execution_id, "--json").json
    assert (answer["state"], len(answer["nodes"])) == ("FAILED", 3)


def test_of_many_nodes_the_failed_ones_are_shown_first(shell: Shell) -> None:
    nodes = [{"id": f"n{number}", "handler": "echo"} for number in range(100)]
    nodes.append({"id": "broken", "handler": "crack", "config": "x"})
    wide = {"nodes": nodes, "failure_policy": "continue"}
    ended = shell.client.wait(shell.client.start_definition(wide).id)
    shown = shell.weft("show", ended.id)
    table_of_nodes = shown.out.split("\n\n")[1].splitlines()
    assert table_of_nodes[1].split()[0] == "broken"
    assert len(table_of_nodes) == 51
    assert "50 of 101 nodes are shown" in shown.err


def test_an_id_may_be_given_by_its_first_characters(shell: Shell, fresh: str) -> None:
    ids = [shell.client.start("order", {"number": 1}).id for _ in range(3)]
    for one in ids:
        # The random part tells apart what was made in the same millisecond.
        assert shell.weft("show", one[:23].upper(), "--json").json["id"] == one
        assert shell.weft("show", one.replace("-", "")[:20], "--json").json["id"] == one
    several = shell.weft("show", ids[0][:4])
    assert (several.code, several.out) == (2, "")
    assert "several executions begin with" in several.err
    assert ids[-1] in several.err


@pytest.mark.parametrize(
    ("text", "code"),
    [("0000", 3), ("ffff", 3), ("zzzz", 3), (NO_ID, 3), (NO_ID[:20], 3), ("x", 3), ("019", 2), ("", 2)],
)
@pytest.mark.parametrize("command", ["show", "watch", "cancel", "pause", "resume", "retry"])
def test_an_id_that_names_nothing(command: str, text: str, code: int, shell: Shell) -> None:
    ended = shell.weft(command, text)
    assert (ended.code, ended.out) == (code, "")
    assert ended.err.startswith("weft: ")


# --- explain and control


def test_explain_says_why_a_node_is_not_running(shell: Shell, fresh: str) -> None:
    execution_id = shell.client.start("held", {"gate": fresh}).id
    shown = shell.weft("explain", execution_id, "after")
    assert shown.out.startswith("after is PENDING\n  waiting_for_parents: ")
    assert shell.weft("explain", execution_id, "after", "--json").json["reasons"][0]["nodes"] == ["gate"]
    missing = shell.weft("explain", execution_id, "aftr")
    assert (missing.code, missing.out) == (3, "")
    assert "did you mean 'after'?" in missing.err
    assert shell.weft("explain", NO_ID, "after").code == 3
    shell.server.open(fresh)


def test_an_execution_is_paused_resumed_and_cancelled(shell: Shell, fresh: str) -> None:
    execution_id = shell.client.start("held", {"gate": fresh}).id
    assert shell.weft("pause", execution_id).out == f"{execution_id} is PAUSED\n"
    assert shell.weft("resume", execution_id, "--json").json["state"] in ("PENDING", "RUNNING")
    assert shell.weft("cancel", execution_id).out == f"{execution_id} is CANCELLED\n"
    refused = shell.weft("pause", execution_id)
    assert (refused.code, refused.out) == (2, "")
    assert "CANCELLED" in refused.err


def test_a_retry_is_planned_and_made(shell: Shell, fresh: str) -> None:
    execution_id = shell.failed(fresh)
    plan = shell.weft("retry", execution_id, "--dry-run")
    assert plan.out.startswith("generation 2 would run 2 nodes and keep 1\n")
    also = shell.weft("retry", execution_id, "--dry-run", "--node", "first", "--json").json
    assert (also["run"], also["reuse"]) == (["first", "crack", "last"], [])
    for flags in ([], ["--dry-run"]):
        missing = shell.weft("retry", execution_id, "--node", "frist", *flags)
        assert (missing.code, missing.out) == (3, "")
        assert "has no node 'frist'; did you mean 'first'?" in missing.err
    shell.server.open(fresh)
    assert shell.weft("retry", execution_id).out == f"{execution_id} is RUNNING, generation 2\n"
    assert shell.client.wait(execution_id).state == "COMPLETED"


# --- dead letters


def test_a_dead_letter_is_listed_shown_retried_and_dropped(shell: Shell, fresh: str) -> None:
    executions = [shell.failed(fresh) for _ in range(2)]
    items = shell.weft("dlq", "list", "--workflow", "fragile", "--code", "handler_error", "--json").json[
        "items"
    ]
    letters = {item["execution"]: item["id"] for item in items}
    first, second = (letters[execution] for execution in executions)
    assert f"it cracked at {fresh}" in shell.weft("dlq", "list").out
    shown = shell.weft("dlq", "show", first[:23])
    assert f"dead letter  {first}\n" in shown.out
    assert "1        failed" in shown.out
    assert '    raise NonRetryable(f"it cracked at {config}")\n' in shown.out
    assert shell.weft("dlq", "show", first, "--json").json["node"] == "crack"
    assert shell.weft("dlq", "drop", second).out == f"{second} is dropped\n"
    assert second not in shell.weft("dlq", "list").out
    assert second in shell.weft("dlq", "list", "--state", "all").out
    shell.server.open(fresh)
    assert shell.weft("dlq", "retry", first).out == f"{executions[0]} is RUNNING, generation 2\n"
    assert shell.client.wait(executions[0]).state == "COMPLETED"
    assert shell.weft("dlq", "show", NO_ID).code == 3
    assert shell.weft("dlq", "show", "0000").code == 3


def test_executions_and_groups_of_dead_letters_are_searched_from_a_shell(shell: Shell, fresh: str) -> None:
    execution = shell.failed(fresh)
    given = ("--error", "handler_error", "--node", "crack", "--q", execution, "--min-seconds", "0")
    assert execution in shell.weft("list", *given, "--max-seconds", "1e6").out
    assert shell.weft("list", "--worker", "stranger", "--json").json == {"items": []}
    items = shell.weft("dlq", "list", "--node", "crack", "--q", execution, "--json").json["items"]
    assert [item["execution"] for item in items] == [execution]
    groups = shell.weft("dlq", "list", "--groups", "--workflow", "fragile")
    assert groups.out.startswith("COUNT ")
    assert f"it cracked at {fresh}" in groups.out
    assert shell.weft("dlq", "list", "--groups", "--json").json["items"][0]["count"] >= 1
    assert shell.weft("dlq", "list", "--groups", "--code", "x").code == 2


def test_changes_name_their_actors(shell: Shell) -> None:
    shell.client.set_alias("order", "live", 1)
    newest = shell.weft("changes", "--json", "--limit", "1").json["items"][0]
    assert (newest["action"], newest["actor"], newest["alias"]) == ("alias.set", "local", "live")
    shown = shell.weft("changes").out
    assert shown.startswith("AT ")
    assert "local" in shown
    assert "order@live = 1" in shown
    assert shell.weft("changes", "--limit", "0").code == 2
    assert next(iter(shell.client.changes())).number == newest["number"]


# --- the fleet


def test_workers_and_queues(shell: Shell) -> None:
    shell.client.wait(shell.client.start("order", {"number": 1}).id)
    workers = shell.weft("workers", "--json").json["items"]
    assert [worker["state"] for worker in workers] == ["alive"]
    assert workers[0]["id"] in shell.weft("workers").out
    assert "echo" in {queue["name"] for queue in shell.weft("queues", "--json").json["items"]}
    assert shell.weft("queues").out.startswith("QUEUE")


# --- the server


@pytest.mark.parametrize(
    "arguments",
    [
        ["list"],
        ["show", NO_ID],
        ["start", "order"],
        ["watch", NO_ID],
        ["dlq", "list"],
        ["workers"],
        ["cancel", "0198"],
    ],
)
def test_no_server_is_exit_code_4_at_once(
    arguments: list[str], shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEFT_URL", "http://127.0.0.1:1")
    ended = shell.weft(*arguments)
    assert (ended.code, ended.out) == (4, "")
    assert ended.err.startswith("weft: no answer from http://127.0.0.1:1: connection refused")


def test_a_url_that_is_none_is_exit_code_2(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_URL", "localhost:8700")
    ended = shell.weft("list")
    assert (ended.code, ended.out) == (2, "")
    assert "http://127.0.0.1:8700" in ended.err


def test_a_command_that_is_nearly_right_is_pointed_out(shell: Shell) -> None:
    ended = shell.weft("strat", "order")
    assert ended.code == 2
    assert "did you mean 'start'?" in ended.err
    assert "did you mean 'list'?" in shell.weft("dlq", "lst").err


def test_the_installed_command_works_in_a_pipe(shell: Shell) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "weft.cli.main", "list", "--json"], capture_output=True, text=True, check=True
    )
    assert "items" in json.loads(ended.stdout)


# --- tables


def test_a_table_is_as_wide_as_the_terminal_and_keeps_ids_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "60")
    lines = table(["ID", "WHY"], [[NO_ID, "because " * 20], [NO_ID, None]]).splitlines()
    assert all(len(line) <= 60 for line in lines)
    assert lines[1].startswith(f"{NO_ID}  because")
    assert lines[1].endswith("…")
    assert lines[2] == f"{NO_ID}  -"


def test_on_a_narrow_terminal_a_row_is_broken_between_its_cells_and_nothing_is_cut(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "40")
    why = "handler_error: KeyError: 'price' is not in the orders of today"
    text = table(
        ["ID", "STATE", "AGE", "WHY"], [[NO_ID, "FAILED", "2 min", why], [NO_ID, "RUNNING", "1 s", ""]]
    )
    assert text.splitlines() == [
        "ID",
        "  STATE    AGE    WHY",
        NO_ID,
        "  FAILED   2 min",
        f"  {why}",
        NO_ID,
        "  RUNNING  1 s    -",
    ]
    said = facts({"execution": NO_ID, "state": "FAILED", "error": why})
    assert said.splitlines() == ["execution", f"  {NO_ID}", "state      FAILED", f"error      {why}"]


def test_a_table_in_a_pipe_is_never_cut() -> None:
    text = table(["ID", "WHY"], [[NO_ID, "because " * 30]])
    assert text.count("because") == 30


def test_what_a_handler_said_cannot_move_the_cursor() -> None:
    assert "\x1b" not in table(["WHY"], [["\x1b[2J gone"]])
