"""Which runs a study has, and what is refused in one line."""

import pytest

from cct_keras.errors import RecipeError
from cct_keras.recipes.recipe import Recipe
from cct_keras.studies.plan import make_plan

NO_REPEATS = {"seeds": 1, "folds": None}


def names(tries=None, settings=(), **options):
    options = {"seeds": None, "folds": None, **options}
    return [run.name for run in make_plan(tries, dict(settings), **options)]


def test_three_seeds_are_the_default():
    assert names() == ["seed=0", "seed=1", "seed=2"]
    assert names(seeds=2, first_seed=7) == ["seed=7", "seed=8"]


def test_folds_count_from_1_and_have_one_seed():
    plan = make_plan(None, {}, seeds=None, folds=3, first_seed=5)
    assert [run.name for run in plan] == ["fold=1", "fold=2", "fold=3"]
    assert {run.seed for run in plan} == {5}


def test_a_grid():
    tries = {"lr": ["1e-3", 0.002], "augment": ["none", "auto"]}
    assert names(tries, seeds=1) == [
        "lr=0.001,augment=none/seed=0",
        "lr=0.001,augment=auto/seed=0",
        "lr=0.002,augment=none/seed=0",
        "lr=0.002,augment=auto/seed=0",
    ]
    assert make_plan(tries, {}, **NO_REPEATS)[1].group == "lr=0.001, augment=auto"


@pytest.mark.parametrize(
    ("tries", "expected"),
    [
        ({"ema": [None, 0.9]}, ["ema=none", "ema=0.9"]),
        ({"remat": ["yes", False]}, ["remat=yes", "remat=no"]),
        ({"crop_scale": [(0.5, 1)]}, ["crop_scale=0.5-1"]),
        ({"image_size": [(16, 24)]}, ["image_size=16-24"]),
        ({"recipe": ["small", "quick"]}, ["recipe=small", "recipe=quick"]),
        ({"weights": ["../a b/c.keras"]}, ["weights=.._a-b_c.keras"]),
    ],
)
def test_folders_can_be_read_and_written(tries, expected):
    assert [name.split("/")[0] for name in names(tries, seeds=1)] == expected


def test_folders_are_told_apart_and_short():
    found = names({"weights": ["a/b", "a?b", "x" * 400]}, seeds=1)
    folders = {name.split("/")[0] for name in found}
    assert len(folders) == 3
    assert max(map(len, folders)) <= 130
    assert found == names({"weights": ["a/b", "a?b", "x" * 400]}, seeds=1)
    recipes = names({"recipe": [Recipe(), Recipe(lr=1)]}, seeds=1)
    assert len(set(recipes)) == 2


@pytest.mark.parametrize(
    ("tries", "options", "message"),
    [
        ({"lrr": [1]}, {}, "unknown recipe field 'lrr'. Did you mean: lr?"),
        ({"lr": []}, {}, "a list of one value or more for lr. Received: \\[\\]"),
        ({"lr": 1e-3}, {}, "a list of one value or more for lr. Received: 0.001"),
        ({"variant": "cct"}, {}, "a list of .* for variant. Received: 'cct'"),
        ({"lr": [1, "1.0"]}, {}, "lr would be tried twice with 1.0"),
        ({"lr": ["fast"]}, {}, "`lr` must be float. Received: lr='fast'"),
        ({"seed": [1, 2]}, {}, "seed cannot be tried"),
        (None, {"seeds": 0}, "`seeds` must be an integer of 1 or more.*seeds=0"),
        (None, {"seeds": True}, "`seeds` must be an integer of 1 or more"),
        (None, {"folds": 1}, "`folds` must be an integer of 2 or more.*folds=1"),
        (None, {"seeds": 2, "folds": 2}, "give `seeds` or `folds`, not both"),
        (None, {"settings": {"lrr": 1}}, "unknown recipe field 'lrr'. Did you mean"),
        (
            {"lr": [1]},
            {"settings": {"lr": 2}},
            "lr cannot be set for all runs",
        ),
        (None, {"settings": {"coordinator": "a"}}, "a study runs on one machine"),
    ],
)
def test_refusals(tries, options, message):
    with pytest.raises(RecipeError, match=message) as caught:
        names(tries, **options)
    assert len(str(caught.value).splitlines()) == 1
