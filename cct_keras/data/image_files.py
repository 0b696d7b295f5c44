"""Many image files at once: their headers, or their pixels, over a pool of threads."""

import concurrent.futures
import os
from collections.abc import Callable
from collections.abc import Iterable

import numpy as np

from cct_keras.errors import DataError
from cct_keras.runtime.image_files import explain_error
from cct_keras.runtime.image_files import find_orientation
from cct_keras.runtime.image_files import is_gray
from cct_keras.runtime.image_files import open_image


def read_headers(
    paths: Iterable[str | os.PathLike],
) -> tuple[np.ndarray, np.ndarray, dict]:
    """Reads sizes and channels of image files, without decoding them.

    Args:
        paths: The files.

    Returns:
        sizes: Integer array `(count, 2)` of the heights and widths of the upright
            images.
        channels: Integer array `(count,)`: 1 for gray images, 3 otherwise.
        broken: The reason by path, for files that are not images. Their sizes and
            channels are 0.

    Example:

    >>> read_headers(["photo.jpg"])[0]  # Needs the file.  # doctest: +SKIP
    array([[480, 640]])
    """
    paths = list(paths)
    found, broken = read_images(paths, _read_header)
    rows = np.array([row or (0, 0, 0) for row in found], np.int64).reshape(-1, 3)
    return rows[:, :2], rows[:, 2], broken


def read_images(
    paths: Iterable[str | os.PathLike], read: Callable
) -> tuple[list[np.ndarray | None], dict]:
    """Applies a function to files, over a pool of threads.

    Args:
        paths: The files.
        read: Function of a path that raises `DataError` for a broken file, such as
            `read_image`.

    Returns:
        results: What `read` returned, in the order of the files; `None` for broken
            files.
        broken: The reason by path, for broken files.

    Example:

    >>> read_images([], len)
    ([], {})
    """
    paths, broken = list(paths), {}

    def attempt(path):
        try:
            return read(path)
        except DataError as error:
            broken[path] = str(error).removeprefix(f"{path}: ")
            return None

    with concurrent.futures.ThreadPoolExecutor() as pool:
        results = list(pool.map(attempt, paths))
    return results, {path: broken[path] for path in paths if path in broken}


def _read_header(path):
    from PIL import Image

    try:
        with open_image(path) as image:
            width, height = image.size
            # The method that PNG images override would decode the whole image.
            orientation = find_orientation(image, Image.Image.getexif)
            # Pillow turns the size of a TIFF file by itself.
            if orientation >= 5 and image.format != "TIFF":
                width, height = height, width
            return height, width, 1 if is_gray(image) else 3
    except Exception as error:
        raise DataError(f"{path}: {explain_error(path, error)}") from error
