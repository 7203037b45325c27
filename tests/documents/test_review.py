from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from tests.documents.conftest import EXAMPLE
from tests.documents.test_dataset import record
from tests.support.servers.process import free_port

from paperwork import review
from paperwork.__main__ import main

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.documents.conftest import Place

    from weft.testing.fake_llm import FakeLLM

pytestmark = pytest.mark.usefixtures("place")


def test_a_document_has_one_item_and_the_same_values_change_nothing() -> None:
    item = review.put(record(), reason="low")
    review.approve(item, by="ada")
    before = review.show(item)
    assert review.put(record(), reason="low") == item
    assert review.show(item) == before
    assert [found.id for found in review.listed(state=None)] == [item]
    assert review.put(record("b.pdf"), reason="low") != item


def test_other_values_are_to_be_looked_at_again() -> None:
    item = review.put(record(), reason="low")
    review.approve(item, by="ada")
    assert review.put(record(total="13.00"), reason="low") == item
    shown = review.show(item)
    assert (shown.state, shown.record["fields"]["total"]["value"]) == ("open", "13.00")


def test_who_decided_what_and_when_is_kept() -> None:
    item = review.put(record(), reason="low")
    review.reject(item, by="ada", note="it is upside down")
    review.correct(item, {"vendor": "Green"}, by="grace")
    review.approve(item, by="alan")
    history = review.show(item).history
    assert [(noted["by"], noted["action"]) for noted in history] == [
        ("pipeline", "created"),
        ("ada", "rejected"),
        ("grace", "corrected"),
        ("alan", "approved"),
    ]
    assert history[1]["details"]["note"] == "it is upside down"
    assert history[2]["details"]["fields"] == {"vendor": {"from": "Blue", "to": "Green"}}
    times = [noted["at"] for noted in history]
    assert times == sorted(times)
    assert times[0].endswith("+00:00")


def test_a_corrected_field_is_locked_and_survives_other_values(place: Place) -> None:
    item = review.put(record(), reason="low")
    corrected = review.correct(item, {"total": "99", "vendor": None}, by="ada")
    assert corrected.state == "corrected"
    assert place.saved("a.pdf")["fields"]["total"] == {"value": "99.00", "confidence": 1.0, "locked": True}
    review.put(record(total="1.00", number="8"), reason="low")
    shown = review.show(item).record["fields"]
    assert (shown["total"]["value"], shown["vendor"]["value"], shown["number"]["value"]) == (
        "99.00",
        None,
        "8",
    )


def test_a_corrected_field_survives_the_processing_of_its_document(place: Place, llm: FakeLLM) -> None:
    path = place.fill(1, first=5)[0]["path"]
    item = place.process(path).output["review"]
    review.correct(item, {"vendor": "Tidewater Tools"}, by="ada")
    files, rows = place.files(), place.rows("reviews")
    again = place.process(path)
    assert again.output["fields"]["vendor"] == {"value": "Tidewater Tools", "confidence": 1.0, "locked": True}
    assert (place.files(), place.rows("reviews")) == (files, rows)

    # Other bytes are read anew, but for what is locked.
    place.put(path, (place.inbox / path).read_bytes().replace(b"INV-00005", b"INV-99999"))
    changed = place.process(path).output
    assert changed["review"] == item
    assert (changed["fields"]["number"]["value"], changed["fields"]["vendor"]["value"]) == (
        "INV-99999",
        "Tidewater Tools",
    )
    assert review.show(item).state == "open"
    assert len(llm.requests) == 2


@pytest.mark.parametrize(
    ("values", "by", "message"),
    [
        ({"colour": "red"}, "ada", "no field 'colour'; there is: number, date"),
        ({"total": "much"}, "ada", "'much'"),
        ({}, "ada", "at least one field"),
        ({"total": "1"}, " ", "who decides"),
    ],
)
def test_a_correction_that_cannot_be_made_changes_nothing(
    place: Place, values: dict[str, str | None], by: str, message: str
) -> None:
    item = review.put(record(), reason="low")
    before = review.show(item)
    with pytest.raises(review.ReviewError, match=message):
        review.correct(item, values, by=by)
    assert review.show(item) == before
    assert place.rows("locked_fields") == []


