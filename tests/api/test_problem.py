"""Every error, in the same shape."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest

from weft.api.problem import CODES
from weft.errors import JournalError, OutcomeUnknownError, UnstorableError

if TYPE_CHECKING:
    from tests.api.conftest import Answer, Server

FIELDS = {"type", "title", "status", "code", "detail", "instance", "trace_id", "problems"}


def is_problem(answer: Answer, status: int, code: str) -> bool:
    return bool(
        answer.status == answer.json["status"] == status
        and answer.json["code"] == code
        and answer.json.keys() >= FIELDS
        and answer.headers["Content-Type"] == "application/problem+json"
    )


async def test_a_problem_has_exactly_the_fields_of_the_interface(server: Server) -> None:
    missing = await server.get("/v1/workflows/no%20such")
    assert is_problem(missing, 404, "not_found")
    assert missing.json.keys() == FIELDS
    assert missing.json["instance"] == "/v1/workflows/no%20such"
    assert missing.json["type"] == "/docs#problem-not_found"
    assert missing.json["problems"] == []
    assert len(missing.json["trace_id"]) == 32


@pytest.mark.parametrize(
    "path", ["/nosuch", "/v1", "/v1/", "/v1/workflows/", "//v1/workflows", "/v2/workflows", "/V1/workflows"]
)
async def test_an_unknown_path_is_not_found(server: Server, path: str) -> None:
    for method in ("GET", "POST", "DELETE", "OPTIONS"):
        assert is_problem(await server.call(method, path), 404, "not_found")


async def test_a_wrong_method_is_told_every_right_one(server: Server) -> None:
    refused = await server.call("DELETE", "/v1/workflows")
    assert is_problem(refused, 405, "method_not_allowed")
    assert refused.headers["Allow"] == "GET, HEAD, OPTIONS, POST"
    assert (await server.call("TRACE", "/v1/workflows")).status == 405
    assert (await server.call("PATCH", "/v1/workflows/x")).headers["Allow"] == "DELETE, GET, HEAD, OPTIONS"


async def test_options_names_the_methods_and_grants_nothing(server: Server) -> None:
    headers = {"Origin": "http://localhost", "Access-Control-Request-Method": "POST"}
    options = await server.call("OPTIONS", "/v1/workflows", headers=headers)
    assert (options.status, options.body) == (204, b"")
    assert options.headers["Allow"] == "GET, HEAD, OPTIONS, POST"
    assert not [name for name in options.headers if name.lower().startswith("access-control")]


async def test_head_is_get_without_the_content(server: Server) -> None:
    for path in ("/v1/workflows", "/openapi.json", "/nosuch", "/v1/workflows?limit=0"):
        head, get = await server.call("HEAD", path), await server.get(path)
        assert (head.status, head.body) == (get.status, b"")
        assert head.headers["Content-Type"] == get.headers["Content-Type"]
        assert head.headers["Content-Length"] == str(len(get.body))


async def test_head_of_a_stream_ends(server: Server) -> None:
    head = await server.call("HEAD", "/v1/events")
    assert (head.status, head.body) == (200, b"")
    assert head.headers["Content-Type"].startswith("text/event-stream")
    load = server.service.load
    assert (load.requests.in_use, load.waiting.in_use, load.streams.in_use) == (0, 0, 0)


class TestInternalErrors:
    async def test_nothing_of_a_fault_of_ours_is_told_and_the_log_has_it_under_the_trace_id(
        self, server: Server, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def broken(**_: object) -> None:
            raise RuntimeError("secret-dsn://user:password@10.0.0.1/home/someone")

        monkeypatch.setattr(server.engine.ports.journal, "workflows", broken)
        answer = await server.get("/v1/workflows")
        assert is_problem(answer, 500, "internal")
        assert answer.json.keys() == FIELDS
        for word in (b"RuntimeError", b"secret", b"10.0.0.1", b"Traceback", b".py", b"/home"):
            assert word not in answer.body
        (record,) = [record for record in caplog.records if record.getMessage() == "api.internal"]
        assert record.__dict__["trace_id"] == answer.json["trace_id"]
        assert record.levelno == logging.ERROR
        assert "secret-dsn" in caplog.text

    @pytest.mark.parametrize(
        ("error", "status", "code"),
        [
            (JournalError("/home/someone/.weft is full"), 503, "unavailable"),
            (OutcomeUnknownError("lost"), 503, "unavailable"),
            (UnstorableError("half a surrogate pair"), 500, "internal"),
            (KeyError("x"), 500, "internal"),
        ],
    )
    async def test_a_journal_that_fails_is_unavailable(
        self,
        server: Server,
        monkeypatch: pytest.MonkeyPatch,
        error: Exception,
        status: int,
        code: str,
    ) -> None:
        async def broken(**_: object) -> None:
            raise error

        monkeypatch.setattr(server.engine.ports.journal, "workflows", broken)
        answer = await server.get("/v1/workflows")
        assert is_problem(answer, status, code)
        assert (int(answer.headers.get("Retry-After", 0)) > 0) == (status == 503)
        assert b"/home" not in answer.body


async def test_every_answer_tells_browsers_to_keep_to_this_server(server: Server) -> None:
    for path in ("/", "/docs", "/openapi.json", "/v1/workflows", "/nosuch", "/healthz"):
        headers = (await server.get(path)).headers
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Content-Security-Policy"].startswith("default-src 'self';")
        assert "unsafe" not in headers["Content-Security-Policy"]
        # The console's page is kept by browsers, which ask each time whether it is still the one.
        assert headers["Cache-Control"] == ("no-cache" if path == "/" else "no-store")
        assert "Access-Control-Allow-Origin" not in headers


def test_every_code_has_a_status_and_a_title() -> None:
    assert all(400 <= status < 600 and title for status, title in CODES.values())


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"labels": {"Team": "x"}}, "must match ^[a-z0-9][a-z0-9._/-]{0,62}$"),
        ({"labels": {"team": "x" * 256}}, "must have at most 255 characters"),
        ({"labels": {f"l{n}": "" for n in range(33)}}, "must have at most 32 of them"),
        ({"inputs": []}, "must have at least 1 of them"),
    ],
)
async def test_a_bad_field_is_told_in_plain_words(server: Server, body: Any, message: str) -> None:
    refused = await server.post("/v1/batches", json={"workflow": "w", "inputs": [{}], **body})
    assert is_problem(refused, 422, "invalid_request")
    assert [problem["message"] for problem in refused.json["problems"]] == [message]


async def test_a_bad_number_in_a_query_is_told_in_plain_words(server: Server) -> None:
    refused = await server.get("/v1/executions?version=x")
    assert refused.json["problems"] == [
        {"pointer": "/version", "message": "must be an integer, not the string 'x'"}
    ]


async def test_what_is_missing_from_the_body_itself_is_told_without_a_pointer(server: Server) -> None:
    refused = await server.post("/v1/executions", json={})
    assert refused.json["detail"] == "the request has 1 problem: definition is missing"
