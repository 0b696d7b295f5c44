"""The settings of augmentation as one record; free of Keras, TensorFlow and NumPy."""

import dataclasses
import math
import re

from cct_keras.errors import RecipeError


@dataclasses.dataclass(frozen=True, kw_only=True)
class Augmentation:
    """What training sees of the images and labels of a data set.

    A `Recipe` is an `Augmentation` with further fields.

    Attributes:
        label_smoothing: Share of a label that is spread over all classes.
        mixup: Alpha of mixup; 0 for no mixup.
        cutmix: Alpha of cutmix; 0 for no cutmix.
        mix_prob: Share of the batches that are mixed.
        mix_switch_prob: Share of the mixed batches that get cutmix, if both mixup
            and cutmix are on.
        mix_off_epoch: Epoch from which on nothing is mixed; 0 to mix in all epochs.
        crop: `"resized"` (a random box of the image, resized), `"padded"` (the image
            shifted, with black around it), `"none"`, or `"auto"`: padded if the
            images have the size that the model sees, and otherwise resized.
        crop_scale: Smallest and largest area of a resized crop, as shares of the
            image.
        crop_padding: Largest shift of a padded crop, as a share of the shorter side.
        flip: Probability of a horizontal flip. `"auto"` is 0.5 for color images and
            0 for gray images, which often show characters. `"alternate"` shows every
            image from both sides in turn, one epoch after the other;
            `"alternate-color"` does so for color images only.
        augment: RandAugment in timm's notation, such as `"rand-m9-mstd0.5-inc1"`;
            `"auto"` for AutoAugment's policy for CIFAR-10; `"auto-color"` for it on
            color images only, as gray images often show characters;
            `"auto-long"` for it on color images in runs of 20 epochs or more;
            `"keras_cv"` for keras-cv's RandAugment, which has fewer operations and
            runs in one thread; or `"none"`.
        erase_prob: Probability that a rectangle of an image becomes noise.
        repeats: How many differently augmented copies of an image an epoch has. The
            epoch has so many times fewer images.

    Example:

    >>> Augmentation(mixup=0.8, flip=0.5).cutmix
    0.0
    """

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

    def __post_init__(self):
        check_augmentation(self)

    def resolved(
        self, *, channels: int, has_model_size: bool, epochs: float = math.inf
    ) -> "Augmentation":
        """Replaces every `"auto"` by what it means for a data set.

        Args:
            channels: Channels of the images.
            has_model_size: Whether the images have the size that the model sees.
            epochs: How often the run sees them.

        Example:

        >>> Augmentation(flip="auto").resolved(channels=1, has_model_size=True).flip
        0.0
        """
        values = {name: getattr(self, name) for name in FIELDS}
        if self.flip == "auto":
            values["flip"] = 0.5 if channels == 3 else 0.0
        if self.flip == "alternate-color":
            values["flip"] = "alternate" if channels == 3 else 0.0
        if self.crop == "auto":
            values["crop"] = "padded" if has_model_size else "resized"
        if self.augment in ("auto-color", "auto-long"):
            long = self.augment == "auto-color" or epochs >= MANY_EPOCHS
            values["augment"] = "auto" if channels == 3 and long else "none"
        return Augmentation(**values)


FIELDS = tuple(field.name for field in dataclasses.fields(Augmentation))


# === What is allowed ===

CHOICES = {"crop": ("auto", "resized", "padded", "none")}
# What `flip` can be beside a probability.
FLIP_CHOICES = ("auto", "alternate", "alternate-color")
# What `augment` can be beside timm's notation.
AUGMENT_CHOICES = ("none", "auto", "auto-color", "auto-long", "keras_cv")
# From so many epochs on, what `augment="auto-long"` does pays.
MANY_EPOCHS = 20
# Smallest and largest value of a field.
RANGES = {
    "label_smoothing": (0, 1),
    "mixup": (0, math.inf),
    "cutmix": (0, math.inf),
    "mix_prob": (0, 1),
    "mix_switch_prob": (0, 1),
    "mix_off_epoch": (0, math.inf),
    "crop_padding": (0, 1),
    "flip": (0, 1),
    "erase_prob": (0, 1),
    "repeats": (1, math.inf),
}


