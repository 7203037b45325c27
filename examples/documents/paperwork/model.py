"""A stand-in for a language model: it finds the fields by their labels, and needs no key.

It speaks the same dialect as the real ones, so the pipeline cannot tell. What it cannot find is null; of a
value with a ``?`` in it, as a smudge is read, it is not sure.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from weft.testing.fake_llm import FakeLLM, echo, reply

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from weft.testing.fake_llm import ChatRequest, Turn
    from weft.testing.http_server import Behaviour

SURE, UNSURE = 0.97, 0.45

_LABELS = {
    "number": r"^Invoice number:\s*(.+)$",
    "date": r"^Date:\s*(.+)$",
    "vendor": r"^(?:Vendor|Merchant):\s*(.+)$",
    "total": r"^Total:\s*([\d.,?]+)",
    "currency": r"^Total:\s*[\d.,?]+\s*([A-Z]{3})\b",
}


def find(text: str, names: list[str]) -> dict[str, dict[str, object]]:
    """Return the fields of a document as the model would."""
    found = {name: re.search(_LABELS[name], text, re.MULTILINE) for name in names}
    return {name: _said(match[1].strip() if match else None) for name, match in found.items()}


def _said(value: str | None) -> dict[str, object]:
    if value is None:
        return {"value": None, "confidence": 0.0}
    return {"value": value, "confidence": UNSURE if "?" in value else SURE}


def reader(*, delay_seconds: float = 0.0) -> Turn:
    """Answer like a model that takes so long."""

    def turn(request: ChatRequest) -> Behaviour | Awaitable[Behaviour]:
        asked = (request.schema or {}).get("properties", {})
        if not asked or not _LABELS.keys() >= asked.keys():
            return echo(request)
        text = request.prompt.partition("\nDocument:\n")[2]
        said = reply(json.dumps(find(text, list(asked))), delay_seconds=delay_seconds)
        assert callable(said)
        return said(request)

    return turn


def make(*, delay_seconds: float = 0.0, host: str = "127.0.0.1", port: int = 0) -> FakeLLM:
    return FakeLLM(reader(delay_seconds=delay_seconds), host=host, port=port)
