"""Some of the images of a folder as arrays, for benchmarks that train on few."""

import pathlib

import numpy as np

from cct_keras.runtime.image_files import read_image
from cct_keras.runtime.listing import list_images


def read_images(folder: pathlib.Path, chosen: slice) -> tuple[np.ndarray, np.ndarray]:
    """Reads some images of every class of `<folder>/<class>/*`.

    Args:
        folder: A folder with one folder of images for each class.
        chosen: Which images of each class, in the order of their names.

    Returns:
        Pixels, `(count, height, width, channels)`, and labels.
    """
    classes = sorted(path for path in folder.iterdir() if path.is_dir())
    files = [(f, i) for i, c in enumerate(classes) for f in list_images(c)[chosen]]
    images = [read_image(file) for file, _ in files]
    return np.stack(images), np.array([label for _, label in files])
