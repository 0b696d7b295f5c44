"""Arrays of pixels of any numeric type and scale as uint8 images."""

import dataclasses

import numpy as np

from cct_keras.errors import DataError

# Resizing and float16 leave values a little outside of 0..1.
TOLERANCE = 1e-3
# A data set without a brighter pixel probably has another scale.
DARK = 32
# How many images are converted at a time.
CHUNK = 1024


@dataclasses.dataclass(frozen=True)
class Scale:
    """The range of the pixels of a data set.

    Attributes:
        highest: The value that stands for white.
        factor: What a pixel is multiplied by to reach 0..255.
    """

    highest: int
    factor: float


def as_images(x, *, where: str) -> np.ndarray:
    """Brings images to the shape `(count, height, width, channels)`.

    Args:
        x: Images of any numeric type, with their channels last, first or left out.
        where: What an error names as its source.

    Example:

    >>> as_images(np.zeros((10, 3, 32, 32)), where="mine").shape
    (10, 32, 32, 3)
    """
    try:
        x = np.asarray(x)
    except ValueError as error:
        raise DataError(f"{where}: the images differ in size") from error
    if x.dtype.kind not in "buif":
        raise DataError(f"{where}: images of type {x.dtype}; raw pixels are expected")
    if x.ndim == 3:
        x = x[..., None]
    if x.ndim != 4:
        raise DataError(
            f"{where}: images of shape {x.shape}; (n, height, width) or "
            "(n, height, width, channels) is expected"
        )
    if not x.size:
        raise DataError(f"{where}: no images; the array has shape {x.shape}")
    if x.shape[1] in (1, 3) and x.shape[3] not in (1, 3, 4):
        x = np.moveaxis(x, 1, 3)
    if x.shape[3] not in (1, 3, 4):
        raise DataError(
            f"{where}: {x.shape[3]} channels; 1 (gray), 3 (RGB) or 4 (RGBA) expected"
        )
    return x


def find_scale(x: np.ndarray, *, where: str) -> Scale:
    """Finds out by the training images which range the pixels have.

    Args:
        x: Images as `as_images` returns them.
        where: What an error names as its source.

    Example:

    >>> find_scale(np.full((1, 2, 2, 1), 0.5), where="mine")
    Scale(highest=1, factor=255)
    """
    low, high = _value_range(x, where=where)
    if x.dtype == np.bool_ or (x.dtype.kind == "f" and high <= 1 + TOLERANCE):
        scale = Scale(1, 255)
    elif x.dtype == np.uint16 and high > 255:
        scale = Scale(65535, 255 / 65535)
    else:
        scale = Scale(255, 1)
    _check_range(low, high, scale, where=where)
    return scale


def as_pixels(x: np.ndarray, scale: Scale, *, where: str) -> tuple[np.ndarray, float]:
    """Scales images to 0..255.

    Args:
        x: Images as `as_images` returns them.
        scale: Range of the pixels of the training images.
        where: What an error names as its source.

    Returns:
        The images as uint8, and their brightest value. Images with transparency keep
        its channel.

    Example:

    >>> images = np.array([0, 0.5]).reshape(1, 1, 2, 1)
    >>> pixels, brightest = as_pixels(images, Scale(1, 255), where="mine")
    >>> pixels.ravel().tolist(), brightest
    ([0, 128], 127.5)
    """
    low, high = _value_range(x, where=where)
    _check_range(low, high, scale, where=where)
    if x.dtype.kind in "bf" and scale.highest > 1 and 0 < high <= 1 + TOLERANCE:
        raise DataError(
            f"{where}: pixels from {low:g} to {high:g}, but those of the training "
            f"images lie in 0..{scale.highest}; one scale for all splits is expected"
        )
    if x.dtype == np.uint8 and scale.highest > 255:
        raise DataError(
            f"{where}: 8-bit pixels, but those of the training images lie in "
            f"0..{scale.highest}; one scale for all splits is expected"
        )
    if x.dtype == np.uint8 and scale.factor == 1:
        return np.ascontiguousarray(x), high
    pixels = np.empty(x.shape, np.uint8)
    # In chunks, so that the floats of a large data set never exist all at once.
    for start in range(0, len(x), CHUNK):
        chunk = x[start : start + CHUNK] * np.float32(scale.factor)
        pixels[start : start + CHUNK] = np.clip(np.rint(chunk), 0, 255)
    return pixels, high * scale.factor


def over_white(pixels: np.ndarray) -> np.ndarray:
    """Lays images with transparency over white.

    Args:
        pixels: uint8 array `(count, height, width, 4)`.

    Returns:
        uint8 array `(count, height, width, 3)`.

    Example:

    >>> over_white(np.zeros((1, 1, 1, 4), "uint8")).tolist()
    [[[[255, 255, 255]]]]
    """
    result = np.empty((*pixels.shape[:3], 3), np.uint8)
    for start in range(0, len(pixels), CHUNK):
        chunk = pixels[start : start + CHUNK].astype(np.float32)
        alpha = chunk[..., 3:] / 255
        colors = chunk[..., :3] * alpha + 255 * (1 - alpha)
        result[start : start + CHUNK] = np.rint(colors)
    return result


def _value_range(x, *, where):
    low, high = float(x.min()), float(x.max())
    if not np.isfinite([low, high]).all():
        raise DataError(f"{where}: the images contain NaN or infinity")
    return low, high


def _check_range(low, high, scale, *, where):
    if low < -TOLERANCE or high > scale.highest + TOLERANCE:
        raise DataError(
            f"{where}: pixels from {low:g} to {high:g}, expected raw pixels in "
            f"0..{scale.highest}; normalization is done for you"
        )
