"""Images to augment: noise, and waves in few levels."""

import numpy as np

SEED = (3, 7)


def noise_images(channels=3, count=8, height=24, width=32):
    shape = (count, height, width, channels)
    return np.random.default_rng(0).integers(0, 256, shape).astype("uint8")


def natural_images(channels=3, count=8, height=24, width=32):
    """Waves in few levels; one image is flat, one has a flat channel."""
    generator = np.random.default_rng(1)
    wave = generator.uniform(0.03, 0.2, (2, count, 1, 1, channels))
    x, y = np.arange(width)[:, None], np.arange(height)[:, None, None]
    base, depth = generator.uniform(60, 120, (2, count, 1, 1, channels))
    images = base + depth * np.sin(wave[0] * x) * np.cos(wave[1] * y)
    images += generator.normal(0, 4, images.shape)
    images[0], images[1, ..., 0] = 77, 200
    return np.clip(images, 0, 255).astype("uint8")
