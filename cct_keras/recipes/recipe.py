"""What a recipe is: its fields, their types and their ranges."""

import dataclasses
import inspect
import math
import os
import re
import typing

from cct_keras.checks import ACTIVATIONS
from cct_keras.data.augmentation.settings import Augmentation
from cct_keras.data.augmentation.settings import check_augmentation
from cct_keras.data.augmentation.settings import check_fields
from cct_keras.errors import RecipeError
from cct_keras.models.adapter_targets import adapter_places
from cct_keras.models.variants import SIZES
from cct_keras.models.variants import VARIANTS
from cct_keras.spelling import did_you_mean

# The teacher that is trained for a run.
CONVNET_TEACHER = "convnet"
# How a student can learn from its teacher, and the defaults of "soft".
DISTILL_KINDS = ("hard", "soft")
DISTILL_TAU = 3.0
DISTILL_WEIGHT = 0.1
# Kind, temperature and weight for a teacher that knows no more images than the student,
# and knows those by heart: its likeliest class is the label, its doubts are the lesson.
CONVNET_DISTILLATION = ("soft", DISTILL_TAU, 0.9)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recipe(Augmentation):
    """Everything that a training run decides, except the data and the seed.

    Beside its own fields it has those of `Augmentation`, which decide what training
    sees of the images. Values may be given as text, as a command line or a YAML file
    has them.

    Attributes:
        about: What the recipe is for, or which published run it repeats.
        variant: Model to train, one of `list_models()`.
        weights: Weights to start from: a tag of known weights, a file, or the folder
            of a run.
        positional_embedding: Kind of positions: `"learnable"`, `"sine"` or `"none"`;
            `"auto"` takes the kind of the weights, or else that of the variant.
        activation: Activation of the feed-forward layers: `"gelu"`, or for devices
            without `erf` its approximation `"gelu_tanh"` or `"relu"`; `"auto"` takes
            that of the weights, or else `"gelu"`.
        image_size: Side of the model's images in pixels; by default the data or the
            variant decide.
        epochs: Length of the schedule in epochs; `cooldown_epochs` follow it.
        cooldown_epochs: Further epochs at `min_lr`, after the schedule.
        batch_size: Images in a training step.
        accumulate: Steps whose gradients are averaged into one update.
        optimizer: `"adamw"`; `"muon"`, which updates the kernels of the tokenizer,
            the blocks and the head as matrices, and everything else as AdamW does; or
            `"sgd"` with a Nesterov momentum of 0.9.
        lr: Learning rate after the warmup.
        matrix_lr: Learning rate of the matrices of `"muon"` where that of everything
            else is `lr`; they rise and fall together.
        min_lr: Learning rate at the end of the schedule.
        schedule: How the learning rate falls after the warmup: `"cosine"`, `"linear"`,
            `"step"` or `"constant"`.
        per_step: Whether the learning rate changes with every step, not once an epoch.
        warmup_epochs: Epochs in which the learning rate rises; they count as part of
            `epochs`.
        warmup_lr: Learning rate at the start of the warmup.
        warmup: Shape of the warmup: `"linear"`, or `"inverse"` as in the authors'
            older runs. With `"inverse"` the rate is `lr` divided by the number of
            warmup epochs that are left, and the cosine spans the epochs after them.
        decay_epochs: Epochs between two drops of the rate in the schedule `"step"`.
        decay_rate: Factor of each drop of the rate in the schedule `"step"`.
        weight_decay: Weight decay, decoupled from the gradient as in AdamW.
        decay_exempt: What has no weight decay: `"vectors"` (biases and
            normalizations, as in timm), `"positions"` (these, and also the positions,
            class tokens and distillation tokens) or `"nothing"`.
        clip_norm: Largest global norm of the gradients; by default they are not
            clipped.
        ema: Momentum of averaged weights, which are then evaluated and kept; by
            default there is no average.
        eval_crop: Share of an image's side that evaluation keeps around the center.
        dropout: Dropout rate; by default that of the variant.
        attention_dropout: Dropout rate of the attention; by default that of the
            variant.
        stochastic_depth: Drop-path rate of the last block; by default that of the
            variant.
        precision: `"float32"`, `"mixed_bfloat16"`, `"mixed_float16"`, `"mixed"`,
            which takes what suits the machine (float32 on a CPU), or `"auto"`, which
            times a few steps of each and takes the fastest.
        remat: Whether the backward pass computes the blocks again instead of keeping
            them, which takes less memory and more time.
        fresh_head: Whether the head starts from random weights even if that of the
            weights fits. If the weights are known to be for other classes, it always
            does.
        layer_decay: Factor of the learning rate from each layer to the one below it.
            The rate is whole above the blocks, has this factor in the last block, its
            square in the block before, and so on down to the tokenizer and the
            positions.
        freeze: How many blocks do not learn, counted from the first, together with
            everything below them; `"body"` for everything except the head.
        unfreeze_epochs: Epochs until one more block starts to learn, from the last
            block down to the first and then the tokenizer and the positions; 0 trains
            everything from the start.
        lora_rank: Rank of the adapters that are trained, with the head, instead of
            the blocks' own weights. They are merged into these weights in the end.
        lora_alpha: Scale of the adapters, which are multiplied by
            `lora_alpha / lora_rank`; by default that quotient is 1.
        lora_targets: Layers that get an adapter: `"qkv"`, `"proj"`, `"linear1"` and
            `"linear2"`, or in one block only, as `"block_0/qkv"`.
        teacher: Model to learn from beside the labels: a file, the folder of a run,
            or `VARIANT.TAG` of known weights; or `"convnet"`, a small convnet that is
            trained first, on the same images.
        teacher_epochs: Epochs of the teacher `"convnet"`; by default the number of
            images decides.
        teacher_share: Share of a budget of time that goes to the teacher `"convnet"`;
            without a budget, or with `teacher_epochs`, it decides nothing.
        distill: What is learned from the teacher: its likeliest class (`"hard"`) or
            all its probabilities (`"soft"`). By default it is the class; from the
            teacher `"convnet"` it is the probabilities, with a temperature of 3 and a
            weight of 0.9.
        distill_tau: Temperature of the probabilities in `"soft"` distillation.
        distill_weight: Weight of the teacher in `"soft"` distillation; in `"hard"`
            distillation it is 1/2.
        teacher_views: Epochs for which the teacher's answers are computed once,
            before training; training then repeats these epochs with the same images
            in the same order. With 0 the teacher answers during training, for new
            images in every epoch.
        patience: Epochs without a better validation after which the run ends. Better
            is a higher accuracy or, within its standard error, a lower loss.

    Example:

    >>> Recipe(epochs=10, lr="1e-3").lr
    0.001
    """

    about: str = ""
    variant: str = "cct_2_3x2_32"
    weights: str | None = None
    positional_embedding: str = "auto"
    activation: str = "auto"
    image_size: int | None = None
    epochs: int = 50
    cooldown_epochs: int = 0
    batch_size: int = 128
    accumulate: int = 1
    optimizer: str = "adamw"
    lr: float = 5e-4
    matrix_lr: float = 0.02
    min_lr: float = 1e-5
    schedule: str = "cosine"
    per_step: bool = False
    warmup_epochs: float = 0
    warmup_lr: float = 1e-6
    warmup: str = "linear"
    decay_epochs: float = 30
    decay_rate: float = 0.1
    weight_decay: float = 0.05
    decay_exempt: str = "vectors"
    clip_norm: float | None = None
    ema: float | None = None
    eval_crop: float = 1.0
    dropout: float | None = None
    attention_dropout: float | None = None
    stochastic_depth: float | None = None
    precision: str = "mixed"
    remat: bool = False
    fresh_head: bool = False
    layer_decay: float = 1.0
    freeze: int | str = 0
    unfreeze_epochs: float = 0
    lora_rank: int | None = None
    lora_alpha: float | None = None
    lora_targets: str = "qkv,proj,linear1,linear2"
    teacher: str | None = None
    teacher_epochs: int | None = None
    teacher_share: float = 0.25
    distill: str | None = None
    distill_tau: float = DISTILL_TAU
    distill_weight: float = DISTILL_WEIGHT
    teacher_views: int = 0
    patience: int | None = None

    def __post_init__(self):
        for name in FIELDS:
            object.__setattr__(self, name, _parse(name, getattr(self, name)))
        _check(self)

    @property
    def distillation(self) -> tuple[str, float, float]:
        """Kind, temperature and weight of the distillation from the teacher."""
        if self.distill is None and self.teacher == CONVNET_TEACHER:
            return CONVNET_DISTILLATION
        return self.distill or "hard", self.distill_tau, self.distill_weight

    @property
    def total_epochs(self) -> int:
        """Epochs of the schedule and of the cooldown."""
        return self.epochs + self.cooldown_epochs


