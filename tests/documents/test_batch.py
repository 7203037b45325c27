"""Many documents at once, on a server: again, and through a kill -9."""

from __future__ import annotations

import asyncio
import json
import os
from typing import TYPE_CHECKING, Any

from tests.documents.conftest import DEFINITION, Place, server_settings
from tests.operation.serving import PATIENCE_SECONDS, WEFT, Api, serving

import paperwork
from paperwork import dataset, fields, model
from paperwork.samples import LETTER
from weft.testing.fake_llm import rate_limited

if TYPE_CHECKING:
    import pytest

    from weft.testing.fake_llm import FakeLLM

# So many documents are under way when their server is killed.
KILLED = 80
# What is tested here is not the limit.
UNLIMITED = {"WEFT_RESOURCE_LIMITS": "{}"}


async def weft(api: Api, *arguments: str) -> tuple[int, str, str]:
    """Type a command of weft, and give its exit code and what it printed."""
    process = await asyncio.create_subprocess_exec(
        *(*WEFT, *arguments),
        env={**os.environ, "WEFT_URL": api.url},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(PATIENCE_SECONDS):
        out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


async def deploy(api: Api) -> None:
    code, _, err = await weft(api, "deploy", str(DEFINITION))
    assert code == 0, err


async def start_batch(api: Api, inputs: list[dict[str, Any]]) -> str:
    status, batch, _ = await api.call("POST", "/v1/batches", {"workflow": "documents", "inputs": inputs})
    assert status == 202, batch
    return str(batch["id"])


async def ended(api: Api, batch_id: str) -> Any:
    """Return a batch once all its executions are terminal."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            batch = await api.get(f"/v1/batches/{batch_id}")
            if batch["state"] == "COMPLETED":
                return batch
            await asyncio.sleep(0.1)


async def has_files(place: Place, count: int) -> None:
    """Return once so many files have been saved.

    They are counted by their names and only where they end up: what is still being written can be moved away
    between the look at its folder and the look at it.
    """
    async with asyncio.timeout(PATIENCE_SECONDS):
        while sum(1 for _ in place.dataset.glob("[!.]*/*")) < count:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)


def contents(place: Place) -> dict[str, bytes]:
    return {name: data for name, (data, _) in place.files().items()}


def queue(place: Place) -> list[tuple[Any, ...]]:
    """Return the items of the review queue, without their numbers and times."""
    return sorted(row[1:5] for row in place.rows("reviews"))


def expected(
    place: Place, inputs: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> tuple[dict[str, bytes], list[tuple[Any, ...]]]:
    """Return the files and the queue that the inputs come to, worked out one by one in a place of its own."""
    other = Place(place.folder / "expected")
    other.folder.mkdir()
    with monkeypatch.context() as patched:
        for name, value in {**other.environment(), "DOCUMENTS_INBOX": str(place.inbox)}.items():
            patched.setenv(name, value)
        for given in inputs:
            read = paperwork.read(**given)
            if read["type"] == fields.OTHER:
                paperwork.set_aside(read["document"], read["sha256"])
                continue
            reply: Any = model.find(read["text"], list(fields.TYPES[read["type"]]))
            checked = paperwork.check(read["document"], read["sha256"], read["type"], reply)
            dataset.save_parquet(checked["record"])
            dataset.save_json(checked["record"])
            if checked["record"]["confidence"] < 0.8:
                paperwork.create_review(checked["record"], "the confidence is low")
        return contents(other), queue(other)


async def test_processing_the_same_500_documents_again_changes_nothing(place: Place, llm: FakeLLM) -> None:
    # Nothing is sure enough, so that every document has an item.
    inputs = place.fill(500, review_below=1)
    (place.folder / "documents.jsonl").write_text("".join(json.dumps(given) + "\n" for given in inputs))
    llm.script(*[rate_limited(0.1)] * 3)
    async with serving(place.folder / "data", settings=server_settings(llm, **UNLIMITED)) as (_, api):
        await deploy(api)
        code, out, err = await weft(api, "batch", "documents", str(place.folder / "documents.jsonl"))
        assert code == 0, err
        assert err.splitlines()[-1].endswith(": 500 completed, 3 retried")
        assert (await api.get(f"/v1/batches/{out.strip()}"))["retried"] == 3

        files, reviews, calls = place.files(), place.rows("reviews"), len(llm.requests)
        letters = 500 // LETTER
        assert len(files) == 2 * (500 - letters)
        assert len({row[1] for row in reviews}) == len(reviews) == 500
        assert calls == 500 - letters + 3

        batch = await ended(api, await start_batch(api, inputs))
        assert batch["counts"]["COMPLETED"] == 500
    assert place.files() == files
    assert place.rows("reviews") == reviews
    assert len(place.rows("review_history")) == 500
    assert len(llm.requests) == calls
    assert len(place.rows("processed")) == 2 * (500 - letters)


async def test_a_batch_goes_on_after_kill_9_to_the_same_end(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs = place.fill(KILLED)
    data = place.folder / "data"
    with model.make(delay_seconds=0.05) as llm:
        settings = server_settings(llm, **UNLIMITED, WEFT_WORKER_CONCURRENCY="8")
        async with serving(data, settings=settings) as (server, api):
            await deploy(api)
            batch_id = await start_batch(api, inputs)
            await has_files(place, KILLED // 2)
            await server.kill()
        assert 0 < len(place.files()) < 2 * (KILLED - KILLED // LETTER)
        async with serving(data, settings=settings) as (_, api):
            batch = await ended(api, batch_id)
    assert batch["counts"]["COMPLETED"] == KILLED
    files, reviews = expected(place, inputs, monkeypatch)
    # Nothing that was cut off is left, either.
    assert contents(place) == files
    assert queue(place) == reviews
    assert len(place.rows("processed")) == KILLED - KILLED // LETTER
    # What had been extracted was not sent again: only what was under way at the kill.
    assert len(llm.requests) <= KILLED - KILLED // LETTER + 8