def check_augmentation(augmentation: Augmentation) -> None:
    """Raises a `RecipeError` if a field of a record has a value that is not allowed.

    Example:

    >>> check_augmentation(Augmentation(mixup=0.8))
    """
    check_fields(augmentation, CHOICES, RANGES)
    flip, augment = augmentation.flip, augmentation.augment
    if isinstance(flip, str) and flip not in FLIP_CHOICES:
        raise RecipeError(
            f"`flip` must be a probability or one of {', '.join(FLIP_CHOICES)}. "
            f"Received: flip={flip!r}"
        )
    low, high = augmentation.crop_scale
    if not 0 < low <= high <= 1:
        raise RecipeError(
            "`crop_scale` must be two areas in (0, 1], the smaller first. Received: "
            f"crop_scale={augmentation.crop_scale}"
        )
    if augment not in AUGMENT_CHOICES:
        if not augment.startswith("rand"):
            raise RecipeError(
                f"`augment` must be one of {', '.join(AUGMENT_CHOICES)}, or timm's "
                f"notation, such as rand-m9-mstd0.5-inc1. Received: augment={augment!r}"
            )
        parse_rand_augment(augment)


def check_fields(record, choices: dict[str, tuple], ranges: dict[str, tuple]) -> None:
    """Raises a `RecipeError` for a value outside of its choices or its range.

    Args:
        record: Any object with these fields.
        choices: Allowed values of a field, by its name.
        ranges: Smallest and largest value of a field, by its name. Values that are
            not numbers are left to other checks.

    Example:

    >>> check_fields(Augmentation(), {"crop": ("resized", "none")}, {"mixup": (0, 1)})
    """
    for name, allowed in choices.items():
        value = getattr(record, name)
        if value not in allowed:
            raise RecipeError(
                f"`{name}` must be one of {', '.join(filter(None, allowed))}. "
                f"Received: {name}={value!r}"
            )
    for name, (low, high) in ranges.items():
        value = getattr(record, name)
        if isinstance(value, (int, float)) and not low <= value <= high:
            raise RecipeError(
                f"`{name}` must be {_range_text(low, high)}. Received: {name}={value!r}"
            )


def _range_text(low, high):
    if high == math.inf:
        return f"{low} or more" if low >= 1 or low == 0 else "above 0"
    return f"from {low:g} to {high}"


# === RandAugment ===

# A noise above 100 would mean another distribution in timm.
RAND_AUGMENT_PART = re.compile(
    r"m\d+(\.\d+)?|mstd\d\d?(\.\d+)?|n[1-9]\d*|p(0(\.\d+)?|1(\.0+)?)|inc1"
)


def parse_rand_augment(text: str) -> dict[str, float | int]:
    """Reads the arguments of `rand_augment` from timm's notation.

    Args:
        text: Such as `rand-m9-mstd0.5-inc1`: `m` is the magnitude (by default 10),
            `mstd` its noise (0), `n` the number of operations (2), `p` their
            probability (0.5). `inc1` has to be there.

    Example:

    >>> parse_rand_augment("rand-m15-n2-mstd0.5-p0.3-inc1")
    {'magnitude': 15.0, 'noise': 0.5, 'operations': 2, 'probability': 0.3}
    """
    head, *parts = text.split("-")
    if head != "rand":
        raise RecipeError(f"RandAugment {text!r} begins with {head!r}, not 'rand'")
    found = {}
    for part in parts:
        name = part.rstrip("0123456789.")
        if name in found or not RAND_AUGMENT_PART.fullmatch(part):
            raise RecipeError(f"RandAugment {text!r}: {part!r} is not understood")
        found[name] = part.removeprefix(name)
    if "inc" not in found:
        raise RecipeError(
            f"RandAugment {text!r} has no 'inc1', the only kind of strengths there is"
        )
    return {
        "magnitude": float(found.get("m", 10)),
        "noise": float(found.get("mstd", 0)),
        "operations": int(found.get("n", 2)),
        "probability": float(found.get("p", 0.5)),
    }
