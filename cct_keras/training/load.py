"""The first step of a run: its recipe, its weights, its data and its teacher."""

import dataclasses
import functools
import os
import pathlib
from collections.abc import Callable
from collections.abc import Iterable

import keras

from cct_keras.data.dataset import Dataset
from cct_keras.data.dataset import as_size
from cct_keras.data.dataset import load_data
from cct_keras.distillation.teacher import Teacher
from cct_keras.distillation.teacher import teacher_name
from cct_keras.distributed.devices import Devices
from cct_keras.download import is_url
from cct_keras.errors import CCTKerasError
from cct_keras.errors import DataError
from cct_keras.errors import RecipeError
from cct_keras.inference.classifier import load_classifier
from cct_keras.models.architecture import Architecture
from cct_keras.pretrained.source import RUN_MODEL
from cct_keras.pretrained.source import WeightSource
from cct_keras.pretrained.source import names_tag
from cct_keras.pretrained.source import open_weights
from cct_keras.recipes.recipe import CONVNET_TEACHER
from cct_keras.recipes.recipe import Recipe
from cct_keras.recipes.rows import find_recipe
from cct_keras.recipes.run_settings import recipe_settings


@dataclasses.dataclass(frozen=True)
class Job:
    """What is to be trained: everything that the steps of a run have to know.

    Attributes:
        data: The data.
        recipe: The recipe.
        source: Weights to start from; `None` if there are none, or if the run goes on
            from a snapshot and does not need them any more.
        teacher: The teacher, if there is one.
        seed: Seed of the weights, the order and the augmentation.
        devices: The devices that compute.
        verbose: Whether to show the progress.
        log: Called with each line that is shown.
        lesson: How the teacher was trained, if it was trained for this run: the
            values of its `metrics.json`, and its history.
        minutes: Minutes that the run may take; `None` if the recipe counts its epochs.
    """

    data: Dataset
    recipe: Recipe
    source: WeightSource | None
    teacher: Teacher | None
    seed: int
    devices: Devices
    verbose: bool
    log: Callable[[str], None]
    lesson: tuple[dict, list[dict]] | None = None
    minutes: float | None = None

    @property
    def settings(self) -> dict:
        """What makes this run different from others, as plain JSON values."""
        return {
            **recipe_settings(self.recipe),
            "data": self.data.name,
            "fingerprint": self.data.fingerprint,
            "image_size": self.data.image_size,
            "mean": self.data.mean,
            "std": self.data.std,
            "seed": self.seed,
            "split_seed": self.data.cut.get("seed"),
            **{k: v for k, v in self.data.cut.items() if k in ("fold", "folds")},
            "minutes": self.minutes,
            "backend": keras.config.backend(),
            # The recipe has the path of a teacher, where another model may be by now.
            "teacher_name": self.teacher and self.teacher.name,
        }

    def say(self, *lines: str) -> None:
        """Logs lines, if the progress is to be shown."""
        if self.verbose:
            for line in lines:
                self.log(line)

    def say_notes(self, notes: Iterable[str]) -> None:
        """Logs what a user should know."""
        self.say(*(f"note: {note}" for note in notes))


def load_job(
    data,
    recipe: Recipe,
    *,
    source: WeightSource | None = None,
    teacher=None,
    recorded: dict | None = None,
    image_size: int | tuple[int, int] | None = None,
    data_dir=None,
    seed: int = 0,
    split_seed: int = 0,
    devices: Devices | None = None,
    minutes: float | None = None,
    verbose: bool = False,
    log: Callable[[str], None] | None = None,
) -> Job:
    """Loads everything that a run needs, and checks that it fits together.

    Args:
        data: What `load_data` takes, or what it returned.
        recipe: The recipe, as `resolve_recipe` returns it.
        source: The weights to start from, if they are open.
        teacher: A model, a function, or what `load_classifier` takes. By default the
            teacher of the recipe.
        recorded: Settings of a run that goes on from a snapshot.
        image_size: Side, or height and width, of the model's images.
        data_dir: Where tensorflow-datasets keeps prepared data.
        seed: Seed of the run.
        split_seed: Seed of the splits that are cut off.
        devices: The devices that compute. If something is wrong, the other machines
            are told.
        minutes: Minutes that the run may take.
        verbose: Whether to show the progress.
        log: Called with each line that is shown; by default they are printed.

    Returns:
        A `Job`.

    Example:

    >>> load_job("digits", Recipe()).data.num_classes
    10
    """
    devices = devices or Devices()
    try:
        source = open_start(recipe, source, recorded)
        teacher = load_teacher(teacher, recipe)
        data = load_training_data(
            data, recipe, image_size=image_size, data_dir=data_dir, seed=split_seed
        )
        data, recipe = match_weights(data, recipe, source, recorded)
        devices.check(recipe, len(data.train))
        check_time(recipe, minutes, devices)
        teacher = try_teacher(teacher, data, recipe, seed=seed, shard=devices.shard)
    except Exception as error:
        devices.fail(error)
        raise
    verbose = verbose and devices.is_first
    log = log or functools.partial(print, flush=True)
    return Job(
        data, recipe, source, teacher, seed, devices, verbose, log, minutes=minutes
    )


