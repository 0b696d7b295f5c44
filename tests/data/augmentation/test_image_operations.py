"""Every operation against Pillow."""

import numpy as np
import pytest
import tensorflow as tf
from pictures import natural_images
from pictures import noise_images
from PIL import Image
from PIL import ImageEnhance
from PIL import ImageOps

from cct_keras.data.augmentation import operations
from cct_keras.data.augmentation.policies import NAMES

FILL = (10, 20, 30)
AFFINE = {
    "shear_x": lambda s, w, h: (1, s, 0, 0, 1, 0),
    "shear_y": lambda s, w, h: (1, 0, 0, s, 1, 0),
    "translate_x": lambda s, w, h: (1, 0, s * w, 0, 1, 0),
    "translate_y": lambda s, w, h: (1, 0, 0, 0, 1, s * h),
}
PILLOW = {
    "auto_contrast": lambda image, s: ImageOps.autocontrast(image),
    "equalize": lambda image, s: ImageOps.equalize(image),
    "invert": lambda image, s: ImageOps.invert(image),
    # This Pillow refuses to keep no bit at all; timm asks for it.
    "posterize": lambda image, s: (
        ImageOps.posterize(image, s) if s else image.point(lambda value: 0)
    ),
    "solarize": lambda image, s: ImageOps.solarize(image, s),
    "solarize_add": lambda image, s: image.point(
        [min(255, i + int(s)) if i < 128 else i for i in range(256)]
        * len(image.getbands())
    ),
    "color": lambda image, s: ImageEnhance.Color(image).enhance(s),
    "contrast": lambda image, s: ImageEnhance.Contrast(image).enhance(s),
    "brightness": lambda image, s: ImageEnhance.Brightness(image).enhance(s),
    "sharpness": lambda image, s: ImageEnhance.Sharpness(image).enhance(s),
}
ENHANCEMENTS = (0.1, 0.19, 0.6, 0.95, 1.0, 1.3, 1.81, 1.9)
STRENGTHS = {
    "posterize": (0, 1, 2, 3, 4, 6, 7, 8),
    "solarize": (0, 26, 64, 100, 128, 200, 255, 256),
    "solarize_add": (0, 10, 50, 60, 90, 99, 110, 128),
    "color": ENHANCEMENTS,
    "contrast": ENHANCEMENTS,
    "brightness": ENHANCEMENTS,
    "sharpness": ENHANCEMENTS,
    "rotate": (-30.0, -27.0, -12.3, -1.0, 0.0, 4.2, 19.0, 29.9),
    "shear_x": (-0.3, -0.27, -0.1, 0.0, 0.01, 0.123, 0.2, 0.29),
    "shear_y": (-0.3, -0.27, -0.1, 0.0, 0.01, 0.123, 0.2, 0.29),
    "translate_x": (-0.45, -0.41, -0.25, 0.0, 0.01, 0.1, 0.33, 0.44),
    "translate_y": (-0.45, -0.41, -0.25, 0.0, 0.01, 0.1, 0.33, 0.44),
}


def with_pillow(name, image, strength):
    height, width, channels = image.shape
    fill = FILL if channels == 3 else round(np.mean(FILL))
    image = Image.fromarray(image if channels == 3 else image[..., 0])
    if name == "rotate":
        image = image.rotate(strength, Image.Resampling.BILINEAR, fillcolor=fill)
    elif name in AFFINE:
        image = image.transform(
            image.size,
            Image.Transform.AFFINE,
            AFFINE[name](strength, width, height),
            Image.Resampling.BILINEAR,
            fillcolor=fill,
        )
    else:
        image = PILLOW[name](image, strength)
    return np.asarray(image, "float32").reshape(height, width, channels)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("make", [noise_images, natural_images])
@pytest.mark.parametrize("name", NAMES)
def test_operation_equals_pillow(name, make, channels):
    images = make(channels)
    strength = STRENGTHS.get(name, (0.0,) * len(images))
    more = {} if name in PILLOW else {"fill": FILL}
    result = getattr(operations, name)(
        tf.constant(images, tf.float32), tf.constant(strength, tf.float32), **more
    ).numpy()
    expected = [with_pillow(name, *pair) for pair in zip(images, strength, strict=True)]
    # Pillow rounds the gray image or the smoothed one, and then the result.
    exact = ("equalize", "invert", "posterize", "solarize", "solarize_add")
    assert np.abs(result - expected).max() <= (0 if name in exact else 2)
    assert result.min() >= 0
    assert result.max() <= 255.001


def test_color_needs_three_channels():
    images = tf.constant(noise_images(channels=2), tf.float32)
    result = operations.color(images, tf.fill((8,), 0.1))
    np.testing.assert_array_equal(result, images)


def test_tiny_images_have_no_inside_to_sharpen():
    images = tf.constant(noise_images(height=2), tf.float32)
    np.testing.assert_array_equal(
        operations.sharpness(images, tf.fill((8,), 0.1)), images
    )
