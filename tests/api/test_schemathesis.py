"""Requests that the OpenAPI document allows, and many that it does not, at a real server.

No answer is a server error, none is undocumented (status, content type, headers, shape), and none accepts
what the document forbids. ``WEFT_TEST_EXAMPLES=500`` draws so many requests for each operation, and others
every time; without it they are few and always the same.
"""

from __future__ import annotations

import asyncio
import json
import os
import threading
from queue import SimpleQueue
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.config import SchemathesisConfig
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import (
    allow_header_conformance,
    negative_data_rejection,
    positive_data_acceptance,
)
from tests.operation.serving import serving

from weft.api.reference import openapi_document

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from schemathesis import CheckFunction

GIVEN = os.environ.get("WEFT_TEST_EXAMPLES")
EXAMPLES = int(GIVEN or 6)
# More than any answer takes, less than a stream that never ends.
SECONDS = 20

# What comes live has no end; tests/api/test_stream.py and test_live.py listen to it.
# (Each event of a stream that ends is held against the schema of the whole text.)
SCHEMA = schemathesis.openapi.from_dict(
    json.loads(openapi_document()), config=SchemathesisConfig(seed=None if GIVEN else 1)
).exclude(path=["/v1/events", "/v1/executions/{execution_id}/live"])

NOT_CHECKED: list[CheckFunction] = [
    # No schema can say that a graph has no cycle, or that a template parses.
    positive_data_acceptance,
]


@SCHEMA.parametrize()
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=not GIVEN,
    database=None,
    suppress_health_check=list(HealthCheck),
)
def test_an_operation_answers_as_it_is_documented(
    case: schemathesis.Case[Any], url: str, known: dict[str, str]
) -> None:
    point_at_what_is_there(case, known)
    not_checked = list(NOT_CHECKED)
    if case.path == "/v1/workflows/validate":
        # It tells what is wrong instead of refusing it; and a workflow may be called "validate", so that the
        # same path is one of {name}.
        not_checked += [negative_data_rejection, allow_header_conformance]
    case.call_and_validate(base_url=url, excluded_checks=not_checked, timeout=SECONDS)


def point_at_what_is_there(case: schemathesis.Case[Any], known: dict[str, str]) -> None:
    """Let most requests that are meant to be good name something that the server has."""
    if case.meta is None or case.meta.generation.mode is not GenerationMode.POSITIVE:
        return
    for name in case.path_parameters:
        if name in known and Random(repr(case.path_parameters)).random() < 0.8:
            case.path_parameters = {**case.path_parameters, name: known[name]}
    wait = case.query.get("wait") if case.query else None
    if isinstance(wait, int | float) and wait > 1:
        # Whoever asks to wait may have to.
        case.query = {**case.query, "wait": 1}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A real server in a process of its own, looked after by a loop beside the tests."""
    found: SimpleQueue[Any] = SimpleQueue()

    async def serve(folder: Path) -> None:
        ended = asyncio.Event()
        async with serving(folder / "data") as (server, _):
            found.put((server.url, asyncio.get_running_loop(), ended))
            await ended.wait()

    thread = threading.Thread(
        target=lambda: asyncio.run(serve(tmp_path_factory.mktemp("schemathesis"))), daemon=True
    )
    thread.start()
    url, loop, ended = found.get(timeout=60)
    yield url
    loop.call_soon_threadsafe(ended.set)
    thread.join()


@pytest.fixture
def known(url: str) -> dict[str, str]:
    """Something of everything, and how paths name it."""
    nodes = [
        {"id": "a", "handler": "echo", "config": {"x": "{{ input.x }}"}},
        {"id": "b", "handler": "sleep", "dependencies": ["a"], "config": {"seconds": 0}},
    ]
    document = {"name": "good", "nodes": nodes, "defaults": {"max_retries": 0}}
    version = {"version": post(url, "/v1/workflows", document)["version"]}
    answer = requests.put(f"{url}/v1/workflows/good/aliases/prod", json=version, timeout=SECONDS)
    assert answer.ok, answer.text
    # Without x the first node fails, and leaves a dead letter.
    failed = post(url, "/v1/workflows/good/executions?wait=20", {"labels": {"team": "sales"}})
    batch = post(url, "/v1/batches", {"workflow": "good", "inputs": [{"x": 1}, {}]})
    letters = requests.get(f"{url}/v1/dead-letters", timeout=SECONDS).json()["items"]
    assert letters, failed
    return {
        "name": "good",
        "alias": "prod",
        "execution_id": failed["id"],
        "node_id": "a",
        "batch_id": batch["id"],
        "letter_id": letters[0]["id"],
    }


def post(url: str, path: str, body: Any) -> Any:
    answer = requests.post(url + path, json=body, timeout=SECONDS)
    assert answer.ok, answer.text
    return answer.json()
