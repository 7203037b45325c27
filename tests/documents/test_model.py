from __future__ import annotations

import json
import urllib.request
from typing import Any

from paperwork import model
from paperwork.fields import prompt, response_schema


def ask(url: str, body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(url, data), timeout=30) as answer:
        return json.load(answer)


def question(content: str, schema: Any = None) -> dict[str, Any]:
    asked: dict[str, Any] = {"model": "fake", "messages": [{"role": "user", "content": content}]}
    if schema is not None:
        asked["response_format"] = {"type": "json_schema", "json_schema": {"schema": schema}}
    return asked


def test_it_finds_fields_by_their_labels_and_is_not_sure_of_a_smudge() -> None:
    text = "RECEIPT\nMerchant: Bl?e\nTotal: 7.50 EUR\n"
    with model.make() as llm:
        answer = ask(
            f"{llm.base_url}/chat/completions",
            question(prompt("receipt", text), response_schema("receipt")),
        )
    assert json.loads(answer["choices"][0]["message"]["content"]) == {
        "date": {"value": None, "confidence": 0.0},
        "vendor": {"value": "Bl?e", "confidence": 0.45},
        "total": {"value": "7.50", "confidence": 0.97},
        "currency": {"value": "EUR", "confidence": 0.97},
    }


def test_other_questions_are_answered_as_the_bundled_model_does() -> None:
    with model.make() as llm:
        answer = ask(f"{llm.base_url}/chat/completions", question("Hello?"))
    assert answer["choices"][0]["message"]["content"] == "You said: Hello?"


def test_it_says_how_many_calls_have_come() -> None:
    with model.make() as llm:
        for _ in range(3):
            ask(f"{llm.base_url}/chat/completions", question("Hello?"))
        assert ask(f"{llm.base_url}/calls") == {"calls": 3, "most_within_a_second": 3}
