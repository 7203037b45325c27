"""``weft docs``: the documentation, which ships with the package."""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from weft.cli.printing import print_text
from weft.errors import DocumentError

_INDEX = "index"


def docs(
    page: Annotated[
        str, Parameter(help="a page that the index names: tutorial, howto/debugging, or debugging alone")
    ] = _INDEX,
    /,
) -> int:
    """Print a page of the documentation, as Markdown; without a page the index of all."""
    pages = _pages()
    wanted = page.removesuffix(".md").removeprefix("docs/")
    file = pages.get(wanted) or pages.get(f"howto/{wanted}")
    if file is None:
        names = {name.rpartition("/")[2]: name for name in pages}
        near = get_close_matches(wanted.rpartition("/")[2], names, n=1)
        hint = f"did you mean {names[near[0]]!r}?" if near else "`weft docs` lists all"
        raise DocumentError(f"the documentation has no page {page!r}; {hint}")
    print_text(file.read_text(encoding="utf-8"))
    return 0


def _pages() -> dict[str, Path]:
    """Return the files of the pages by their names: ``howto/debugging``."""
    package = Path(__file__).parent.parent
    # The wheel has them in the package; in a clone they are where the source is.
    places = (package / "docs", package.parent.parent / "docs")
    folder = next((place for place in places if (place / f"{_INDEX}.md").is_file()), places[0])
    return {file.relative_to(folder).with_suffix("").as_posix(): file for file in folder.rglob("*.md")}
