from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest
from tests.handlers.outside import run_node
from tests.secret_forms import forms

from weft.definition.validation import check
from weft.handlers.contract import BadConfig
from weft.handlers.registry import Registry
from weft.handlers.secrets import MAX_SECRET_BYTES, lookup
from weft.masking import HIDDEN
from weft.testing.http_server import Answer, ReceivedRequest
from weft.testing.recording_service import RecordingService

if TYPE_CHECKING:
    from pathlib import Path


def test_a_secret_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_SECRET_API_KEY", "sk-1")
    assert lookup("API_KEY") == "sk-1"
    assert lookup("api_key") == "sk-1"


def test_a_secret_comes_from_a_file_without_its_last_newline(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "key").write_text("sk-2\n")
    monkeypatch.setenv("WEFT_SECRET_API_KEY_FILE", str(tmp_path / "key"))
    assert lookup("API_KEY") == "sk-2"


def test_a_missing_secret_names_its_variable_and_does_not_retry() -> None:
    with pytest.raises(BadConfig, match="WEFT_SECRET_NOT_SET") as caught:
        lookup("NOT_SET")
    assert (caught.value.code, caught.value.retryable) == ("bad_config", False)


@pytest.mark.parametrize("content", [None, b"\xff", b"x" * (MAX_SECRET_BYTES + 1)])
def test_a_file_that_cannot_be_used_is_named_by_its_variable_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: bytes | None
) -> None:
    if content is not None:
        (tmp_path / "key").write_bytes(content)
    monkeypatch.setenv("WEFT_SECRET_API_KEY_FILE", str(tmp_path / "key"))
    with pytest.raises(BadConfig, match="WEFT_SECRET_API_KEY_FILE") as caught:
        lookup("API_KEY")
    assert str(tmp_path) not in str(caught.value)


@pytest.mark.parametrize("name", ["", "a b", "../x", "A=B", "API_KEY_FILE"])
def test_a_name_that_reaches_for_something_else_is_refused(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("WEFT_SECRET_API_KEY_FILE", "/somewhere")
    with pytest.raises(BadConfig):
        lookup(name)


# It is written differently as JSON, in a URL and as base64, and has a letter that is not ASCII.
SECRET = 'p/ä+ss"wörd\\ 42~?>'


def repeat(request: ReceivedRequest) -> Answer:
    """Answer with all that was sent, in every form; a request for /fail, with status 400."""
    secret = request.headers["x-secret"].encode("latin-1").decode()
    told = {**request.headers, "x-secret": secret, "target": request.target, "body": request.body.decode()}
    body = json.dumps({**told, **forms(secret)}).encode()
    status = 400 if request.target.startswith("/fail") else 200
    headers = {"Content-Type": "application/json", "X-Back": quote(secret, safe="")}
    return Answer(status, body, headers)


def all_of(folder: Path) -> bytes:
    return b"".join(file.read_bytes() for file in folder.rglob("*") if file.is_file())


@pytest.mark.parametrize("path", ["/done", "/fail"])
async def test_a_secret_that_a_service_repeats_is_stored_nowhere(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """F90: in the request, in the response, in the error, and in no store, answer or log line."""
    monkeypatch.setenv("WEFT_SECRET_PASSWORD", SECRET)
    caplog.set_level(logging.DEBUG)
    with RecordingService(repeat) as service:
        node = await run_node(
            {
                "url": service.url + path,
                "query": {"password": "{{ secrets.PASSWORD }}"},
                "headers": {"X-Secret": "{{ secrets.PASSWORD }}"},
                "body": {"password": "is {{ secrets.PASSWORD }}!"},
            },
            data=tmp_path,
        )
        sent = service.calls[0].request
    assert sent.json() == {"password": f"is {SECRET}!"}
    assert sent.target == f"{path}?password={quote(SECRET, safe='')}"
    assert node["state"] == ("COMPLETED" if path == "/done" else "FAILED")
    stored = all_of(tmp_path)
    shown = json.dumps(node, default=str, ensure_ascii=False) + caplog.text
    assert HIDDEN in shown
    for text in forms(SECRET).values():
        assert text not in shown
        assert text.encode() not in stored
        assert json.dumps(text)[1:-1].encode() not in stored


async def test_a_secret_that_was_not_granted_is_denied(monkeypatch: pytest.MonkeyPatch) -> None:
    """F91: only WEFT_SECRET_… can be asked for, whatever else the environment holds."""
    monkeypatch.setenv("OTHER_PASSWORD", "hunter2")
    monkeypatch.setenv("WEFT_LLM_API_KEY", "sk-operator")
    with RecordingService() as service:
        for name in ("OTHER_PASSWORD", "PATH", "LLM_API_KEY"):
            node = await run_node({"url": service.url, "query": {"x": f"{{{{ secrets.{name} }}}}"}})
            assert (node["state"], node["error"]["code"]) == ("FAILED", "bad_config")
    assert service.calls == []


@pytest.mark.parametrize(
    "template",
    ["env.PATH", "environ.PATH", "secrets", "secrets['A' ~ 'B']", "secrets.A | upper", "nodes.x.secrets.A"],
)
def test_a_template_reaches_neither_the_environment_nor_all_secrets(template: str) -> None:
    config: Any = {"url": "http://x", "query": {"x": f"{{{{ {template} }}}}"}}
    node = {"id": "n", "handler": "call_external_service", "config": config}
    problems = check({"name": "w", "nodes": [node]}, handlers=Registry()).problems
    assert [problem.pointer for problem in problems] == ["/nodes/0/config/query/x"]
