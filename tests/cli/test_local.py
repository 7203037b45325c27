from __future__ import annotations

import io
import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest

from weft.cli.main import main

ROOT = Path(__file__).parent.parent.parent
QUICKSTART = str(ROOT / "examples" / "quickstart.yaml")

GOOD = """\
name: good
nodes:
  - {id: a, handler: echo, config: {x: 1}}
  - {id: b, handler: echo, dependencies: [a], config: "{{ a.x }}"}
"""
BAD = """\
name: bad
nodes:
  - {id: a, handler: ecko}
  - {id: b, handler: echo, dependencies: [c]}
"""


@pytest.fixture
def good(tmp_path: Path) -> str:
    (tmp_path / "good.yaml").write_text(GOOD)
    return str(tmp_path / "good.yaml")


@pytest.fixture
def bad(tmp_path: Path) -> str:
    (tmp_path / "bad.yaml").write_text(BAD)
    return str(tmp_path / "bad.yaml")


# --- validate


def test_a_valid_file_is_said_to_be_valid(good: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", good]) == 0
    assert capsys.readouterr().out == f"{good}: valid; nodes: 2, layers: 2\n"


def test_every_problem_of_every_file_is_listed_with_its_pointer(
    good: str, bad: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["validate", bad, good, "missing.yaml"]) == 2
    shown = capsys.readouterr()
    assert "valid" in shown.out
    assert re.search(re.escape(bad) + r":\d+: /nodes/0/handler: ", shown.err)
    assert re.search(re.escape(bad) + r":\d+: /nodes/1/dependencies/0: ", shown.err)
    assert "weft: missing.yaml: no such file" in shown.err.splitlines()


def test_as_json_each_file_is_one_line(good: str, bad: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "--json", good, bad]) == 2
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert first == {"file": good, "valid": True, "problems": [], "warnings": [], "layers": [["a"], ["b"]]}
    assert second["valid"] is False
    assert second["layers"] == []
    assert {problem["pointer"] for problem in second["problems"]} == {
        "/nodes/0/handler",
        "/nodes/1/dependencies/0",
    }
    assert all(problem["line"] >= 1 for problem in second["problems"])


# --- graph


def test_a_graph_is_drawn_as_text_mermaid_or_svg(good: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["graph", good]) == 0
    assert "2  b  echo  ← a" in capsys.readouterr().out
    assert main(["graph", good, "--mermaid"]) == 0
    assert capsys.readouterr().out.startswith("flowchart LR\n")
    assert main(["graph", "--svg", good]) == 0
    assert ElementTree.fromstring(capsys.readouterr().out).tag.endswith("svg")


def test_of_a_definition_with_problems_nothing_is_drawn(bad: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["graph", bad]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert len(re.findall(re.escape(bad) + r":\d+: /nodes/", shown.err)) == 2


def test_a_definition_comes_from_stdin(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(GOOD.encode())))
    assert main(["graph", "-"]) == 0
    assert "2 nodes" in capsys.readouterr().out


