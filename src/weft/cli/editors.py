"""Prints data for editors and shells: the schema of a definition, and scripts that complete commands."""

from __future__ import annotations

from typing import Annotated, Literal

from cyclopts import Parameter

from weft.cli.printing import print_text


def schema() -> int:
    """Print the JSON Schema of a definition: editors complete and check YAML and JSON files with it."""
    from importlib.resources import files

    print_text(files("weft.definition").joinpath("definition.schema.json").read_text(encoding="utf-8"))
    return 0


def completion(
    shell: Annotated[Literal["bash", "zsh", "fish"], Parameter(help="the shell to complete in")], /
) -> int:
    """Print the script that completes `weft` in a shell, for example: source <(weft completion bash)."""
    from weft.cli.main import parser

    print_text(parser().generate_completion(shell=shell))
    return 0
