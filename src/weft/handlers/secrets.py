"""Secrets live in the worker's environment, and nowhere else."""

from __future__ import annotations

import json
import os
import re
from base64 import b64encode
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from weft.handlers.contract import BadConfig

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from weft.core.payload import Json

HIDDEN = "***"
PREFIX = "WEFT_SECRET_"
MAX_SECRET_BYTES = 64 * 1024

# In shorter ones too little is left that is theirs alone, and other text would be hidden.
_SHORTEST_IN_BASE64 = 6
# A text that was too long ends like this; so many characters of a secret in front of it are not shown.
_CUT = "…"
_SHORTEST_BEGINNING = 4
# A value shorter than this stands in half of all lines by chance, and hiding it there would say so.
_SHORTEST_IN_TEXT = 4
# Escapes of one character in JSON (two of six characters) or in a URL (four of three) are at most so long.
_LONGEST_ESCAPE = 12
# Longer lines are passed on in pieces: a program may write without ever ending a line.
_MAX_LINE = 64 * 1024
_LINE_END = re.compile(r"[\r\n]")
# Forms send a space as a plus; some writers of JSON escape slashes, for the sake of HTML.
_IN_FORMS = {" ": (r"\+",), "/": (r"\\/",)}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}\Z")


def lookup(name: str) -> str:
    """Return the value of ``WEFT_SECRET_<NAME>``, or the content of the file that ``…_FILE`` names."""
    variable = PREFIX + name.upper()
    if not _NAME.match(name):
        raise BadConfig("a secret is named by letters, digits and underscores")
    if variable.endswith("_FILE"):
        # It would give away where another secret is kept.
        raise BadConfig(f"a secret's name cannot end in _FILE, as in {variable}")
    value = os.environ.get(variable)
    if value is not None:
        return value
    path = os.environ.get(f"{variable}_FILE")
    if path is None:
        raise BadConfig(f"this worker has no secret {name!r}: set {variable} or {variable}_FILE")
    return _read(Path(path), f"{variable}_FILE")


def known() -> list[str]:
    """Return every readable secret of this process: the values that must not be shown anywhere."""
    values = []
    for variable in os.environ:
        if variable.startswith(PREFIX):
            with suppress(BadConfig):
                values.append(lookup(variable.removeprefix(PREFIX).removesuffix("_FILE")))
    return values


def hidden(value: Json, secrets: Sequence[str]) -> Json:
    """Return a JSON value in which every occurrence of a secret reads ``***``.

    That is also where it was written as JSON, into a URL, or as base64, alone or among other bytes: a
    service that repeats a request repeats it in such forms.
    """
    pattern = _pattern(tuple(secrets))
    return value if pattern is None else _hidden(value, pattern, secrets)


class Mask:
    """Replaces every secret by ``***`` in what a process writes, in the forms that ``hidden`` knows.

    Of a secret with several lines each line counts: a text that goes line by line never holds the whole.
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        texts = {text for secret in secrets for text in (secret, *secret.splitlines())}
        self._secrets = tuple(sorted(text for text in texts if len(text) >= _SHORTEST_IN_TEXT))
        self._pattern = _pattern(self._secrets)
        self._longest = _LONGEST_ESCAPE * max(map(len, self._secrets), default=0)

    def __bool__(self) -> bool:
        """True if there is anything to hide."""
        return self._pattern is not None

    def text(self, text: str) -> str:
        return text if self._pattern is None else self._pattern.sub(HIDDEN, text)

    def split(self, written: str) -> tuple[str, str]:
        """Return what may be shown of an unfinished text, masked, and the rest, which waits for more.

        A secret may arrive in pieces, so a line waits for its end. Of a line that is too long to wait for,
        only as much is kept back as could be the beginning of a secret.
        """
        ends = [found.end() for found in _LINE_END.finditer(written)]
        done = ends[-1] if ends else 0
        shown, rest = self.text(written[:done]), written[done:]
        if len(rest) > _MAX_LINE + self._longest:
            rest = self.text(rest)
            kept = len(rest) - self._longest
            shown, rest = shown + rest[:kept], rest[kept:]
        return shown, rest


def _hidden(value: Json, pattern: re.Pattern[str], secrets: Sequence[str]) -> Json:
    match value:
        case str():
            text = pattern.sub(HIDDEN, value)
            return _without_beginning(text, secrets) if text.endswith(_CUT) else text
        case list():
            return [_hidden(item, pattern, secrets) for item in value]
        case dict():
            return {
                _hidden(key, pattern, secrets): _hidden(item, pattern, secrets) for key, item in value.items()
            }
        case _:
            return value


def _without_beginning(text: str, secrets: Sequence[str]) -> str:
    """Return a truncated text; the beginning of a secret at its end is replaced by ``***``."""
    kept = text.removesuffix(_CUT)
    for secret in secrets:
        for length in range(len(secret) - 1, _SHORTEST_BEGINNING - 1, -1):
            if kept.endswith(secret[:length]):
                return kept[:-length] + HIDDEN + _CUT
    return text


@lru_cache(maxsize=64)
def _pattern(secrets: tuple[str, ...]) -> re.Pattern[str] | None:
    # The longest first: one secret may be the beginning of another.
    ordered = sorted({secret for secret in secrets if secret}, key=len, reverse=True)
    return re.compile("|".join([form for secret in ordered for form in _forms(secret)])) if ordered else None


def _forms(secret: str) -> Iterator[str]:
    """Yield patterns for the ways in which a secret may be written."""
    yield "".join(map(_character, secret))
    data = secret.encode("utf-8", "surrogatepass")
    if len(data) >= _SHORTEST_IN_BASE64:
        for alphabet in (b"+/", b"-_"):
            yield re.escape(b64encode(data, altchars=alphabet).decode())
            yield from map(re.escape, _inside_base64(data, alphabet))


def _character(character: str) -> str:
    """Return a pattern for one character, plain and as JSON or a URL may write it."""
    if character.isascii() and character.isalnum():
        # They are escaped nowhere.
        return character
    forms = {re.escape(character), *_IN_FORMS.get(character, ())}
    escapes = {json.dumps(character)[1:-1], quote(character.encode("utf-8", "surrogatepass"), safe="")}
    forms |= {f"(?i:{re.escape(escape)})" for escape in escapes if escape != character}
    return f"(?:{'|'.join(sorted(forms, key=len, reverse=True))})"


def _inside_base64(data: bytes, alphabet: bytes) -> Iterator[str]:
    """Yield the base64 text of the bytes at each of the three offsets within a base64 group."""
    for before in range(3):
        text = b64encode(bytes(before) + data, altchars=alphabet).decode().rstrip("=")
        # The first and last characters also hold bits of the neighbours.
        end = len(text) - (1 if (before + len(data)) % 3 else 0)
        yield text[(0, 2, 3)[before] : end]


def _read(path: Path, variable: str) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_SECRET_BYTES + 1)
        if len(data) > MAX_SECRET_BYTES:
            raise BadConfig(f"the file that {variable} names is over {MAX_SECRET_BYTES:,} bytes")
        # Editors and `echo` end a file with a newline that is no part of the secret.
        return data.decode().removesuffix("\n").removesuffix("\r")
    except OSError as error:
        raise BadConfig(f"the file that {variable} names cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        # Not chained: the exception holds the bytes.
        raise BadConfig(f"the file that {variable} names is not UTF-8 text") from None
