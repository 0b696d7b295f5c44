"""Suggestions for misspelled names."""

import difflib
from collections.abc import Iterable


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A sentence with the known names closest to a word, or with all of them.

    Example:

    >>> did_you_mean("mixip", ["mixup", "cutmix"])
    'Did you mean: mixup?'
    """
    known = list(known)
    matches = difflib.get_close_matches(word, known, n=3)
    if matches:
        return f"Did you mean: {', '.join(matches)}?"
    return f"Known: {', '.join(known)}."