# === What the fields may be ===

# Beside those of `Augmentation`. Name of the field: what it can be.
CHOICES = {
    "positional_embedding": ("auto", "learnable", "sine", "none"),
    "activation": ("auto", *ACTIVATIONS),
    "optimizer": ("adamw", "muon", "sgd"),
    "schedule": ("cosine", "linear", "step", "constant"),
    "warmup": ("linear", "inverse"),
    "decay_exempt": ("vectors", "positions", "nothing"),
    "distill": (None, *DISTILL_KINDS),
    "precision": ("float32", "mixed", "mixed_bfloat16", "mixed_float16", "auto"),
}
# Name of the field: smallest and largest value.
RANGES = {
    "epochs": (1, math.inf),
    "cooldown_epochs": (0, math.inf),
    "batch_size": (1, math.inf),
    "image_size": (1, math.inf),
    "accumulate": (1, math.inf),
    "patience": (1, math.inf),
    "lr": (0, math.inf),
    "matrix_lr": (0, math.inf),
    "min_lr": (0, math.inf),
    "warmup_lr": (0, math.inf),
    "warmup_epochs": (0, math.inf),
    "decay_epochs": (1e-9, math.inf),
    "decay_rate": (0, 1),
    "weight_decay": (0, math.inf),
    "clip_norm": (1e-12, math.inf),
    "ema": (0, 1),
    "eval_crop": (1e-3, 1),
    "dropout": (0, 0.999),
    "attention_dropout": (0, 0.999),
    "stochastic_depth": (0, 0.999),
    "layer_decay": (1e-6, 1),
    "freeze": (0, math.inf),
    "unfreeze_epochs": (0, math.inf),
    "lora_rank": (1, math.inf),
    "lora_alpha": (1e-9, math.inf),
    "distill_tau": (1e-9, math.inf),
    "distill_weight": (0, 1),
    "teacher_epochs": (1, math.inf),
    "teacher_share": (0, 1),
    "teacher_views": (0, math.inf),
}


