"""Labels of any form as numbers from 0 on, and the names of the classes."""

import numpy as np

from cct_keras.data.readers.messages import shorten
from cct_keras.errors import DataError


def as_labels(y, *, where: str) -> np.ndarray:
    """Brings labels to a vector of int64, bool or str.

    Args:
        y: Integers, whole floats, strings, bytes or one-hot rows.
        where: What an error names as its source.

    Example:

    >>> as_labels([[0, 1], [1, 0]], where="mine").tolist()
    [1, 0]
    """
    try:
        y = np.asarray(y)
    except ValueError as error:
        raise DataError(f"{where}: the labels differ in length") from error
    if not y.size:
        raise DataError(f"{where}: no labels; the array has shape {y.shape}")
    if y.ndim == 2 and y.shape[1] > 1:
        y = _from_one_hot(y, where=where)
    elif y.ndim == 2:
        y = y[:, 0]
    if y.ndim != 1:
        raise DataError(f"{where}: labels of shape {y.shape}; (n,) is expected")
    if y.dtype.kind in "SO":
        y = _as_text(y, where=where)
    if y.dtype.kind == "f" and not (np.isfinite(y) & (y == np.rint(y))).all():
        raise DataError(f"{where}: the labels are not whole numbers")
    if y.dtype.kind not in "biufU":
        raise DataError(
            f"{where}: labels of type {y.dtype}; integers or strings are expected"
        )
    return y.astype(np.int64) if y.dtype.kind in "iuf" else y


def encode_labels(
    labels: dict[str, np.ndarray], class_names=None, *, where: str
) -> tuple[dict[str, np.ndarray], tuple[str, ...], list[str]]:
    """Numbers the classes from 0 on.

    Args:
        labels: Labels of every split, as `as_labels` returns them.
        class_names: Names of the classes; by default the labels themselves.
        where: What an error names as its source.

    Returns:
        The labels of every split as int64, the names of the classes in the order
        of these numbers, and notes.

    Example:

    >>> labels, names, notes = encode_labels({"train": np.array([7, 3])}, where="mine")
    >>> labels["train"].tolist(), names
    ([1, 0], ('3', '7'))
    """
    if len({y.dtype.kind for y in labels.values()}) > 1:
        kinds = {split: str(y.dtype) for split, y in labels.items()}
        raise DataError(f"{where}: the splits' labels differ in type: {kinds}")
    values = np.unique(labels["train"])
    if len(values) < 2:
        raise DataError(f"{where}: one class only ({values[0]}); two are needed")
    for split, y in labels.items():
        unknown = np.setdiff1d(y, values)
        if len(unknown):
            raise DataError(
                f"{where}: {split} has labels that train does not have: "
                f"{shorten(unknown)}"
            )
    if class_names is None:
        names, notes = tuple(str(value) for value in values), []
    else:
        values, names, notes = _match_names(values, class_names, where=where)
    encoded = {
        split: np.searchsorted(values, y).astype(np.int64)
        for split, y in labels.items()
    }
    return encoded, names, notes


def _from_one_hot(y, *, where):
    if y.dtype.kind not in "biuf" or not (
        ((y == 0) | (y == 1)).all() and (y.sum(axis=1) == 1).all()
    ):
        raise DataError(f"{where}: labels of shape {y.shape} that are not one-hot")
    return y.argmax(axis=1)


def _as_text(y, *, where):
    if not all(isinstance(label, (str, bytes)) for label in y):
        raise DataError(
            f"{where}: labels of mixed types; integers or strings are expected"
        )
    try:
        texts = [v.decode() if isinstance(v, bytes) else str(v) for v in y]
    except UnicodeDecodeError as error:
        raise DataError(f"{where}: the labels are not UTF-8 text") from error
    return np.array(texts)


def _match_names(values, class_names, *, where):
    """Finds the name of every label; there may be names without images."""
    names = _as_text(np.asarray(class_names).reshape(-1), where=f"{where}: class_names")
    names = tuple(str(name) for name in names)
    if len(values) == len(names):
        # Labels that are names themselves are numbered in alphabetical order, in
        # whatever order the names are listed.
        return values, tuple(values.tolist()) if values.dtype.kind == "U" else names, []
    positions = np.arange(len(names))
    if values.dtype.kind == "i" and np.isin(values, positions).all():
        missing = [names[i] for i in np.setdiff1d(positions, values)]
        note = f"classes without training images: {shorten(missing)}"
        return positions, names, [note]
    raise DataError(
        f"{where}: {len(names)} class names but {len(values)} classes: "
        f"{shorten(values)}"
    )
