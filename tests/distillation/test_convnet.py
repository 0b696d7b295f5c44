"""The convnet that teaches: its structure by image size, its stem, its recipe."""

import keras
import numpy as np
import pytest
from teachers import to_numpy

import cct_keras
from cct_keras.distillation.convnet import CONVNET
from cct_keras.distillation.convnet import convnet
from cct_keras.distillation.convnet import convnet_recipe
from cct_keras.distillation.convnet import principal_patterns
from cct_keras.distillation.convnet import suitable_epochs
from cct_keras.distillation.convnet import whiten_stem
from cct_keras.distillation.convnet import whitening_images


def small_convnet(shape, classes=3, **arguments):
    inputs = keras.Input(shape)
    logits = convnet(inputs, classes, **{"widths": (4, 6), **arguments})
    return keras.Model(inputs, logits)


def noise(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


def test_parameters_of_the_whole_convnet():
    """By hand: stem, six convolutions, their shifts and averages, head."""
    inputs = keras.Input((32, 32, 3))
    model = keras.Model(inputs, convnet(inputs, 10))
    stem = 12 * 24 + 24
    convolutions = 9 * (24 * 32 + 32**2 + 32 * 128 + 3 * 128**2)
    normalizations = 3 * (2 * 32 + 4 * 128)
    assert model.count_params() == stem + convolutions + normalizations + 1280


@pytest.mark.backend
@pytest.mark.parametrize(
    ("shape", "classes"),
    [
        ((32, 32, 3), 2),
        ((28, 28, 1), 10),
        ((16, 16, 1), 1000),
        ((8, 8, 3), 2),
        ((5, 7, 1), 2),
        ((1, 1, 3), 2),
        ((24, 100, 3), 5),
        ((64, 48, 1), 3),
    ],
)
def test_it_takes_images_of_any_size(shape, classes):
    model = small_convnet(shape, classes)
    logits = to_numpy(model(noise(2, *shape), training=True))
    assert logits.shape == (2, classes)
    assert np.isfinite(logits).all()


@pytest.mark.parametrize(
    ("side", "groups", "places"), [(16, 2, 3), (32, 3, 3), (64, 3, 3), (224, 4, 3)]
)
def test_large_images_end_in_as_few_places(side, groups, places):
    body = small_convnet((side, side, 3)).get_layer("convnet")
    names = [layer.name for layer in body.layers if layer.name.endswith("conv_2")]
    assert len(names) == groups
    last = body.get_layer(f"group_{groups - 1}_gelu_2")
    assert tuple(last.output.shape[1:3]) == (places, places)


@pytest.mark.backend
def test_both_sides_have_one_answer():
    one = small_convnet((12, 12, 3))
    both = small_convnet((12, 12, 3), both_sides=True)
    both.set_weights(one.get_weights())
    images = noise(4, 12, 12, 3)
    mirrored = images[:, :, ::-1]
    expected = (to_numpy(one(images)) + to_numpy(one(mirrored))) / 2
    for seen in (images, mirrored):
        np.testing.assert_allclose(to_numpy(both(seen)), expected, atol=1e-5)


@pytest.mark.backend
def test_logits_are_float32_in_half_precision(tmp_path):
    model = small_convnet((12, 12, 3), both_sides=True, dtype="mixed_bfloat16")
    assert keras.backend.standardize_dtype(model.output.dtype) == "float32"
    model.save(tmp_path / "convnet.keras")
    stored = keras.models.load_model(tmp_path / "convnet.keras")
    images = noise(4, 12, 12, 3)
    np.testing.assert_array_equal(to_numpy(stored(images)), to_numpy(model(images)))
    policies = {x.dtype_policy.name for x in stored.get_layer("convnet").layers[1:-1]}
    assert policies == {"mixed_bfloat16"}


# === Stem ===


def correlated_images(count=40, side=12, channels=3):
    """Blurred noise, whose neighbors and channels look alike."""
    images = noise(count, side + 2, side + 2, channels)
    images = images[:, :-2, :-2] + images[:, 1:-1, 1:-1] + images[:, 2:, 2:]
    return images + 2 * images.mean(-1, keepdims=True)


def patches(images, size):
    height, width = images.shape[1:3]
    return np.stack(
        [
            images[:, y : y + size, x : x + size]
            for y in range(height - size + 1)
            for x in range(width - size + 1)
        ],
        axis=1,
    )


def test_patterns_make_of_patches_uncorrelated_values_of_unit_variance():
    images = correlated_images()
    kernel = principal_patterns(images, 2, 12)
    values = np.einsum("npyxc,yxcf->npf", patches(images, 2), kernel).reshape(-1, 12)
    np.testing.assert_allclose(values.T @ values / len(values), np.eye(12), atol=0.02)


def test_patterns_of_the_largest_variance_are_kept():
    images = correlated_images()
    every, some = principal_patterns(images, 2, 12), principal_patterns(images, 2, 5)
    np.testing.assert_array_equal(some, every[..., :5])
    # What has a large variance is made smaller.
    assert (np.diff(np.linalg.norm(every.reshape(12, 12), axis=0)) > 0).all()


def test_images_without_any_contrast():
    kernel = principal_patterns(np.zeros((3, 8, 8, 1), "float32"), 2, 4)
    assert np.isfinite(kernel).all()


def test_the_stem_sees_every_pattern_with_both_signs_and_does_not_learn():
    model = small_convnet((12, 12, 3))
    images = correlated_images()
    whiten_stem(model, images)
    stem = model.get_layer("convnet").get_layer("stem")
    kernel = principal_patterns(images, 2, 12)
    expected = np.concatenate([kernel, -kernel], -1)
    np.testing.assert_array_equal(to_numpy(stem.kernel), expected)
    model.compile("sgd", keras.losses.CategoricalCrossentropy(from_logits=True))
    model.train_on_batch(images, np.eye(3)[np.arange(40) % 3])
    np.testing.assert_array_equal(to_numpy(stem.kernel), expected)


def test_whitening_images_are_normalized_and_repeatable(source):
    recipe = convnet_recipe(len(source.train))
    images = whitening_images(source, recipe, seed=3)
    assert (images.shape, images.dtype) == ((128, 16, 16, 1), "float32")
    assert abs(images.mean()) < 0.3
    assert 0.7 < images.std() < 1.3
    np.testing.assert_array_equal(images, whitening_images(source, recipe, seed=3))


# === Recipe ===


def test_few_images_are_seen_more_often_in_smaller_batches():
    counts = (2, 36, 450, 2_250, 10_000, 45_000, 1_200_000)
    recipes = [convnet_recipe(count) for count in counts]
    epochs, batches = (
        [getattr(x, name) for x in recipes] for name in ("epochs", "batch_size")
    )
    assert epochs == sorted(epochs, reverse=True)
    assert batches == sorted(batches)
    assert batches[-2:] == [CONVNET.batch_size] * 2
    for recipe in recipes:
        # The same step for every image.
        assert recipe.lr / recipe.batch_size == pytest.approx(
            CONVNET.lr / CONVNET.batch_size
        )
        assert recipe.warmup_epochs / recipe.epochs == pytest.approx(
            CONVNET.warmup_epochs / CONVNET.epochs
        )


@pytest.mark.parametrize(
    ("images", "epochs", "augment"),
    [(45_000, None, "none"), (45_000, 40, "auto"), (2_250, None, "auto")],
)
def test_long_runs_are_augmented(images, epochs, augment):
    recipe = convnet_recipe(images, epochs=epochs)
    found = recipe.resolved(channels=3, has_model_size=True, epochs=recipe.epochs)
    assert found.augment == augment
    assert convnet_recipe(images, epochs=epochs, augment="none").augment == "none"


def test_a_number_of_epochs_that_is_given_counts():
    recipe = convnet_recipe(2_250, epochs=3, precision="float32")
    assert (recipe.epochs, recipe.precision) == (3, "float32")
    assert suitable_epochs(2_250) > 3


def test_gray_images_are_not_mirrored():
    assert convnet_recipe(100).resolved(channels=1, has_model_size=True).flip == 0
    assert isinstance(CONVNET, cct_keras.Recipe)
