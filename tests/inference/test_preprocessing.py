"""The layer that prepares raw images, compared with Pillow."""

import keras
import numpy as np
import pytest
from PIL import Image

import cct_keras


@pytest.mark.backend
def test_preprocessing_layer_against_pillow():
    """A downscaled photograph-like image, cut to the aspect ratio of the model."""
    rows, columns = np.mgrid[:90, :120]
    image = 127 + 60 * np.sin(rows / 9) + 50 * np.cos(columns / 11)
    image = np.stack([image, image[::-1], image[:, ::-1]], -1).astype("uint8")
    mean, std = (0.4, 0.5, 0.6), (0.2, 0.25, 0.3)
    layer = cct_keras.layers.Preprocessing((30, 30), mean=mean, std=std, crop=0.8)
    found = keras.ops.convert_to_numpy(layer(image[None]))[0]
    # 90 x 90 in the middle, 0.8 of it: 72 x 72 from (9, 24).
    cut = Image.fromarray(image).crop((24, 9, 96, 81))
    expected = np.asarray(cut.resize((30, 30), Image.Resampling.BICUBIC)) / 255
    np.testing.assert_allclose(found * std + mean, expected, atol=1.5 / 255)
    ready = np.full((2, 30, 30, 3), 255 * 0.4)
    found = keras.ops.convert_to_numpy(layer(ready))
    np.testing.assert_allclose(found[..., 0], 0, atol=1e-5)
