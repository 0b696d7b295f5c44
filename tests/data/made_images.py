"""Small images as arrays and as files, and batches of pipelines as arrays."""

import numpy as np
from PIL import Image


def pixels(count, height=8, width=8, channels=3, seed=0):
    shape = (count, height, width, channels)
    return np.random.default_rng(seed).integers(0, 256, shape, "uint8")


def arrays(count=40, classes=4, **size):
    return pixels(count, **size), np.arange(count) % classes


def batches(pipeline, count=None):
    return [
        tuple(np.asarray(part) for part in batch)
        for batch in (pipeline if count is None else pipeline.take(count))
    ]


def write_images(root, names, count, size=(10, 12), suffix="png", seed=0):
    generator = np.random.default_rng(seed)
    for name in names:
        (root / name).mkdir(parents=True)
        for i in range(count):
            image = generator.integers(0, 256, (*size, 3), "uint8")
            Image.fromarray(image).save(root / name / f"{i}.{suffix}")


def write_images_of_many_sizes(root, count=20, smallest=20, largest=60):
    generator = np.random.default_rng(0)
    for name in ("a", "b"):
        (root / name).mkdir(parents=True)
        for i in range(count):
            size = generator.integers(smallest, largest, 2)
            image = generator.integers(0, 256, (*size, 3), "uint8")
            Image.fromarray(image).save(root / name / f"{i:02}.png")