def check_time(recipe: Recipe, minutes: float | None, devices: Devices) -> None:
    """Refuses what a time limit, or measuring, does not go together with.

    Args:
        recipe: The recipe.
        minutes: Minutes that the run may take.
        devices: The devices of the run.

    Example:

    >>> check_time(Recipe(precision="auto"), 20, Devices())
    """
    if devices.hosts > 1:
        # Each machine would measure something else, and stop at another step.
        if minutes is not None:
            raise RecipeError(
                "several machines cannot agree on the time: use `epochs`. "
                f"Received: minutes={minutes:g}"
            )
        if recipe.precision == "auto":
            raise RecipeError(
                "several machines cannot measure together: name a precision. "
                "Received: precision='auto'"
            )
    if minutes is not None and recipe.teacher_views and recipe.mix_off_epoch:
        raise RecipeError(
            "with `minutes` mixing ends at a time, and cannot where epochs are "
            "repeated: use teacher_views=0 or mix_off_epoch=0. "
            f"Received: teacher_views={recipe.teacher_views}"
        )


# === Recipe and weights ===


def resolve_recipe(
    recipe,
    *,
    epochs: int | None = None,
    recorded: dict | None = None,
    **fields,
) -> tuple[Recipe, WeightSource | None]:
    """Finds the recipe of a run, with the variant that its weights have.

    A file of weights decides the variant unless one is named. Weights are opened here
    only if they have to tell the variant; otherwise `open_start` opens them later.

    Args:
        recipe: What `find_recipe` takes. The variant of a `Recipe` counts as named.
        epochs: Epochs instead of the recipe's own.
        recorded: Settings of a run that goes on from a snapshot. It has its variant
            on record and does not need its weights any more.
        **fields: Fields of the recipe to replace. `weights` may also be a
            `WeightSource`, and `teacher` a model or a function. The recipe's own
            `variant`, `weights` and `teacher` stay if these are `None`.

    Returns:
        The recipe, and the weights if they had to be opened.

    Example:

    >>> recipe, source = resolve_recipe("small", epochs=3)
    >>> recipe.epochs, source
    (3, None)
    """
    for name in ("variant", "weights", "teacher"):
        if name in fields and fields[name] is None:
            del fields[name]
    if "teacher" in fields and not _is_path(fields["teacher"]):
        fields["teacher"] = teacher_name(fields["teacher"])
    weights = fields.pop("weights", None)
    source = weights if isinstance(weights, WeightSource) else None
    given = {} if weights is None else {"weights": source.name if source else weights}
    row = find_recipe(recipe, **given)
    if row.weights is None:
        return find_recipe(recipe, epochs=epochs, **fields), None
    variant_is_named = (
        "variant" in fields
        or isinstance(recipe, Recipe)
        # A recipe with weights of its own names their variant, too.
        or (not given and row.variant != Recipe().variant)
    )
    weights = _normalized_path(row.weights)
    variant = None
    if source is not None:
        weights, variant = source.name, source.variant
    elif recorded and recorded.get("weights") in (weights, _model_in(weights)):
        weights, variant = recorded["weights"], recorded["variant"]
    elif not variant_is_named and not names_tag(weights):
        source = open_given(weights)
        weights, variant = source.name, source.variant
    if variant is not None and not variant_is_named:
        fields["variant"] = variant
    return find_recipe(recipe, epochs=epochs, **fields, weights=weights), source


