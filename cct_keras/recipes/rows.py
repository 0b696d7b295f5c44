"""Recipes: each row is the document of a training run."""

import dataclasses

from cct_keras.errors import RecipeError
from cct_keras.recipes.recipe import Recipe
from cct_keras.recipes.recipe import parse_fields
from cct_keras.recipes.yaml_files import read_recipe
from cct_keras.spelling import did_you_mean

# === What several rows have in common ===

# What the search of `benchmarks/recipe_search.py` found for AdamW.
ADAMW = Recipe(
    epochs=50,
    batch_size=64,
    lr=2e-3,
    per_step=True,
    warmup_epochs=3,
    decay_exempt="positions",
    clip_norm=1.0,
    crop="auto",
    attention_dropout=0.0,
    stochastic_depth=0.0,
)
# And with Muon, see `benchmarks/README.md`.
SMALL = dataclasses.replace(
    ADAMW,
    optimizer="muon",
    schedule="linear",
    crop_padding=0.0625,
    flip="alternate-color",
)
PUBLISHED = Recipe(
    cooldown_epochs=10,
    warmup_epochs=10,
    mixup=0.8,
    cutmix=1.0,
    flip=0.5,
    augment="rand-m9-mstd0.5-inc1",
    erase_prob=0.25,
)
OLDER = Recipe(
    epochs=200,
    lr=5e-4,
    min_lr=0.0,
    warmup="inverse",
    warmup_epochs=5,
    weight_decay=0.03,
    decay_exempt="nothing",
    crop="padded",
    flip=0.5,
    augment="auto",
)


def _row(base, about, **fields):
    return dataclasses.replace(base, about=about, **fields)


RECIPES = {
    # === For one modest machine ===
    "small": _row(
        SMALL,
        "A few thousand images, one modest machine: the default.",
        augment="auto-long",
    ),
    "small_adamw": _row(
        ADAMW,
        "`small` before Muon, which trained the shipped weights.",
        augment="auto-color",
    ),
    "quick": _row(
        SMALL,
        "A first look in a tenth of the time of `small`.",
        epochs=5,
        warmup_epochs=0.5,
        label_smoothing=0.0,
    ),
    "finetune": _row(
        ADAMW,
        "From trained weights to a few hundred images of something else; the default "
        "if there are weights to start from.",
        batch_size=32,
        lr=1e-3,
        layer_decay=0.75,
        attention_dropout=None,
        stochastic_depth=None,
    ),
    # === The authors' published runs ===
    "cifar10_300": _row(
        PUBLISHED,
        "CCT-7/3x1 on CIFAR-10, 300 epochs; "
        "published 96.53 %, the best epoch on the test images.",
        variant="cct_7_3x1_32",
        epochs=300,
        lr=5.5e-4,
        warmup_lr=1e-5,
        weight_decay=0.06,
        erase_prob=0.0,
        mix_off_epoch=175,
    ),
    "cifar10_1500": _row(
        PUBLISHED,
        "CCT-7/3x1 with sine positions on CIFAR-10, 1500 epochs; "
        "published 97.48 %, the best epoch on the test images.",
        variant="cct_7_3x1_32_sine",
        epochs=1500,
        warmup_lr=1e-5,
    ),
    "cifar10_5000": _row(
        PUBLISHED,
        "CCT-7/3x1 with sine positions on CIFAR-10, 5000 epochs; "
        "published 98.00 %, the best epoch on the test images.",
        variant="cct_7_3x1_32_sine",
        epochs=5000,
        warmup_lr=1e-5,
    ),
    "cifar100_300": _row(
        PUBLISHED,
        "CCT-7/3x1 on CIFAR-100, 300 epochs; "
        "published 80.92 %, the best epoch on the test images.",
        variant="cct_7_3x1_32",
        epochs=300,
        lr=6e-4,
        weight_decay=0.06,
    ),
    "cifar100_1500": _row(
        PUBLISHED,
        "CCT-7/3x1 with sine positions on CIFAR-100, 1500 epochs; "
        "published 82.72 %, the best epoch on the test images.",
        variant="cct_7_3x1_32_sine",
        epochs=1500,
        lr=7e-4,
    ),
    "cifar100_5000": _row(
        PUBLISHED,
        "CCT-7/3x1 with sine positions on CIFAR-100, 5000 epochs; "
        "published 82.87 %, the best epoch on the test images.",
        variant="cct_7_3x1_32_sine",
        epochs=5000,
    ),
    "flowers102": _row(
        PUBLISHED,
        "CCT-7/7x2 with sine positions on Flowers-102; published 97.19 % "
        "of a copy with 6,552 training images, not of the standard split.",
        variant="cct_7_7x2_224_sine",
        epochs=300,
        batch_size=96,
        weight_decay=0.06,
    ),
    "imagenet": _row(
        PUBLISHED,
        "CCT-14/7x2 on ImageNet; published 80.67 %, with 128 images on each device.",
        variant="cct_14_7x2_224",
        epochs=300,
        crop_scale=(0.08, 1.0),
        eval_crop=0.9,
    ),
    "imagenet_384_finetune": _row(
        PUBLISHED,
        "CCT-14/7x2 from 224 to 384 pixels on ImageNet; published 82.71 %.",
        variant="cct_14_7x2_224",
        weights="imagenet",
        image_size=384,
        epochs=30,
        batch_size=96,
        lr=1e-5,
        min_lr=0.0,
        warmup_epochs=0,
        weight_decay=0.0,
        crop_scale=(0.08, 1.0),
        eval_crop=0.9,
    ),
    "flowers102_finetune": _row(
        PUBLISHED,
        "CCT-14/7x2 at 384 pixels from ImageNet to Flowers-102; published 99.76 % "
        "of a copy with 6,552 training images, not of the standard split. "
        "The authors' file names no schedule, which timm takes as a step decay.",
        variant="cct_14_7x2_384",
        weights="imagenet",
        epochs=300,
        batch_size=20,
        lr=5e-5,
        min_lr=1e-8,
        schedule="step",
    ),
    # === The older table, 200 epochs ===
    "legacy_200": _row(
        OLDER,
        "The older runs of 200 epochs: CCT-2/3x2 on CIFAR-10, published 89.17 %, "
        "the best of four runs and of their epochs on the test images.",
        variant="cct_2_3x2_32",
    ),
    "legacy_200_cct_6": _row(
        OLDER,
        "The older runs of CCT-6: CCT-6/3x1 on CIFAR-10, published 94.81 %.",
        variant="cct_6_3x1_32",
        batch_size=64,
        warmup_epochs=10,
    ),
}


