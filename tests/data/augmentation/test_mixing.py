"""Mixup and cutmix against the distributions of the papers."""

import math

import numpy as np
import pytest
import tensorflow as tf
from pictures import SEED
from scipy import stats

from cct_keras.data.augmentation.mixing import mix
from cct_keras.data.augmentation.settings import Augmentation


def mixed(count=600, **fields):
    """Batches of a white square of class 0 and a black one of class 1."""
    images = tf.constant([[[[1.0]]], [[[0.0]]]]) * tf.ones((2, 16, 16, 1))

    @tf.autograph.experimental.do_not_convert
    def mix_by_number(number):
        seed = tf.stack([number, 5])
        return mix(images, tf.eye(2), seed, Augmentation(**fields))

    pairs = tf.data.Dataset.range(count).map(mix_by_number)
    images, labels = zip(*pairs.as_numpy_iterator(), strict=True)
    images, labels = np.stack(images), np.stack(labels)
    np.testing.assert_allclose(labels.sum(-1), 1, atol=1e-6)
    np.testing.assert_allclose(labels[:, 0], labels[:, 1, ::-1], atol=1e-6)
    # A label's share is that of the pixels.
    np.testing.assert_allclose(images[:, 0].mean((1, 2, 3)), labels[:, 0, 0], atol=1e-5)
    return images[:, 0, ..., 0], labels[:, 0, 0]


@pytest.mark.parametrize("alpha", [0.2, 0.8, 3.0])
def test_mixup(alpha):
    images, share = mixed(mixup=alpha, cutmix=0.0)
    assert np.ptp(images, (1, 2)).max() < 1e-6
    assert stats.kstest(share, "beta", (alpha, alpha)).pvalue > 1e-3


def test_cutmix():
    images, share = mixed(mixup=0.0, cutmix=1.0)
    assert set(np.unique(images)) == {0.0, 1.0}
    # The original is the reference: 16 pixels, a side of int(16 sqrt(1 - share))
    generator = np.random.default_rng(0)
    half = (16 * np.sqrt(1 - generator.uniform(size=20000))).astype(int) // 2
    sides = []
    for _ in range(2):
        center = generator.integers(0, 16, half.size)
        sides.append(np.minimum(center + half, 16) - np.maximum(center - half, 0))
    expected = 1 - sides[0] * sides[1] / 256
    assert stats.ks_2samp(share, expected).pvalue > 1e-3
    cut = images == 0
    area = cut.any(1).sum(1) * cut.any(2).sum(1)
    np.testing.assert_array_equal(area, cut.sum((1, 2)))


def test_mix_switches():
    images, share = mixed(
        mixup=0.8, cutmix=1.0, mix_prob=0.6, mix_switch_prob=0.3, count=1000
    )
    # A box without an area counts as unmixed here.
    untouched = (images == 1).all((1, 2))
    mixup = ((images > 0) & (images < 1)).any((1, 2))
    assert abs(mixup.mean() - 0.6 * 0.7) < 5 * math.sqrt(0.42 * 0.58 / 1000)
    assert abs(untouched.mean() - 0.4) < 0.09
    assert (share[untouched] == 1).all()


def test_mix_off():
    images, labels = tf.ones((2, 4, 4, 1)), tf.eye(2)
    result = mix(images, labels, SEED, Augmentation())
    assert result[0] is images
    assert result[1] is labels
    never = Augmentation(mixup=1.0, cutmix=1.0, mix_prob=0.0)
    result = mix(images, labels, SEED, never)
    np.testing.assert_array_equal(result[1], labels)


def test_mix_survives_a_tiny_alpha():
    _, share = mixed(mixup=1e-4, cutmix=0.0, count=20)
    assert np.isfinite(share).all()
