"""Minifies the console's modules and style sheets: comments, types and white space are left out.

The console has no build step, so the server does it when it reads a file. Names stay as they were written,
and so does every string. Modules are written with semicolons: a line that ends with one, or with a bracket,
is joined with the next.
"""

from __future__ import annotations

import re

_TOKEN = re.compile(
    r"(?P<comment>//[^\n]*|/\*[\s\S]*?\*/)"
    r"""|(?P<string>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')"""
    r"|(?P<space>[ \t]+)|(?P<line>\n)|(?P<word>[\w$]+)|(?P<mark>[\s\S])"
)
_REGULAR_EXPRESSION = re.compile(r"/(?![/*])(?:[^/\\\[\n]|\\.|\[(?:[^\]\\\n]|\\.)*\])+/[a-z]*")
# Behind these a slash begins a regular expression; elsewhere it divides.
_BEFORE_EXPRESSION = frozenset("(,=:[!&|?{};*%<>~^")
_KEYWORDS = frozenset(
    {"return", "typeof", "case", "in", "of", "do", "else", "void", "delete", "throw", "await"}
)
# A declaration, and no property of that name.
_CONSTANT = re.compile(r"const(?=\s+[\w$\[{])")
# The text of a template, up to its end or to an expression in it.
_TEXT = re.compile(r"(?:[^`\\$]|\\[\s\S]|\$(?!\{))*")
# White space with a line end in it, beside a tag: markup has nothing there.
_BETWEEN_TAGS = re.compile(r"(?<=>)\n\s*|\n\s*(?=<)|(?<=\n)[ \t]+")
# A line goes on behind the first of these, and before the second.
_OPEN_END = frozenset(";{},([=>&|?:")
_OPEN_BEGIN = frozenset("}])?:.&|=")

_CSS = re.compile(r'(?P<kept>"[^"\n]*")|/\*[\s\S]*?\*/|\s*(?P<mark>[{};,])\s*|(?P<colon>:)[ \t]+|\n\s*')


def minify_css(source: str) -> str:
    """Return a style sheet without comments and without white space that says nothing."""

    def shorten(found: re.Match[str]) -> str:
        if found["kept"] or found["mark"] or found["colon"]:
            return found["kept"] or found["mark"] or found["colon"]
        return "\n" if found[0][0] == "\n" else ""

    return _CSS.sub(shorten, source).replace(";}", "}").strip()


def minify_js(source: str) -> str:
    """Return a module without comments and without white space that says nothing."""
    return _Minifier(source).run()


class _Minifier:
    def __init__(self, source: str) -> None:
        self._source = source
        self._at = 0
        self._written: list[str] = []
        # The last character that was written, and the last token if it is a word.
        self._last, self._word = "", ""
        # What came since: nothing, a space or a line.
        self._gap = ""
        # The brackets that are open: of code, or of an expression in a template.
        self._open: list[str] = []

    def run(self) -> str:
        while self._at < len(self._source):
            self._step()
        return "".join(self._written)

    def _step(self) -> None:
        is_value = self._last in _BEFORE_EXPRESSION or self._last == "" or self._word in _KEYWORDS
        if is_value and (found := _REGULAR_EXPRESSION.match(self._source, self._at)):
            self._at = found.end()
            self._write(found[0])
            return
        token = _TOKEN.match(self._source, self._at)
        assert token is not None
        self._at = token.end()
        if token["comment"] or token["line"] or token["space"]:
            self._gap = "\n" if "\n" in token[0] else self._gap or " "
        else:
            # That nobody assigns to a constant is checked with its types.
            is_constant = _CONSTANT.match(self._source, token.start()) and token[0] == "const"
            self._write("let" if is_constant and self._last != "." else token[0])
            self._word = token["word"] or ""
            self._follow(token[0])

    def _follow(self, mark: str) -> None:
        """Keep count of brackets, and take the text of a template as it is."""
        if mark == "{":
            self._open.append("{")
        elif mark == "`" or (mark == "}" and self._open and self._open.pop() == "${"):
            text = _TEXT.match(self._source, self._at)
            assert text is not None
            end = "`" if self._source.startswith("`", text.end()) else "${"
            self._at = text.end() + len(end)
            self._written.append(_BETWEEN_TAGS.sub("", text[0]) + end)
            self._last = end[-1]
            if end == "${":
                self._open.append(end)

    def _write(self, text: str) -> None:
        """Write a token, and before it as much of the gap as it needs."""
        is_joined = self._last in _OPEN_END or self._last == "" or text[0] in _OPEN_BEGIN
        are_words = _is_word(self._last) and _is_word(text[0])
        if self._gap == "\n" and not is_joined:
            self._written.append("\n")
        elif self._gap and (are_words or (self._last == text[0] and text[0] in "+-/")):
            self._written.append(" ")
        elif (self._last == "," and text in ("}", ")")) or (self._last == ";" and text == "}"):
            self._written.pop()
        self._written.append(text)
        self._last, self._word, self._gap = text[-1], "", ""


def _is_word(character: str) -> bool:
    return character.isalnum() or character in ("_", "$")
