"""Escapes control characters in text from users, before a terminal shows it."""

from __future__ import annotations

import re

# Controls of both ranges (C0 and C1: a terminal obeys U+009B as it does ESC [), DEL, line separators, what
# turns the direction of text, what nobody sees, and halves of surrogate pairs. Line ends and tabs are the
# commands' own; the joiners U+200C and U+200D belong to words of some languages, and to emoji.
_OBEYED = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]"
)


def escaped(text: str) -> str:
    """Return text that no terminal obeys: what it would is shown as JSON writes it, such as ``\\u009b``.

    JSON stays the same JSON.
    """
    return _OBEYED.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
