"""Reviews: nodes that wait for a person, and what outlives them."""

from __future__ import annotations

import asyncio
import json
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from tests.documents.conftest import APPROVE, REVIEW_SECONDS, server_settings
from tests.documents.test_batch import deploy, waiting, weft
from tests.documents.test_dataset import record
from tests.operation.serving import PATIENCE_SECONDS, serving

import paperwork
from paperwork import review
from weft import NonRetryable

if TYPE_CHECKING:
    from tests.documents.conftest import Place

    from weft.testing.fake_llm import FakeLLM

pytestmark = pytest.mark.usefixtures("place")

AT = "2026-01-31T10:05:00.000Z"
SMUDGED = 5


def correction(**fields: str | None) -> dict[str, Any]:
    return {"decision": "correct", "fields": fields}


def smudged(place: Place) -> str:
    return str(place.fill(1, first=SMUDGED)[0]["path"])


def test_a_document_is_decided_once_and_the_same_values_change_nothing(place: Place, llm: FakeLLM) -> None:
    path = smudged(place)
    assert place.process(path, answer=APPROVE).output["review"] == "approve"
    files, decisions = place.files(), place.rows("decisions")
    again = place.process(path)
    assert (again.nodes["create_review"].state, again.output["review"]) == ("SKIPPED", None)
    assert (place.files(), place.rows("decisions")) == (files, decisions)
    # Under another name they are another document.
    copy = place.put("copy.pdf", (place.inbox / path).read_bytes())
    assert place.process(copy, answer=APPROVE).output["review"] == "approve"
    assert place.decided() == [(path, "approve"), (copy, "approve")]


def test_other_values_are_to_be_looked_at_again() -> None:
    assert review.earlier(record()) == "none"
    review.decide(record(), APPROVE, by="ada", at=AT)
    assert review.earlier(record()) == "same"
    assert review.earlier(record(total="13.00")) == "other"


def test_who_decided_what_and_when_is_kept(place: Place) -> None:
    review.decide(record(), {"decision": "reject", "note": "it is upside down"}, by="ada", at=AT)
    review.decide(record("b.pdf"), correction(vendor="Green"), by="grace", at=AT)
    first, second = place.rows("decisions")
    assert first == ("a.pdf", "reject", json.dumps(record()), "ada", "it is upside down", AT)
    assert (*second[:2], *second[3:]) == ("b.pdf", "correct", "grace", "", AT)
    assert json.loads(second[2])["fields"]["vendor"]["value"] == "Green"


def test_an_answer_that_is_kept_twice_is_kept_once(place: Place) -> None:
    kept = review.decide(record(), correction(total="99"), by="ada", at=AT)
    tables = [place.rows(table) for table in ("decisions", "locked_fields")]
    assert review.decide(record(), correction(total="99"), by="ada", at=AT) == kept
    assert [place.rows(table) for table in ("decisions", "locked_fields")] == tables


def test_a_corrected_field_is_locked_and_survives_other_values(place: Place, llm: FakeLLM) -> None:
    path = smudged(place)
    result = place.process(path, answer=correction(total="99", vendor=None))
    locked = {"value": "99.00", "confidence": 1.0, "locked": True}
    assert result.output["fields"]["total"] == place.saved(path)["fields"]["total"] == locked
    assert place.rows("locked_fields") == [(path, "total", "99.00"), (path, "vendor", None)]
    reply: Any = {
        name: {"value": value, "confidence": 0.9}
        for name, value in {
            "number": "8",
            "date": "2024-05-14",
            "vendor": "Red",
            "total": "1.00",
            "currency": "EUR",
        }.items()
    }
    checked = paperwork.check(path, "1" * 64, "invoice", reply)["record"]["fields"]
    assert (checked["total"]["value"], checked["vendor"]["value"], checked["number"]["value"]) == (
        "99.00",
        None,
        "8",
    )


def test_a_corrected_field_survives_the_processing_of_its_document(place: Place, llm: FakeLLM) -> None:
    path = smudged(place)
    place.process(path, answer=correction(vendor="Tidewater Tools"))
    files, decisions = place.files(), place.rows("decisions")
    again = place.process(path)
    assert again.output["fields"]["vendor"] == {"value": "Tidewater Tools", "confidence": 1.0, "locked": True}
    assert again.nodes["create_review"].state == "SKIPPED"
    assert (place.files(), place.rows("decisions")) == (files, decisions)

    # Other bytes are read anew, but for what is locked; and they are asked about again, sure as they are.
    place.put(path, (place.inbox / path).read_bytes().replace(b"INV-00005", b"INV-99999"))
    changed = place.process(path, answer=APPROVE).output
    assert (changed["confidence"], changed["review"]) == (0.97, "approve")
    assert (changed["fields"]["number"]["value"], changed["fields"]["vendor"]["value"]) == (
        "INV-99999",
        "Tidewater Tools",
    )
    assert place.decided() == [(path, "approve")]
    assert len(llm.requests) == 2


