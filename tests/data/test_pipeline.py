"""What the pipelines of a data set yield, in which order."""

import dataclasses

import numpy as np
import pytest
from made_images import arrays
from made_images import batches
from made_images import write_images_of_many_sizes
from PIL import Image

import cct_keras
from cct_keras.recipes.rows import find_recipe

PLAIN = find_recipe(
    "small", crop="none", flip=0, augment="none", label_smoothing=0, batch_size=8
)
PADDED = dataclasses.replace(PLAIN, crop="padded", flip=0.5)


def test_evaluation_keeps_order_and_the_last_batch():
    data = cct_keras.load_data((arrays(40), arrays(21, seed=2)))
    found = batches(data.pipeline("test", 8))
    assert [len(labels) for _, labels in found] == [8, 8, 5]
    images = np.concatenate([images for images, _ in found])
    np.testing.assert_array_equal(images, data.test.images.array)
    labels = np.concatenate([labels for _, labels in found])
    np.testing.assert_array_equal(labels.argmax(1), data.test.labels)
    assert labels.shape == (21, 4)


def test_an_epoch_has_every_image_once():
    data = cct_keras.load_data(arrays(64), validation=0.25, test=0.34)
    assert len(data.train) % 8 == 0
    seen = [
        x
        for images, _ in batches(data.training_pipeline(PLAIN, epochs=1))
        for x in images
    ]
    known = {image.astype("float32").tobytes() for image in data.train.images}
    assert {image.tobytes() for image in seen} == known
    assert len(seen) == len(data.train)


def test_training_and_evaluation_see_the_same_part_of_an_image(tmp_path):
    """Three colors side by side: a square keeps the one in the middle."""
    strip = np.zeros((32, 96, 3), "uint8")
    strip[:, :32, 0] = strip[:, 32:64, 1] = strip[:, 64:, 2] = 200
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for i in range(12):
            Image.fromarray(strip).save(tmp_path / name / f"{i}.png")
    data = cct_keras.load_data(tmp_path, image_size=32)
    for pipeline in (data.training_pipeline(PLAIN, epochs=1), data.pipeline("test")):
        images, _ = batches(pipeline, 1)[0]
        assert images[..., 1].min() > 190
        assert images[..., [0, 2]].max() < 10


def test_labels_stay_with_their_images():
    x = np.repeat(np.arange(40, dtype="uint8"), 8 * 8 * 3).reshape(40, 8, 8, 3)
    data = cct_keras.load_data((x, np.arange(40) % 4))
    for images, labels in batches(data.training_pipeline(PLAIN, epochs=1)):
        np.testing.assert_array_equal(images[:, 0, 0, 0] % 4, labels.argmax(1))


def test_images_of_many_sizes(tmp_path):
    write_images_of_many_sizes(tmp_path)
    data = cct_keras.load_data(tmp_path, image_size=24)
    recipe = dataclasses.replace(PLAIN, crop="resized", flip=0.5)
    first = batches(data.training_pipeline(recipe, epochs=1))
    again = batches(data.training_pipeline(recipe, epochs=1))
    assert first[0][0].shape == (8, 24, 24, 3)
    assert len({image.tobytes() for image in first[0][0]}) == 8
    for one, other in zip(first, again, strict=True):
        np.testing.assert_array_equal(one[0], other[0])
    plain = batches(data.training_pipeline(PLAIN, epochs=1))
    assert plain[0][0].shape == (8, 24, 24, 3)


@pytest.mark.parametrize("crop", ["none", "padded"])
def test_images_that_are_fitted_on_the_way_are_the_same(tmp_path, monkeypatch, crop):
    """Once for all epochs, or in every epoch where memory is short."""
    recipe = dataclasses.replace(PLAIN, crop=crop, flip=0.5)
    write_images_of_many_sizes(tmp_path)
    data = cct_keras.load_data(tmp_path, image_size=(20, 24))
    once = batches(data.training_pipeline(recipe, epochs=2))
    monkeypatch.setattr("cct_keras.data.fitting.memory_budget", lambda: 1000)
    each_time = batches(data.training_pipeline(recipe, epochs=2))
    assert once[0][0].shape == (8, 20, 24, 3)
    for (a, la), (b, lb) in zip(once, each_time, strict=True):
        np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(la, lb)


def test_batches_of_a_pipeline_have_a_known_shape(tmp_path):
    write_images_of_many_sizes(tmp_path)
    data = cct_keras.load_data(tmp_path, image_size=24)
    for recipe in (PLAIN, dataclasses.replace(PLAIN, crop="resized")):
        images, labels = data.training_pipeline(recipe).element_spec
        assert (images.shape, labels.shape) == ((8, 24, 24, 3), (8, 2))
    images, labels = data.pipeline("train").element_spec
    assert (images.shape[1:], labels.shape[1:]) == ((24, 24, 3), (2,))


def test_keras_cv_refuses_gray_images():
    gray = cct_keras.load_data(arrays(40, channels=1))
    with pytest.raises(ValueError, match="color images only"):
        gray.training_pipeline(dataclasses.replace(PLAIN, augment="keras_cv"))


