"""RandAugment and AutoAugment for batches of images.

Everything is drawn from the seed: the same seed gives the same images, in any order
of a parallel pipeline.
"""

import re
from collections.abc import Sequence

from cct_keras.data import operations
from cct_keras.data.operations import FILL

# The geometric ones last: they share one transform.
POINTWISE = (
    operations.auto_contrast,
    operations.equalize,
    operations.invert,
    operations.posterize,
    operations.solarize,
    operations.solarize_add,
    operations.color,
    operations.contrast,
    operations.brightness,
    operations.sharpness,
)
GEOMETRIC = ("rotate", "shear_x", "shear_y", "translate_x", "translate_y")
NAMES = (*(operation.__name__ for operation in POINTWISE), *GEOMETRIC)

# timm reads a noise of more than 100 as another distribution.
PART = r"m\d+(\.\d+)?|mstd\d\d?(\.\d+)?|n[1-9]\d*|p(0(\.\d+)?|1(\.0+)?)|inc1"

# The policy found on CIFAR-10, table 7 of the paper (arXiv 1805.09501):
# name, probability and magnitude of a first and of a second operation.
CIFAR_POLICY = (
    ("invert", 0.1, 7, "contrast", 0.2, 6),
    ("rotate", 0.7, 2, "translate_x", 0.3, 9),
    ("sharpness", 0.8, 1, "sharpness", 0.9, 3),
    ("shear_y", 0.5, 8, "translate_y", 0.7, 9),
    ("auto_contrast", 0.5, 8, "equalize", 0.9, 2),
    ("shear_y", 0.2, 7, "posterize", 0.3, 7),
    ("color", 0.4, 3, "brightness", 0.6, 7),
    ("sharpness", 0.3, 9, "brightness", 0.7, 9),
    ("equalize", 0.6, 5, "equalize", 0.5, 1),
    ("contrast", 0.6, 7, "sharpness", 0.6, 5),
    ("color", 0.7, 7, "translate_x", 0.5, 8),
    ("equalize", 0.3, 7, "auto_contrast", 0.4, 8),
    ("translate_y", 0.4, 3, "sharpness", 0.2, 6),
    ("brightness", 0.9, 6, "color", 0.2, 8),
    ("solarize", 0.5, 2, "invert", 0.0, 3),
    ("equalize", 0.2, 0, "auto_contrast", 0.6, 0),
    ("equalize", 0.2, 8, "equalize", 0.6, 4),
    ("color", 0.9, 9, "equalize", 0.6, 6),
    ("auto_contrast", 0.8, 4, "solarize", 0.2, 8),
    ("brightness", 0.1, 3, "color", 0.7, 0),
    ("solarize", 0.4, 5, "auto_contrast", 0.9, 3),
    ("translate_y", 0.9, 9, "translate_y", 0.7, 9),
    ("auto_contrast", 0.9, 2, "solarize", 0.8, 3),
    ("equalize", 0.8, 8, "invert", 0.1, 3),
    ("translate_y", 0.7, 9, "auto_contrast", 0.9, 1),
)


def rand_augment(
    images,
    seed,
    *,
    magnitude: float = 9.0,
    noise: float = 0.5,
    operations: int = 2,
    probability: float = 0.5,
    fill: Sequence[float] = FILL,
):
    """RandAugment as timm has it, with operations that grow with the magnitude.

    The defaults are timm's `rand-m9-mstd0.5-inc1`.

    Args:
        images: Float tensor `(n, h, w, c)`, values 0 to 255.
        seed: Integer tensor `(2,)`.
        magnitude: Mean magnitude. Draws are clipped to 0 to 10.
        noise: Standard deviation of the magnitude.
        operations: Turns. Each draws one of fifteen operations for each image.
        probability: Share of the turns that happen.
        fill: Colour outside the image.

    Returns:
        The images, shaped as they were.
    """
    import tensorflow as tf

    count = tf.shape(images)[:1]
    for turn in tf.unstack(tf.random.split(seed, operations)) if operations else ():
        seeds = tf.unstack(tf.random.split(turn, 4))
        choice = tf.random.stateless_uniform(count, seeds[0], 0, len(NAMES), tf.int32)
        happens = tf.random.stateless_uniform(count, seeds[1]) < probability
        level = tf.random.stateless_normal(count, seeds[2], magnitude, noise)
        level = tf.clip_by_value(level, 0.0, 10.0) / 10.0
        strength = _strength(
            choice,
            level,
            sign=_sign(count, seeds[3]),
            bits=4.0 - tf.floor(4.0 * level),
            threshold=256.0 - tf.floor(256.0 * level),
            translation=0.45,
        )
        images = _apply(images, choice, happens, strength, fill)
    return images