@pytest.mark.parametrize(
    ("values", "message"),
    [
        # What the schema of the answer cannot know: the type of the document, and the calendar.
        ({"number": "7"}, "no field 'number'; there is: date, vendor, total, currency"),
        ({"date": "2024-02-30"}, "'2024-02-30' is not the date of the document"),
    ],
)
def test_a_correction_that_cannot_be_made_changes_nothing(
    place: Place, llm: FakeLLM, values: dict[str, str], message: str
) -> None:
    receipt = place.put("a.txt", b"RECEIPT\nMerchant: Bl?e\nDate: 2024-05-14\nTotal: 1.00 EUR\n")
    result = place.process(receipt, answer=correction(vendor="Blue", **values))
    error: Any = result.nodes["save_review"].error
    assert result.state == "FAILED"
    assert message in error["message"]
    assert result.nodes["save_review"].attempt == 1
    assert (place.rows("locked_fields"), place.decided()) == ([], [])
    assert place.saved(receipt)["fields"]["vendor"]["value"] == "Bl?e"
    # Nothing is decided, so that it is asked again.
    assert place.process(receipt, answer=APPROVE).output["review"] == "approve"


def test_a_correction_of_a_document_without_fields_is_refused() -> None:
    other = paperwork.set_aside("a.txt", "0" * 64)["record"]
    with pytest.raises(NonRetryable, match="no field 'total'; there is: none"):
        review.decide(other, correction(total="1.00"), by="ada", at=AT)


def test_a_review_that_nobody_answers_expires_and_decides_nothing(place: Place, llm: FakeLLM) -> None:
    path = smudged(place)
    result = place.process(path)
    assert (result.state, result.output["review"]) == ("COMPLETED", "expired")
    assert result.nodes["create_review"].duration == REVIEW_SECONDS
    assert (result.nodes["save_review"].state, place.decided()) == ("SKIPPED", [])
    assert place.process(path, answer=APPROVE).output["review"] == "approve"


async def test_the_commands_list_refuse_and_take_answers(place: Place, llm: FakeLLM) -> None:
    path = smudged(place)
    async with serving(place.folder / "data", settings=server_settings(llm)) as (_, api):
        await deploy(api)
        _, first, _ = await weft(api, "start", "documents", "--input", f"path={path}")
        (wait,) = await waiting(api, 1)
        since, expires_at = (datetime.fromisoformat(wait[name]) for name in ("since", "expires_at"))
        assert expires_at - since == timedelta(days=30)
        _, listed, _ = await weft(api, "waits")
        assert f"{path}: the confidence is low" in listed
        # The same document is not asked about twice: the second waits for its turn.
        _, second, _ = await weft(api, "start", "documents", "--input", f"path={path}")
        assert (await api.get(f"/v1/executions/{second.strip()}"))["state"] == "PENDING"

        answer = ("answer", wait["execution"], "create_review")
        assert wait["execution"] == first.strip()
        for wrong, named in [
            (correction(colour="red"), "colour"),
            (correction(total="much"), "much"),
            (correction(date="May"), "May"),
            (correction(currency="euro"), "euro"),
            (correction(vendor=" "), "/value/fields/vendor"),
            (correction(), "fields"),
            ({"decision": "correct"}, "fields"),
            ({**APPROVE, "fields": {"total": "1.00"}}, "fields"),
            ({"decision": "later"}, "later"),
        ]:
            code, _, err = await weft(api, *answer, json.dumps(wrong))
            assert (code != 0, named in err) == (True, True), (wrong, err)
        assert (await waiting(api, 1))[0]["node"] == "create_review"
        assert (place.rows("locked_fields"), place.decided()) == ([], [])

        code, _, err = await weft(api, *answer, json.dumps(correction(vendor="Green", number=None)))
        assert code == 0, err
        ended = await api.terminal(first.strip())
        assert (ended["state"], ended["output"]["review"]) == ("COMPLETED", "correct")
        fields = place.saved(path)["fields"]
        assert ended["output"]["fields"] == fields
        assert (fields["vendor"]["value"], fields["number"]["value"]) == ("Green", None)
        code, _, err = await weft(api, *answer, json.dumps(APPROVE))
        assert (code != 0, place.decided()) == (True, [(path, "correct")])

        ended = await api.terminal(second.strip())
        assert (ended["state"], ended["output"]["review"]) == ("COMPLETED", None)
        assert ended["output"]["fields"] == fields
        assert await waiting(api, 0) == []


async def test_who_answered_is_the_name_of_the_key(
    place: Place, llm: FakeLLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, key = smudged(place), "a-key-of-twenty-four-chars"
    settings = server_settings(llm, WEFT_API_KEYS=key)
    monkeypatch.setenv("WEFT_API_KEY", key)
    async with serving(place.folder / "data", settings=settings) as (_, api):
        await deploy(api)
        _, started, _ = await weft(api, "start", "documents", "--input", f"path={path}")
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not json.loads((await weft(api, "waits", "--json"))[1])["items"]:
                pass
        code, _, err = await weft(api, "answer", started.strip(), "create_review", json.dumps(APPROVE))
        assert code == 0, err
        code, _, err = await weft(api, "watch", started.strip())
        assert code == 0, err
        _, shown, _ = await weft(api, "show", started.strip(), "create_review", "--json")
    output = json.loads(shown)["output"]
    assert output["by"]
    ((_, decision, _, by, _, at),) = place.rows("decisions")
    assert (decision, by, at) == ("approve", output["by"], output["at"])
