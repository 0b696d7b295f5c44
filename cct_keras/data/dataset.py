"""`load_data`: any source of images to three splits that are ready to train on."""

import dataclasses
import os
import pathlib
from collections.abc import Callable

import numpy as np

from cct_keras.data.fingerprint import digest_images
from cct_keras.data.fingerprint import fingerprint
from cct_keras.data.fitting import image_batches
from cct_keras.data.images import ImageFormat
from cct_keras.data.images import load_images
from cct_keras.data.inspection import inspect
from cct_keras.data.pipeline import evaluation_pipeline
from cct_keras.data.pipeline import padded_pipeline
from cct_keras.data.pipeline import training_pipeline
from cct_keras.data.raw import RawData
from cct_keras.data.readers.table import read_source
from cct_keras.data.sizes import LARGEST_NATIVE_SIZE
from cct_keras.data.sizes import ImageShapes
from cct_keras.data.sizes import as_size
from cct_keras.data.sizes import choose_size
from cct_keras.data.sizes import measure_images
from cct_keras.data.splits import SPLITS
from cct_keras.data.splits import cut_missing_splits
from cct_keras.data.splits import select_split
from cct_keras.data.statistics import cached_statistics
from cct_keras.data.store import ImageArray
from cct_keras.data.store import ImageFiles
from cct_keras.data.store import RaggedImages


@dataclasses.dataclass(frozen=True, eq=False)
class Split:
    """Images and labels of one split of a data set.

    Attributes:
        images: Image `i` is `images[i]`, a uint8 array `(height, width, channels)`.
        labels: int64 array `(count,)`.
        files: Where each image was read from; `None` if they were not files.

    Example:

    >>> split = load_data("digits").test
    >>> len(split), split.images[0].shape, int(split.labels[0])
    (360, (16, 16, 1), 7)
    """

    images: ImageArray | RaggedImages | ImageFiles
    labels: np.ndarray
    files: tuple[pathlib.Path, ...] | None = None

    def __len__(self):
        return len(self.labels)

    def name_of(self, index: int) -> str:
        """What a person can find image `index` by: its file, or its number."""
        return f"image {index}" if self.files is None else str(self.files[index])