def open_start(
    recipe: Recipe, source: WeightSource | None = None, recorded: dict | None = None
) -> WeightSource | None:
    """Opens the weights that a run starts from, unless they are open already.

    Args:
        recipe: The recipe.
        source: The weights, if they are open.
        recorded: Settings of a run that goes on from a snapshot, which does not need
            its weights any more.

    Returns:
        The weights; `None` if the recipe has none, or the run does not need them.

    Example:

    >>> open_start(Recipe(weights="digits")).num_classes
    10
    """
    if source is not None or recipe.weights is None:
        return source
    if recorded and recorded.get("weights") == recipe.weights:
        return None
    return open_given(recipe.weights, recipe.variant)


def open_given(weights, variant: str | None = None) -> WeightSource:
    """Opens weights that a user gave, and refuses them as a part of the recipe.

    Args:
        weights: What `open_weights` takes.
        variant: The variant they are for; a tag needs one.

    Returns:
        A `WeightSource`.

    Example:

    >>> open_given("digits", "cct_2_3x2_32").num_classes
    10
    """
    try:
        return open_weights(weights, variant=variant)
    except CCTKerasError:
        raise
    except ValueError as error:
        raise RecipeError(str(error)) from error


def _normalized_path(weights):
    """The same text for `runs/x` and `./runs/x`, so that a run knows its weights."""
    return weights if is_url(weights) else str(pathlib.Path(weights))


def _model_in(weights):
    return str(pathlib.Path(weights) / RUN_MODEL)


# === Data ===


def load_training_data(
    data,
    recipe: Recipe,
    *,
    image_size: int | tuple[int, int] | None = None,
    data_dir=None,
    seed: int = 0,
    load: Callable = load_data,
) -> Dataset:
    """Loads data in the image size that suits the variant of a recipe.

    Args:
        data: What `load_data` takes, or what it returned.
        recipe: The recipe.
        image_size: Side, or height and width, of the model's images.
        data_dir: Where tensorflow-datasets keeps prepared data.
        seed: Seed of the splits that are cut off.
        load: What loads the data, with the arguments of `load_data`.

    Returns:
        A `Dataset`, or what `load` returns.

    Example:

    >>> load_training_data("digits", Recipe()).input_shape
    (16, 16, 1)
    """
    return load_suitable_data(
        data,
        Architecture.from_variant(recipe.variant),
        recipe.variant,
        image_size=image_size or recipe.image_size,
        crop=recipe.eval_crop,
        seed=seed,
        data_dir=data_dir,
        load=load,
    )


def load_suitable_data(
    data,
    architecture: Architecture,
    name: str,
    *,
    image_size: int | tuple[int, int] | None = None,
    largest_default: int | None = None,
    load: Callable = load_data,
    **settings,
) -> Dataset:
    """Loads data in the image size that suits an architecture.

    Args:
        data: What `load_data` takes, or what it returned.
        architecture: The architecture.
        name: What errors call it.
        image_size: Side, or height and width, of the model's images.
        largest_default: A larger default size than this becomes one of 16 x 16 tokens.
        load: What loads the data, with the arguments of `load_data`.
        **settings: Further arguments of `load_data`.

    Returns:
        A `Dataset`.

    Example:

    >>> architecture = Architecture.from_variant("cct_2_3x2_32")
    >>> load_suitable_data("digits", architecture, "cct_2_3x2_32").input_shape
    (16, 16, 1)
    """
    patches = architecture.row.tokenizer == "patches"
    multiple = architecture.kernel_size if patches else 1
    if isinstance(data, Dataset):
        _check_loaded_size(data, image_size, multiple, name)
        return data
    default_size = architecture.arguments["input_shape"][0] or 0
    if default_size <= 64 or default_size > (largest_default or default_size):
        # The models for 32 pixels take larger images in a size of 16 x 16 tokens.
        default_size = 16 * (multiple if patches else 2**architecture.num_stages)
    return load(
        data,
        image_size=image_size,
        default_size=default_size,
        multiple=multiple,
        **settings,
    )


def _check_loaded_size(data, image_size, multiple, variant):
    if image_size is not None and as_size(image_size, multiple) != data.image_size:
        raise DataError(
            f"the data are loaded at {data.image_size}; give `image_size` to "
            f"`load_data` instead. Received: image_size={image_size!r}"
        )
    if any(side % multiple for side in data.image_size):
        raise DataError(
            f"{variant} takes images in multiples of {multiple}; load them with "
            f"load_data(..., multiple={multiple})"
        )


