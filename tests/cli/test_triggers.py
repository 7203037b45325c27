"""``weft triggers``, and the same calls of the client."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from weft import ApiError

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Shell

ECHO = {"id": "a", "handler": "echo", "config": "{{ input.day }}"}
WRITTEN = """
name: {name}
workflow: {name}
input: {{day: "{{{{ trigger.due_at }}}}"}}
schedule: {{cron: "0 3 * * *", timezone: Europe/Berlin}}
"""


@pytest.fixture
def nightly(shell: Shell, fresh: str, tmp_path: Path) -> Path:
    """The file of a trigger of a workflow that is stored."""
    shell.client.deploy({"name": fresh, "nodes": [ECHO]})
    file = tmp_path / "nightly.yaml"
    file.write_text(WRITTEN.format(name=fresh))
    return file


def test_a_file_is_applied_listed_shown_and_deleted(shell: Shell, fresh: str, nightly: Path) -> None:
    applied = shell.weft("triggers", "apply", str(nightly))
    heading, row = applied.out.splitlines()
    assert heading.split() == ["NAME", "WORKFLOW", "STARTS", "AT", "NEXT", "ERROR"]
    assert row.startswith(f"{fresh}  {fresh}  0 3 * * * Europe/Berlin  ")
    stored = shell.weft("triggers", "apply", str(nightly), "--json").json["items"][0]
    assert stored == shell.weft("triggers", "list", "--workflow", fresh, "--json").json["items"][0]
    assert "0 3 * * * Europe/Berlin" in shell.weft("triggers", "show", fresh).out
    assert shell.weft("triggers", "disable", fresh).out.splitlines()[1].split()[-2:] == ["disabled", "-"]
    assert shell.weft("triggers", "enable", fresh, "--json").json["enabled"]
    execution = shell.weft("triggers", "fire", fresh).out.strip()
    assert shell.client.wait(execution, timeout_seconds=60).trigger == fresh
    assert execution in shell.weft("triggers", "show", fresh).out
    assert shell.weft("triggers", "delete", fresh, "--json").json["name"] == fresh
    assert shell.weft("triggers", "show", fresh).code == 3
    assert shell.weft("triggers", "list", "--workflow", fresh).err == "weft: there are no triggers\n"


def test_a_backfill_lists_its_due_times_first(shell: Shell, fresh: str, nightly: Path) -> None:
    shell.weft("triggers", "apply", str(nightly))
    span = ("--from", "2026-03-28T00:00:00Z", "--to", "2026-03-30T00:00:00Z")
    plan = shell.weft("triggers", "backfill", fresh, *span, "--dry-run")
    assert plan.out == "2026-03-28T02:00:00.000000Z\n2026-03-29T01:00:00.000000Z\n"
    batch = shell.weft("triggers", "backfill", fresh, *span, "--max-running", "1").out.strip()
    assert shell.client.batch(batch).total == 2


def test_all_that_is_wrong_in_a_file_is_named_with_its_lines_and_nothing_is_stored(
    shell: Shell, fresh: str, nightly: Path, tmp_path: Path
) -> None:
    nightly.write_text(nightly.read_text().replace("0 3 * * *", "61 3 * * *") + "overlap: sikp\n")
    refused = shell.weft("triggers", "apply", str(nightly))
    assert (refused.code, refused.out) == (2, "")
    heading, first, second = refused.err.splitlines()
    assert heading == f"weft: {nightly} has 2 problems:"
    assert first.startswith(f"  {nightly}:5: /schedule/cron: ")
    assert second.startswith(f"  {nightly}:6: /overlap: ")
    several = tmp_path / "several.json"
    several.write_text(f'[{{"name": "{fresh}", "workflow": "{fresh}", "event": {{"type": "a"}}}},\n{{}}]')
    refused = shell.weft("triggers", "apply", str(several))
    assert (refused.code, f"  {several}:2: /1: name is missing\n" in refused.err) == (2, True)
    nightly.write_text("name: [")
    broken = shell.weft("triggers", "apply", str(nightly))
    assert (broken.code, broken.err.startswith(f"weft: {nightly}: line ")) == (2, True)
    assert shell.weft("triggers", "show", fresh).code == 3


def test_what_the_server_refuses_is_named_with_its_line_and_what_was_stored_before(
    shell: Shell, fresh: str, nightly: Path
) -> None:
    good, bad = (
        {"name": name, "workflow": workflow, "event": {"type": "a"}}
        for name, workflow in ((fresh, fresh), (f"{fresh}-2", "nowhere"))
    )
    nightly.write_text(f"- {json.dumps(good)}\n- {json.dumps(bad)}\n")
    refused = shell.weft("triggers", "apply", str(nightly))
    first, second = refused.err.splitlines()
    assert (refused.code, first.startswith(f"weft: {nightly}:2: /1/workflow: ")) == (2, True)
    assert second == f"stored before that: {fresh}"


def test_a_name_that_is_nearly_right_is_pointed_out(shell: Shell, fresh: str, nightly: Path) -> None:
    shell.weft("triggers", "apply", str(nightly))
    span = ("--from", "2026-03-28T00:00:00Z", "--to", "2026-03-30T00:00:00Z")
    for command in ("show", "enable", "disable", "fire", "delete", "backfill"):
        missed = shell.weft("triggers", command, fresh[:-1], *(span if command == "backfill" else ()))
        assert (missed.code, missed.out) == (3, ""), command
        assert missed.err == f"weft: there is no trigger {fresh[:-1]!r}; did you mean {fresh!r}?\n"


def test_the_client_has_the_same_calls(shell: Shell, fresh: str) -> None:
    client = shell.client
    client.deploy({"name": fresh, "nodes": [ECHO]})
    body: dict[str, Any] = {
        "workflow": fresh,
        "event": {"type": fresh},
        "input": {"day": "{{ event.data.day }}"},
    }
    stored = client.put_trigger(fresh, body)
    assert (stored.name, stored.event, stored.next_at) == (fresh, {"type": fresh, "when": None}, None)
    event = {"type": fresh, "source": "/test", "id": "1", "data": {"day": "Monday"}}
    effect = client.send_event(event)
    assert client.send_event(event) == effect
    assert client.wait(effect.started[0], timeout_seconds=60).output == {"a": "Monday"}
    (came,) = client.inbound_events(event_type=fresh)
    assert (came.id, came.started, came.event) == ("1", effect.started, event)
    fired = client.fire_trigger(fresh, event={"data": {"day": "Tuesday"}})
    assert client.wait(fired.id, timeout_seconds=60).output == {"a": "Tuesday"}
    assert [one.id for one in client.trigger(fresh).executions] == [fired.id, *effect.started]
    assert [one.name for one in client.triggers(workflow=fresh)] == [fresh]
    assert not client.disable_trigger(fresh).enabled
    assert client.enable_trigger(fresh).enabled
    with pytest.raises(ApiError, match="no due times"):
        client.backfill_plan(fresh, "2026-03-28T00:00:00Z", "2026-03-30T00:00:00Z")
    client.delete_trigger(fresh)
    assert list(client.triggers(workflow=fresh)) == []
