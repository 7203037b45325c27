"""``weft keys``: a key is made and named, and never shown again."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from weft.api.auth import ApiKeys
from weft.cli.main import main

if TYPE_CHECKING:
    from pathlib import Path

KEY = "0123456789abcdef0123456789abcdef"


@pytest.fixture(autouse=True)
def nothing_is_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("WEFT_API_KEYS", raising=False)


def test_a_new_key_is_long_and_its_own_and_the_line_to_set_it_is_said(
    capsys: pytest.CaptureFixture[str],
) -> None:
    keys = set()
    for _ in range(2):
        assert main(["keys", "new"]) == 0
        printed = capsys.readouterr()
        key = printed.out.removesuffix("\n")
        assert len(key) >= 32
        assert f"WEFT_API_KEYS={key}\n" in printed.err
        keys.add(key)
    assert len(keys) == 2


def test_a_further_key_goes_behind_the_others_which_are_not_shown(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEFT_API_KEYS", KEY)
    assert main(["keys", "new", "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert made["setting"] == f"WEFT_API_KEYS=<the keys so far>,{made['key']}"
    assert KEY not in json.dumps(made)


def test_keys_are_listed_by_the_names_that_history_has_and_shortened(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEFT_API_KEYS", f"{KEY},short")
    assert main(["keys", "list", "--json"]) == 0
    text = capsys.readouterr().out
    first, second = json.loads(text)["items"]
    caller = ApiKeys([KEY]).identify([(b"authorization", f"Bearer {KEY}".encode())])
    assert caller is not None
    assert first == {"name": caller.actor, "key": "0123…", "namespace": caller.namespace}
    assert second["key"] == "…"
    assert KEY[5:] not in text
    assert main(["keys", "list"]) == 0
    assert "NAMESPACE" in capsys.readouterr().out


def test_without_keys_it_is_said_who_may_call(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["keys", "list"]) == 0
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "this machine alone" in printed.err
