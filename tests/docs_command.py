"""Build docs/ as a site with search: ``./dev docs [FOLDER]``.

The pages are written for a reader of the source tree. Before Zensical reads them, the marks of fences that
only ``page.py`` knows are removed, and so are links that lead out of docs/.

For language models the site has each page as Markdown, too, and ``llms.txt``, which lists the pages
(https://llmstxt.org).
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"

FENCE = re.compile(r"^```(?P<language>\w+)(?P<marks>[^\n]*)$", flags=re.MULTILINE)
TITLE = re.compile(r'title="[^"]*"')
LINK = re.compile(r"\[(?P<text>[^\]]*)\]\((?P<target>[^)\s:#]+)(?P<anchor>#[^)\s]*)?\)")

CONFIG = """\
[project]
site_name = "weft"
site_description = "A durable workflow engine for Python"
docs_dir = "docs"
site_dir = "site"
use_directory_urls = false

[project.theme]
font = false  # no font of another server
features = ["navigation.indexes", "search.highlight"]
"""


def build(folder: Path) -> None:
    """Write the site into a folder; raises CalledProcessError if a link of a page leads nowhere."""
    with tempfile.TemporaryDirectory() as name:
        source = Path(name)
        for path in DOCS.rglob("*"):
            copy = source / path.relative_to(ROOT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            if path.suffix == ".md":
                copy.write_text(_prepared(path), encoding="utf-8")
            elif path.is_file():
                copy.write_bytes(path.read_bytes())
        config = source / "zensical.toml"
        config.write_text(CONFIG, encoding="utf-8")
        program = str(Path(sys.executable).with_name("zensical"))
        subprocess.run([program, "build", "--strict", "-f", str(config)], cwd=source, check=True)
        shutil.copytree(source / "site", folder, dirs_exist_ok=True)
        for page in DOCS.rglob("*.md"):
            shutil.copyfile(source / page.relative_to(ROOT), folder / page.relative_to(DOCS))
    (folder / "llms.txt").write_text(llms_text(), encoding="utf-8")


def llms_text() -> str:
    """Return the list of pages for language models: that of the index, in the form of llms.txt."""
    head, _, rest = _prepared(DOCS / "index.md").partition("\n## ")
    title, summary = (line for line in head.splitlines() if line)
    # Behind the last list there is a line for readers of the source.
    pages = rest.rpartition("\n\n")[0].replace("\n  ", " ")
    return f"{title}\n\n> {summary.partition('. ')[0]}.\n\n## {pages}\n"


def _prepared(page: Path) -> str:
    def fence(match: re.Match[str]) -> str:
        title = TITLE.search(match["marks"])
        return f"```{match['language']}" + (f" {title[0]}" if title else "")

    def link(match: re.Match[str]) -> str:
        stays = (page.parent / match["target"]).resolve().is_relative_to(DOCS)
        return match[0] if stays else match["text"]

    return LINK.sub(link, FENCE.sub(fence, page.read_text(encoding="utf-8")))


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "site"
    build(target)
    print(f"{target}: read it with `python -m http.server --directory {target}`")
