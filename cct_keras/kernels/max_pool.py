"""Max-pooling with symmetric padding."""

import functools
import math

import keras
from keras import ops

from cct_keras.kernels.device import tuned_for_cpu


def max_pool(
    x,
    size: int,
    stride: int,
    padding: int,
    *,
    never_negative: bool = False,
    training: bool | None = False,
):
    """The largest values in windows of images; the padding never wins.

    Args:
        x: Images `(batch, height, width, channels)`.
        size: Side of the windows.
        stride: Distance between two windows.
        padding: How far the windows reach over each border.
        never_negative: Whether the images have no value below 0, as after a ReLU.
        training: Whether there will be a backward pass.

    Returns:
        A tensor `(batch, new height, new width, channels)`.

    Example:

    >>> keras.ops.shape(max_pool(keras.random.normal((1, 32, 32, 3)), 3, 2, 1))
    (1, 16, 16, 3)
    """
    if keras.config.backend() == "torch":
        return _torch_max_pool(x, size, stride, padding)
    if padding:
        # Zeros never win over values that are not negative, and they pad cheaper.
        lowest = 0.0 if never_negative else -math.inf
        widths = [[0, 0], [padding, padding], [padding, padding], [0, 0]]
        x = ops.pad(x, widths, constant_values=lowest)
    if training and keras.config.backend() == "jax" and tuned_for_cpu(x):
        return _maximum_of_slices(x, size, stride)
    return ops.max_pool(
        x, size, strides=stride, padding="valid", data_format="channels_last"
    )


def _torch_max_pool(x, size, stride, padding):
    """On every device: torch's own padding copies nothing, in neither pass."""
    import torch

    x = torch.nn.functional.max_pool2d(x.permute(0, 3, 1, 2), size, stride, padding)
    return x.permute(0, 2, 3, 1)


def _maximum_of_slices(x, size, stride):
    """Pools the rows, then the columns.

    The backward pass of XLA's own pooling takes four times as long on a CPU.
    """
    for axis in (1, 2):
        length = (x.shape[axis] - size) // stride * stride + 1
        before = (slice(None),) * axis
        slices = (x[(*before, slice(i, i + length, stride))] for i in range(size))
        x = functools.reduce(ops.maximum, slices)
    return x
