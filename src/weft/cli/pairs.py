"""``key=value`` on the command line: an execution's input, and labels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from weft.errors import DocumentError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.definition.bounds import Bounds

Input = Annotated[
    tuple[str, ...],
    Parameter("--input", metavar="KEY=VALUE", help="read as JSON, or else as text; may be repeated"),
]
InputFile = Annotated[
    str | None,
    Parameter(
        "--input-file",
        metavar="FILE",
        allow_leading_hyphen=True,
        help="the input as YAML or JSON; - is stdin",
    ),
]
Labels = Annotated[
    tuple[str, ...],
    Parameter("--label", metavar="KEY=VALUE", help="may be repeated"),
]


def read_input(
    pairs: Sequence[str], file: str | None, bounds: Bounds, *, stdin_taken: bool = False
) -> dict[str, Any]:
    """Return the execution's input: the file's object, with each key=value laid over the object."""
    from weft.sdk.loading import STDIN, read_value

    value: dict[str, Any] = {}
    if file is not None:
        if file == STDIN and stdin_taken:
            raise DocumentError("stdin holds the definition already; give the input as a file")
        given = read_value(file, bounds=bounds)
        if not isinstance(given, dict):
            raise DocumentError(f"{'stdin' if file == STDIN else file}: the input must be an object")
        value.update(given)
    for pair in pairs:
        key, text = _split(pair, "--input")
        value[key] = value_of(text, bounds)
    return value


def value_of(text: str, bounds: Bounds) -> Any:
    """Return what an argument means: the JSON that it is, or else the text itself."""
    from weft.definition.document import read_json

    try:
        return read_json(text.encode(), max_bytes=bounds.max_body_bytes, max_depth=bounds.max_depth)
    except DocumentError:
        return text


def read_labels(pairs: Sequence[str]) -> dict[str, str]:
    return dict(_split(pair, "--label") for pair in pairs)


def _split(pair: str, flag: str) -> tuple[str, str]:
    key, equals, text = pair.partition("=")
    if not (key and equals):
        raise DocumentError(f"{flag} needs key=value, not {pair!r}")
    return key, text
