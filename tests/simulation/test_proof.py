"""docs/proof.md tells of every planted bug, and of every one that was found."""

from __future__ import annotations

import re
from pathlib import Path

from tests.simulation.mutants import MUTANTS
from tests.support.simulation.corpus import CORPUS

PAGE = (Path(__file__).parent.parent.parent / "docs" / "proof.md").read_text(encoding="utf-8")


def test_the_page_lists_every_planted_bug_with_its_profile() -> None:
    listed = re.findall(r"^\| `\w+` \| .+? \| `\w+` \|$", PAGE, re.MULTILINE)
    wanted = [f"| `{mutant.name}` | {mutant.bug} | `{mutant.profile}` |" for mutant in MUTANTS]
    assert listed == wanted, "the table of docs/proof.md is not this:\n" + "\n".join(wanted)


def test_the_page_lists_every_bug_that_was_found_with_its_seed() -> None:
    listed = re.findall(r"^\| `\w+` \| \d+ \| .+? \|$", PAGE, re.MULTILINE)
    wanted = [f"| `{past.profile}` | {past.seed} | {past.bug} |" for past in CORPUS]
    assert listed == wanted, "the table of docs/proof.md is not this:\n" + "\n".join(wanted)


def test_the_page_says_how_many_bugs_are_planted() -> None:
    assert f"| {len(MUTANTS)} mistakes in the real code" in PAGE