@dataclasses.dataclass(frozen=True, eq=False)
class Dataset:
    """Three splits of images, and what a model needs to know about them.

    `load_data` makes one; `train`, `evaluate` and others take one.

    Attributes:
        name: Where the images came from.
        class_names: Names of the classes, in the order of the labels.
        image_size: Height and width at which a model sees the images.
        channels: 1 for gray images, 3 for color.
        mean: Mean of each channel, for pixels scaled to 0..1.
        std: Standard deviation of each channel, for pixels scaled to 0..1.
        crop: Share of an image that evaluation keeps.
        train: Images in their own size; large ones are reduced to little more than
            `image_size`.
        validation: Images in exactly `image_size`.
        test: Images in exactly `image_size`.
        fingerprint: Hash of all images and labels.
        cut: How splits that the source lacks were cut off: the shares `validation`
            and `test`, and the `seed`; for a fold of a cross-validation also the `fold`
            and how many `folds` there are.
        notes: What a user should know: skipped files, cut splits, duplicates.
        test_fingerprint: Hash of the test images and their labels.

    Example:

    >>> data = load_data("digits")
    >>> data.describe()
    'digits: 1,293 / 144 / 360 images to train, validate, test; 10 classes; 16 x 16 x 1'
    >>> data.num_classes, data.input_shape
    (10, (16, 16, 1))
    >>> images, labels = next(data.pipeline("test", batch_size=32).as_numpy_iterator())
    >>> images.shape, labels.shape
    ((32, 16, 16, 1), (32, 10))
    """

    name: str
    class_names: tuple[str, ...]
    image_size: tuple[int, int]
    channels: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    crop: float
    train: Split
    validation: Split
    test: Split
    fingerprint: str
    cut: dict
    notes: tuple[str, ...]
    test_fingerprint: str = ""

    @property
    def num_classes(self) -> int:
        """Number of classes."""
        return len(self.class_names)

    @property
    def input_shape(self) -> tuple[int, int, int]:
        """The `input_shape` of a model for these images."""
        return (*self.image_size, self.channels)

    def describe(self) -> str:
        """Describes the data set in one line: its splits, classes and image size."""
        height, width = self.image_size
        counts = " / ".join(
            f"{len(split):,}" for split in (self.train, self.validation, self.test)
        )
        return (
            f"{self.name}: {counts} images to train, validate, test; "
            f"{self.num_classes} classes; {height} x {width} x {self.channels}"
        )

    def pipeline(self, split: str = "test", batch_size: int = 128):
        """Makes batches of a split in order, without augmentation.

        Args:
            split: `"train"`, `"validation"` or `"test"`.
            batch_size: Images a batch; the last batch may have fewer.

        Returns:
            A `tf.data.Dataset` of `(images, one-hot labels)`. Images are float32 with
            values from 0 to 255.

        Example:

        >>> batches = load_data("digits").pipeline("test", batch_size=100)
        >>> [len(labels) for _, labels in batches.as_numpy_iterator()]
        [100, 100, 100, 60]
        """
        return evaluation_pipeline(self, getattr(self, split), batch_size)

    def batches(self, split: str = "test", batch_size: int = 128):
        """Makes the images of `pipeline` with NumPy alone, one batch after the other.

        Args:
            split: `"train"`, `"validation"` or `"test"`.
            batch_size: Images a batch; the last batch may have fewer.

        Yields:
            float32 arrays `(images, height, width, channels)` of values from 0 to 255.

        Example:

        >>> [len(images) for images in load_data("digits").batches("test", 100)]
        [100, 100, 100, 60]
        """
        return image_batches(
            getattr(self, split).images, self.image_size, self.crop, batch_size
        )

    def padded_pipeline(
        self,
        split: str,
        batch_size: int,
        *,
        multiple: int,
        shard: tuple[int, int] = (0, 1),
    ):
        """Makes batches like `pipeline` that split evenly over devices and machines.

        Args:
            split: `"train"`, `"validation"` or `"test"`.
            batch_size: Images a batch of all machines, rounded up to `multiple`.
            multiple: Every batch is a multiple of it, padded with images of weight 0.
            shard: Which part of every batch this machine gets, and of how many parts.

        Returns:
            A `tf.data.Dataset` of `(images, one-hot labels, weights)`. Losses and
            metrics with these weights are those of the images without padding.

        Example:

        >>> batches = load_data("digits").padded_pipeline("test", 100, multiple=8)
        >>> [len(labels) for _, labels, _ in batches.as_numpy_iterator()]
        [104, 104, 104, 48]
        """
        return padded_pipeline(
            self, getattr(self, split), batch_size, multiple=multiple, shard=shard
        )

    def training_pipeline(
        self,
        recipe,
        *,
        first_epoch: int = 0,
        epochs: int | None = None,
        first_step: int = 0,
        mixes: Callable[[], bool] | None = None,
        seed: int = 0,
        shard: tuple[int, int] = (0, 1),
    ):
        """Makes shuffled, augmented and mixed batches of all epochs.

        Args:
            recipe: A `Recipe`. With `teacher_views`, the images of epoch `e` are those
                of epoch `e % teacher_views`.
            first_epoch: Epoch to begin with. What an epoch sees does not depend on
                it.
            epochs: Epoch to end before; by default the end of the recipe.
            first_step: Batch of the first epoch to begin with.
            mixes: Says for each batch whether it may be mixed, in the place of the
                recipe's `mix_off_epoch`: for runs whose length is a time.
            seed: Seed of the order and of the augmentation.
            shard: Which part of every batch this machine gets, and of how many parts.

        Returns:
            A `tf.data.Dataset` of `(images, soft labels)`.

        Example:

        >>> recipe = cct_keras.Recipe(batch_size=64, epochs=3)
        >>> batches = load_data("digits").training_pipeline(recipe)
        >>> images, labels = next(batches.as_numpy_iterator())
        >>> images.shape, labels.shape
        ((64, 16, 16, 1), (64, 10))
        """
        return training_pipeline(
            self,
            recipe,
            batch_size=recipe.batch_size,
            epochs=range(
                first_epoch, recipe.total_epochs if epochs is None else epochs
            ),
            length=recipe.total_epochs,
            first_step=first_step,
            mixes=mixes,
            views=recipe.teacher_views,
            seed=seed,
            shard=shard,
        )


