"""``weft events``, ``weft show ID NODE`` and ``weft explain ID``: one execution, closely."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.cli.conftest import Shell

ZONE = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[+-]\d\d:\d\d"


def test_events_are_shown_in_their_order_with_zones(shell: Shell) -> None:
    done = shell.client.wait(shell.client.start("order", {"number": 7}).id)
    ended = shell.weft("events", done.id)
    assert (ended.code, ended.err) == (0, "")
    heading, *lines = ended.out.splitlines()
    assert heading.split() == ["SEQ", "AT", "EVENT", "NODE", "ATTEMPT", "WHY"]
    assert [int(line.split()[0]) for line in lines] == list(range(1, len(lines) + 1))
    assert all(re.search(ZONE, line) for line in lines)
    assert "execution.created" in lines[0]
    assert "execution.completed" in lines[-1]
    events = shell.weft("events", done.id, "--json", "--after", "2").lines
    assert [event["seq"] for event in events] == list(range(3, len(lines) + 1))


def test_the_history_of_a_failure_has_its_reason(shell: Shell, fresh: str) -> None:
    failed = shell.failed(fresh)
    shown = shell.weft("events", failed).out
    assert re.search(r"node\.failed .*handler_error", shown)


def test_one_node_is_shown_with_its_attempts_config_and_output(shell: Shell) -> None:
    done = shell.client.wait(shell.client.start("order", {"number": 7}).id)
    node = done.nodes[-1].id if isinstance(done.nodes, list) else list(done.nodes or {})[-1]
    ended = shell.weft("show", done.id, node)
    assert (ended.code, ended.err) == (0, "")
    for word in ("handler", "state", "config", "output", "ATTEMPT", "completed"):
        assert word in ended.out
    assert re.search(f"finished +{ZONE}", ended.out)
    assert shell.weft("show", done.id, node, "--json").json["attempts"][0]["outcome"] == "completed"
    unknown = shell.weft("show", done.id, node + "x")
    assert unknown.code == 3
    assert f"did you mean {node!r}" in unknown.err


def test_an_execution_is_shown_with_its_input_and_output(shell: Shell) -> None:
    done = shell.client.wait(shell.client.start("order", {"number": 7}).id)
    shown = shell.weft("show", done.id).out
    assert 'input\n  {\n    "number": 7\n  }\n' in shown
    assert 'output\n  {\n    "label": "parcel 7"\n  }\n' in shown


def test_all_unsettled_nodes_are_explained_where_none_is_named(shell: Shell, fresh: str) -> None:
    held = shell.client.start("held", {"gate": fresh})
    ended = shell.weft("explain", held.id)
    shown = shell.weft("explain", held.id, "--json").json["nodes"]
    assert (ended.code, ended.err) == (0, "")
    assert shown
    for name in shown:
        assert f"{name} is " in ended.out
    shell.client.cancel(held.id)
    ended = shell.weft("explain", held.id)
    assert (ended.code, ended.out, ended.err) == (0, "", "weft: every node is settled\n")


def test_batches_are_listed(shell: Shell) -> None:
    batch = shell.client.start_batch("order", [{"number": 1}, {"number": 2}])
    ended = shell.weft("batches", "--limit", "1")
    assert ended.code == 0
    assert ended.out.splitlines()[1].startswith(batch.id)
    assert shell.weft("batches", "--json").json["items"][0]["total"] == 2
    assert shell.weft("batches", "--limit", "0").code == 2


def test_open_prints_the_address(shell: Shell) -> None:
    assert shell.weft("open").out == f"{shell.server.url}/\n"
    started = shell.client.start("order", {"number": 7}).id
    ended = shell.weft("open", started[:23], "--url")
    assert (ended.code, ended.out) == (0, f"{shell.server.url}/#/executions/{started}\n")
