"""What an attacker sends over REST: SQL in every parameter, functions by their path, lines for the log."""

from __future__ import annotations

import io
import json
import logging
import re
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest
from tests.operation.serving import serving

from weft.api.answer import cursor_of
from weft.api.reference import openapi_document
from weft.definition.model import NAME_PATTERN
from weft.errors import JournalError
from weft.logs import JsonFormatter

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.api.conftest import Server

DOCUMENT = json.loads(openapi_document())
# What comes live has no end.
OPERATIONS = [
    (method.upper(), path, operation)
    for path, operations in DOCUMENT["paths"].items()
    for method, operation in operations.items()
    if path != "/v1/events"
]

# Calls whose body is read before what their path names is looked for.
BODIES: dict[str, dict[str, Any]] = {
    "answer": {"value": 1},
    "signals/{name}": {"value": 1},
    "backfill": {"from": "2026-01-01T00:00:00Z", "to": "2026-01-02T00:00:00Z", "dry_run": True},
}

# --- SQL (F84).

SQL = [
    "'",
    '"',
    "''",
    "`",
    "\\",
    ";",
    "--",
    "/*",
    "%",
    "_",
    "*",
    "1 OR 1=1",
    "' OR '1'='1",
    "' OR '1'='1' --",
    "' OR 1=1 /*",
    '" OR "1"="1',
    "') OR ('1'='1",
    "x' AND 1=0 UNION SELECT name, sql, 1, 1, 1, 1 FROM sqlite_master --",
    "' UNION ALL SELECT NULL, NULL, NULL --",
    "'; DROP TABLE executions; --",
    "'; DELETE FROM workflows WHERE ''='",
    "1; ATTACH DATABASE '/tmp/weft-test-canary' AS x",
    "' || (SELECT group_concat(name) FROM sqlite_master) || '",
    "' AND (WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM c) SELECT count(*) FROM c) --",
    "' AND randomblob(1000000000) --",
    "' AND load_extension('/tmp/x') --",
    "'; SELECT pg_sleep(10); --",
    "' AND 1=(SELECT 1 FROM pg_sleep(10)) --",
    "$$; SELECT 1; $$",
    "E'\\047 OR 1=1",
    "%27%20OR%201=1",
    "\u02bc OR 1=1",
    "0x27204f5220313d31",
    "NULL",
    "9223372036854775808",
    "-1",
    "1e400",
    "\x00' OR 1=1",
    "x" * 5000 + "'",
]
# No answer takes longer, unless something inside it does as it is told.
MAX_SECONDS = 5.0


async def something_of_everything(server: Server) -> dict[str, str]:
    """Put a little of all there is into a server; give how paths name it."""
    nodes = [{"id": "a", "handler": "echo", "config": "{{ input.x }}"}]
    for name in ("one", "two"):
        stored = await server.post("/v1/workflows", json={"name": name, "nodes": nodes})
        assert stored.status == 201
    assert (await server.call("PUT", "/v1/workflows/one/aliases/prod", json={"version": 1})).status == 200
    failed = await server.post("/v1/workflows/one/executions?wait=20", json={"labels": {"team": "sales"}})
    batch = await server.post("/v1/batches", json={"workflow": "two", "inputs": [{"x": 1}]})
    letters = await server.get("/v1/dead-letters")
    return {
        "name": "one",
        "alias": "prod",
        "execution_id": failed.json["id"],
        "node_id": "a",
        "batch_id": batch.json["id"],
        "letter_id": letters.json["items"][0]["id"],
    }


async def all_there_is(server: Server) -> dict[str, Any]:
    found = {}
    for path in ("/v1/workflows", "/v1/workflows/one", "/v1/workflows/two/versions", "/v1/dead-letters"):
        found[path] = (await server.get(path)).json
    executions = (await server.get("/v1/executions")).json["items"]
    found["executions"] = sorted(
        (one["id"], one["workflow"], one["labels"].get("team")) for one in executions
    )
    return found


def filled(path: str, known: dict[str, str], name: str, value: str) -> str:
    """Fill a path with what is there, except for one parameter."""
    for parameter in re.findall(r"{(\w+)}", path):
        given = value if parameter == name else known[parameter]
        path = path.replace(f"{{{parameter}}}", quote(given, safe=""))
    return path


def parameters(place: str) -> list[tuple[str, str, str]]:
    return [
        (method, path, parameter["name"])
        for method, path, operation in OPERATIONS
        for parameter in operation.get("parameters", ())
        if parameter["in"] == place
    ]


def test_every_kind_of_parameter_is_found() -> None:
    assert {name for _, _, name in parameters("path")} == {
        "name",
        "alias",
        "execution_id",
        "node_id",
        "batch_id",
        "letter_id",
    }
    assert {"cursor", "limit", "workflow", "version", "state", "label", "batch", "code", "after"} <= {
        name for _, _, name in parameters("query")
    }


