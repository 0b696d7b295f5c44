"""Images of a data set in the form in which a model gets them."""

import dataclasses
import pathlib

import numpy as np

from cct_keras.data.broken_files import leave_out_broken
from cct_keras.data.image_files import read_images
from cct_keras.data.raw import RawData
from cct_keras.data.store import ImageArray
from cct_keras.data.store import ImageFiles
from cct_keras.data.store import RaggedImages
from cct_keras.data.store import memory_budget
from cct_keras.errors import DataError
from cct_keras.runtime.image_files import read_image
from cct_keras.runtime.resize import central_crop_resize
from cct_keras.runtime.resize import resize

# Training images keep this many times the model's size, for crops to choose from.
MARGIN = 1.25


@dataclasses.dataclass(frozen=True)
class ImageFormat:
    """How a model sees images.

    Attributes:
        size: Height and width.
        channels: 1 for gray images, 3 for color.
        crop: Share of an image that evaluation keeps.
        interpolation: How evaluation resizes: `"bicubic"`, `"bilinear"` or
            `"nearest"`.

    Example:

    >>> photo = np.zeros((300, 400, 3), "uint8")
    >>> image_format = ImageFormat((32, 32), channels=1)
    >>> image_format.evaluation_image(photo).shape
    (32, 32, 1)
    >>> image_format.training_image(photo).shape
    (40, 53, 1)
    """

    size: tuple[int, int]
    channels: int
    crop: float = 1.0
    interpolation: str = "bicubic"

    @property
    def largest_side(self) -> int:
        """How long the shorter side of a training image may be."""
        return round(MARGIN * max(self.size))

    def training_image(self, source: np.ndarray | pathlib.Path) -> np.ndarray:
        """Reduces an image to little more than the model sees, and keeps its ratio.

        Args:
            source: A file, or a uint8 array `(height, width, channels)`.
        """
        limit = self.largest_side
        image = self._with_channels(source, shrink=limit)
        height, width = image.shape[:2]
        if min(height, width) <= limit:
            return image
        factor = limit / min(height, width)
        return resize(image, (round(height * factor), round(width * factor)))

    def evaluation_image(self, source: np.ndarray | pathlib.Path) -> np.ndarray:
        """Makes of an image what a model sees in evaluation, in exactly its size.

        Args:
            source: A file, or a uint8 array `(height, width, channels)`.
        """
        return central_crop_resize(
            self._with_channels(source),
            self.size,
            self.crop,
            interpolation=self.interpolation,
        )

    def _with_channels(self, source, shrink=None):
        if isinstance(source, pathlib.Path):
            return read_image(source, self.channels, shrink=shrink)
        found = source.shape[-1]
        if found == self.channels:
            return source
        if (found, self.channels) == (1, 3):
            return np.repeat(source, 3, axis=-1)
        if (found, self.channels) == (3, 1):
            from PIL import Image

            return np.asarray(Image.fromarray(source).convert("L"))[..., None]
        raise DataError(
            f"images of {found} channels cannot be read as images of {self.channels}"
        )


def load_images(
    raw: RawData,
    sizes: np.ndarray,
    image_format: ImageFormat,
    *,
    training_split: str | None = "train",
    in_memory: bool = True,
) -> tuple[RawData, dict]:
    """Brings all images into memory, or prepares to read them again and again.

    Args:
        raw: The data set.
        sizes: Heights and widths of all its images.
        image_format: How the model sees them.
        training_split: Split whose images stay larger than the model sees them;
            `None` for none.
        in_memory: Whether files are read into memory now, if they fit there.

    Returns:
        The data set without files that turned out to be broken, with notes; and by
        the name of the split a store of its images.
    """
    fits = _bytes_in_memory(sizes, image_format) <= memory_budget()
    notes = []
    if not fits and any(split.has_files for split in raw.splits.values()):
        notes.append("the images do not fit in memory and are read in every epoch")
    images, broken = {}, {}
    for name, split in raw.splits.items():
        for_training = name == training_split
        convert = (
            image_format.training_image
            if for_training
            else image_format.evaluation_image
        )
        if split.has_files and not (fits and in_memory):
            images[name] = ImageFiles(
                split.images,
                split.labels,
                convert,
                channels=image_format.channels,
                size=None if for_training else image_format.size,
            )
        elif split.has_files:
            found, unreadable = read_images(split.images, convert)
            images[name] = [image for image in found if image is not None]
            broken |= unreadable
        elif _can_stay(split.images, image_format, for_training):
            images[name] = split.images
        else:
            images[name] = [convert(image) for image in split.images]
    raw = leave_out_broken(raw.with_notes(notes), broken)
    return raw, {name: _as_store(found, image_format) for name, found in images.items()}


def _bytes_in_memory(sizes, image_format):
    factor = np.minimum(1, image_format.largest_side / sizes.min(axis=1))
    return image_format.channels * (sizes.prod(axis=1) * factor**2).sum()


def _can_stay(images, image_format, for_training):
    """Whether images are an array in the right form, which then is not copied."""
    if not isinstance(images, np.ndarray) or images.shape[-1] != image_format.channels:
        return False
    size = images.shape[1:3]
    small = for_training and min(size) <= image_format.largest_side
    return size == image_format.size or small


def _as_store(images, image_format):
    if isinstance(images, ImageFiles):
        return images
    if not len(images):
        shape = (0, *image_format.size, image_format.channels)
        return ImageArray(np.zeros(shape, "uint8"))
    if isinstance(images, np.ndarray):
        return ImageArray(images)
    if all(image.shape == images[0].shape for image in images):
        return ImageArray(np.stack(images))
    return RaggedImages(images)
