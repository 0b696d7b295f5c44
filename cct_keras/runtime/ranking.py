"""Probabilities, and the names of the likeliest classes."""

from collections.abc import Sequence

import numpy as np


def softmax(logits: np.ndarray) -> np.ndarray:
    """Probabilities of logits, along the last axis.

    Example:

    >>> softmax(np.array([[0.0, 0.0]])).tolist()
    [[0.5, 0.5]]
    """
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def likeliest_classes(
    probabilities: np.ndarray, class_names: Sequence[str], top: int
) -> list[list[dict]]:
    """Names the likeliest classes of each image.

    Of classes with the same probability the one with the lower index comes first.

    Args:
        probabilities: Array of shape `(images, classes)`.
        class_names: Name of each column.
        top: How many classes to name.

    Returns:
        One list for each image of dictionaries `{"name": ..., "probability": ...}`,
        the likeliest class first.

    Example:

    >>> likeliest_classes(np.array([[0.1, 0.9]]), ["cat", "dog"], top=1)
    [[{'name': 'dog', 'probability': 0.9}]]
    """
    return [
        [
            {"name": class_names[index], "probability": float(row[index])}
            for index in np.argsort(-row, kind="stable")[:top]
        ]
        for row in probabilities
    ]
