"""The table of a comparison as text, and how its numbers are written."""

from collections.abc import Callable

HEADS = ("", "runs", "validation", "test", "deviation", "95 % interval")
# Of a table in which something is compared with the first row.
FURTHER_HEADS = ("difference", "95 % interval", "p of images")


def text_lines(rows: list[dict]) -> list[str]:
    """The table as text.

    Args:
        rows: As `Comparison.table` has them.

    Example:

    >>> row = {"name": "small", "runs": 1, "failed": 0, "mean": 0.9, "std": None}
    >>> row |= {"ci95": None, "validation": 0.91, "difference": None}
    >>> for line in text_lines([row]):
    ...     print(line)
           runs  validation    test  deviation  95 % interval
    small     1      91.00%  90.00%          -              -
    """
    table = cells(rows)
    widths = [max(len(line[i]) for line in table) for i in range(len(table[0]))]
    return [
        "  ".join(
            cell.ljust(width) if index == 0 else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in table
    ]


def cells(rows: list[dict]) -> list[tuple[str, ...]]:
    """The table as cells of text, the heads first.

    Args:
        rows: As `Comparison.table` has them.
    """
    differ = any(row["difference"] is not None for row in rows)
    lines = [HEADS + FURTHER_HEADS if differ else HEADS]
    for row in rows:
        failed = f", {row['failed']} failed" if row["failed"] else ""
        line = (
            row["name"],
            f"{row['runs']}{failed}",
            share_text(row["validation"]),
            share_text(row["mean"]),
            share_text(row["std"]),
            interval_text(row["ci95"], share_text),
        )
        if differ:
            line += (
                points_text(row["difference"]),
                interval_text(row["difference_ci95"], points_text),
                p_text(row["images_p"]),
            )
        lines.append(line)
    return lines


def share_text(share: float | None) -> str:
    """A share in percent, or `-` if it is not known."""
    return "-" if share is None else f"{share:.2%}"


def points_text(share: float | None) -> str:
    """A difference of two shares in points, or `-` if it is not known.

    Example:

    >>> points_text(0.0125)
    '+1.25'
    """
    return "-" if share is None else f"{100 * share:+.2f}"


def interval_text(interval: tuple | None, text: Callable[[float], str]) -> str:
    """An interval whose ends are written by `text`, or `-` if it is not known."""
    return "-" if interval is None else f"{text(interval[0])} to {text(interval[1])}"


def p_text(value: float | None) -> str:
    """A p value.

    Example:

    >>> p_text(0.0312), p_text(1e-9), p_text(None)
    ('0.031', '<0.001', '-')
    """
    if value is None:
        return "-"
    return "<0.001" if value < 0.001 else f"{value:.3f}"
