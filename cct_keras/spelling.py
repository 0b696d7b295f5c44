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
    return suggest(word, known) or f"Known: {', '.join(known)}."


def suggest(word: str, known: Iterable[str]) -> str:
    """A sentence with the known names closest to a word; empty if none is close.

    Example:

    >>> suggest("MixIp", ["mixup", "cutmix"]), suggest("photos", ["mixup"])
    ('Did you mean: mixup?', '')
    >>> suggest("MIXUP", ["mixup"])
    'Did you mean: mixup?'
    """
    # Somebody who writes Grad-CAM means gradcam.
    spellings = {}
    for name in known:
        spellings.setdefault(name.lower(), []).append(name)
    found = difflib.get_close_matches(word.lower(), spellings, n=3)
    matches = [name for lower in found for name in spellings[lower]]
    return f"Did you mean: {', '.join(matches)}?" if matches else ""
