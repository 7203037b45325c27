"""Many documents at once, on a server: again, and through a kill -9."""

from __future__ import annotations

import asyncio
import json
import os
from typing import TYPE_CHECKING, Any

from tests.documents.conftest import APPROVE, DEFINITION, Place, server_settings
from tests.operation.serving import PATIENCE_SECONDS, WEFT, Api, serving

import paperwork
from paperwork import dataset, fields, model, review
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


async def settled(api: Api, batch_id: str, count: int) -> None:
    """Return once so many executions of a batch are completed."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            batch = await api.get(f"/v1/batches/{batch_id}")
            if batch["counts"]["COMPLETED"] == count:
                return
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


def decided(place: Place) -> list[tuple[Any, ...]]:
    """Return what was decided about which document, without the times."""
    return [(*row[:2], json.loads(row[2]), *row[3:5]) for row in place.rows("decisions")]


async def waiting(api: Api, count: int) -> list[dict[str, Any]]:
    """Return the open reviews once there are so many."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            items: list[dict[str, Any]] = []
            cursor: str | None = ""
            while cursor is not None:
                page = await api.get(f"/v1/waits?limit=500{cursor and f'&cursor={cursor}'}")
                items += page["items"]
                cursor = page["next_cursor"]
            if len(items) == count:
                return items
            await asyncio.sleep(0.1)


async def approve(api: Api, waits: list[dict[str, Any]]) -> None:
    for wait in waits:
        path = f"/v1/executions/{wait['execution']}/nodes/{wait['node']}/answer"
        status, body, _ = await api.call("POST", path, {"value": APPROVE})
        assert status == 202, body


def expected(
    place: Place, inputs: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> tuple[dict[str, bytes], list[str], list[tuple[Any, ...]]]:
    """Return what the inputs come to, worked out one by one in a place of its own.

    The files, the questions, and the decisions once all are approved.
    """
    other = Place(place.folder / "expected")
    other.folder.mkdir()
    questions = []
    with monkeypatch.context() as patched:
        for name, value in {**other.environment(), "DOCUMENTS_INBOX": str(place.inbox)}.items():
            patched.setenv(name, value)
        for given in inputs:
            read = paperwork.read(**given)
            if read["type"] == fields.OTHER:
                made = paperwork.set_aside(read["document"], read["sha256"])
            else:
                reply: Any = model.find(read["text"], list(fields.TYPES[read["type"]]))
                made = paperwork.check(read["document"], read["sha256"], read["type"], reply)
                dataset.save_parquet(made["record"])
                dataset.save_json(made["record"])
            if made["record"]["confidence"] < 0.8:
                questions.append(made["question"])
                review.decide(made["record"], APPROVE, by=None, at="")
        return contents(other), sorted(questions), decided(other)


async def test_processing_the_same_500_documents_again_changes_nothing(place: Place, llm: FakeLLM) -> None:
    # Nothing is sure enough, so that every document is reviewed.
    inputs = place.fill(500, review_below=1)
    (place.folder / "documents.jsonl").write_text("".join(json.dumps(given) + "\n" for given in inputs))
    llm.script(*[rate_limited(0.1)] * 3)
    async with serving(place.folder / "data", settings=server_settings(llm, **UNLIMITED)) as (_, api):
        await deploy(api)
        command = weft(api, "batch", "documents", str(place.folder / "documents.jsonl"))
        batch_run = asyncio.create_task(command)
        waits = await waiting(api, 500)
        assert not batch_run.done()
        await approve(api, waits)
        code, out, err = await batch_run
        assert code == 0, err
        assert err.splitlines()[-1].endswith(": 500 completed, 3 retried")
        assert (await api.get(f"/v1/batches/{out.strip()}"))["retried"] == 3

        files, decisions, calls = place.files(), place.rows("decisions"), len(llm.requests)
        letters = 500 // LETTER
        assert len(files) == 2 * (500 - letters)
        assert len({row[0] for row in decisions}) == len(decisions) == 500
        assert calls == 500 - letters + 3

        batch = await ended(api, await start_batch(api, inputs))
        assert batch["counts"]["COMPLETED"] == 500
    assert place.files() == files
    assert place.rows("decisions") == decisions
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
        files, questions, decisions = expected(place, inputs, monkeypatch)
        async with serving(data, settings=settings) as (server, api):
            waits = await waiting(api, len(questions))
            await settled(api, batch_id, KILLED - len(questions))
            assert sorted(wait["prompt"] for wait in waits) == questions
            assert place.rows("decisions") == []
            await approve(api, waits[::2])
            # Some wait still, some were answered a moment ago: neither is lost.
            await server.kill()
        async with serving(data, settings=settings) as (_, api):
            await approve(api, await waiting(api, len(waits[1::2])))
            batch = await ended(api, batch_id)
    assert batch["counts"]["COMPLETED"] == KILLED
    # Nothing that was cut off is left, either.
    assert contents(place) == files
    assert decided(place) == decisions
    assert len(place.rows("processed")) == KILLED - KILLED // LETTER
    # What had been extracted was not sent again: only what was under way at the kill.
    assert len(llm.requests) <= KILLED - KILLED // LETTER + 8
