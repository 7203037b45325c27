"""Reading an expression: Jinja's parser, and what must be refused before it is asked.

The parser is recursive and knows no limits, so the shape of a source is checked first. Nothing of Jinja is
used but its lexer, its parser and the classes of its syntax tree.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from jinja2 import Environment, TemplateSyntaxError, nodes
from jinja2.parser import Parser

from weft.errors import ExpressionError
from weft.expressions.path import key_text

MAX_SOURCE_BYTES = 64 * 1024
MAX_TOKENS = 4_000
# The parser takes fourteen Python frames per bracket, and one per `else` or sign before an operand; together
# these stay well under Python's limit of a thousand.
MAX_BRACKETS = 24
MAX_PREFIXES = 4
MAX_ELSES = 64

_ENVIRONMENT = Environment(autoescape=False)  # noqa: S701 - it only parses

# Most expressions are a name and a few keys, which a regular expression reads far faster than a parser. So is
# what a Python workflow writes for each parent of a function: nodes["id"].output | default(none).
_PLAIN_PATH = re.compile(
    r"""[ \t\n]*(?P<root>[A-Za-z_][A-Za-z0-9_]*)(?:\[(?P<quote>["'])(?P<id>[A-Za-z0-9_-]+)(?P=quote)\])?"""
    r"""(?P<keys>(?:\.[A-Za-z_][A-Za-z0-9_]*){0,50})[ \t\n]*(?P<or_none>\|[ ]?default\(none\))?[ \t\n]*"""
)
_WORDS = frozenset(
    ("true", "false", "none", "True", "False", "None", "and", "or", "not", "in", "is", "if", "else")
)

_TOKEN = re.compile(
    r"""(?P<string>"[^"\\]*(?:\\.[^"\\]*)*"|'[^'\\]*(?:\\.[^'\\]*)*')|\w+|\S""", flags=re.DOTALL
)

# Python only warns of an unknown escape, or of an octal one over 255. What a warning does depends on the
# process, and a definition must be good or bad everywhere.
_ESCAPE = re.compile(r"""\\(?:(?P<unknown>[4-7][0-7]{2}|[^"'\\abfnrtv\r\n0-7xuUN])|.)""", flags=re.DOTALL)


class PlainPath(NamedTuple):
    """``root.key.key``, as ``texts`` write it; ``or_none``: with ``| default(none)`` behind it."""

    root: str
    keys: list[str]
    texts: list[str]
    or_none: bool


def plain_path(source: str) -> PlainPath | None:
    """Read a plain path, and nothing else; the parser would read it as the same."""
    match = _PLAIN_PATH.fullmatch(source)
    if match is None or match["root"] in _WORDS:
        return None
    keys = match["keys"].split(".")[1:]
    texts = [f".{key}" for key in keys]
    if match["id"] is not None:
        keys.insert(0, match["id"])
        texts.insert(0, key_text(match["id"]))
    return PlainPath(match["root"], keys, texts, match["or_none"] is not None)


def parse(source: str) -> nodes.Expr:
    """Return the syntax tree of one expression; raises ExpressionError."""
    _check_shape(source)
    try:
        parser = Parser(_ENVIRONMENT, source, state="variable")
        tree = parser.parse_expression()
        rest = None if parser.stream.eos else str(parser.stream.current.value)
    except TemplateSyntaxError as error:
        message = (error.message or "syntax error").replace("end of template", "end of the expression")
        raise ExpressionError(f"{message[0].lower()}{message[1:]}") from None
    except ValueError:
        raise ExpressionError("a number has too many digits; the most is about 4,300") from None
    except RecursionError:  # the caller's own stack left less room than the limits above count on
        raise ExpressionError("it is nested too deeply") from None
    if rest is not None:
        raise ExpressionError(f"{rest!r:.40} does not belong after the expression")
    return tree


def _check_shape(source: str) -> None:
    """Refuse what would take the parser too far down or too long, and strings that it reads loosely."""
    if len(source) > MAX_SOURCE_BYTES or len(source.encode("utf-8", "replace")) > MAX_SOURCE_BYTES:
        raise ExpressionError(f"an expression has at most {MAX_SOURCE_BYTES:,} bytes")
    if source.lstrip().startswith(("{{", "{%", "{#")):
        raise ExpressionError("an expression is written without braces around it here")
    elses = [0]  # per open bracket, those since the last comma
    prefixes = 0
    for count, match in enumerate(_TOKEN.finditer(source), start=1):
        word = match[0]
        if word in ("(", "[", "{"):
            elses.append(0)
        elif word in (")", "]", "}") and len(elses) > 1:
            elses.pop()
        elif word == ",":
            elses[-1] = 0
        elif word == "else":
            elses[-1] += 1
        elif word in ('"', "'"):
            raise ExpressionError("a string has no end")
        elif match["string"] is not None and "\\" in word:
            _check_escapes(word)
        prefixes = prefixes + 1 if word in ("not", "-", "+") else 0
        if count > MAX_TOKENS:
            raise ExpressionError(f"an expression has at most {MAX_TOKENS:,} words and signs")
        if len(elses) > MAX_BRACKETS + 1 or prefixes > MAX_PREFIXES or sum(elses) > MAX_ELSES:
            raise ExpressionError("it is nested too deeply")


def _check_escapes(string: str) -> None:
    for escape in _ESCAPE.finditer(string):
        if escape["unknown"]:
            raise ExpressionError(f"unknown escape {escape[0]} in a string; a backslash itself is \\\\")
