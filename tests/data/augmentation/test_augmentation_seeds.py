"""The same seed gives the same images, in any order of a pipeline."""

import numpy as np
import pytest
import tensorflow as tf
from pictures import SEED
from pictures import natural_images
from pictures import noise_images

from cct_keras.data.augmentation.crops import padded_crop
from cct_keras.data.augmentation.crops import random_resized_crop
from cct_keras.data.augmentation.erasing import random_erasing
from cct_keras.data.augmentation.mixing import mix
from cct_keras.data.augmentation.policies import auto_augment
from cct_keras.data.augmentation.policies import rand_augment
from cct_keras.data.augmentation.settings import Augmentation

MEAN, STD = (0.49, 0.48, 0.45), (0.25, 0.24, 0.26)
# Each as a function of images and a seed.
FUNCTIONS = {
    "rand_augment": lambda images, seed: rand_augment(images, seed, operations=1),
    "auto_augment": auto_augment,
    "padded_crop": lambda images, seed: padded_crop(
        images, seed, Augmentation(crop="padded", flip=0.5)
    ),
    "random_resized_crop": lambda images, seed: random_resized_crop(
        images, seed, Augmentation(crop_scale=(0.2, 1.0), flip=0.5), size=(20, 28)
    ),
    "random_erasing": lambda images, seed: random_erasing(
        images,
        seed,
        Augmentation(erase_prob=0.7),
        mean=MEAN[: images.shape[-1]],
        std=STD[: images.shape[-1]],
    ),
    "mix": lambda images, seed: mix(
        images,
        tf.zeros((tf.shape(images)[0], 2)),
        seed,
        Augmentation(mixup=0.8, cutmix=1.0),
    )[0],
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_same_seed_same_images(name):
    images, function = natural_images(count=13).astype("float32"), FUNCTIONS[name]
    np.testing.assert_array_equal(function(images, SEED), function(images, SEED))
    assert np.abs(function(images, SEED) - function(images, (3, 8))).max() > 1

    @tf.autograph.experimental.do_not_convert
    def augment(index, batch):
        return function(batch, tf.stack([index, 11]))

    batches = tf.data.Dataset.from_tensor_slices(images).batch(5).repeat(4).enumerate()
    many = batches.map(augment, num_parallel_calls=4, deterministic=True)
    assert many.element_spec.shape[1:] == function(images, SEED).shape[1:]
    first, second = [list(many.as_numpy_iterator()) for _ in range(2)]
    assert [len(batch) for batch in first[:3]] == [5, 5, 3]
    for one, two in zip(first, second, strict=True):
        np.testing.assert_array_equal(one, two)
    assert np.abs(first[0] - first[3]).max() > 1


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name != "mix"])
def test_each_image_draws_its_own(name):
    images = natural_images(count=3).astype("float32")[2:].repeat(40, 0)
    result = FUNCTIONS[name](images, SEED).numpy()
    assert len({image.tobytes() for image in result}) > 15


@pytest.mark.parametrize("channels", [1, 2, 3])
@pytest.mark.parametrize("count", [0, 1, 3])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_any_batch_and_channels(name, count, channels):
    images = tf.constant(noise_images(channels)[:count], tf.float32)
    for dtype in (tf.int32, tf.int64) if channels == 3 else (tf.int64,):
        result = FUNCTIONS[name](images, tf.constant(SEED, dtype))
        assert result.dtype == tf.float32
        assert result.shape[0] == count
        assert result.shape[-1] == channels
        assert np.isfinite(result).all()
        if name != "random_erasing":
            assert ((result >= -0.01) & (result <= 255.01)).numpy().all()