# === Values of the fields ===

FIELDS = {field.name: field for field in dataclasses.fields(Recipe)}
_TYPES = typing.get_type_hints(Recipe)
_SWITCHES = {
    **dict.fromkeys(("true", "yes", "on", "1"), True),
    **dict.fromkeys(("false", "no", "off", "0"), False),
}


def parse_fields(values: dict) -> dict:
    """Converts values of recipe fields, text among them, to the types of the fields.

    A command line has nothing but text, and YAML reads `5e-4` as text.

    Args:
        values: Values by the name of their field.

    Returns:
        The same fields with converted values.

    Example:

    >>> parse_fields({"lr": "5e-4", "ema": "none"})
    {'lr': 0.0005, 'ema': None}
    """
    return {name: _parse(name, value) for name, value in values.items()}


def _parse(name, value):
    if name not in FIELDS:
        raise RecipeError(
            f"unknown recipe field {name!r}. " + did_you_mean(name, FIELDS)
        )
    if typing.get_origin(_TYPES[name]) is tuple:
        return _parse_pair(name, value)
    if name == "positional_embedding" and value is None:
        # The constructors take both.
        return "none"
    types = typing.get_args(_TYPES[name]) or (_TYPES[name],)
    if type(None) in types and (value is None or str(value).lower() in ("none", "")):
        return None
    types = [kind for kind in types if kind is not type(None)]
    for kind in types:
        try:
            return _convert(kind, value)
        except (TypeError, ValueError, KeyError):
            continue
    expected = " or ".join(kind.__name__ for kind in types)
    raise RecipeError(f"`{name}` must be {expected}. Received: {name}={value!r}")


def _convert(kind, value):
    if kind is bool:
        if isinstance(value, bool):
            return value
        return _SWITCHES[str(value).lower()]
    if kind is str:
        if isinstance(value, (list, tuple)):
            return ",".join(_convert(str, item) for item in value)
        if not isinstance(value, (str, os.PathLike, int, float)):
            raise TypeError
        return str(value)
    if isinstance(value, bool):
        raise TypeError
    number = float(value)
    if not math.isfinite(number) or (kind is int and number != int(number)):
        raise ValueError
    return kind(number)


def _parse_pair(name, value):
    numbers = value.replace(",", " ").split() if isinstance(value, str) else value
    try:
        low, high = (float(number) for number in numbers)
    except (TypeError, ValueError):
        raise RecipeError(
            f"`{name}` must be two numbers. Received: {name}={value!r}"
        ) from None
    return low, high


# === Checks ===


