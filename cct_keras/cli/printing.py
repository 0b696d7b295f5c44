"""Numbers and notes as the commands print them."""

from collections.abc import Callable
from collections.abc import Iterable


def macs_text(count: int) -> str:
    """Multiply-accumulates in units of 10**9.

    Example:

    >>> macs_text(5_120_000_000), macs_text(12_345_678)
    ('5.12 G', '0.012 G')
    """
    return f"{count / 1e9:.2f} G" if count >= 1e8 else f"{count / 1e9:.3f} G"


def accuracy_text(metrics: dict) -> str:
    """The accuracy in `metrics`, with its interval.

    Example:

    >>> accuracy_text({"top1": 0.85, "top1_ci95": (0.84, 0.86)})
    '85.00% (95 % interval 84.00% to 86.00%)'
    """
    low, high = metrics["top1_ci95"]
    return f"{metrics['top1']:.2%} (95 % interval {low:.2%} to {high:.2%})"


def print_notes(notes: Iterable[str], speak: Callable[[str], str]) -> None:
    """Prints what a function of the package remarked, a line each.

    Args:
        notes: The remarks, in Python words.
        speak: Turns Python words into those of the command line; `main` puts it into
            the arguments of a command.

    Example:

    >>> print_notes(["images are resized"], speak=str)
    note: images are resized
    """
    for note in notes:
        print(f"note: {speak(note)}")