async def test_sql_in_a_path_finds_nothing(server: Server) -> None:
    known = await something_of_everything(server)
    before = await all_there_is(server)
    for method, path, name in parameters("path"):
        body = next((body for end, body in BODIES.items() if path.endswith("/" + end)), None)
        if method == "PUT":
            body = {"version": 1}
        for payload in SQL:
            began = time.monotonic()
            answer = await server.call(method, filled(path, known, name, payload), json=body)
            # Some of it is a good name: then there is just nothing of that name, until somebody gives it.
            is_name = NAME_PATTERN.fullmatch(payload) and not payload.isdecimal()
            is_new_alias = is_name and method == "PUT" and name == "alias"
            # A good name of a signal, to an execution that has ended: there every signal is refused.
            is_signal = path.endswith("/signals/{name}") and name == "name"
            expected = (200,) if is_new_alias else (404, 409, 422) if is_signal else (404, 422)
            assert answer.status in expected, (method, path, payload, answer.body[:200])
            if is_new_alias:
                await server.call("DELETE", filled(path, known, name, payload))
            assert time.monotonic() - began < MAX_SECONDS
    assert await all_there_is(server) == before


async def test_sql_in_a_query_matches_nothing(server: Server) -> None:
    known = await something_of_everything(server)
    before = await all_there_is(server)
    for method, path, name in parameters("query"):
        if method != "GET":
            continue
        for payload in SQL:
            values = [payload, f"team:{payload}"] if name == "label" else [payload]
            for value in values:
                url = f"{filled(path, known, '', '')}?{name}={quote(value, safe='')}"
                began = time.monotonic()
                answer = await server.get(url)
                assert answer.status in (200, 404, 422), (url, answer.body[:200])
                assert time.monotonic() - began < MAX_SECONDS
                if answer.status == 200 and name != "after":
                    assert answer.json["items"] == [], url
    assert await all_there_is(server) == before


@pytest.mark.parametrize("payload", [text for text in SQL if "\x00" not in text])
async def test_sql_in_a_cursor_that_looks_like_ours_leads_nowhere(server: Server, payload: str) -> None:
    await something_of_everything(server)
    for method, path, name in parameters("query"):
        if name != "cursor" or "{" in path:
            continue
        for cursor in (
            cursor_of(payload),
            cursor_of(payload, payload),
            cursor_of(1, payload),
            cursor_of(payload, 1),
        ):
            answer = await server.call(method, f"{path}?cursor={cursor}")
            assert answer.status in (200, 422), (path, cursor, answer.body[:200])
            if answer.status == 422:
                assert [problem["pointer"] for problem in answer.json["problems"]] == ["/cursor"]


async def test_sql_in_a_value_is_that_value(server: Server) -> None:
    await something_of_everything(server)
    for payload in SQL:
        if len(payload) > 255 or "\x00" in payload:
            continue
        started = await server.post("/v1/workflows/one/executions", json={"labels": {"note": payload}})
        assert started.status == 202
        found = await server.get(f"/v1/executions?label=note:{quote(payload, safe='')}")
        assert [one["id"] for one in found.json["items"]] == [started.json["id"]], payload


# --- Functions by their path (F93).

FUNCTIONS = [
    "os:system",
    "posix:system",
    "os:popen",
    "os:execv",
    "subprocess:run",
    "subprocess:Popen",
    "subprocess:check_output",
    "builtins:exec",
    "builtins:eval",
    "builtins:__import__",
    "builtins:open",
    "importlib:import_module",
    "pickle:loads",
    "shutil:rmtree",
    "sys:exit",
    "ctypes:CDLL",
    "weft.cli.main:main",
    "weft.worker.child:main",
    "__main__:main",
    "os.path:os.system",
    "os:path.join",
    # Of an allowed module, what it only imports, hides, or is made of.
    "json:codecs",
    "json:__loader__",
    "json:__builtins__",
    "json:loads.__globals__",
    "json:detect_encoding.__globals__",
    "json.decoder:scanner",
    "textwrap:re",
    "textwrap:_hack",
]
MALFORMED = ["", "os", "os.system", ":system", "os:", "os:system:x", "os system", 3, None, ["os:system"]]
CANARY = Path("/tmp/weft-test-canary-f93")


@pytest.fixture
def no_canary() -> Iterator[None]:
    CANARY.unlink(missing_ok=True)
    yield
    assert not CANARY.exists()


