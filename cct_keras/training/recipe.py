"""What a recipe is: its fields, their types and their ranges."""

import dataclasses
import math
import os
import typing

from cct_keras.data.policies import parse_rand_augment
from cct_keras.models.factory import near
from cct_keras.models.lora import adapter_places
from cct_keras.models.variants import SIZES
from cct_keras.models.variants import VARIANTS
from cct_keras.training.distillation import KINDS
from cct_keras.training.distillation import TAU
from cct_keras.training.distillation import WEIGHT


class RecipeError(ValueError):
    """A recipe, a field or a value that does not exist."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recipe:
    """Everything a run decides but the data and the seed.

    Attributes:
        about: What the run reproduces, what it reaches.
        variant: Model that is trained unless another is named.
        weights: Weights it starts from.
        positional_embedding: `"learnable"`, `"sine"` or `"none"`; `"auto"` is that
            of the weights it starts from, or the variant's own.
        image_size: Side of the images, if neither their own nor the variant's.
        epochs: Epochs of the schedule; `cooldown_epochs` come on top.
        cooldown_epochs: Further epochs at `min_lr`.
        batch_size: Images a step.
        accumulate: Steps whose gradients make one update.
        optimizer: `"adamw"` or `"sgd"` (momentum 0.9, Nesterov).
        lr: Learning rate after the warmup.
        min_lr: Learning rate at the end of the schedule.
        schedule: `"cosine"`, `"step"` or `"constant"`.
        per_step: Whether the rate moves with every step and not by the epoch.
        warmup_epochs: Epochs of linear warmup, inside `epochs`.
        warmup_lr: Where the warmup starts.
        warmup: `"linear"`, or `"inverse"` as in the older runs: the rate divided
            by the epochs of warmup to come, then a cosine over what is left.
        decay_epochs: Epochs between the steps of `"step"`.
        decay_rate: Factor of each such step.
        weight_decay: Decoupled, as in AdamW.
        decay_exempt: What is not decayed: `"vectors"` (biases and norms, timm's
            rule), `"positions"` (these and the position and class embeddings)
            or `"nothing"`.
        clip_norm: Largest global norm of the gradients, if any.
        ema: Momentum of averaged weights, which are then evaluated and kept.
        label_smoothing: Share of a label that is spread over all classes.
        mixup: Alpha of mixup, 0 for none.
        cutmix: Alpha of cutmix, 0 for none.
        mix_prob: Share of the batches that are mixed.
        mix_switch_prob: Share of cutmix among them, if both are on.
        mix_off_epoch: Epoch from which nothing is mixed; 0 for never.
        crop: `"resized"` (a part of the image, resized), `"padded"` (zeros
            around it, shifted), `"none"`, or `"auto"`: padded if the images have
            the size of the model's, and else resized.
        crop_scale: Smallest and largest area of a resized crop.
        crop_padding: Width of the zeros, as a share of the side.
        flip: Probability of a horizontal flip; `"auto"` is 0.5 for colour images
            and 0 for grey ones, which often show characters.
        augment: timm's notation, such as `"rand-m9-mstd0.5-inc1"`, with all of its
            fifteen operations; `"auto"` for AutoAugment's CIFAR policy, `"auto-color"`
            to spare grey images, which often show characters, from it;
            `"keras_cv"` for keras-cv's RandAugment, which lacks Rotate, Posterize,
            Invert, Sharpness and SolarizeAdd, runs in one thread, and makes a
            resumed run compute again what came before; or `"none"`.
        erase_prob: Probability that a rectangle of an image becomes noise.
        repeats: Augmented views of an image an epoch, of as many fewer images.
        eval_crop: Share of an image that evaluation sees.
        dropout: Dropout rate, if not the variant's own.
        attention_dropout: Attention dropout, if not the variant's own.
        stochastic_depth: Drop-path rate, if not the variant's own.
        precision: `"float32"`, `"mixed"` (what the machine does well: float32 on
            a CPU), `"mixed_bfloat16"` or `"mixed_float16"`.
        remat: Whether the blocks are computed again in the backward pass instead of
            kept: less memory, more time.
        fresh_head: Whether the head starts anew even where that of the weights fits.
            It does so by itself if they are known to be of other classes.
        layer_decay: Factor of the learning rate from each layer to the one below:
            1 above the blocks, this for the last block, its square for the one
            before, and so on down to the tokenizer and the positions.
        freeze: How many blocks, from the first on and with all below them, stay as
            they are; `"body"` for everything but the head.
        unfreeze_epochs: Epochs until one more block thaws, the last first, and at
            the end the tokenizer and the positions; 0 for all from the start.
        lora_rank: Rank of adapters that are trained in place of the blocks'
            own weights, together with the head, and merged in the end.
        lora_alpha: Adapters are scaled by `lora_alpha / lora_rank`; by default 1.
        lora_targets: Projections that get an adapter: `"qkv"`, `"proj"`,
            `"linear1"` and `"linear2"`, in one block as `"block_0/qkv"`.
        teacher: A model to learn from beside the labels: its file, the folder of a
            run, or `VARIANT.TAG` of known weights.
        distill: How: `"hard"`, from the class it finds likeliest, or `"soft"`, from
            its probabilities; with a teacher `"hard"` by default.
        distill_tau: Temperature of `"soft"`.
        distill_weight: Weight of the teacher in `"soft"`; in `"hard"` it is 1/2.
        teacher_views: Epochs whose images the teacher is asked about once, before
            training; the run then repeats these epochs, images, order and all. 0
            to ask it along the way, about new images in every epoch.
        patience: Epochs without a better validation before the run ends. Better is
            a higher accuracy, or within its standard error a lower loss.
    """

    about: str = ""
    variant: str = "cct_2_3x2_32"
    weights: str | None = None
    positional_embedding: str = "auto"
    image_size: int | None = None
    epochs: int = 50
    cooldown_epochs: int = 0
    batch_size: int = 128
    accumulate: int = 1
    optimizer: str = "adamw"
    lr: float = 5e-4
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
    label_smoothing: float = 0.1
    mixup: float = 0.0
    cutmix: float = 0.0
    mix_prob: float = 1.0
    mix_switch_prob: float = 0.5
    mix_off_epoch: float = 0
    crop: str = "resized"
    crop_scale: tuple[float, float] = (0.8, 1.0)
    crop_padding: float = 0.125
    flip: float | str = "auto"
    augment: str = "none"
    erase_prob: float = 0.0
    repeats: int = 1
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
    distill: str | None = None
    distill_tau: float = TAU
    distill_weight: float = WEIGHT
    teacher_views: int = 0
    patience: int | None = None

    def __post_init__(self):
        for name in FIELDS:
            object.__setattr__(self, name, _parse(name, getattr(self, name)))
        _check(self)

    @property
    def total_epochs(self) -> int:
        """Epochs of the schedule and of the cooldown."""
        return self.epochs + self.cooldown_epochs


CHOICES = {
    "positional_embedding": ("auto", "learnable", "sine", "none"),
    "optimizer": ("adamw", "sgd"),
    "schedule": ("cosine", "step", "constant"),
    "warmup": ("linear", "inverse"),
    "decay_exempt": ("vectors", "positions", "nothing"),
    "crop": ("auto", "resized", "padded", "none"),
    "distill": (None, *KINDS),
    "precision": ("float32", "mixed", "mixed_bfloat16", "mixed_float16"),
}
# Beside timm's notation.
AUGMENTATIONS = ("none", "auto", "auto-color", "keras_cv")
# Name of the field: smallest and largest value.
RANGES = {
    "epochs": (1, math.inf),
    "cooldown_epochs": (0, math.inf),
    "batch_size": (1, math.inf),
    "image_size": (1, math.inf),
    "accumulate": (1, math.inf),
    "repeats": (1, math.inf),
    "patience": (1, math.inf),
    "crop_padding": (0, 1),
    "lr": (0, math.inf),
    "min_lr": (0, math.inf),
    "warmup_lr": (0, math.inf),
    "warmup_epochs": (0, math.inf),
    "decay_epochs": (1e-9, math.inf),
    "decay_rate": (0, 1),
    "weight_decay": (0, math.inf),
    "clip_norm": (1e-12, math.inf),
    "ema": (0, 1),
    "label_smoothing": (0, 1),
    "mixup": (0, math.inf),
    "cutmix": (0, math.inf),
    "mix_prob": (0, 1),
    "mix_switch_prob": (0, 1),
    "mix_off_epoch": (0, math.inf),
    "erase_prob": (0, 1),
    "eval_crop": (1e-3, 1),
    "flip": (0, 1),
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
    "teacher_views": (0, math.inf),
}


# === Fields ===

SWITCHES = dict.fromkeys(("true", "yes", "on", "1"), True)
SWITCHES |= dict.fromkeys(("false", "no", "off", "0"), False)
FIELDS = {field.name: field for field in dataclasses.fields(Recipe)}
_TYPES = typing.get_type_hints(Recipe)


def parse_fields(values: dict) -> dict:
    """Values of recipe fields in their types; text is converted.

    A command line has only text, and YAML reads `5e-4` as text.
    """
    return {name: _parse(name, value) for name, value in values.items()}


def _parse(name, value):
    if name not in FIELDS:
        raise RecipeError(f"unknown recipe field {name!r}. {near(name, FIELDS)}")
    kinds = typing.get_args(_TYPES[name])
    if typing.get_origin(_TYPES[name]) is tuple:
        return _parse_pair(name, value)
    kinds = kinds or (_TYPES[name],)
    if type(None) in kinds and (value is None or str(value).lower() in ("none", "")):
        return None
    for kind in kinds:
        if kind is not type(None):
            try:
                return _convert(kind, value)
            except (TypeError, ValueError, KeyError):
                continue
    wanted = " or ".join(kind.__name__ for kind in kinds if kind is not type(None))
    raise RecipeError(f"`{name}` must be {wanted}. Received: {name}={value!r}")


def _convert(kind, value):
    if kind is bool:
        if isinstance(value, bool):
            return value
        return SWITCHES[str(value).lower()]
    if kind is str:
        if isinstance(value, (list, tuple)):
            return ",".join(_convert(str, part) for part in value)
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
    parts = value.replace(",", " ").split() if isinstance(value, str) else value
    try:
        low, high = (float(part) for part in parts)
    except (TypeError, ValueError):
        raise RecipeError(
            f"`{name}` must be two numbers. Received: {name}={value!r}"
        ) from None
    return low, high


def _check(recipe):
    for name, choices in CHOICES.items():
        if getattr(recipe, name) not in choices:
            raise RecipeError(
                f"`{name}` must be one of {', '.join(filter(None, choices))}. "
                f"Received: {name}={getattr(recipe, name)!r}"
            )
    for name, (low, high) in RANGES.items():
        value = getattr(recipe, name)
        if isinstance(value, (int, float)) and not low <= value <= high:
            raise RecipeError(
                f"`{name}` must be {_range_text(low, high)}. Received: {name}={value!r}"
            )
    if isinstance(recipe.flip, str) and recipe.flip != "auto":
        raise RecipeError(
            f"`flip` must be a probability or 'auto'. Received: flip={recipe.flip!r}"
        )
    _check_crop_scale(recipe)
    if recipe.augment not in AUGMENTATIONS:
        if not recipe.augment.startswith("rand"):
            raise RecipeError(
                f"`augment` must be one of {', '.join(AUGMENTATIONS)}, or timm's "
                "notation, such as rand-m9-mstd0.5-inc1. "
                f"Received: augment={recipe.augment!r}"
            )
        parse_rand_augment(recipe.augment)
    if recipe.variant not in VARIANTS:
        raise RecipeError(
            f"unknown variant {recipe.variant!r}. {near(recipe.variant, VARIANTS)}"
        )
    _check_fine_tuning(recipe)
    _check_distillation(recipe)


def _check_crop_scale(recipe):
    low, high = recipe.crop_scale
    if not 0 < low <= high <= 1:
        raise RecipeError(
            "`crop_scale` must be two areas in (0, 1], the smaller first. Received: "
            f"crop_scale={recipe.crop_scale}"
        )


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


def _range_text(low, high):
    if high == math.inf:
        return f"{low} or more" if low >= 1 or low == 0 else "above 0"
    return f"from {low:g} to {high}"
