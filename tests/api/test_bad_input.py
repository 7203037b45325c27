"""Bad definitions at three doors: REST, the command line and the SDK give one verdict, and keep nothing."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
import time
from contextlib import asynccontextmanager, suppress
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.api.bad_input import CANARY, CASES, Case, alias_bomb, definition, echo, escapes

from weft.errors import ApiError, DefinitionError, DocumentError
from weft.sdk.client import AsyncClient
from weft.sdk.run import execute

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from tests.api.conftest import Serve, Server

# A verdict: the problems as (pointer, message). Text that cannot be read is one problem of the whole.
Verdict = list[tuple[str, str]]

WEFT = str(Path(sys.executable).with_name("weft"))
MAX_STALL_SECONDS = 0.5


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every case as a file of its own."""
    folder = tmp_path_factory.mktemp("bad-input")
    for case in CASES:
        file_of(case, folder).write_bytes(case.text)
    return folder


def file_of(case: Case, folder: Path) -> Path:
    return folder / f"case{CASES.index(case)}{case.suffix}"


def read_problems(problems: list[dict[str, str]]) -> Verdict:
    return [(problem["pointer"], problem["message"]) for problem in problems]


async def by_rest(case: Case, server: Server) -> Verdict:
    answer = await server.post("/v1/workflows", data=case.text, headers={"Content-Type": case.media})
    assert answer.status == case.status, answer.body[:300]
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert answer.json["code"] == ("bad_syntax" if case.status == 400 else "invalid_definition")
    if case.status == 400:
        assert answer.json["problems"] == []
        return [("", answer.json["detail"])]
    return read_problems(answer.json["problems"])


async def by_rest_validating(case: Case, server: Server) -> Verdict:
    answer = await server.post("/v1/workflows/validate", data=case.text, headers={"Content-Type": case.media})
    if case.status == 400:
        assert answer.status == 400
        return [("", answer.json["detail"])]
    assert answer.status == 200
    assert (answer.json["valid"], answer.json["layers"]) == (False, [])
    return read_problems(answer.json["problems"])


async def by_client(file: Path, client: AsyncClient) -> Verdict:
    with pytest.raises(ApiError) as caught:
        await client.deploy(file)
    error = caught.value
    if error.status == 400:
        return [("", str(error))]
    return [(problem.pointer, problem.message) for problem in error.problems]


async def in_process(file: Path) -> Verdict:
    with pytest.raises((DefinitionError, DocumentError)) as caught:
        await execute(file)
    if isinstance(caught.value, DefinitionError):
        return [(problem.pointer, problem.message) for problem in caught.value.problems]
    return [("", str(caught.value).removeprefix(f"{file}: "))]


