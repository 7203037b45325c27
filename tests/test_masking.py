"""The mask: every form of a secret is replaced, the rest of a text stays, and the cost is linear."""

from __future__ import annotations

import json
import re
import time
from base64 import b64encode, encodebytes
from typing import Any
from urllib.parse import quote

import idna
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.secret_forms import forms

from weft.masking import HIDDEN, Mask, MaskedLines, _fold

# It is written differently as JSON, in a URL, in HTML and as base64, and has letters that are not ASCII.
SECRET = "p/ä+ss\"w<örd'\\\\ 42~?>&Straße"
# What would still tell a reader of the text most of the secret.
TELLING = ("ss", "rd", "42", "w%C3", "wö", "Stra", "STRA")


@pytest.mark.parametrize("form", forms(SECRET))
def test_a_secret_is_masked_in_every_form(form: str) -> None:
    text = Mask([SECRET]).text(f"before {forms(SECRET)[form]} after")
    assert HIDDEN in text
    assert text.startswith("before ")
    assert text.endswith(" after")
    assert not any(part in text for part in TELLING)


# Texts that a URL, JSON or a shell would rather not have, and letters of which upper and lower case differ in
# length or by their place. Without UTF-8 that was read as Latin-1: of that, ascii() leaves fewer characters.
AWKWARD = st.text(
    st.sampled_from(list("aZ09 +/\\\"'&%<>=-_.~\n\t;:#?äßſİςΣé€😀\x00")) | st.characters(codec="utf-8"),
    min_size=4,
    max_size=40,
).filter(
    lambda secret: (
        len(secret.strip(" \t\n\r+").strip()) >= 4 and not re.search("[\xc2-\xf4][\x80-\xbf]", secret)
    )
)


@given(AWKWARD, st.data())
def test_a_secret_of_any_letters_is_masked_in_every_form(secret: str, data: st.DataObject) -> None:
    form = data.draw(st.sampled_from(sorted(forms(secret))))
    written = forms(secret)[form]
    masked = Mask([secret]).text(f"[[{written}]]")
    assert HIDDEN in masked, form
    if "base64" not in form:
        assert len(masked) <= len("[[***]]") + len(json.dumps(json.dumps({"key": ""}))) + 12


@given(AWKWARD, st.text(max_size=200))
def test_a_text_without_the_secret_stays_as_it_is(secret: str, text: str) -> None:
    secret = f"\U0001f511{' '.join(secret.splitlines())}"
    masked = Mask([secret]).text(text)
    assert masked == text or "\U0001f511" in text


@given(AWKWARD, st.text(max_size=50), st.text(max_size=50))
def test_what_stands_around_a_secret_stays(secret: str, before: str, behind: str) -> None:
    mask = Mask([secret])
    if mask.text(before) == before and mask.text(behind) == behind and "…" not in before + behind:
        masked = mask.text(f"{before}\U0001f6aa{secret}\U0001f6aa{behind}")
        start, _, rest = masked.partition("\U0001f6aa")
        assert start == before
        assert rest.endswith(f"\U0001f6aa{behind}")
        assert secret.strip() not in masked


@pytest.mark.parametrize("length", range(4, 14))
@pytest.mark.parametrize("before", range(4))
@pytest.mark.parametrize("behind", range(4))
def test_a_secret_is_masked_wherever_it_stands_in_base64(length: int, before: int, behind: int) -> None:
    secret = "0123456789abcd"[:length]
    text = b64encode(b"x" * before + secret.encode() + b"y" * behind).decode()
    left = Mask([secret]).text(text)
    assert HIDDEN in left
    assert len(left) - len(HIDDEN) <= (before + behind) * 4 // 3 + 4


def test_of_two_secrets_the_longer_goes_first() -> None:
    assert Mask(["key-", "key-and-more"]).text("key-and-more key-") == f"{HIDDEN} {HIDDEN}"
    assert Mask(["abcdef", "defghi"]).text("<abcdefghi>") == f"<{HIDDEN}>"


def test_keys_and_nested_values_are_masked_too_and_the_rest_stays() -> None:
    value = {"a-secret": [1, None, {"x": "the a-secret"}], "other": True}
    expected = {HIDDEN: [1, None, {"x": f"the {HIDDEN}"}], "other": True}
    assert Mask(["a-secret", ""]).value(value) == expected
    assert Mask([]).value(value) == value


@pytest.mark.parametrize(
    ("secret", "shown"),
    [
        ("123456", [123456, -123456, 123456.0, "123,456", "pin=123456"]),
        ("0042195", [42195, "42,195", 42195.0]),
        ("1234.50", [1234.5, "1234.5", -1234.5]),
        ("1e5", []),
        ("12e4", [120000, "120000", "120000.0"]),
    ],
)
def test_a_secret_that_is_a_number_is_masked_as_a_number(secret: str, shown: list[Any]) -> None:
    mask = Mask([secret])
    for value in shown:
        assert HIDDEN in str(mask.value(value)), value
    # Other numbers may hold the same digits; numbers of few digits are everywhere.
    assert mask.value([991234569, 12, 42, True, 5.0, 7]) == [991234569, 12, 42, True, 5.0, 7]