def test_the_examples_are_valid(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", QUICKSTART, str(ROOT / "examples" / "quickstart.py:flow")]) == 0
    assert capsys.readouterr().err == ""


# --- run


@pytest.mark.parametrize("command", ["run", "validate", "deploy"])
def test_a_python_file_that_cannot_be_read_is_shown_with_its_line(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / f"unread_{command}.py"
    file.write_text("def prices():\n    return {1: 2\n")
    assert main([command, str(file)]) == 2
    shown = capsys.readouterr().err
    assert f'File "{file}", line 2\n    return {{1: 2\n           ^\n' in shown
    assert shown.count("was never closed") == 1


def test_a_fault_of_a_python_workflow_names_its_function(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "faulty_flow.py"
    file.write_text(
        "from weft import Workflow\n\nflow = Workflow('faulty')\n\n\n"
        "@flow.node(condition='1 +')\ndef price():\n    return 1\n"
    )
    assert main(["run", str(file)]) == 2
    shown = capsys.readouterr().err
    assert shown.startswith(f"weft: {file}: /nodes/0/condition: ")
    assert f"(price() at {file}:6)" in shown


def definition(tmp_path: Path, text: str) -> str:
    path = tmp_path / "flow.yaml"
    path.write_text(text)
    return str(path)


def test_the_output_is_all_that_goes_to_stdout(good: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", good]) == 0
    shown = capsys.readouterr()
    assert shown.out == '{\n  "b": 1\n}\n'
    lines = shown.err.splitlines()
    assert lines[0].startswith("COMPLETED  a  ")
    assert lines[1].startswith("COMPLETED  b  ")
    assert lines[2].startswith("COMPLETED after ")
    assert len(lines) == 3


def test_a_string_is_printed_as_json_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = definition(tmp_path, "nodes: [{id: a, handler: echo}]\noutput: 3 €")
    assert main(["run", file, "--quiet"]) == 0
    shown = capsys.readouterr()
    assert shown.out == '"3 €"\n'
    assert shown.err == ""


def test_a_failure_is_exit_code_1_an_empty_stdout_and_a_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = definition(
        tmp_path,
        "nodes:\n"
        "  - {id: a, handler: echo, config: '{{ input.missing }}'}\n"
        "  - {id: b, handler: echo, dependencies: [a]}\n",
    )
    assert main(["run", file, "--quiet"]) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "  failed: a: template_error: " in shown.err
    assert "  skipped (upstream_failed, a): b" in shown.err
    assert main(["run", file, "--json"]) == 1
    execution = json.loads(capsys.readouterr().out)
    assert execution["state"] == "FAILED"
    assert [node["state"] for node in execution["nodes"]] == ["FAILED", "SKIPPED"]


def test_a_failing_function_is_shown_with_its_own_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "orders_of_a_test.py").write_text(
        "import weft\n"
        "flow = weft.Workflow('orders')\n"
        "@flow.node(max_retries=0)\n"
        "async def total():\n"
        "    order = {'price': 3}\n"
        "    return order['prize'] * 2\n"
    )
    assert main(["run", f"{tmp_path}/orders_of_a_test.py:flow", "--json"]) == 1
    shown = capsys.readouterr()
    place = f'File "{tmp_path}/orders_of_a_test.py", line 6, in total'
    assert f"    {place}\n        return order['prize'] * 2\n" in shown.err
    (failed,) = json.loads(shown.out)["nodes"]
    assert place in failed["error"]["details"]["traceback"]
    assert failed["error"]["details"]["traceback"].endswith("\nKeyError: 'prize'")


def test_a_node_is_printed_before_what_is_skipped_because_of_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # Written last to first: the order of the definition says nothing.
    file = definition(
        tmp_path,
        "failure_policy: continue\n"
        "nodes:\n"
        "  - {id: after, handler: echo, dependencies: [last], trigger_rule: all_done}\n"
        "  - {id: last, handler: echo, dependencies: [middle]}\n"
        "  - {id: middle, handler: echo, dependencies: [first]}\n"
        "  - {id: first, handler: echo, config: '{{ input.missing }}'}\n"
        "  - {id: leaf, handler: echo, dependencies: [branch]}\n"
        "  - {id: branch, handler: echo, dependencies: [root]}\n"
        "  - {id: root, handler: echo, condition: input.go | default(false)}\n",
    )
    assert main(["run", file]) == 1
    lines = [line.split()[:2] for line in capsys.readouterr().err.splitlines()[:7]]
    names = [name for _, name in lines]
    assert lines[names.index("first")] == ["FAILED", "first"]
    assert names.index("first") < names.index("middle") < names.index("last") < names.index("after")
    assert names.index("root") < names.index("branch") < names.index("leaf")


def test_a_failure_is_printed_before_what_is_cancelled_because_of_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = definition(
        tmp_path,
        "nodes:\n"
        "  - {id: other, handler: sleep, config: {seconds: 300}, dependencies: [slow]}\n"
        "  - {id: slow, handler: sleep, config: {seconds: 300}}\n"
        "  - {id: bad, handler: echo, config: '{{ input.missing }}'}\n",
    )
    assert main(["run", file]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("FAILED     bad ")
    assert sorted(line.split()[1] for line in lines[1:3]) == ["other", "slow"]


def test_input_is_the_file_with_each_pair_laid_over_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = definition(tmp_path, "nodes: [{id: all, handler: input}]\noutput: '{{ all.output }}'")
    (tmp_path / "input.yaml").write_text("a: from the file\nb: from the file\n")
    pairs = ["b=2", "c=two words", 'd={"e": [1, null]}', "f=", "g=a=b", "h=NaN"]
    flags = [flag for pair in pairs for flag in ("--input", pair)]
    assert main(["run", file, "--input-file", str(tmp_path / "input.yaml"), *flags]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "a": "from the file",
        "b": 2,
        "c": "two words",
        "d": {"e": [1, None]},
        "f": "",
        "g": "a=b",
        "h": "NaN",
    }


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--input", "a"], "--input needs key=value, not 'a'"),
        (["--input", "=3"], "--input needs key=value"),
        (["--input-file", "missing.json"], "missing.json: no such file"),
    ],
)
def test_input_of_another_form_is_exit_code_2(
    good: str, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", good, *arguments]) == 2
    assert message in capsys.readouterr().err


def test_input_that_breaks_its_schema_is_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", QUICKSTART, "--input", "total=lots"]) == 2
    assert "/total" in capsys.readouterr().err


def test_a_definition_with_problems_does_not_run(bad: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", bad]) == 2
    assert "/nodes/0/handler" in capsys.readouterr().err


def test_a_workflow_of_a_python_file_calls_the_functions_in_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(ROOT / "examples" / "quickstart.py:flow"), "--quiet"]) == 0
    assert capsys.readouterr().out == "19\n"


def test_what_a_function_prints_does_not_mix_with_the_output(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "noisy_beside.py").write_text("def speak():\n    print('hello')\n    return 3\n")
    file = definition(
        tmp_path,
        "nodes: [{id: a, handler: python, config: {function: 'noisy_beside:speak'}}]\n"
        "output: '{{ a.output }}'\n",
    )
    assert main(["run", file, "--quiet"]) == 0
    shown = capfd.readouterr()
    assert shown.out == "3\n"
    assert "hello" in shown.err


def test_a_large_execution_is_followed_without_a_line_per_node(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes = [{"id": f"n{index}", "handler": "echo", "config": index} for index in range(200)]
    bad = {"id": "bad", "handler": "echo", "config": "{{ input.missing }}"}
    (tmp_path / "wide.json").write_text(json.dumps({"failure_policy": "continue", "nodes": [*nodes, bad]}))
    assert main(["run", str(tmp_path / "wide.json")]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("FAILED     bad  ")
    assert lines[1].endswith(": 200 completed, 1 failed")
    assert len(lines) == 3


def test_an_interrupt_cancels_and_is_exit_code_130(tmp_path: Path) -> None:
    file = definition(
        tmp_path,
        "nodes:\n"
        "  - {id: first, handler: echo}\n"
        "  - {id: slow, handler: sleep, dependencies: [first], config: {seconds: 300}}\n",
    )
    command = [sys.executable, "-m", "weft.cli.main", "run", file, "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as weft:
        assert weft.stderr is not None
        assert weft.stderr.readline().startswith("COMPLETED  first")
        weft.send_signal(signal.SIGINT)
        out, err = weft.communicate()
    assert weft.returncode == 130
    assert json.loads(out)["state"] == "CANCELLED"
    assert "  cancelled (cancelled): slow" in err


def test_private_functions_and_closures_of_a_python_file_run_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "closing_over.py").write_text(
        "from weft import Workflow\n"
        "flow = Workflow('closing-over')\n"
        "@flow.node\n"
        "def _first(input):\n"
        "    return 1\n"
        "def declare(step):\n"
        "    @flow.node(dependencies=[_first])\n"
        "    def second(_first):\n"
        "        return _first + step\n"
        "declare(41)\n"
    )
    assert main(["run", f"{tmp_path / 'closing_over.py'}:flow", "--quiet"]) == 0
    assert capsys.readouterr().out == '{\n  "second": 42\n}\n'
