"""`load_folds`: the images of a source, read once for a cross-validation."""

import dataclasses
import os

import numpy as np

from cct_keras.data.dataset import Dataset
from cct_keras.data.dataset import Split
from cct_keras.data.dataset import choose_format
from cct_keras.data.dataset import find_normalization
from cct_keras.data.fingerprint import digest_images
from cct_keras.data.fingerprint import fingerprint
from cct_keras.data.images import ImageFormat
from cct_keras.data.images import load_images
from cct_keras.data.inspection import inspect
from cct_keras.data.raw import RawData
from cct_keras.data.raw import RawSplit
from cct_keras.data.readers.table import read_source
from cct_keras.data.sizes import LARGEST_NATIVE_SIZE
from cct_keras.data.sizes import measure_images
from cct_keras.data.splits import check_folds
from cct_keras.data.splits import fold_masks
from cct_keras.data.splits import fold_note
from cct_keras.data.splits import pool_for_folds


@dataclasses.dataclass(frozen=True, eq=False)
class Folds:
    """All images of a source, of which a `Dataset` is made for each fold.

    Attributes:
        pool: The images as they were read, in one split.
        readable: The same without files that turned out not to be images.
        sizes: Heights and widths of the readable images.
        digests: Hashes of the readable images.
        training: The images in the form in which they are trained on.
        evaluation: The images in exactly the size of the model's images.
        image_format: How the model sees them.
        folds: Number of folds.
        validation: Share of the images that a fold does not test on, which validate.
        seed: Seed of the folds and of the validation splits.

    Example:

    >>> folds = load_folds("digits", 5)
    >>> [len(folds.fold(number).test) for number in (1, 2, 3, 4, 5)]
    [288, 288, 287, 287, 287]
    """

    pool: RawData
    readable: RawData
    sizes: np.ndarray
    digests: list
    training: "_Form"
    evaluation: "_Form"
    image_format: ImageFormat
    folds: int
    validation: float
    seed: int

    def fold(self, number: int) -> Dataset:
        """The data set of one fold.

        Args:
            number: From 1.
        """
        masks = fold_masks(
            self.pool, self.folds, number, validation=self.validation, seed=self.seed
        )
        note = fold_note(masks, self.folds, number, self.seed)
        kept = _positions(self.pool.splits["train"], self.readable.splits["train"])
        chosen = {name: np.flatnonzero(mask[kept]) for name, mask in masks.items()}
        readable = self.readable.splits["train"]
        raw = self.training.raw.with_splits(
            {name: readable.select(indices) for name, indices in chosen.items()}
        )
        digests = {
            name: [self.digests[index] for index in indices]
            for name, indices in chosen.items()
        }
        identity = fingerprint(raw, digests)
        splits = {
            name: (self.training if name == "train" else self.evaluation).select(mask)
            for name, mask in masks.items()
        }
        mean, std = find_normalization(
            raw, splits["train"].images, identity, self.image_format
        )
        return Dataset(
            name=raw.name,
            class_names=raw.class_names,
            image_size=self.image_format.size,
            channels=self.image_format.channels,
            mean=mean,
            std=std,
            crop=self.image_format.crop,
            **splits,
            fingerprint=identity,
            cut={
                "validation": self.validation,
                "test": 1 / self.folds,
                "seed": self.seed,
                "folds": self.folds,
                "fold": number,
            },
            notes=(*raw.notes, note, *inspect(raw, self.sizes, digests)),
            test_fingerprint=fingerprint(raw, digests, ("test",)),
        )


def load_folds(
    source,
    folds: int,
    *,
    image_size: int | tuple[int, int] | None = None,
    default_size: int = LARGEST_NATIVE_SIZE,
    multiple: int = 1,
    channels: int | None = None,
    crop: float = 1.0,
    validation: float = 0.1,
    seed: int = 0,
    data_dir: str | os.PathLike | None = None,
) -> Folds:
    """Reads a data set for a cross-validation.

    Each image is in the test split of exactly one fold, class by class. A test split
    that the source has of its own is left out.

    Args:
        source: What `load_data` takes, but no `Dataset`.
        folds: Number of folds, from 2 to the number of images of the smallest class.
        image_size: As for `load_data`.
        default_size: As for `load_data`.
        multiple: As for `load_data`.
        channels: As for `load_data`.
        crop: As for `load_data`.
        validation: Share of the images that a fold does not test on, which it cuts off
            as its validation split.
        seed: Seed of the folds and of these cuts.
        data_dir: As for `load_data`.

    Returns:
        The `Folds`.

    Example:

    >>> load_folds("digits", 5).fold(1).describe()
    'digits: 1,034 / 115 / 288 images to train, validate, test; 10 classes; 16 x 16 x 1'
    """
    pool = pool_for_folds(read_source(source, data_dir=data_dir))
    check_folds(pool, folds)
    readable, shapes = measure_images(pool)
    image_format = choose_format(
        readable, shapes, image_size, default_size, multiple, channels, crop
    )
    digests = digest_images(readable)["train"]
    forms = []
    raw = readable
    for training_split in ("train", None):
        # A file that cannot be read in one form is not tried again in the other.
        raw, images = load_images(
            raw, shapes.sizes, image_format, training_split=training_split
        )
        split = raw.splits["train"]
        positions = _positions(pool.splits["train"], split)
        forms.append(_Form(raw, images["train"], split, positions))
    return Folds(
        pool,
        readable,
        shapes.sizes,
        digests,
        *forms,
        image_format,
        folds,
        validation,
        seed,
    )


@dataclasses.dataclass(frozen=True, eq=False)
class _Form:
    """All images in one form: their store, and where they were in the pool."""

    raw: RawData
    images: object
    split: RawSplit
    positions: np.ndarray

    def select(self, mask):
        indices = np.flatnonzero(mask[self.positions])
        files = None
        if self.split.has_files:
            files = tuple(self.split.images[index] for index in indices)
        return Split(self.images.select(indices), self.split.labels[indices], files)


def _positions(pool, remaining):
    """Where the images that remain were in the pool; only files can be left out."""
    if not pool.has_files:
        return np.arange(len(pool))
    known = set(remaining.images)
    return np.flatnonzero([path in known for path in pool.images])
