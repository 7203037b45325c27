from __future__ import annotations

import importlib
import re
import shlex
import subprocess
import sys
from functools import reduce
from importlib.metadata import version
from pathlib import Path

import pytest
from cyclopts import App

from weft.cli.main import COMMANDS, Command, main, parser

ROOT = Path(__file__).parent.parent.parent


def test_the_overview_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(f"  {command.name} " in shown for command in COMMANDS)
    assert main([]) == 0
    assert capsys.readouterr().out == shown


def test_the_overview_and_the_version_come_without_the_parser() -> None:
    script = (
        "import sys\nfrom weft.cli.main import main\nmain(['--help'])\nmain(['--version'])\n"
        "heavy = {'cyclopts', 'rich', 'asyncio', 'yaml', 'redis', 'asyncpg', 'weft.settings'}\n"
        "sys.exit(' '.join(heavy & sys.modules.keys()) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_what_runs_in_one_process_loads_no_client_of_a_server() -> None:
    script = (
        "import sys\nfrom weft.cli.main import main\nassert main(['run', 'examples/quickstart.yaml']) == 0\n"
        "sys.exit(' '.join({'redis', 'hiredis', 'asyncpg', 'fastapi'} & sys.modules.keys()) or 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr


def test_every_command_of_the_table_exists() -> None:
    for command in COMMANDS:
        module, _, name = command.function.partition(":")
        assert callable(getattr(importlib.import_module(module), name))


def test_the_version_is_that_of_the_distribution(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"weft {version('weft')}\n"


def test_a_command_explains_itself_on_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--help"]) == 0
    shown = capsys.readouterr()
    assert "--input-file" in shown.out
    assert shown.err == ""


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_the_help_of_a_command_is_its_own_with_an_example_that_it_takes(
    command: Command, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    assert main([*command.name.split(), "--help"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"Usage: weft {command.name}")
    assert f"Example: {command.example}" in shown
    program, *arguments = shlex.split(command.example)
    assert (program, " ".join(arguments).startswith(command.name)) == ("weft", True)
    called, _, _ = parser().parse_args(arguments, exit_on_error=False, print_error=False)
    module, _, name = command.function.partition(":")
    assert called is getattr(importlib.import_module(module), name)
    # Nothing of other commands, and each option that it has.
    options = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", shown)) - {"--help"}
    own = {
        option
        for argument in reduce(App.__getitem__, command.name.split(), parser()).assemble_argument_collection()
        for option in argument.names
        if option.startswith("--")
    }
    assert options <= own | set(arguments)


@pytest.mark.parametrize(
    ("given", "explained"),
    [(["rnu"], "weft --help"), (["run"], "weft run --help"), (["dlq", "show"], "weft dlq show --help")],
)
def test_wrong_usage_names_the_help_of_the_command(
    given: list[str], explained: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(given) == 2
    assert capsys.readouterr().err.endswith(f"\ntry: {explained}\n")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["runn"], "there is no command 'runn'; did you mean 'run'?"),
        (["triggers", "aply"], "there is no command 'triggers aply'; did you mean 'apply'?"),
        (["run"], "FILE is missing\nfor example: weft run order.yaml --input number=7"),
        (["answer", "0198"], "NODE is missing\nfor example: weft answer 0198c5a2 approval approve"),
        (["run", "a", "b"], "one argument too many: b"),
        (["run", "a", "--data"], "--data needs a value\nfor example: weft run order.yaml --input number=7"),
        (["list", "--limit", "x"], "--limit needs a whole number, not 'x'"),
        (["list", "--max-seconds", "x"], "--max-seconds needs a number, not 'x'"),
    ],
)
def test_wrong_usage_is_told_in_plain_words(
    given: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(given) == 2
    assert capsys.readouterr().err.rpartition("\ntry: ")[0] == f"weft: {said}"


def test_help_and_version_come_by_the_names_that_people_try(capsys: pytest.CaptureFixture[str]) -> None:
    for given, same in (
        (["help"], ["--help"]),
        (["help", "run"], ["run", "--help"]),
        (["-V"], ["--version"]),
        (["version"], ["--version"]),
    ):
        assert (main(given), main(same)) == (0, 0)
        shown = capsys.readouterr().out
        assert shown[: len(shown) // 2] == shown[len(shown) // 2 :] != ""


@pytest.mark.parametrize(
    "arguments",
    [
        ["rnu"],
        ["--nope"],
        ["run"],
        ["run", "a", "b"],
        ["run", "a", "--nope"],
        ["run", "a", "--concurrency", "x"],
        ["run", "a", "--concurrency", "0"],
        ["graph", "a", "--svg", "--mermaid"],
        ["validate"],
        ["run", "no-such-file.yaml"],
        ["run", "no-such-file.py:flow"],
        ["graph", "no-such-file.yaml"],
    ],
)
def test_wrong_usage_is_exit_code_2_and_a_message_on_stderr_alone(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("weft: ")
    assert "Traceback" not in shown.err


def test_debug_shows_where_an_error_comes_from(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["run", "no-such-file.yaml", "--debug"]) == 2
    assert "Traceback" in capsys.readouterr().err
    monkeypatch.setenv("WEFT_DEBUG", "1")
    assert main(["run", "no-such-file.yaml"]) == 2
    assert "Traceback" in capsys.readouterr().err


def test_a_bad_setting_is_exit_code_2(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEFT_WORKER_GRACE", "soon")
    assert main(["graph", "flow.yaml"]) == 2
    assert "WEFT_WORKER_GRACE needs seconds or a duration" in capsys.readouterr().err


def test_durability_checkpoint_is_exit_code_2_and_names_what_to_set(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEFT_DURABILITY", "checkpoint")
    assert main(["up"]) == 2
    printed = capsys.readouterr().err
    assert "WEFT_DURABILITY needs strict or relaxed: checkpoint was removed" in printed
    assert "Set relaxed if commits need not wait" in printed


def test_an_unknown_setting_is_a_warning(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEFT_WORKER_GRACES", "3")
    main(["graph", "no-such-file.yaml"])
    assert "warning: WEFT_WORKER_GRACES is not a setting of weft; did you mean WEFT_WORKER_GRACE?" in (
        capsys.readouterr().err
    )
