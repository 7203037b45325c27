from __future__ import annotations

import json
import logging
from base64 import b64encode, urlsafe_b64encode
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, quote_plus

import pytest
from tests.handlers.outside import run_node

from weft.definition.validation import check
from weft.handlers.contract import BadConfig
from weft.handlers.registry import Registry
from weft.handlers.secrets import HIDDEN, MAX_SECRET_BYTES, Mask, hidden, lookup
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


def forms(secret: str) -> dict[str, str]:
    data = secret.encode()
    return {
        "plain": secret,
        "json": json.dumps(secret),
        "json, ascii": json.dumps({"k": secret}, ensure_ascii=True),
        "json, unicode": json.dumps([secret], ensure_ascii=False),
        "json, slashes": json.dumps(secret).replace("/", "\\/"),
        "url": quote(secret, safe=""),
        "url path": quote(secret),
        "url, lower": quote(secret, safe="")
        .replace("%2F", "%2f")
        .replace("%C3", "%c3")
        .replace("%A4", "%a4"),
        "form": quote_plus(secret),
        "base64": b64encode(data).decode(),
        "base64, url": urlsafe_b64encode(data).decode(),
        "basic": b64encode(b"user:" + data).decode(),
        "basic, one more": b64encode(b"user1:" + data + b"!").decode(),
        "basic, two more": b64encode(b"user12:" + data + b"!!").decode(),
    }


# What would still tell a reader of the text most of the secret.
TELLING = ("ss", "rd", "42", "w%C3", "wö")


@pytest.mark.parametrize("form", forms(SECRET))
def test_a_secret_is_hidden_in_every_form(form: str) -> None:
    text = hidden(f"before {forms(SECRET)[form]} after", [SECRET])
    assert HIDDEN in text
    assert text.startswith("before ")
    assert text.endswith(" after")
    assert not any(part in text for part in TELLING)


@pytest.mark.parametrize("length", range(6, 14))
@pytest.mark.parametrize("before", range(4))
@pytest.mark.parametrize("behind", range(4))
def test_a_secret_is_hidden_wherever_it_stands_in_base64(length: int, before: int, behind: int) -> None:
    secret = "0123456789abcd"[:length]
    text = b64encode(b"x" * before + secret.encode() + b"y" * behind).decode()
    left = hidden(text, [secret])
    assert HIDDEN in left
    # What stays shares its bits with a neighbour: a character at each end of what is hidden.
    assert len(left) - len(HIDDEN) <= (before + behind) * 4 // 3 + 6


def test_of_two_secrets_the_longer_goes_first() -> None:
    assert hidden("key-and-more key-", ["key-", "key-and-more"]) == f"{HIDDEN} {HIDDEN}"


def test_keys_and_nested_values_are_hidden_too_and_the_rest_stays() -> None:
    value = {"a-secret": [1, None, {"x": "the a-secret"}], "other": True}
    assert hidden(value, ["a-secret", ""]) == {HIDDEN: [1, None, {"x": f"the {HIDDEN}"}], "other": True}
    assert hidden("nothing here", []) == "nothing here"


@pytest.mark.parametrize("size", [1, 7, 1000, 100_000])
@pytest.mark.parametrize("filling", [0, 70_000, 150_000])
def test_a_mask_hides_a_secret_wherever_a_stream_is_cut(size: int, filling: int) -> None:
    secret = "hunter2 ü"
    written = f"a {secret} b\nno end {'.' * filling}{quote(secret)}{'.' * filling}{secret}"
    mask = Mask([secret, "abc"])
    shown = rest = ""
    size = max(size, filling // 50)
    for start in range(0, len(written), size):
        more, rest = mask.split(rest + written[start : start + size])
        shown += more
        assert len(rest) <= 64 * 1024 + 200 + size
    assert shown + mask.text(rest) == f"a *** b\nno end {'.' * filling}***{'.' * filling}***"


def test_a_mask_shows_a_line_as_soon_as_it_has_ended() -> None:
    assert Mask(["hunter2"]).split("50 %\r100 %\nhun") == ("50 %\r100 %\n", "hun")
    assert not Mask(["abc", ""])
    assert Mask(["abc"]).text("abc") == "abc"


@pytest.mark.parametrize("length", range(len("hunter2-hunter2")))
def test_the_beginning_of_a_secret_at_which_a_text_was_cut_is_hidden_too(length: int) -> None:
    text = hidden("your password is " + "hunter2-hunter2"[:length] + "…", ["other", "hunter2-hunter2"])
    assert ("hunt" in text) is False
    assert text.endswith("…")


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
