"""Masking: every secret is replaced by ``***`` in the texts that weft stores, logs and prints.

A secret rarely appears as it was set. A host is written in lower case, a URL quotes the secret, JSON, HTML
and ``repr`` escape it, an ``Authorization`` header has it within base64. So the mask searches a text on
several levels: as it is, and with its escapes undone once, twice and so on. On each level the mask looks for
the secret in any case and, without white space, for its base64. The mask maps what it found back to the text
and replaces that part alone.

The cost is linear: a level is one pass of ``str.find`` for each literal (a secret has about five), and the
mask searches a long text in windows of a fixed size.

A value under ``SHORTEST`` characters is not masked: it appears in half of all lines by chance.
"""

from __future__ import annotations

import json
import re
import socket
from base64 import b64encode
from bisect import bisect_right
from contextlib import suppress
from functools import lru_cache
from math import isfinite
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

HIDDEN = "***"
SHORTEST = 4

# How often the escapes of a text are undone: JSON within JSON within a URL takes three.
_MAX_LEVELS = 4
# A longer text is searched in windows, so that the memory for its levels is bounded.
_WINDOW = 256 * 1024
# The longest escape of one character: four of ``\xXX``.
_LONGEST_ESCAPE = 16
# At most so much do two windows share, and is held back of a stream. Longer secrets are found by their lines.
_MAX_OVERLAP = 256 * 1024
# Longer lines are passed on in pieces: a program may write without ever ending a line.
_MAX_LINE = 64 * 1024
# A text that was too long ends like this. What stands before it may be the beginning of a secret.
_CUT = "…"
_MAX_CUTS = 32
# So many places are tried for such a beginning; after that it is taken to be one.
_MAX_TRIES = 64