def parse_rand_augment(text: str) -> dict[str, float | int]:
    """The arguments of `rand_augment` from timm's notation.

    Args:
        text: Such as `rand-m9-mstd0.5-inc1`: `m` is the magnitude (10 if absent),
            `mstd` its noise (0), `n` the number of operations (2), `p` their
            probability (0.5). `inc1` has to be there.

    Example:

    >>> parse_rand_augment("rand-m15-n2-mstd0.5-p0.3-inc1")
    {'magnitude': 15.0, 'noise': 0.5, 'operations': 2, 'probability': 0.3}
    """
    head, *parts = text.split("-")
    if head != "rand":
        raise ValueError(f"RandAugment {text!r} begins with {head!r}, not 'rand'")
    found = {}
    for part in parts:
        name = part.rstrip("0123456789.")
        if name in found or not re.fullmatch(PART, part):
            raise ValueError(f"RandAugment {text!r}: {part!r} is not understood")
        found[name] = part.removeprefix(name)
    if "inc" not in found:
        raise ValueError(f"RandAugment {text!r} has no 'inc1', the only set there is")
    return {
        "magnitude": float(found.get("m", 10)),
        "noise": float(found.get("mstd", 0)),
        "operations": int(found.get("n", 2)),
        "probability": float(found.get("p", 0.5)),
    }


def auto_augment(images, seed, *, fill: Sequence[float] = FILL):
    """The AutoAugment policy found on CIFAR-10.

    Args:
        images: Float tensor `(n, h, w, c)`, values 0 to 255.
        seed: Integer tensor `(2,)`.
        fill: Colour outside the image.

    Returns:
        The images, shaped as they were.
    """
    import tensorflow as tf

    count = tf.shape(images)[:1]
    seeds = tf.unstack(tf.random.split(seed, 5))
    row = tf.random.stateless_uniform(count, seeds[0], 0, len(CIFAR_POLICY), tf.int32)
    for turn in (0, 1):
        names, probabilities, magnitudes = zip(
            *(policy[3 * turn : 3 * turn + 3] for policy in CIFAR_POLICY), strict=True
        )
        choice = tf.gather([NAMES.index(name) for name in names], row)
        probability = tf.gather(probabilities, row)
        level = tf.gather([magnitude / 9.0 for magnitude in magnitudes], row)
        draw = tf.random.stateless_uniform(count, seeds[1 + 2 * turn])
        strength = _strength(
            choice,
            level,
            sign=_sign(count, seeds[2 + 2 * turn]),
            bits=tf.round(8.0 - 4.0 * level),
            threshold=256.0 - 256.0 * level,
            translation=150 / 331,
        )
        images = _apply(images, choice, draw < probability, strength, fill)
    return images


def _sign(count, seed):
    import tensorflow as tf

    return tf.where(tf.random.stateless_uniform(count, seed) < 0.5, -1.0, 1.0)


def _strength(choice, level, *, sign, bits, threshold, translation):
    """The strength of the chosen operations at levels between 0 and 1."""
    import tensorflow as tf

    enhancement = tf.maximum(1.0 + 0.9 * sign * level, 0.1)
    strengths = {
        "posterize": bits,
        "solarize": threshold,
        "solarize_add": tf.minimum(tf.floor(110.0 * level), 128.0),
        "color": enhancement,
        "contrast": enhancement,
        "brightness": enhancement,
        "sharpness": enhancement,
        "rotate": 30.0 * sign * level,
        "shear_x": 0.3 * sign * level,
        "shear_y": 0.3 * sign * level,
        "translate_x": translation * sign * level,
        "translate_y": translation * sign * level,
    }
    table = tf.stack([strengths.get(name, level) for name in NAMES], 1)
    return tf.gather(table, choice, batch_dims=1)


def _apply(images, choice, happens, strength, fill):
    """Sorts the images by their operation, so that each runs once on its own."""
    import tensorflow as tf

    # One group an operation, one of all geometric ones, one of what stays
    last = len(POINTWISE)
    groups = tf.where(happens, tf.minimum(choice, last), last + 1)
    places, parts, choices, strengths = (
        tf.dynamic_partition(values, groups, last + 2)
        for values in (tf.range(tf.size(groups)), images, choice, strength)
    )
    for index, operation in enumerate(POINTWISE):
        parts[index] = operation(parts[index], strengths[index])
    geometry = {
        name: tf.where(choices[last] == last + index, strengths[last], 0.0)
        for index, name in enumerate(GEOMETRIC)
    }
    parts[last] = operations.warp(parts[last], **geometry, fill=fill)
    return tf.ensure_shape(tf.dynamic_stitch(places, parts), images.shape)