async def test_a_function_that_is_not_allowed_is_not_called(tmp_path: Path, no_canary: None) -> None:
    nodes = [
        {
            "id": f"n{number}",
            "handler": "python",
            "config": {"function": function, "args": {"command": f"touch {CANARY}"}},
        }
        for number, function in enumerate(FUNCTIONS)
    ]
    # The name of a function may come from the input: it is looked at when it is known.
    templates = [{"id": "filled", "handler": "python", "config": {"function": "{{ input.function }}"}}]
    document = {"nodes": nodes + templates, "failure_policy": "continue"}
    settings = {"WEFT_PYTHON_ALLOW": "json:*, textwrap:dedent"}
    async with serving(tmp_path / "data", settings=settings) as (_, api):
        allowed = {"function": "textwrap:dedent", "args": {"text": "  x"}}
        works = {"nodes": [{"id": "a", "handler": "python", "config": allowed}]}
        assert (await api.terminal(await api.start(works)))["output"] == {"a": "x"}
        status, started, _ = await api.call(
            "POST", "/v1/executions", {"definition": document, "input": {"function": "os:system"}}
        )
        assert status == 202, started
        ended = await api.terminal(started["id"])
    for node in ended["nodes"]:
        assert node["state"] == "FAILED", node
        assert node["error"]["code"] == "function_not_allowed", node
        assert node["attempt"] == 1


@pytest.mark.parametrize("function", MALFORMED)
async def test_what_names_no_function_is_refused(server: Server, function: Any) -> None:
    node = {"id": "a", "handler": "python", "config": {"function": function}}
    answer = await server.post("/v1/executions", json={"definition": {"nodes": [node]}})
    assert (answer.status, answer.json["code"]) == (422, "invalid_definition")
    assert answer.json["problems"][0]["pointer"].startswith("/definition/nodes/0/config")


# --- Errors of our own (F98), and what they leave in the log (F85).

SECRET = "postgresql://weft:hunter2@db.internal/weft at /srv/weft/secret.py"
FORGED = [
    '\r\n{"level": "error", "event": "forged"}',
    "\x1b[2J\x1b]0;owned\x07",
    '"} , {"event": "forged"',
    "\u2028\u2029\u202e",
    "%s %(x)s {0}",
]


class Bug:
    """A port that is nothing but a bug: whatever is asked of it raises."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def __getattr__(self, name: str) -> Any:
        raise self._error


@contextmanager
def broken(server: Server, error: Exception) -> Iterator[None]:
    """Let every route meet an error that nobody foresaw."""
    bug: Any = Bug(error)
    whole = server.service.ports
    server.service.ports = replace(whole, journal=bug, catalog=bug, store=bug, transport=bug)
    yield
    server.service.ports = whole


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    """What a server logs where no terminal is."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter())
    logging.getLogger().addHandler(handler)
    yield stream
    logging.getLogger().removeHandler(handler)


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (RuntimeError(SECRET), 500, "internal"),
        (KeyError(SECRET), 500, "internal"),
        (ExceptionGroup(SECRET, [ValueError(SECRET)]), 500, "internal"),
        (JournalError(SECRET), 503, "unavailable"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else str(value),
)
async def test_an_error_of_our_own_shows_nothing_of_itself(
    server: Server, log: io.StringIO, error: Exception, status: int, code: str
) -> None:
    known = await something_of_everything(server)
    asked = 0
    with broken(server, error):
        for method, path, _ in OPERATIONS:
            if not path.startswith("/v1/"):
                continue
            body = (
                {"nodes": [{"id": "a", "handler": "echo"}], "name": "x"} if path == "/v1/workflows" else None
            )
            answer = await server.call(method, filled(path, known, "", ""), json=body)
            assert not re.search(
                rb"hunter2|db\.internal|Traceback|\.py|/srv|File \"|0x[0-9a-f]{6}", answer.body
            )
            if answer.status >= 500:
                asked += 1
                assert (answer.status, answer.json["code"]) == (status, code), (method, path)
                assert answer.json["trace_id"] in log.getvalue()
                if status == 503:
                    assert int(answer.headers["Retry-After"]) > 0
    assert asked > 15
    assert (await server.get("/v1/workflows")).status == 200


@pytest.mark.parametrize("text", FORGED)
async def test_a_path_cannot_forge_a_line_of_the_log(server: Server, log: io.StringIO, text: str) -> None:
    with broken(server, RuntimeError(text)):
        answer = await server.get(f"/v1/executions?workflow=a{quote(text)}")
    lines = [json.loads(line) for line in log.getvalue().splitlines()]
    assert answer.status == 500
    (line,) = [line for line in lines if line.get("trace_id") == answer.json["trace_id"]]
    assert line["event"] == "api.internal"
    assert text in line["exception"]
    assert "forged" not in {line["event"] for line in lines}
    assert log.getvalue().replace("\n", "").isprintable()
