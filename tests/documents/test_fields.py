from __future__ import annotations

from typing import Any

import jsonschema_rs
import pytest

from paperwork import fields, model
from paperwork.samples import make

INVOICE: dict[str, Any] = model.find("\n".join(make(1, "text").lines), list(fields.TYPES["invoice"]))


def said(**values: Any) -> dict[str, Any]:
    return INVOICE | {name: {"value": value, "confidence": 0.9} for name, value in values.items()}


@pytest.mark.parametrize(
    ("text", "type_"),
    [
        ("INVOICE\nNumber 7", "invoice"),
        ("Your receipt", "receipt"),
        ("Dear customer", "other"),
        ("", "other"),
    ],
)
def test_a_document_has_the_type_that_it_names(text: str, type_: str) -> None:
    assert fields.type_of(text) == type_


@pytest.mark.parametrize("type_", fields.TYPES)
def test_a_reply_with_every_field_and_its_confidence_fits_the_schema(type_: str) -> None:
    schema = jsonschema_rs.validator_for(fields.response_schema(type_))
    reply = {name: {"value": None, "confidence": 0} for name in fields.TYPES[type_]}
    assert schema.is_valid(reply)
    name = fields.TYPES[type_][0]
    assert not schema.is_valid(reply | {name: {"value": "7"}})
    assert not schema.is_valid(reply | {name: {"value": "7", "confidence": 1.5}})
    del reply[name]
    assert not schema.is_valid(reply)


def test_values_are_given_in_one_form() -> None:
    checked, problems = fields.check("invoice", said(total=" 1,234.5 ", vendor="Blue  Harbour"))
    assert (checked["total"]["value"], checked["vendor"]["value"]) == ("1234.50", "Blue Harbour")
    assert not problems


@pytest.mark.parametrize(
    ("name", "value"), [("date", "14th of May"), ("total", "much"), ("total", "NaN"), ("currency", "euro")]
)
def test_what_is_no_value_of_its_field_is_dropped_and_told(name: str, value: str) -> None:
    checked, problems = fields.check("invoice", said(**{name: value}))
    assert checked[name] == {"value": None, "confidence": 0.0, "locked": False}
    assert len(problems) == 1
    assert value in problems[0]


def test_a_record_is_as_sure_as_its_least_sure_field() -> None:
    checked, _ = fields.check("invoice", INVOICE | {"vendor": {"value": "Bl?e", "confidence": 0.45}})
    record = fields.make_record("d", "0" * 64, "invoice", checked)
    assert record["confidence"] == 0.45
    locked = fields.relocked(record, {"vendor": "Blue"})
    assert locked["confidence"] == 0.97
    assert locked["fields"]["vendor"] == {"value": "Blue", "confidence": 1.0, "locked": True}
    assert fields.make_record("d", "0" * 64, "other", {})["confidence"] == 0.0


def test_another_question_is_another_recipe(monkeypatch: pytest.MonkeyPatch) -> None:
    before = fields.recipe("invoice")
    assert fields.recipe("receipt") != before
    monkeypatch.setattr(fields, "SYSTEM", "Guess.")
    assert fields.recipe("invoice") != before
