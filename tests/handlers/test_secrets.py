from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from weft.handlers.contract import BadConfig
from weft.handlers.secrets import MAX_SECRET_BYTES, lookup

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
