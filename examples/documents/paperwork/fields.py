"""The types of documents, and the fields of each: what is asked for, and what counts as an answer."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from datetime import date
from decimal import Decimal, InvalidOperation
from typing import Any, TypeAlias

OTHER = "other"

# What the model says of a field: {"value": text or null, "confidence": from 0 to 1}.
Reply: TypeAlias = Mapping[str, Mapping[str, Any]]
# The same after it was checked, with "locked": whether a reviewer has fixed it.
Fields: TypeAlias = dict[str, dict[str, Any]]
# A document as it is saved and reviewed.
Record: TypeAlias = dict[str, Any]

_MEANING = {
    "number": "the number of the invoice",
    "date": "the date of the document, as YYYY-MM-DD",
    "vendor": "who is paid",
    "total": "the amount to pay, a number with a point, without the currency",
    "currency": "the currency, as three capital letters",
}
NAMES = tuple(_MEANING)
TYPES: Mapping[str, tuple[str, ...]] = {
    "invoice": NAMES,
    "receipt": ("date", "vendor", "total", "currency"),
}

SYSTEM = "You read business documents. You give what is written there, and nothing that is not."
_ASK = """\
Give these fields of the {type} below, each with how sure you are of it, from 0 (a guess) to 1 (certain).
A field that is not there, or cannot be read, is null with a confidence of 0.

{fields}

Document:
{text}"""


def type_of(text: str) -> str:
    """Return what type a document is; only those that we have fields for are told apart."""
    words = set(re.findall(r"[a-z]+", text.lower()))
    return next((type_ for type_ in TYPES if type_ in words), OTHER)


def prompt(type_: str, text: str) -> str:
    listed = "\n".join(f"- {name}: {_MEANING[name]}" for name in TYPES[type_])
    return _ASK.format(type=type_, fields=listed, text=text.strip())


def response_schema(type_: str) -> dict[str, Any]:
    field = {
        "type": "object",
        "required": ["value", "confidence"],
        "additionalProperties": False,
        "properties": {
            "value": {"type": ["string", "null"]},
            "confidence": {"type": "number", "minimum": 0, "maximum": 1},
        },
    }
    names = TYPES[type_]
    return {
        "type": "object",
        "required": list(names),
        "additionalProperties": False,
        "properties": dict.fromkeys(names, field),
    }


def recipe(type_: str) -> str:
    """Name how a type is asked for: a reply to another question is no reply to this one."""
    asked = json.dumps([SYSTEM, prompt(type_, ""), response_schema(type_)], sort_keys=True)
    return hashlib.sha256(asked.encode()).hexdigest()[:16]


# --- What counts as an answer.


def _is_date(text: str) -> str:
    return date.fromisoformat(text).isoformat()


def _is_amount(text: str) -> str:
    amount = Decimal(text.replace(",", "").replace(" ", ""))
    if not amount.is_finite() or abs(amount) >= 10**13:
        raise ValueError(text)
    return f"{amount:.2f}"


def _is_currency(text: str) -> str:
    if not re.fullmatch(r"[A-Z]{3}", text):
        raise ValueError(text)
    return text


def _is_text(text: str) -> str:
    return " ".join(text.split())


_CHECKS: Mapping[str, Callable[[str], str]] = {
    "date": _is_date,
    "total": _is_amount,
    "currency": _is_currency,
}


def read_value(name: str, text: str) -> str:
    """Return a value in its one form, or raise ValueError with what is wrong with it."""
    try:
        return _CHECKS.get(name, _is_text)(text.strip())
    except (ValueError, InvalidOperation):
        raise ValueError(f"{name}: {text!r} is not {_MEANING[name]}") from None


def check(type_: str, reply: Reply) -> tuple[Fields, list[str]]:
    """Hold a reply against what its fields may be; what fails is no value, and nobody is sure of it."""
    fields: Fields = {}
    problems = []
    for name in TYPES[type_]:
        value, confidence = reply[name]["value"], float(reply[name]["confidence"])
        if value is None or not value.strip():
            value, confidence = None, 0.0
        else:
            try:
                value = read_value(name, value)
            except ValueError as error:
                problems.append(str(error))
                value, confidence = None, 0.0
        fields[name] = {"value": value, "confidence": round(confidence, 4), "locked": False}
    return fields, problems


def with_locked(fields: Fields, locked: Mapping[str, str | None]) -> Fields:
    """Put the values that reviewers have fixed over what was read."""
    return {
        name: {"value": locked[name], "confidence": 1.0, "locked": True} if name in locked else field
        for name, field in fields.items()
    }


def make_record(document: str, sha256: str, type_: str, fields: Fields) -> Record:
    """Make the record of a document. It is as sure as its least sure field."""
    return {
        "document": document,
        "sha256": sha256,
        "type": type_,
        "confidence": min((field["confidence"] for field in fields.values()), default=0.0),
        # In the order of the type, wherever they come from: the same record is the same file.
        "fields": {name: fields[name] for name in TYPES.get(type_, ())},
    }


def relocked(record: Record, locked: Mapping[str, str | None]) -> Record:
    """Return a record with the values that reviewers have fixed by now."""
    fields = with_locked(record["fields"], locked)
    return make_record(record["document"], record["sha256"], record["type"], fields)
