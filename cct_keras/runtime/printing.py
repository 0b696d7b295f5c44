"""Answers as `predict` prints them, on any command line."""

import json

from cct_keras.errors import DataError


def print_predictions(rows: list[dict], *, as_json: bool) -> None:
    """Prints the classes of the images that can be read.

    Args:
        rows: What `predict` returned.
        as_json: Whether to print all of it as JSON, with the errors.

    Example:

    >>> classes = [{"name": "cat", "probability": 0.98}]
    >>> print_predictions([{"image": "a.jpg", "classes": classes}], as_json=False)
    a.jpg
       98.00%  cat
    """
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    for row in rows:
        if "classes" not in row:
            continue
        print(row["image"])
        for prediction in row["classes"]:
            print(f"  {prediction['probability']:>7.2%}  {prediction['name']}")


def refuse_unreadable(rows: list[dict]) -> None:
    """Raises an error for the first image that could not be read, and counts them."""
    errors = [row["error"] for row in rows if "error" in row]
    if errors:
        others = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        raise DataError(f"{errors[0]}{others}")