@pytest.mark.integration
@pytest.mark.filterwarnings("ignore")
def test_keras_cv_goes_on_where_it_was():
    recipe = dataclasses.replace(PLAIN, augment="keras_cv")
    data = cct_keras.load_data(arrays(40))
    whole = batches(data.training_pipeline(recipe, epochs=2, seed=5))
    later = batches(data.training_pipeline(recipe, first_epoch=1, epochs=2, seed=5))
    plain = batches(data.training_pipeline(PLAIN, epochs=2, seed=5))
    for (a, _), (b, _) in zip(whole[len(whole) // 2 :], later, strict=True):
        np.testing.assert_array_equal(a, b)
    assert not np.array_equal(whole[0][0], plain[0][0])


@pytest.mark.parametrize(("channels", "same"), [(3, "auto"), (1, "none")])
def test_auto_color_spares_gray_images(channels, same):
    data = cct_keras.load_data(arrays(40, channels=channels))
    found, expected = (
        batches(
            data.training_pipeline(dataclasses.replace(PLAIN, augment=kind), epochs=1)
        )
        for kind in ("auto-color", same)
    )
    for (a, _), (b, _) in zip(found, expected, strict=True):
        np.testing.assert_array_equal(a, b)


EVERYTHING = find_recipe(
    "cifar10_1500",
    batch_size=8,
    repeats=2,
    mix_off_epoch=2,
    epochs=4,
    cooldown_epochs=0,
)


@pytest.mark.parametrize(
    "recipe", [EVERYTHING, find_recipe("legacy_200", batch_size=8)]
)
def test_an_epoch_does_not_depend_on_where_a_run_began(recipe):
    """Same seed: same images, same augmentation, same order, for any first epoch."""
    data = cct_keras.load_data(arrays(64, height=16, width=16))
    steps = len(data.train) // 8
    whole = batches(data.training_pipeline(recipe, epochs=3, seed=5))
    later = batches(data.training_pipeline(recipe, first_epoch=2, epochs=3, seed=5))
    assert len(whole) == 3 * steps
    for (a, la), (b, lb) in zip(whole[2 * steps :], later, strict=True):
        np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(la, lb)
    assert not np.array_equal(whole[0][0], whole[steps][0])


def test_another_seed_gives_other_images():
    data = cct_keras.load_data(arrays(64, height=16, width=16))
    one, other = (
        batches(data.training_pipeline(PADDED, epochs=1, seed=seed)) for seed in (5, 6)
    )
    for (a, _), (b, _) in zip(one, other, strict=True):
        assert not np.array_equal(a, b)
        assert {x.tobytes() for x in a} != {x.tobytes() for x in b}


def test_mixing_ends_at_its_epoch():
    recipe = dataclasses.replace(PLAIN, mixup=0.8, cutmix=1.0, mix_off_epoch=1)
    data = cct_keras.load_data(arrays(64))
    steps = len(data.train) // 8
    found = batches(data.training_pipeline(recipe, epochs=2))
    mixed = [bool(((labels > 0) & (labels < 1)).any()) for _, labels in found]
    assert any(mixed[:steps])
    assert not any(mixed[steps:])


def test_label_smoothing():
    recipe = dataclasses.replace(PLAIN, label_smoothing=0.1)
    data = cct_keras.load_data(arrays(64))
    _, labels = batches(data.training_pipeline(recipe, epochs=1), 1)[0]
    np.testing.assert_allclose(np.sort(labels)[:, -1], 0.9 + 0.1 / 4, rtol=1e-6)
    np.testing.assert_allclose(np.sort(labels)[:, 0], 0.1 / 4, rtol=1e-6)


def test_repeated_augmentation():
    recipe = dataclasses.replace(PLAIN, repeats=2)
    data = cct_keras.load_data(arrays(64))
    for images, _ in batches(data.training_pipeline(recipe, epochs=1)):
        np.testing.assert_array_equal(images[0::2], images[1::2])
        assert len({image.tobytes() for image in images}) == 4


def test_fewer_images_than_a_batch():
    recipe = dataclasses.replace(PLAIN, batch_size=512)
    data = cct_keras.load_data(arrays(40))
    found = batches(data.training_pipeline(recipe, epochs=2))
    assert [len(labels) for _, labels in found] == [len(data.train)] * 2


def test_gray_images_are_not_mirrored_by_default():
    recipe = dataclasses.replace(PLAIN, flip="auto")
    ramp = np.tile(np.arange(8, dtype="uint8") * 30, (60, 8, 1))
    gray = cct_keras.load_data((ramp, np.arange(60) % 2))
    color = cct_keras.load_data((np.stack([ramp] * 3, -1), np.arange(60) % 2))
    falling = [
        sum((images[:, 0, 0, 0] > 0).sum() for images, _ in batches(pipeline))
        for pipeline in (
            gray.training_pipeline(recipe, epochs=1),
            color.training_pipeline(recipe, epochs=1),
        )
    ]
    assert falling[0] == 0
    assert 0 < falling[1] < 48


def test_an_epoch_may_begin_at_any_step():
    """As in a run that was interrupted in the middle of it."""
    data = cct_keras.load_data(arrays(64))
    recipe = dataclasses.replace(PADDED, epochs=2, mixup=0.5)
    whole = batches(data.training_pipeline(recipe, seed=3))
    steps = len(whole) // 2
    rest = batches(data.training_pipeline(recipe, first_epoch=1, first_step=2, seed=3))
    assert len(rest) == steps - 2
    for (x, y), (images, labels) in zip(whole[steps + 2 :], rest, strict=True):
        np.testing.assert_array_equal(images, x)
        np.testing.assert_array_equal(labels, y)


def test_mixing_that_something_else_decides():
    data = cct_keras.load_data(arrays(64))
    recipe = dataclasses.replace(PLAIN, epochs=4, mixup=5.0, mix_off_epoch=1)
    for mixes in (True, False):
        found = batches(data.training_pipeline(recipe, mixes=lambda mixes=mixes: mixes))
        pure = [(labels.max(1) == 1).all() for _, labels in found]
        assert not any(pure) if mixes else all(pure)
