"""Writes the sample images from the data sets they are of.

python tests/samples/make.py CIFAR10_JPEG_FOLDER MNIST_IDX_FOLDER
"""

import pathlib
import sys

import numpy as np
from PIL import Image

from cct_keras.data.readers.idx import read_idx
from cct_keras.runtime.image_files import read_image

HERE = pathlib.Path(__file__).parent
COUNT = 20


def main(cifar, mnist):
    """The first test images of every class."""
    for folder in sorted((cifar / "test").iterdir()):
        for path in sorted(folder.iterdir())[:COUNT]:
            write("cifar10_jpeg", folder.name, int(path.stem), read_image(path))
    test = read_idx(mnist).splits["test"]
    for digit in range(10):
        for number in np.flatnonzero(test.labels == digit)[:COUNT]:
            write("mnist", str(digit), number, test.images[number])


def write(tag, name, number, image):
    """One PNG with exactly these pixels."""
    path = HERE / tag / name / f"{number:04}.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.squeeze(image)).save(path, optimize=True)


if __name__ == "__main__":
    main(*map(pathlib.Path, sys.argv[1:]))