def test_the_commands_list_show_and_decide(capsys: pytest.CaptureFixture[str]) -> None:
    item = review.put(record(), reason="the confidence is low")
    assert main(["review", "list"]) == 0
    assert capsys.readouterr().out == f"{item:>5}  open       0.90  a.pdf  the confidence is low\n"
    assert main(["review", "correct", str(item), "vendor=Green", "number=", "--by", "ada"]) == 0
    shown = capsys.readouterr().out
    assert f"review {item}: a.pdf, corrected" in shown
    assert "  vendor    1.00  Green  locked\n" in shown
    assert "  number    1.00  -  locked\n" in shown
    assert "ada  corrected  vendor: Blue -> Green, number: 7 -> None" in shown
    assert main(["review", "approve", str(item), "--by", "grace"]) == 0
    assert main(["review", "reject", str(item), "--by", "alan", "--note", "a copy"]) == 0
    assert main(["review", "show", str(item)]) == 0
    assert "alan  rejected  a copy" in capsys.readouterr().out
    assert main(["review", "list"]) == 0
    assert capsys.readouterr().out == ""
    assert main(["review", "show", "99"]) == 2
    assert capsys.readouterr().err == "there is no review 99\n"


@contextmanager
def serving() -> Iterator[str]:
    """Have the API of the example in a process of its own."""
    port = free_port()
    process = subprocess.Popen([sys.executable, "-m", "paperwork", "api", "--port", str(port)], cwd=EXAMPLE)
    url = f"http://127.0.0.1:{port}"
    try:
        give_up = time.monotonic() + 30
        while True:
            try:
                call(f"{url}/sla")
                break
            except urllib.error.URLError:
                assert process.poll() is None
                assert time.monotonic() < give_up
                time.sleep(0.05)
        yield url
    finally:
        process.terminate()
        process.wait(30)


def call(url: str, body: Any = None) -> tuple[int, Any]:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            status, text = answer.status, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            status, text = error.code, error.read()
    try:
        return status, json.loads(text)
    except ValueError:
        return status, text.decode()


def test_the_api_lists_shows_and_decides(place: Place) -> None:
    first, second = (review.put(record(name), reason="low") for name in ("a.pdf", "b.pdf"))
    with serving() as url:
        _, listed = call(f"{url}/reviews")
        assert [item["document"] for item in listed] == ["a.pdf", "b.pdf"]
        status, corrected = call(
            f"{url}/reviews/{first}/correct", {"by": "ada", "fields": {"vendor": "Green"}}
        )
        assert (status, corrected["state"], corrected["history"][-1]["by"]) == (200, "corrected", "ada")
        assert place.saved("a.pdf")["fields"]["vendor"]["value"] == "Green"
        assert call(f"{url}/reviews/{second}/approve", {"by": "grace"})[1]["state"] == "approved"
        status, rejected = call(f"{url}/reviews/{second}/reject", {"by": "alan", "note": "a copy"})
        assert (status, rejected["state"], rejected["history"][-1]["details"]["note"]) == (
            200,
            "rejected",
            "a copy",
        )
        assert call(f"{url}/reviews/{second}")[1] == rejected
        assert call(f"{url}/reviews")[1] == []
        assert [item["id"] for item in call(f"{url}/reviews?state=corrected")[1]] == [first]
        assert [item["id"] for item in call(f"{url}/reviews?state=all&limit=1")[1]] == [first]

        assert call(f"{url}/reviews/99") == (404, {"detail": "there is no review 99"})
        assert call(f"{url}/reviews/{first}/correct", {"by": "ada", "fields": {"total": "much"}})[0] == 422
        assert call(f"{url}/reviews/{first}/approve", {})[0] == 422
        status, text = call(f"{url}/metrics")
        assert status == 200
        assert 'documents_processed_total{status="accepted"} 0.0' in text
