"""RandAugment of keras-cv."""

from collections.abc import Callable

from cct_keras.errors import DataError


def keras_cv_augment(*, channels: int, seed: int) -> Callable:
    """Makes a function that applies keras-cv's RandAugment to batches of images.

    Its strength is that of timm's `rand-m9-mstd0.5-inc1`. What it draws depends on
    all images before.

    Args:
        channels: Channels of the images.
        seed: Seed of everything it draws.

    Returns:
        Function of a float tensor `(count, height, width, channels)` with values
        from 0 to 255 that returns such a tensor.

    Example:

    >>> # Importing keras-cv takes seconds.
    >>> augment = keras_cv_augment(channels=3, seed=0)  # doctest: +SKIP
    """
    if channels != 3:
        raise DataError("augment='keras_cv' works on color images only")
    import keras_cv
    import tensorflow as tf

    # Some of its operations draw from TensorFlow's global seed.
    tf.random.set_seed(seed)
    augment = keras_cv.layers.RandAugment(
        value_range=(0, 255),
        augmentations_per_image=2,
        magnitude=0.9,
        magnitude_stddev=0.05,
        rate=0.5,
        seed=seed,
    )
    # Given a batch, it would work on ten images at a time, and their draws would
    # depend on which of them came first.
    return lambda images: tf.map_fn(augment, images, parallel_iterations=1)
