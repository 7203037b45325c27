"""``weft logs``, and the client's ``logs`` and ``watch_logs``: lines as they are, and as they come."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from tests.background import serving

from weft import ApiError, Client

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.background import BackgroundServer
    from tests.cli.conftest import Shell


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shell: Shell) -> Iterator[BackgroundServer]:
    """A server that keeps what nodes print."""
    with serving(tmp_path / "data") as server:
        monkeypatch.setenv("WEFT_URL", server.url)
        yield server


@pytest.fixture
def client(server: BackgroundServer) -> Iterator[Client]:
    with Client(server.url) as client:
        yield client


def start(client: Client, gate: str) -> str:
    """Start a node that prints, logs and fails, and then waits at a gate in its second attempt."""
    node = {"id": "says", "handler": "speaks", "config": gate, "retry": {"base_delay_seconds": 0}}
    return client.start_definition({"nodes": [node]}).id


PRINTED = [(1, "stdout", "printed in 1"), (2, "stdout", "printed in 2")]
LOGGED = [(1, "log", "logged in 1"), (2, "log", "logged in 2")]


def test_lines_are_shown_by_attempt_and_level(
    shell: Shell, server: BackgroundServer, client: Client, fresh: str
) -> None:
    server.open(fresh)
    execution_id = start(client, fresh)
    client.wait(execution_id)
    shown = shell.weft("logs", execution_id)
    assert shown.code == 0
    texts = [line.partition(" ")[2] for line in shown.out.splitlines()]
    # The attempt that failed stands where it ended, although the node has completed.
    failure = [text for text in texts if "printed" not in text and "logged" not in text]
    assert [text for text in texts if text not in failure] == [
        "says │ printed in 1",
        "says │ WARNING weft.handlers: logged in 1",
        "says #2 │ printed in 2",
        "says #2 │ WARNING weft.handlers: logged in 2",
    ]
    assert failure[0] == "says │ FAILED handler_error: RuntimeError: once"
    assert 'says │     raise RuntimeError("once")' in failure
    assert texts.index(failure[0]) == 2
    zoned = re.compile(r"\d\d:\d\d:\d\d\.\d{3}[+-]\d\d:\d\d ")
    assert all(zoned.match(line) for line in shown.out.splitlines())
    described = shell.weft("show", execution_id, "says").out
    assert "\nattempt 1:\nTraceback (most recent call last):\n" in described
    assert '    raise RuntimeError("once")\n' in described
    assert shell.weft("logs", execution_id, "--level", "warning").code == 0
    logged = shell.weft("logs", execution_id, "says", "--level", "WARNING", "--attempt", "2", "--json").lines
    assert [line["message"] for line in logged] == ["logged in 2"]
    # The attempt that failed is among them, with its traceback, where one node is asked for.
    assert 'raise RuntimeError("once")' in shell.weft("logs", execution_id, "says").out
    nothing = shell.weft("logs", execution_id, "--level", "ERROR")
    assert "logged in" not in nothing.out
    assert nothing.err == "weft: the nodes have logged nothing at ERROR or above\n"
    wrong = shell.weft("logs", execution_id, "sys")
    assert wrong.code == 3
    assert "says" in wrong.err


def test_the_client_reads_lines_as_they_are(server: BackgroundServer, client: Client, fresh: str) -> None:
    server.open(fresh)
    execution_id = start(client, fresh)
    client.wait(execution_id)
    found = [(line.attempt, line.stream, line.message) for line in client.logs(execution_id)]
    assert sorted(found) == sorted([*PRINTED, *LOGGED])
    warned = [
        (line.attempt, line.stream, line.message) for line in client.logs(execution_id, level="WARNING")
    ]
    assert warned == LOGGED
    one = next(client.logs(execution_id, node="says", attempt=2))
    assert (one.node, one.seq > 1, one.level, one.at.tzinfo is not None) == ("says", True, None, True)
    with pytest.raises(ApiError, match="no node"):
        list(client.logs(execution_id, node="nobody"))


def test_lines_are_followed_to_the_end_of_the_execution(
    server: BackgroundServer, client: Client, fresh: str
) -> None:
    execution_id = start(client, fresh)
    following = subprocess.Popen(
        [sys.executable, "-m", "weft", "logs", execution_id, "-f", "--json"],
        stdout=subprocess.PIPE,
        text=True,
    )
    with following:
        assert following.stdout is not None
        # They come while the second attempt waits at its gate.
        first = [json.loads(following.stdout.readline()) for _ in range(4)]
        assert [line["message"] for line in first] == [
            "printed in 1",
            "logged in 1",
            "printed in 2",
            "logged in 2",
        ]
        assert client.execution(execution_id).state == "RUNNING"
        lines = client.watch_logs(execution_id, level="WARNING")
        assert [next(lines).message for _ in range(2)] == ["logged in 1", "logged in 2"]
        server.open(fresh)
        assert list(lines) == []
        assert following.stdout.read() == ""
        assert following.wait(30) == 0
    again = [line.message for line in client.watch_logs(execution_id, node="says", attempt=1)]
    assert again == ["printed in 1", "logged in 1"]