_ESCAPE = re.compile(
    # Bytes of a URL or of repr(bytes): one character of UTF-8, else each byte by itself.
    r"%[cdCD][0-9a-fA-F]%[89abAB][0-9a-fA-F]"
    r"|%[eE][0-9a-fA-F](?:%[89abAB][0-9a-fA-F]){2}"
    r"|%[fF][0-7](?:%[89abAB][0-9a-fA-F]){3}"
    r"|%[0-9a-fA-F]{2}"
    r"|\\x[cdCD][0-9a-fA-F]\\x[89abAB][0-9a-fA-F]"
    r"|\\x[eE][0-9a-fA-F](?:\\x[89abAB][0-9a-fA-F]){2}"
    r"|\\x[fF][0-7](?:\\x[89abAB][0-9a-fA-F]){3}"
    r"|\\x[0-9a-fA-F]{2}"
    # JSON and repr(str).
    r"|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    r"|\\u[0-9a-fA-F]{4}|\\U[0-9a-fA-F]{8}|\\[\"'\\/bfnrt]"
    # HTML.
    r"|&(?:\#[0-9]{1,7}|\#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});"
)


# What may be the first part of an escape, at the end of a text that was cut: also whole bytes of a character.
# A backslash behind a backslash begins none.
def _half_character(escape: str) -> str:
    hex_digit = "[0-9a-fA-F]"
    more = f"{escape}[89abAB]{hex_digit}"
    lead = f"{escape}[cdCD]{hex_digit}|{escape}[eE]{hex_digit}(?:{more})?"
    return f"(?:{lead}|{escape}[fF]{hex_digit}(?:{more}){{0,2}})"


_BROKEN_ESCAPE = re.compile(
    r"(?:(?<!\\)(?:\\\\)*(?P<slash>"
    rf"(?:{_half_character(chr(92) * 2 + 'x')}|\\u[dD][89abAB][0-9a-fA-F]{{2}})?"
    r"(?:\\(?:u[0-9a-fA-F]{0,3}|U[0-9a-fA-F]{0,7}|x[0-9a-fA-F]?)?)?)"
    rf"|(?P<other>{_half_character('%')}?(?:%[0-9a-fA-F]?|&[#A-Za-z0-9]{{0,9}})?))\Z"
)
_SOME_ESCAPE = re.compile(r"[%\\&]")
_ONE_CHARACTER = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_NUMBER = re.compile(r"[+-]?[0-9]{1,40}(?:\.[0-9]{1,40})?(?:[eE][+-]?[0-9]{1,3})?\Z")
_LINE_END = re.compile(r"[\r\n]")
_BASE64 = re.compile(r"[A-Za-z0-9+/]")
_WORD = re.compile(r"\S+")


class _Shortest(NamedTuple):
    """The shortest end of a text that counts as the beginning of a secret."""

    plain: int = SHORTEST
    base64: int = SHORTEST


class Mask:
    """Replaces secrets by ``***``. One of these serves for every text of a process.

    All that comes of a user's code, a request or a response is masked before it is stored, logged or shown:
    by ``value`` a JSON value such as an error with its ``details`` and ``details.traceback``, by ``text`` a
    text, by ``MaskedLines`` a stream. No part of an error needs a call of its own: the worker masks the whole
    error once, before it sends the result.

    Whoever shortens a text before it is masked writes ``…`` where the text was cut: the beginning of a secret
    in front of that sign is masked, too.
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        self._literals = _literals(tuple(sorted(set(secrets))))
        longest = max(map(len, (*self._literals.plain, *[b.text for b in self._literals.base64])), default=0)
        # So long, as it is written, a secret can be.
        self.longest = min(_LONGEST_ESCAPE * longest, _MAX_OVERLAP)

    def __bool__(self) -> bool:
        """True if there is anything to hide."""
        return bool(self._literals.plain)

    def text(self, text: str, *, is_cut: bool = False) -> str:
        """Return a text without secrets; ``is_cut``: it ends where it was cut, and has no ``…`` there."""
        spans = self.spans(text, is_cut=is_cut)
        return _replaced(text, spans) if spans else text

    def value(self, value: Any) -> Any:
        """Return a JSON value without secrets: in strings, in keys, and as numbers."""
        if not self._literals.plain:
            return value
        match value:
            case str():
                return self.text(value)
            case list():
                return [self.value(item) for item in value]
            case dict():
                return {self.text(key): self.value(item) for key, item in value.items()}
            case bool() | None:
                return value
            case _:
                return HIDDEN if abs(value) in self._literals.numbers else value

    def begins_at(self, text: str) -> int:
        """Return where a secret begins that may go on behind the end of the text; if none does, the end."""
        # Base64 goes on behind a line end, so a line may well end in one or two of its letters by chance.
        in_base64 = SHORTEST if text.endswith(("\n", "\r")) else 1
        # No secret that begins earlier could still be incomplete.
        offset = max(0, len(text) - self.longest)
        tail = text[offset:]
        starts = [start for start, _ in self._found_on_levels(tail, cut=_Shortest(1, in_base64))]
        return offset + min(starts, default=len(tail))

    def spans(self, text: str, *, is_cut: bool = False) -> list[tuple[int, int]]:
        """Return the parts of a text that are secrets, in order."""
        if not self._literals.plain or len(text) < SHORTEST:
            return []
        if len(text) <= _WINDOW + self.longest:
            return _merged(self._found(text, is_cut=is_cut))
        found: list[tuple[int, int]] = []
        for offset in range(0, len(text), _WINDOW):
            window = text[offset : offset + _WINDOW + self.longest]
            is_last = offset + _WINDOW >= len(text)
            found += [
                (offset + start, offset + end)
                for start, end in self._found(window, is_cut=is_cut and is_last)
            ]
        return _merged(found)

    def _found(self, text: str, *, is_cut: bool) -> list[tuple[int, int]]:
        found = list(self._found_on_levels(text))
        if is_cut:
            found += self._found_on_levels(text, cut=_Shortest())
        cut = text.rfind(_CUT)
        for _ in range(_MAX_CUTS):
            if cut < 0:
                break
            offset = max(0, cut - self.longest)
            found += [
                (offset + start, offset + end)
                for start, end in self._found_on_levels(text[offset:cut], cut=_Shortest())
            ]
            cut = text.rfind(_CUT, 0, cut)
        return found

    def _found_on_levels(self, text: str, *, cut: _Shortest | None = None) -> Iterator[tuple[int, int]]:
        """Yield the places of secrets; with ``cut``, of those that the end of the text cuts off."""
        levels: list[_Escaped] = []
        whole = len(text)
        for _ in range(_MAX_LEVELS + 1):
            on_level = self._whole(text) if cut is None else self._beginnings(text, cut)
            for start, end in on_level:
                for level in reversed(levels):
                    start, end = level.origin(start), level.origin(end)
                yield start, end if cut is None else whole
            if cut is not None:
                text = text[: _broken_at(text)]
            if not ("%" in text or "\\" in text or "&" in text):
                return
            level = _Escaped(text)
            if level.decoded == text:
                return
            levels.append(level)
            text = level.decoded

    def _whole(self, text: str) -> Iterator[tuple[int, int]]:
        folded = _fold(text)
        for literal in self._literals.plain:
            at = folded.find(literal)
            while at >= 0:
                yield at, at + len(literal)
                at = folded.find(literal, at + len(literal))
        squeezed = _Squeezed(text)
        for form in self._literals.base64:
            at = squeezed.text.find(form.sought)
            while at >= 0:
                end = at + len(form.sought)
                start = at - form.lead(squeezed.text, at)
                yield squeezed.span(
                    start - (form.before and squeezed.is_base64_at(start - 1)),
                    end + (form.behind and squeezed.is_base64_at(end)),
                )
                at = squeezed.text.find(form.sought, end)

    def _beginnings(self, text: str, shortest: _Shortest) -> Iterator[tuple[int, int]]:
        # With what looks like half an escape at its end, and without.
        for end in {len(text), _broken_at(text)}:
            folded, squeezed = _fold(text[:end]), _Squeezed(text[:end])
            for literal in self._literals.plain:
                at = _beginning(folded, literal, shortest.plain)
                if at is not None:
                    yield at, end
            for form in self._literals.base64:
                for literal in {form.text, form.sought}:
                    at = _beginning(squeezed.text, literal, shortest.base64)
                    if at is not None:
                        start = at - (form.before and squeezed.is_base64_at(at - 1))
                        yield squeezed.span(start, at + 1)[0], end


class MaskedLines:
    """Takes what a process writes, in pieces of any size, and gives it back without secrets, line by line.

    A secret may come in parts, so a line waits for its end, and lines that may be the beginning of a secret
    (of its base64, which has line breaks) wait for the next. Of a line that is too long to wait for, only as
    much is held back as could be the beginning of a secret.
    """

    def __init__(self, mask: Mask, *, whole_lines: bool = True) -> None:
        self._mask = mask
        self._whole_lines = whole_lines
        self._held: list[str] = []
        self._held_size = 0

    def feed(self, written: str) -> str:
        """Return what can be shown now."""
        self._held.append(written)
        self._held_size += len(written)
        # Pieces without a line end are not searched, or a line in many pieces would take quadratic time.
        if self._whole_lines and self._held_size <= _MAX_LINE and not _LINE_END.search(written):
            return ""
        text = "".join(self._held)
        done = max(text.rfind("\n"), text.rfind("\r")) + 1 if self._whole_lines else len(text)
        if len(text) - done > _MAX_LINE:
            done = len(text)
        shown, kept = self._split(text[:done])
        self._hold(kept + text[done:])
        return shown

    def rest(self) -> str:
        """Return what was held back, at the end of the stream."""
        text = "".join(self._held)
        self._hold("")
        return self._mask.text(text, is_cut=True)

    def _split(self, text: str) -> tuple[str, str]:
        kept_from = self._mask.begins_at(text)
        if not text.endswith(("\n", "\r")):
            # Half an escape can be told from none only by what follows.
            escape = _SOME_ESCAPE.search(text, max(0, len(text) - _LONGEST_ESCAPE))
            kept_from = kept_from if escape is None else min(kept_from, escape.start())
        spans = self._mask.spans(text)
        for start, end in spans:
            if start < kept_from < end:
                # Two secrets overlap: neither may be cut in two.
                kept_from = start
        shown = _replaced(text[:kept_from], [span for span in spans if span[1] <= kept_from])
        return shown, text[kept_from:]

    def _hold(self, text: str) -> None:
        self._held = [text] if text else []
        self._held_size = len(text)


# --- The literals of a secret.


class _Base64(NamedTuple):
    """The base64 of a secret at one of three offsets: the characters that depend on the secret alone.

    The characters before and behind them share bits with their neighbours; they are masked, not searched for.
    """

    text: str
    before: int
    behind: int

    @property
    def sought(self) -> str:
        """Return the text to search for: up to three characters may stand on a line shown before."""
        return self.text[SHORTEST - 1 :] if len(self.text) >= 2 * SHORTEST else self.text

    def lead(self, text: str, at: int) -> int:
        """Return how many of the characters left out of ``sought`` are there, in front of ``at``."""
        left_out = self.text[: len(self.text) - len(self.sought)]
        return next((n for n in range(len(left_out), 0, -1) if text.endswith(left_out[-n:], 0, at)), 0)


class _Literals(NamedTuple):
    # In lower case; spaces for plus signs.
    plain: tuple[str, ...]
    base64: tuple[_Base64, ...]
    numbers: frozenset[float]


@lru_cache(maxsize=64)
def _literals(secrets: tuple[str, ...]) -> _Literals:
    plain: dict[str, None] = {}
    base64: dict[_Base64, None] = {}
    numbers: set[float] = set()
    for secret in secrets:
        # A secret with several lines is mostly met in parts: in a traceback, or printed line by line.
        for part in (secret, *secret.splitlines()):
            if len(part.strip()) >= SHORTEST:
                plain |= dict.fromkeys(_fold(form) for form in _plain_forms(part.strip()))
                base64 |= dict.fromkeys(_base64_forms(part))
        number = _number(secret)
        if number is not None:
            numbers.add(number)
            plain |= dict.fromkeys(_number_forms(number))
    long = [literal for literal in plain if len(literal.strip()) >= SHORTEST]
    return _Literals(tuple(long), tuple(base64), frozenset(numbers))


def _plain_forms(secret: str) -> Iterator[str]:
    """Yield what is left of a secret when every escape in a text is undone."""
    yield secret
    # Letters that become two in upper case.
    yield secret.upper()
    yield secret.casefold()
    # A writer that leaves alone what looks like an escape already.
    decoded = secret
    for _ in range(_MAX_LEVELS):
        decoded = _ESCAPE.sub(_character_of, decoded)
        yield decoded
    if "\0" in secret:
        yield secret.replace("\0", "\N{REPLACEMENT CHARACTER}")
    if not secret.isascii():
        # ``\xc2\x80`` is one character in repr(bytes) and two in ascii(): it is read as one.
        yield _ESCAPE.sub(_character_of, ascii(secret)[1:-1])
        with suppress(UnicodeEncodeError):
            # UTF-8 that was read as Latin-1, as some servers read headers.
            yield secret.encode().decode("latin-1")
        with suppress(UnicodeError, ValueError):
            yield _as_host(secret)
    if _NUMBER.match(secret):
        with suppress(OSError):
            # The host http://2130706433/ is 127.0.0.1.
            yield socket.inet_ntoa(socket.inet_aton(secret))


def _as_host(name: str) -> str:
    try:
        import idna
    except ImportError:
        return name.encode("idna").decode()
    return idna.encode(name, uts46=True).decode()


def _base64_forms(secret: str) -> Iterator[_Base64]:
    encoded = {secret.encode("utf-8", "surrogatepass"), json.dumps(secret)[1:-1].encode()}
    with suppress(UnicodeEncodeError):
        encoded.add(quote(secret, safe="").encode())
        encoded.add(secret.encode("latin-1"))
    for data in sorted(encoded):
        for before in range(3):
            text = b64encode(bytes(before) + data).decode().rstrip("=")
            behind = 1 if (before + len(data)) % 3 else 0
            yield _Base64(text[(0, 2, 3)[before] : len(text) - behind], 1 if before else 0, behind)


def _number(secret: str) -> float | None:
    """Return the number that a secret is, without its sign; None if it is none, or too short a one."""
    if not _NUMBER.match(secret) or not isfinite(float(secret)):
        return None
    number = abs(float(secret) if re.search(r"[.eE]", secret) else int(secret))
    return number if min(map(len, _number_forms(number))) >= SHORTEST else None


def _number_forms(number: float) -> Iterator[str]:
    if number == int(number):
        yield str(int(number))
        yield f"{int(number):,}"
    yield repr(float(number))


# --- Texts.


def _fold(text: str) -> str:
    """Return a text of the same length in which case and the plus sign of forms make no difference."""
    # The one letter that becomes two in lower case, and the one whose lower case depends on its neighbours.
    return text.replace("\u0130", "i").lower().replace("ς", "σ").replace("+", " ")


class _Squeezed:
    """A text without white space and in one alphabet of base64."""

    def __init__(self, text: str) -> None:
        self._original = text
        self.text = "".join(text.split()).replace("-", "+").replace("_", "/")
        self._words: tuple[list[int], list[int]] | None = None

    def is_base64_at(self, index: int) -> bool:
        return 0 <= index < len(self.text) and _BASE64.match(self.text, index) is not None

    def span(self, start: int, end: int) -> tuple[int, int]:
        """Return the part of the original text that became characters ``start`` to ``end`` of this one."""
        return self._origin(start), self._origin(end - 1) + 1

    def _origin(self, index: int) -> int:
        if self._words is None:
            starts, sizes, size = [], [], 0
            for word in _WORD.finditer(self._original):
                starts.append(word.start())
                sizes.append(size)
                size += word.end() - word.start()
            self._words = starts, sizes
        starts, sizes = self._words
        at = bisect_right(sizes, index) - 1
        return starts[at] + index - sizes[at]


def _broken_at(text: str) -> int:
    """Return where half an escape starts at the end of a text; the end, if there is none."""
    # No escape is longer, and a run of backslashes must be seen from its beginning.
    found = _BROKEN_ESCAPE.search(text, max(0, len(text) - 4 * _LONGEST_ESCAPE))
    if found is None:
        return len(text)
    return found.start("other") if found["slash"] is None else found.start("slash")


def _character_of(escape: re.Match[str]) -> str:
    return _decoded(escape[0])


@lru_cache(maxsize=4096)
def _decoded(escape: str) -> str:
    """Return the character that an escape stands for."""
    kind = escape[:2]
    if kind[0] == "%" or kind == "\\x":
        data = bytes.fromhex(escape.replace("%", "").replace("\\x", ""))
        try:
            return data.decode()
        except UnicodeDecodeError:
            return data.decode("latin-1")
    if kind == "\\u" and len(escape) > 6:
        high, low = int(escape[2:6], 16), int(escape[8:], 16)
        return chr(0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00))
    if kind in ("\\u", "\\U"):
        number = int(escape[2:], 16)
        return chr(number) if number <= 0x10FFFF else escape
    if kind == "&#":
        # Not by html.unescape: it drops control characters.
        number = int(escape[3:-1], 16) if escape[2] in "xX" else int(escape[2:-1])
        return chr(number) if number <= 0x10FFFF else escape
    if kind[0] == "&":
        from html import unescape

        return unescape(escape)
    return _ONE_CHARACTER.get(kind[1], kind[1])


class _Escaped:
    """A text, and what it reads with its escapes undone."""

    def __init__(self, text: str) -> None:
        self._text = text
        self.decoded = _ESCAPE.sub(_character_of, text)
        self._edges: tuple[list[int], list[int]] | None = None

    def origin(self, index: int) -> int:
        """Return where in the text the part begins that became the decoded text from ``index`` on."""
        if self._edges is None:
            here, there, shift = [0], [0], 0
            for escape in _ESCAPE.finditer(self._text):
                here += [escape.start() - shift, escape.start() - shift + len(_decoded(escape[0]))]
                there += [escape.start(), escape.end()]
                shift = there[-1] - here[-1]
            self._edges = here, there
        here, there = self._edges
        at = bisect_right(here, index) - 1
        return there[at] + index - here[at]


def _beginning(text: str, literal: str, shortest: int) -> int | None:
    """Return where a beginning of the literal starts that goes to the end of the text."""
    head = literal[:shortest]
    at = text.find(head, max(0, len(text) - len(literal) + 1))
    for _ in range(_MAX_TRIES):
        if at < 0:
            return None
        if literal.startswith(text[at:]):
            return at
        at = text.find(head, at + 1)
    return at if at >= 0 else None


def _merged(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Join spans that overlap; each belongs to a secret."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if merged and start < merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((start, end))
    return merged


def _replaced(text: str, spans: list[tuple[int, int]]) -> str:
    pieces = []
    at = 0
    for start, end in spans:
        pieces += [text[at:start], HIDDEN]
        at = end
    return "".join([*pieces, text[at:]])
