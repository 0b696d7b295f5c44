"""Long lists as short text, for errors and notes."""

from collections.abc import Iterable

SHOWN = 5


def shorten(items: Iterable) -> str:
    """Names the first few of many items.

    Example:

    >>> shorten(range(8))
    '0, 1, 2, 3, 4 and 3 more'
    """
    texts = [str(item) for item in items]
    rest = f" and {len(texts) - SHOWN} more" if len(texts) > SHOWN else ""
    return ", ".join(texts[:SHOWN]) + rest
