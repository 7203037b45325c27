"""``weft workflows`` and ``weft alias``, against a real server."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.cli.conftest import Shell


def deployed(shell: Shell, name: str, versions: int) -> None:
    for number in range(versions):
        nodes = [{"id": "a", "handler": "echo", "config": number}]
        shell.client.deploy({"name": name, "nodes": nodes})


def test_workflows_are_listed_with_their_aliases(shell: Shell, fresh: str) -> None:
    deployed(shell, fresh, 2)
    shell.client.set_alias(fresh, "prod", 1)
    ended = shell.weft("workflows")
    assert (ended.code, ended.err) == (0, "")
    (line,) = [line for line in ended.out.splitlines() if line.startswith(fresh)]
    assert line.split()[1] == "2"
    assert line.endswith("prod 1")
    (item,) = [item for item in shell.weft("workflows", "--json").json["items"] if item["name"] == fresh]
    assert (item["version"], item["aliases"]) == (2, {"prod": 1})


def test_the_versions_of_one_workflow_are_listed_newest_first(shell: Shell, fresh: str) -> None:
    deployed(shell, fresh, 3)
    shell.client.set_alias(fresh, "prod", 2)
    ended = shell.weft("workflows", fresh)
    assert [line.split()[0] for line in ended.out.splitlines()] == ["VERSION", "3", "2", "1"]
    assert [item["aliases"] for item in shell.weft("workflows", fresh, "--json").json["items"]] == [
        [],
        ["prod"],
        [],
    ]


def test_a_workflow_that_is_not_there_is_exit_code_3_with_a_hint(shell: Shell) -> None:
    ended = shell.weft("workflows", "ordr")
    assert (ended.code, ended.out) == (3, "")
    assert ended.err == "weft: there is no workflow 'ordr'; did you mean 'order'?\n"


def test_an_alias_is_set_moved_and_removed(shell: Shell, fresh: str) -> None:
    deployed(shell, fresh, 2)
    assert shell.weft("alias", fresh, "prod", "1").out == f"prod is {fresh} version 1\n"
    assert shell.weft("alias", fresh, "canary", "latest", "--json").json == {
        "name": fresh,
        "aliases": {"canary": 2, "prod": 1},
    }
    assert shell.weft("alias", fresh, "prod", "canary").out == f"prod is {fresh} version 2\n"
    assert shell.weft("alias", fresh, "prod", "--delete").out == f"{fresh} has no alias prod any more\n"
    assert shell.client.workflow(fresh).aliases == {"canary": 2}


def test_what_an_alias_cannot_stand_for_changes_nothing(shell: Shell, fresh: str) -> None:
    deployed(shell, fresh, 1)
    assert shell.weft("alias", fresh, "prod", "7").code == 3
    assert shell.weft("alias", fresh, "prod").code == 2
    assert shell.weft("alias", fresh, "prod", "1", "--delete").code == 2
    assert shell.weft("alias", fresh, "7", "1").code == 2
    assert shell.weft("alias", fresh, "nobody", "--delete").code == 3
    assert shell.client.workflow(fresh).aliases == {}
