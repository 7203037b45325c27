"""Commands against a real server, which runs in a thread of the test's process."""

from __future__ import annotations

import json
import os
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from tests.background import FRAGILE, HELD, ORDER, serving

from weft.cli.main import main
from weft.sdk.client import Client

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.background import BackgroundServer


@dataclass(frozen=True)
class Ended:
    """What a command did."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


@dataclass(frozen=True)
class Shell:
    """A shell whose ``WEFT_URL`` names the server."""

    server: BackgroundServer
    client: Client
    capsys: pytest.CaptureFixture[str]

    def weft(self, *arguments: str) -> Ended:
        self.capsys.readouterr()
        code = main(arguments)
        shown = self.capsys.readouterr()
        # A traceback is of the code that a node ran, never of the command itself.
        assert "/weft/cli/" not in shown.err
        return Ended(code, shown.out, shown.err)

    def failed(self, gate: str) -> str:
        """Return the id of an execution of ``fragile`` that has failed."""
        return self.client.wait(self.client.start("fragile", {"gate": gate}).id).id


@pytest.fixture(scope="session")
def background() -> Iterator[BackgroundServer]:
    with serving() as server, Client(server.url) as client:
        for definition in (ORDER, HELD, FRAGILE):
            client.deploy(definition)
        yield server


@pytest.fixture
def shell(
    background: BackgroundServer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Shell]:
    for name in os.environ:
        if name.startswith("WEFT_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("WEFT_URL", background.url)
    with Client(background.url) as client:
        yield Shell(background, client, capsys)


@pytest.fixture
def fresh() -> str:
    """A name that no other test has."""
    return uuid.uuid4().hex
