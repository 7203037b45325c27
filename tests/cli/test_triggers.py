"""``weft triggers``, and the same calls of the client."""

from __future__ import annotations

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
    assert shell.weft("triggers", "delete", fresh).code == 0
    assert shell.weft("triggers", "show", fresh).code == 3
    assert shell.weft("triggers", "list", "--workflow", fresh).err == "weft: there are no triggers\n"


def test_a_backfill_lists_its_due_times_first(shell: Shell, fresh: str, nightly: Path) -> None:
    shell.weft("triggers", "apply", str(nightly))
    span = ("--from", "2026-03-28T00:00:00Z", "--to", "2026-03-30T00:00:00Z")
    plan = shell.weft("triggers", "backfill", fresh, *span, "--dry-run")
    assert plan.out == "2026-03-28T02:00:00.000000Z\n2026-03-29T01:00:00.000000Z\n"
    batch = shell.weft("triggers", "backfill", fresh, *span, "--max-running", "1").out.strip()
    assert shell.client.batch(batch).total == 2


def test_what_is_wrong_is_named_and_nothing_is_stored(
    shell: Shell, fresh: str, nightly: Path, tmp_path: Path
) -> None:
    nightly.write_text(nightly.read_text().replace("0 3 * * *", "61 3 * * *"))
    refused = shell.weft("triggers", "apply", str(nightly))
    assert (refused.code, "/schedule/cron" in refused.err) == (2, True)
    nameless = tmp_path / "nameless.json"
    nameless.write_text("{}")
    assert shell.weft("triggers", "apply", str(nameless)).code == 2
    assert shell.weft("triggers", "show", fresh).code == 3


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
