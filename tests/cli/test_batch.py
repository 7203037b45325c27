from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from weft.cli.batch import read_lines
from weft.errors import DocumentError

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Shell


@pytest.fixture
def orders(tmp_path: Path) -> str:
    file = tmp_path / "orders.jsonl"
    file.write_text("".join(f'{{"number": {number}}}\n' for number in range(40)))
    return str(file)


def test_a_batch_prints_its_id_and_says_how_it_went(shell: Shell, orders: str) -> None:
    ended = shell.weft("batch", "order", orders)
    assert ended.code == 0
    batch = shell.client.batch(ended.out.strip())
    assert (batch.total, batch.state) == (40, "COMPLETED")
    assert f"weft: batch {batch.id}\n" in ended.err
    assert ended.err.endswith(": 40 completed\n")
    quiet = shell.weft("batch", "order", orders, "--quiet")
    assert (quiet.code, quiet.err) == (0, "")


def test_as_json_each_result_is_a_line_in_the_order_of_the_inputs(shell: Shell, orders: str) -> None:
    ended = shell.weft("batch", "order", orders, "--json")
    assert [result["index"] for result in ended.lines] == list(range(40))
    assert ended.lines[7]["output"] == {"label": "parcel 7"}


def test_failures_are_told_with_their_lines_and_are_exit_code_1(
    shell: Shell, tmp_path: Path, fresh: str
) -> None:
    file = tmp_path / "gates.jsonl"
    shell.server.open(fresh)
    file.write_text(f'{{"gate": "{fresh}"}}\n\n{{"gate": "shut"}}\n')
    ended = shell.weft("batch", "fragile", str(file))
    assert ended.code == 1
    assert ": 1 completed, 1 failed" in ended.err
    failed = [line for line in ended.err.splitlines() if line.startswith("  line ")]
    assert len(failed) == 1
    assert failed[0].startswith("  line 3: ")
    assert "it cracked at shut" in failed[0]


def test_one_bad_input_starts_nothing_and_is_told_by_its_line(
    shell: Shell, tmp_path: Path, fresh: str
) -> None:
    shell.client.deploy(
        {
            "name": fresh,
            "input_schema": {"properties": {"n": {"type": "integer"}}},
            "nodes": [{"id": "a", "handler": "echo"}],
        }
    )
    file = tmp_path / "inputs.jsonl"
    file.write_text('{"n": 1}\n\n{"n": "two"}\n')
    ended = shell.weft("batch", fresh, str(file))
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith(f"weft: nothing was started\n  {file}:3: /n: ")
    assert list(shell.client.executions(workflow=fresh)) == []


def test_the_same_key_follows_the_same_batch(shell: Shell, orders: str, fresh: str) -> None:
    first, second = (shell.weft("batch", "order", orders, "--key", fresh).out for _ in range(2))
    assert first == second


def test_an_unknown_workflow_is_exit_code_3(shell: Shell, orders: str) -> None:
    ended = shell.weft("batch", "ordr", orders)
    assert (ended.code, ended.out) == (3, "")
    assert "did you mean 'order'?" in ended.err


def test_ctrl_c_leaves_a_batch_running_and_says_how_to_come_back(
    shell: Shell, tmp_path: Path, fresh: str
) -> None:
    file = tmp_path / "gates.jsonl"
    file.write_text(f'{{"gate": "{fresh}"}}\n')
    process = subprocess.Popen(
        [sys.executable, "-m", "weft.cli.main", "batch", "held", str(file)],
        env=os.environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stderr is not None
        batch_id = process.stderr.readline().split()[-1]
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (130, "")
    assert f"batch {batch_id} goes on" in err
    shell.server.open(fresh)
    key = err.partition("--key ")[2].split()[0]
    again = shell.weft("batch", "held", str(file), "--key", key)
    assert (again.code, again.out) == (0, f"{batch_id}\n")


# --- the file


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": 1}\n{"a": \n', ":2: column"),
        ('{"a": 1, "a": 2}\n', ":1: "),
        ("[1]\n", ":1: an input is an object"),
        ("", "there is no input in it"),
        ("\n \n", "there is no input in it"),
    ],
)
def test_a_line_that_is_no_input_is_told(text: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "inputs.jsonl"
    file.write_text(text)
    with pytest.raises(DocumentError, match=message):
        read_lines(str(file))


def test_a_file_that_is_too_long_for_one_batch_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "inputs.jsonl"
    file.write_text("{}\n" * 50_001)
    with pytest.raises(DocumentError, match=r"50,001 inputs, and a batch holds 50,000; .*split -l 50000"):
        read_lines(str(file))


def test_lines_may_end_as_on_windows_and_the_last_without_an_end(tmp_path: Path) -> None:
    file = tmp_path / "inputs.jsonl"
    file.write_bytes(b'{"a": 1}\r\n\r\n{"a": 2}')
    assert read_lines(str(file)) == [(1, {"a": 1}), (3, {"a": 2})]


def test_a_result_is_the_one_of_the_api(shell: Shell, orders: str) -> None:
    line = shell.weft("batch", "order", orders, "--json").out.splitlines()[0]
    assert json.loads(line).keys() >= {"index", "execution", "state", "output", "error"}
