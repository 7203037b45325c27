"""One document at a time: what becomes of it, by which way."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from tests.documents.conftest import APPROVE, DEFINITION, EXAMPLE
from tests.operation.serving import WEFT

import paperwork
from paperwork import dataset, extractions, fields
from paperwork.__main__ import model
from paperwork.samples import make
from weft import NonRetryable
from weft.settings import read_settings
from weft.testing.fake_llm import failed, rate_limited

if TYPE_CHECKING:
    from tests.documents.conftest import Place

    from weft.sdk.result import ExecutionResult
    from weft.testing.fake_llm import FakeLLM


def states(result: ExecutionResult) -> dict[str, str]:
    return {name: node.state for name, node in result.nodes.items()}


def put(place: Place, number: int, kind: str) -> str:
    sample = make(number, kind)
    return place.put(sample.name, sample.data)


COMPLETED = dict.fromkeys(
    ("read", "prepare", "extract", "check", "save_parquet", "save_json", "record_metrics"), "COMPLETED"
)


@pytest.mark.parametrize("kind", ["pdf", "png", "text"])
def test_a_document_of_every_kind_becomes_fields(place: Place, llm: FakeLLM, kind: str) -> None:
    result = place.process(put(place, 1, kind))
    assert states(result) == COMPLETED | dict.fromkeys(
        ("create_review", "save_review", "set_aside", "record_failure"), "SKIPPED"
    )
    values = {name: field["value"] for name, field in result.output["fields"].items()}
    assert values == {
        "number": "INV-00001",
        "date": "2024-10-28",
        "vendor": "Blue Harbour Ltd",
        "total": "3291.97",
        "currency": "EUR",
    }
    assert result.output["confidence"] == 0.97
    (asked,) = llm.requests
    assert asked.schema == fields.response_schema("invoice")
    assert asked.body["messages"][0] == {"role": "system", "content": fields.SYSTEM}
    assert place.saved(result.output["document"])["fields"] == result.output["fields"]
    ((_, _, _, status, seconds, confidence, _),) = place.rows("processed")
    assert (status, confidence) == ("accepted", 0.97)
    assert 0 < seconds < 30
    assert result.output["review"] is None
    assert place.decided() == []


def test_weft_run_needs_nothing_but_the_definition_and_a_model(place: Place, llm: FakeLLM) -> None:
    path = put(place, 1, "pdf")
    command = [*WEFT, "run", str(DEFINITION), "--input", f"path={path}", "--quiet"]
    ended = subprocess.run(command, cwd=place.folder, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)["fields"]["total"]["value"] == "3291.97"
    assert len(llm.requests) == 1


@pytest.mark.parametrize(
    ("path", "name"), [("/v1", "gpt-5-mini"), ("/v1beta/openai", "gemini-3-flash"), ("/v1/", "llama4")]
)
def test_another_model_is_a_base_url_a_name_and_a_key(
    place: Place, llm: FakeLLM, monkeypatch: pytest.MonkeyPatch, path: str, name: str
) -> None:
    monkeypatch.setenv("WEFT_LLM_BASE_URL", llm.url + path)
    monkeypatch.setenv("WEFT_LLM_MODEL", name)
    monkeypatch.setenv("WEFT_LLM_API_KEY", "sesame")
    assert place.process(put(place, 1, "text")).state == "COMPLETED"
    (asked,) = llm.requests
    assert (asked.body["model"], asked.headers["authorization"]) == (name, "Bearer sesame")


def test_a_package_that_is_missing_is_named_and_not_tried_again(
    place: Place, llm: FakeLLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    result = place.process(put(place, 1, "text"))
    error: Any = result.nodes["save_parquet"].error
    assert error["message"] == "pyarrow is not installed: pip install 'weft[documents]'"
    assert result.nodes["save_parquet"].attempt == 1


@pytest.mark.parametrize(("broken", "other"), [("parquet", "json"), ("json", "parquet")])
def test_a_review_is_created_after_both_saves(
    place: Place, llm: FakeLLM, monkeypatch: pytest.MonkeyPatch, broken: str, other: str
) -> None:
    def full(record: fields.Record) -> bytes:
        raise NonRetryable("the disk is full")

    path = put(place, 5, "text")
    with monkeypatch.context() as patched:
        patched.setattr(dataset, f"_as_{broken}", full)
        result = place.process(path, answer=APPROVE)
    assert states(result) | {f"save_{broken}": "FAILED", f"save_{other}": "COMPLETED"} == states(result)
    assert result.nodes["create_review"].state == "SKIPPED"
    assert place.decided() == []
    assert place.process(path, answer=APPROVE).output["review"] == "approve"
    assert place.decided() == [(path, "approve")]


def test_bytes_that_were_extracted_are_not_sent_again(place: Place, llm: FakeLLM) -> None:
    path = put(place, 1, "pdf")
    first = place.process(path)
    files = place.files()
    again = place.process(path)
    assert (states(again)["prepare"], states(again)["extract"]) == ("SKIPPED", "SKIPPED")
    assert again.output == first.output | {"cached": True}
    # Under another name they are another document, and still the same bytes.
    other = place.process(place.put("copy.pdf", (place.inbox / path).read_bytes()))
    assert other.output["cached"]
    assert len(llm.requests) == 1
    assert place.files().items() > files.items()

    put(place, 2, "pdf")
    place.process("00002.pdf")
    assert len(llm.requests) == 2


def test_copies_that_were_extracted_at_the_same_time_have_the_fields_of_the_first(place: Place) -> None:
    replies: list[Any] = [
        {name: {"value": "7", "confidence": sure} for name in fields.TYPES["receipt"]} for sure in (0.9, 0.1)
    ]
    records = [
        paperwork.check(document, "a" * 64, "receipt", reply)["record"]
        for document, reply in zip(("one.pdf", "copy.pdf"), replies, strict=True)
    ]
    assert records[1]["fields"] == records[0]["fields"]
    assert extractions.find("a" * 64) == ("receipt", replies[0])


def test_a_receipt_is_asked_for_the_fields_of_a_receipt(place: Place, llm: FakeLLM) -> None:
    result = place.process(put(place, 3, "text"))
    assert (result.output["type"], list(result.output["fields"])) == (
        "receipt",
        ["date", "vendor", "total", "currency"],
    )
    assert llm.requests[0].schema == fields.response_schema("receipt")


def test_a_document_of_no_known_type_is_set_aside_and_not_sent(place: Place, llm: FakeLLM) -> None:
    result = place.process(put(place, 25, "text"), answer={"decision": "reject", "note": "a letter"})
    assert {name for name, state in states(result).items() if state == "COMPLETED"} == {
        "read",
        "set_aside",
        "create_review",
        "save_review",
    }
    assert llm.requests == []
    assert result.nodes["set_aside"].output["question"] == "00025.txt: its type is not known"
    assert (result.output["review"], place.decided()) == ("reject", [("00025.txt", "reject")])
    again = place.process("00025.txt")
    assert (states(again)["create_review"], again.output["review"]) == ("SKIPPED", None)
    assert place.files() == {}
    assert place.rows("processed") == []


def test_a_document_below_the_threshold_is_reviewed(place: Place, llm: FakeLLM) -> None:
    path = put(place, 5, "text")
    result = place.process(path, answer=APPROVE)
    assert result.output["confidence"] == 0.45
    assert result.nodes["check"].output["question"].startswith(f"{path}: the confidence is low; number ")
    assert states(result) == COMPLETED | dict.fromkeys(("create_review", "save_review"), "COMPLETED") | (
        dict.fromkeys(("set_aside", "record_failure"), "SKIPPED")
    )
    ((document, decision, kept, by, note, at),) = place.rows("decisions")
    assert (document, decision, by, note) == (path, "approve", None, "")
    assert at == result.nodes["create_review"].output["at"]
    assert json.loads(kept)["fields"] == result.output["fields"]
    assert place.rows("processed")[0][3] == "review"

    put(place, 10, "text")
    assert place.process("00010.txt", review_below=0.4).output["review"] is None
    assert place.process("00010.txt", review_below=0.5, answer=APPROVE).output["review"] == "approve"


def test_what_the_check_found_wrong_is_said_to_the_reviewer(place: Place, llm: FakeLLM) -> None:
    path = place.put("a.txt", b"INVOICE\nInvoice number: 7\nDate: May\nVendor: Blue\nTotal: 1.00 EUR\n")
    assert place.process(path).nodes["check"].output["question"] == (
        "a.txt: date: 'May' is not the date of the document, as YYYY-MM-DD;"
        " number 7 (0.97); date is missing (0.00); vendor Blue (0.97); total 1.00 (0.97); currency EUR (0.97)"
    )


def test_nothing_is_measured_where_the_extraction_gave_nothing(place: Place, llm: FakeLLM) -> None:
    result = place.process(place.put("a.txt", b"INVOICE\nof which nothing else can be read\n"))
    assert states(result)["record_metrics"] == "SKIPPED"
    assert (states(result)["create_review"], result.output["review"]) == ("COMPLETED", "expired")
    assert place.rows("processed") == []


def test_a_failed_call_is_made_again_and_one_that_fails_for_good_is_counted(
    place: Place, llm: FakeLLM
) -> None:
    llm.script(rate_limited(0.1))
    result = place.process(put(place, 1, "text"))
    assert (result.state, result.nodes["extract"].attempt) == ("COMPLETED", 2)

    llm.script(failed(400))
    result = place.process(put(place, 2, "text"))
    assert (result.state, states(result)["record_failure"]) == ("FAILED", "COMPLETED")
    assert result.error is not None
    assert result.error["node"] == "extract"
    assert sorted(row[3] for row in place.rows("processed")) == ["accepted", "failed"]
    # Nothing was kept of it.
    assert place.process("00002.txt").state == "COMPLETED"


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("missing.pdf", "no missing.pdf in the inbox"),
        ("../documents.db", "does not lie in the inbox"),
        ("/etc/hostname", "does not lie in the inbox"),
    ],
)
def test_only_what_lies_in_the_inbox_is_read(place: Place, llm: FakeLLM, path: str, message: str) -> None:
    result = place.process(path)
    error: Any = result.nodes["read"].error
    assert result.state == "FAILED"
    assert message in error["message"]
    assert result.nodes["read"].attempt == 1
    assert place.rows("processed")[0][2:4] == (path, "failed")


def test_the_settings_of_the_example_hold_the_limit_of_the_model_and_need_no_key() -> None:
    settings, warnings = read_settings(environ={}, folder=EXAMPLE)
    assert not warnings
    limit = settings.resource_limits["llm"]
    assert (limit.rate_per_second, limit.burst) == (10.0, 1)
    # Where `python -m paperwork model` serves, where nothing is said.
    port = inspect.signature(model).parameters["port"].default
    assert settings.llm_base_url == f"http://127.0.0.1:{port}/v1"
    assert settings.llm_api_key is None
