"""What every reader returns: images as they are stored, and their labels."""

import dataclasses
import pathlib

import numpy as np


class DataError(ValueError):
    """Raised when a data set is refused; the message is one line."""


@dataclasses.dataclass
class RawSplit:
    """Images and labels of one split.

    Attributes:
        images: A uint8 array `(n, height, width, channels)`, a list of uint8
            arrays `(height, width, channels)` of differing sizes, or a list of files.
        labels: An int64 array `(n,)` of values from 0 to the number of classes - 1.
    """

    images: np.ndarray | list[np.ndarray] | list[pathlib.Path]
    labels: np.ndarray


@dataclasses.dataclass
class RawData:
    """A data set as a reader found it.

    Attributes:
        name: Name of the set, or of the folder or file it came from.
        splits: `"train"` always, `"validation"` and `"test"` if the source has them.
        class_names: Name of every class, in the order of the labels.
        notes: One-line remarks a user should read.
    """

    name: str
    splits: dict[str, RawSplit]
    class_names: tuple[str, ...]
    notes: list[str] = dataclasses.field(default_factory=list)
