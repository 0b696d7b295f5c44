"""Probabilities as names of classes."""

from collections.abc import Sequence

import keras
import numpy as np

from cct_keras.pretrained.catalog import TRAINED_ON
from cct_keras.pretrained.catalog import class_names as known_class_names
from cct_keras.runtime.ranking import likeliest_classes


def decode_predictions(
    probabilities, class_names: Sequence[str] | str, top: int = 5
) -> list[list[dict]]:
    """Names the likeliest classes of each image, like `keras.applications` does.

    Of classes with the same probability the one with the lower index comes first.

    Args:
        probabilities: What a classifier returned: an array or a tensor of shape
            `(images, classes)`, or `(classes,)` for one image.
        class_names: Names of the classes in the order of the columns, or a tag of
            known weights, such as `"cifar10"` or `"imagenet"`.
        top: How many classes to name.

    Returns:
        One list for each image, also if there is only one, of dictionaries
        `{"name": ..., "probability": ...}`, the likeliest class first.

    Raises:
        ValueError: The shape, the names or `top` are not as described.

    Example:

    >>> decode_predictions([[0.1, 0.9]], ["cat", "dog"], top=1)
    [[{'name': 'dog', 'probability': 0.9}]]
    """
    if top < 1:
        raise ValueError(f"`top` must be 1 or more. Received: top={top}")
    rows = _as_rows(probabilities)
    names = _as_names(class_names)
    if len(names) != rows.shape[1]:
        raise ValueError(
            f"`class_names` must name each of the {rows.shape[1]} columns of "
            f"`probabilities`. Received: {len(names)} names"
        )
    return likeliest_classes(rows, names, top)


def _as_rows(probabilities):
    if not isinstance(probabilities, (np.ndarray, list, tuple)):
        probabilities = keras.ops.convert_to_numpy(probabilities)
    rows = np.asarray(probabilities)
    if rows.ndim not in (1, 2):
        raise ValueError(
            "`probabilities` must have the shape (images, classes) or (classes,). "
            f"Received: shape {rows.shape}"
        )
    return np.atleast_2d(rows)


def _as_names(class_names):
    if not isinstance(class_names, str):
        return [str(name) for name in class_names]
    try:
        return known_class_names(class_names)
    except ValueError:
        raise ValueError(
            "`class_names` must be a sequence of names or a tag of known weights "
            f"({', '.join(TRAINED_ON)}). Received: class_names={class_names!r}"
        ) from None
