"""The record of augmentation: its defaults, its checks, its notation."""

import dataclasses

import pytest
import tensorflow as tf
from pictures import SEED

import cct_keras
from cct_keras.data.augmentation.policies import rand_augment
from cct_keras.data.augmentation.settings import CHOICES
from cct_keras.data.augmentation.settings import FIELDS
from cct_keras.data.augmentation.settings import RANGES
from cct_keras.data.augmentation.settings import Augmentation
from cct_keras.data.augmentation.settings import parse_rand_augment
from cct_keras.errors import RecipeError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("rand-m9-mstd0.5-inc1", (9.0, 0.5, 2, 0.5)),
        ("rand-m15-n2-mstd0.5-p0.3-inc1", (15.0, 0.5, 2, 0.3)),
        ("rand-inc1-n3-m7.5-p1", (7.5, 0.0, 3, 1.0)),
        ("rand-inc1", (10.0, 0.0, 2, 0.5)),
    ],
)
def test_parse_rand_augment(text, expected):
    names = ("magnitude", "noise", "operations", "probability")
    parsed = parse_rand_augment(text)
    assert parsed == dict(zip(names, expected, strict=True))
    rand_augment(tf.zeros((1, 4, 4, 3)), SEED, **parsed)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "''"),
        ("augmix-m9-inc1", "'augmix'"),
        ("rand-m9-mstd0.5", "'inc1'"),
        ("rand-m9-inc0", "'inc0'"),
        ("rand-m9-inc1-mmax10", "'mmax10'"),
        ("rand-m9-w0-inc1", "'w0'"),
        ("rand-m-inc1", "'m'"),
        ("rand-m9-m8-inc1", "'m8'"),
        ("rand-m9.5.1-inc1", "'m9.5.1'"),
        ("rand-n0-inc1", "'n0'"),
        ("rand-n1.5-inc1", "'n1.5'"),
        ("rand-p1.5-inc1", "'p1.5'"),
        ("rand-mstd101-inc1", "'mstd101'"),
        ("rand-m-9-inc1", "'m'"),
        ("rand--inc1", "''"),
    ],
)
def test_parse_rand_augment_names_the_part(text, part):
    with pytest.raises(RecipeError, match=part):
        parse_rand_augment(text)


def test_every_field_is_checked():
    """A field is checked by a range, by its choices or by a rule of its own."""
    own_rules = {"crop_scale", "augment"}
    assert {*RANGES, *CHOICES, *own_rules} == set(FIELDS)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"mixup": -1}, "`mixup` must be 0 or more. Received: mixup=-1"),
        ({"label_smoothing": 2}, "`label_smoothing` must be from 0 to 1. Received"),
        ({"repeats": 0}, "`repeats` must be 1 or more"),
        ({"crop": "center"}, "`crop` must be one of auto, resized, padded, none"),
        ({"crop_scale": (0.8, 0.5)}, "`crop_scale` must be two areas in"),
        ({"crop_scale": (0.0, 0.5)}, "`crop_scale` must be two areas in"),
        ({"flip": "often"}, "`flip` must be a probability or one of auto, alt"),
        ({"flip": 1.5}, "`flip` must be from 0 to 1"),
        (
            {"augment": "Auto"},
            "`augment` must be one of none, auto, auto-c",
        ),
        ({"augment": "rand-x"}, "'x' is not understood"),
    ],
)
def test_values_that_are_refused(fields, message):
    with pytest.raises(RecipeError, match=message):
        Augmentation(**fields)


@pytest.mark.parametrize(
    ("channels", "has_model_size", "expected"),
    [
        (3, True, {"flip": 0.5, "crop": "padded", "augment": "auto"}),
        (1, False, {"flip": 0.0, "crop": "resized", "augment": "none"}),
    ],
)
def test_what_auto_means(channels, has_model_size, expected):
    auto = Augmentation(flip="auto", crop="auto", augment="auto-color", mixup=0.7)
    found = auto.resolved(channels=channels, has_model_size=has_model_size)
    assert found == dataclasses.replace(auto, **expected)
    # What is not "auto" stays as it is.
    assert found.resolved(channels=3, has_model_size=True) == found


@pytest.mark.parametrize(("channels", "expected"), [(3, "alternate"), (1, 0.0)])
def test_flips_in_turn_may_be_for_color_images_only(channels, expected):
    everywhere, color_only = (
        Augmentation(flip=flip).resolved(channels=channels, has_model_size=True).flip
        for flip in ("alternate", "alternate-color")
    )
    assert (everywhere, color_only) == ("alternate", expected)


def test_a_recipe_is_an_augmentation():
    recipe = cct_keras.Recipe(mixup=0.8, flip="auto", batch_size=7)
    found = recipe.resolved(channels=1, has_model_size=True)
    assert type(found) is Augmentation
    assert (found.mixup, found.flip) == (0.8, 0.0)
