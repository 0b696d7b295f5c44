"""Images as known weights expect them."""

import numpy as np

from cct_keras.pretrained.catalog import WEIGHTS
from cct_keras.pretrained.catalog import dataset_of


def preprocess_input(images, weights: str | None = None):
    """Scales images as the weights of a tag expect them.

    Wrong constants cost nearly all of the accuracy.

    Args:
        images: Array or tensor with values from 0 to 255, the channels in the last
            axis.
        weights: Tag of the weights, such as `"cifar10"` or `"imagenet"`, which stands
            for the constants of that data set, or `VARIANT.TAG`: Google's ViTs, such as
            `"vit_base_patch16_224.imagenet"`, have constants of their own.

    Returns:
        float32 images, normalized per channel: a NumPy array for one, and otherwise a
        tensor of the backend.

    Example:

    >>> images = np.full((1, 32, 32, 3), 255, "uint8")
    >>> preprocess_input(images, "cifar10").dtype
    dtype('float32')
    """
    if weights is None:
        tags = ", ".join(dict.fromkeys(row.tag for row in WEIGHTS))
        raise ValueError(
            "preprocess_input: `weights` must be the tag of the weights that the images "
            f"are for, one of {tags}. Received: weights=None"
        )
    data = dataset_of(weights)
    mean, std = (np.array(values, "float32") for values in (data.mean, data.std))
    if isinstance(images, (np.ndarray, list, tuple)):
        images = np.asarray(images, "float32")
    else:
        import keras

        images = keras.ops.cast(images, "float32")
    if images.shape[-1] != len(mean):
        raise ValueError(
            f"preprocess_input: the weights {weights!r} take images of {len(mean)} "
            f"channel(s) in the last axis. Received: shape {tuple(images.shape)}"
        )
    return (images / np.float32(255) - mean) / std
