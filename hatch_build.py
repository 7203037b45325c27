"""Adds to the wheel the pages of the documentation, and a README whose links work there.

Links of the README are relative, for readers of the source. A package index shows the text alone, so there
the links to pages name the command that prints the page.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

# A link to a file of the source. Its text may go over the end of a line.
_RELATIVE_LINK = re.compile(r"\[(?P<text>[^\]]+)\]\((?!\w+:)(?P<file>[^)#\s]+)(?:#[^)\s]*)?\)")


class Readme(MetadataHookInterface):
    def update(self, metadata: dict[str, Any]) -> None:
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": _RELATIVE_LINK.sub(_named, text)}


class Pages(BuildHookInterface):  # type: ignore[type-arg]
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        docs = Path(self.root, "docs")
        for page in docs.rglob("*.md"):
            build_data["force_include"][str(page)] = f"weft/docs/{page.relative_to(docs).as_posix()}"


def _named(link: re.Match[str]) -> str:
    file = link["file"]
    if file.startswith("docs/") and file.endswith(".md"):
        return f"{link['text']} (`weft docs {file.removeprefix('docs/').removesuffix('.md')}`)"
    return link["text"]