def _check(recipe):
    check_augmentation(recipe)
    check_fields(recipe, CHOICES, RANGES)
    if recipe.variant not in VARIANTS:
        raise RecipeError(
            f"unknown variant {recipe.variant!r}. "
            + did_you_mean(recipe.variant, VARIANTS)
        )
    _check_fine_tuning(recipe)
    _check_distillation(recipe)


def _check_fine_tuning(recipe):
    blocks = SIZES[VARIANTS[recipe.variant].size].num_layers
    if isinstance(recipe.freeze, int) and recipe.freeze > blocks:
        raise RecipeError(
            f"`freeze` must be at most the {blocks} blocks of {recipe.variant}. "
            f"Received: freeze={recipe.freeze}"
        )
    if isinstance(recipe.freeze, str) and recipe.freeze != "body":
        raise RecipeError(
            "`freeze` must be a number of blocks or 'body'. "
            f"Received: freeze={recipe.freeze!r}"
        )
    if recipe.freeze == "body" and recipe.unfreeze_epochs:
        raise RecipeError("freeze='body' leaves nothing for `unfreeze_epochs`")
    names = [f"block_{i}" for i in range(blocks)]
    try:
        places = adapter_places(recipe.lora_targets, names)
    except ValueError as error:
        raise RecipeError(f"`lora_targets`: {error}") from None
    default = FIELDS["lora_targets"].default
    if recipe.lora_rank is None and (recipe.lora_targets, recipe.lora_alpha) != (
        default,
        None,
    ):
        raise RecipeError("`lora_targets` and `lora_alpha` need `lora_rank`")
    learning = names[recipe.freeze :] if recipe.freeze != "body" else []
    if recipe.lora_rank is not None and not any(places[name] for name in learning):
        raise RecipeError(
            f"freeze={recipe.freeze!r} leaves nothing for `lora_rank`: all adapters "
            "would be in frozen blocks"
        )


def _check_distillation(recipe):
    changed = [
        name
        for name in ("distill", "distill_tau", "distill_weight", "teacher_views")
        if getattr(recipe, name) != FIELDS[name].default
    ]
    if recipe.teacher is None and changed:
        raise RecipeError(
            f"`{changed[0]}` needs a `teacher`. "
            f"Received: {changed[0]}={getattr(recipe, changed[0])!r}, teacher=None"
        )
    for name in ("teacher_epochs", "teacher_share"):
        value = getattr(recipe, name)
        if value != FIELDS[name].default and recipe.teacher != CONVNET_TEACHER:
            raise RecipeError(
                f"`{name}` is for teacher={CONVNET_TEACHER!r}, which is trained first. "
                f"Received: {name}={value!r}, teacher={recipe.teacher!r}"
            )
    for name in ("distill_tau", "distill_weight"):
        if name in changed and recipe.distill != "soft":
            raise RecipeError(
                f"`{name}` is for distill='soft'. Received: distill={recipe.distill!r},"
                f" {name}={getattr(recipe, name)!r}"
            )
    if recipe.teacher_views and recipe.augment == "keras_cv":
        raise RecipeError(
            "augment='keras_cv' does not repeat its images: use teacher_views=0. "
            f"Received: teacher_views={recipe.teacher_views}"
        )
    if recipe.mix_off_epoch and 0 < recipe.teacher_views < recipe.total_epochs:
        raise RecipeError(
            "mixing cannot end at `mix_off_epoch` where epochs are repeated: use "
            f"teacher_views=0, or {recipe.total_epochs} for all epochs. "
            f"Received: teacher_views={recipe.teacher_views}"
        )


# === Documentation of the fields ===


def field_help() -> dict[str, str]:
    """What each field of a recipe means, in a sentence for `train --help`.

    Returns:
        The first sentence of each field's description in the docstrings of `Recipe`
        and `Augmentation`, by the name of the field.

    Example:

    >>> field_help()["lr"]
    'Learning rate after the warmup.'
    """
    described = {
        **_described_attributes(Augmentation),
        **_described_attributes(Recipe),
    }
    return {name: _first_sentence(described.get(name, "")) for name in FIELDS}


def _described_attributes(record):
    """`{name: description}` from the section `Attributes` of a docstring.

    It is empty under `python -OO`, which removes the docstrings.
    """
    section = (inspect.getdoc(record) or "").partition("Attributes:\n")[2]
    entry = re.compile(r"^    (\w+): (.*(?:\n {8}.*)*)", re.MULTILINE)
    return {name: " ".join(text.split()) for name, text in entry.findall(section)}


def _first_sentence(text):
    return re.split(r"(?<=\.) (?=[A-Z0-9])", text)[0]
