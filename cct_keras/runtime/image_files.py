"""The pixels of an image file, upright and over white."""

import os
import re
import warnings
from collections.abc import Callable

import numpy as np

from cct_keras.errors import DataError
from cct_keras.errors import MissingPackageError
from cct_keras.runtime.messages import first_line
from cct_keras.runtime.packages import import_package

# Pillow would also run Ghostscript on an .eps file that is called .jpg.
PICTURE_FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF")
GRAY_MODES = {"1", "L", "LA", "La", "I", "F"}
ORIENTATION = 0x0112
WHITE = (255, 255, 255, 255)


def read_image(
    path: str | os.PathLike,
    channels: int | None = 3,
    *,
    shrink: int | None = None,
) -> np.ndarray:
    """Reads the pixels of an image file, upright, with transparency over white.

    Args:
        path: A JPEG, PNG, WebP, BMP, GIF or TIFF file. Of an animation it is the
            first frame.
        channels: 1 or 3. `None` gives 1 for a gray image and 3 for any other one.
        shrink: If the shorter side is longer than this, the image is reduced so
            that its shorter side has this length.

    Returns:
        A uint8 array `(height, width, channels)`.

    Example:

    >>> read_image("photo.jpg").shape  # Needs the file.  # doctest: +SKIP
    (480, 640, 3)
    """
    if channels not in (None, 1, 3):
        raise ValueError(
            "read_image: `channels` must be 1, 3 or None. "
            f"Received: channels={channels!r}"
        )
    if shrink is not None and shrink < 1:
        raise ValueError(
            f"read_image: `shrink` must be positive. Received: shrink={shrink!r}"
        )
    # For a broken file the decoders of Pillow raise errors of almost any kind.
    try:
        with open_image(path) as image:
            return _decode(image, channels, shrink)
    except MissingPackageError:
        raise
    except Exception as error:
        raise DataError(f"{path}: {explain_error(path, error)}") from error


def decode_image(image, channels: int | None = 3) -> np.ndarray:
    """Takes the pixels of an opened image of Pillow, as `read_image` does of a file.

    Args:
        image: A `PIL.Image.Image`, of any mode.
        channels: 1, 3 or `None`, as for `read_image`.

    Returns:
        A uint8 array `(height, width, channels)`.

    Example:

    >>> from PIL import Image
    >>> decode_image(Image.new("P", (4, 2))).shape
    (2, 4, 3)
    """
    try:
        return _decode(image, channels, None)
    except Exception as error:
        name = getattr(image, "filename", "") or "image"
        raise DataError(f"{name}: {first_line(error)}") from error


def open_image(path: str | os.PathLike):
    """Opens an image file with Pillow, without decoding it."""
    Image = import_package("PIL.Image", "pillow")
    _silence_pillow()
    return Image.open(path, formats=PICTURE_FORMATS)


def _silence_pillow():
    # `warnings.catch_warnings` is not thread-safe, so this holds for the process.
    rule = ("ignore", None, Warning, re.compile(r"PIL\."), 0)
    if rule not in warnings.filters:
        warnings.filterwarnings("ignore", module=r"PIL\.")


def explain_error(path: str | os.PathLike, error: Exception) -> str:
    """Why Pillow could not read a file, in one line."""
    from PIL import Image
    from PIL import UnidentifiedImageError

    if isinstance(error, DataError):
        return str(error)
    if isinstance(error, FileNotFoundError):
        return "no such file"
    if isinstance(error, UnidentifiedImageError):
        empty = os.path.getsize(path) == 0
        return "empty file" if empty else f"not one of {', '.join(PICTURE_FORMATS)}"
    if isinstance(error, Image.DecompressionBombError):
        return "too many pixels, possibly a decompression bomb"
    return first_line(error)


def find_orientation(image, getexif: Callable) -> int:
    """How an opened image has to be turned, from 1 to 8 as EXIF counts.

    Args:
        image: An image of Pillow.
        getexif: The method that reads its EXIF data.
    """
    # Corrupt EXIF data is no reason to refuse an image.
    try:
        value = getexif(image).get(ORIENTATION, 1)
    except Exception:
        return 1
    return value if value in range(1, 9) else 1


def is_gray(image) -> bool:
    """Whether an opened image has no colors, by its mode or its palette."""
    if image.mode == "P":
        colors = np.reshape(image.getpalette("RGB"), (-1, 3))
        return bool((colors == colors[:, :1]).all())
    return image.mode in GRAY_MODES or image.mode.startswith("I;")


def _decode(image, channels, shrink):
    from PIL import Image

    width, height = image.size
    target = box = None
    if shrink is not None and min(width, height) > shrink:
        ratio = shrink / min(width, height)
        target = max(shrink, round(width * ratio)), max(shrink, round(height * ratio))
        # A JPEG file is then decoded at a half, a quarter or an eighth of its size.
        _, box = image.draft(None, target) or (None, None)
    image.load()
    orientation = find_orientation(image, type(image).getexif)
    mode = "L" if (channels or (1 if is_gray(image) else 3)) == 1 else "RGB"
    image = _convert(image, mode)
    if target is not None:
        image = image.resize(target, Image.Resampling.BICUBIC, box)
    pixels = np.asarray(_turn(image, orientation))
    return np.array(pixels if pixels.ndim == 3 else pixels[..., None])


def _convert(image, mode):
    from PIL import Image

    if image.mode.startswith("I;") or image.mode in ("I", "F"):
        image = _from_deep(image)
    elif image.has_transparency_data:
        canvas = Image.new("RGBA", image.size, WHITE)
        canvas.alpha_composite(image.convert("RGBA"))
        image = canvas.convert("RGB")
    elif image.mode == "P":
        image = image.convert("RGB")
    return image if image.mode == mode else image.convert(mode)


def _from_deep(image):
    """Reduces a gray image of 16 bits to 8 bits; Pillow would clip it at 255."""
    from PIL import Image

    pixels = np.asarray(image)
    if image.mode == "F" or pixels.min() < 0 or pixels.max() > 65535:
        raise DataError("gray pixels of 32 bits; 8 or 16 bits are expected")
    # Some versions of Pillow read 16 bits as mode I.
    return Image.fromarray(np.rint(pixels / 257).astype(np.uint8))


def _turn(image, orientation):
    # `ImageOps.exif_transpose` fails on EXIF data that it cannot write back.
    from PIL import Image

    turn = Image.Transpose
    methods = {
        2: turn.FLIP_LEFT_RIGHT,
        3: turn.ROTATE_180,
        4: turn.FLIP_TOP_BOTTOM,
        5: turn.TRANSPOSE,
        6: turn.ROTATE_270,
        7: turn.TRANSVERSE,
        8: turn.ROTATE_90,
    }
    return image.transpose(methods[orientation]) if orientation > 1 else image
