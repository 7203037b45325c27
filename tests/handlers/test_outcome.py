from __future__ import annotations

from typing import Any

import pytest

from weft.core.payload import MAX_VALUES
from weft.errors import HandlerError, NonRetryable, RetryAfter
from weft.handlers.outcome import (
    MAX_MESSAGE_BYTES,
    MAX_RETRY_AFTER_SECONDS,
    Completed,
    Failed,
    classify,
    completed,
    cut,
    timed_out,
)


def test_json_within_its_bound_is_completed() -> None:
    assert completed({"a": 1}, target="f", max_bytes=7) == Completed(b'{"a":1}')


@pytest.mark.parametrize(
    ("value", "code"),
    [(object(), "output_not_json"), ("x" * 10, "output_too_large"), ([[]] * 9, "output_too_large")],
)
def test_anything_else_fails_for_good(value: Any, code: str) -> None:
    outcome = completed(value, target="f", max_bytes=8)
    assert isinstance(outcome, Failed)
    assert (outcome.error["code"], outcome.error["retryable"]) == (code, False)


def test_an_output_of_too_many_values_fails_for_good_with_the_limit() -> None:
    for value in ([0] * MAX_VALUES, {"a": ([0] * MAX_VALUES,)}, {*range(MAX_VALUES)}):
        outcome = completed(value, target="f", max_bytes=10**8)
        assert isinstance(outcome, Failed)
        assert outcome.error["code"] == "output_too_large"
        assert outcome.error["message"].endswith("more than 1,000,000 values")


def test_an_exception_retries_and_names_its_type_and_place() -> None:
    try:
        raise KeyError("order")
    except KeyError as error:
        failed = classify(error)
    place = failed.error["details"].pop("at")
    assert 'raise KeyError("order")' in failed.error["details"].pop("traceback")
    assert failed == Failed(
        {
            "code": "handler_error",
            "message": "KeyError: 'order'",
            "retryable": True,
            "details": {"type": "KeyError"},
        }
    )
    assert place.startswith("test_outcome.py:")
    assert "/" not in place


def test_a_timeout_retries() -> None:
    assert timed_out(1.5).error == {"code": "timeout", "message": "no result within 1.5 s", "retryable": True}


def test_non_retryable_does_not_retry() -> None:
    assert classify(NonRetryable("no")).error["retryable"] is False


def test_retry_after_sets_the_floor_within_reason() -> None:
    assert classify(RetryAfter(3)).retry_after_seconds == 3
    assert classify(RetryAfter(1e300)).retry_after_seconds == MAX_RETRY_AFTER_SECONDS
    assert classify(RetryAfter(3)).error["details"] == {"type": "RetryAfter", "retry_after_seconds": 3.0}


class StatusError(HandlerError):
    code = "http_status"
    retryable = False

    def __init__(self, status: Any) -> None:
        self.details = {"status": status}
        super().__init__(f"status {status}")


def test_a_handler_error_brings_its_own_code_and_details() -> None:
    assert classify(StatusError(404)).error == {
        "code": "http_status",
        "message": "status 404",
        "retryable": False,
        "details": {"status": 404},
    }


def test_details_that_cannot_be_stored_are_left_out() -> None:
    assert "details" not in classify(StatusError({1})).error
    assert "details" not in classify(StatusError("x" * 100_000)).error


class SpoiltError(HandlerError):
    code = 7  # type: ignore[assignment]
    retryable = "maybe"  # type: ignore[assignment]
    retry_after_seconds = float("nan")

    @property
    def details(self) -> Any:
        raise RuntimeError


def test_spoilt_attributes_fall_back_to_the_defaults() -> None:
    failed = classify(SpoiltError("x"))
    assert (failed.error["code"], failed.error["retryable"]) == ("handler_error", True)
    assert failed.retry_after_seconds is None


class Text(str):
    __slots__ = ()

    def __getitem__(self, key: Any) -> str:
        raise SystemExit

    def encode(self, *_: Any) -> bytes:
        raise SystemExit


class TextError(Exception):
    def __str__(self) -> str:
        return Text("tricky")


def test_text_of_a_hostile_string_class_is_read_all_the_same() -> None:
    assert classify(TextError()).error["message"] == "TextError: tricky"


@pytest.mark.parametrize("text", ["x" * 10_000, "é" * 10_000, "\U0001f9f5" * 10_000, "\ud800" * 10_000])
def test_long_text_is_cut_between_characters(text: str) -> None:
    short = cut(text)
    assert len(short.encode()) <= MAX_MESSAGE_BYTES
    assert short.endswith("…")


def test_text_that_no_store_takes_is_replaced() -> None:
    assert cut("a\ud800b\0c") == "a?b\N{REPLACEMENT CHARACTER}c"


def test_a_thousand_causes_are_one_text() -> None:
    error = ValueError("link 0")
    for number in range(1, 1000):
        link = ValueError(f"link {number}")
        link.__cause__ = error
        error = link
    assert classify(error).error["message"] == "ValueError: link 999"
