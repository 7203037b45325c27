"""``./dev docs``: every page becomes a page of a site with search that needs no other server."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from tests.docs_command import DOCS, build

from weft.cli.main import main

if TYPE_CHECKING:
    from pathlib import Path

REMOTE = re.compile(r'<(?:script|link|img)[^>]*(?:src|href)="?(?:https?:)?//')


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    build(folder)
    return folder


def test_every_page_is_on_the_site_and_can_be_found(site: Path) -> None:
    index = (site / "search.json").read_text(encoding="utf-8")
    for page in DOCS.rglob("*.md"):
        built = site / page.relative_to(DOCS).with_suffix(".html")
        text = built.read_text(encoding="utf-8")
        # A fence that Zensical does not understand stands in the text as it was typed.
        assert "<p>```" not in text, page
        assert not REMOTE.search(text), page
        assert str(built.relative_to(site)) in index, page


def test_language_models_find_every_page_as_markdown(site: Path) -> None:
    text = (site / "llms.txt").read_text(encoding="utf-8")
    # The form that https://llmstxt.org names: a title, a summary, and lists of links under headings.
    assert re.match(r"# weft\n\n> .+\.\n\n## \w+\n\n- \[", text)
    rows = [line for line in text.splitlines()[4:] if line and not line.startswith("## ")]
    links = [re.fullmatch(r"- \[[^\]]+\]\(([\w/.-]+)\): .+", row) for row in rows]
    assert [row for row, link in zip(rows, links, strict=True) if link is None] == []
    listed = {link[1] for link in links if link is not None}
    for name in listed - {"openapi.json"}:
        assert (site / name).read_text(encoding="utf-8").startswith("# "), name
    pages = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")}
    assert pages - listed == {"index.md"}


def test_the_overview_of_commands_names_the_documentation(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--help"])
    assert "`weft docs`" in capsys.readouterr().out
    assert (DOCS / "index.md").is_file()
