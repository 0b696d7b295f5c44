"""Recipes from YAML files, with the fields of `Recipe` or with those of timm.

The authors' published runs are described by files in timm's format.
"""

import dataclasses
import pathlib

from cct_keras.errors import RecipeError
from cct_keras.models.variants import VARIANTS
from cct_keras.pretrained.catalog import list_weights
from cct_keras.recipes.recipe import FIELDS
from cct_keras.recipes.recipe import Recipe
from cct_keras.recipes.recipe import parse_fields
from cct_keras.spelling import did_you_mean

# timm's name of a field: the name in `Recipe`.
RENAMED = {
    "model": "variant",
    "sched": "schedule",
    "opt": "optimizer",
    "smoothing": "label_smoothing",
    "mixup_prob": "mix_prob",
    "mixup_switch_prob": "mix_switch_prob",
    "mixup_off_epoch": "mix_off_epoch",
    "aa": "augment",
    "reprob": "erase_prob",
    "scale": "crop_scale",
    "crop_pct": "eval_crop",
    "clip_grad": "clip_norm",
    "drop": "dropout",
    "drop_path": "stochastic_depth",
    "hflip": "flip",
}
# Fields of timm that are ignored, because here the data or the machine decide.
IGNORED = (
    "dataset",
    "num_classes",
    "mean",
    "std",
    "interpolation",
    "train_interpolation",
    "train_split",
    "val_split",
    "workers",
    "seed",
    "log_interval",
    "output",
    "experiment",
)
# timm's defaults where they differ from those of `Recipe`.
TIMM_DEFAULTS = {
    "schedule": "step",
    "lr": 0.05,
    "optimizer": "sgd",
    "weight_decay": 2e-5,
    "epochs": 300,
    "cooldown_epochs": 10,
    "warmup_epochs": 3,
    "warmup_lr": 1e-4,
    "min_lr": 1e-6,
    "crop_scale": (0.08, 1.0),
    "flip": 0.5,
    "eval_crop": 0.875,
}
# Fields of timm of which only one value is supported.
FIXED = {"mixup_mode": "batch", "remode": "pixel"}


def read_recipe(path) -> Recipe:
    """Reads a recipe from a YAML file.

    Args:
        path: A file with the fields of `Recipe`, or one in timm's format, which is
            recognized by one of the fields `model`, `sched`, `opt`, `aa` and
            `smoothing`.

    Returns:
        A `Recipe`.

    Example:

    >>> read_recipe("configs/cifar10.yml")  # there is no such file # doctest: +SKIP
    """
    import yaml

    path = pathlib.Path(path)
    try:
        fields = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise RecipeError(f"cannot read {path}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        reason = " ".join(str(error).split())
        raise RecipeError(f"{path} is not YAML: {reason}") from error
    if not isinstance(fields, dict) or not all(isinstance(k, str) for k in fields):
        raise RecipeError(f"{path} must be a mapping of recipe fields")
    fields = {name.replace("-", "_"): value for name, value in fields.items()}
    base = {}
    if {"model", "sched", "opt", "aa", "smoothing"} & set(fields):
        fields, base = _from_timm(fields, path), TIMM_DEFAULTS
    recipe = Recipe(about=f"From {path.name}.")
    return dataclasses.replace(recipe, **{**base, **parse_fields(fields)})


def _from_timm(fields, path):
    known = {*RENAMED, *IGNORED, *FIXED, *FIELDS}
    known |= {"img_size", "amp", "model_ema", "model_ema_decay", "pretrained"}
    result = {}
    for name, value in fields.items():
        if name not in known:
            raise RecipeError(
                f"{path}: unknown field {name!r}. " + did_you_mean(name, known)
            )
        if name in FIXED and value != FIXED[name]:
            raise RecipeError(f"{path}: {name} must be {FIXED[name]!r}, not {value!r}")
        if name in RENAMED:
            result[RENAMED[name]] = value
        elif name in FIELDS:
            result[name] = value
    if "amp" in fields:
        result["precision"] = "mixed" if fields["amp"] else "float32"
    if fields.get("model_ema"):
        result["ema"] = fields.get("model_ema_decay", 0.9998)
    if fields.get("pretrained"):
        result["weights"] = _pretrained_tag(result.get("variant"))
    own_size = getattr(VARIANTS.get(result.get("variant")), "image_size", None)
    if own_size is not None and fields.get("img_size", own_size) != own_size:
        result["image_size"] = fields["img_size"]
    if result.get("augment") is None:
        result.pop("augment", None)
    return result


def _pretrained_tag(variant):
    """The weights that `pretrained: True` means: the authors start from ImageNet."""
    tags = list_weights(variant) if variant in VARIANTS else []
    return "imagenet" if "imagenet" in tags else (tags or [None])[0]
