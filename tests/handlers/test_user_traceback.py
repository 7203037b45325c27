from __future__ import annotations

import asyncio
import json
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

from weft.errors import HandlerError, NonRetryable
from weft.handlers.outcome import classify
from weft.handlers.user_traceback import MAX_TRACEBACK_BYTES, user_traceback

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def trace_of(function: Callable[[], Any]) -> str:
    try:
        function()
    except BaseException as error:
        text = user_traceback(error)
        assert text is not None
        assert len(text.encode()) <= MAX_TRACEBACK_BYTES
        return text
    raise AssertionError("it did not raise")


def look_up(order: dict[str, int]) -> int:
    return order["missing"]  # the guilty line


def test_the_users_line_and_its_source_are_there() -> None:
    text = trace_of(lambda: look_up({}))
    assert text.startswith("Traceback (most recent call last):\n")
    assert f'File "{__file__}"' in text
    assert "in look_up" in text
    assert 'return order["missing"]  # the guilty line' in text
    assert text.endswith("\nKeyError: 'missing'")


def test_causes_and_contexts_come_first() -> None:
    def fails() -> None:
        try:
            try:
                json.loads("{")
            except ValueError as error:
                raise RuntimeError("cannot read the order") from error
        except RuntimeError:
            look_up({})

    text = trace_of(fails)
    parts = ["JSONDecodeError", "direct cause", "RuntimeError: cannot read", "During handling", "KeyError"]
    places = [text.index(part) for part in parts]
    assert places == sorted(places)


def test_a_context_that_was_put_aside_stays_aside() -> None:
    def fails() -> None:
        try:
            look_up({})
        except KeyError:
            raise RuntimeError("no") from None

    assert "KeyError" not in trace_of(fails)


def test_every_member_of_a_group_is_there() -> None:
    async def fails() -> None:
        async def part(number: int) -> None:
            look_up({str(number): 1})

        async with asyncio.TaskGroup() as group:
            for number in range(2):
                group.create_task(part(number))

    text = trace_of(lambda: asyncio.run(fails()))
    assert text.count("KeyError: 'missing'") == 2
    assert "ExceptionGroup" in text
    assert "taskgroups.py" not in text


def test_frames_of_machinery_are_left_out() -> None:
    async def fails() -> None:
        async with asyncio.timeout(0.001):
            await asyncio.sleep(60)

    text = trace_of(lambda: asyncio.run(fails()))
    assert "await asyncio.sleep(60)" in text
    assert "asyncio/" not in text


def test_frames_of_libraries_stay_but_the_place_is_the_users_own() -> None:
    def fails() -> None:
        json.loads("{")

    text = trace_of(fails)
    assert "raw_decode" in text
    try:
        fails()
    except ValueError as error:
        place = classify(error).error["details"]["at"]
    assert place.startswith("test_user_traceback.py:")


def library(tmp_path: Path, depth: int) -> ModuleType:
    """Make an installed package that calls back through many frames of its own, each on a long line."""
    folder = tmp_path / "site-packages"
    folder.mkdir()
    lines = [
        f"def level_{level}(call):\n    return level_{level + 1}(call)  # {'x' * 300}"
        for level in range(depth)
    ]
    lines.append(f"def level_{depth}(call):\n    return call()")
    file = folder / "deep_library.py"
    file.write_text("\n".join(lines))
    module = ModuleType("deep_library")
    exec(compile(file.read_text(), str(file), "exec"), module.__dict__)
    return module


def test_in_a_long_traceback_the_users_frames_are_kept(tmp_path: Path) -> None:
    deep = library(tmp_path, 150)
    text = trace_of(lambda: deep.level_0(lambda: deep.level_0(lambda: look_up({}))))
    assert 'return order["missing"]  # the guilty line' in text
    assert "151 frames of libraries" in text


def test_a_recursion_is_read_once() -> None:
    def again(number: int) -> int:
        return again(number - 1) if number else look_up({})

    text = trace_of(lambda: again(sys.getrecursionlimit() // 2))
    assert "more times" in text
    assert "the guilty line" in text


def test_the_head_and_the_end_of_a_long_text_are_kept() -> None:
    error: BaseException = ValueError("the first of all")
    for number in range(1000):
        link = ValueError(f"link {number} {'x' * 3000}")
        link.__cause__ = error
        error = link

    def fails() -> None:
        raise RuntimeError("the last of all") from error

    text = trace_of(fails)
    assert "the first of all" in text
    assert "the last of all" in text


@pytest.mark.parametrize("name", ["WEFT_SECRET_TOKEN", "WEFT_SECRET_OTHER"])
def test_secrets_are_masked(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "tr0ub4dor&3")

    def fails() -> None:
        raise ValueError("the service said tr0ub4dor&3" + "y" * 1950 + " tr0ub4dor&3")

    text = trace_of(fails)
    assert "tr0ub4dor" not in text
    assert "***" in text


def test_what_would_move_a_cursor_is_replaced() -> None:
    def fails() -> None:
        raise ValueError("\x1b[2J\0 gone \ud800")

    assert "\N{REPLACEMENT CHARACTER}[2J\N{REPLACEMENT CHARACTER} gone" in trace_of(fails)


class SpoiltError(Exception):
    def __str__(self) -> str:
        raise SystemExit

    @property
    def __notes__(self) -> list[str]:  # type: ignore[override]
        raise SystemExit


def test_an_exception_that_raises_when_it_is_read_fails_all_the_same() -> None:
    with pytest.raises(SpoiltError) as caught:
        raise SpoiltError
    assert classify(caught.value).error["code"] == "handler_error"


class WithDetailsError(HandlerError):
    code = "quota"

    def __init__(self, details: Any) -> None:
        super().__init__("too much")
        self.details = details


@pytest.mark.parametrize(
    ("details", "expected"), [({"left": 0}, {"left": 0}), ([1, 2], {"value": [1, 2]}), (None, {})]
)
def test_details_of_a_handler_keep_their_shape(details: Any, expected: dict[str, Any]) -> None:
    def fails() -> None:
        raise WithDetailsError(details)

    try:
        fails()
    except HandlerError as error:
        shown = classify(error).error["details"]
    assert "in fails" in shown.pop("traceback")
    assert shown == expected


def test_an_exception_without_a_frame_has_no_traceback() -> None:
    assert user_traceback(NonRetryable("no")) is None


def test_an_error_of_wefts_own_handlers_has_no_traceback() -> None:
    with pytest.raises(KeyError) as caught:
        look_up({})
    assert "traceback" not in classify(caught.value, user_code=False).error["details"]