def list_recipes() -> list[str]:
    """Names of the recipes.

    Returns:
        The names, the recipes for small machines first.

    Example:

    >>> list_recipes()[:3]
    ['small', 'small_adamw', 'quick']
    """
    return list(RECIPES)


def default_recipe(weights) -> str:
    """The recipe of a run that names none.

    Args:
        weights: Weights that the run starts from, or `None`.

    Returns:
        `"finetune"` if there are weights to start from, and else `"small"`.

    Example:

    >>> default_recipe(None), default_recipe("imagenet")
    ('small', 'finetune')
    """
    return "small" if weights is None else "finetune"


def find_recipe(recipe, *, epochs: int | None = None, **fields) -> Recipe:
    """Finds a recipe and replaces some of its fields.

    Args:
        recipe: A name of `list_recipes()`, a `Recipe`, or the path of a YAML file
            with the fields of `Recipe` or with those of the authors' files. `None`
            is `small`, or `finetune` if `weights` are among the fields.
        epochs: Epochs instead of the recipe's own. The warmup, the cooldown and
            everything else that is counted in epochs are scaled with them.
        **fields: Other fields of `Recipe`, which are taken as they are.

    Returns:
        A `Recipe`.

    Raises:
        RecipeError: There is no such recipe or field, or a value is not possible.

    Example:

    >>> find_recipe("cifar10_300", epochs=30, lr=1e-3).mix_off_epoch
    17.5
    """
    fields = parse_fields(fields)
    if recipe is None:
        recipe = default_recipe(fields.get("weights"))
    if isinstance(recipe, Recipe):
        row = recipe
    elif recipe in RECIPES:
        row = RECIPES[recipe]
    elif str(recipe).endswith((".yml", ".yaml")):
        row = read_recipe(recipe)
    else:
        raise RecipeError(
            f"unknown recipe {recipe!r}. {did_you_mean(str(recipe), RECIPES)} "
            "A file ends in .yml or .yaml."
        )
    if epochs is not None:
        row = _scaled(row, parse_fields({"epochs": epochs})["epochs"])
    return dataclasses.replace(row, **fields)


def _scaled(row, epochs):
    factor = epochs / row.epochs
    warmup = row.warmup_epochs * factor
    return dataclasses.replace(
        row,
        epochs=epochs,
        cooldown_epochs=round(row.cooldown_epochs * factor),
        # If the rate changes once an epoch, a warmup of half an epoch would last for
        # a whole one.
        warmup_epochs=warmup if row.per_step else round(warmup),
        decay_epochs=row.decay_epochs * factor,
        mix_off_epoch=row.mix_off_epoch * factor,
        unfreeze_epochs=row.unfreeze_epochs * factor,
        # The average reaches back over a share of the run.
        ema=row.ema and max(0.0, 1 - (1 - row.ema) / factor),
    )
