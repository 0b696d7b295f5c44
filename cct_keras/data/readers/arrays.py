"""Arrays in memory."""

import os

import numpy as np

from cct_keras.data.raw import RawData
from cct_keras.data.readers.messages import shorten
from cct_keras.data.readers.pairs import data_from_pairs
from cct_keras.data.readers.pairs import find_pairs
from cct_keras.errors import DataError

SPLITS_BY_COUNT = {
    1: ("train",),
    2: ("train", "test"),
    3: ("train", "validation", "test"),
}


def is_arrays(source) -> bool:
    """Whether a source is neither a name nor a path."""
    return not isinstance(source, (str, os.PathLike))


def read_arrays(source, name: str = "arrays") -> RawData:
    """Reads a data set from arrays in memory.

    Args:
        source: `(x, y)`, `((x_train, y_train), (x_test, y_test))`, three pairs for
            train, validation and test, or a dict with the keys `x_train`, `y_train`
            and optionally `x_val`, `y_val`, `x_test`, `y_test`, `class_names`.
            Images are raw pixels: integers or floats in 0..255, floats in 0..1,
            bool or uint16. Labels are integers, strings or one-hot rows.
        name: Name of the data set.

    Example:

    >>> images = np.arange(64, dtype="uint8").reshape(4, 4, 4)
    >>> read_arrays((images, ["cat", "dog", "dog", "cat"])).class_names
    ('cat', 'dog')
    """
    if isinstance(source, dict):
        where = f"{name} (keys found: {shorten(source) or 'none'})"
        pairs = find_pairs(source, where=where)
        class_names = source.get("class_names")
    else:
        where, class_names = name, None
        pairs = _pairs_by_position(source, where=name)
    return data_from_pairs(pairs, name=name, where=where, class_names=class_names)


def _pairs_by_position(source, *, where):
    if isinstance(source, (tuple, list)):
        if len(source) in SPLITS_BY_COUNT and all(_is_pair(item) for item in source):
            return dict(zip(SPLITS_BY_COUNT[len(source)], source, strict=True))
        if len(source) == 2:
            return {"train": tuple(source)}
    raise DataError(
        f"{where}: expected (x, y), two or three such pairs, or a dict with x_train "
        f"and y_train, got {_describe(source)}"
    )


def _is_pair(item):
    if not isinstance(item, (tuple, list)) or len(item) != 2:
        return False
    # Images have more axes than labels; a list of two images is not a pair.
    try:
        return np.ndim(item[0]) > np.ndim(item[1])
    except ValueError:
        return False


def _describe(source):
    kind = type(source).__name__
    return f"a {kind} of {len(source)}" if isinstance(source, (tuple, list)) else kind
