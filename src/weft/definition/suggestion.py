"""Suggests a known word for an unknown one."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

_LONGEST_WORD = 128


class Suggester:
    """Finds near misses until its budget is spent, so that a document full of mistakes stays cheap."""

    __slots__ = ("_comparisons_left",)

    def __init__(self, *, comparisons: int = 30_000) -> None:
        self._comparisons_left = comparisons

    def hint(self, word: str, vocabulary: Collection[str]) -> str:
        """Return the end of a message: ``; did you mean 'fetch'?``, or an empty string if no word is near."""
        near = self.nearest(word, vocabulary)
        return f"; did you mean {near!r}?" if near is not None else ""

    def nearest(self, word: str, vocabulary: Collection[str]) -> str | None:
        """Find the word of a vocabulary that is spelled most like this one, if any is."""
        if self._comparisons_left <= 0 or len(word) > _LONGEST_WORD:
            return None
        wanted = word.lower()
        # Words of another length cannot be close, except those that were shortened: timeout, retries.
        candidates = {
            known.lower(): known
            for known in vocabulary
            if abs(len(known) - len(word)) <= 3 or (len(word) >= 4 and wanted in known.lower())
        }
        # A glance at the length is about a twentieth of a comparison.
        self._comparisons_left -= 1 + len(candidates) + len(vocabulary) // 20
        close = get_close_matches(wanted, candidates, n=1, cutoff=0.7)
        if close:
            return candidates[close[0]]
        if len(word) >= 4:
            return next((known for lowered, known in candidates.items() if wanted in lowered), None)
        return None