async def run_weft(*arguments: str, url: str | None = None) -> tuple[int, str, str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("WEFT_")}
    process = await asyncio.create_subprocess_exec(
        *(WEFT, *arguments),
        env=environment | ({"WEFT_URL": url} if url else {}),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(60):
        out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


async def by_command_line(folder: Path) -> list[Verdict]:
    """Return the verdict on every case; one process checks them all."""
    files = [str(file_of(case, folder)) for case in CASES]
    code, printed, complained = await run_weft("validate", "--json", *files)
    assert (code, complained) == (2, "")
    found = [json.loads(line) for line in printed.splitlines()]
    assert [one["file"] for one in found] == files
    assert not any(one["valid"] for one in found)
    return [
        [
            (pointer, message.removeprefix(f"{one['file']}: "))
            for pointer, message in read_problems(one["problems"])
        ]
        for one in found
    ]


def without_name(verdict: Verdict) -> Verdict:
    """Return the verdict on the same definition where it needs no name, because it is not stored by one."""
    return [one for one in verdict if one != ("", "name is missing")]


async def stored(server: Server) -> tuple[Any, Any]:
    workflows, executions = await server.get("/v1/workflows"), await server.get("/v1/executions")
    assert (workflows.status, executions.status) == (200, 200)
    return workflows.json["items"], executions.json["items"]


def test_the_corpus_is_not_small() -> None:
    assert len({case.name for case in CASES}) == len(CASES) > 250


async def test_every_door_gives_the_same_verdict_and_nothing_is_stored(server: Server, folder: Path) -> None:
    good = await server.post("/v1/workflows", json={"name": "good", "nodes": [echo()]})
    assert good.status == 201
    before = await stored(server)
    wrong = []
    shell = await by_command_line(folder)
    async with AsyncClient(server.url) as client:
        for case, printed in zip(CASES, shell, strict=True):
            file = file_of(case, folder)
            verdict = await by_rest(case, server)
            if not any(
                pointer == (case.pointer or "") and case.words in message for pointer, message in verdict
            ):
                wrong.append(f"{case.name}: {verdict}")
            for door, other in (
                ("validate", await by_rest_validating(case, server)),
                ("client", await by_client(file, client)),
                ("command line", printed),
                ("in process", await in_process(file)),
            ):
                expected = without_name(verdict) if door == "in process" else verdict
                if other != expected:
                    wrong.append(f"{case.name}: {door} says {other}, not {expected}")
    assert wrong == []
    assert await stored(server) == before


async def test_the_same_is_said_of_a_definition_that_is_not_stored_by_name(server: Server) -> None:
    wrong = []
    for case in CASES:
        if case.suffix != ".json" or case.status == 400:
            continue
        body = b'{"definition": ' + case.text + b"}"
        answer = await server.post("/v1/executions", data=body, headers={"Content-Type": "application/json"})
        if answer.status == 400 and "nested deeper" in answer.json["detail"]:
            continue  # one level more than the same definition alone
        verdict = without_name(await by_rest(case, server))
        expected = [(f"/definition{pointer}", message) for pointer, message in verdict]
        found = read_problems(answer.json["problems"])
        if (answer.status, answer.json["code"]) != (422, "invalid_definition") or found != expected:
            wrong.append(f"{case.name}: {answer.status} {found}, not {expected}")
    assert wrong == []
    assert await stored(server) == ([], [])


async def test_deploying_from_a_shell_fails_as_validating_does(server: Server, folder: Path) -> None:
    for name in ("json: a cycle", "yaml: a key twice", "json: max_retries: '3'"):
        case = next(one for one in CASES if one.name == name)
        code, printed, complained = await run_weft("deploy", str(file_of(case, folder)), url=server.url)
        assert (code, printed) == (2, ""), complained
        for pointer, message in await by_rest(case, server):
            assert pointer in complained
            assert message in complained
    assert await stored(server) == ([], [])


# --- Other bodies.

NOT_OBJECTS = [b"[]", b"null", b"3", b'"x"', b"true"]
BODIES: list[tuple[str, bytes, str]] = [
    *(("", body, "must be an object") for body in NOT_OBJECTS),
    ("/input", b'{"input": [1]}', ""),
    ("/input", b'{"input": "x"}', ""),
    ("/labels", b'{"labels": ["x"]}', ""),
    ("/labels/a", b'{"labels": {"a": 1}}', ""),
    ("/labels/A", b'{"labels": {"A": "x"}}', ""),
    ("/labels/a", b'{"labels": {"a": "' + b"x" * 256 + b'"}}', "255"),
    ("/priority", b'{"priority": "urgent"}', ""),
    ("/priority", b'{"priority": 1}', ""),
    ("/priority", b'{"priority": null}', ""),
    ("/version", b'{"version": true}', ""),
    ("/version", b'{"version": 1.5}', ""),
    ("/version", b'{"version": []}', ""),
    ("/inputs", b'{"inputs": {}}', "inputs"),
    ("/nodes", b'{"nodes": {}}', "nodes"),
]


@pytest.mark.parametrize(("pointer", "body", "words"), BODIES)
async def test_a_bad_body_starts_nothing(server: Server, pointer: str, body: bytes, words: str) -> None:
    await server.post("/v1/workflows", json={"name": "good", "nodes": [echo()]})
    answer = await server.post(
        "/v1/workflows/good/executions", data=body, headers={"Content-Type": "application/json"}
    )
    assert answer.status == 422
    assert answer.json["code"] in ("invalid_request", "invalid_input")
    (found,) = read_problems(answer.json["problems"])
    assert found[0] == pointer
    assert words in found[1]
    assert (await stored(server))[1] == []


@pytest.mark.parametrize("text", [case for case in CASES if case.status == 400], ids=lambda case: case.name)
async def test_a_body_that_cannot_be_read_is_bad_syntax_wherever_it_is_sent(
    text: Case, shared: Server
) -> None:
    for method, path in (
        ("POST", "/v1/executions"),
        ("POST", "/v1/workflows/good/executions"),
        ("PUT", "/v1/workflows/good/aliases/prod"),
        ("POST", "/v1/batches"),
    ):
        headers = {"Content-Type": text.media}
        answer = await shared.call(method, path, data=text.text, headers=headers)
        if not text.text and path.endswith("/good/executions"):
            assert answer.status == 404  # no body is all the defaults, and there is no such workflow
        else:
            assert (answer.status, answer.json["code"]) == (400, "bad_syntax"), path


@pytest.fixture
async def shared(serve: Serve) -> AsyncIterator[Server]:
    async with serve(data=None) as server:
        yield server


# --- What would cost more than it may.


@asynccontextmanager
async def heartbeat(server: Server) -> AsyncIterator[list[float]]:
    """Ask for the server's health all the time; give how long each answer took."""
    took: list[float] = []
    # What thousands of tests have left in this process is not the server's: to look at it takes the collector
    # longer than the server may take.
    gc.collect()
    gc.freeze()

    async def ask() -> None:
        while True:
            began = time.monotonic()
            assert (await server.get("/healthz")).status == 200
            took.append(time.monotonic() - began)
            await asyncio.sleep(0.005)

    asking = asyncio.create_task(ask())
    try:
        yield took
    finally:
        asking.cancel()
        with suppress(asyncio.CancelledError):
            await asking
        gc.unfreeze()


def costly() -> list[tuple[str, bytes, str]]:
    many = 60_000
    mistakes = [{"id": f"n{n}", "handler": "ecko", "dependencies": [f"m{n}"], "oops": 1} for n in range(many)]
    ring = [echo(f"n{n}", f"n{(n + 1) % many}") for n in range(many)]
    dense = [echo(f"n{n}", *(f"n{k}" for k in range(max(0, n - 300), n))) for n in range(1500)]
    templates = [echo(f"n{n}", config="{{ (((((input.a[1:2] | default(1))))))) }}" * 20) for n in range(3000)]
    texts = {
        "many mistakes": definition(*mistakes),
        "a long ring": definition(*ring),
        "many edges": definition(*dense, {"id": "!", "handler": "echo"}),
        "many templates that do not parse": definition(*templates),
    }
    found = [(name, json.dumps(text).encode(), "application/json") for name, text in texts.items()]
    return [
        *found,
        ("brackets", b"[" * 8_000_000, "application/json"),
        ("strings", b"[" + b'"x",' * 2_000_000 + b'"x"', "application/json"),
        ("keys", b"{" + b",".join(b'"%d":0' % n for n in range(1_000_000)) + b',"0":1}', "application/json"),
        ("a bomb of aliases", alias_bomb(), "application/yaml"),
        ("flow without an end", b"[" * 1_000_000, "application/yaml"),
        ("a long plain scalar", b"name: " + b"x " * 2_000_000 + b": :", "application/yaml"),
        ("anchors", b"".join(b"- &a%d x\n" % n for n in range(100_000)) + b"- *b\n", "application/yaml"),
    ]


@pytest.mark.parametrize(
    ("name", "text", "media"), costly(), ids=lambda value: value if isinstance(value, str) else ""
)
async def test_the_server_answers_others_while_it_reads_a_hostile_document(
    shared: Server, name: str, text: bytes, media: str
) -> None:
    async with heartbeat(shared) as took:
        answer = await shared.post("/v1/workflows", data=BytesIO(text), headers={"Content-Type": media})
    assert answer.status in (400, 413, 422), answer.body[:300]
    assert len(answer.body) < 4_000_000
    # In proportion: on a busy machine everything takes longer, but nobody is held up for most of it.
    assert max(took, default=0.0) < max(MAX_STALL_SECONDS, sum(took) / 3)
    assert await stored(shared) == ([], [])


# --- Attempts to reach Python.


@pytest.fixture
def no_canary() -> Iterator[None]:
    Path(CANARY).unlink(missing_ok=True)
    yield
    assert not Path(CANARY).exists()


async def test_no_template_reaches_python(shared: Server, no_canary: None) -> None:
    document = escapes()
    answer = await shared.post("/v1/workflows", json=document)
    assert answer.status == 422
    refused = {problem["pointer"].split("/")[2] for problem in answer.json["problems"]}
    left = [node for number, node in enumerate(document["nodes"]) if str(number) not in refused]
    assert len(left) < 40

    answer = await shared.post("/v1/executions?wait=30", json={"definition": {**document, "nodes": left}})
    assert answer.status == 200
    ended = {node["id"]: node for node in answer.json["nodes"]}
    assert ended.pop("fetch")["state"] == "COMPLETED"
    assert {node["state"] for node in ended.values()} == {"FAILED"}
    assert {node["error"]["code"] for node in ended.values()} == {"template_error"}
