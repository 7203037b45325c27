"""A place for the document pipeline of ``examples/documents``, and the stand-in for its model."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from tests.operation.serving import ROOT

from paperwork import database, model
from paperwork.samples import write
from weft.testing import run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from weft.testing.fake_llm import FakeLLM
    from weft.testing.workflows import MockedResult

EXAMPLE = ROOT / "examples" / "documents"
DEFINITION = EXAMPLE / "documents.yaml"
APPROVE = {"decision": "approve"}
# In virtual time.
REVIEW_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Place:
    """A folder with an inbox, where this process and every program it starts find all that is theirs."""

    folder: Path

    @property
    def inbox(self) -> Path:
        return self.folder / "inbox"

    @property
    def dataset(self) -> Path:
        return self.folder / "dataset"

    def environment(self) -> dict[str, str]:
        return {
            "DOCUMENTS_INBOX": str(self.inbox),
            "DOCUMENTS_DATASET": str(self.dataset),
            "DOCUMENTS_DATABASE_URL": f"sqlite:///{self.folder / 'documents.db'}",
        }

    def put(self, name: str, data: bytes) -> str:
        self.inbox.mkdir(exist_ok=True)
        (self.inbox / name).write_bytes(data)
        return name

    def fill(self, count: int, *, scans: int = 0, first: int = 1, **more: Any) -> list[dict[str, Any]]:
        """Put samples into the inbox, and give the inputs for them."""
        return [{"path": name, **more} for name in write(self.inbox, count, scans=scans, first=first)]

    def saved(self, document: str) -> dict[str, Any]:
        """Return what was saved of a document."""
        read = (json.loads(file.read_bytes()) for file in (self.dataset / "json").glob("*.json"))
        (found,) = [record for record in read if record["document"] == document]
        assert isinstance(found, dict)
        return found

    def files(self) -> dict[str, tuple[bytes, int]]:
        """Return the content of every file of the dataset, and when it was written."""
        return {
            str(file.relative_to(self.dataset)): (file.read_bytes(), file.stat().st_mtime_ns)
            for file in self.dataset.rglob("*")
            if file.is_file()
        }

    def rows(self, table: str) -> list[tuple[Any, ...]]:
        with database.reading() as connection:
            return [tuple(row) for row in connection.execute(f"SELECT * FROM {table} ORDER BY 1, 2")]

    def process(self, path: str, *, answer: dict[str, Any] | None = None, **more: Any) -> MockedResult:
        """Take one document through the pipeline, in this process; a review without an answer expires."""
        answers = {} if answer is None else {"create_review": answer}
        given = {"path": path, "review_seconds": REVIEW_SECONDS, **more}
        return run(str(DEFINITION), input=given, answers=answers)

    def decided(self) -> list[tuple[str, str]]:
        """Return the documents that somebody has decided about, and what."""
        return [(document, decision) for document, decision, *_ in self.rows("decisions")]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    place = Place(tmp_path)
    for name in list(os.environ):
        if name.startswith(("WEFT_", "DOCUMENTS_")) and not name.startswith("WEFT_TEST_"):
            monkeypatch.delenv(name)
    for name, value in place.environment().items():
        monkeypatch.setenv(name, value)
    yield place
    database.close()


@pytest.fixture
def llm(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeLLM]:
    """Serve the stand-in for the model, where this process finds it."""
    with model.make() as llm:
        monkeypatch.setenv("WEFT_CONFIG", str(EXAMPLE / "weft.toml"))
        monkeypatch.setenv("WEFT_LLM_BASE_URL", llm.base_url)
        yield llm


def server_settings(llm: FakeLLM, **more: str) -> dict[str, str]:
    """Return what a server of the pipeline is told besides what this process has in its environment."""
    return {
        "PYTHONPATH": f"{ROOT}{os.pathsep}{EXAMPLE}",
        "WEFT_CONFIG": str(EXAMPLE / "weft.toml"),
        "WEFT_LLM_BASE_URL": llm.base_url,
        **more,
    }
