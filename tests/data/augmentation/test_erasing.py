"""Random erasing against timm's boxes."""

import math
import random

import numpy as np
import pytest
import tensorflow as tf
from pictures import SEED
from pictures import noise_images
from scipy import stats

from cct_keras.data.augmentation.erasing import random_erasing
from cct_keras.data.augmentation.settings import Augmentation

MEAN, STD = (0.49, 0.48, 0.45), (0.25, 0.24, 0.26)


def timm_box(generator, height, width):
    for _ in range(10):
        area = generator.uniform(0.02, 1 / 3) * height * width
        aspect = math.exp(generator.uniform(math.log(0.3), math.log(10 / 3)))
        h, w = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if w < width and h < height:
            return h, w
    return 0, 0


@pytest.mark.parametrize("probability", [0.0, 0.25, 1.0])
def test_random_erasing(probability):
    count, height, width = 3000, 20, 16
    images = tf.fill((count, height, width, 3), -1000.0)
    result = random_erasing(
        images, SEED, Augmentation(erase_prob=probability), mean=MEAN, std=STD
    ).numpy()
    erased = result != -1000
    assert (erased.all(-1) == erased.any(-1)).all()
    erased = erased[..., 0]
    happened = erased.any((1, 2))
    error = math.sqrt(probability * (1 - probability) / count)
    assert abs(happened.mean() - probability) <= 5 * error
    if not probability:
        return
    rows, columns = erased.any(2).sum(1)[happened], erased.any(1).sum(1)[happened]
    np.testing.assert_array_equal(erased.sum((1, 2))[happened], rows * columns)
    # Never the full height or width
    assert rows.max() < height
    assert columns.max() < width
    generator = random.Random(0)
    expected = np.array([timm_box(generator, height, width) for _ in range(3000)])
    assert stats.ks_2samp(rows, expected[:, 0]).pvalue > 1e-3
    assert stats.ks_2samp(columns, expected[:, 1]).pvalue > 1e-3
    assert stats.ks_2samp(rows * columns, expected.prod(1)).pvalue > 1e-3
    # All places are reached, the corners too.
    assert erased.any(0).all()
    values = (result[erased] / 255 - MEAN) / STD
    np.testing.assert_allclose(values.mean(0), 0, atol=0.02)
    np.testing.assert_allclose(values.std(0), 1, atol=0.02)
    assert len(np.unique(values)) > 0.95 * values.size


def test_random_erasing_gives_up_if_no_box_fits():
    images = tf.constant(noise_images(), tf.float32)
    always = Augmentation(erase_prob=1.0)
    result = random_erasing(images, SEED, always, mean=MEAN, std=STD, area=(2.0, 3.0))
    np.testing.assert_array_equal(result, images)