def match_weights(
    data: Dataset,
    recipe: Recipe,
    source: WeightSource | None,
    recorded: dict | None = None,
) -> tuple[Dataset, Recipe]:
    """Normalizes the data, and chooses positions and activation, for the weights.

    Args:
        data: The data. Their own normalization stays if that of the weights is not
            known, or is for another number of channels.
        recipe: The recipe.
        source: The weights; `None` if there are none, or if the run goes on and has
            everything on record.
        recorded: Settings of a run that goes on.

    Returns:
        The data, with a note if their normalization has changed, and the recipe.

    Example:

    >>> data = cct_keras.load_data("digits")
    >>> data, recipe = match_weights(data, Recipe(), None)
    >>> recipe.positional_embedding, recipe.activation
    ('auto', 'gelu')
    """
    recipe = dataclasses.replace(recipe, eval_crop=data.crop)
    if recipe.activation == "auto":
        activation = _find_activation(recipe, source, recorded)
        recipe = dataclasses.replace(recipe, activation=activation)
    if recipe.weights is None:
        return data, recipe
    if source is not None and source.notes:
        data = dataclasses.replace(data, notes=(*data.notes, *source.notes))
    if source is None:
        mean, std = recorded["mean"], recorded["std"]
        kind = recorded["positional_embedding"]
    else:
        mean, std = source.mean, source.std
        kind = source.positional_embedding or "none"
        recipe = dataclasses.replace(recipe, weights=source.name)
    if recipe.positional_embedding == "auto":
        recipe = dataclasses.replace(recipe, positional_embedding=kind)
    if mean is None or (tuple(mean), tuple(std)) == (data.mean, data.std):
        return data, recipe
    if len(mean) != data.channels:
        note = "images keep their own normalization: the weights are for other channels"
        return dataclasses.replace(data, notes=(*data.notes, note)), recipe
    values = " and ".join(", ".join(map(str, numbers)) for numbers in (mean, std))
    data = dataclasses.replace(
        data,
        mean=tuple(mean),
        std=tuple(std),
        notes=(*data.notes, f"images are normalized as for the weights: {values}"),
    )
    return data, recipe


def _find_activation(recipe, source, recorded):
    """The activation of the weights, for a recipe that leaves it open."""
    if recipe.weights is None:
        return "gelu"
    if source is None:
        return recorded.get("activation", "gelu")
    return source.architecture.activation


# === Teacher ===


def load_teacher(teacher, recipe: Recipe):
    """Loads the teacher of a run, unless it is loaded already.

    Args:
        teacher: A model, a function, or what `load_classifier` takes. `None` for the
            teacher of the recipe.
        recipe: The recipe.

    Returns:
        A model or a function; `None` if there is no teacher, or none before the run
        trains it.

    Example:

    >>> load_teacher(None, Recipe(teacher="cct_2_3x2_32.digits")).output_shape
    (None, 10)
    """
    teacher = recipe.teacher if teacher is None else teacher
    if teacher == CONVNET_TEACHER:
        return None
    if not _is_path(teacher):
        return teacher
    try:
        return load_classifier(teacher)
    except DataError as error:
        raise RecipeError(f"`teacher`: {error}") from error


def try_teacher(
    teacher, data: Dataset, recipe: Recipe, *, seed: int, shard: tuple[int, int]
) -> Teacher | None:
    """Makes sure that a teacher understands the images and classes of the data.

    Args:
        teacher: A model or a function, or `None`.
        data: The data.
        recipe: The recipe.
        seed: Seed of the run.
        shard: Number of this machine, and how many machines share a batch.

    Returns:
        A `Teacher`, or `None`.

    Example:

    >>> data = cct_keras.load_data("digits")
    >>> model = cct_keras.load_classifier("cct_2_3x2_32.digits")
    >>> try_teacher(model, data, Recipe(), seed=0, shard=(0, 1)).num_classes
    10
    """
    if teacher is None:
        return None
    batches = data.training_pipeline(recipe, seed=seed, shard=shard).take(1)
    images, _ = next(batches.as_numpy_iterator())
    return Teacher(teacher, images, data.class_names)


def _is_path(teacher):
    return isinstance(teacher, (str, os.PathLike))
