"""Random crops against torchvision's boxes and plain windows."""

import dataclasses
import itertools
import math
import random

import numpy as np
import pytest
import tensorflow as tf
from pictures import SEED
from pictures import noise_images
from scipy import stats

from cct_keras.data.augmentation.crops import padded_crop
from cct_keras.data.augmentation.crops import random_resized_crop
from cct_keras.data.augmentation.settings import Augmentation


def ramps(count, height, width):
    """Images that hold the coordinates of their pixels."""
    y, x = np.mgrid[:height, :width].astype("float32")
    return np.repeat(np.stack([y, x, y * 0], -1)[None], count, 0)


def torchvision_box(generator, height, width, scale, ratio):
    for _ in range(10):
        area = height * width * generator.uniform(*scale)
        aspect = math.exp(generator.uniform(*map(math.log, ratio)))
        w, h = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < w <= width and 0 < h <= height:
            top = generator.randint(0, height - h)
            left = generator.randint(0, width - w)
            return top, left, h, w
    if width / height < min(ratio):
        w, h = width, round(width / min(ratio))
    elif width / height > max(ratio):
        w, h = round(height * max(ratio)), height
    else:
        w, h = width, height
    return (height - h) // 2, (width - w) // 2, h, w


@pytest.mark.parametrize(
    ("size", "scale"),
    [((40, 40), (0.3, 1.0)), ((30, 60), (0.05, 0.9)), ((20, 80), (0.95, 1.0))],
)
def test_random_resized_crop_boxes(size, scale):
    count = 2000
    augmentation = Augmentation(crop_scale=scale, flip=0.3)
    result = random_resized_crop(
        ramps(count, *size), SEED, augmentation, size=(4, 4)
    ).numpy()
    # The sampling points of pixel centers give the box back.
    flipped = result[:, 0, 0, 1] > result[:, 0, 3, 1]
    result[flipped] = result[flipped, :, ::-1]
    slope_y = (result[:, 3, 0, 0] - result[:, 0, 0, 0]) / 3
    slope_x = (result[:, 0, 3, 1] - result[:, 0, 0, 1]) / 3
    top = result[:, 0, 0, 0] + 0.5 - slope_y / 2
    left = result[:, 0, 0, 1] + 0.5 - slope_x / 2
    boxes = np.stack([top, left, 4 * slope_y, 4 * slope_x], 1)
    np.testing.assert_allclose(boxes, np.round(boxes), atol=2e-3)
    boxes = np.round(boxes)
    assert boxes.min() >= 0
    for start, length, full in zip(boxes.T[:2], boxes.T[2:], size, strict=True):
        assert (start + length).max() <= full
        # Small boxes reach the end; the widest image has only one in the middle.
        small = length < full
        assert size == (20, 80) or (start + length)[small].max() == full
    generator = random.Random(0)
    expected = np.array(
        [torchvision_box(generator, *size, scale, (3 / 4, 4 / 3)) for _ in boxes]
    )
    for index in range(4):
        assert stats.ks_2samp(boxes[:, index], expected[:, index]).pvalue > 1e-3
    areas = boxes[:, 2] * boxes[:, 3], expected[:, 2] * expected[:, 3]
    assert stats.ks_2samp(*areas).pvalue > 1e-3
    assert abs(flipped.mean() - 0.3) < 5 * math.sqrt(0.21 / count)


@pytest.mark.parametrize("size", [(24, 32), (1, 1), (50, 7)])
def test_random_resized_crop_of_everything(size):
    images = tf.constant(noise_images(), tf.float32)
    whole = Augmentation(crop_scale=(1.0, 1.0), flip=0.0)
    crop = {"size": size, "ratio": (4 / 3, 4 / 3)}
    result = random_resized_crop(images, SEED, whole, **crop)
    expected = tf.image.resize(images, size)
    np.testing.assert_allclose(result, expected, atol=0.02)
    mirrored = dataclasses.replace(whole, flip=1.0)
    flipped = random_resized_crop(images, SEED, mirrored, **crop)
    np.testing.assert_allclose(flipped, expected[:, :, ::-1], atol=0.02)
    if size == (24, 32):
        np.testing.assert_allclose(result, images, atol=0.02)


def test_random_resized_crop_is_a_resized_crop():
    images = noise_images(count=1).astype("float32").repeat(30, 0)
    marked = np.concatenate([images, ramps(30, 24, 32)[..., :2]], -1)
    augmentation = Augmentation(crop_scale=(0.3, 0.9), flip=0.0)
    result = random_resized_crop(marked, SEED, augmentation, size=(48, 48))
    result = result.numpy()
    # The coordinates tell where each pixel was taken.
    y, x = result[..., 3], result[..., 4]
    y0, x0 = np.floor(y).astype(int), np.floor(x).astype(int)
    y1, x1 = np.minimum(y0 + 1, 23), np.minimum(x0 + 1, 31)
    dy, dx = (y - y0)[..., None], (x - x0)[..., None]
    image = images[0]
    expected = (image[y0, x0] * (1 - dx) + image[y0, x1] * dx) * (1 - dy)
    expected += (image[y1, x0] * (1 - dx) + image[y1, x1] * dx) * dy
    np.testing.assert_allclose(result[..., :3], expected, atol=0.05)
    assert len({tuple(place) for place in y[:, :2, 0].round(3).tolist()}) > 15


def test_padded_crop_cuts_windows():
    image = noise_images(count=1).astype("float32")
    augmentation = Augmentation(crop="padded", crop_padding=2 / 24, flip=0.25)
    result = padded_crop(np.repeat(image, 3000, 0), SEED, augmentation).numpy()
    padded = np.pad(image[0], ((2, 2), (2, 2), (0, 0)))
    windows = {}
    for top, left in itertools.product(range(5), range(5)):
        window = padded[top : top + 24, left : left + 32]
        windows[window.tobytes()] = (top, left, 0)
        windows[window[:, ::-1].tobytes()] = (top, left, 1)
    places = np.array([windows[window.tobytes()] for window in result])
    for axis in (0, 1):
        assert stats.chisquare(np.bincount(places[:, axis])).pvalue > 1e-3
    assert abs(places[:, 2].mean() - 0.25) < 5 * math.sqrt(0.1875 / 3000)
    assert abs(np.corrcoef(places[:, 0], places[:, 1])[0, 1]) < 0.1


def test_without_a_crop_images_are_only_mirrored():
    image = noise_images(count=1).astype("float32")
    augmentation = Augmentation(crop="none", crop_padding=0.5, flip=0.5)
    result = padded_crop(np.repeat(image, 40, 0), SEED, augmentation).numpy()
    expected = {image[0].tobytes(), image[0, :, ::-1].tobytes()}
    assert {image.tobytes() for image in result} == expected
