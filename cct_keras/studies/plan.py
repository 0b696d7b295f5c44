"""Which runs a study has: a grid of tries, each with several seeds or folds."""

import dataclasses
import hashlib
import inspect
import itertools
import os
import re
from collections.abc import Iterable
from collections.abc import Mapping

from cct_keras.errors import RecipeError
from cct_keras.recipes.recipe import FIELDS
from cct_keras.recipes.recipe import Recipe
from cct_keras.recipes.recipe import parse_fields
from cct_keras.spelling import did_you_mean

# Seeds of a study that names neither seeds nor folds.
SEEDS = 3
# Arguments of `train` that the study itself decides, or that are for one run alone.
NOT_TRIED = (
    "data",
    "data_dir",
    "out",
    "seed",
    "split_seed",
    "restart",
    "verbose",
    "log",
    "command",
    "fields",
    "coordinator",
    "num_hosts",
    "host_id",
)
# A folder may have longer names, but they are to be read.
LONGEST_NAME = 120


@dataclasses.dataclass(frozen=True)
class PlannedRun:
    """One run of a study.

    Attributes:
        name: Its folder within that of the study.
        group: Which try it is of, in words.
        values: The values that are tried.
        seed: Its seed.
        fold: Its fold, from 1; `None` if it is none of a cross-validation.
    """

    name: str
    group: str
    values: dict
    seed: int
    fold: int | None


def make_plan(
    tries: Mapping[str, Iterable] | None,
    settings: Mapping,
    *,
    seeds: int | None,
    folds: int | None,
    first_seed: int = 0,
) -> list[PlannedRun]:
    """Plans the runs of a study.

    Args:
        tries: Values to try by the name of an argument of `train` or a recipe field.
        settings: What all runs have in common, by name.
        seeds: Number of seeds; by default three, if there are no folds.
        folds: Number of folds.
        first_seed: The first of the seeds; that of all folds.

    Returns:
        The runs of one try after the other.

    Raises:
        RecipeError: There is no such argument, no value to try, or no run.

    Example:

    >>> plan = make_plan({"lr": ["1e-3", 0.002]}, {}, seeds=2, folds=None)
    >>> [run.name for run in plan]
    ['lr=0.001/seed=0', 'lr=0.001/seed=1', 'lr=0.002/seed=0', 'lr=0.002/seed=1']
    """
    check_repeats(seeds, folds)
    known = known_settings()
    _check_names(settings, known)
    if folds is None:
        count = SEEDS if seeds is None else seeds
        repeats = [
            (f"seed={seed}", seed, None)
            for seed in range(first_seed, first_seed + count)
        ]
    else:
        repeats = [(f"fold={fold}", first_seed, fold) for fold in range(1, folds + 1)]
    grid = _grid(tries or {}, settings, known)
    folders = _folders(grid)
    return [
        PlannedRun(f"{folder}/{name}" if folder else name, group, values, seed, fold)
        for folder, (group, values) in zip(folders, grid, strict=True)
        for name, seed, fold in repeats
    ]


def check_repeats(seeds: int | None, folds: int | None) -> None:
    """Refuses numbers of seeds or folds that make no study.

    Args:
        seeds: Number of seeds, or `None`.
        folds: Number of folds, or `None`.
    """
    if seeds is not None and folds is not None:
        raise RecipeError(
            "give `seeds` or `folds`, not both: the folds are runs of one seed. "
            f"Received: seeds={seeds}, folds={folds}"
        )
    _check_count("seeds", seeds, 1)
    _check_count("folds", folds, 2)


def known_settings() -> tuple[str, ...]:
    """The names that a study takes: recipe fields and arguments of `train`.

    Example:

    >>> {"lr", "recipe", "jit"} <= set(known_settings())
    True
    """
    from cct_keras.training.train import train

    arguments = [x for x in inspect.signature(train).parameters if x not in NOT_TRIED]
    return tuple(dict.fromkeys(x for x in (*arguments, *FIELDS) if x != "about"))


def value_text(value) -> str:
    """A value of a setting as tables and folders show it.

    Args:
        value: The value.

    Example:

    >>> value_text(1e-3), value_text(None), value_text(True), value_text((0.5, 1.0))
    ('0.001', 'none', 'yes', '0.5 1')
    """
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        return " ".join(value_text(item) for item in value)
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() and value < 1e6 else repr(value)
    if isinstance(value, (str, int, os.PathLike)):
        return str(value)
    if isinstance(value, Recipe):
        return f"Recipe {_digest(repr(value))}"
    name = getattr(value, "name", None) or getattr(value, "__name__", None)
    return str(name or type(value).__name__)


# === Names and values ===


def _check_count(name, value, least):
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise RecipeError(
            f"`{name}` must be an integer of {least} or more. "
            f"Received: {name}={value!r}"
        )


def _check_names(names, known):
    for name in names:
        if name in ("coordinator", "num_hosts", "host_id"):
            raise RecipeError(f"a study runs on one machine. Received: {name}")
        if name in ("seed", "split_seed", "out", "data"):
            raise RecipeError(f"{name} cannot be tried: the study decides it")
        if name not in known:
            raise RecipeError(
                f"unknown recipe field {name!r}. {did_you_mean(name, known)}"
            )


def _grid(tries, settings, known):
    """Each try in words, and its values."""
    _check_names(tries, known)
    columns = []
    for name, values in tries.items():
        if settings.get(name) is not None:
            raise RecipeError(
                f"{name} cannot be set for all runs and tried. "
                f"Received: {settings[name]!r}"
            )
        is_list = isinstance(values, Iterable) and not isinstance(values, (str, bytes))
        parsed = [_parse(name, value) for value in values] if is_list else []
        if not parsed:
            raise RecipeError(
                f"`tries` needs a list of one value or more for {name}. "
                f"Received: {values!r}"
            )
        for index, value in enumerate(parsed):
            if value in parsed[:index]:
                raise RecipeError(f"{name} would be tried twice with {value!r}")
        columns.append([(name, value) for value in parsed])
    return [
        (", ".join(f"{name}={value_text(value)}" for name, value in row), dict(row))
        for row in itertools.product(*columns)
    ]


def _parse(name, value):
    # `train` takes a height and a width, too, and models and functions.
    is_text = isinstance(value, (str, int, float, bool))
    if name in FIELDS and name not in ("weights", "teacher") and is_text:
        return parse_fields({name: value})[name]
    return value


def _folders(grid):
    """A folder for each try; those that would be one are told apart by a hash."""
    names = [_as_folder(group) for group, _ in grid]
    return [
        f"{name}-{_digest(repr(values))}" if names.count(name) > 1 else name
        for name, (_, values) in zip(names, grid, strict=True)
    ]


def _as_folder(group):
    text = group.replace(", ", ",").replace(" ", "-")
    text = re.sub(r"[^\w.,=+~-]", "_", text)
    if len(text) <= LONGEST_NAME:
        return text
    return f"{text[: LONGEST_NAME - 9]}-{_digest(text)}"


def _digest(text):
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=4).hexdigest()
