"""The command that trains a run again, from the settings that the run recorded."""

import pathlib
from collections.abc import Mapping

from cct_keras.errors import RecipeError
from cct_keras.hub import is_hub
from cct_keras.recipes.recipe import FIELDS
from cct_keras.recipes.rows import RECIPES
from cct_keras.recipes.rows import find_recipe
from cct_keras.recipes.run_settings import recorded_split_seed

# What the command says by options of its own, or not at all.
OWN_OPTIONS = ("variant", "weights", "teacher", "image_size", "epochs", "about")
# What data and weights decide where a recipe leaves it open, so that it is decided
# again; and the value that stands for "open".
DECIDED = {"eval_crop": None, "activation": "auto", "positional_embedding": "auto"}


def find_base(settings: Mapping) -> tuple[str, dict]:
    """The recipe that comes nearest to recorded settings, and what differs from it.

    Args:
        settings: As `run.json` holds them.

    Returns:
        The name of the recipe, and the fields that differ.

    Example:

    >>> find_base({"epochs": 50, "lr": 0.01})
    ('small', {'lr': 0.01})
    """
    best = None
    for name in RECIPES:
        try:
            recipe = find_recipe(name, epochs=settings.get("epochs"))
        except RecipeError:
            continue
        if recipe.weights is not None and settings.get("weights") is None:
            # No option takes the weights of a recipe away.
            continue
        differing = {
            field: settings[field]
            for field in FIELDS
            if field in settings
            and field not in OWN_OPTIONS
            and not _same(field, settings[field], getattr(recipe, field))
        }
        if best is None or len(differing) < len(best[1]):
            best = name, differing
    return best


def training_command(settings: Mapping) -> list[str]:
    """The words of a command that trains with these settings.

    Args:
        settings: As `run.json` holds them.

    Returns:
        The words, from `cct-keras` on. The data have the name that they had; where
        they are is not recorded.

    Example:

    >>> " ".join(training_command({"data": "digits", "epochs": 50, "seed": 0}))
    'cct-keras train digits --recipe small --epochs 50 --seed 0'
    """
    recipe, differing = find_base(settings)
    words = ["cct-keras", "train", str(settings["data"])]
    if settings.get("folds"):
        words = ["cct-keras", "study", words[2], "--folds", str(settings["folds"])]
    if settings.get("variant") is not None:
        words += ["--variant", settings["variant"]]
    words += ["--recipe", recipe]
    if settings.get("minutes") is not None:
        words += ["--minutes", f"{settings['minutes']:g}"]
    else:
        words += ["--epochs", str(settings["epochs"])]
    for name in ("weights", "teacher"):
        if settings.get(name) is not None:
            words += [f"--{name}", without_folder(settings[name])]
    if settings.get("image_size") is not None:
        words += ["--image-size", *_texts(settings["image_size"])]
    for name, value in differing.items():
        words += [f"--{name.replace('_', '-')}", *_texts(value)]
    words += ["--seed", str(settings.get("seed", 0))]
    if recorded_split_seed(settings):
        words += ["--split-seed", str(recorded_split_seed(settings))]
    return words


def without_folder(source: str) -> str:
    """A file by its name alone: where it is on a machine is nobody's business.

    Args:
        source: A tag, an address or a path.

    Example:

    >>> without_folder("/home/me/secret/model.keras"), without_folder("hf://user/repo")
    ('model.keras', 'hf://user/repo')
    """
    return source if is_hub(source) else pathlib.PurePath(source).name


def _same(field, recorded, own):
    if field in DECIDED and own == DECIDED[field]:
        return True
    return recorded == (list(own) if isinstance(own, tuple) else own)


def _texts(value):
    if isinstance(value, (list, tuple)):
        return [text for item in value for text in _texts(item)]
    if isinstance(value, bool):
        return ["yes" if value else "no"]
    return ["none" if value is None else str(value)]
