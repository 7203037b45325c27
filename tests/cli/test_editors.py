"""``weft schema`` and ``weft completion``, and ``python -m weft``."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from weft.cli.main import COMMANDS, main
from weft.definition.document import read_yaml
from weft.definition.fields import DEFINITION_FIELDS, NODE_FIELDS
from weft.definition.validation import WAIT_FIELDS
from weft.definition.waits import FIELDS as WAIT_CONFIG_FIELDS

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture
def schema(capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    assert main(["schema"]) == 0
    return dict(json.loads(capsys.readouterr().out))


def test_the_schema_has_the_fields_that_validation_knows(schema: dict[str, dict[str, object]]) -> None:
    assert schema["properties"].keys() == DEFINITION_FIELDS.keys()
    node = schema["$defs"]["node"]
    assert isinstance(node, dict)
    assert node["properties"].keys() == NODE_FIELDS.keys()


def test_the_schema_accepts_every_example(schema: dict[str, object]) -> None:
    validator = jsonschema_rs.validator_for(schema)
    examples = sorted((ROOT / "examples").rglob("*.yaml"))
    assert examples
    for example in examples:
        validator.validate(read_yaml(example.read_bytes(), max_bytes=2**20, max_depth=100))


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"seconds": 5},
        {"seconds": "{{ input.seconds }}"},
        {"until": "2030-01-31T09:30:00Z"},
        {"signal": "go", "prompt": "Apply?", "schema": {"enum": ["yes"]}, "expires_seconds": 5, "default": 1},
        {"event": "paid", "match": {"order": 7}, "expires_seconds": 5},
    ],
)
def test_the_schema_accepts_the_config_of_a_wait(
    config: dict[str, object], schema: dict[str, object]
) -> None:
    node = {"id": "a", "handler": "wait", "config": config, "condition": "true"}
    jsonschema_rs.validator_for(schema).validate({"nodes": [node, {"id": "b", "handler": "wait"}]})


def test_the_schema_accepts_a_condition_of_retries(schema: dict[str, object]) -> None:
    validator = jsonschema_rs.validator_for(schema)
    retry = {"when": "attempt < 3", "jitter": 0}
    document = {"defaults": {"retry": retry}, "nodes": [{"id": "a", "handler": "echo", "retry": retry}]}
    validator.validate(document)
    assert not validator.is_valid({"nodes": [{"id": "a", "handler": "echo", "retry": {"when": 3}}]})


def test_the_schema_knows_the_fields_of_waits_that_validation_knows(schema: dict[str, Any]) -> None:
    assert set(schema["$defs"]["wait"]["properties"]) == set(WAIT_CONFIG_FIELDS)
    allowed = {name for name in NODE_FIELDS if schema["$defs"]["node"]["then"]["properties"].get(name, True)}
    assert allowed == WAIT_FIELDS


@pytest.mark.parametrize(
    "broken",
    [
        {},
        {"nodes": []},
        {"nodes": [{"id": "a"}]},
        {"nodes": [{"id": "a", "handler": "echo", "max_retries": "3"}]},
        {"nodes": [{"id": "a b", "handler": "echo"}]},
        {"nodes": [{"id": "a", "handler": "echo", "retries": 3}]},
        {"nodes": [{"id": "a", "handler": "echo", "dependencies": [], "depends_on": []}]},
        {"nodes": [{"id": "a", "handler": "wait", "max_retries": 3}]},
        {"nodes": [{"id": "a", "handler": "wait", "config": {"second": 5}}]},
        {"nodes": [{"id": "a", "handler": "wait", "config": {"seconds": "5"}}]},
        {"nodes": [{"id": "a", "handler": "wait", "config": {"seconds": 5, "prompt": "?"}}]},
        {
            "nodes": [
                {"id": "a", "handler": "wait", "config": {"seconds": 5, "until": "2030-01-31T09:30:00Z"}}
            ]
        },
        {"nodes": [{"id": "a", "handler": "wait", "config": {"default": 5}}]},
        {"nodes": [{"id": "a", "handler": "wait", "config": {"schema": {"type": "objet"}}}]},
        {"nodes": [{"id": "a", "handler": "echo"}], "failure_policy": "fail fast"},
        {"nodes": [{"id": "a", "handler": "echo"}], "input_schema": {"type": "objet"}},
    ],
)
def test_the_schema_refuses_what_an_editor_should_mark(
    broken: dict[str, object], schema: dict[str, object]
) -> None:
    assert not jsonschema_rs.validator_for(schema).is_valid(broken)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_gets_a_script_that_names_every_command(
    shell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    for command in COMMANDS:
        assert command.name.split()[0] in script
    if (found := shutil.which(shell)) is not None:
        subprocess.run([found, "-n"], input=script, text=True, check=True, timeout=60)


def test_bash_completes_the_first_word(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "bash"]) == 0
    script = (
        capsys.readouterr().out + '\nCOMP_WORDS=(weft exp); COMP_CWORD=1; _weft; echo "${COMPREPLY[@]}"\n'
    )
    done = subprocess.run(["bash"], input=script, text=True, capture_output=True, check=True, timeout=60)
    assert done.stdout.split() == ["explain"]


def test_an_unknown_shell_is_bad_usage() -> None:
    assert main(["completion", "csh"]) == 2


def test_the_package_is_a_command_too() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "weft", "--version"], text=True, capture_output=True, check=True, timeout=60
    )
    assert done.stdout.startswith("weft ")


def test_a_page_of_the_documentation_is_printed_by_any_of_its_names(
    capsys: pytest.CaptureFixture[str],
) -> None:
    page = (ROOT / "docs" / "howto" / "debugging.md").read_text(encoding="utf-8")
    for name in ("debugging", "howto/debugging", "howto/debugging.md"):
        assert main(["docs", name]) == 0
        assert capsys.readouterr().out == page
    assert main(["docs", "debuging"]) == 2
    assert "did you mean 'howto/debugging'?" in capsys.readouterr().err
    assert main(["docs", "x/../../pyproject"]) == 2
