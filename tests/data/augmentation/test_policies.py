"""RandAugment and AutoAugment draw what timm and the papers draw."""

import itertools
import math

import numpy as np
import pytest
import tensorflow as tf
from pictures import SEED
from pictures import natural_images
from pictures import noise_images
from scipy import stats

from cct_keras.data.augmentation import operations
from cct_keras.data.augmentation.policies import CIFAR_POLICY
from cct_keras.data.augmentation.policies import NAMES
from cct_keras.data.augmentation.policies import apply_policy
from cct_keras.data.augmentation.policies import auto_augment
from cct_keras.data.augmentation.policies import rand_augment
from cct_keras.data.augmentation.settings import Augmentation


def operate(name, image, strength):
    """One operation on one image; None stands for no operation."""
    if name is None:
        return image
    return getattr(operations, name)(image, tf.constant([strength], tf.float32))


def rand_strengths(name, magnitude):
    """timm's, with both signs."""
    level = magnitude / 10
    for sign in (-1, 1):
        yield {
            "rotate": sign * 30 * level,
            "shear_x": sign * 0.3 * level,
            "shear_y": sign * 0.3 * level,
            "translate_x": sign * 0.45 * level,
            "translate_y": sign * 0.45 * level,
            "posterize": 4 - int(4 * level),
            "solarize": 256 - int(256 * level),
            "solarize_add": min(128, int(110 * level)),
        }.get(name, max(0.1, 1 + sign * 0.9 * level))


def auto_strengths(name, magnitude):
    """Those of the paper, with both signs."""
    for sign in (-1, 1):
        yield {
            "rotate": sign * np.linspace(0, 30, 10)[magnitude],
            "shear_y": sign * np.linspace(0, 0.3, 10)[magnitude],
            "translate_x": sign * np.linspace(0, 150 / 331, 10)[magnitude],
            "translate_y": sign * np.linspace(0, 150 / 331, 10)[magnitude],
            "posterize": np.round(np.linspace(8, 4, 10))[magnitude],
            "solarize": np.linspace(256, 0, 10)[magnitude],
        }.get(name, 1 + sign * np.linspace(0, 0.9, 10)[magnitude])


def check_outcomes(outcomes, results):
    """Compares the images that came out with those expected and how often.

    A random projection stands for an image.
    """
    direction = np.random.default_rng(0).normal(size=results[0].size)
    keys = np.array([np.ravel(image) @ direction for image, _ in outcomes])
    order = np.argsort(keys)
    starts = np.flatnonzero(np.diff(keys[order], prepend=-np.inf) > 0.05)
    share = np.add.reduceat(np.array([share for _, share in outcomes])[order], starts)
    keys = keys[order][starts]
    found = results.reshape(len(results), -1) @ direction
    nearest = np.abs(found[:, None] - keys).argmin(1)
    assert np.abs(found - keys[nearest]).max() < 0.1
    count = np.bincount(nearest, minlength=len(keys))
    error = np.sqrt(len(results) * share * (1 - share))
    assert (np.abs(count - len(results) * share) <= 5 * error + 3).all()
    return len(keys)


@pytest.mark.parametrize("magnitude", [3.0, 9.0, 15.0])
def test_rand_augment_draws_timms_operations(magnitude):
    image = tf.constant(natural_images(count=3, height=16, width=16)[2:], tf.float32)
    results = rand_augment(
        tf.repeat(image, 3000, 0),
        SEED,
        magnitude=magnitude,
        noise=0.0,
        operations=1,
        probability=0.75,
    ).numpy()
    outcomes = [(image, 0.25)]
    for name in NAMES:
        for strength in rand_strengths(name, min(magnitude, 10)):
            outcomes.append((operate(name, image, strength), 0.75 / 15 / 2))
    # Six have no sign, and a low threshold makes one the same as another.
    assert check_outcomes(outcomes, results) >= 1 + 2 * 15 - 6 - 1


def test_rand_augment_noise():
    images = tf.fill((4000, 4, 4, 1), 100.0)
    arguments = {"operations": 1, "probability": 1.0, "magnitude": 5.0, "noise": 1.0}
    results = rand_augment(images, SEED, **arguments).numpy()[:, 0, 0, 0]
    # On a flat image only less brightness gives such values, and broken ones.
    results = results[(results < 100) & (results % 1 != 0)]
    assert abs(len(results) - 4000 / 30) < 60
    levels = (1 - results / 100) / 0.09
    assert stats.kstest(levels, "norm", (5, 1)).pvalue > 1e-3


def test_rand_augment_repeats_with_replacement():
    image = tf.constant(natural_images(count=3)[2:], tf.float32)
    results = rand_augment(tf.repeat(image, 400, 0), SEED, probability=1.0).numpy()
    # Inverted twice is as before: one of 225.
    same = np.abs(results - image).max((1, 2, 3)) < 1e-3
    assert 0 < same.sum() < 12
    assert rand_augment(image, SEED, operations=0) is image


def test_auto_augment_draws_the_policy():
    image = tf.constant(natural_images(count=3, height=16, width=16)[2:], tf.float32)
    results = auto_augment(tf.repeat(image, 4000, 0), SEED).numpy()
    outcomes = []
    for first, p, m, second, q, k in CIFAR_POLICY:
        left = [(first, strength, p / 2) for strength in auto_strengths(first, m)]
        right = [(second, strength, q / 2) for strength in auto_strengths(second, k)]
        left.append((None, 0, 1 - p))
        right.append((None, 0, 1 - q))
        for one, two in itertools.product(left, right):
            if one[2] * two[2]:
                result = operate(two[0], operate(one[0], image, one[1]), two[1])
                outcomes.append((result, one[2] * two[2] / 25))
    assert math.isclose(sum(share for _, share in outcomes), 1)
    assert check_outcomes(outcomes, results) > 90


def test_cifar_policy_is_the_papers():
    assert len(CIFAR_POLICY) == 25
    names = [name for row in CIFAR_POLICY for name in (row[0], row[3])]
    assert set(names) <= set(NAMES)
    counts = {"equalize": 9, "auto_contrast": 7, "translate_y": 5, "sharpness": 5}
    assert {name: names.count(name) for name in counts} == counts


def test_the_record_says_which_policy():
    images = tf.constant(noise_images(), tf.float32)
    fill = (10, 20, 30)

    def apply(augment):
        return apply_policy(images, SEED, Augmentation(augment=augment), fill=fill)

    expected = auto_augment(images, SEED, fill=fill)
    np.testing.assert_array_equal(apply("auto"), expected)
    strong = {"magnitude": 15, "noise": 0.0, "operations": 3, "probability": 1.0}
    expected = rand_augment(images, SEED, fill=fill, **strong)
    np.testing.assert_array_equal(apply("rand-m15-n3-p1-inc1"), expected)
    # keras-cv works later in the pipeline.
    assert apply("none") is apply("keras_cv") is images