def test_values_under_four_characters_are_not_masked() -> None:
    assert not Mask(["abc", "", "  x  "])
    assert Mask(["abc"]).text("abc") == "abc"
    assert Mask(["abc"]).value({"abc": 123}) == {"abc": 123}


def test_a_host_is_masked_as_weft_writes_it() -> None:
    host = idna.encode("geheim-ö").decode()
    assert Mask(["Geheim-Ö"]).text(f"http://{host}.example/: refused") == "http://***.example/: refused"
    assert HIDDEN in Mask(["2130706433"]).text("127.0.0.1 is not a public address")


def test_each_line_of_a_secret_with_several_lines_is_masked() -> None:
    key = "-----BEGIN KEY-----\nMIIEvQIBADANBgkq\nhkiG9w0BAQEFAASC\n-----END KEY-----\n"
    text = Mask([key]).text(f"  | {key.splitlines()[1]}\n  | {key.splitlines()[2]}\n")
    assert text == "  | ***\n  | ***\n"


@pytest.mark.parametrize("form", [form for form in forms(SECRET) if "wrapped" not in form])
def test_the_beginning_of_a_secret_at_which_a_text_was_cut_is_masked_too(form: str) -> None:
    mask, written = Mask(["other secret", SECRET]), forms(SECRET)[form]
    for length in range(len(written)):
        text = mask.text(f"the password is {written[:length]}…")
        assert text.endswith("…")
        # At most the letters around it, three of the secret, and what shares bits with a neighbour.
        assert len(text) <= len("the password is ***…") + 40
        assert "ss" not in text.removeprefix("the password is ")


@pytest.mark.parametrize("size", [1, 7, 1000, 100_000])
@pytest.mark.parametrize("filling", [0, 70_000, 150_000])
def test_lines_hide_a_secret_wherever_a_stream_is_cut(size: int, filling: int) -> None:
    secret = "hunter2 ü"
    written = f"a {secret} b\nno end {'.' * filling}{quote(secret)}{'.' * filling}{secret}"
    lines = MaskedLines(Mask([secret, "abc"]))
    shown = ""
    size = max(size, filling // 50)
    for start in range(0, len(written), size):
        shown += lines.feed(written[start : start + size])
    assert shown + lines.rest() == f"a *** b\nno end {'.' * filling}***{'.' * filling}***"


@given(AWKWARD, st.data())
def test_a_secret_written_in_parts_is_masked(secret: str, data: st.DataObject) -> None:
    form = data.draw(st.sampled_from(sorted(forms(secret))))
    text = f"[[{forms(secret)[form]}]]\n"
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    whole_lines = data.draw(st.booleans())
    lines = MaskedLines(Mask([secret]), whole_lines=whole_lines)
    shown = ""
    for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True):
        shown += lines.feed(text[start:end])
    shown += lines.rest()
    assert HIDDEN in shown
    assert shown.startswith("[[")
    assert forms(secret)[form] not in shown


def test_lines_show_a_line_as_soon_as_it_has_ended() -> None:
    lines = MaskedLines(Mask(["hunter2"]))
    assert lines.feed("50 %\r100 %\nhun") == "50 %\r100 %\n"
    assert lines.feed("ger\n") == "hunger\n"
    assert lines.feed("hunt") + lines.rest() == HIDDEN
    pieces = MaskedLines(Mask(["hunter2"]), whole_lines=False)
    assert [pieces.feed(text) for text in ("50 %\r", "name: hun", "ger", "hun")] == [
        "50 %\r",
        "name: ",
        "hunger",
        "",
    ]


def test_base64_over_several_lines_is_masked_although_the_lines_come_one_by_one() -> None:
    secret = bytes(range(33, 120)).decode() * 3
    for before in range(60):
        lines = MaskedLines(Mask([secret]))
        wrapped = encodebytes(b"u" * before + secret.encode() + b"v" * 9).decode()
        shown = "".join(map(lines.feed, wrapped.splitlines(keepends=True))) + lines.rest()
        left = "".join(shown.split()).replace(HIDDEN, "")
        assert HIDDEN in shown
        assert len(left) <= (before + 9) * 4 // 3 + 9


@pytest.mark.parametrize(
    "piece",
    [
        "lorem ipsum ",
        '\\"',
        "%41",
        "%25",
        "&amp;",
        "hunter2-hunter2 ",
        "%68unter2-hunter2",
        "aGVs\n",
        "hunt…",
        "hunt\n",
    ],
)
def test_the_time_is_linear_in_the_text(piece: str) -> None:
    mask = Mask([f"hunter2-hunter{number}" for number in range(20)])

    def seconds(size: int) -> float:
        text = piece * (size // len(piece))
        took = []
        for _ in range(3):
            began = time.process_time()
            mask.text(text)
            took.append(time.process_time() - began)
        return min(took)

    # Eight times the text: linear is 8 times the time, quadratic 64 times. The bound leaves room for noise.
    assert seconds(512 * 1024) <= 30 * seconds(64 * 1024) + 0.05


def test_lower_case_keeps_the_length_of_every_character() -> None:
    for number in range(0x110000):
        assert len(_fold(chr(number))) == 1
    assert _fold("ΑΣ ς") == _fold("ας σ")
