import subprocess
import sys

import pytest

from cct_keras.errors import RecipeError
from cct_keras.recipes.recipe import Recipe
from cct_keras.recipes.rows import RECIPES
from cct_keras.recipes.rows import find_recipe
from cct_keras.recipes.rows import list_recipes
from cct_keras.recipes.run_settings import differing_settings
from cct_keras.recipes.run_settings import recipe_settings

# variant, epochs, batch, lr, min lr, warmup, warmup lr, weight decay, erasing, mixing
# off, crop scale: the table of the authors' files.
PUBLISHED = {
    "cifar10_300": (
        ("cct_7_3x1_32", 300, 128, 5.5e-4, 1e-5, 10, 1e-5, 0.06, 0, 175, (0.8, 1))
    ),
    "cifar10_1500": (
        ("cct_7_3x1_32_sine", 1500, 128, 5e-4, 1e-5, 10, 1e-5, 0.05, 0.25, 0, (0.8, 1))
    ),
    "cifar10_5000": (
        ("cct_7_3x1_32_sine", 5000, 128, 5e-4, 1e-5, 10, 1e-5, 0.05, 0.25, 0, (0.8, 1))
    ),
    "cifar100_300": (
        ("cct_7_3x1_32", 300, 128, 6e-4, 1e-5, 10, 1e-6, 0.06, 0.25, 0, (0.8, 1))
    ),
    "cifar100_1500": (
        ("cct_7_3x1_32_sine", 1500, 128, 7e-4, 1e-5, 10, 1e-6, 0.05, 0.25, 0, (0.8, 1))
    ),
    "cifar100_5000": (
        ("cct_7_3x1_32_sine", 5000, 128, 5e-4, 1e-5, 10, 1e-6, 0.05, 0.25, 0, (0.8, 1))
    ),
    "flowers102": (
        ("cct_7_7x2_224_sine", 300, 96, 5e-4, 1e-5, 10, 1e-6, 0.06, 0.25, 0, (0.8, 1))
    ),
    "imagenet": (
        ("cct_14_7x2_224", 300, 128, 5e-4, 1e-5, 10, 1e-6, 0.05, 0.25, 0, (0.08, 1))
    ),
    "imagenet_384_finetune": (
        ("cct_14_7x2_224", 30, 96, 1e-5, 0, 0, 1e-6, 0, 0.25, 0, (0.08, 1))
    ),
    "flowers102_finetune": (
        ("cct_14_7x2_384", 300, 20, 5e-5, 1e-8, 10, 1e-6, 0.05, 0.25, 0, (0.8, 1))
    ),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_rows(name):
    recipe = find_recipe(name)
    assert PUBLISHED[name] == (
        recipe.variant,
        recipe.epochs,
        recipe.batch_size,
        recipe.lr,
        recipe.min_lr,
        recipe.warmup_epochs,
        recipe.warmup_lr,
        recipe.weight_decay,
        recipe.erase_prob,
        recipe.mix_off_epoch,
        recipe.crop_scale,
    )
    assert (recipe.label_smoothing, recipe.mixup, recipe.cutmix) == (0.1, 0.8, 1.0)
    assert (recipe.mix_prob, recipe.mix_switch_prob, recipe.flip) == (1.0, 0.5, 0.5)
    assert (recipe.augment, recipe.cooldown_epochs) == ("rand-m9-mstd0.5-inc1", 10)
    assert recipe.decay_exempt == "vectors"
    assert recipe.schedule == ("step" if name == "flowers102_finetune" else "cosine")
    assert recipe.about


def test_older_rows():
    for name, batch, warmup in (("legacy_200", 128, 5), ("legacy_200_cct_6", 64, 10)):
        recipe = find_recipe(name)
        assert (recipe.epochs, recipe.lr, recipe.min_lr) == (200, 5e-4, 0)
        assert (recipe.batch_size, recipe.warmup_epochs) == (batch, warmup)
        assert (recipe.augment, recipe.crop, recipe.crop_padding) == (
            "auto",
            "padded",
            4 / 32,
        )
        assert (recipe.weight_decay, recipe.decay_exempt) == (0.03, "nothing")


def test_every_recipe_says_what_it_is():
    assert {"small", "quick", *PUBLISHED} < set(list_recipes())
    assert all(recipe.about for recipe in RECIPES.values())


# === Overrides ===


def test_fewer_epochs_scale_the_rest():
    recipe = find_recipe("cifar10_300", epochs=30)
    assert (recipe.epochs, recipe.warmup_epochs, recipe.cooldown_epochs) == (30, 1, 1)
    assert recipe.mix_off_epoch == 17.5
    assert recipe.total_epochs == 31
    # What is given as well is taken as it is.
    assert find_recipe("cifar10_300", epochs=30, warmup_epochs=5).warmup_epochs == 5


def test_unknown_recipe_names_near_ones():
    with pytest.raises(RecipeError, match="unknown recipe 'smal'. Did you mean: small"):
        find_recipe("smal")


def test_weights_make_the_recipe_finetune():
    assert find_recipe(None) == find_recipe("small")
    tuned = find_recipe(None, weights="runs/x")
    assert tuned.layer_decay == find_recipe("finetune").layer_decay < 1
    assert (tuned.weights, tuned.variant) == ("runs/x", find_recipe("small").variant)


def test_recipes_need_neither_keras_nor_numpy():
    """So that the command line answers at once."""
    code = (
        "import sys\n"
        "import cct_keras.recipes.rows\n"
        "cct_keras.recipes.rows.find_recipe('finetune', weights='imagenet')\n"
        "heavy = {'keras', 'numpy', 'tensorflow', 'jax', 'torch', 'yaml'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert result.stdout.strip() == "[]", result.stderr


# === Settings of runs ===


def test_differences_in_words():
    assert differing_settings({"lr": 1}, {"lr": 1, "unknown": None}) == ""
    assert differing_settings({"lr": 1, "a": 2}, {"lr": 3, "a": 2}) == "lr 1 -> 3"
    # There were runs before it could be set.
    assert differing_settings({}, {"activation": "gelu"}) == ""
    assert differing_settings({}, {"activation": "relu"}) == "activation gelu -> relu"
    # Fields that recipes got later do by default what was done before.
    settings = recipe_settings(Recipe())
    without = {k: v for k, v in settings.items() if k not in ("matrix_lr", "remat")}
    assert differing_settings(without, settings) == ""
    text = differing_settings({}, {f"field_{i}": i for i in range(99)})
    assert len(text) == 300
    assert text.endswith("...")
