"""A part of a folder of images as arrays, for benchmarks that train on few."""

import pathlib

import numpy as np

from cct_keras.data.folder import list_images
from cct_keras.data.folder import read_image


def read_images(folder: pathlib.Path, part: slice) -> tuple[np.ndarray, np.ndarray]:
    """Images `part` of every class of `<folder>/<class>/*`, in the order of names.

    Returns:
        Pixels, `(count, height, width, channels)`, and labels.
    """
    classes = sorted(path for path in folder.iterdir() if path.is_dir())
    files = [(f, i) for i, c in enumerate(classes) for f in list_images(c)[part]]
    images = [read_image(file) for file, _ in files]
    return np.stack(images), np.array([label for _, label in files])
