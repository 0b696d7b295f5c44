"""RandAugment and AutoAugment for batches of images.

Everything is drawn from the seed: the same seed gives the same images, in any order
of a parallel pipeline.
"""

from collections.abc import Sequence

from cct_keras.data.augmentation import operations
from cct_keras.data.augmentation.operations import FILL
from cct_keras.data.augmentation.settings import Augmentation
from cct_keras.data.augmentation.settings import parse_rand_augment

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
# These share one transform.
GEOMETRIC = ("rotate", "shear_x", "shear_y", "translate_x", "translate_y")
NAMES = (*(operation.__name__ for operation in POINTWISE), *GEOMETRIC)

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


def apply_policy(images, seed, augmentation: Augmentation, *, fill: Sequence[float]):
    """Applies RandAugment, AutoAugment or nothing.

    Args:
        images: Float tensor `(count, height, width, channels)` with values from 0 to
            255.
        seed: Integer tensor `(2,)`.
        augmentation: Its `augment` says which one. keras-cv's is another function,
            `keras_cv_augment`, and the images stay as they are here.
        fill: Color outside of the image.

    Returns:
        Images of the same shape.

    Example:

    >>> augmentation = Augmentation(augment="rand-m9-mstd0.5-inc1")
    >>> images = np.zeros((8, 32, 32, 3), "float32")
    >>> changed = apply_policy(images, (1, 2), augmentation, fill=(128, 128, 128))
    >>> tuple(changed.shape)
    (8, 32, 32, 3)
    """
    if augmentation.augment in ("none", "keras_cv"):
        return images
    if augmentation.augment == "auto":
        return auto_augment(images, seed, fill=fill)
    arguments = parse_rand_augment(augmentation.augment)
    return rand_augment(images, seed, fill=fill, **arguments)


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
    """Applies timm's RandAugment, whose operations grow with the magnitude.

    The defaults are those of `rand-m9-mstd0.5-inc1`.

    Args:
        images: Float tensor `(count, height, width, channels)` with values from 0 to
            255.
        seed: Integer tensor `(2,)`.
        magnitude: Mean of the magnitude. What is drawn is clipped to 0..10.
        noise: Standard deviation of the magnitude.
        operations: How many times one of the fifteen operations is drawn for each
            image.
        probability: Probability that a drawn operation is applied.
        fill: Color outside of the image.

    Returns:
        Images of the same shape.

    Example:

    >>> tuple(rand_augment(np.zeros((8, 32, 32, 3), "float32"), (1, 2)).shape)
    (8, 32, 32, 3)
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


def auto_augment(images, seed, *, fill: Sequence[float] = FILL):
    """Applies AutoAugment with the policy that was found on CIFAR-10.

    Args:
        images: Float tensor `(count, height, width, channels)` with values from 0 to
            255.
        seed: Integer tensor `(2,)`.
        fill: Color outside of the image.

    Returns:
        Images of the same shape.

    Example:

    >>> tuple(auto_augment(np.zeros((8, 32, 32, 3), "float32"), (1, 2)).shape)
    (8, 32, 32, 3)
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
    """Translates levels between 0 and 1 to the strengths of the chosen operations."""
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
    """Sorts the images by operation, so that each operation runs once on its group."""
    import tensorflow as tf

    # A group for each pointwise operation, one for all geometric operations, and one
    # for the images that stay as they are.
    last = len(POINTWISE)
    groups = tf.where(happens, tf.minimum(choice, last), last + 1)
    places, images_of, choices, strengths = (
        tf.dynamic_partition(values, groups, last + 2)
        for values in (tf.range(tf.size(groups)), images, choice, strength)
    )
    for index, operation in enumerate(POINTWISE):
        images_of[index] = operation(images_of[index], strengths[index])
    geometry = {
        name: tf.where(choices[last] == last + index, strengths[last], 0.0)
        for index, name in enumerate(GEOMETRIC)
    }
    images_of[last] = operations.warp(images_of[last], **geometry, fill=fill)
    return tf.ensure_shape(tf.dynamic_stitch(places, images_of), images.shape)
