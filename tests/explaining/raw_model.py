"""A small model that takes photographs as they are, and a photograph."""

import keras
import numpy as np
from small import small_model

from cct_keras.layers import Preprocessing


def raw_model(family="CCT", crop=1.0, class_names=None, size=(16, 16), channels=3):
    pictures = keras.Input((None, None, channels), name="images")
    prepared = Preprocessing(
        size,
        mean=(0.4,) * channels,
        std=(0.25,) * channels,
        crop=crop,
        class_names=class_names,
        name="preprocessing",
    )(pictures)
    return small_model(
        family, input_shape=None, input_tensor=prepared, data_format="channels_last"
    )


def photo(height=40, width=64, channels=3, seed=0):
    """Smooth colors, which survive being stored as JPEG."""
    draw = np.random.default_rng(seed)
    y, x = np.mgrid[:height, :width] / max(height, width)
    waves = [
        np.sin(6 * (x * draw.normal() + y * draw.normal() + draw.random()))
        for _ in range(channels)
    ]
    return np.rint(127 + 127 * np.stack(waves, axis=-1)).astype("uint8")