def load_data(
    source,
    *,
    image_size: int | tuple[int, int] | None = None,
    default_size: int = LARGEST_NATIVE_SIZE,
    multiple: int = 1,
    channels: int | None = None,
    crop: float = 1.0,
    validation: float = 0.1,
    test: float = 0.15,
    seed: int = 0,
    data_dir: str | os.PathLike | None = None,
    smallest_cut: int = 0,
    normalization: tuple[tuple, tuple] | None = None,
    in_memory: bool = True,
) -> Dataset:
    """Reads a data set of images, wherever it is.

    Args:
        source: `"digits"` (comes with scikit-learn); a name of
            tensorflow-datasets, such as `"cifar10"`; a folder of image files
            `<class>/*` or `{train,val,test}/<class>/*`; an `.npz` file with
            `x_train`, `y_train`, `x_test`, `y_test`; a folder of idx files as those
            of MNIST; or arrays `(x, y)` or `((x_train, y_train), (x_test, y_test))`.
            A `Dataset` is returned as it is.
        image_size: Side, or height and width, at which a model sees the images. By
            default the size of the images if all have the same small size, and
            otherwise `default_size`.
        default_size: See `image_size`.
        multiple: Height and width are rounded up to multiples of it, for models that
            divide images into patches.
        channels: 1 or 3. By default 1 if all images are gray, and otherwise 3.
        crop: Share of an image that evaluation keeps.
        validation: If the source has no validation split, this share of the training
            images is cut off for it. The classes keep their proportions.
        test: If the source has no test split, this share of the training images is
            cut off for it.
        seed: Seed of these cuts.
        data_dir: Folder where tensorflow-datasets keeps its prepared data sets.
        smallest_cut: A split that would be cut off with fewer images than this stays
            empty instead.
        normalization: Mean and deviation of each channel, in the place of those of the
            images, if it has as many channels.
        in_memory: Whether files are read into memory at once, if they fit there, and
            not when they are needed.

    Returns:
        A `Dataset`.

    Example:

    >>> data = load_data("digits")
    >>> data.input_shape, data.num_classes
    ((16, 16, 1), 10)
    >>> images, labels = np.zeros((40, 28, 28), "uint8"), np.arange(40) % 4
    >>> load_data((images, labels)).input_shape
    (28, 28, 1)
    """
    if isinstance(source, Dataset):
        return source
    raw = read_source(source, data_dir=data_dir)
    cut = {"validation": validation, "test": test, "seed": seed}
    if smallest_cut:
        cut["smallest"] = smallest_cut
    raw = cut_missing_splits(raw, **cut)
    raw, shapes = measure_images(raw)
    image_format = choose_format(
        raw, shapes, image_size, default_size, multiple, channels, crop
    )
    digests = digest_images(raw)
    identity = fingerprint(raw, digests)
    raw = raw.with_notes(inspect(raw, shapes.sizes, digests))
    raw, images = load_images(raw, shapes.sizes, image_format, in_memory=in_memory)
    if normalization is not None and len(normalization[0]) == image_format.channels:
        mean, std = map(tuple, normalization)
    else:
        mean, std = find_normalization(raw, images["train"], identity, image_format)
    return Dataset(
        name=raw.name,
        class_names=raw.class_names,
        image_size=image_format.size,
        channels=image_format.channels,
        mean=mean,
        std=std,
        crop=crop,
        **{name: _as_split(images[name], raw.splits[name]) for name in SPLITS},
        fingerprint=identity,
        cut=cut,
        notes=raw.notes,
        test_fingerprint=fingerprint(raw, digests, ("test",)),
    )


def load_evaluation_data(
    source,
    split: str,
    *,
    image_size: tuple[int, int],
    channels: int,
    crop: float,
    interpolation: str = "bicubic",
    trained_on: dict | None = None,
    data_dir: str | os.PathLike | None = None,
) -> Dataset:
    """Reads the images that a model is to be measured on.

    Args:
        source: As for `load_data`.
        split: `"train"`, `"validation"` or `"test"`. If the source lacks it and the
            model was trained on this source, it is what training had cut off; if the
            model was trained on other data, it is all images.
        image_size: Height and width of the model's images.
        channels: Channels of the model's images.
        crop: Share of an image that is kept.
        interpolation: How images are resized: `"bicubic"`, `"bilinear"` or
            `"nearest"`.
        trained_on: What the model knows of the data that it was trained on: their
            `fingerprint`, and how their splits were `cut` off.
        data_dir: Folder where tensorflow-datasets keeps its prepared data sets.

    Returns:
        A `Dataset` whose splits are all this one, and whose mean and standard
        deviation are unknown. All images have exactly `image_size`.

    Example:

    >>> data = load_evaluation_data(
    ...     "digits", "test", image_size=(32, 32), channels=3, crop=0.9
    ... )
    >>> data.test.images[0].shape
    (32, 32, 3)
    """
    raw = select_split(read_source(source, data_dir=data_dir), split, trained_on)
    raw, shapes = measure_images(raw)
    image_format = ImageFormat(tuple(image_size), channels, crop, interpolation)
    raw, images = load_images(raw, shapes.sizes, image_format, training_split=None)
    measured = _as_split(images[split], raw.splits[split])
    return Dataset(
        name=raw.name,
        class_names=raw.class_names,
        image_size=image_format.size,
        channels=channels,
        mean=(),
        std=(),
        crop=crop,
        **dict.fromkeys(SPLITS, measured),
        fingerprint="",
        cut={},
        notes=raw.notes,
    )


def _as_split(images, raw):
    files = tuple(raw.images) if raw.has_files else None
    return Split(images, raw.labels, files)


def choose_format(
    raw: RawData,
    shapes: ImageShapes,
    image_size: int | tuple[int, int] | None,
    default_size: int,
    multiple: int,
    channels: int | None,
    crop: float,
) -> ImageFormat:
    """How a model sees the images of a data set; the arguments are of `load_data`."""
    if image_size is None:
        known = None if raw.known is None else raw.known.image_size
        image_size = known or choose_size(shapes.sizes, default_size)
    return ImageFormat(
        size=as_size(image_size, multiple),
        channels=channels or shapes.channels,
        crop=crop,
    )


def find_normalization(
    raw: RawData, images, identity: str, image_format: ImageFormat
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The published mean and deviation of a known data set, or those of its images."""
    known, channels = raw.known, image_format.channels
    if known is not None and known.mean and len(known.mean) == channels:
        return known.mean, known.std
    # Reduced images vary less, so the size is a part of the name in the cache.
    return cached_statistics(images, f"{identity[:32]}-{image_format.size}-{channels}")
