"""What every reader returns: images as they are stored, and their labels."""

import dataclasses
import pathlib
from collections.abc import Iterable

import numpy as np

from cct_keras.data.known import KnownDataset


@dataclasses.dataclass(frozen=True, eq=False)
class RawSplit:
    """Images and labels of one split.

    Attributes:
        images: A uint8 array `(count, height, width, channels)`, a list of uint8
            arrays `(height, width, channels)` of differing sizes, or a list of files.
        labels: An int64 array `(count,)` of values from 0 to the number of classes
            minus 1.
    """

    images: np.ndarray | list[np.ndarray] | list[pathlib.Path]
    labels: np.ndarray

    def __len__(self):
        return len(self.labels)

    @property
    def has_files(self) -> bool:
        """Whether the images are files that are still to be read."""
        first = next(iter(self.images), None)
        return isinstance(first, pathlib.Path)

    def select(self, indices: np.ndarray) -> "RawSplit":
        """Returns a split of only some of the images.

        Args:
            indices: Positions of the images to keep, or one bool an image.
        """
        indices = np.asarray(indices)
        if isinstance(self.images, np.ndarray):
            images = self.images[indices]
        else:
            positions = np.arange(len(self.images))[indices]
            images = [self.images[position] for position in positions]
        return RawSplit(images, self.labels[indices])


@dataclasses.dataclass(frozen=True, eq=False)
class RawData:
    """A data set as a reader found it.

    Attributes:
        name: Name of the data set, or of the folder or file that it came from.
        splits: `"train"` always; `"validation"` and `"test"` if the source has them.
        class_names: Name of every class, in the order of the labels.
        notes: Remarks of one line each that a user should read.
        known: The row of `cct_keras.data.known` if the data came by such a name.
    """

    name: str
    splits: dict[str, RawSplit]
    class_names: tuple[str, ...]
    notes: tuple[str, ...] = ()
    known: KnownDataset | None = None

    def with_splits(
        self, splits: dict[str, RawSplit], notes: Iterable[str] = ()
    ) -> "RawData":
        """Returns these data with other splits, and with further notes."""
        return dataclasses.replace(self.with_notes(notes), splits=splits)

    def with_notes(self, notes: Iterable[str]) -> "RawData":
        """Returns these data with further notes."""
        return dataclasses.replace(self, notes=(*self.notes, *notes))


def concatenate(splits: list[RawSplit]) -> RawSplit:
    """Puts the images of several splits one after the other.

    Args:
        splits: One split or more.

    Example:

    >>> split = RawSplit(np.zeros((2, 8, 8, 1), "uint8"), np.array([0, 1]))
    >>> len(concatenate([split, split]))
    4
    """
    if len(splits) == 1:
        return splits[0]
    labels = np.concatenate([split.labels for split in splits])
    arrays = [split.images for split in splits if isinstance(split.images, np.ndarray)]
    if len(arrays) == len(splits) and len({x.shape[1:] for x in arrays}) == 1:
        return RawSplit(np.concatenate(arrays), labels)
    return RawSplit([image for split in splits for image in split.images], labels)
