"""``./dev docs``: every page becomes a page of a site with search that needs no other server."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tests.docs_command import DOCS, build

from weft.cli.main import main

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

REMOTE = re.compile(r'<(?:script|link|img)[^>]*(?:src|href)="?(?:https?:)?//')


def test_every_page_is_on_the_site_and_can_be_found(tmp_path: Path) -> None:
    build(tmp_path)
    index = (tmp_path / "search.json").read_text(encoding="utf-8")
    for page in DOCS.rglob("*.md"):
        built = tmp_path / page.relative_to(DOCS).with_suffix(".html")
        text = built.read_text(encoding="utf-8")
        # A fence that Zensical does not understand stands in the text as it was typed.
        assert "<p>```" not in text, page
        assert not REMOTE.search(text), page
        assert str(built.relative_to(tmp_path)) in index, page


def test_the_overview_of_commands_names_the_documentation(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--help"])
    assert "`weft docs`" in capsys.readouterr().out
    assert (DOCS / "index.md").is_file()
