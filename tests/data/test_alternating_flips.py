"""Every image is seen from both sides in turn."""

import dataclasses
import itertools

import numpy as np
import pytest
from made_images import batches
from PIL import Image

import cct_keras
from cct_keras.recipes.rows import find_recipe

RECIPE = find_recipe(
    "small", crop="none", flip="alternate", augment="none", batch_size=4, epochs=6
)


def numbered_image(number, height=8, width=8):
    """Blue tells the number of the image, red is at the left."""
    image = np.zeros((height, width, 3), "uint8")
    image[:, : width // 2, 0] = 200
    image[..., 2] = number
    return image


def sides(data, recipe, **arguments):
    """For each epoch `{image: [whether each of its copies is mirrored]}`."""
    found = batches(data.training_pipeline(recipe, **arguments))
    steps = len(data.train) // recipe.batch_size
    result = []
    for start in range(0, len(found), steps):
        seen = {}
        for image in itertools.chain(*(x for x, _ in found[start : start + steps])):
            left, right = np.split(image[..., 0], 2, axis=1)
            number = round(float(np.median(image[..., 2])))
            seen.setdefault(number, []).append(bool(left.sum() < right.sum()))
        result.append(seen)
    return result


@pytest.fixture(scope="module")
def data():
    images = np.stack([numbered_image(number) for number in range(1, 80)])
    found = cct_keras.load_data((images, np.arange(79) % 2))
    assert len(found.train) % RECIPE.batch_size == 0
    return found


@pytest.mark.parametrize("crop", ["none", "padded", "resized"])
def test_each_epoch_shows_the_other_side(data, crop):
    recipe = dataclasses.replace(RECIPE, crop=crop, crop_scale=(0.9, 1.0))
    epochs = sides(data, recipe, epochs=3)
    assert len(epochs[0]) == len(data.train)
    for before, after in itertools.pairwise(epochs):
        assert after == {number: [not side] for number, (side,) in before.items()}
    # The first side is drawn, so that neither is the first for all images.
    share = np.mean([side for (side,) in epochs[0].values()])
    assert 0.25 < share < 0.75


def test_the_first_side_is_decided_by_the_seed(data):
    one, again, other = (
        sides(data, RECIPE, epochs=1, seed=seed)[0] for seed in (1, 1, 2)
    )
    assert one == again != other


def test_a_run_that_goes_on_shows_the_same_sides(data):
    whole = sides(data, RECIPE, epochs=3)
    assert sides(data, RECIPE, first_epoch=2, epochs=3) == whole[2:]


def test_copies_within_an_epoch_alternate(data):
    recipe = dataclasses.replace(RECIPE, repeats=2)
    for epoch in sides(data, recipe, epochs=2):
        assert all(sorted(copies) == [False, True] for copies in epoch.values())


def test_views_of_a_teacher_come_again(data):
    recipe = dataclasses.replace(RECIPE, teacher_views=2, teacher="any")
    first, second, third, fourth = sides(data, recipe, epochs=4)
    assert (third, fourth) == (first, second)
    assert second == {number: [not side] for number, (side,) in first.items()}


def test_parts_of_machines_make_the_whole(data):
    recipe = dataclasses.replace(RECIPE, repeats=2)
    whole = batches(data.training_pipeline(recipe, epochs=2))
    parts = [
        batches(data.training_pipeline(recipe, epochs=2, shard=(i, 2))) for i in (0, 1)
    ]
    for (images, _), (first, _), (second, _) in zip(whole, *parts, strict=True):
        np.testing.assert_array_equal(np.concatenate([first, second]), images)


def test_images_of_many_sizes(tmp_path):
    """They are cropped one by one."""
    for number in range(1, 25):
        folder = tmp_path / "ab"[number % 2]
        folder.mkdir(exist_ok=True)
        image = numbered_image(9 * number, 20 + number // 2, 30 + number)
        Image.fromarray(image).save(folder / f"{number}.png")
    data = cct_keras.load_data(tmp_path, image_size=16)
    recipe = dataclasses.replace(RECIPE, crop="resized", crop_scale=(0.9, 1.0))
    first, second = sides(data, recipe, epochs=2)
    common = first.keys() & second.keys()
    assert len(common) > 8
    assert all(first[number] == [not second[number][0]] for number in common)


@pytest.mark.parametrize("flip", ["alternate", "alternate-color"])
def test_gray_images(flip):
    gray = np.stack([numbered_image(0)[..., 0]] * 79)
    data = cct_keras.load_data((gray, np.arange(79) % 2))
    recipe = dataclasses.replace(RECIPE, flip=flip)
    images = np.concatenate(
        [x for x, _ in batches(data.training_pipeline(recipe, epochs=1))]
    )
    mirrored = (images[:, 0, 0, 0] == 0).mean()
    assert 0.25 < mirrored < 0.75 if flip == "alternate" else mirrored == 0
