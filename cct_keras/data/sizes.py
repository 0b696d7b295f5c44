"""Sizes of images: what a data set has, and what a model gets."""

from typing import NamedTuple

import numpy as np

from cct_keras.data.broken_files import leave_out_broken
from cct_keras.data.image_files import read_headers
from cct_keras.data.raw import RawData
from cct_keras.errors import DataError

# Images of at most this side are trained on in their own size.
LARGEST_NATIVE_SIZE = 64


class ImageShapes(NamedTuple):
    """Sizes and channels of all images of a data set.

    Attributes:
        sizes: Integer array `(count, 2)` of heights and widths.
        channels: 1 if all images are gray, 3 otherwise.
    """

    sizes: np.ndarray
    channels: int


def measure_images(raw: RawData) -> tuple[RawData, ImageShapes]:
    """Finds the sizes and channels of all images.

    Args:
        raw: The data set. Of files, only the first bytes are read.

    Returns:
        The data set without files that are not images, and the shapes.

    Example:

    >>> from cct_keras.data.readers.digits import read_digits
    >>> digits, shapes = measure_images(read_digits())
    >>> shapes.sizes.shape, shapes.channels
    ((1797, 2), 1)
    """
    sizes, channels, broken = [], [], {}
    for split in raw.splits.values():
        if split.has_files:
            found, depths, unreadable = read_headers(split.images)
            broken |= unreadable
            readable = np.array([path not in unreadable for path in split.images])
            sizes.append(found[readable])
            channels.append(depths[readable])
        else:
            shapes = [image.shape for image in split.images]
            shapes = np.array(shapes, "int64").reshape(-1, 3)
            sizes.append(shapes[:, :2])
            channels.append(shapes[:, 2])
    raw = leave_out_broken(raw, broken)
    all_gray = (np.concatenate(channels) == 1).all()
    return raw, ImageShapes(np.concatenate(sizes), 1 if all_gray else 3)


def choose_size(sizes: np.ndarray, default_size: int) -> int | tuple[int, int]:
    """Chooses at which size a model sees images.

    Args:
        sizes: Integer array `(count, 2)` of heights and widths.
        default_size: Side for images that differ in size or are large.

    Returns:
        The size that all images have if they are small, and else `default_size`.

    Example:

    >>> choose_size(np.array([[28, 28], [28, 28]]), default_size=64)
    (28, 28)
    """
    alike = (sizes == sizes[0]).all()
    small = sizes.max() <= LARGEST_NATIVE_SIZE and default_size <= LARGEST_NATIVE_SIZE
    return tuple(sizes[0].tolist()) if alike and small else default_size


def as_size(image_size: int | tuple[int, int], multiple: int = 1) -> tuple[int, int]:
    """Makes height and width of one side or of both.

    Args:
        image_size: Side of a square, or height and width.
        multiple: Both are rounded up to a multiple of it.

    Example:

    >>> as_size(30, multiple=4)
    (32, 32)
    """
    size = (image_size,) * 2 if isinstance(image_size, int) else tuple(image_size)
    if len(size) != 2 or not all(isinstance(side, int) and side > 0 for side in size):
        raise DataError(
            "`image_size` must be a side or a height and a width. "
            f"Received: image_size={image_size!r}"
        )
    return tuple(-(-side // multiple) * multiple for side in size)
