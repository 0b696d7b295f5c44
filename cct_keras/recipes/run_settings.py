"""What makes one training run different from another, as plain JSON values."""

import dataclasses

from cct_keras.recipes.recipe import Recipe

# They change neither what is trained nor the result.
NOT_COMPARED = ("about", "remat")
# What runs had that were recorded before there was such a setting; otherwise `None`.
EARLIER = {"activation": "gelu", "matrix_lr": 0.02}
# Of runs that were recorded without it, the fingerprint of the data tells the splits.
SPLIT_SEED = "split_seed"


def recipe_settings(recipe: Recipe) -> dict:
    """The fields of a recipe that decide the result of a run.

    Args:
        recipe: The recipe.

    Returns:
        Values by the name of their field.

    Example:

    >>> recipe_settings(Recipe(lr=0.01))["lr"]
    0.01
    """
    fields = dataclasses.asdict(recipe)
    return {name: value for name, value in fields.items() if name not in NOT_COMPARED}


def recorded_split_seed(settings: dict) -> int:
    """The seed of the splits of a recorded run.

    Earlier versions recorded none: their runs had one seed for everything.

    Args:
        settings: Settings by name, as a run recorded them.

    Example:

    >>> recorded_split_seed({"seed": 3, "split_seed": 0})
    0
    >>> recorded_split_seed({"seed": 3})
    3
    """
    return settings.get(SPLIT_SEED, settings.get("seed", 0))


def differing_settings(before: dict, after: dict, length: int = 300) -> str:
    """Says in words what differs between the settings of two runs.

    A setting that is missing counts as what it was before it could be set, which is
    `None` unless `EARLIER` names it: a later version may have more settings than the
    one that recorded the run.

    Args:
        before: Settings by name.
        after: Other settings by name.
        length: Longest text; a longer one is cut off.

    Returns:
        The differences, or an empty text if there are none.

    Example:

    >>> differing_settings({"lr": 0.1, "ema": 0.9}, {"lr": 0.2, "ema": 0.9})
    'lr 0.1 -> 0.2'
    """
    if not (SPLIT_SEED in before and SPLIT_SEED in after):
        before, after = (_without_split_seed(x) for x in (before, after))
    before, after = (
        {**dict.fromkeys({*before, *after}), **EARLIER, **settings}
        for settings in (before, after)
    )
    text = "; ".join(
        f"{name} {before[name]} -> {after[name]}"
        for name in sorted(before)
        if before[name] != after[name]
    )
    return text if len(text) <= length else text[: length - 3] + "..."


def _without_split_seed(settings):
    return {name: value for name, value in settings.items() if name != SPLIT_SEED}
